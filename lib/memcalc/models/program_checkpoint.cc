// Regions of torch.utils.checkpoint inside a program's module: what they save is computed again in backward.
// MIRRORS(torch, "_higher_order_ops/wrap.py", "2.11.0")
#include <fmt/core.h>

#include <memory>
#include <utility>

#include "memcalc/models/program_model.h"
#include "memcalc/symbolic/capture.h"
#include "memcalc/symbolic/checkpoint.h"

namespace memcalc {

void ProgramModel::run_checkpoint(const PlacedFunction& caller, const BoundCheckpoint& call,
                                  std::vector<Tensor>& values) const {
  const PlacedFunction& called = caller.regions[call.number];
  KeptTensors taken;
  for (const BoundArgument& argument : call.arguments) {
    taken.push_back(given(caller, argument, values));
    if (!taken.back().defined()) {
      throw Error(ErrorCode::kInput, program_->name + ": a region of checkpointing is given a tensor that died");
    }
  }
  const std::vector<std::int32_t>& results = call.region->results;
  const auto others = results.size() > 1 ? std::make_shared<std::vector<Tensor>>(results.size() - 1) : nullptr;
  const auto run = [this, &called, others](const KeptTensors& kept) { return run_called(called, kept, others.get()); };
  Tensor first;
  if (!tape_.modes.grad_enabled) {
    first = run(taken);
  } else if (GraphCapture* capture = tape_.modes.capture; capture != nullptr) {
    // _higher_order_ops/wrap.py, TagActivationCheckpoint: a part of the graph, reentrant or not.
    const CapturedCheckpoint checkpoint(*capture, Recomputes::kAll);
    first = run(taken);
  } else if (!call.region->reentrant) {
    first = run_checkpointed(std::move(taken), call.positional, run);
  } else if (others == nullptr && call.positional <= kMaxEdges) {
    first = run_checkpointed_reentrant(taken, call.positional, run);
  } else {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: a reentrant region of checkpointing with several results or more than {} arguments is "
                            "not modelled; accepted: use_reentrant=False",
                            program_->name, kMaxEdges));
  }
  values[static_cast<std::size_t>(results[0])] = std::move(first);
  for (std::size_t i = 1; i < results.size(); ++i) {
    values[static_cast<std::size_t>(results[i])] = std::move((*others)[i - 1]);
  }
}

}  // namespace memcalc
