// Regular expressions over valid UTF-8 with Unicode classes, by PCRE2.
//
// Patterns are those of tokenizer files, written for Oniguruma or Rust. \s and \w are taken as
// Unicode defines them (PCRE2's own differ); constructs that mean something else there than in
// PCRE2 are refused. One thread at a time; a copy shares the compiled pattern and may be used
// beside it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace trireme {

class Regex {
 public:
  struct Match {
    size_t begin = 0, end = 0;  // bytes
    bool found = false;
  };

  // Errors: bad_data with the pattern and what is wrong in it.
  explicit Regex(const std::string& pattern);
  Regex(const Regex& other);
  Regex& operator=(const Regex& other);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // A pattern that matches the text literally.
  static Regex literal(std::string_view text);

  // The first match at or after byte `from`, which must be the start of a character. `text` must
  // be valid UTF-8. Errors: bad_data where the pattern needs more work than any sane one.
  Match find(std::string_view text, size_t from) const;

 private:
  struct Code;
  struct State;
  std::shared_ptr<const Code> code_;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
