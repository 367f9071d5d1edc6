// The text of one line of a JSONL file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

enum class JsonLine : uint8_t {
  text,         // the key holds a text, maybe an empty one
  blank,        // nothing but spaces
  malformed,    // not JSON (cut, bad UTF-8, a lone surrogate) or not an object
  missing_key,  // an object without the key
  not_text      // the key holds something else: null, a number, a list
};

// Reads one line, without its end. `text` is set for JsonLine::text, `fault` says what is wrong for
// the last three. Of a key that comes twice the last counts.
JsonLine read_json_line(std::string_view line, std::string_view key, std::string& text,
                        std::string& fault);

}  // namespace trireme
