// The only file that calls the HDF5 library to write. Needs 1.10.7; keeps to the 1.10 file format.
#include "io/hdf5_layout.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "io/hdf5_handle.hpp"
#include "io/posix_file.hpp"
#include "trireme/base/checked.hpp"

namespace trireme::io {
namespace {

constexpr const char* kAbout =
    "Trireme checkpoint: whole tensors, row-major. /checksums is the index with a checksum of each "
    "tensor, /header the state that is not a tensor. bf16 is a 16-bit float with 8 exponent bits.";

// A file in memory where there is one. It lives as long as this object; its name need not.
class ScratchFile {
 public:
  ScratchFile() {
    std::filesystem::path directory = "/dev/shm";
    if (access(directory.c_str(), W_OK) != 0) directory = std::filesystem::temp_directory_path();
    path_ = (directory / "trireme-layout-XXXXXX").string();
    descriptor_ = mkostemp(path_.data(), O_CLOEXEC);
    require(
        descriptor_ >= 0, ExitCode::io,
        "cannot make a scratch file in {}: {}; set TMPDIR to a directory with room for a few MB",
        directory.string(), system_reason(errno));
  }
  ~ScratchFile() {
    remove_name();
    ::close(descriptor_);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  // Once HDF5 has it open: a job that is killed from here on leaves nothing.
  void remove_name() {
    if (has_name_) ::unlink(path_.c_str());
    has_name_ = false;
  }
  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  bool has_name_ = true;
};

Hdf5Handle property_list(hid_t kind) {
  return {H5Pcreate(kind), H5Pclose, "make a property list"};
}

Hdf5Handle create_file(const std::string& path, std::span<const StoredTensor> tensors,
                       int64_t wanted_alignment) {
  const Hdf5Handle access = property_list(H5P_FILE_ACCESS);
  // One block for all metadata, so that it lies in front and the data behind it.
  const int64_t metadata =
      round_up(static_cast<int64_t>(tensors.size()) * 1024 + 8192, kAlignmentThreshold);
  hdf5_check(H5Pset_fapl_sec2(access), "choose plain files");
  hdf5_check(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110), "set the version");
  const auto alignment =
      static_cast<hsize_t>(wanted_alignment > 0 ? wanted_alignment : alignment_for(tensors));
  hdf5_check(H5Pset_alignment(access, kAlignmentThreshold, alignment), "set the alignment");
  hdf5_check(H5Pset_meta_block_size(access, static_cast<hsize_t>(metadata)), "size metadata");
  hdf5_check(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), "set how to close");
  hdf5_check(H5Pset_file_locking(access, false, true), "switch file locking off");
  const Hdf5Handle creation = property_list(H5P_FILE_CREATE);
  hdf5_check(H5Pset_userblock(creation, kBlockBytes), "set the user block");
  hdf5_check(H5Pset_obj_track_times(creation, false), "switch times off");
  return {H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose,
          "create the layout in " + path};
}

Hdf5Handle text_type(size_t bytes) {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "make a text type");
  hdf5_check(H5Tset_size(type, bytes), "size a text type");
  hdf5_check(H5Tset_cset(type, H5T_CSET_UTF8), "set a text type to UTF-8");
  hdf5_check(H5Tset_strpad(type, H5T_STR_NULLPAD), "set the padding of a text type");
  return type;
}

// Brain float as IEEE layout: sign 1, exponent 8 with bias 127, mantissa 7 bits.
Hdf5Handle bf16_type() {
  Hdf5Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, "make the bf16 type");
  hdf5_check(H5Tset_fields(type, 15, 7, 8, 0, 7), "set the fields of bf16");
  hdf5_check(H5Tset_precision(type, 16), "set the precision of bf16");
  hdf5_check(H5Tset_size(type, 2), "set the size of bf16");
  hdf5_check(H5Tset_ebias(type, 127), "set the bias of bf16");
  return type;
}

Hdf5Handle element_type(DType dtype) {
  if (dtype == DType::bf16) return bf16_type();
  const hid_t from = dtype == DType::f32   ? H5T_IEEE_F32LE
                     : dtype == DType::i32 ? H5T_STD_I32LE
                                           : H5T_STD_U16LE;
  return {H5Tcopy(from), H5Tclose, "copy an element type"};
}

Hdf5Handle record_type() {
  Hdf5Handle type(H5Tcreate(H5T_COMPOUND, sizeof(Record)), H5Tclose, "make the index type");
  const auto insert = [&](const char* name, size_t offset, const Hdf5Handle& member) {
    hdf5_check(H5Tinsert(type, name, offset, member), "add to the index type");
  };
  const auto copy = [](hid_t from) { return Hdf5Handle(H5Tcopy(from), H5Tclose, "copy a type"); };
  const auto array = [](hid_t of, hsize_t count) {
    return Hdf5Handle(H5Tarray_create2(of, 1, &count), H5Tclose, "make an array type");
  };
  insert("name", offsetof(Record, name), text_type(sizeof(Record::name)));
  insert("dtype", offsetof(Record, dtype), text_type(sizeof(Record::dtype)));
  insert("dims", offsetof(Record, dims), copy(H5T_STD_U64LE));
  insert("extent", offsetof(Record, extent), array(H5T_STD_I64LE, 4));
  insert("offset", offsetof(Record, offset), copy(H5T_STD_U64LE));
  insert("bytes", offsetof(Record, bytes), copy(H5T_STD_U64LE));
  insert("sum", offsetof(Record, sum), array(H5T_STD_U64LE, 2));
  return type;
}

// Creates a contiguous dataset whose place is fixed at once; gives back its offset in the file.
int64_t create_dataset(hid_t where, const std::string& name, hid_t type, hid_t space) {
  const Hdf5Handle creation = property_list(H5P_DATASET_CREATE);
  hdf5_check(H5Pset_layout(creation, H5D_CONTIGUOUS), "set a contiguous layout");
  hdf5_check(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY), "set early allocation");
  hdf5_check(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), "set no filling");
  hdf5_check(H5Pset_obj_track_times(creation, false), "switch times off");
  const Hdf5Handle dataset(
      H5Dcreate2(where, name.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose,
      "create dataset " + name);
  const haddr_t offset = H5Dget_offset(dataset);
  require(offset != HADDR_UNDEF, ExitCode::internal, "HDF5 gave dataset {} no place", name);
  return static_cast<int64_t>(offset);
}

void add_attribute(hid_t file, const char* name, hid_t type, const void* value) {
  const Hdf5Handle scalar(H5Screate(H5S_SCALAR), H5Sclose, "make a scalar space");
  const Hdf5Handle attribute(H5Acreate2(file, name, type, scalar, H5P_DEFAULT, H5P_DEFAULT),
                             H5Aclose, fmt::format("create attribute {}", name));
  hdf5_check(H5Awrite(attribute, type, value), fmt::format("write attribute {}", name));
}

void add_text(hid_t object, const char* name, const std::string& text) {
  if (!text.empty()) add_attribute(object, name, text_type(text.size()), text.data());
}

// What a group of tensors is, for readers of the file alone.
std::string about_group(const std::string& group) {
  const std::map<std::string, std::string> texts = {
      {"weights",
       "Weights in the type that the model computes in: the master weights, rounded. "
       "Linear layers whose input is split over ranks are stored as [in, out]."},
      {"master", "Master weights in f32: what the optimizer updates. Shapes as in /weights."},
      {"adam_m", "AdamW's first moments, not corrected for bias. Shapes as in /weights."},
      {"adam_v", "AdamW's second moments, not corrected for bias. Shapes as in /weights."},
      {"gradients", "Sums of the gradients over the counted tokens of one step."}};
  const auto found = texts.find(group);
  return found == texts.end() ? "" : found->second;
}

void add_attributes(hid_t file, const CheckpointHeader& header) {
  add_text(file, "about", kAbout);
  add_text(file, "model", header.model_section);
  add_text(file, "optimizer", header.optimizer_section);
  add_text(file, "data", header.data_section);
  add_text(file, "schedule", header.schedule_section);
  add_attribute(file, "format_version", H5T_STD_U64LE, &kFormatVersion);
  add_attribute(file, "step", H5T_STD_I64LE, &header.step);
  add_attribute(file, "consumed_samples", H5T_STD_I64LE, &header.consumed_samples);
  add_attribute(file, "consumed_tokens", H5T_STD_I64LE, &header.consumed_tokens);
  add_attribute(file, "updates", H5T_STD_I64LE, &header.updates);
  add_attribute(file, "update_samples", H5T_STD_I64LE, &header.update_samples);
  add_attribute(file, "seed", H5T_STD_U64LE, &header.seed);
}

void add_tensors(hid_t file, std::vector<StoredTensor>& tensors) {
  const Hdf5Handle creation = property_list(H5P_GROUP_CREATE);
  hdf5_check(H5Pset_obj_track_times(creation, false), "switch times off");
  std::string group;
  for (StoredTensor& tensor : tensors) {
    const std::string wanted = tensor.name.substr(0, tensor.name.find('/'));
    if (wanted != group) {
      group = wanted;
      const Hdf5Handle made(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, creation, H5P_DEFAULT),
                            H5Gclose, "create group " + group);
      add_text(made, "about", about_group(group));
    }
    std::array<hsize_t, 4> extent{};
    for (int d = 0; d < tensor.whole.dims; ++d)
      extent[static_cast<size_t>(d)] = static_cast<hsize_t>(tensor.whole[d]);
    const Hdf5Handle space(H5Screate_simple(tensor.whole.dims, extent.data(), nullptr), H5Sclose,
                           "make the space of " + tensor.name);
    tensor.offset = create_dataset(file, tensor.name, element_type(tensor.dtype), space);
  }
}

// The parts of the scratch file that hold something, but for the holes that make up most of it.
std::vector<MetadataPiece> read_metadata(const ScratchFile& scratch) {
  std::vector<MetadataPiece> pieces;
  int64_t at = 0;
  while ((at = lseek(scratch.descriptor(), at, SEEK_DATA)) >= 0) {
    const int64_t end = lseek(scratch.descriptor(), at, SEEK_HOLE);
    require(end > at, ExitCode::io, "cannot find the written parts of {}: {}", scratch.path(),
            system_reason(errno));
    std::string bytes(static_cast<size_t>(end - at), '\0');
    const ssize_t done = pread(scratch.descriptor(), bytes.data(), bytes.size(), at);
    require(done == end - at, ExitCode::io, "cannot read {}: {}", scratch.path(),
            system_reason(errno));
    pieces.push_back({at, std::move(bytes)});
    at = end;
  }
  require(errno == ENXIO, ExitCode::io, "cannot find the written parts of {}: {}", scratch.path(),
          system_reason(errno));
  return pieces;
}

// /header is written by us, like all data; what HDF5 wrote has zeros there.
void add_header(FileLayout& layout, std::string text) {
  layout.index.header_bytes = static_cast<int64_t>(text.size());
  layout.metadata.push_back({layout.index.header_offset, std::move(text)});
  for (const MetadataPiece& piece : layout.metadata)
    layout.index.structure_sum.add(sum_bytes(std::as_bytes(std::span(piece.bytes)), piece.offset));
}

}  // namespace

FileLayout lay_out_checkpoint(const CheckpointHeader& header, std::vector<StoredTensor> tensors,
                              int64_t alignment) {
  require(!tensors.empty(), ExitCode::internal, "a checkpoint without tensors");
  const QuietHdf5 quiet;
  ScratchFile scratch;
  std::string text = encode_header(header);
  require(static_cast<int64_t>(text.size()) <= kLargestHeader, ExitCode::bad_config,
          "the deck's sections have {} bytes; at most {} fit into a checkpoint", text.size(),
          kLargestHeader);
  FileLayout layout;
  Hdf5Handle file = create_file(scratch.path(), tensors, alignment);
  scratch.remove_name();
  add_attributes(file, header);
  {
    const Hdf5Handle scalar(H5Screate(H5S_SCALAR), H5Sclose, "make a scalar space");
    layout.index.header_offset = create_dataset(file, "header", text_type(text.size()), scalar);
    add_tensors(file, tensors);
    const hsize_t count = tensors.size();
    const Hdf5Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, "make the index space");
    layout.index.records_offset = create_dataset(file, "checksums", record_type(), space);
  }
  file.close("close the layout");
  const off_t end = lseek(scratch.descriptor(), 0, SEEK_END);
  require(end > 0, ExitCode::io, "cannot size {}: {}", scratch.path(), system_reason(errno));
  layout.index.file_bytes = end;
  layout.index.tensors = std::move(tensors);
  layout.metadata = read_metadata(scratch);
  add_header(layout, std::move(text));
  return layout;
}

}  // namespace trireme::io
