#include "memcalc/spec/user_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <system_error>

#include "memcalc/base/error.h"
#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

namespace fs = std::filesystem;

Error file_error(std::string_view path, const std::string& message) {
  return {ErrorCode::kInput, shown_path(path) + ": " + message};
}

Error too_large(std::string_view path, std::string_view accepted, std::int64_t most_bytes) {
  return file_error(path, fmt::format("larger than {} MiB; accepted: {}", most_bytes >> 20, accepted));
}

const char* kind_name(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory: return "a directory";
    case fs::file_type::fifo: return "a pipe";
    case fs::file_type::socket: return "a socket";
    case fs::file_type::character:
    case fs::file_type::block: return "a device";
    default: return "neither a file nor a directory";
  }
}

}  // namespace

bool is_file(const std::string& path) {
  std::error_code status;
  return fs::exists(path, status) && !fs::is_directory(path, status);
}

bool is_directory(const std::string& path) {
  std::error_code status;
  return fs::is_directory(path, status);
}

std::string shown_path(std::string_view path) {
  constexpr std::size_t kMost = 160;
  if (path.size() <= kMost) return one_line(path, kMost);
  std::string_view end = path.substr(path.size() - kMost);
  while (!end.empty() && utf8_length(end) == 0) end.remove_prefix(1);  // no half of a character
  return "…" + one_line(end, kMost);
}

OpenFile open_user_file(const std::string& path, std::string_view accepted) {
  std::error_code status;
  const fs::file_status kind = fs::status(path, status);
  if (fs::exists(kind) && !fs::is_regular_file(kind)) {
    throw file_error(path, fmt::format("found {}; accepted: {}", kind_name(kind.type()), accepted));
  }
  OpenFile file;
  file.handle.reset(std::fopen(path.c_str(), "rb"));
  if (file.handle == nullptr) {
    throw file_error(path, "cannot be read: " + std::generic_category().message(errno));
  }
  const std::uintmax_t bytes = fs::file_size(path, status);
  if (status || bytes > static_cast<std::uintmax_t>(std::numeric_limits<std::int64_t>::max())) {
    throw file_error(path, "cannot be read: its size is not known");
  }
  file.size = static_cast<std::int64_t>(bytes);
  return file;
}

std::string read_to_end(std::FILE* file, const std::string& name, std::string_view accepted, std::int64_t most_bytes,
                        std::int64_t expected_bytes) {
  // A string doubles when it grows and holds old and new meanwhile. What is no longer short gets all the room that it
  // may need at once: room that is not written to takes no memory.
  constexpr std::size_t kShort = 1 << 20;  // bytes
  std::string text;
  text.reserve(static_cast<std::size_t>(std::clamp<std::int64_t>(expected_bytes, 0, most_bytes)));
  char block[1 << 14];
  for (std::size_t count = 0; (count = std::fread(block, 1, sizeof block, file)) > 0;) {
    if (static_cast<std::int64_t>(text.size() + count) > most_bytes) throw too_large(name, accepted, most_bytes);
    if (text.size() + count > kShort) text.reserve(static_cast<std::size_t>(most_bytes));
    text.append(block, count);
  }
  if (std::ferror(file) != 0) throw file_error(name, "cannot be read to its end");
  return text;
}

std::string read_user_file(const std::string& path, std::string_view accepted, std::int64_t most_bytes) {
  const OpenFile file = open_user_file(path, accepted);
  if (file.size > most_bytes) throw too_large(path, accepted, most_bytes);
  // To its end, not by its size: files of /proc have none.
  return read_to_end(file.handle.get(), path, accepted, most_bytes, file.size);
}

}  // namespace memcalc
