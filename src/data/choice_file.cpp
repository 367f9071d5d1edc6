#include "trireme/data/choice_file.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr size_t kHeaderBytes = 1024;
constexpr int32_t kMagic = 20240522, kVersion = 1;
constexpr uint16_t kStart = 65535;

class ChoiceReader {
 public:
  ChoiceReader(const std::string& path, int64_t vocab) : path_(path), vocab_(vocab) {
    std::ifstream file(path, std::ios::binary);
    require(file.good(), ExitCode::no_input, "{}: no such file, or it cannot be read", path);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    require(bytes_.size() >= kHeaderBytes, ExitCode::bad_data,
            "{}: {} bytes are too few for the header of an evaluation file", path, bytes_.size());
    require(header(0) == kMagic && header(1) == kVersion, ExitCode::bad_data,
            "{}: magic {} and version {}; an evaluation file of llm.c has {} and {}", path,
            header(0), header(1), kMagic, kVersion);
  }

  std::vector<ChoiceExample> read() {
    std::vector<ChoiceExample> examples;
    const int32_t count = header(2);
    require(count > 0, ExitCode::bad_data, "{}: {} examples", path_, count);
    for (number_ = 0; number_ < count; ++number_) examples.push_back(example());
    require(at_ == bytes_.size(), ExitCode::bad_data,
            "{}: {} bytes behind the last of {} examples, at byte {}", path_, bytes_.size() - at_,
            count, at_);
    return examples;
  }

 private:
  int32_t header(size_t word) const {
    int32_t value = 0;
    std::memcpy(&value, bytes_.data() + 4 * word, sizeof(value));
    return value;
  }
  uint16_t word(const char* what) {
    require(at_ + 2 <= bytes_.size(), ExitCode::bad_data,
            "{}: ends at byte {}, inside example {} ({})", path_, bytes_.size(), number_, what);
    uint16_t value = 0;
    std::memcpy(&value, bytes_.data() + at_, sizeof(value));
    at_ += 2;
    return value;
  }
  std::vector<int32_t> tokens(const char* what) {
    const uint16_t count = word(what);
    require(count > 0, ExitCode::bad_data, "{}: example {}, byte {}: an empty {}", path_, number_,
            at_ - 2, what);
    std::vector<int32_t> result(count);
    for (int32_t& token : result) {
      token = word(what);
      require(token < vocab_, ExitCode::bad_data,
              "{}: example {}, byte {}: token {} is not below the model's vocabulary {}", path_,
              number_, at_ - 2, token, vocab_);
    }
    return result;
  }
  ChoiceExample example() {
    const size_t start = at_;
    const uint16_t mark = word("its start"), bytes = word("its length");
    require(mark == kStart, ExitCode::bad_data, "{}: byte {}: {} where example {} should start",
            path_, start, mark, number_);
    word("its number");
    ChoiceExample result;
    result.label = word("its label");
    const uint16_t completions = word("its completions");
    require(completions > 0 && result.label < completions, ExitCode::bad_data,
            "{}: example {}, byte {}: label {} of {} completions", path_, number_, start + 6,
            result.label, completions);
    result.context = tokens("context");
    for (int i = 0; i < completions; ++i) result.completions.push_back(tokens("completion"));
    require(at_ - start == bytes, ExitCode::bad_data,
            "{}: example {}, byte {}: says {} bytes and has {}", path_, number_, start, bytes,
            at_ - start);
    return result;
  }

  std::string path_, bytes_;
  int64_t vocab_;
  size_t at_ = kHeaderBytes;
  int64_t number_ = 0;
};

}  // namespace

int64_t ChoiceExample::longest() const {
  size_t most = 0;
  for (const auto& completion : completions) most = std::max(most, completion.size());
  return static_cast<int64_t>(context.size() + most);
}

std::vector<ChoiceExample> read_choices(const std::string& path, int64_t vocab) {
  return ChoiceReader(path, vocab).read();
}

int32_t best_completion(const ChoiceExample& example, const std::vector<double>& losses) {
  size_t best = 0;
  const auto mean = [&](size_t i) {
    return losses[i] / static_cast<double>(example.completions[i].size());
  };
  for (size_t i = 1; i < losses.size(); ++i)
    if (mean(i) < mean(best)) best = i;
  return static_cast<int32_t>(best);
}

}  // namespace trireme
