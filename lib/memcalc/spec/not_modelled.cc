#include "memcalc/spec/not_modelled.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kFamilyKeys = {"family", "names", "models", "suffix", "nearest", "instead"};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// "bigscience/bloom-560m" and "bloom-560m" are called "bloom"; "gpt-neox-20b" is not called "gpt-neo".
bool is_called(std::string_view reference, std::string_view name) {
  const std::string_view last = reference.substr(reference.rfind('/') + 1);  // npos + 1 == 0
  return last.starts_with(name) && (last.size() == name.size() || !is_letter(last[name.size()]));
}

bool describes(const JsonObject& family, KnownBy by, const std::string& wanted) {
  if (by == KnownBy::kName) {
    const std::vector<std::string> names = family.optional_strings("names");
    return std::any_of(names.begin(), names.end(), [&](const auto& each) { return is_called(wanted, each); });
  }
  const std::optional<std::string> suffix = family.optional_string("suffix");
  if (suffix && wanted.ends_with(*suffix)) return true;
  const std::vector<std::string> models = family.optional_strings("models");
  return std::any_of(models.begin(), models.end(), [&](const auto& each) { return ascii_lower(each) == wanted; });
}

Error not_built(const JsonObject& family, const std::string& reference) {
  constexpr std::string_view kElsewhere =
      "'memcalc models' lists what is, and in Python memcalc.Model.from_module() takes any torch module";
  const std::optional<std::string> nearest = family.optional_string("nearest");
  return {ErrorCode::kUnsupported, one_line(reference) + ": " + (family.has("suffix") ? "" : "the family ") +
                                       family.required_string("family") +
                                       (family.has("suffix") ? " is no model by itself; " : " is not built yet; ") +
                                       (nearest ? "the nearest model is '" + *nearest + "'"
                                                : family.optional_string("instead").value_or(std::string(kElsewhere)))};
}

/// The files that are there, read.
std::vector<JsonDocument> documents_in(std::span<const std::string> directories) {
  std::vector<JsonDocument> documents;
  for (const std::string& directory : directories) {
    const fs::path path = fs::path(directory) / "not_modelled.json";
    std::error_code status;
    if (!fs::is_regular_file(path, status)) continue;
    documents.push_back(JsonDocument::read_file(path.string()));
    documents.back().root().refuse_unknown_keys(std::array<std::string_view, 2>{"families", "subjects"});
  }
  return documents;
}

}  // namespace

void refuse_not_built(std::span<const std::string> directories, KnownBy by, const std::string& reference) {
  const std::string wanted = ascii_lower(reference);
  for (const JsonDocument& document : documents_in(directories)) {
    for (const JsonObject& family : document.root().optional_objects("families")) {
      family.refuse_unknown_keys(kFamilyKeys);
      if (describes(family, by, wanted)) throw not_built(family, reference);
    }
  }
}

std::optional<std::string> not_modelled(std::span<const std::string> directories, AskedAs as, std::string_view name) {
  constexpr std::array<std::string_view, 5> kKeys = {"subject", "instead", "options", "values", "cards"};
  const std::string wanted = folded_option(name);
  const auto is_meant = [&](const std::string& each) {
    const std::string known = folded_name(each);
    return wanted == known || (as == AskedAs::kCard && wanted.starts_with(known + "-"));
  };
  for (const JsonDocument& document : documents_in(directories)) {
    for (const JsonObject& subject : document.root().optional_objects("subjects")) {
      subject.refuse_unknown_keys(kKeys);
      const std::vector<std::string> names = subject.optional_strings(kKeys[2 + static_cast<std::size_t>(as)]);
      if (std::none_of(names.begin(), names.end(), is_meant)) continue;
      return subject.required_string("subject") + " is not modelled; instead: " + subject.required_string("instead");
    }
  }
  return std::nullopt;
}

}  // namespace memcalc
