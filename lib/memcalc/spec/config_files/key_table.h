// Internal to spec/config_files: the tables that say what becomes of each key of a tool.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace memcalc::config {

enum class RowUse : std::uint8_t {
  kUsed,          // sets `option`, or is read by the tool's function
  kIrrelevant,    // changes neither memory nor time; `why` in a word or two
  kApproximated,  // where it is on: the answer is that of a run without it, or nearly so, as `why` says
  kRefused,       // where it is on: not modelled, as `why` says
};

struct KeyRow {
  std::string_view keys;  // one or several, by blanks; of nested keys with slashes
  RowUse use = RowUse::kUsed;
  std::string_view why{};     // not of kUsed
  std::string_view option{};  // of kUsed: "--bs", which takes the value as it is
  // Of the last two: values beside null, false, 0, "", "no", "none" that switch it off. With "true" among them it is on
  // by default, and false is what is told.
  std::string_view off{};
};

using KeyTable = std::span<const KeyRow>;

}  // namespace memcalc::config
