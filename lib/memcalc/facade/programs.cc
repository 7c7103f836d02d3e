// The facade's functions about recorded programs.
#include <set>
#include <string>
#include <variant>

#include "memcalc/memcalc.h"
#include "memcalc/spec/program.h"
#include "memcalc/symbolic/ops/operator_table.h"

namespace memcalc {
namespace {

void add_opaque(const ProgramInstructions& body, std::set<std::string>& names) {
  for (const ProgramInstruction& each : body.items) {
    if (const auto* call = std::get_if<ProgramCall>(&each);
        call != nullptr && find_operator(call->function) == nullptr) {
      names.insert(call->function);
    } else if (const auto* loop = std::get_if<ProgramLoop>(&each)) {
      add_opaque(*loop->body, names);
    }
  }
}

}  // namespace

std::vector<std::string> opaque_operators(const ModelSpec& model) {
  std::set<std::string> names;
  if (const auto* spec = std::get_if<ProgramSpec>(&model.architecture)) {
    for (const ProgramFunction& function : spec->program->functions) add_opaque(function.body, names);
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> known_operators() {
  const std::vector<std::string_view> names = operator_names();
  return {names.begin(), names.end()};
}

}  // namespace memcalc
