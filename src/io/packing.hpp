// Values as bytes for other ranks. The bytes never leave the job: both sides are this program.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>

#include "trireme/base/error.hpp"

namespace trireme::io {

template <class T>
void put(std::string& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

inline void put_text(std::string& out, const std::string& text) {
  put(out, static_cast<uint32_t>(text.size()));
  out += text;
}

class Unpacker {
 public:
  explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}
  bool done() const { return at_ == bytes_.size(); }
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, need(sizeof(T)), sizeof(T));
    return value;
  }
  std::string take_text() {
    const auto count = take<uint32_t>();
    return {need(count), count};
  }

 private:
  const char* need(size_t count) {
    require(count <= bytes_.size() - at_, ExitCode::internal,
            "a rank's list of slices is cut short");
    const char* place = bytes_.data() + at_;
    at_ += count;
    return place;
  }
  const std::string& bytes_;
  size_t at_ = 0;
};

}  // namespace trireme::io
