// Remembers the ids of short pieces of text. Bounded: a fixed table in which a new piece takes the
// place of an older one; no allocation after the start.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace trireme {

class WordCache {
 public:
  static constexpr size_t kLongestPiece = 24;  // bytes
  static constexpr size_t kMostIds = 9;

  // A cache line each. An entry with length 0 is empty.
  struct alignas(64) Entry {
    std::array<uint64_t, 3> key{};
    uint8_t length = 0, count = 0;
    std::array<int32_t, kMostIds> ids{};
    std::span<const int32_t> found() const { return {ids.data(), count}; }
  };
  static_assert(sizeof(Entry) == 64);

  WordCache() : entries_(size_t{1} << kBits) {}

  // A piece as key. `padded`: all of kLongestPiece bytes from its start may be read.
  struct Key {
    std::array<uint64_t, 3> words;
    uint8_t length;
  };
  static Key key_of(std::string_view piece, bool padded) {
    Key key{{}, static_cast<uint8_t>(piece.size())};
    if (!padded) {
      std::memcpy(key.words.data(), piece.data(), piece.size());
      return key;
    }
    std::memcpy(key.words.data(), piece.data(), kLongestPiece);
    for (size_t i = 0; i < 3; ++i) {
      const size_t bytes = piece.size() > 8 * i ? piece.size() - 8 * i : 0;
      if (bytes < 8) key.words[i] &= (uint64_t{1} << (8 * bytes)) - 1;
    }
    return key;
  }

  // The place of a key; `holds` says whether its ids are there.
  Entry& place(const Key& key) {
    uint64_t mix = (key.words[0] ^ key.length) * 0x9E3779B97F4A7C15u;
    mix = (mix ^ (mix >> 29) ^ key.words[1]) * 0xBF58476D1CE4E5B9u;
    mix = (mix ^ (mix >> 32) ^ key.words[2]) * 0x94D049BB133111EBu;
    return entries_[mix >> (64 - kBits)];
  }
  static bool holds(const Entry& entry, const Key& key) {
    return entry.key == key.words && entry.length == key.length;
  }
  static void store(Entry& entry, const Key& key, std::span<const int32_t> ids) {
    if (ids.size() > kMostIds) return;
    entry.key = key.words;
    entry.length = key.length;
    entry.count = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  static constexpr int kBits = 16;  // 4 MiB
  std::vector<Entry> entries_;
};

}  // namespace trireme
