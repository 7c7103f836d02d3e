// Lists and ranges as values of options: `--bs 1..64*2 --model gpt2,gpt2-xl` is every combination of both. Whatever
// option a run has, or will have, can be varied.
#pragma once

#include <string>
#include <vector>

#include "run_arguments.h"

namespace memcalc::cli {

/// One combination of the values.
struct Combination {
  std::vector<std::string> values;  // of the varied options, in their order
  std::vector<TypedOption> typed;
};

struct Combinations {
  std::vector<std::string> varied;  // names of the options that have more than one value, without dashes
  std::vector<Combination> all;     // the last option changes first
};

/// "1..8" (1 to 8), "1..64*2" (doubling), "512..4096+512" (by 512), "a,b", and any of these between commas.
/// A word that is none of them stands for itself. Throws UsageError for a range that is none.
[[nodiscard]] std::vector<std::string> values_of(const std::string& option, const std::string& text);

/// The options of a run that were typed, in all combinations. `--gpu all` is every card of the registry.
/// Throws UsageError beyond 100,000 of them.
[[nodiscard]] Combinations combinations_of(const RunArguments& arguments);

}  // namespace memcalc::cli
