// Files that a user names. All of them are opened here, so that a pipe, a device or a disk full of data is refused in
// one line instead of waited for or read into memory. Covered by tests/unit/spec_user_file_test.cc.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "memcalc/spec/limits.h"

namespace memcalc {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

struct OpenFile {
  std::unique_ptr<std::FILE, FileCloser> handle;
  std::int64_t size = 0;  // bytes, when it was opened
};

/// Whether there is something at `path`, and whether that is a directory; what cannot be seen is not there.
[[nodiscard]] bool is_file(const std::string& path);
[[nodiscard]] bool is_directory(const std::string& path);

/// Opens a regular file, or a link to one. `accepted` ends the message: "a JSON file". Throws Error(kInput) where there
/// is none, where it cannot be read, and for a directory, a pipe, a socket or a device: opening a pipe would wait for
/// somebody to write into it, and a device has no end.
[[nodiscard]] OpenFile open_user_file(const std::string& path, std::string_view accepted);

/// The whole file. Throws as open_user_file() does, and where it is larger than `most_bytes`.
[[nodiscard]] std::string read_user_file(const std::string& path, std::string_view accepted, std::int64_t most_bytes);

/// What can still be read of `file`, called `name` in the message of the Error(kInput) that is thrown where it is more
/// than `most_bytes`. `expected_bytes`: as long as it probably is.
[[nodiscard]] std::string read_to_end(std::FILE* file, const std::string& name, std::string_view accepted,
                                      std::int64_t most_bytes, std::int64_t expected_bytes = 0);

/// `path`, of a file or a JSON pointer, fit for a message: one line, and of a long one only its end, which tells them
/// apart.
[[nodiscard]] std::string shown_path(std::string_view path);

}  // namespace memcalc
