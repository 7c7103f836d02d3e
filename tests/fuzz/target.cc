#include "target.h"

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "memcalc/base/error.h"
#include "memcalc/spec/names.h"

namespace memcalc::fuzz {
namespace {

[[noreturn]] void report(const char* what, const char* message) {
  std::fprintf(stderr, "fuzz target: %s: %s\n", what, message);
  std::abort();
}

// What a reader quotes of its input is escaped and cut: a message is one line that any terminal can show.
bool is_one_line(std::string_view message) {
  while (!message.empty()) {
    const std::size_t length = utf8_length(message);
    if (length == 0 || (length == 1 && (message.front() < ' ' || message.front() == '\x7f'))) return false;
    message.remove_prefix(length);
  }
  return true;
}

constexpr std::size_t kLongestMessage = 2000;  // bytes

}  // namespace

std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

void expect_answer_or_one_line(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    if (error.code() == ErrorCode::kInternal) report("an error of memcalc's own", error.what());
    if (message.empty()) report("an error without a message", "");
    if (!is_one_line(message)) report("not one line of UTF-8", error.what());
    if (message.size() > kLongestMessage) report("a message that is too long", error.what());
  } catch (const std::exception& error) {
    report("an exception that is no memcalc::Error", error.what());
  }
}

}  // namespace memcalc::fuzz
