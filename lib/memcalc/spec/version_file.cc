#include "memcalc/spec/version_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

constexpr std::string_view kBlank = " \t\r\"'";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::optional<Software> software_named(std::string_view name) {
  const std::string lower = ascii_lower(std::string(name.substr(0, name.find('['))));  // "transformers[torch]"
  const auto found = std::find(std::begin(kSoftwareNames), std::end(kSoftwareNames), lower);
  if (found == std::end(kSoftwareNames)) return std::nullopt;
  return static_cast<Software>(found - std::begin(kSoftwareNames));
}

/// "torch==2.11.0 ; python_version > '3'", "torch   2.11.0", "transformers>=5,<6"
void read_requirement(std::string_view line, WrittenVersions& versions) {
  const std::size_t end = line.find_first_of("=<>!~ \t@;[");
  const std::optional<Software> of = software_named(trimmed(line.substr(0, end)));
  if (!of) return;
  std::string_view rest = end == std::string_view::npos ? std::string_view() : trimmed(line.substr(end));
  if (rest.starts_with('[')) rest = trimmed(rest.substr(std::min(rest.find(']') + 1, rest.size())));
  rest = trimmed(rest.substr(0, rest.find(';')));
  const bool is_exact = rest.starts_with("==") && rest.find(',') == std::string_view::npos;
  const std::string version(trimmed(is_exact ? rest.substr(rest.starts_with("===") ? 3 : 2) : rest));
  if (version_of(version)) {
    versions.found.push_back({*of, version});
  } else {
    versions.notes.push_back(fmt::format("{}: '{}' names no single version, so the default stays", name_of(*of),
                                         one_line(std::string(trimmed(line)))));
  }
}

}  // namespace

WrittenVersions versions_in(std::string_view text) {
  WrittenVersions versions;
  std::string package;  // of a uv.lock: the one whose version comes next
  const bool is_lock = text.find("[[package]]") != std::string_view::npos;
  const bool is_one_line = text.find('\n') == std::string_view::npos;
  while (!text.empty()) {
    const std::size_t end = text.find(is_one_line ? ',' : '\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty() || line.starts_with('-')) continue;
    if (!is_lock) {
      read_requirement(line, versions);
      continue;
    }
    const std::size_t equals = line.find('=');
    if (line.starts_with("[[")) package.clear();
    if (equals == std::string_view::npos) continue;
    const std::string_view key = trimmed(line.substr(0, equals)), value = trimmed(line.substr(equals + 1));
    if (key == "name") package = std::string(value);
    if (key != "version" || !version_of(value)) continue;
    if (const auto of = software_named(package)) versions.found.push_back({*of, std::string(value)});
    package.clear();
  }
  return versions;
}

}  // namespace memcalc
