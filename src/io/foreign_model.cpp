#include "trireme/io/foreign_model.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "io/posix_file.hpp"
#include "trireme/io/json_text.hpp"
#include "trireme/io/safetensors.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";

// A list in words, cut after some.
class Complaints {
 public:
  void add(const std::string& text) {
    if (++count_ <= kShown) text_ += "\n  " + text;
  }
  void throw_any(const std::string& what) const {
    require(count_ == 0, ExitCode::bad_data, "{}:{}{}", what, text_,
            count_ > kShown ? fmt::format("\n  and {} more", count_ - kShown) : "");
  }

 private:
  static constexpr int kShown = 50;
  int count_ = 0;
  std::string text_;
};

// Tensor to file name, as the index says.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const nlohmann::ordered_json json = read_json_file(path);
  require(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(),
          ExitCode::bad_data, "{} has no object weight_map", path.string());
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    require(file.is_string(), ExitCode::bad_data, "{}: the file of {} is not text", path.string(),
            tensor);
    const std::string name = file;
    const bool plain = !name.empty() && name != "." && name != ".." &&
                       name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
    require(plain, ExitCode::bad_data, "{}: the file of {} is not a plain name", path.string(),
            tensor);
    files[tensor] = name;
  }
  require(!files.empty(), ExitCode::bad_data, "{} names no tensor", path.string());
  return files;
}

bool by_name(const ForeignTensor& a, const ForeignTensor& b) {
  return a.name < b.name;
}

}  // namespace

struct ForeignModel::Impl {
  std::vector<io::PosixFile> files;
  std::vector<ForeignTensor> tensors;

  void add(const fs::path& path) {
    const SafetensorsFile file(path);
    files.push_back(io::PosixFile::open_to_read(path));
    for (const SafetensorsEntry& entry : file.header().tensors)
      tensors.push_back({entry.name, entry.dtype, float_type_of(entry.dtype), entry.shape,
                         files.size() - 1, file.data_offset() + entry.first_byte});
  }
  void add_indexed(const fs::path& directory) {
    const auto index = read_index(directory / kIndex);
    std::set<std::string> names;
    for (const auto& [tensor, file] : index) names.insert(file);
    Complaints complaints;
    std::map<std::string, size_t> places;
    for (const std::string& name : names) {
      std::error_code fault;
      if (fs::exists(directory / name, fault)) {
        places[name] = files.size();
        add(directory / name);
      } else {
        complaints.add(fmt::format("{} is missing", name));
      }
    }
    std::map<std::string, size_t> found;
    for (const ForeignTensor& tensor : tensors) {
      const auto said = index.find(tensor.name);
      if (said == index.end())
        complaints.add(fmt::format("{} is not in the index", tensor.name));
      else if (places.contains(said->second) && places.at(said->second) != tensor.file)
        complaints.add(fmt::format("{} should be in {} alone", tensor.name, said->second));
      ++found[tensor.name];
    }
    for (const auto& [tensor, file] : index)
      if (places.contains(file) && !found.contains(tensor))
        complaints.add(fmt::format("{} is not in {}", tensor, file));
    complaints.throw_any((directory / kIndex).string() + " and the files do not agree");
  }
};

ForeignModel::ForeignModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ForeignModel::~ForeignModel() = default;
ForeignModel::ForeignModel(ForeignModel&&) noexcept = default;

ForeignModel::ForeignModel(const fs::path& file, std::vector<ForeignTensor> tensors)
    : impl_(std::make_unique<Impl>()) {
  impl_->files.push_back(io::PosixFile::open_to_read(file));
  impl_->tensors = std::move(tensors);
  std::sort(impl_->tensors.begin(), impl_->tensors.end(), by_name);
}

ForeignModel ForeignModel::open_hugging_face(const fs::path& directory) {
  auto impl = std::make_unique<Impl>();
  std::error_code fault;
  require(fs::is_directory(directory, fault), ExitCode::no_input, "{} is not a directory",
          directory.string());
  if (fs::exists(directory / kIndex, fault)) {
    impl->add_indexed(directory);
  } else {
    require(fs::exists(directory / kSingle, fault), ExitCode::no_input,
            "{} has neither {} nor {}{}", directory.string(), kSingle, kIndex,
            fs::exists(directory / "pytorch_model.bin", fault)
                ? ": its pytorch_model.bin is a pickle, save it as safetensors first"
                : "");
    impl->add(directory / kSingle);
  }
  std::sort(impl->tensors.begin(), impl->tensors.end(), by_name);
  return ForeignModel(std::move(impl));
}

const std::vector<ForeignTensor>& ForeignModel::tensors() const {
  return impl_->tensors;
}

const ForeignTensor* ForeignModel::find(const std::string& name) const {
  const auto place = std::lower_bound(impl_->tensors.begin(), impl_->tensors.end(),
                                      ForeignTensor{name, {}, {}, {}, 0, 0}, by_name);
  return place != impl_->tensors.end() && place->name == name ? &*place : nullptr;
}

void ForeignModel::rename(const std::function<std::string(const std::string&)>& rename) {
  for (ForeignTensor& tensor : impl_->tensors) tensor.name = rename(tensor.name);
  std::sort(impl_->tensors.begin(), impl_->tensors.end(), by_name);
  for (size_t i = 1; i < impl_->tensors.size(); ++i)
    require(impl_->tensors[i - 1].name != impl_->tensors[i].name, ExitCode::bad_data,
            "{} is there twice, with and without a prefix", impl_->tensors[i].name);
}

void ForeignModel::remove(const std::function<bool(const std::string&)>& selected) {
  std::erase_if(impl_->tensors, [&](const ForeignTensor& tensor) { return selected(tensor.name); });
}

void ForeignModel::read(const ForeignTensor& tensor, int64_t first, std::span<std::byte> to) const {
  require(tensor.type.has_value(), ExitCode::internal, "{} is {}", tensor.name, tensor.dtype);
  const auto width = static_cast<int64_t>(size_of(*tensor.type));
  impl_->files[tensor.file].read_at(to, tensor.offset + first * width);
}

}  // namespace trireme
