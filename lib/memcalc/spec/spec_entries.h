// Entries of the registry: the files of the folders of specs, and which of them carries a name.
// Covered by tests/unit/spec_registry_test.cc.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/names.h"

namespace memcalc {

inline constexpr std::string_view kModelFolder = "models";
inline constexpr std::string_view kDeviceFolder = "gpus";

/// Whether `reference` can be the name of a file of the registry. Paths and hub ids cannot.
[[nodiscard]] bool is_plain_name(std::string_view reference);

/// "Qwen2.5-7B" of "Qwen/Qwen2.5-7B".
[[nodiscard]] std::string_view without_owner(std::string_view name);

/// Whether `reference` is one of the names; "Qwen/Qwen2.5-7B" is also called "qwen2.5-7b". No two files share such a
/// name (spec_registry_test). `spelled`: what makes two ways to write a name the same.
[[nodiscard]] bool is_among(const std::vector<std::string>& names, const std::string& reference,
                            std::string (*spelled)(std::string_view) = ascii_lower);

/// The names that the registry knows a file's model or card by, but for the name of the file.
[[nodiscard]] std::vector<std::string> other_names(const JsonObject& json);

/// The files of one kind in all directories, sorted by name within each.
[[nodiscard]] std::vector<std::filesystem::path> files_of(const std::vector<std::string>& directories,
                                                          std::string_view folder);

/// The file that carries `reference` as its name or, failing that, as another, or as one that parts its words
/// otherwise; ASCII case is ignored.
[[nodiscard]] std::optional<std::filesystem::path> find_entry(const std::vector<std::string>& directories,
                                                              std::string_view folder, const std::string& reference);

/// The model's of "owner/NAME", for a NAME that the registry has from somebody else.
[[nodiscard]] std::optional<std::filesystem::path> find_entry_of_other_owner(
    const std::vector<std::string>& directories, const std::string& reference);

}  // namespace memcalc
