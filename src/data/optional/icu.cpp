// Normalization by ICU.
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include "data/unicode_normal.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

const icu::Normalizer2& normalizer_of(std::string_view form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  if (form == "NFC") found = icu::Normalizer2::getNFCInstance(status);
  if (form == "NFD") found = icu::Normalizer2::getNFDInstance(status);
  if (form == "NFKC") found = icu::Normalizer2::getNFKCInstance(status);
  if (form == "NFKD") found = icu::Normalizer2::getNFKDInstance(status);
  require(found != nullptr && U_SUCCESS(status), ExitCode::bad_data,
          "Unicode normalization \"{}\" is not supported (ICU: {})", form, u_errorName(status));
  return *found;
}

}  // namespace

void unicode_normalize(std::string_view form, std::string_view text, std::string& result) {
  require(text.size() < size_t{1} << 30, ExitCode::bad_data,
          "a document of {} bytes is too long to be normalized (limit 1 GiB)", text.size());
  UErrorCode status = U_ZERO_ERROR;
  icu::StringByteSink<std::string> sink(&result);
  normalizer_of(form).normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int>(text.size())),
                                    sink, nullptr, status);
  require(U_SUCCESS(status), ExitCode::bad_data, "{} of a text of {} bytes failed: {}", form,
          text.size(), u_errorName(status));
}

void check_unicode_normalize(std::string_view form) {
  normalizer_of(form);
}

}  // namespace trireme
