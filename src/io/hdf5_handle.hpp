// Move-only owners of HDF5 identifiers, and HDF5's errors as Error.
//
// Nothing of HDF5 outlives the calls that use it: no file, no property list, no error setting.
#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::io {

// While it lives, HDF5 prints nothing; the setting before is restored.
class QuietHdf5 {
 public:
  QuietHdf5() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~QuietHdf5() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }
  QuietHdf5(const QuietHdf5&) = delete;
  QuietHdf5& operator=(const QuietHdf5&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

// The innermost entry of HDF5's error stack, the one nearest to the cause: walking downward, the
// last.
inline std::string hdf5_reason() {
  std::string text = "no reason given";
  const auto take = [](unsigned, const H5E_error2_t* entry, void* out) -> herr_t {
    *static_cast<std::string*>(out) = fmt::format("{} in {}", entry->desc, entry->func_name);
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, take, &text);
  return text;
}

// `result` is an identifier, a herr_t or an htri_t: negative means failure.
template <class Result>
Result hdf5_check(Result result, const std::string& what) {
  require(result >= 0, ExitCode::io, "HDF5 cannot {}: {}", what, hdf5_reason());
  return result;
}

class Hdf5Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Handle(hid_t id, Close closer, const std::string& what)
      : id_(hdf5_check(id, what)), close_(closer) {}
  ~Hdf5Handle() {
    if (id_ >= 0) close_(id_);
  }
  Hdf5Handle(Hdf5Handle&& other) noexcept
      : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&&) = delete;
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;

  operator hid_t() const { return id_; }  // NOLINT(google-explicit-constructor): it is the id
  // Closes now and reports an error, for files: closing is when HDF5 writes.
  void close(const std::string& what) { hdf5_check(close_(std::exchange(id_, -1)), what); }

 private:
  hid_t id_;
  Close close_;
};

}  // namespace trireme::io
