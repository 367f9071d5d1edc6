// Lustre's own request, by ioctl on the directory, so that its library is not needed. The numbers
// are those of Lustre's published user interface (lustre_user.h): they are part of its protocol.
#include "io/striping.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>

namespace trireme::io {
namespace {

constexpr int64_t kLustreMagic = 0x0BD00BD0;
constexpr uint32_t kLayoutMagic = 0x0BD10BD0;  // lov_user_md_v1

struct StripeRequest {
  uint32_t magic = kLayoutMagic;
  uint32_t pattern = 0;  // the file system's usual one
  std::array<uint64_t, 2> object = {};
  uint32_t stripe_bytes = 0;
  uint16_t stripes = 0;            // 0xffff: all targets
  uint16_t first_target = 0xffff;  // any
};
static_assert(sizeof(StripeRequest) == 32);

}  // namespace

bool set_stripes(const std::filesystem::path& directory, int64_t count, int64_t bytes) {
  struct statfs system {};
  if (::statfs(directory.c_str(), &system) != 0 || system.f_type != kLustreMagic) return false;
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return false;
  StripeRequest request;
  request.stripe_bytes = static_cast<uint32_t>(bytes);
  request.stripes = count < 0 ? uint16_t{0xffff} : static_cast<uint16_t>(count);
  const bool done = ::ioctl(descriptor, _IOW('f', 154, long), &request) == 0;
  ::close(descriptor);
  return done;
}

}  // namespace trireme::io
