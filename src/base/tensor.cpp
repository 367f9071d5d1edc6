#include "trireme/base/tensor.hpp"

#include "trireme/base/checked.hpp"

namespace trireme {

const char* name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "i32";
    case DType::u16:
      return "u16";
  }
  return "unknown";
}

Shape::Shape(std::initializer_list<int64_t> extents) : dims(static_cast<int>(extents.size())) {
  require(extents.size() <= extent.size(), ExitCode::internal, "a shape has at most 4 extents");
  size_t i = 0;
  for (int64_t e : extents) {
    require(e >= 0, ExitCode::internal, "negative extent {}", e);
    extent[i++] = e;
  }
}

int64_t Shape::elements() const {
  if (dims == 0) return 0;
  return checked_mul(extent[0], row_elements());
}

int64_t Shape::row_elements() const {
  int64_t product = 1;
  for (int i = 1; i < dims; ++i) product = checked_mul(product, (*this)[i]);
  return product;
}

bool Shape::operator==(const Shape& other) const {
  if (dims != other.dims) return false;
  for (int i = 0; i < dims; ++i)
    if ((*this)[i] != other[i]) return false;
  return true;
}

std::string Shape::text() const {
  return fmt::format("[{}]", fmt::join(extent.begin(), extent.begin() + dims, ", "));
}

TensorView TensorView::rows(int64_t first, int64_t last) const {
  require(shape.dims > 0 && 0 <= first && first <= last && last <= shape[0], ExitCode::internal,
          "rows {}..{} of a view of shape {}", first, last, shape.text());
  TensorView piece = *this;
  piece.shape.extent[0] = last - first;
  if (data != nullptr)
    piece.data = data + static_cast<size_t>(first * shape.row_elements()) * size_of(dtype);
  return piece;
}

TensorView TensorView::range(int64_t first, int64_t last) const {
  require(0 <= first && first <= last && last <= elements(), ExitCode::internal,
          "elements {}..{} of a view of shape {}", first, last, shape.text());
  TensorView piece{data, Shape{last - first}, dtype};
  if (data != nullptr) piece.data = data + static_cast<size_t>(first) * size_of(dtype);
  return piece;
}

TensorView TensorView::as(Shape other) const {
  require(other.elements() == elements(), ExitCode::internal, "shape {} viewed as {}", shape.text(),
          other.text());
  return {data, other, dtype};
}

Matrix::Matrix(const TensorView& view)
    : data(view.data),
      rows(view.shape.dims > 0 ? view.shape[0] : 0),
      cols(view.shape.row_elements()),
      stride(cols),
      dtype(view.dtype) {}

Matrix Matrix::columns(int64_t first, int64_t last) const {
  require(0 <= first && first <= last && last <= cols, ExitCode::internal,
          "columns {}..{} of a matrix with {}", first, last, cols);
  std::byte* start = data == nullptr ? nullptr : data + static_cast<size_t>(first) * size_of(dtype);
  return {start, rows, last - first, stride, dtype};
}

Matrix Matrix::row_range(int64_t first, int64_t last) const {
  require(0 <= first && first <= last && last <= rows, ExitCode::internal,
          "rows {}..{} of a matrix with {}", first, last, rows);
  std::byte* start =
      data == nullptr ? nullptr : data + static_cast<size_t>(first * stride) * size_of(dtype);
  return {start, last - first, cols, stride, dtype};
}

}  // namespace trireme
