// What a configuration file of another tool becomes, for the tests of spec/config_files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/config_files/config_file.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_fields.h"
#include "support/paths.h"

namespace memcalc::test {

inline std::string path_of(const std::string& name) { return (tests_dir() / "config_files" / name).string(); }

inline std::string text_of(const std::vector<ConfigOption>& options) {
  std::string text;
  for (const ConfigOption& each : options) {
    text += (text.empty() ? "" : " ") + each.flag + (each.text.empty() ? "" : " " + each.text);
  }
  return text;
}

/// The message of what `call` throws, which is one line.
template <typename Call>
inline std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "no error";
}

/// A file of these lines, read; in a folder of this process, since tests run beside each other.
class Written {
 public:
  explicit Written(const std::string& text, const std::string& name = "run.yml")
      : path_(std::filesystem::path(testing::TempDir()) / ("memcalc-" + std::to_string(getpid())) / name) {
    std::filesystem::create_directories(path_.parent_path());
    std::ofstream(path_) << text;
  }
  ~Written() {
    std::filesystem::remove(path_);
    std::error_code others;  // another file may still be there
    std::filesystem::remove(path_.parent_path(), others);
  }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;

  [[nodiscard]] ConfigFile read(const std::string& format = {}, std::vector<std::string> without = {}) const {
    return read_config({path_.string(), format, std::move(without)});
  }
  [[nodiscard]] std::string refusal(const std::string& format = {}) const {
    return refusal_of([&] { (void)read(format); });
  }

 private:
  std::filesystem::path path_;
};

inline std::string use_of(const ConfigFile& file, std::string_view key) {
  constexpr std::string_view kNames[] = {"used", "irrelevant", "approximated", "left out"};
  for (const ConfigKey& each : file.keys) {
    if (each.key == key) return std::string(kNames[static_cast<std::size_t>(each.use)]);
  }
  return "not there";
}

/// The question that the options ask; throws as the command line does.
inline ResolvedRun asked(const ConfigFile& file, std::vector<ConfigOption> typed = {}) {
  const ConfigFile beside = config_beside(file, typed);
  RunRequest request;
  for (const auto& options : {typed, beside.options}) {
    for (const ConfigOption& each : options) set_option(request, each.flag, each.text);
  }
  return question_of(request, SpecRegistry(specs_dir().string())).run;
}

}  // namespace memcalc::test
