#include "combinations.h"

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

// Texts that have commas of their own.
constexpr std::array<std::string_view, 4> kNeverSplit = {"--lengths", "--megatron", "--deepspeed", "--card"};

/// Its value is a list already.
bool is_one_value(const std::string& flag) {
  if (std::find(kNeverSplit.begin(), kNeverSplit.end(), flag) != kNeverSplit.end()) return true;
  const Field* const field = find_field(flag);
  return field != nullptr && (field->type == FieldType::kTexts || field->type == FieldType::kWholes);
}

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
struct Values {
  std::string flag;
  std::vector<std::string> values;
};

std::vector<Values> typed_values(const RunArguments& arguments) {
  std::vector<Values> all;
  for (const auto& [flag, text] : arguments.typed()) {
    Values each{flag, is_one_value(flag) || text.empty() ? std::vector<std::string>{text} : values_of(flag, text)};
    if (flag == "--gpu" && text == "all") each.values = card_names(arguments.specs);
    all.push_back(std::move(each));
  }
  return all;
}

/// The micro-batches of a file's global batch, which each combination has of its own.
void share_out_batch(const RunArguments& arguments, Combinations& combinations) {
  const std::optional<ConfigFile>& file = arguments.config_file();
  if (!file || file->global_batch == 0) return;
  for (Combination& each : combinations.all) {
    std::vector<ConfigOption> options;
    for (const auto& [flag, text] : each.typed) options.push_back({flag, text, ""});
    const std::optional<ConfigOption> shared = micro_batches_of(*file, options);
    if (shared) each.typed = with(std::move(each.typed), shared->flag, shared->text);
  }
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

Combinations combinations_of(const RunArguments& arguments) {
  const std::vector<Values> all = typed_values(arguments);
  std::size_t count = 1;
  Combinations combinations;
  for (const Values& option : all) {
    if (option.values.size() > 1) combinations.varied.push_back(option.flag.substr(2));
    count *= option.values.size();
    if (count > kMostCombinations) {
      throw UsageError("more than " + std::to_string(kMostCombinations) + " combinations of the values given");
    }
  }
  std::vector<std::size_t> chosen(all.size(), 0);
  for (std::size_t i = 0; i < count; ++i) {
    Combination each;
    for (std::size_t k = 0; k < all.size(); ++k) {
      const std::string& value = all[k].values[chosen[k]];
      if (all[k].values.size() > 1) each.values.push_back(value);
      each.typed.push_back({all[k].flag, value});
    }
    combinations.all.push_back(std::move(each));
    for (std::size_t k = all.size(); k-- > 0;) {  // the next one, the last option first
      if (++chosen[k] < all[k].values.size()) break;
      chosen[k] = 0;
    }
  }
  share_out_batch(arguments, combinations);
  return combinations;
}

}  // namespace memcalc::cli
