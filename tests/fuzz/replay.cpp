// Runs a fuzz target without libFuzzer: on every file of a corpus, then on seeded mutations of
// them. usage: PROGRAM CORPUS_FOLDER [RUNS]. A finding ends the process by a signal; the input is
// then in the file `fuzz_input` of the working directory.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kLargest = size_t{1} << 16;

class Mutator {
 public:
  explicit Mutator(const std::vector<Bytes>& corpus) : corpus_(corpus) {}

  Bytes next() {
    Bytes bytes = pick(corpus_);
    for (size_t left = 1 + below(5); left > 0; --left) change(bytes);
    if (bytes.size() > kLargest) bytes.resize(kLargest);
    return bytes;
  }

 private:
  size_t below(size_t n) { return static_cast<size_t>(random_()) % n; }
  template <class List>
  const typename List::value_type& pick(const List& list) {
    return list[below(list.size())];
  }
  size_t place(const Bytes& bytes) { return below(bytes.size() + 1); }

  void change(Bytes& bytes) {
    const auto at = [&](size_t i) { return bytes.begin() + static_cast<ptrdiff_t>(i); };
    const size_t kind = bytes.empty() ? 2 : below(7);
    if (kind == 0) bytes[below(bytes.size())] ^= static_cast<uint8_t>(1u << below(8));
    if (kind == 1) bytes[below(bytes.size())] = static_cast<uint8_t>(random_());
    if (kind == 2) bytes.insert(at(place(bytes)), 1 + below(8), static_cast<uint8_t>(random_()));
    if (kind == 3) bytes.resize(place(bytes));
    if (kind == 4) {
      const size_t first = below(bytes.size());
      bytes.erase(at(first), at(std::min(bytes.size(), first + 1 + below(16))));
    }
    if (kind == 5) {  // a number at a border of its type
      static const std::vector<uint64_t> borders = {
          0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1ull << 62, ~0ull >> 1, ~0ull};
      const uint64_t value = pick(borders);
      for (size_t i = 0, first = below(bytes.size()); i < 8 && first + i < bytes.size(); ++i)
        bytes[first + i] = static_cast<uint8_t>(value >> (8 * i));
    }
    if (kind == 6) {  // a part of another input
      const Bytes& other = pick(corpus_);
      if (other.empty()) return;
      const size_t first = below(other.size());
      const auto from = other.begin() + static_cast<ptrdiff_t>(first);
      bytes.insert(at(place(bytes)), from,
                   from + static_cast<ptrdiff_t>(1 + below(other.size() - first)));
    }
  }

  const std::vector<Bytes>& corpus_;
  std::mt19937 random_{20261130};
};

void run(const Bytes& bytes) {
  std::ofstream file("fuzz_input", std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s CORPUS_FOLDER [RUNS]\n", argv[0]), 64;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Bytes> corpus;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (corpus.empty()) return std::fprintf(stderr, "%s: no inputs\n", argv[1]), 66;
  for (const Bytes& bytes : corpus) run(bytes);
  Mutator mutator(corpus);
  const long runs = argc > 2 ? std::atol(argv[2]) : 2000;
  for (long i = 0; i < runs; ++i) run(mutator.next());
  std::filesystem::remove("fuzz_input");
  std::printf("%zu inputs and %ld mutations read or refused\n", corpus.size(), runs);
  return 0;
}
