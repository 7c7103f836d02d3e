#include "combinations.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "arguments.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

constexpr std::size_t kMostCombinations = 100'000;
constexpr std::size_t kMostValues = 10'000;

// Their values are lists already, or names of files.
constexpr std::array<std::string_view, 3> kNeverSplit = {"lora-targets", "freeze", "specs"};

/// An app that owns what it parses into.
struct OwnedRun {
  CLI::App app;
  RunArguments arguments;
};

void add_range(const std::string& option, const std::string& text, std::size_t dots, std::vector<std::string>& values) {
  const std::size_t step_at = text.find_first_of("*+", dots);
  const std::string last_text = text.substr(dots + 2, step_at == std::string::npos ? step_at : step_at - dots - 2);
  const std::int64_t first = parse_whole(option, text.substr(0, dots), 1);
  const std::int64_t last = parse_whole(option, last_text, first);
  const bool multiplies = step_at != std::string::npos && text[step_at] == '*';
  const std::int64_t step =
      step_at == std::string::npos ? 1 : parse_whole(option, text.substr(step_at + 1), multiplies ? 2 : 1);
  for (std::int64_t value = first;;) {
    values.push_back(std::to_string(value));
    if (values.size() > kMostValues) {
      throw UsageError(option + ": more than " + std::to_string(kMostValues) + " values in '" + one_line(text) + "'");
    }
    // Never beyond `last`, so nothing overflows.
    if (multiplies ? value > last / step : value > last - step) return;
    value = multiplies ? value * step : value + step;
  }
}

std::vector<std::string> card_names(const std::string& specs) {
  std::vector<std::string> names;
  for (const DeviceListing& card : SpecRegistry(find_specs(specs)).devices()) names.push_back(card.name);
  return names;
}

/// The values typed for one option.
struct TypedOption {
  std::string name;
  bool flag = false;
  std::vector<std::string> values;
};

std::vector<TypedOption> typed_options(const CLI::App& command) {
  OwnedRun names;
  add_run_options(names.app, names.arguments);
  std::vector<TypedOption> typed;
  for (const CLI::Option* each : names.app.get_options()) {
    if (each->get_lnames().empty() || each->get_lnames().front() == "help") continue;
    const std::string name = each->get_lnames().front();
    const CLI::Option* option = command.get_option_no_throw("--" + name);
    if (option == nullptr || option->count() == 0) continue;
    TypedOption result{.name = name, .flag = option->get_items_expected_max() == 0};
    std::string text = result.flag || option->results().empty() ? "" : option->results().front();
    if (option->get_items_expected_min() == 0 && (text == "true" || text == "{}")) text.clear();  // no value was given
    const bool whole = std::find(kNeverSplit.begin(), kNeverSplit.end(), name) != kNeverSplit.end();
    result.values = whole || text.empty() ? std::vector<std::string>{text} : values_of("--" + name, text);
    if (name == "gpu" && text == "all") {
      const CLI::Option* specs = command.get_option_no_throw("--specs");
      result.values = card_names(specs == nullptr || specs->count() == 0 ? "" : specs->results().front());
    }
    typed.push_back(std::move(result));
  }
  return typed;
}

/// The arguments of a run whose options have these values.
std::shared_ptr<const RunArguments> parsed(const std::vector<TypedOption>& typed,
                                           const std::vector<std::size_t>& chosen) {
  auto run = std::make_shared<OwnedRun>();
  add_run_options(run->app, run->arguments);
  std::vector<std::string> words;
  for (std::size_t i = 0; i < typed.size(); ++i) {
    const std::string& value = typed[i].values[chosen[i]];
    const bool bare = typed[i].flag || value.empty();
    words.push_back("--" + typed[i].name + (bare ? "" : "=" + value));
  }
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  run->app.parse(std::move(words));
  return {run, &run->arguments};
}

}  // namespace

std::vector<std::string> values_of(const std::string& option, const std::string& text) {
  std::vector<std::string> values;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, comma - at);
    if (item.empty()) throw UsageError(option + ": expected values between commas, found '" + one_line(text) + "'");
    const std::size_t dots = item.find("..");
    const bool range = dots != std::string::npos && dots > 0 && item.find_first_not_of("0123456789") == dots;
    range ? add_range(option, item, dots, values) : values.push_back(item);
    at = comma + 1;
  }
  return values;
}

Combinations combinations_of(const CLI::App& command) {
  const std::vector<TypedOption> typed = typed_options(command);
  std::size_t count = 1;
  Combinations combinations;
  for (const TypedOption& option : typed) {
    if (option.values.size() > 1) combinations.varied.push_back(option.name);
    count *= option.values.size();
    if (count > kMostCombinations) {
      throw UsageError("more than " + std::to_string(kMostCombinations) + " combinations of the values given");
    }
  }
  std::vector<std::size_t> chosen(typed.size(), 0);
  for (std::size_t i = 0; i < count; ++i) {
    Combination each;
    for (std::size_t k = 0; k < typed.size(); ++k) {
      if (typed[k].values.size() > 1) each.values.push_back(typed[k].values[chosen[k]]);
    }
    each.arguments = parsed(typed, chosen);
    combinations.all.push_back(std::move(each));
    for (std::size_t k = typed.size(); k-- > 0;) {  // the next one, the last option first
      if (++chosen[k] < typed[k].values.size()) break;
      chosen[k] = 0;
    }
  }
  return combinations;
}

}  // namespace memcalc::cli
