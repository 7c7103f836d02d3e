#include "memcalc/spec/option_names.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <vector>

#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/names.h"

namespace memcalc {
std::optional<OptionName> option_name_elsewhere(const std::string& directory, std::string_view name) {
  const std::filesystem::path path = std::filesystem::path(directory) / "option_names.json";
  std::error_code status;
  if (!std::filesystem::exists(path, status)) return std::nullopt;
  const std::string wanted = folded_option(name);
  const JsonDocument document = JsonDocument::read_file(path.string());
  document.root().refuse_unknown_keys(std::array<std::string_view, 1>{"programs"});
  for (const JsonObject& program : document.root().optional_objects("programs")) {
    constexpr std::array<std::string_view, 5> kKeys = {"program", "source", "date", "names", "without_effect"};
    program.refuse_unknown_keys(kKeys);
    const std::string whose = program.required_string("program");
    for (const auto& [theirs, ours] : program.required_object("names").string_members()) {
      if (folded_option(theirs) == wanted) return OptionName{whose, ours};
    }
    const std::vector<std::string> idle = program.optional_strings("without_effect");
    if (std::any_of(idle.begin(), idle.end(), [&](const std::string& each) { return folded_option(each) == wanted; })) {
      return OptionName{whose, ""};
    }
  }
  return std::nullopt;
}

}  // namespace memcalc
