#include "memcalc/plan/smallest.h"

#include <string_view>

#include "memcalc/spec/rules.h"
#include "memcalc/symbolic/ops/batch_norm.h"

namespace memcalc {

namespace {

/// Whether a rule's options name this one: "--completion --seq" names --seq.
bool speaks_of(const Rule& rule, std::string_view option) {
  for (std::string_view rest = rule.options; !rest.empty();) {
    const std::size_t end = rest.find(' ');
    if (rest.substr(0, end) == option) return true;
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return false;
}

template <typename SetValue>
std::int64_t smallest(const ModelSpec& model, RunSpec& run, std::int64_t multiple_of, std::string_view option,
                      const SetValue& set_value) {
  constexpr std::int64_t kTried = 4096;
  for (std::int64_t index = 1; index <= kTried; ++index) {
    set_value(run, index * multiple_of);
    const Rule* rule = broken_rule(model, run);
    if (rule == nullptr) return index * multiple_of;
    if (!speaks_of(*rule, option)) break;
  }
  return multiple_of;
}

}  // namespace

std::int64_t smallest_batch(const ModelSpec& model, RunSpec run, std::int64_t multiple_of) {
  return smallest(model, run, multiple_of, "--bs", [](RunSpec& each, std::int64_t batch) { each.batch_size = batch; });
}

bool wants_more_samples(const Error& error) { return error.rule() == rules::kBatchNormOfSeveral.id; }

void set_sequence(RunSpec& run, std::int64_t tokens, bool halves_completions) {
  run.sequence_length = tokens;
  if (halves_completions) run.training().completion_length = tokens / 2;
}

std::int64_t shortest_sequence(const ModelSpec& model, RunSpec run, bool halves_completions, std::int64_t multiple_of) {
  return smallest(model, run, multiple_of, "--seq", [halves_completions](RunSpec& each, std::int64_t tokens) {
    set_sequence(each, tokens, halves_completions);
  });
}

}  // namespace memcalc
