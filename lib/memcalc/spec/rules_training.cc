// What goes with optimizers and loss scalers, and what is offloaded on one GPU. On several: rules_torch.cc,
// rules_deepspeed.cc. Covered by tests/unit/rules_training_test.cc.
#include <fmt/core.h>

#include <string>

#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"
#include "memcalc/spec/software_used.h"

namespace memcalc {
namespace {

// --- optimizers

constexpr Rule kTorchaoOptimizer[] = {
    {.id = "torchao-optimizer-parallel",
     .options = "--optimizer --parallel --framework",
     .message = "optimizer {--optimizer}: of several GPUs it is modelled under DDP, where each steps on all weights",
     .accepted = "--parallel ddp, or --optimizer adamw-fused, adamw-8bit",
     .broken =
         [](const RuleQuestion& q) {
           return q.parallel.is_parallel() && q.parallel.data_parallel != DataParallel::kDdp;
         }},
};

constexpr Rule kInBackward[] = {
    {.id = "optimizer-in-backward-loop",
     .options = "--optimizer-in-backward --loop --parallel --framework",
     .message =
         "an optimizer that steps within backward is modelled in a plain loop on one GPU (torchtune's recipes of "
         "one device); the Trainer has none",
     .accepted = "--loop bare on one GPU, or no --optimizer-in-backward",
     .broken = [](const RuleQuestion& q) { return training_of(q).loop != Loop::kBare || q.parallel.is_parallel(); }},
    {.id = "optimizer-in-backward-gradients",
     .options = "--optimizer-in-backward --accum --clip-grad --precision --offload-optimizer --offload-gradients",
     .message =
         "an optimizer that steps within backward sees one gradient at a time: none can be accumulated, clipped, "
         "scaled or offloaded",
     .accepted = "--accum 1, --clip-grad 0, no amp-fp16, no offload, or no --optimizer-in-backward",
     .broken =
         [](const RuleQuestion& q) {
           const Training& training = training_of(q);
           return training.accumulation_steps > 1 || training.max_grad_norm || q.run.precision == Precision::kAmpFp16 ||
                  training.offload_optimizer || training.offload_gradients;
         }},
};

constexpr Rule kTrainerOptimizer[] = {
    {.id = "muon-in-a-plain-loop",
     .options = "--optimizer --loop",
     .message =
         "optimizer muon: torch.optim.Muon takes matrices alone, and the Trainer gives all weights to one optimizer",
     .accepted = "--loop bare",
     .broken = [](const RuleQuestion& q) { return training_of(q).optimizer == Optimizer::kMuon; }},
    {.id = "adafactor-relative-in-a-plain-loop",
     .options = "--optimizer --loop",
     .message = "optimizer adafactor-hf-relative: the Trainer makes Adafactor with relative_step=False",
     .accepted = "--optimizer adafactor, or --loop bare",
     .broken = [](const RuleQuestion& q) { return training_of(q).optimizer == Optimizer::kAdafactorRelative; }},
};

constexpr Rule kScaler[] = {
    {.id = "skipped-steps-of-a-scaler",
     .options = "--skipped-steps --precision",
     .message = "skipped steps: only a loss scaler skips steps, and precision {--precision} has none",
     .accepted = "--precision amp-fp16, under DeepSpeed fp16",
     .broken =
         [](const RuleQuestion& q) {
           return q.run.precision != Precision::kAmpFp16 && !(q.run.precision == Precision::kFp16 && is_deepspeed(q));
         }},
};

constexpr Rule kCheckpointing[] = {
    {.id = "checkpointing-every-n",
     .options = "--checkpointing",
     .message = "checkpointing every-N: N is a number of layers, 1 or more, not {}",
     .accepted = "--checkpointing full, every-2, every-3, …",
     .broken = [](const RuleQuestion& q) { return training_of(q).checkpoint_every < 1; },
     .detail = [](const RuleQuestion& q) { return fmt::format("{}", training_of(q).checkpoint_every); }},
};

// --- torchao's CPUOffloadOptimizer

constexpr Rule kOffloadedOptimizer[] = {
    {.id = "offload-gradients-with-optimizer",
     .options = "--offload-gradients --offload-optimizer",
     .message = "offload gradients: only an offloaded optimizer takes them",
     .accepted = "--offload-optimizer beside it",
     .broken = [](const RuleQuestion& q) { return !training_of(q).offload_optimizer; }},
    {.id = "offload-optimizer-one-gpu",
     .options = "--offload-optimizer --gpus",
     .message = "offload optimizer: torchao's CPUOffloadOptimizer is for one GPU under torch",
     .accepted = "--gpus 1, no --parallel; of sharded states --offload-states host",
     .broken = is_parallel},
    {.id = "offload-optimizer-adamw",
     .options = "--optimizer --offload-optimizer",
     .message = "offload optimizer: torchao's CPUOffloadOptimizer is modelled with AdamW, which is fused on the host, "
                "not with {--optimizer}",
     .accepted = "--optimizer adamw, adamw-fused",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).optimizer != Optimizer::kAdamWForeach &&
                  training_of(q).optimizer != Optimizer::kAdamWFused;
         }},
    {.id = "offload-optimizer-without-scaler",
     .options = "--precision --offload-optimizer",
     .message = "offload optimizer: the loss scaler of amp-fp16 would unscale the host's gradients while they are "
                "still being copied",
     .accepted = "--precision fp32, tf32, bf16, fp16, amp-bf16",
     .broken = [](const RuleQuestion& q) { return q.run.precision == Precision::kAmpFp16; }},
    {.id = "offload-optimizer-without-clipping",
     .options = "--clip-grad --offload-optimizer",
     .message =
         "offload optimizer: gradients go to the host during backward, so clipping those on the card changes nothing",
     .accepted = "--clip-grad 0",
     .broken = [](const RuleQuestion& q) { return training_of(q).max_grad_norm.has_value(); }},
    {.id = "offload-gradients-one-micro-batch",
     .options = "--accum --offload-gradients",
     .message = "offload gradients: a micro-batch's gradients would replace those of the one before",
     .accepted = "--accum 1, or no --offload-gradients",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).offload_gradients && training_of(q).accumulation_steps > 1;
         }},
};

// --- weights and states that live on the host: FSDP2's CPUOffloadPolicy, DeepSpeed's ZeRO (rules_torch.cc,
// rules_deepspeed.cc); and for inference accelerate's cpu_offload, which puts a weight on the card while its module
// runs and has no backward pass.

constexpr Rule kOffloadedStates[] = {
    {.id = "offload-states-one-gpu",
     .options = "--offload-states --parallel --gpus",
     .message = "offload states: on one GPU torchao's optimizer or DeepSpeed does that",
     .accepted = "--offload-optimizer, or --parallel ds-zero1, ds-zero2, ds-zero3 with --loop bare",
     .broken = [](const RuleQuestion& q) { return q.parallel.offload_states != OffloadTo::kNowhere; }},
};

constexpr Rule kOffloadedParameters[] = {
    {.id = "offload-parameters-one-gpu",
     .options = "--offload-parameters --parallel --gpus",
     .message = "offload parameters: on one GPU only DeepSpeed's ZeRO-3 trains that way",
     .accepted = "--parallel ds-zero3 --loop bare, or --offload-optimizer, --activation-offload, --quantize",
     .broken = trains},
    {.id = "offload-parameters-to-host",
     .options = "--offload-parameters --infer",
     .message = "offload parameters: accelerate's cpu_offload puts them into host memory, not on an NVMe drive",
     .accepted = "--offload-parameters host",
     .broken = [](const RuleQuestion& q) { return q.parallel.offload_parameters == OffloadTo::kNvme; }},
    {.id = "offload-parameters-unpacked",
     .options = "--offload-parameters --quantize",
     .message = "offload parameters: accelerate's hooks around weights in {--quantize} are not modelled",
     .accepted = "--quantize none",
     .broken = quantizes},
};

constexpr RuleGroup kGroups[] = {
    {.title = "Optimizers of the Trainer",
     .concerns = [](const RuleQuestion& q) { return q.run.uses_trainer(); },
     .rules = kTrainerOptimizer},
    {.title = "torchao's optimizers",
     .concerns = [](const RuleQuestion& q) { return trains(q) && is_of_torchao(training_of(q).optimizer); },
     .rules = kTorchaoOptimizer},
    {.title = "An optimizer within backward",
     .concerns = [](const RuleQuestion& q) { return trains(q) && training_of(q).optimizer_in_backward; },
     .rules = kInBackward},
    {.title = "Loss scaler",
     .concerns = [](const RuleQuestion& q) { return trains(q) && training_of(q).skipped_steps > 0; },
     .rules = kScaler},
    {.title = "Checkpointing", .concerns = trains, .rules = kCheckpointing},
    {.title = "Offloaded optimizer",
     .concerns =
         [](const RuleQuestion& q) {
           return trains(q) && (training_of(q).offload_optimizer || training_of(q).offload_gradients);
         },
     .rules = kOffloadedOptimizer},
    {.title = "Offloaded states",
     .concerns = [](const RuleQuestion& q) { return !is_parallel(q); },
     .rules = kOffloadedStates},
    {.title = "Offloaded parameters",
     .concerns =
         [](const RuleQuestion& q) { return !is_parallel(q) && q.parallel.offload_parameters != OffloadTo::kNowhere; },
     .rules = kOffloadedParameters},
};

}  // namespace

std::span<const RuleGroup> rules_of_training() { return kGroups; }

}  // namespace memcalc
