// Where the answer goes and what the terminal can show. stdout carries the answer, stderr the diagnostics.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace memcalc::cli {

/// The file is opened before anything is computed, so that a wrong path costs no wait.
class Output {
 public:
  /// `path`: empty or "-" for standard output. Throws UsageError where the file of this
  /// option cannot be created.
  explicit Output(std::string path, const char* option = "--output");

  /// Throws UsageError where not everything could be written (a full disk, a closed pipe).
  void write(std::string_view answer);

  [[nodiscard]] bool is_terminal() const;

  /// Of the terminal, from 40 to 200; 80 elsewhere.
  [[nodiscard]] std::size_t columns() const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;  // null: standard output
};

/// `choice`: auto, always or never. auto: a terminal that is not dumb, and no NO_COLOR (https://no-color.org).
[[nodiscard]] bool wants_color(std::string_view choice, const Output& output);

/// The locale's character set, by the environment, is UTF-8.
[[nodiscard]] bool locale_is_utf8();

}  // namespace memcalc::cli
