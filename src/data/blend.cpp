// Words of blends, and the sizes that Megatron's builder derives from their weights.
#include "trireme/data/blend.hpp"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>

#include "data/json_value.hpp"
#include "trireme/base/checked.hpp"

namespace trireme {
namespace {

constexpr double kSurplus = 0.005;  // Megatron's mid_level_dataset_surplus
constexpr const char* kBlanks = " \t\r\n\v\f";

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

// Absent where the word is no number.
std::optional<double> number_of(const std::string& word) {
  double value = 0;
  const char* const end = word.data() + word.size();
  const char* const begin = word.data() + (word.starts_with('+') ? 1 : 0);
  const auto [stop, fault] = std::from_chars(begin, end, value);
  if (stop != end || begin == end) return std::nullopt;
  return fault == std::errc() ? value : 0.0;  // beyond the range of a double: refused below
}

// Sum in NumPy's order: eight running sums in blocks of up to 128, halves above.
double pairwise_sum(std::span<const double> values) {
  const size_t n = values.size();
  if (n > 128) {
    const size_t half = n / 2 - n / 2 % 8;
    return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
  }
  if (n < 8) {
    double sum = -0.0;
    for (double value : values) sum += value;
    return sum;
  }
  std::array<double, 8> r;
  std::copy_n(values.begin(), 8, r.begin());
  size_t i = 8;
  for (; i + 8 <= n; i += 8)
    for (size_t lane = 0; lane < 8; ++lane) r[lane] += values[i + lane];
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) sum += values[i];
  return sum;
}

std::vector<std::string> words_of(const JsonValue& value) {
  if (value.is_null()) return {};
  if (value.raw().is_string()) return words_of(value.text());
  std::vector<std::string> words;
  for (size_t i = 0; i < value.size(); ++i) {
    const JsonValue item = value.item(i);
    words.push_back(item.raw().is_number() ? item.raw().dump() : item.text());
  }
  return words;
}

Blend blend_of(const JsonValue& value) {
  const std::vector<std::string> words = words_of(value);
  return words.empty() ? Blend{} : parse_blend(words);
}

BlendChoice read_blend_file(const std::string& path) {
  const std::string text = read_whole_file(path);
  const size_t start = text.find_first_not_of(kBlanks);
  require(start != std::string::npos, ExitCode::bad_data, "{}: empty; it is to name datasets",
          path);
  BlendChoice choice;
  if (text[start] != '{') {
    choice.whole = parse_blend(text);
    return choice;
  }
  nlohmann::json storage;
  const JsonValue file = JsonValue::read(path, storage);
  for (const auto& [key, value] : file.raw().items())
    require(key == "train" || key == "valid" || key == "test", ExitCode::bad_data,
            "{}: \"{}\": the keys are train, valid and test", path, key);
  choice.parts = {blend_of(file.at("train")), blend_of(file.at("valid")),
                  blend_of(file.at("test"))};
  return choice;
}

}  // namespace

Blend parse_blend(std::span<const std::string> words) {
  require(!words.empty(), ExitCode::bad_config, "no datasets are named");
  size_t numbers = 0;
  for (size_t i = 0; words.size() % 2 == 0 && i < words.size(); i += 2)
    numbers += number_of(words[i]).has_value() ? 1 : 0;
  Blend blend;
  if (numbers == 0) {
    blend.paths.assign(words.begin(), words.end());
  } else {
    for (size_t i = 0; i < words.size(); i += 2) {
      const std::optional<double> weight = number_of(words[i]);
      require(weight.has_value(), ExitCode::bad_config,
              "\"{}\" stands where a weight is expected: write WEIGHT PREFIX WEIGHT PREFIX ..., or "
              "prefixes alone",
              words[i]);
      require(*weight > 0 && std::isfinite(*weight), ExitCode::bad_config,
              "the weight {} of {} is not above 0", words[i], words[i + 1]);
      blend.weights.push_back(*weight);
      blend.paths.push_back(words[i + 1]);
    }
  }
  require(std::ssize(blend.paths) <= kMostDatasets, ExitCode::bad_config,
          "{} datasets in a blend; {} are the most", blend.paths.size(), kMostDatasets);
  return blend;
}

Blend parse_blend(std::string_view text) {
  return parse_blend(words_of(text));
}

BlendChoice read_blend(const std::string& text) {
  if (text.starts_with('@')) return read_blend_file(text.substr(1));
  std::error_code ignored;
  const bool one = std::filesystem::exists(text + ".idx", ignored);
  return {one ? Blend{{text}, {}} : parse_blend(text), {}};
}

std::vector<NamedBlend> parse_named_blends(std::string_view text) {
  std::vector<NamedBlend> all;
  std::set<std::string> names;
  while (text.find_first_not_of(kBlanks) != std::string_view::npos) {
    const size_t end = std::min(text.find(';'), text.size());
    const std::string_view entry = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = entry.find(':');
    const std::vector<std::string> name = words_of(entry.substr(0, colon));
    require(colon != std::string_view::npos && name.size() == 1, ExitCode::bad_config,
            "\"{}\" is no named dataset: write NAME: PREFIX; NAME: PREFIX", entry);
    const bool plain = std::ranges::all_of(name[0], [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
    });
    require(plain, ExitCode::bad_config,
            "\"{}\": a name is of letters, digits, - and _: it becomes a key of metrics.jsonl",
            name[0]);
    require(name[0] != "validation" && names.insert(name[0]).second, ExitCode::bad_config,
            "the name \"{}\" is taken", name[0]);
    all.push_back({name[0], parse_blend(entry.substr(colon + 1))});
  }
  return all;
}

std::vector<double> normalized(std::span<const double> weights) {
  const double sum = pairwise_sum(weights);
  std::vector<double> result(weights.begin(), weights.end());
  for (double& weight : result) weight /= sum;
  return result;
}

BlendSizes blend_sizes(std::span<const double> weights, int64_t requested) {
  BlendSizes sizes;
  for (double weight : weights) {
    const double used = std::ceil(static_cast<double>(requested) * weight);
    sizes.used.push_back(static_cast<int64_t>(used));
    sizes.prepared.push_back(static_cast<int64_t>(std::ceil(used * (1 + kSurplus))));
    sizes.samples = checked_add(sizes.samples, sizes.used.back());
  }
  return sizes;
}

}  // namespace trireme
