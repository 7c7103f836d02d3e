#include <fmt/core.h>
#include <filesystem>
#include <system_error>

#include "memcalc/base/error.h"
#include "memcalc/spec/config_files/config_text.h"
#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/user_file.h"

namespace memcalc::config {
namespace {

constexpr std::int64_t kMostConfigBytes = std::int64_t{1} << 20U;  // the longest of the tools' examples has 12 KB

bool is_there(const std::filesystem::path& path) {
  std::error_code status;
  return std::filesystem::exists(path, status);
}

}  // namespace

std::string find_named_file(const std::string& name, const std::string& beside) {
  if (is_there(name)) return name;
  if (!std::filesystem::path(name).is_absolute()) {
    std::error_code status;
    std::filesystem::path folder = std::filesystem::absolute(beside, status).parent_path();
    for (; !folder.empty(); folder = folder.parent_path()) {
      if (is_there(folder / name)) return (folder / name).string();
      if (folder == folder.root_path()) break;
    }
  }
  // A command line names from the current folder.
  const bool is_line = beside == "./";
  throw Error(
      ErrorCode::kInput,
      fmt::format("{}: it names '{}', which is neither here{} nor in a folder above",
                  is_line ? "command line" : shown_path(beside), one_line(name), is_line ? "" : ", nor beside it,"),
      name);
}

std::string read_config_file_text(const std::string& path) {
  return read_user_file(path, "a configuration file", kMostConfigBytes);
}

JsonNode read_config_tree(const std::string& path) {
  return parse_config_text(read_config_file_text(path), config_syntax_of(path), path);
}

}  // namespace memcalc::config
