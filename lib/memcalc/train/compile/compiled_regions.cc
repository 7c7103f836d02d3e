#include "memcalc/train/compile/compiled_regions.h"

#include <algorithm>
#include <utility>

namespace memcalc::compile {

namespace {

/// torch._dynamo.config.recompile_limit: of one function, which all layers are calls of. A call that none of these
/// programs fits runs in eager mode.
constexpr std::size_t kMostPrograms = 8;

}  // namespace

CompiledRegions::CompiledRegions(Tape& tape, bool compiles_loss) : tape_(tape), compiles_loss_(compiles_loss) {
  tape.modes.compiler = this;
}

CompiledRegions::~CompiledRegions() { tape_.modes.compiler = nullptr; }

const CompiledRegions::Compiled& CompiledRegions::compile(std::int64_t number, const KeptTensors& arguments,
                                                          const Region& region, bool is_own_code) {
  if (const auto known = compiled_.find(number); known != compiled_.end()) return known->second;
  auto program = std::make_unique<Program>(trace(tape_, Autocast::kAround, arguments, [&](const KeptTensors& traced) {
    RegionResults results = region(traced);
    return FunctionResults{std::move(results.read), std::move(results.kept), {}};
  }));
  Compiled compiled{nullptr, trained_parameters(*program)};
  if (number == kLoss) {
    cut(*program);
    loss_ = std::move(program);
    compiled.program = loss_.get();
  } else {
    const auto same = std::find_if(programs_.begin(), programs_.end(),
                                   [&](const auto& other) { return !is_own_code && is_same_code(*other, *program); });
    if (same != programs_.end()) {
      compiled.program = same->get();
    } else if (programs_.size() < kMostPrograms) {
      cut(*program);
      compiled.program = programs_.emplace_back(std::move(program)).get();
    }
  }
  return compiled_.emplace(number, std::move(compiled)).first->second;
}

std::optional<RegionResults> CompiledRegions::run(std::int64_t number, const KeptTensors& arguments,
                                                  const Region& region, bool is_own_code) {
  const Compiled& compiled = compile(number, arguments, region, is_own_code);
  if (compiled.program == nullptr) return std::nullopt;
  return call(tape_, *compiled.program, compiled.parameters, arguments);
}

}  // namespace memcalc::compile
