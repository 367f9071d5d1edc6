// Opening a checkpoint file, and walks over its bytes.
#include "trireme/io/checkpoint_file.hpp"

#include <algorithm>
#include <functional>

#include "io/checkpoint_format.hpp"
#include "io/posix_file.hpp"

namespace trireme {
namespace {

constexpr int64_t kScanBytes = int64_t{8} << 20;
// Smaller tensors are scanned by one rank.
constexpr int64_t kShareBytes = int64_t{1} << 20;

// Calls `use(bytes, offset)` for pieces of [first, last) of the file.
void for_each_piece(const io::PosixFile& file, io::Extent extent, std::vector<std::byte>& buffer,
                    const std::function<void(std::span<const std::byte>, int64_t)>& use) {
  for (int64_t at = extent.first; at < extent.last; at += kScanBytes) {
    const auto count = static_cast<size_t>(std::min(kScanBytes, extent.last - at));
    const std::span<std::byte> piece = std::span(buffer).first(count);
    file.start_reading(at + kScanBytes, std::min(kScanBytes, extent.last - at));
    file.read_at(piece, at);
    use(piece, at);
  }
}

}  // namespace

struct CheckpointFile::Impl {
  io::PosixFile file;
  io::FileIndex index;
  CheckpointHeader header;
  std::vector<io::Extent> structure;
  uint64_t fingerprint = 0;
  uint64_t version = 0;

  explicit Impl(const std::filesystem::path& path);
};

CheckpointFile::Impl::Impl(const std::filesystem::path& path)
    : file(io::PosixFile::open_to_read(path)) {
  const std::string name = path.string();
  index.file_bytes = file.size();
  require(index.file_bytes >= io::kBlockBytes, ExitCode::bad_data,
          "{} has {} bytes: too short for a checkpoint", name, index.file_bytes);
  std::vector<std::byte> start(static_cast<size_t>(io::kBlockBytes));
  file.read_at(start, 0);
  const io::Block block = io::decode_block(start, index.file_bytes, name);
  index.header_offset = static_cast<int64_t>(block.header_offset);
  index.header_bytes = static_cast<int64_t>(block.header_bytes);
  index.records_offset = static_cast<int64_t>(block.records_offset);
  index.structure_sum = {block.structure_sum[0], block.structure_sum[1]};
  fingerprint = block.block_sum[0];
  version = block.version;
  std::vector<io::Record> records(block.records);
  file.read_at(std::as_writable_bytes(std::span(records)), index.records_offset);
  index.tensors = io::decode_records(block, records, name);
  structure = io::structure_extents(index, name);
  std::string text(static_cast<size_t>(index.header_bytes), '\0');
  file.read_at(std::as_writable_bytes(std::span(text)), index.header_offset);
  header = io::decode_header(text, name);
}

CheckpointFile::CheckpointFile(const std::filesystem::path& path)
    : impl_(std::make_unique<Impl>(path)) {}
CheckpointFile::~CheckpointFile() = default;
CheckpointFile::CheckpointFile(CheckpointFile&&) noexcept = default;

const std::filesystem::path& CheckpointFile::path() const {
  return impl_->file.path();
}
int64_t CheckpointFile::file_bytes() const {
  return impl_->index.file_bytes;
}
uint64_t CheckpointFile::version() const {
  return impl_->version;
}
uint64_t CheckpointFile::fingerprint() const {
  return impl_->fingerprint;
}
const CheckpointHeader& CheckpointFile::header() const {
  return impl_->header;
}
const std::vector<StoredTensor>& CheckpointFile::tensors() const {
  return impl_->index.tensors;
}

const StoredTensor* CheckpointFile::find(const std::string& name) const {
  const std::vector<StoredTensor>& all = tensors();
  const auto place = std::lower_bound(
      all.begin(), all.end(), name,
      [](const StoredTensor& tensor, const std::string& wanted) { return tensor.name < wanted; });
  return place != all.end() && place->name == name ? &*place : nullptr;
}

bool CheckpointFile::has_group(const std::string& group) const {
  return std::any_of(tensors().begin(), tensors().end(), [&](const StoredTensor& tensor) {
    return tensor.name.starts_with(group + "/");
  });
}

void CheckpointFile::read(const StoredTensor& tensor, int64_t first,
                          std::span<std::byte> to) const {
  const auto width = static_cast<int64_t>(size_of(tensor.dtype));
  const auto count = static_cast<int64_t>(to.size()) / width;
  require(first >= 0 && count <= tensor.whole.elements() - first, ExitCode::internal,
          "elements {}..{} of {} {}", first, first + count, tensor.name, tensor.whole.text());
  impl_->file.read_at(to, tensor.offset + first * width);
}

void CheckpointFile::prepare(const StoredTensor& tensor, int64_t first, int64_t count) const {
  const auto width = static_cast<int64_t>(size_of(tensor.dtype));
  impl_->file.start_reading(tensor.offset + first * width, count * width);
}

std::vector<ElementScan> CheckpointFile::scan_share(int part, int parts,
                                                    const std::vector<bool>& skipped) const {
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kScanBytes, file_bytes())));
  std::vector<ElementScan> scans(tensors().size() + 1);
  for (size_t i = 0; i < impl_->structure.size(); ++i) {
    if (static_cast<int>(i % static_cast<size_t>(parts)) != part) continue;
    for_each_piece(impl_->file, impl_->structure[i], buffer,
                   [&](std::span<const std::byte> bytes, int64_t at) {
                     scans[0].sum.add(sum_bytes(bytes, at));
                   });
  }
  for (size_t i = 0; i < tensors().size(); ++i) {
    if (!skipped.empty() && skipped[i]) continue;
    const StoredTensor& tensor = tensors()[i];
    const auto width = static_cast<int64_t>(size_of(tensor.dtype));
    const int64_t count = tensor.whole.elements();
    const bool small = tensor.bytes() < kShareBytes;
    if (small && static_cast<int>(i % static_cast<size_t>(parts)) != part) continue;
    // Shares in steps of `count / parts` that cannot overflow; the last takes the rest.
    const int64_t step = count / parts;
    const int64_t first = small ? 0 : step * part;
    const int64_t last = small || part == parts - 1 ? count : step * (part + 1);
    for_each_piece(
        impl_->file, {tensor.offset + first * width, tensor.offset + last * width}, buffer,
        [&](std::span<const std::byte> bytes, int64_t at) {
          scans[i + 1].add(scan_elements(tensor.dtype, bytes, (at - tensor.offset) / width));
        });
  }
  return scans;
}

VerifyReport CheckpointFile::judge(std::span<const ElementScan> scans) const {
  VerifyReport report;
  report.structure_matches = scans[0].sum == impl_->index.structure_sum;
  for (size_t i = 0; i < tensors().size(); ++i) {
    const ElementScan& scan = scans[i + 1];
    report.tensors.push_back(
        {tensors()[i].name, scan.sum == tensors()[i].sum, scan.nans, scan.infinities});
  }
  return report;
}

bool VerifyReport::whole() const {
  return fault().empty();
}

std::string VerifyReport::fault() const {
  constexpr int kShown = 5;
  int count = 0;
  std::string text;
  const auto note = [&](const std::string& fault) {
    if (++count <= kShown) text += (text.empty() ? "" : "; ") + fault;
  };
  if (!structure_matches) note("its structure (HDF5 metadata, header or unused space) is damaged");
  for (const Tensor& tensor : tensors) {
    if (!tensor.sum_matches) note(tensor.name + " does not match its checksum");
    if (tensor.nans + tensor.infinities > 0)
      note(fmt::format("{} holds {} NaN and {} infinite values", tensor.name, tensor.nans,
                       tensor.infinities));
  }
  if (count > kShown) text += fmt::format("; and {} more", count - kShown);
  return text;
}

CheckpointHeader read_header(const std::filesystem::path& path) {
  return CheckpointFile(path).header();
}

VerifyReport verify(const std::filesystem::path& path) {
  const CheckpointFile file(path);
  return file.judge(file.scan_share(0, 1));
}

}  // namespace trireme
