#include "memcalc/spec/plain_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <system_error>

#include "memcalc/base/number_text.h"
#include "memcalc/spec/limits.h"

namespace memcalc {
namespace {

using Kind = JsonNode::Kind;

/// By byte, whether it stands for itself in a string.
constexpr std::array<bool, 256> kPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t byte = 0x20; byte < 0x7f; ++byte) plain[byte] = byte != '"' && byte != '\\';
  return plain;
}();

/// By byte, what it does to the depth of brackets.
constexpr std::array<std::int8_t, 256> kDeepens = [] {
  std::array<std::int8_t, 256> deepens{};
  deepens['['] = deepens['{'] = 1;
  deepens[']'] = deepens['}'] = -1;
  return deepens;
}();

class PlainText {
 public:
  PlainText(std::string_view text, std::string_view later, std::vector<FlatValue>& values)
      : at_(text.data()), end_(text.data() + text.size()), values_(values) {
    if (later.empty()) {
      values_.reserve(std::min(text.size() / 5, kMostJsonValues));  // programs have a value for 5 to 8 bytes
    } else if (text.find('\\') == std::string_view::npos) {         // so that each quote begins or ends a string
      later_ = later;
    }
  }

  [[nodiscard]] bool read() {
    if (!value(0)) return false;
    skip();
    return at_ == end_;
  }

 private:
  void skip() {
    while (at_ != end_ && *at_ <= ' ' && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  [[nodiscard]] bool take(char c) {
    skip();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  [[nodiscard]] bool word(std::string_view text) {
    if (static_cast<std::size_t>(end_ - at_) < text.size() || std::string_view(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  [[nodiscard]] static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  [[nodiscard]] bool digits() {
    const char* const start = at_;
    while (at_ != end_ && is_digit(*at_)) ++at_;
    return at_ != start;
  }

  FlatValue& add(Kind kind) {
    FlatValue& made = values_.emplace_back();
    made.kind = kind;
    made.end = ++count_;
    return made;
  }

  [[nodiscard]] bool value(std::size_t depth) {
    skip();
    if (at_ == end_ || count_ > kMostJsonValues) return false;
    switch (*at_) {
      case '{': return container(Kind::kObject, depth);
      case '[': return container(Kind::kArray, depth);
      case '"': return string();
      case 'n': add(Kind::kNull); return word("null");
      case 't': add(Kind::kBool).integer = 1; return word("true");
      case 'f': add(Kind::kBool); return word("false");
      default: return number();
    }
  }

  [[nodiscard]] bool string() {
    const char* const start = ++at_;
    while (at_ != end_ && kPlain[static_cast<unsigned char>(*at_)]) ++at_;
    if (at_ == end_ || *at_ != '"') return false;
    add(Kind::kString).text = {start, static_cast<std::size_t>(at_ - start)};
    ++at_;
    return true;
  }

  [[nodiscard]] bool number() {
    const char* const start = at_;
    if (*at_ == '-') ++at_;
    if (at_ == end_) return false;
    const bool is_zero = *at_ == '0';
    const char* const first = at_;
    if (!digits() || (is_zero && at_ - first > 1)) return false;
    bool is_whole = true;
    if (at_ != end_ && *at_ == '.') {
      is_whole = false;
      ++at_;
      if (!digits()) return false;
    }
    if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
      is_whole = false;
      ++at_;
      if (at_ != end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      if (!digits()) return false;
    }
    FlatValue& made = add(is_whole ? Kind::kInteger : Kind::kNumber);
    made.text = {start, static_cast<std::size_t>(at_ - start)};
    constexpr std::ptrdiff_t kMostDigits = 18;                // of which any number fits
    if (is_whole && is_zero && first != start) return false;  // -0 is a whole number whose text is not its own
    if (is_whole && at_ - first <= kMostDigits) {
      for (const char* digit = first; digit != at_; ++digit) made.integer = 10 * made.integer + (*digit - '0');
      if (first != start) made.integer = -made.integer;
      made.number = static_cast<double>(made.integer);
      return true;
    }
    if (is_whole) {
      const auto [stop, status] = std::from_chars(start, at_, made.integer);
      made.number = static_cast<double>(made.integer);
      return status == std::errc() && stop == at_;
    }
    const auto [stop, status] = parse_number(start, at_, made.number);
    return status == std::errc() && stop == at_ && std::isfinite(made.number);
  }

  /// An array or object as it stands, however deep: its brackets are counted.
  [[nodiscard]] bool unread() {
    skip();
    const char* const start = at_;
    std::int32_t depth = 0;
    do {
      if (at_ == end_) return false;
      if (*at_ == '"') {
        do {
          if (++at_ == end_) return false;
        } while (*at_ != '"');
      }
      depth += kDeepens[static_cast<unsigned char>(*at_++)];
    } while (depth > 0);
    if (depth < 0) return false;
    FlatValue& made = add(Kind::kNull);
    made.text = {start, static_cast<std::size_t>(at_ - start)};
    made.is_unread = true;
    return true;
  }

  [[nodiscard]] bool items_unread() {
    skip();
    if (at_ == end_ || *at_ != '[') return value(1);
    const std::size_t place = count_;
    add(Kind::kArray);
    ++at_;
    std::int64_t count = 0;
    if (!take(']')) {
      do {
        skip();
        const bool is_large = at_ != end_ && (*at_ == '{' || *at_ == '[');
        if (is_large ? !unread() : !value(2)) return false;
        ++count;
      } while (take(','));
      if (!take(']')) return false;
    }
    values_[place].integer = count;
    values_[place].end = count_;
    return true;
  }

  [[nodiscard]] bool container(Kind kind, std::size_t depth) {
    if (depth == kMostJsonDepth) return false;
    ++at_;
    const std::size_t place = count_;
    add(kind);
    const char closing = kind == Kind::kObject ? '}' : ']';
    std::int64_t count = 0;
    if (!take(closing)) {
      do {
        if (kind == Kind::kObject) {
          skip();
          if (at_ == end_ || *at_ != '"' || !string() || !take(':')) return false;
        }
        const bool is_later = kind == Kind::kObject && depth == 0 && !later_.empty() && values_.back().text == later_;
        if (is_later ? !items_unread() : !value(depth + 1)) return false;
        ++count;
      } while (take(','));
      if (!take(closing)) return false;
    }
    values_[place].integer = count;
    values_[place].end = count_;
    return kind == Kind::kArray || has_no_key_twice(static_cast<std::uint32_t>(place));
  }

  [[nodiscard]] bool has_no_key_twice(std::uint32_t object) {
    if (values_[object].integer < 2) return true;
    keys_.clear();
    for (std::uint32_t key = object + 1; key < values_[object].end; key = values_[key + 1].end) {
      keys_.push_back(values_[key].text);
    }
    constexpr std::size_t kFew = 8;
    if (keys_.size() <= kFew) {
      for (auto key = keys_.begin(); key != keys_.end(); ++key) {
        if (std::find(std::next(key), keys_.end(), *key) != keys_.end()) return false;
      }
      return true;
    }
    std::sort(keys_.begin(), keys_.end());
    return std::adjacent_find(keys_.begin(), keys_.end()) == keys_.end();
  }

  const char* at_;
  const char* const end_;
  std::vector<FlatValue>& values_;
  std::uint32_t count_ = 0;  // of these
  std::string_view later_;
  std::vector<std::string_view> keys_;
};

}  // namespace

bool read_plain_json(std::string_view text, std::string_view later, std::vector<FlatValue>& values) {
  return PlainText(text, later, values).read();
}

}  // namespace memcalc
