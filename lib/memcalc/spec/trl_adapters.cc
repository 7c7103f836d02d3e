// MIRRORS(trl, "trainer/sft_trainer.py", "1.16.0")
#include "memcalc/spec/trl_adapters.h"

namespace memcalc {

bool prepares_adapters_itself(const RunSpec& run) {
  if (!run.trains()) return false;
  switch (run.training().loop) {
    case Loop::kTrlSft:
    case Loop::kTrlDpo:
    case Loop::kTrlKto:
    case Loop::kTrlGrpo:
    case Loop::kTrlRloo:
    case Loop::kTrlReward: return true;
    default: return false;
  }
}

void resolve_trl_adapters(RunSpec& run, std::vector<std::string>& assumptions) {
  if (!run.trains() || !run.uses_trl() || !run.fine_tuning.lora || run.training().loop == Loop::kTrlOnlineDpo) return;
  if (run.parallel.data_parallel != DataParallel::kDsZero3) return;
  if (run.fine_tuning.quantization == Quantization::kNone && !run.fine_tuning.lora->in_base_dtype) {
    run.fine_tuning.lora->in_base_dtype = true;
    assumptions.emplace_back("under ZeRO-3 TRL leaves adapters in the base's type (autocast_adapter_dtype=False)");
  }
  if (run.checkpointing() != Checkpointing::kFull || run.training().loop == Loop::kTrlOrpo) return;
  run.training().reentrant = true;
  assumptions.emplace_back(
      "under ZeRO-3 TRL checkpoints layers with adapters with use_reentrant=True, whatever is asked");
}

}  // namespace memcalc
