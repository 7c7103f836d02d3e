// What people ask for that memcalc does not model, and what it can do instead: specs/not_modelled.json. Read only where
// a name is unknown. Covered by tests/unit/spec_registry_test.cc and tests/cli/questions_test.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace memcalc {

/// How not_modelled.json knows a model: by its whole id or the end of its file's name, or by what its name begins with.
enum class KnownBy : std::uint8_t { kId, kName };

/// Throws Error(kUnsupported), which names the family, and the nearest model or what can be done instead, where a file
/// not_modelled.json in one of `directories` knows the model so. Returns where none does.
void refuse_not_built(std::span<const std::string> directories, KnownBy by, const std::string& reference);

/// As what the name was typed: an option ("--dpo"), an option's value ("--task dpo"), a card ("--gpu m3-max").
enum class AskedAs : std::uint8_t { kOption, kValue, kCard };

/// "preference training (DPO and its kin) is not modelled; instead: …"; nothing where no file knows the name. Case does
/// not matter, nor whether words are parted by - or _; a card may have more words after its name.
[[nodiscard]] std::optional<std::string> not_modelled(std::span<const std::string> directories, AskedAs as,
                                                      std::string_view name);

}  // namespace memcalc
