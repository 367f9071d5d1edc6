#include "convert/weights.hpp"

#include <algorithm>

#include "trireme/comm/together.hpp"

namespace trireme::convert {
namespace {

int64_t columns_of(const Shape& shape) {
  return shape.dims == 2 ? shape[1] : 1;
}

// Our tensor's shape, from a link to theirs.
Shape ours_of(const TensorLink& link, int64_t rows) {
  if (link.whole.dims == 1) return {rows};
  return {rows, link.transposed ? link.whole[0] : link.whole[1]};
}

// Rows that each link takes out of its foreign tensor: up to the next link's first, or the end.
std::vector<int64_t> rows_of_links(const std::vector<TensorLink>& links) {
  std::vector<int64_t> rows;
  for (size_t i = 0; i < links.size(); ++i) {
    const bool shared = i + 1 < links.size() && links[i + 1].theirs == links[i].theirs;
    const int64_t whole = links[i].whole[links[i].transposed ? 1 : 0];
    rows.push_back((shared ? links[i + 1].first : whole) - links[i].first);
  }
  return rows;
}

GlobalSlice slice_of(const TensorLink& link, const Shape& whole, DType dtype, int64_t first,
                     int64_t rows, std::byte* data) {
  GlobalSlice slice{"weights/" + link.ours, whole, whole, {}};
  slice.origin.extent = {};
  slice.origin.extent[0] = first;
  Shape local = whole;
  local.extent[0] = rows;
  slice.local = {data, local, dtype};
  return slice;
}

// This rank's rows of every tensor.
struct Share {
  int64_t first = 0, last = 0;
};
Share share_of(const Communicator& world, int64_t rows) {
  return {rows * world.rank() / world.size(), rows * (world.rank() + 1) / world.size()};
}

// Our rows [first, first + count) of a tensor, in the type that they are stored in.
void fill(const ForeignModel& foreign, const TensorLink& link, int64_t first, int64_t count,
          int64_t columns, std::byte* data) {
  const ForeignTensor& tensor = *foreign.find(link.theirs);
  const Source source{link.whole[0], columns_of(link.whole), *tensor.type,
                      [&](int64_t at, std::span<std::byte> to) { foreign.read(tensor, at, to); }};
  const FloatType type = *tensor.type == FloatType::bf16 ? FloatType::bf16 : FloatType::f32;
  const Target target{data, columns, type};
  if (link.transposed) {
    copy_columns(source, link.first + first, count, target);
  } else {
    copy_rows(source, link.first + first, count, target);
  }
}

}  // namespace

SaveReport write_checkpoint(const CheckpointContext& context, const ForeignModel& foreign,
                            const std::vector<TensorLink>& links, const std::filesystem::path& path,
                            const CheckpointHeader& header, const std::string& sidecar) {
  std::byte placeholder{};  // data come block by block
  std::vector<GlobalSlice> slices;
  const std::vector<int64_t> rows = rows_of_links(links);
  for (size_t i = 0; i < links.size(); ++i) {
    const Share share = share_of(context.world, rows[i]);
    const DType dtype = stored_type(*foreign.find(links[i].theirs)->type);
    slices.push_back(slice_of(links[i], ours_of(links[i], rows[i]), dtype, share.first,
                              share.last - share.first, &placeholder));
  }
  CheckpointSave save(context, path, header, slices, SliceMemory::host);
  WriteResult result;
  save.write_some({}, SliceMemory::host, result);  // also where this rank has nothing to write
  std::vector<std::byte> block;
  for (size_t i = 0; i < links.size() && result.fault.empty(); ++i) {
    const Shape& whole = slices[i].whole;
    const DType dtype = slices[i].local.dtype;
    const Share share = share_of(context.world, rows[i]);
    const int64_t columns = columns_of(whole);
    const int64_t step = rows_of_block(columns, float_type_of(dtype, links[i].ours));
    for (int64_t at = share.first; at < share.last && result.fault.empty(); at += step) {
      const int64_t count = std::min(step, share.last - at);
      block.resize(static_cast<size_t>(count * columns) * size_of(dtype));
      try {
        fill(foreign, links[i], at, count, columns, block.data());
      } catch (const Error& e) {
        result.fault = e.what();
        break;
      }
      const GlobalSlice piece = slice_of(links[i], whole, dtype, at, count, block.data());
      save.write_some(std::span(&piece, 1), SliceMemory::host, result);
    }
  }
  save.sync(result);
  return save.commit(result, sidecar);
}

CheckpointWeights::CheckpointWeights(const CheckpointFile& file,
                                     const std::vector<TensorLink>& links)
    : file_(file) {
  const bool masters = std::any_of(file.tensors().begin(), file.tensors().end(),
                                   [](const auto& t) { return t.name.starts_with("master/"); });
  const std::string group = masters ? "master/" : "weights/";
  const std::vector<int64_t> rows = rows_of_links(links);
  std::string faults;
  for (size_t i = 0; i < links.size(); ++i) {
    const StoredTensor* tensor = file.find(group + links[i].ours);
    const Shape whole = ours_of(links[i], rows[i]);
    if (tensor == nullptr) {
      faults += fmt::format("\n  missing: {}{} {}", group, links[i].ours, whole.text());
    } else if (!(tensor->whole == whole)) {
      faults += fmt::format("\n  mis-shaped: {} is {}, it should be {}", tensor->name,
                            tensor->whole.text(), whole.text());
    } else {
      float_type_of(tensor->dtype, tensor->name);
    }
    tensors_[links[i].ours] = tensor;
  }
  for (const StoredTensor& tensor : file.tensors())
    if (tensor.name.starts_with(group) && !tensors_.contains(tensor.name.substr(group.size())))
      faults += fmt::format("\n  surplus: {} {}", tensor.name, tensor.whole.text());
  require(faults.empty(), ExitCode::bad_data, "{} does not hold the model of its header:{}",
          file.path().string(), faults);
}

std::vector<OutputTensor> output_tensors(const std::vector<TensorLink>& links) {
  std::vector<OutputTensor> tensors;
  for (const TensorLink& link : links) {
    if (tensors.empty() || tensors.back().name != link.theirs)
      tensors.push_back({link.theirs, link.whole, FloatType::f32, {}, 0, 0});
    tensors.back().links.push_back(link);
  }
  return tensors;
}

namespace {

// Their rows [first, first + count) of a tensor into `data`. Returns the values that do not fit.
int64_t make_block(const CheckpointWeights& weights, const OutputTensor& tensor, int64_t first,
                   int64_t count, std::byte* data) {
  const int64_t width = columns_of(tensor.whole);
  int64_t lost = 0;
  for (const TensorLink& link : tensor.links) {
    const StoredTensor& stored = weights.of(link);
    const Source source{
        stored.whole[0], columns_of(stored.whole), float_type_of(stored.dtype, stored.name),
        [&](int64_t at, std::span<std::byte> to) { weights.file().read(stored, at, to); }};
    Target target{data, width, tensor.type};
    if (link.transposed) {
      target.data = target.at(0, link.first);
      lost += copy_columns(source, first, count, target);
      continue;
    }
    const int64_t from = std::max(first, link.first);
    const int64_t to = std::min(first + count, link.first + source.rows);
    if (from >= to) continue;
    target.data = target.at(from - first, 0);
    lost += copy_rows(source, from - link.first, to - from, target);
  }
  return lost;
}

}  // namespace

void write_tensors(const Communicator& world, const CheckpointWeights& weights,
                   const std::vector<OutputTensor>& tensors, const OutputFiles& files) {
  together(world, [&] {
    std::vector<std::byte> block;
    int64_t turn = 0;
    for (const OutputTensor& tensor : tensors) {
      const int64_t width = columns_of(tensor.whole);
      const int64_t step = rows_of_block(width, tensor.type);
      const int64_t row_bytes = width * static_cast<int64_t>(size_of(tensor.type));
      for (int64_t at = 0; at < tensor.whole[0]; at += step) {
        if (turn++ % world.size() != world.rank()) continue;
        const int64_t count = std::min(step, tensor.whole[0] - at);
        block.resize(static_cast<size_t>(count * row_bytes));
        const int64_t lost = make_block(weights, tensor, at, count, block.data());
        require(lost == 0, ExitCode::bad_data,
                "{} values of {} are too large for {}: choose another --dtype", lost, tensor.name,
                safetensors_name(tensor.type));
        files.write(tensor.file, tensor.offset + at * row_bytes, block);
      }
    }
    files.sync();
  });
}

}  // namespace trireme::convert
