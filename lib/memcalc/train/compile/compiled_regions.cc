#include "memcalc/train/compile/compiled_regions.h"

#include <algorithm>
#include <utility>

namespace memcalc::compile {

CompiledRegions::CompiledRegions(Tape& tape, bool compiles_loss) : tape_(tape), compiles_loss_(compiles_loss) {
  tape.compiler = this;
}

CompiledRegions::~CompiledRegions() { tape_.compiler = nullptr; }

const CompiledRegions::Compiled& CompiledRegions::compile(std::int64_t number, const KeptTensors& arguments,
                                                          const Region& region) {
  if (const auto known = compiled_.find(number); known != compiled_.end()) return known->second;
  auto program = std::make_unique<Program>(trace(tape_, Autocast::kAround, arguments, [&](const KeptTensors& traced) {
    return std::vector<Tensor>{region(traced)};
  }));
  std::vector<TensorImpl*> parameters = trained_parameters(*program);
  const auto same = std::find_if(programs_.begin(), programs_.end(),
                                 [&](const auto& other) { return is_same_code(*other, *program); });
  const Program* code = same != programs_.end() ? same->get() : nullptr;
  if (code == nullptr) {
    cut(*program);
    code = programs_.emplace_back(std::move(program)).get();
  }
  return compiled_.emplace(number, Compiled{code, std::move(parameters)}).first->second;
}

Tensor CompiledRegions::run(std::int64_t number, const KeptTensors& arguments, const Region& region) {
  const Compiled& compiled = compile(number, arguments, region);
  return call(tape_, *compiled.program, compiled.parameters, arguments);
}

}  // namespace memcalc::compile
