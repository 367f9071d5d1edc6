// Host memory that was freed reads as NaN and is not given again: a pointer that a library keeps
// into an object that is gone gives wrong numbers in these tests every time, not now and then.
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace {

// Larger blocks hold the operands of tests; they go back.
constexpr size_t kKept = 1024;  // bytes

}  // namespace

void operator delete(void* block) noexcept {
  if (block == nullptr) return;
  const size_t bytes = malloc_usable_size(block);
  if (bytes > kKept) return std::free(block);
  std::memset(block, 0xFF, bytes);
}
void operator delete(void* block, size_t) noexcept {
  operator delete(block);
}
