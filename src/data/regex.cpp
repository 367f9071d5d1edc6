// PCRE2 with just-in-time compilation where the machine has it.
#include "data/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

// White_Space of Unicode: PCRE2's \s has U+180E in addition.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Word characters of Unicode's regular expressions (UTS 18): Alphabetic, M, Nd, Pc, Join_Control.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9})"
    R"(\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";

// Rewrites a pattern to what PCRE2 takes for the same.
class Translation {
 public:
  explicit Translation(const std::string& pattern) : pattern_(pattern) {
    for (at_ = 0; at_ < pattern_.size(); ++at_) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else {
        if (c == '[') open_class();
        result_ += pattern_[at_];
      }
    }
  }
  const std::string& result() const { return result_; }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ExitCode::bad_data, "pattern {}: {} at byte {} is not supported", pattern_, what, at_);
  }

  void open_class() {
    in_class_ = true;
    class_start_ = at_ + 1;
    if (class_start_ < pattern_.size() && pattern_[class_start_] == '^') ++class_start_;
  }

  void class_character(char c) {
    if (c == '[') refuse("a character class inside another");
    if (c == '&' && pattern_.compare(at_, 2, "&&") == 0) refuse("an intersection of classes");
    if (c == ']' && at_ != class_start_) in_class_ = false;
    result_ += c;
  }

  void escape() {
    require(at_ + 1 < pattern_.size(), ExitCode::bad_data, "pattern {}: ends with a backslash",
            pattern_);
    const char c = pattern_[++at_];
    if (c == 's' || c == 'w') return put_class(c == 's' ? kSpace : kWord, "");
    if (c == 'S' || c == 'W') {
      if (in_class_) refuse("\\S or \\W in a class");
      return put_class(c == 'S' ? kSpace : kWord, "^");
    }
    if (c == 'u') return put_code_point();
    if (std::string_view("hHbBRXKGQECN").find(c) != std::string_view::npos)
      refuse(std::string("\\") + c);
    result_ += '\\';
    result_ += c;
  }

  void put_class(std::string_view members, std::string_view sign) {
    if (!in_class_) result_.append("[").append(sign);
    result_ += members;
    if (!in_class_) result_ += ']';
  }

  void put_code_point() {  // \uHHHH
    const std::string digits = pattern_.substr(at_ + 1, 4);
    const bool hex = std::all_of(digits.begin(), digits.end(), [](char d) {
      return (d >= '0' && d <= '9') || (d >= 'a' && d <= 'f') || (d >= 'A' && d <= 'F');
    });
    if (digits.size() != 4 || !hex) refuse("\\u without four hexadecimal digits");
    result_ += "\\x{" + digits + "}";
    at_ += 4;
  }

  const std::string& pattern_;
  std::string result_;
  size_t at_ = 0, class_start_ = 0;
  bool in_class_ = false;
};

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Code {
  explicit Code(const std::string& source) : pattern(source) {
    const std::string translated = Translation(pattern).result();
    int code = 0;
    size_t place = 0;
    compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &code, &place, nullptr);
    require(compiled != nullptr, ExitCode::bad_data, "pattern {}: {} (at byte {} of {})", pattern,
            message_of(code), place, translated);
    fast = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
  }
  ~Code() { pcre2_code_free(compiled); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  std::string pattern;
  pcre2_code* compiled = nullptr;
  bool fast = false;
};

struct Regex::State {
  explicit State(const Code& code)
      : data(pcre2_match_data_create_from_pattern(code.compiled, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(size_t{32} << 10, size_t{16} << 20, nullptr)) {
    require(data != nullptr && context != nullptr && stack != nullptr, ExitCode::internal,
            "no memory for a regular expression");
    pcre2_jit_stack_assign(context, nullptr, stack);
    ends = pcre2_get_ovector_pointer(data);
  }
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
  const size_t* ends = nullptr;
};

Regex::Regex(const std::string& pattern)
    : code_(std::make_shared<const Code>(pattern)), state_(std::make_unique<State>(*code_)) {}

Regex::Regex(const Regex& other)
    : code_(other.code_), state_(std::make_unique<State>(*other.code_)) {}

Regex& Regex::operator=(const Regex& other) {
  if (this != &other) *this = Regex(other);
  return *this;
}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex Regex::literal(std::string_view text) {
  std::string pattern;
  for (char c : text) {
    const bool plain = (c & 0x80) != 0 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                       (c >= 'a' && c <= 'z') || c == ' ';
    if (plain) {
      pattern += c;
    } else {
      pattern += fmt::format("\\x{{{:x}}}", static_cast<unsigned>(c));
    }
  }
  return Regex(pattern);
}

Regex::Match Regex::find(std::string_view text, size_t from) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto match = code_->fast ? pcre2_jit_match : pcre2_match;
  const int status = match(code_->compiled, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                           state_->data, state_->context);
  if (status > 0) [[likely]]
    return {state_->ends[0], state_->ends[1], true};
  require(status == PCRE2_ERROR_NOMATCH, ExitCode::bad_data,
          "pattern {}: gave up at byte {} of a text of {} bytes: {}", code_->pattern, from,
          text.size(), message_of(status));
  return {};
}

}  // namespace trireme
