#include "memcalc/spec/not_built.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kFamilyKeys = {"family", "names", "models", "nearest"};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// "bigscience/bloom-560m" and "bloom-560m" are called "bloom"; "gpt-neox-20b" is not called "gpt-neo".
bool is_called(std::string_view reference, std::string_view name) {
  const std::string_view last = reference.substr(reference.rfind('/') + 1);  // npos + 1 == 0
  return last.starts_with(name) && (last.size() == name.size() || !is_letter(last[name.size()]));
}

bool describes(const JsonObject& family, const std::string& wanted) {
  const std::vector<std::string> models = family.optional_strings("models");
  const std::vector<std::string> names = family.optional_strings("names");
  return std::any_of(models.begin(), models.end(), [&](const auto& each) { return ascii_lower(each) == wanted; }) ||
         std::any_of(names.begin(), names.end(), [&](const auto& each) { return is_called(wanted, each); });
}

Error not_built(const JsonObject& family, const std::string& reference) {
  const auto types = modelled_types();
  const std::vector<std::string> modelled(types.begin(), types.end());
  const std::optional<std::string> nearest = family.optional_string("nearest");
  return {ErrorCode::kUnsupported,
          one_line(reference) + ": the family " + family.required_string("family") + " is not built yet; " +
              (nearest ? "the nearest model is '" + *nearest + "'" : "built are " + join(modelled))};
}

}  // namespace

void refuse_not_built(std::span<const std::string> directories, const std::string& reference) {
  const std::string wanted = ascii_lower(reference);
  for (const std::string& directory : directories) {
    const fs::path path = fs::path(directory) / "not_built.json";
    std::error_code status;
    if (!fs::is_regular_file(path, status)) continue;
    const JsonDocument document = JsonDocument::read_file(path.string());
    document.root().refuse_unknown_keys(std::array<std::string_view, 1>{"families"});
    for (const JsonObject& family : document.root().optional_objects("families")) {
      family.refuse_unknown_keys(kFamilyKeys);
      if (describes(family, wanted)) throw not_built(family, reference);
    }
  }
}

}  // namespace memcalc
