// Errors that carry an exit code, the place they were raised, and a remedy in their text.
//
// A function that cannot do its work throws `Error`; the program's guard prints it once and ends
// every rank with the code. Checks are functions, not macros; `assert` is for our own mistakes
// only.
#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace trireme {

// Process exit codes: the values of sysexits.h where there is one. `doc/exit_codes.md` lists them.
enum class ExitCode : int {
  ok = 0,           // all steps done, or the run was already finished
  usage = 64,       // bad command line
  bad_data = 65,    // bad content: data, tokenizer, weights, checkpoint
  no_input = 66,    // missing input
  internal = 70,    // one of our own checks failed
  device = 71,      // this device is suspect
  io = 74,          // a save or load failed; older checkpoints are intact
  stopped = 75,     // asked to stop, saved, steps left
  peer = 76,        // a peer died or hangs
  bad_config = 78,  // bad or contradictory deck or layout
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& text,
        std::source_location where = std::source_location::current())
      : std::runtime_error(text), code_(code), where_(where) {}
  ExitCode code() const { return code_; }
  const std::source_location& where() const { return where_; }

 private:
  ExitCode code_;
  std::source_location where_;
};

// A format string that remembers where it was written.
template <class... Args>
struct Located {
  fmt::format_string<Args...> text;
  std::source_location where;
  template <class S>
  consteval Located(const S& s, std::source_location w = std::source_location::current())
      : text(s), where(w) {}
};

// Throws `Error` with the formatted text. The text names the thing, the place and the remedy.
template <class... Args>
[[noreturn]] void fail(ExitCode code, Located<std::type_identity_t<Args>...> text, Args&&... args) {
  throw Error(code, fmt::format(text.text, std::forward<Args>(args)...), text.where);
}

template <class... Args>
void require(bool ok, ExitCode code, Located<std::type_identity_t<Args>...> text, Args&&... args) {
  if (!ok) [[unlikely]]
    throw Error(code, fmt::format(text.text, std::forward<Args>(args)...), text.where);
}

}  // namespace trireme
