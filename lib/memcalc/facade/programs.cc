// The facade's functions about recorded programs.
#include <cstdint>
#include <iterator>
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
    const ProgramFunctions& functions = spec->program->functions;
    for (std::int64_t i = 0; i < std::ssize(functions); ++i) for_each_instruction(functions.at(i).body, look_at);
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> known_operators() {
  const std::vector<std::string_view> names = operator_names();
  return {names.begin(), names.end()};
}

}  // namespace memcalc
