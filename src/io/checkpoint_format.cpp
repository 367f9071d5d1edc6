// Encoding and strict decoding of what a checkpoint file says about itself.
#include "io/checkpoint_format.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "trireme/base/checked.hpp"

namespace trireme::io {
namespace {

using Json = nlohmann::json;

constexpr std::array<char, 16> kMagic = {'T', 'r', 'i', 'r', 'e',  'm',  'e',    ' ',
                                         'c', 'k', 'p', 't', '\r', '\n', '\x1a', '\n'};
constexpr std::array<DType, 4> kTypes = {DType::f32, DType::bf16, DType::i32, DType::u16};

std::array<uint64_t, 2> pair_of(const ElementSum& sum) {
  return {sum.first, sum.second};
}

ElementSum block_sum(const Block& block) {
  const auto bytes = std::as_bytes(std::span(&block, 1));
  return sum_bytes(bytes.first(offsetof(Block, block_sum)), 0);
}

std::optional<DType> type_of(const std::array<char, 8>& name) {
  for (const DType type : kTypes) {
    std::array<char, 8> expected{};
    std::strncpy(expected.data(), name_of(type), expected.size() - 1);
    if (expected == name) return type;
  }
  return std::nullopt;
}

StoredTensor decode_record(const Record& record, const std::string& file) {
  StoredTensor tensor;
  require(record.name.back() == '\0', ExitCode::bad_data, "{}: a tensor's name has no end", file);
  tensor.name = record.name.data();
  const std::string fault = name_fault(tensor.name);
  require(fault.empty(), ExitCode::bad_data, "{}: {}", file, fault);
  const std::optional<DType> type = type_of(record.dtype);
  require(type.has_value(), ExitCode::bad_data, "{}: {} has an unknown element type", file,
          tensor.name);
  tensor.dtype = *type;
  require(record.dims >= 1 && record.dims <= 4, ExitCode::bad_data, "{}: {} has {} dimensions",
          file, tensor.name, record.dims);
  tensor.whole.dims = static_cast<int>(record.dims);
  int64_t elements = 1;
  for (size_t d = 0; d < 4; ++d) {
    const int64_t extent = record.extent[d];
    require(d < record.dims ? extent > 0 : extent == 0, ExitCode::bad_data,
            "{}: extent {} of {} is {}", file, d, tensor.name, extent);
    if (d < record.dims) elements = checked_mul(elements, extent);
    tensor.whole.extent[d] = extent;
  }
  const int64_t bytes = checked_mul(elements, static_cast<int64_t>(size_of(tensor.dtype)));
  require(record.bytes == static_cast<uint64_t>(bytes), ExitCode::bad_data,
          "{}: {} {} should have {} bytes, the index says {}", file, tensor.name,
          tensor.whole.text(), bytes, record.bytes);
  require(record.offset <= static_cast<uint64_t>(INT64_MAX - bytes), ExitCode::bad_data,
          "{}: {} starts beyond any file", file, tensor.name);
  tensor.offset = static_cast<int64_t>(record.offset);
  tensor.sum = {record.sum[0], record.sum[1]};
  return tensor;
}

// No nesting and few keys, seen without parsing: what a parser makes of it stays small.
bool is_flat(const std::string& text) {
  constexpr int kMostKeys = 100;
  int depth = 0, keys = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
      continue;
    }
    quoted = c == '"';
    if (c == '{' || c == '[') ++depth;
    if (c == ':') ++keys;
    if (depth > 1 || keys > kMostKeys) return false;
  }
  return true;
}

int64_t whole_number(const Json& json, const char* key, const std::string& file) {
  require(json.contains(key) && json[key].is_number_integer(), ExitCode::bad_data,
          "{}: /header has no whole number '{}'", file, key);
  const auto& value = json[key];
  require(value >= 0 && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX),
          ExitCode::bad_data, "{}: '{}' in /header is out of range", file, key);
  return value.get<int64_t>();
}

std::string text_value(const Json& json, const char* key, const std::string& file) {
  require(json.contains(key) && json[key].is_string(), ExitCode::bad_data,
          "{}: /header has no text '{}'", file, key);
  return json[key].get<std::string>();
}

}  // namespace

int64_t alignment_for(std::span<const StoredTensor> tensors) {
  int64_t bytes = 0;
  for (const StoredTensor& tensor : tensors) bytes = checked_add(bytes, tensor.bytes());
  const int64_t padding = bytes / (50 * std::max<int64_t>(1, std::ssize(tensors)));
  int64_t alignment = kSmallestAlignment;
  while (alignment * 2 <= std::min(padding, kLargestAlignment)) alignment *= 2;
  return alignment;
}

std::string name_fault(const std::string& name) {
  const auto legal = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  };
  if (name.size() > kLargestName)
    return fmt::format("tensor name of {} characters; at most {} fit", name.size(), kLargestName);
  const size_t slash = name.find('/');
  const std::string group = name.substr(0, slash);
  const std::string rest = slash == std::string::npos ? "" : name.substr(slash + 1);
  const auto good = [&](const std::string& part) {
    return !part.empty() && part.front() != '.' && std::all_of(part.begin(), part.end(), legal);
  };
  if (good(group) && good(rest)) return "";
  std::string shown;
  for (const char c : name) shown += c >= ' ' && c <= '~' ? c : '?';
  return fmt::format("tensor name '{}' is not GROUP/NAME of letters, digits, '_', '.' and '-'",
                     shown);
}

std::vector<Record> encode_records(const FileIndex& index) {
  std::vector<Record> records(index.tensors.size());
  for (size_t i = 0; i < records.size(); ++i) {
    const StoredTensor& tensor = index.tensors[i];
    Record& record = records[i];
    std::memset(&record, 0, sizeof(record));
    std::memcpy(record.name.data(), tensor.name.data(), tensor.name.size());
    std::strncpy(record.dtype.data(), name_of(tensor.dtype), record.dtype.size() - 1);
    record.dims = static_cast<uint64_t>(tensor.whole.dims);
    for (int d = 0; d < tensor.whole.dims; ++d)
      record.extent[static_cast<size_t>(d)] = tensor.whole[d];
    record.offset = static_cast<uint64_t>(tensor.offset);
    record.bytes = static_cast<uint64_t>(tensor.bytes());
    record.sum = pair_of(tensor.sum);
  }
  return records;
}

Block encode_block(const FileIndex& index, std::span<const Record> records) {
  Block block{};
  block.magic = kMagic;
  block.version = kFormatVersion;
  block.file_bytes = static_cast<uint64_t>(index.file_bytes);
  block.header_offset = static_cast<uint64_t>(index.header_offset);
  block.header_bytes = static_cast<uint64_t>(index.header_bytes);
  block.records_offset = static_cast<uint64_t>(index.records_offset);
  block.records = records.size();
  block.records_sum = pair_of(sum_bytes(std::as_bytes(records), 0));
  block.structure_sum = pair_of(index.structure_sum);
  block.block_sum = pair_of(block_sum(block));
  return block;
}

std::string encode_header(const CheckpointHeader& header) {
  // Keys in alphabetical order, no spaces: the same text for the same header. Bytes that are not
  // UTF-8 (in a path, say) become U+FFFD.
  return Json{{"consumed_samples", header.consumed_samples},
              {"consumed_tokens", header.consumed_tokens},
              {"updates", header.updates},
              {"update_samples", header.update_samples},
              {"data", header.data_section},
              {"model", header.model_section},
              {"optimizer", header.optimizer_section},
              {"schedule", header.schedule_section},
              {"seed", header.seed},
              {"step", header.step}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Block decode_block(std::span<const std::byte> bytes, int64_t file_bytes, const std::string& file) {
  Block block;
  require(bytes.size() >= sizeof(block), ExitCode::bad_data, "{} is too short for a checkpoint",
          file);
  std::memcpy(&block, bytes.data(), sizeof(block));
  require(block.magic == kMagic, ExitCode::bad_data,
          "{} is not a complete Trireme checkpoint: its first bytes do not say so", file);
  require(block.block_sum == pair_of(block_sum(block)), ExitCode::bad_data,
          "{} is damaged in its first {} bytes", file, sizeof(block));
  require(block.version == kFormatVersion, ExitCode::bad_data,
          "{} has format version {}; this program reads version {}: use the program that wrote it",
          file, block.version, kFormatVersion);
  require(block.file_bytes == static_cast<uint64_t>(file_bytes), ExitCode::bad_data,
          "{} has {} bytes and should have {}", file, file_bytes, block.file_bytes);
  const uint64_t size = block.file_bytes;
  require(block.header_bytes <= static_cast<uint64_t>(kLargestHeader) &&
              block.header_offset <= size && block.header_bytes <= size - block.header_offset &&
              block.records >= 1 && block.records <= static_cast<uint64_t>(kMostTensors) &&
              block.records_offset <= size &&
              block.records * sizeof(Record) <= size - block.records_offset,
          ExitCode::bad_data, "{}: header or index lies outside the file", file);
  const auto rest = bytes.subspan(sizeof(block));
  require(std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; }),
          ExitCode::bad_data, "{} is damaged in the block at its start", file);
  return block;
}

std::vector<StoredTensor> decode_records(const Block& block, std::span<const Record> records,
                                         const std::string& file) {
  require(block.records_sum == pair_of(sum_bytes(std::as_bytes(records), 0)), ExitCode::bad_data,
          "{}: the index in /checksums is damaged", file);
  std::vector<StoredTensor> tensors;
  tensors.reserve(records.size());
  for (const Record& record : records) {
    tensors.push_back(decode_record(record, file));
    require(tensors.size() < 2 || tensors[tensors.size() - 2].name < tensors.back().name,
            ExitCode::bad_data, "{}: {} is out of order or repeated in /checksums", file,
            tensors.back().name);
  }
  return tensors;
}

CheckpointHeader decode_header(const std::string& text, const std::string& file) {
  require(is_flat(text), ExitCode::bad_data, "{}: /header is not a JSON object of plain values",
          file);
  const Json json = Json::parse(text, nullptr, false);
  require(json.is_object(), ExitCode::bad_data, "{}: /header is not a JSON object", file);
  CheckpointHeader header;
  header.step = whole_number(json, "step", file);
  header.consumed_samples = whole_number(json, "consumed_samples", file);
  header.consumed_tokens = whole_number(json, "consumed_tokens", file);
  header.updates = whole_number(json, "updates", file);
  header.update_samples = whole_number(json, "update_samples", file);
  require(json.contains("seed") && json["seed"].is_number_unsigned(), ExitCode::bad_data,
          "{}: /header has no whole number 'seed'", file);
  header.seed = json["seed"].get<uint64_t>();
  header.model_section = text_value(json, "model", file);
  header.optimizer_section = text_value(json, "optimizer", file);
  header.data_section = text_value(json, "data", file);
  if (json.contains("schedule")) header.schedule_section = text_value(json, "schedule", file);
  return header;
}

std::vector<Extent> structure_extents(const FileIndex& index, const std::string& file) {
  std::vector<Extent> taken = {
      {0, kBlockBytes}, {index.records_offset, index.records_offset + index.records_bytes()}};
  for (const StoredTensor& tensor : index.tensors)
    taken.push_back({tensor.offset, tensor.offset + tensor.bytes()});
  std::sort(taken.begin(), taken.end(),
            [](const Extent& a, const Extent& b) { return a.first < b.first; });
  std::vector<Extent> between;
  int64_t end = 0;
  for (const Extent& extent : taken) {
    require(extent.first >= end && extent.last <= index.file_bytes, ExitCode::bad_data,
            "{}: two parts overlap near byte {}, or one lies outside the file", file, extent.first);
    if (extent.first > end) between.push_back({end, extent.first});
    end = extent.last;
  }
  if (end < index.file_bytes) between.push_back({end, index.file_bytes});
  const bool header_inside = std::any_of(between.begin(), between.end(), [&](const Extent& extent) {
    return extent.first <= index.header_offset &&
           index.header_offset + index.header_bytes <= extent.last;
  });
  require(header_inside, ExitCode::bad_data, "{}: /header overlaps something else", file);
  return between;
}

}  // namespace trireme::io
