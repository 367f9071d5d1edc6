// A build without ICU refuses to normalize.
#include "data/unicode_normal.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

void check_unicode_normalize(std::string_view form) {
  fail(ExitCode::bad_data,
       "the tokenizer asks for Unicode normalization {}, and this build has no ICU: install it "
       "(Debian: libicu-dev) and build again",
       form);
}

void unicode_normalize(std::string_view form, std::string_view, std::string&) {
  check_unicode_normalize(form);
}

}  // namespace trireme
