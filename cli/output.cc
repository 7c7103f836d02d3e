#include "output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "arguments.h"

namespace memcalc::cli {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view(value);
}

}  // namespace

Output::Output(std::string path, const char* option) : path_(std::move(path)) {
  if (path_.empty() || path_ == "-") return;
  file_.reset(std::fopen(path_.c_str(), "wb"));
  if (!file_)
    throw UsageError(std::string(option) + ": cannot write '" + one_line(path_) + "': " + std::strerror(errno));
}

void Output::write(std::string_view answer) {
  std::FILE* file = file_ ? file_.get() : stdout;
  const bool written = std::fwrite(answer.data(), 1, answer.size(), file) == answer.size();
  if (!written || std::fflush(file) != 0) {
    throw UsageError("cannot write the answer to " + (file_ ? "'" + one_line(path_) + "'" : "standard output") + ": " +
                     std::strerror(errno));
  }
}

bool Output::is_terminal() const { return ::isatty(file_ ? ::fileno(file_.get()) : STDOUT_FILENO) == 1; }

std::size_t Output::columns() const {
  constexpr std::size_t kDefault = 80;
  constexpr std::size_t kLeast = 40;
  constexpr std::size_t kMost = 200;
  winsize size{};
  if (!is_terminal() || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefault;
  return std::clamp<std::size_t>(size.ws_col, kLeast, kMost);
}

bool wants_color(std::string_view choice, const Output& output) {
  constexpr std::array<std::string_view, 3> choices = {"auto", "always", "never"};
  enum class Color { kAuto, kAlways, kNever };
  switch (parse_choice<Color>("--color", choice, choices)) {
    case Color::kAlways: return true;
    case Color::kNever: return false;
    case Color::kAuto: break;
  }
  return output.is_terminal() && environment("NO_COLOR").empty() && environment("TERM") != "dumb";
}

bool locale_is_utf8() {
  // POSIX: the first of the three that is set and not empty decides.
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = ascii_lower(environment(name));
    if (value.empty()) continue;
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace memcalc::cli
