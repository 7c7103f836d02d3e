#include "memcalc/models/program_wrapped.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

namespace memcalc {

namespace {

using Kind = BoundArgument::Kind;

template <typename Arguments, typename Uses>
bool any_uses(const Arguments& arguments, const Uses& uses) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const BoundArgument& each) {
    return (each.kind == Kind::kParameter && uses(each.integer)) || any_uses(each.items, uses);
  });
}

/// `uses`: whether it is one of these parameters of the function.
template <typename Uses>
bool instruction_uses(const BoundInstruction& instruction, const Uses& uses) {
  if (const auto* call = std::get_if<BoundCall>(&instruction)) return any_uses(call->slots, uses);
  if (const auto* layers = std::get_if<BoundLayers>(&instruction)) return any_uses(layers->arguments, uses);
  if (const auto* region = std::get_if<BoundCheckpoint>(&instruction)) return any_uses(region->arguments, uses);
  if (const auto* custom = std::get_if<BoundCustom>(&instruction)) {
    return any_uses(custom->arguments, uses) || any_uses(custom->inputs, uses);
  }
  const auto* loop = std::get_if<std::unique_ptr<BoundLoop>>(&instruction);
  return loop != nullptr && std::any_of((*loop)->body.begin(), (*loop)->body.end(),
                                        [&](const BoundInstruction& each) { return instruction_uses(each, uses); });
}

bool fills_in_place(const BoundInstruction& instruction) {
  const auto* call = std::get_if<BoundCall>(&instruction);
  return call != nullptr && call->row != nullptr && call->row->name == "masked_fill_";
}

/// Names, as their functions have them, of matrices that are multiplied as they are: [experts, in, out].
std::vector<std::string> multiplied_as_they_are(const Program& program) {
  std::vector<std::string> names;
  const auto holds_experts = [](const ProgramTensor& each) { return each.shape.size() == 3; };
  if (std::none_of(program.parameters.begin(), program.parameters.end(), holds_experts)) return names;
  for (std::int64_t i = 0; i < std::ssize(program.functions); ++i) {
    const ProgramFunction& function = program.functions.at(i);
    for_each_instruction(function.body, [&](const ProgramInstruction& each) {
      const auto* call = std::get_if<ProgramCall>(&each);
      if (call == nullptr || !call->function.ends_with("grouped_mm")) return;
      for (const ProgramArgument& argument : call->positional) {
        if (argument.kind != ProgramArgument::Kind::kParameter) continue;
        names.push_back(function.parameters[static_cast<std::size_t>(argument.integer)]);
      }
    });
  }
  return names;
}

}  // namespace

WrappedRun::WrappedRun(const Program& program, const PlacedFunction& function,
                       const std::vector<BoundInstruction>& body, std::size_t first, std::size_t end,
                       const WrappedModule& module, std::vector<Tensor>& tensors)
    : end_(end), tensors_(tensors), wrappers_(&module) {
  for (const ParamWrapper& wrapper : module.wrappers) {
    const auto place = static_cast<std::size_t>(
        std::find_if(tensors.begin(), tensors.end(),
                     [&](const Tensor& each) { return each.impl() == wrapper.parameter.impl(); }) -
        tensors.begin());
    const std::string bias = program.parameters[place].name + "_bias";
    const auto uses = [&](std::int64_t number) {
      const auto used = static_cast<std::size_t>(function.tensors[static_cast<std::size_t>(number)]);
      return used == place || (used < program.parameters.size() && program.parameters[used].name == bias);
    };
    std::size_t before = first;
    while (before < end && !instruction_uses(body[before], uses)) ++before;
    // grouped_mm_experts_forward reads the matrices before their biases, and before it fills the rows of no expert.
    while (before > first && fills_in_place(body[before - 1])) --before;
    readings_.push_back({before, place, wrapper.parameter});
  }
}

WrappedRun::~WrappedRun() {
  for (Reading& each : readings_) tensors_[each.tensor] = std::move(each.parameter);
}

void WrappedRun::before(std::size_t instruction) {
  for (const Reading& each : readings_) {
    if (each.before == instruction) tensors_[each.tensor] = wrappers_.read(each.parameter);
  }
}

std::vector<std::shared_ptr<PackedExperts>> wrappable_modules(const Program& program) {
  const std::vector<std::string> transposed = multiplied_as_they_are(program);
  std::vector<std::shared_ptr<PackedExperts>> modules(program.module_count());
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const ProgramTensor& each = program.parameters[i];
    if (each.leaf != ProgramTensor::Leaf::kNone || each.shape.size() < 2) continue;
    if (program.module_path(each.module).empty()) continue;  // peft cannot wrap the model itself
    std::shared_ptr<PackedExperts>& module = modules[static_cast<std::size_t>(each.module)];
    if (!module) {
      module = std::make_shared<PackedExperts>();
      module->name = program.module_path(each.module);
      module->first_parameter = i;
    }
    module->last_parameter = i;
    for (const std::string& name : transposed) module->is_transposed |= each.name.ends_with(name);
  }
  for (const auto& module : modules) {
    if (!module) continue;
    const std::string prefix = module->name + ".";
    std::size_t& last = module->last_parameter;
    while (last + 1 < program.parameters.size() && program.parameters[last + 1].name.starts_with(prefix)) ++last;
  }
  return modules;
}

}  // namespace memcalc
