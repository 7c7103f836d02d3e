// The facade's functions about recorded programs.
#include <set>
#include <string>
#include <variant>

#include "memcalc/memcalc.h"
#include "memcalc/spec/program.h"
#include "memcalc/symbolic/ops/operator_table.h"

namespace memcalc {
std::vector<std::string> opaque_operators(const ModelSpec& model) {
  std::set<std::string> names;
  const auto look_at = [&](const ProgramInstruction& each) {
    const auto* call = std::get_if<ProgramCall>(&each);
    if (call != nullptr && find_operator(call->function) == nullptr) names.insert(call->function);
  };
  if (const auto* spec = model.architecture.get_if<ProgramSpec>()) {
    for (const ProgramFunction& function : spec->program->functions) for_each_instruction(function.body, look_at);
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> known_operators() {
  const std::vector<std::string_view> names = operator_names();
  return {names.begin(), names.end()};
}

}  // namespace memcalc
