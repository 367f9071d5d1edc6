// Walks a line with a SAX reader that keeps one value: no tree is built.
#include "data/json_line.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace trireme {
namespace {

using nlohmann::json;

class KeyReader : public nlohmann::json_sax<json> {
 public:
  KeyReader(std::string_view key, std::string& text, std::string& fault)
      : wanted_(key), text_(text), fault_(fault) {}

  JsonLine result() const { return result_; }

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }
  bool binary(binary_t&) override { return other("binary data"); }
  bool string(string_t& value) override {
    if (!at_key()) return other("a text");
    text_.swap(value);
    result_ = JsonLine::text;
    matched_ = false;
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ == 0) {
      result_ = JsonLine::missing_key;
    } else {
      other("an object");
    }
    ++depth_;
    return true;
  }
  bool key(string_t& name) override {
    matched_ = depth_ == 1 && name == wanted_;
    return true;
  }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(size_t) override {
    const bool go_on = other("a list");
    ++depth_;
    return go_on;
  }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    result_ = JsonLine::malformed;
    const std::string_view message = e.what();
    fault_ = fmt::format("not JSON at byte {} of the line ({})", position, message.substr(0, 160));
    return false;
  }

 private:
  bool at_key() const { return depth_ == 1 && matched_; }
  // A value that is not the wanted text; false ends the reading.
  bool other(std::string_view what) {
    if (depth_ == 0) {
      result_ = JsonLine::malformed;
      fault_ = fmt::format("the line is {}, not an object", what);
      return false;
    }
    if (at_key()) {
      result_ = JsonLine::not_text;
      fault_ = fmt::format("\"{}\" is {}, not a text", wanted_, what);
      matched_ = false;
    }
    return true;
  }

  std::string_view wanted_;
  std::string &text_, &fault_;
  JsonLine result_ = JsonLine::malformed;
  int64_t depth_ = 0;
  bool matched_ = false;
};

}  // namespace

JsonLine read_json_line(std::string_view line, std::string_view key, std::string& text,
                        std::string& fault) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // of byte order, at the start of some files
  if (line.starts_with(kMark)) line.remove_prefix(kMark.size());
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return JsonLine::blank;
  KeyReader reader(key, text, fault);
  json::sax_parse(line.begin(), line.end(), &reader);
  if (reader.result() == JsonLine::missing_key) fault = fmt::format("no key \"{}\"", key);
  return reader.result();
}

}  // namespace trireme
