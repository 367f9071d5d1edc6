# Libraries of the text side (tokenizers) as the target trireme_text.
#   PCRE2      required: Unicode regular expressions
#   ICU        optional: Unicode normalization, which some tokenizer files ask for
#   SentencePiece, zlib, zstd   optional: tokenizer.model files, .gz and .zst input
# Where an optional one is missing, a file that needs it is refused with its name.
find_path(PCRE2_INCLUDE_DIR pcre2.h)
find_library(PCRE2_LIBRARY pcre2-8)
if(NOT PCRE2_INCLUDE_DIR OR NOT PCRE2_LIBRARY)
  message(FATAL_ERROR "No PCRE2 was found. Install it (Debian: libpcre2-dev).")
endif()
add_library(trireme_text INTERFACE)
target_include_directories(trireme_text SYSTEM INTERFACE ${PCRE2_INCLUDE_DIR})
target_link_libraries(trireme_text INTERFACE ${PCRE2_LIBRARY})

# trireme_text_part(NAME HEADER LIBRARY): TRIREME_TEXT_SOURCES gets src/data/optional/NAME.cpp, or
# NAME_absent.cpp where header or library is missing.
set(TRIREME_TEXT_SOURCES "")
set(text_parts "")
function(trireme_text_part name header library)
  string(TOUPPER ${name} upper)
  find_path(${upper}_INCLUDE_DIR ${header})
  find_library(${upper}_LIBRARY ${library})
  set(source ${name}_absent)
  set(found no)
  if(${upper}_INCLUDE_DIR AND ${upper}_LIBRARY)
    set(source ${name})
    set(found yes)
    target_include_directories(trireme_text SYSTEM INTERFACE ${${upper}_INCLUDE_DIR})
    target_link_libraries(trireme_text INTERFACE ${${upper}_LIBRARY})
  endif()
  list(APPEND TRIREME_TEXT_SOURCES ${CMAKE_SOURCE_DIR}/src/data/optional/${source}.cpp)
  set(TRIREME_TEXT_SOURCES ${TRIREME_TEXT_SOURCES} PARENT_SCOPE)
  set(text_parts "${text_parts}, ${name} ${found}" PARENT_SCOPE)
endfunction()
trireme_text_part(icu unicode/normalizer2.h icuuc)
trireme_text_part(sentencepiece sentencepiece_processor.h sentencepiece)
trireme_text_part(zlib zlib.h z)
trireme_text_part(zstd zstd.h zstd)
message(STATUS "Text: PCRE2 ${PCRE2_LIBRARY}${text_parts}")
