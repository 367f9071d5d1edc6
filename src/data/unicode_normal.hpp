// Unicode normalization forms, by ICU where the build found it.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

// Appends the normalized form of `text`, valid UTF-8. `form` is NFC, NFD, NFKC or NFKD. Errors:
// bad_data for another form, and where the build has no ICU.
void unicode_normalize(std::string_view form, std::string_view text, std::string& result);

// Throws what unicode_normalize would throw for this form.
void check_unicode_normalize(std::string_view form);

}  // namespace trireme
