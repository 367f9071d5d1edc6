// Checks a SentencePiece model before its library sees it, which ends the process for some damaged
// ones, and reads beyond its memory for others.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Throws Error(bad_data), with file and byte, unless the bytes are well-formed protocol buffers
// with at least one piece, pieces are different texts without NUL and their scores finite, and the
// tables of the normalizers lead nowhere outside themselves.
void check_sentencepiece_model(std::string_view bytes, const std::string& path);

}  // namespace trireme
