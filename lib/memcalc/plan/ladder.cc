#include "memcalc/plan/ladder.h"

#include <algorithm>
#include <utility>

#include "memcalc/report/quantity.h"
#include "memcalc/spec/run_fields.h"

namespace memcalc {
namespace {

/// How a technique changes a run; false where it is there already or has nothing to change.
struct Technique {
  const char* name;
  const char* price;
  bool (*apply)(RunSpec&);
};

bool accumulate(RunSpec& run) {
  if (!run.trains() || run.batch_size == 1) return false;
  run.training().accumulation_steps *= run.batch_size;
  run.batch_size = 1;
  return true;
}

bool mix_precision(RunSpec& run) {
  if (run.precision != Precision::kFp32 && run.precision != Precision::kTf32) return false;
  run.precision = Precision::kAmpBf16;
  return true;
}

bool checkpoint(RunSpec& run, Checkpointing how) {
  if (!run.trains() || run.checkpointing() == how || run.checkpointing() == Checkpointing::kFull) return false;
  run.training().checkpointing = how;
  run.use_cache = false;  // transformers switches it off
  return true;
}

bool is_adamw(Optimizer optimizer) {
  return optimizer == Optimizer::kAdamWForeach || optimizer == Optimizer::kAdamWFused ||
         optimizer == Optimizer::kAdamWForLoop || optimizer == Optimizer::kAdam || optimizer == Optimizer::kAdamWBnb;
}

bool quantize_states(RunSpec& run) {
  if (!run.trains() || !is_adamw(run.training().optimizer)) return false;
  run.training().optimizer = Optimizer::kAdamW8bit;
  return true;
}

bool fuse_loss(RunSpec& run) { return !std::exchange(run.fine_tuning.liger, true); }
bool offload(RunSpec& run) { return run.trains() && !std::exchange(run.training().offload_activations, true); }

/// Not with an 8-bit optimizer: its states are not torchao's to move.
bool offload_optimizer(RunSpec& run) {
  if (!run.trains()) return false;
  Optimizer& optimizer = run.training().optimizer;
  if (!is_adamw(optimizer) && optimizer != Optimizer::kAdamW8bit) return false;
  optimizer = Optimizer::kPagedAdamW8bit;
  return true;
}

bool shard(RunSpec& run, std::int64_t gpus) {
  if (run.parallel.gpus >= gpus) return false;
  run.parallel.gpus = gpus;
  if (std::holds_alternative<OneGpu>(run.parallel.layout)) run.parallel.layout = TorchMesh{};
  run.parallel.data_parallel = DataParallel::kFsdp2;
  if (!run.trains()) return true;  // a rule refuses it
  Training& training = run.training();
  // What FSDP2 does not take: bitsandbytes' optimizers and hooks of saved tensors on sharded parameters.
  if (training.optimizer == Optimizer::kAdamW8bit || training.optimizer == Optimizer::kPagedAdamW8bit) {
    training.optimizer = Optimizer::kAdamWFused;
  }
  training.loop = Loop::kBare;
  return true;
}

constexpr std::int64_t kRank = 16;

bool adapt(RunSpec& run) {
  if (run.fine_tuning.lora) return false;
  run.fine_tuning.lora = Lora{.rank = kRank, .targets = {}};
  run.fine_tuning.frozen.clear();
  if (run.precision == Precision::kFp32 || run.precision == Precision::kAmpBf16) {
    run.weights_dtype = DType::kBFloat16;
    run.precision = Precision::kAmpBf16;
  }
  return true;
}

bool quantize(RunSpec& run) {
  if (run.fine_tuning.quantization != Quantization::kNone) return false;
  if (!run.fine_tuning.lora) (void)adapt(run);
  run.fine_tuning.quantization = Quantization::kNf4Double;
  run.fine_tuning.prepares_for_kbit = true;
  return true;
}

const Technique kTechniques[] = {
    {"gradient accumulation, micro-batches of 1", "less work at once: slower on a small model", accumulate},
    {"mixed precision (autocast, bfloat16)", "none: faster on tensor cores", mix_precision},
    {"selective checkpointing", "some of forward again, in backward",
     [](RunSpec& run) { return checkpoint(run, Checkpointing::kSelective); }},
    {"checkpointing of every layer", "forward again in backward: up to a third more time",
     [](RunSpec& run) { return checkpoint(run, Checkpointing::kFull); }},
    {"8-bit optimizer (bitsandbytes)", "states are rounded to 8 bits", quantize_states},
    {"fused loss and kernels (Liger)", "none: faster", fuse_loss},
    {"activations on the host", "copies over PCIe", offload},
    {"optimizer states paged to the host", "copies over PCIe, where the card is full", offload_optimizer},
    {"sharding over 2 GPUs (FSDP2)", "a second GPU; weights are gathered", [](RunSpec& run) { return shard(run, 2); }},
    {"sharding over 4 GPUs (FSDP2)", "four GPUs", [](RunSpec& run) { return shard(run, 4); }},
    {"sharding over 8 GPUs (FSDP2)", "eight GPUs", [](RunSpec& run) { return shard(run, 8); }},
    {"LoRA, rank 16", "only adapters are trained", adapt},
    {"QLoRA, rank 16", "only adapters are trained, on a rounded base", quantize},
};

/// LoRA and QLoRA are other ways than sharding, on one card again.
bool starts_anew(const Technique& technique) { return technique.apply == adapt; }

}  // namespace

Ladder climb(const ModelSpec& model, const ResolvedRun& run, const DeviceSpec& device, bool all,
             const SearchControl& control) {
  Ladder ladder{.model = model.name, .device = device, .assumptions = run.assumptions};
  const Report asked = estimate(model, run.run, device);  // wrong input is refused here
  const auto command = [&](const RunSpec& rung) { return "memcalc " + command_of(RunRecord{model, rung, &device}); };
  ladder.rungs.push_back({"as asked", "", run.run, command(run.run), outcome_of(asked), true});
  std::size_t standing = 0;  // the rung that the next one is added to
  std::size_t one_card = 0;  // the last one of them without sharding
  if (ladder.rungs[0].outcome.fits()) ladder.first_fit = 0;
  for (const Technique& technique : kTechniques) {
    if (ladder.first_fit && !all) break;
    if (control.stopped()) {
      ladder.complete = false;
      break;
    }
    if (starts_anew(technique)) standing = one_card;
    Rung rung{technique.name, technique.price, ladder.rungs[standing].run, "", {}, false};
    if (!technique.apply(rung.run)) continue;
    rung.command = command(rung.run);
    rung.outcome = outcome_of(Candidate{model, rung.run, device});
    rung.kept = rung.outcome.answered() && rung.outcome.needed < ladder.rungs[standing].outcome.needed;
    ladder.rungs.push_back(std::move(rung));
    const std::size_t place = ladder.rungs.size() - 1;
    if (control.progress) control.progress(place, 0);
    if (!ladder.rungs[place].kept) continue;
    standing = place;
    if (!ladder.rungs[place].run.parallel.is_parallel()) one_card = place;
    if (ladder.rungs[place].outcome.fits() && !ladder.first_fit) ladder.first_fit = place;
  }
  return ladder;
}

Answer answer_of(const Ladder& ladder) {
  Answer answer;
  answer.command = "ladder";
  answer.complete = ladder.complete;
  answer.positive = ladder.first_fit.has_value();
  answer.assumptions = ladder.assumptions;
  const std::string where =
      ladder.model + " on " + ladder.device.name + " (" + format_bytes(ladder.device.usable_bytes()) + ")";
  if (ladder.first_fit == std::size_t{0}) {
    answer.headline = where + " fits as it is.";
  } else if (ladder.first_fit) {
    answer.headline =
        where + " fits with: " + ladder.rungs[*ladder.first_fit].technique + ", and what is kept above it.";
  } else {
    Bytes least = ladder.rungs.front().outcome.needed;
    for (const Rung& rung : ladder.rungs) {
      if (rung.outcome.answered()) least = std::min(least, rung.outcome.needed);
    }
    answer.headline = where + " does NOT fit with any of these: the best needs " + format_bytes(least) + ", " +
                      format_bytes(least - ladder.device.usable_bytes()) + " too much.";
  }
  answer.columns = {{"technique", "technique", Unit::kText},   {"needed_bytes", "needed", Unit::kBytes},
                    {"verdict", "fits", Unit::kVerdict},       {"step_seconds", "step", Unit::kSeconds, true},
                    {"kept", "kept", Unit::kYesNo, true},      {"headroom_bytes", "headroom", Unit::kBytes, true},
                    {"command", "command", Unit::kText, true}, {"price", "what it costs", Unit::kText, true},
                    {"refusal", "why not", Unit::kText, true}};
  for (const Rung& rung : ladder.rungs) {
    std::vector<Value> row = {rung.technique};
    row.resize(answer.columns.size());
    if (rung.outcome.answered()) {
      row[1] = rung.outcome.needed;
      row[2] = std::string(name_of(rung.outcome.verdict));
      if (rung.outcome.speed) row[3] = rung.outcome.speed->step_seconds;
      row[4] = rung.kept;
      row[5] = rung.outcome.headroom;
    }
    row[6] = rung.command;
    row[7] = rung.price;
    if (!rung.outcome.answered()) {
      row[8] = rung.outcome.refusal;
      answer.notes.push_back(rung.technique + ": " + rung.outcome.refusal);
    }
    answer.rows.push_back(std::move(row));
  }
  if (ladder.first_fit && *ladder.first_fit > 0) answer.notes.push_back(ladder.rungs[*ladder.first_fit].command);
  if (!ladder.complete) answer.notes.emplace_back("stopped early: the techniques that were tried by then");
  return answer;
}

}  // namespace memcalc
