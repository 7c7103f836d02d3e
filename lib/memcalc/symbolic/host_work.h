// Work of the host alone: Python of loops and wrappers around the operators, which issues nothing to the card but takes
// the time in which the card may run dry. HostRates (spec/device_rates.h) has the microseconds of each.
// Covered by tests/unit/cost_test.cc.
// MIRRORS(torch, "utils/checkpoint.py", "2.11.0")
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "memcalc/symbolic/trace.h"

namespace memcalc {

class Tape;

enum class HostWork : std::uint8_t {
  kTrainerStep,    // the Trainer between two steps: data loader, callbacks, scheduler
  kTrainerBatch,   // its training_step around a micro-batch
  kWalkedModule,   // a module in one of its walks over the model: model.train(), num_parameters(), zero_grad()
  kPeftQuestion,   // accelerate's is_peft_model(): peft's METADATA is read and parsed, twice
  kCollatedToken,  // a token of a batch that a collator makes of lists: its numbers, mask and labels
  kTextToken,      // a token of a text that sentence-transformers gives to its tokenizer
  kToggledModule,  // of peft's disable_adapter(), each adapted module: its walks over the whole model, before and after
  kFsdp2Forward,   // FSDP2's hooks of a module in forward
  kFsdp2Backward,  // and in backward
  kFsdp1Forward,   // the same of FSDP1
  kFsdp1Backward,
  kDistributedLinear,          // a Linear of DTensors (tensor parallel), in forward
  kDistributedLinearBackward,  // and in backward
  kReducedTensor,              // DDP's hook of a parameter
  kCheckpointForward,          // a checkpointed region: random states and contexts
  kCheckpointBackward,         // and where it is computed again
  kPackedTensor,               // each tensor that autograd saves in it: torch/utils/checkpoint.py's hooks are Python
  kUnpackedTensor,
  kOptimizerTensor,  // the optimizer's loop over its parameters before its first kernel
  kZeroedTensor,     // zero_grad's
  kVmappedIndex,     // an index in a function of masks under torch.vmap, whose batched tensors are Python's
  kModelCall,        // inference: the model's __call__ around its layers
  kGenerateCall,     // generate() before its first token: configuration, processors, criteria
  kGeneratedToken,   // its loop around a token: the arguments of the next call, processors, criteria
  kGenerateEncoder,  // generate() of an encoder-decoder before its first token: the encoder's arguments, its own cache
  kCacheLayer,       // a layer of DynamicCache is made as it is first given keys: two of torch.tensor([])
  kPackedLinear,     // bitsandbytes' Linear4bit: its checks, autograd.Function, torch.library's operators
  kInt8Linear,       // Linear8bitLt: five such operators, each called from the other, and ctypes
  kInt8Warning,      // its warning at each call that the input is not float16
  kDistributedNorm,  // an RMS norm whose operators are DTensors' (SequenceParallel), and the gather behind it
  kDistributedNormBackward,  // and in backward
  kRingAttention,            // attention under context_parallel: DTensors around it and the Python of its turns
  kRingAttentionBackward,    // and in backward
  kDistributedCast,          // a Linear of DTensors under autocast: its conversions, which are DTensors', too
  kDistributedCastBackward,  // and in backward
  kZeroFetched,              // DeepSpeed's ZeRO-3: a parameter in the hooks of its module, in forward
  kZeroFetchedBackward,      // and in backward
  kZeroReduced,              // ZeRO-1 and 2: a parameter's gradient in its hook
  kZeroStepped,              // a parameter in the engine's step
  kLogitsProcessor,          // what LogitsProcessorList asks of each processor that draws tokens
  kUnpackedWeight,           // of Linear4bit with more rows than its one kernel takes
  kCopiedConfiguration,      // an encoder-decoder's: DynamicCache asks it for its decoder's, which is a deep copy
};
inline constexpr std::size_t kHostWorkCount = 42;

/// Their names in the KernelList, where host work is a kernel without time of its own (work::OfHost).
inline constexpr std::array<Operator, kHostWorkCount> kHostWorkOperators = {
    {{"Trainer: between two steps"},
     {"Trainer.training_step"},
     {"walks over modules"},
     {"accelerate: is_peft_model"},
     {"collator: a token"},
     {"tokenizer: a token"},
     {"PeftModel.disable_adapter"},
     {"fully_shard: hooks of forward"},
     {"fully_shard: hooks of backward"},
     {"FullyShardedDataParallel: hooks of forward"},
     {"FullyShardedDataParallel: hooks of backward"},
     {"DTensor: Linear"},
     {"DTensor: LinearBackward"},
     {"Reducer: autograd_hook"},
     {"checkpoint: forward"},
     {"checkpoint: recompute_fn"},
     {"checkpoint: pack_hook"},
     {"checkpoint: unpack_hook"},
     {"Optimizer._init_group"},
     {"Optimizer.zero_grad"},
     {"vmap: tensor[index]"},
     {"PreTrainedModel.__call__"},
     {"GenerationMixin.generate"},
     {"GenerationMixin._sample: a token"},
     {"GenerationMixin.generate: encoder"},
     {"DynamicLayer.lazy_initialization"},
     {"bitsandbytes: Linear4bit"},
     {"bitsandbytes: Linear8bitLt"},
     {"bitsandbytes: MatMul8bitLt's warning"},
     {"DTensor: norm"},
     {"DTensor: normBackward"},
     {"context_parallel: attention"},
     {"context_parallel: attentionBackward"},
     {"DTensor: conversions of a Linear"},
     {"DTensor: conversions of a LinearBackward"},
     {"ZeRO-3: fetch_sub_module"},
     {"ZeRO-3: fetch_sub_module in backward"},
     {"ZeRO: reduce_ready_partitions_and_remove_grads"},
     {"DeepSpeedEngine.step"},
     {"LogitsProcessorList.__call__"},
     {"bitsandbytes: dequantize_4bit"},
     {"PreTrainedConfig.get_text_config"}}};

void record_host_work(Tape& tape, HostWork work, std::int64_t times = 1);

}  // namespace memcalc
