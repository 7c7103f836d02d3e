#include "memcalc/cost/host_time.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "memcalc/base/seconds.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/compiled_code.h"
#include "memcalc/symbolic/host_memory.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/within_call.h"

namespace memcalc {

namespace {

// Of python_us: what an operator takes among others beyond a loop of it alone, and what each bytecode instruction of
// the model's code takes. Least squares over the layers that twelve families of transformers 5.17 run for each later
// token of generate(), tiny models that took turns in a process of an H200's host which no profiler and no backward
// pass had touched, 2026-11-29 (tests/measured/inference_turns_h200.jsonl, "tokens"; instructions:
// python_counts.jsonl): 5.06 and 0.0542 us there, 3.5 % off (root mean square; experts, which were left out, 16 % too
// little). There the reference host's rates count 0.85 times (docs/time.md). The same numbers tell forward in training
// (below).
constexpr double kOperatorShare = 0.391, kInstructionShare = 0.0042;
// Of a family that was not counted, in calls: the median of those that were.
constexpr double kUsualInstructions = 63;

// Of what a loop of an operator takes, what it takes in a step. Layers of fourteen families, plain and under autocast,
// that took 23 turns with a LLaMA on an H200's host of 2026-11-30 (tests/measured/host_turns_h200.jsonl.gz). Forward
// goes with operators and with instructions as calls do (root mean square 6.5 %; 17.5 % with one time for each
// operator), backward with operators, views and nodes (3.3 %; 6.1 % with 1, 1 and 8.9 us a node). The level, which is
// the machine's, is the one that the mean family had before.
constexpr double kForwardShare = 1.16, kBackwardShare = 1.5, kBackwardView = 0.76, kBackwardNode = 0.515;

// Of what a checkpointed region takes around its function where hooks are called for its saved tensors, what a
// reentrant one takes (torch/utils/checkpoint.py, CheckpointFunction): layers of five families in the same turns, and
// regions of one to eight products in a row. Its first forward pass has no autograd, which is worth most of the random
// states.
constexpr double kReentrantForward = 0.12, kReentrantBackward = 0.4;

// A collective of torch.distributed._functional_collectives, over one of c10d: all_reduce of 14 sizes between two H200s
// took the host 405 us to issue, c10d's 67 (medians, 2026-11-29; tests/measured/two_cards_h200.jsonl, "messages"). The
// group is found by its name, the dispatcher calls an operator that makes its own output, and what it gives is a
// subclass of Tensor whose wait is another operator.
constexpr double kFunctionalShare = 6.1;

// Of trainer_tensor_us (7 us): what a walk over a model's modules takes for each, 0.65 to 0.85 us of parameters() and
// zero_grad() in a tiny BERT, LLaMAs of 4 and 12 layers and the same with adapters, on an H200's machine where a loop
// of Python took 1,057 us (1,337 on the reference host; tests/measured/walks_h200.jsonl, 2026-11-30).
constexpr double kWalkShare = 0.14;
// Of generated_token_us (556 us): LogitsProcessorList looks up the signature of each processor that it calls, 960
// instructions (transformers 5.17, counted without a card on 2026-11-30, harness/python_counts.py), each of which takes
// kInstructionShare of python_us (15.1 us).
constexpr double kProcessorShare = 0.11;
// Of model_call_us (690 us): copy.deepcopy() of a configuration, 15,000 to 19,600 instructions. The caches of T5, mT5,
// M2M-100, BART and Whisper (two copies, Whisper's three) took 203 to 298 us a copy of the reference host's by a loop
// of Python that ran in turns with them, 60 turns on a processor without a card, 2026-11-30
// (harness/copied_configs.py).
constexpr double kCopiedConfigurationShare = 0.367;
// Of packed_linear_us (51 us): what Linear4bit takes of Python with more rows than its one kernel takes, beside the
// second kernel and the product. bitsandbytes 0.50's _dequant_linear_fallback makes the weight's tensor and calls the
// library directly (the operator dequantize_4bit is not called). A tiny LLaMA on a processor whose library does
// nothing, 2026-11-30 (harness/packed_turns.py): few rows took 36 to 44 us more than nn.Linear, many 13 to 19 on top,
// 0.36 to 0.43 of packed_linear_us. As much is told for the operator that unpacks (pointwise_us, python_us), so that
// 0.2 does not follow from these turns: it was put in for a third of the 15, which would be 0.14, and is as it was when
// the packed first tokens of docs/studies/time-inference.md were compared.
constexpr double kUnpackedShare = 0.2;
// And of trainer_batch_us (400 us) both readings of peft's METADATA: 0.9 ms there.
constexpr double kPeftQuestionShare = 2.85;

// What one thread takes of a pass over an optimizer's arrays in host memory over what 16 take, and of a loop of torch's
// operators: 210 to 240 ms for 37 to 39, 1.05 to 1.34 s for 155 to 195 (tests/measured/host_turns_h200.jsonl.gz).
constexpr double kPassAlone = 5.9, kLoopAlone = 6.8;
// Of optimizer_tensor_us (3.1 us): a call of torch.optim.AdamW.step() of one tensor with fused=True, around its kernel.
constexpr double kTensorStepShare = 25;

double host_memory_microseconds(const Kernel& kernel, const HostRates& rates) {
  const double passed = kernel.elements / rates.memory_bytes_per_second / kMicrosecond;
  const double looped = kernel.elements / rates.looped_bytes_per_second / kMicrosecond;
  switch (host_memory_work_of(kernel)) {
    case HostMemoryWork::kPass: return passed;
    case HostMemoryWork::kPassOfOneThread: return kPassAlone * passed;
    case HostMemoryWork::kLoop: return looped;
    case HostMemoryWork::kLoopOfOneThread: return kLoopAlone * looped;
    case HostMemoryWork::kTensorStep: return kernel.elements * kTensorStepShare * rates.optimizer_tensor_us;
    case HostMemoryWork::kShardedOperator: return kernel.elements * rates.sharded_operator_us;
  }
  return 0;
}

// Of a Linear of DTensors what a norm of DTensors takes with the gather behind it: each of its eight operators is
// dispatched in Python. A LLaMA's layer whose Linears alone are split, and with SequenceParallel and PrepareModuleInput
// between them (torch 2.11, two ranks of the fake process group, processor time of a CPU's process, in float32 and
// bfloat16, 2026-11-30; tests/measured/host_dtensor_cpu.jsonl): beyond the plain layer 1.31 and 1.36 times as much
// forward, 1.20 and 1.23 backward, over seven Linears and two norms.
constexpr double kNormShare = 1.18, kNormBackwardShare = 0.76;
// And what its conversions under autocast take beyond those of plain tensors: the same layer, split and plain, each
// with autocast and without, over seven Linears.
constexpr double kDistributedCastShare = 0.156, kDistributedCastBackwardShare = 0.144;

// Of the same what attention under context_parallel() takes beside the operators and collectives in it: three
// from_local(), a handler of DTensor's dispatcher, the Python of the turns in both passes (torch 2.11,
// _context_parallel/_attention.py). Two H200s, eight heads of 64 and 512 positions, in loops: 1.24 ms forward and
// 1.33 ms backward beyond plain attention with the host as quick as the reference host, in a step kForwardShare times
// as much, of which its operators are 0.76 and 0.98 ms (2026-11-30; tests/measured/host_context_h200.jsonl).
constexpr double kRingShare = 1.55, kRingBackwardShare = 0.95;

// Python of DeepSpeed (0.19.8) for each parameter: tiny LLaMAs and BERTs of 2 and 8 layers, rank 0 of two of the fake
// process group, processor time of a CPU's process beside the same models alone, 2026-11-30
// (tests/measured/host_deepspeed_cpu.jsonl). Stage 3 takes 400 and 320 us a parameter forward (277 and 285 a module,
// containers among them), 378 and 371 backward, stages 1 and 2 57 to 95 backward, the engine's step 47 to 52. There the
// plain models and a Linear of DTensors took 0.76 to 1.12 times what they take on the reference host; these are taken
// to take as much.
constexpr double kFetchedShare = 0.82, kFetchedBackwardShare = 0.64, kZeroReducedShare = 0.122, kZeroSteppedShare = 16;

double host_work_microseconds(HostWork work, const HostRates& rates) {
  switch (work) {
    case HostWork::kTrainerStep: return rates.trainer_step_us;
    case HostWork::kTrainerBatch: return rates.trainer_batch_us;
    case HostWork::kWalkedModule: return kWalkShare * rates.trainer_tensor_us;
    case HostWork::kPeftQuestion: return kPeftQuestionShare * rates.trainer_batch_us;
    case HostWork::kCollatedToken: return rates.collated_token_us;
    case HostWork::kTextToken: return rates.text_token_us;
    case HostWork::kToggledModule: return rates.toggled_module_us;
    case HostWork::kFsdp2Forward: return rates.fsdp2_forward_us;
    case HostWork::kFsdp2Backward: return rates.fsdp2_backward_us;
    case HostWork::kFsdp1Forward: return rates.fsdp1_forward_us;
    case HostWork::kFsdp1Backward: return rates.fsdp1_backward_us;
    case HostWork::kDistributedLinear: return rates.distributed_linear_us;
    case HostWork::kDistributedLinearBackward: return rates.distributed_linear_backward_us;
    case HostWork::kDistributedNorm: return kNormShare * rates.distributed_linear_us;
    case HostWork::kDistributedNormBackward: return kNormBackwardShare * rates.distributed_linear_backward_us;
    case HostWork::kDistributedCast: return kDistributedCastShare * rates.distributed_linear_us;
    case HostWork::kDistributedCastBackward:
      return kDistributedCastBackwardShare * rates.distributed_linear_backward_us;
    case HostWork::kRingAttention: return kRingShare * rates.distributed_linear_us;
    case HostWork::kRingAttentionBackward: return kRingBackwardShare * rates.distributed_linear_backward_us;
    case HostWork::kZeroFetched: return kFetchedShare * rates.distributed_linear_us;
    case HostWork::kZeroFetchedBackward: return kFetchedBackwardShare * rates.distributed_linear_backward_us;
    case HostWork::kZeroReduced: return kZeroReducedShare * rates.distributed_linear_backward_us;
    case HostWork::kZeroStepped: return kZeroSteppedShare * rates.optimizer_tensor_us;
    case HostWork::kReducedTensor: return rates.reduced_tensor_us;
    case HostWork::kCheckpointForward: return rates.checkpoint_forward_us;
    case HostWork::kCheckpointBackward: return rates.checkpoint_backward_us;
    case HostWork::kPackedTensor: return rates.packed_tensor_us;
    case HostWork::kUnpackedTensor: return rates.unpacked_tensor_us;
    case HostWork::kOptimizerTensor: return rates.optimizer_tensor_us;
    case HostWork::kZeroedTensor: return rates.zeroed_tensor_us;
    case HostWork::kVmappedIndex: return rates.vmapped_index_us;
    case HostWork::kModelCall: return rates.model_call_us;
    case HostWork::kGenerateCall: return rates.generate_us;
    case HostWork::kGeneratedToken: return rates.generated_token_us;
    case HostWork::kLogitsProcessor: return kProcessorShare * rates.generated_token_us;
    case HostWork::kGenerateEncoder: return rates.generate_encoder_us;
    case HostWork::kCacheLayer: return rates.cache_layer_us;
    case HostWork::kCopiedConfiguration: return kCopiedConfigurationShare * rates.model_call_us;
    case HostWork::kPackedLinear: return rates.packed_linear_us;
    case HostWork::kUnpackedWeight: return kUnpackedShare * rates.packed_linear_us;
    case HostWork::kInt8Linear: return rates.int8_linear_us;
    case HostWork::kInt8Warning: return rates.int8_warning_us;
  }
  return 0;
}

double host_microseconds(KernelKind kind, const HostRates& rates) {
  switch (kind) {
    case KernelKind::kMatrixProduct:
    case KernelKind::kGroupedProduct: return rates.product_us;
    case KernelKind::kCudnnAttention:
    case KernelKind::kFlashAttention:
    case KernelKind::kEfficientAttention: return rates.attention_us;
    case KernelKind::kConvolution:
    case KernelKind::kDepthwiseConvolution: return rates.convolution_us;
    case KernelKind::kImage: return rates.image_us;
    case KernelKind::kRowwise:
    case KernelKind::kEmbeddingBackward: return rates.normalization_us;
    case KernelKind::kPartOfPrevious: return 0;
    case KernelKind::kCopyToDevice:
    case KernelKind::kCopyToHost: return rates.copy_us;
    default: return rates.pointwise_us;
  }
}

}  // namespace

bool is_list(const Kernel& kernel) {
  return kernel.kind == KernelKind::kMultiTensor && kernel.launches == 1 && kernel.elements > 0;
}

double list_passes(const Kernel& kernel) {
  return std::max(1.0, kernel.bytes / (kernel.elements * static_cast<double>(size_of(kernel.dtype))));
}

// cuda/MultiTensorApply.cuh (2.11): a launch has 320 blocks of 65,536 elements. AdamW's eight functions of lists pass
// 18 times over a tensor; a fused rule, and SGD's, pass up to seven times in one. Mistral's 2.88 billion parameters on
// an H200: 1,104 launches (tests/measured/two_cards_timelines_h200.jsonl.gz), as by this.
double list_launches(const Kernel& kernel) {
  constexpr double kLaunchElements = 320 * 65536, kFunctionPasses = 2.25, kMostPassesOfOne = 7;
  if (!is_list(kernel)) return kernel.launches;
  const double passes = list_passes(kernel);
  const double functions = passes > kMostPassesOfOne ? passes / kFunctionPasses : 1;
  return functions * std::ceil(kernel.elements / kLaunchElements);
}

double host_seconds(const Kernel& kernel, const HostRates& rates, bool no_grad) {
  if (is_of_compiled_code(kernel)) {
    if (kernel.op == &kCompiledCall) {
      const double launch = is_replayed(kernel) ? rates.compiled_us : 0;
      return (rates.compiled_call_us + kernel.elements * rates.compiled_tensor_us + launch) * kMicrosecond;
    }
    if (is_replayed(kernel)) return 0;
    return kernel.kind == KernelKind::kPartOfPrevious ? 0 : kernel.launches * rates.compiled_us * kMicrosecond;
  }
  const auto* list = kernel.as<work::TensorList>();
  const bool of_dtensors = list != nullptr && list->of_dtensors;
  const double collective = rates.collective_us * (kernel.node == &kFunctionalCollective ? kFunctionalShare : 1);
  const double call = is_of_host_work(kernel)              ? 0
                      : kernel.communicates()              ? collective
                      : of_dtensors && kernel.launches > 1 ? rates.sharded_operator_us
                                                           : host_microseconds(kernel.kind, rates);
  // Without autograd an operator takes this share of its time, a view this one: medians of eleven and of three, on an
  // H100's host, 2026-11-27 (tests/measured/inference_parts_h100.jsonl).
  constexpr double kNoGradShare = 0.83, kNoGradView = 0.63;
  // What a trainer generates in a step it generates under torch.no_grad(), too (trl/trainer/grpo_trainer.py).
  const bool generated_in_step = !no_grad && kernel.phase == Phase::kDecode;
  no_grad |= generated_in_step;
  const bool forward = kernel.phase == Phase::kForward || kernel.phase == Phase::kDecode || kernel.recomputed;
  const bool backward = kernel.phase == Phase::kBackward && !kernel.recomputed;
  const bool image = kernel.kind == KernelKind::kConvolution || kernel.kind == KernelKind::kDepthwiseConvolution ||
                     kernel.kind == KernelKind::kImage;  // not among the layers that took turns
  const double in_step = kernel.communicates() || image ? 1 : forward ? kForwardShare : backward ? kBackwardShare : 1;
  const double view = backward ? kBackwardView : forward ? kForwardShare : 1;
  double microseconds = kernel.launches * call * (no_grad ? kNoGradShare : in_step) +
                        kernel.views * rates.view_us * (no_grad ? kNoGradView : view);
  if (const auto* work = kernel.as<work::OfHost>()) {
    const bool reentrant = kernel.node == &kReentrantRegion;
    const double share = !reentrant ? 1 : kernel.recomputed ? kReentrantBackward : kReentrantForward;
    microseconds += share * static_cast<double>(work->times) * host_work_microseconds(work->what, rates);
  }
  if (is_host_memory_work(kernel)) microseconds += host_memory_microseconds(kernel, rates);
  // Tensor.norm and mean in an optimizer's own loop: Python of torch.functional, and their dimensions. Of the same
  // lists as kPythonOfParameter in train/optimizers/looped_step.cc.
  constexpr double kReductionMore = 0.42;
  const bool sums = kernel.kind == KernelKind::kRowSum || kernel.kind == KernelKind::kColumnSum;
  if (sums && kernel.operator_class == OperatorClass::kOptimizer) microseconds += kReductionMore * call;
  if (kernel.phase == Phase::kBackward) microseconds += kernel.nodes * rates.node_us * kBackwardNode;
  // Forward, and checkpointing's second forward, are the model's Python; backward is autograd's C++, as is what
  // autocast converts and the steps of a recurrent network within one call.
  const bool cast = is_of_autocast(kernel), step = kernel.op == &aten::kCudnnRnn;
  const bool python =
      forward && !cast && !step && !is_around_model(kernel) && !is_within_operator(kernel) && !is_of_host_work(kernel);
  // Of BERT's 320 conversions, each 10.9 us where an element-wise operator takes 7.8 (host_times_h200.jsonl).
  constexpr double kCastShare = 1.4;
  if (cast) microseconds *= kCastShare;
  if (python && kernel.kind != KernelKind::kPartOfPrevious)
    microseconds += rates.python_us / (generated_in_step ? kForwardShare : 1);
  if (backward) microseconds *= rates.backward_ratio;
  if (is_list(kernel)) {
    const double per_pass = of_dtensors ? rates.sharded_tensor_us : rates.tensor_us;
    const auto tensors = static_cast<double>(list != nullptr ? list->tensors : 0);
    microseconds += tensors * list_passes(kernel) * per_pass;
  }
  return microseconds * kMicrosecond;
}

bool has_grouped_experts(const KernelList& kernels) {
  return std::any_of(kernels.begin(), kernels.end(), [](const Kernel& kernel) {
    return kernel.op == &aten::kGroupedMm || kernel.op == &aten::kGroupedMmFallback;
  });
}

// Of an operator beside so many other kinds. Tiny models of eight families in bfloat16 took turns with LLaMAs for 16
// rounds on an H200's host, 2026-11-29: what the rates say of them was exceeded by 1.14 (forward) and 1.35 times
// (backward; geometric means of two depths), where the LLaMAs' was by 1.07 and 1.24 (a core shared with somebody). A
// Mixtral's attention and norms, which are LLaMA's, took 1.3 times as long in it (expert_parts_h200.jsonl.gz).
DeviceRates rates_among_experts(DeviceRates rates) {
  constexpr double kShare = 1.08;
  const auto of = [](HostRates& host) {
    for (double* const rate : {&host.pointwise_us, &host.normalization_us, &host.product_us, &host.attention_us,
                               &host.view_us, &host.python_us, &host.node_us}) {
      *rate *= kShare;
    }
  };
  of(rates.host);
  for (MeasuredHost& each : rates.hosts) of(each.rates);
  return rates;
}

namespace {

double python_share(double instructions) { return kOperatorShare + kInstructionShare * instructions; }

}  // namespace

DeviceRates rates_of_step(DeviceRates rates, double instructions) {
  const double share = kForwardShare * python_share(instructions);
  rates.host.python_us *= share;
  for (MeasuredHost& each : rates.hosts) each.rates.python_us *= share;
  return rates;
}

DeviceRates rates_of_call(DeviceRates rates, double instructions) {
  const double share = python_share(instructions > 0 ? instructions : kUsualInstructions);
  const auto of_call = [&](HostRates& host) {
    host.python_us *= share;
    host = times(host.call_ratio, host);
  };
  of_call(rates.host);
  for (MeasuredHost& each : rates.hosts) of_call(each.rates);
  return rates;
}

}  // namespace memcalc
