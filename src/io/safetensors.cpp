#include "trireme/io/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "io/posix_file.hpp"
#include "trireme/base/checked.hpp"

namespace trireme {
namespace {

using Json = nlohmann::json;

struct ElementType {
  const char* name;
  int64_t bits;
};
// Widest first, as the reference writer orders data.
constexpr std::array<ElementType, 22> kTypes = {
    {{"U64", 64},        {"I64", 64},    {"F64", 64},    {"C64", 64},    {"F32", 32},
     {"U32", 32},        {"I32", 32},    {"BF16", 16},   {"F16", 16},    {"U16", 16},
     {"I16", 16},        {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
     {"F8_E5M2FNUZ", 8}, {"I8", 8},      {"U8", 8},      {"BOOL", 8},    {"F6_E2M3", 6},
     {"F6_E3M2", 6},     {"F4", 4}}};

constexpr size_t kMostTensors = size_t{1} << 20;
constexpr size_t kMostDimensions = 16;
constexpr size_t kLongestName = 4096;

// Place in kTypes, or its size.
size_t type_index(const std::string& name) {
  return static_cast<size_t>(std::find_if(kTypes.begin(), kTypes.end(),
                                          [&](const ElementType& t) { return name == t.name; }) -
                             kTypes.begin());
}

std::string printable(const std::string& text) {
  constexpr size_t kShown = 80;
  std::string shown;
  for (const char c : text.substr(0, kShown)) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown + (text.size() > kShown ? "..." : "");
}

// Accepts exactly the header's grammar: nothing is nested deeper than it says, nothing is repeated.
// What is refused is refused at once, before more of it is read.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(std::string file) : file_(std::move(file)) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(size_t) override {
    if (place_ == Place::start) return go(Place::top);
    if (place_ == Place::entry) return go(is_metadata_ ? Place::metadata : Place::tensor);
    return refuse("an object where none belongs");
  }
  bool key(string_t& name) override {
    if (place_ == Place::top) return open_entry(name);
    if (!keys_.insert(name).second)
      return refuse(fmt::format("{} has '{}' twice", printable(current_.name), printable(name)));
    if (place_ == Place::metadata) {
      metadata_key_ = name;
      return go(Place::metadata_value);
    }
    if (name == "dtype") return go(Place::dtype);
    if (name == "shape") return go(Place::before_shape);
    if (name == "data_offsets") return go(Place::before_offsets);
    return refuse(
        fmt::format("{} has an unknown key '{}'", printable(current_.name), printable(name)));
  }
  bool end_object() override {
    if (place_ == Place::metadata) return go(Place::top);
    if (place_ == Place::tensor) return close_tensor();
    return go(Place::end);
  }
  bool start_array(size_t) override {
    if (place_ == Place::before_shape) return go(Place::shape);
    if (place_ == Place::before_offsets) return go(Place::offsets);
    return refuse("an array where none belongs");
  }
  bool end_array() override { return go(Place::tensor); }
  bool string(string_t& value) override {
    if (place_ == Place::metadata_value) {
      header_.metadata[metadata_key_] = value;
      return go(Place::metadata);
    }
    if (place_ != Place::dtype) return refuse("text where none belongs");
    current_.dtype = value;
    return go(Place::tensor);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::shape && place_ != Place::offsets)
      return refuse("a number where none belongs");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return refuse(fmt::format("{}: {} is out of range", printable(current_.name), value));
    std::vector<int64_t>& list = place_ == Place::shape ? current_.shape : offsets_;
    if (list.size() >= kMostDimensions)
      return refuse(
          fmt::format("{} has more than {} numbers", printable(current_.name), kMostDimensions));
    list.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return refuse("a fraction"); }
  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("true or false"); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(fmt::format("no JSON at byte {}", at));
  }

 private:
  enum class Place : uint8_t {
    start,
    top,
    entry,
    metadata,
    metadata_value,
    tensor,
    dtype,
    before_shape,
    shape,
    before_offsets,
    offsets,
    end
  };

  bool go(Place place) {
    place_ = place;
    return true;
  }
  [[noreturn]] bool refuse(const std::string& what) const {
    fail(ExitCode::bad_data, "{} is not a safetensors file: its header has {}", file_, what);
  }
  bool open_entry(const std::string& name) {
    if (name.size() > kLongestName) refuse(fmt::format("a name of {} bytes", name.size()));
    if (!names_.insert(name).second) refuse(fmt::format("{} twice", printable(name)));
    if (names_.size() > kMostTensors) refuse(fmt::format("more than {} tensors", kMostTensors));
    is_metadata_ = name == "__metadata__";
    current_ = {};
    current_.name = name;
    offsets_.clear();
    keys_.clear();
    return go(Place::entry);
  }
  bool close_tensor() {
    const std::string name = printable(current_.name);
    for (const char* key : {"dtype", "shape", "data_offsets"})
      if (!keys_.contains(key)) refuse(fmt::format("no {} for {}", key, name));
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1])
      refuse(fmt::format("data_offsets of {} that are no range", name));
    current_.first_byte = offsets_[0];
    current_.last_byte = offsets_[1];
    header_.tensors.push_back(std::move(current_));
    return go(Place::top);
  }

  std::string file_;
  SafetensorsHeader header_;
  Place place_ = Place::start;
  bool is_metadata_ = false;
  SafetensorsEntry current_;
  std::vector<int64_t> offsets_;
  std::string metadata_key_;
  std::set<std::string> names_, keys_;
};

int64_t bytes_of(const SafetensorsEntry& entry, const std::string& file) {
  const size_t type = type_index(entry.dtype);
  require(type < kTypes.size(), ExitCode::bad_data, "{}: {} has the unknown element type '{}'",
          file, printable(entry.name), printable(entry.dtype));
  int64_t bits = kTypes[type].bits;
  for (const int64_t extent : entry.shape) bits = checked_mul(bits, extent);
  require(bits % 8 == 0, ExitCode::bad_data, "{}: {} does not fill whole bytes", file,
          printable(entry.name));
  return bits / 8;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                           const std::string& file) {
  require(!json.empty() && json[0] == '{', ExitCode::bad_data,
          "{} is not a safetensors file: its header does not start with {{", file);
  HeaderReader reader(file);
  Json::sax_parse(json.begin(), json.end(), &reader);
  SafetensorsHeader header = reader.take();
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.first_byte, a.last_byte) < std::tie(b.first_byte, b.last_byte);
            });
  int64_t end = 0;
  for (const SafetensorsEntry& entry : header.tensors) {
    const std::string name = printable(entry.name);
    require(entry.first_byte == end, ExitCode::bad_data,
            "{}: {} starts at byte {} of the data, the tensor before it ends at {}: a hole or an "
            "overlap",
            file, name, entry.first_byte, end);
    const int64_t bytes = bytes_of(entry, file);
    require(entry.bytes() == bytes, ExitCode::bad_data, "{}: {} should have {} bytes and has {}",
            file, name, bytes, entry.bytes());
    end = entry.last_byte;
  }
  require(end == data_bytes, ExitCode::bad_data,
          "{}: the header describes {} bytes of data, the file has {}: cut short, or something is "
          "appended",
          file, end, data_bytes);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) {
  const io::PosixFile file = io::PosixFile::open_to_read(path);
  const std::string name = path.string();
  const int64_t size = file.size();
  require(size >= 8, ExitCode::bad_data, "{} has {} bytes: too short for a safetensors file", name,
          size);
  uint64_t length = 0;
  file.read_at(std::as_writable_bytes(std::span(&length, 1)), 0);
  require(length <= static_cast<uint64_t>(kLongestSafetensorsHeader) &&
              length <= static_cast<uint64_t>(size - 8),
          ExitCode::bad_data,
          "{} is not a safetensors file, or is cut short: its header would have {} bytes", name,
          length);
  std::string json(length, '\0');
  file.read_at(std::as_writable_bytes(std::span(json)), 8);
  data_offset_ = 8 + static_cast<int64_t>(length);
  header_ = parse_safetensors_header(json, size - data_offset_, name);
}

SafetensorsLayout lay_out_safetensors(std::vector<SafetensorsEntry> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::make_pair(type_index(a.dtype), a.name) <
                     std::make_pair(type_index(b.dtype), b.name);
            });
  SafetensorsLayout layout;
  nlohmann::ordered_json header;
  header["__metadata__"]["format"] = "pt";
  for (SafetensorsEntry& entry : tensors) {
    entry.first_byte = layout.data_bytes;
    entry.last_byte = checked_add(layout.data_bytes, bytes_of(entry, "safetensors"));
    layout.data_bytes = entry.last_byte;
    header[entry.name] = {{"dtype", entry.dtype},
                          {"shape", entry.shape},
                          {"data_offsets", {entry.first_byte, entry.last_byte}}};
  }
  std::string text = header.dump();
  text.resize(static_cast<size_t>(round_up(static_cast<int64_t>(text.size()), 8)), ' ');
  const uint64_t length = text.size();
  layout.start.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  layout.start += text;
  layout.tensors = std::move(tensors);
  return layout;
}

}  // namespace trireme
