#include "memcalc/spec/version_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>

#include "memcalc/base/error.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {
namespace {

constexpr std::string_view kBlank = " \t\r\"'";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

constexpr std::string_view kAccepted =
    "requirements.txt, what pip freeze prints, a uv.lock, or an environment's folder";
constexpr std::int64_t kMostBytes = std::int64_t{64} << 20U;
constexpr int kMostIncludes = 32;  // files that name each other end there

/// "other.txt" of "-r other.txt", "--requirement=other.txt", "-c other.txt"; empty: the line includes nothing.
std::string_view included_by(std::string_view line) {
  for (const std::string_view option : {"--requirement", "--constraint", "-r", "-c"}) {
    if (!line.starts_with(option)) continue;
    const std::string_view rest = line.substr(option.size());
    const bool ends = option.size() == 2 || rest.starts_with(' ') || rest.starts_with('=');
    if (ends) return trimmed(rest.substr(rest.starts_with('=') ? 1 : 0));
  }
  return {};
}

/// Without the mark of its encoding. PowerShell's `pip freeze > FILE` writes UTF-16: of it the ASCII stays, which is
/// all that names and versions have. pip reads both, too (pip/_internal/req/req_file.py, 26.0: _decode_req_file).
std::string decoded(std::string text) {
  if (text.starts_with("\xef\xbb\xbf")) return text.substr(3);
  const bool is_little = text.starts_with("\xff\xfe"), is_big = text.starts_with("\xfe\xff");
  if (!is_little && !is_big) return text;
  std::string ascii;
  for (std::size_t i = 2; i + 1 < text.size(); i += 2) {
    const char high = text[i + (is_little ? 1 : 0)], low = text[i + (is_little ? 0 : 1)];
    if (high == 0) ascii += low;
  }
  return ascii;
}

std::string text_with_includes(const std::string& path, int& left) {
  const std::string text = decoded(read_user_file(path, kAccepted, kMostBytes));
  std::string all;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    const std::string_view whole = trimmed(line.substr(0, line.find('#')));
    const std::string_view other = included_by(whole);
    if (other.empty() || other.find("://") != std::string_view::npos) {
      all += std::string(line) + "\n";
    } else if (left-- > 0) {
      all += text_with_includes((std::filesystem::path(path).parent_path() / std::string(other)).string(), left);
    } else {
      throw Error(ErrorCode::kInput,
                  fmt::format("--versions {}: more than {} files include each other", shown_path(path), kMostIncludes),
                  "--versions");
    }
  }
  return all;
}

std::optional<Software> software_named(std::string_view name) {
  const std::string lower = ascii_lower(std::string(name.substr(0, name.find('['))));  // "transformers[torch]"
  const auto found = std::find(std::begin(kSoftwareNames), std::end(kSoftwareNames), lower);
  if (found == std::end(kSoftwareNames)) return std::nullopt;
  return static_cast<Software>(found - std::begin(kSoftwareNames));
}

/// "torch-2.11.0+cu128.dist-info": a line "torch==2.11.0+cu128" where it is one of those that count.
std::string line_of_installed(const std::string& folder) {
  constexpr std::string_view kEnd = ".dist-info";
  if (!folder.ends_with(kEnd)) return {};
  const std::size_t dash = folder.find('-');
  if (!software_named(folder.substr(0, dash))) return {};
  return fmt::format("{}=={}\n", folder.substr(0, dash),
                     folder.substr(dash + 1, folder.size() - kEnd.size() - dash - 1));
}

/// Of site-packages, or of an environment: below its lib (python3.12/site-packages), on Windows its Lib.
std::string text_of_environment(const std::filesystem::path& folder) {
  std::string text;
  std::error_code status;
  const auto add_packages = [&](const std::filesystem::path& packages) {
    for (const auto& each : std::filesystem::directory_iterator(packages, status)) {
      text += line_of_installed(each.path().filename().string());
    }
  };
  add_packages(folder);
  add_packages(folder / "Lib" / "site-packages");
  for (const auto& each : std::filesystem::directory_iterator(folder / "lib", status)) {
    add_packages(each.path() / "site-packages");
  }
  if (!text.empty()) return text;
  throw Error(ErrorCode::kInput,
              fmt::format("--versions {}: none of {} is installed there; accepted: {}", shown_path(folder.string()),
                          "torch, transformers, accelerate, peft, trl, bitsandbytes, liger-kernel", kAccepted),
              "--versions");
}

/// "torch @ https://…/torch-2.11.0%2Bcu128-cp312-…whl": 2.11.0+cu128.
std::string version_of_wheel(std::string_view address) {
  const std::size_t slash = address.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? address : address.substr(slash + 1);
  const std::size_t begin = name.find('-');
  if (begin == std::string_view::npos || name.find(".whl") == std::string_view::npos) return {};
  std::string version(name.substr(begin + 1, name.find('-', begin + 1) - begin - 1));
  if (const std::size_t at = version.find("%2B"); at != std::string::npos) version.replace(at, 3, "+");
  return version;
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
  std::string version(trimmed(is_exact ? rest.substr(rest.starts_with("===") ? 3 : 2) : rest));
  if (rest.starts_with('@')) version = version_of_wheel(trimmed(rest.substr(1)));
  const bool is_any = version.find('*') != std::string::npos;
  if (version_of(version) && !is_any) {
    versions.found.push_back({*of, version});
  } else {
    versions.notes.push_back(fmt::format("'{}' names no single version: pin it ({}=={}), or say --{}",
                                         one_line(std::string(trimmed(line))), name_of(*of),
                                         text_of(Profile{}.version(*of)), name_of(*of)));
  }
}

}  // namespace

std::string version_text(const std::string& written) {
  if (written.find("==") != std::string::npos) return written;
  std::error_code status;
  if (std::filesystem::is_directory(written, status)) return text_of_environment(written);
  int left = kMostIncludes;
  return text_with_includes(written, left);
}

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
