// What other programs call memcalc's options: specs/option_names.json. Read only where an unknown option was typed.
// Covered by tests/unit/spec_names_test.cc and tests/cli/errors_test.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace memcalc {

struct OptionName {
  std::string program;  // whose name it is: "transformers' TrainingArguments"
  std::string ours;     // "--bs", "--quantize nf4"; empty: it changes neither memory nor time
};

/// `name` as typed, with its dashes; dashes and underscores are the same. `directory`: a folder of specs; nothing where
/// it has no such file, or the file no such name. Throws Error(kInput) for a file that is wrong.
[[nodiscard]] std::optional<OptionName> option_name_elsewhere(const std::string& directory, std::string_view name);

}  // namespace memcalc
