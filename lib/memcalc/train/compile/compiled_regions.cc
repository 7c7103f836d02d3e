#include "memcalc/train/compile/compiled_regions.h"

#include <algorithm>
#include <utility>

#include "memcalc/symbolic/graph_number.h"

namespace memcalc::compile {

namespace {

/// torch._dynamo.config.recompile_limit: of one function, as all layers are calls of one. A call that none of these
/// programs fits runs in eager mode.
constexpr std::size_t kMostPrograms = 8;

}  // namespace

CompiledRegions::CompiledRegions(Tape& tape, CompiledParts parts, bool breaks_at_layers)
    : tape_(tape), parts_(parts), breaks_at_layers_(breaks_at_layers) {
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
  if (number == kLoss || number == kHead) {
    cut(*program, tape_.device);
    compiled.program = (ends_[number] = std::move(program)).get();
  } else {
    std::vector<std::unique_ptr<Program>>& programs = programs_[code_of_region(number)];
    const auto same = std::find_if(programs.begin(), programs.end(),
                                   [&](const auto& other) { return !is_own_code && is_same_code(*other, *program); });
    if (same != programs.end()) {
      compiled.program = same->get();
    } else if (programs.size() < kMostPrograms) {
      cut(*program, tape_.device);
      compiled.program = programs.emplace_back(std::move(program)).get();
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
