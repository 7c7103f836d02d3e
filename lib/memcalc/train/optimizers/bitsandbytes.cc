// bitsandbytes/optim/optimizer.py (Optimizer1State, Optimizer2State) and ademamix.py of bitsandbytes 0.50. Updates are
// in place, so there are states and no temporaries. 32-bit states are float32 whatever the weight's dtype; 8-bit ones
// have a scale (absmax) for each block.
// MIRRORS(bitsandbytes, "optim/ademamix.py", "0.50.2")
// MIRRORS(bitsandbytes, "optim/optimizer.py", "0.50.2")
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/vector_quantize.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

constexpr const char* kSource = "bitsandbytes/optim/optimizer.py";
constexpr std::int64_t kBlock = 256;               // elements with one scale
constexpr std::int64_t kLeast8bitElements = 4096;  // min_8bit_size: smaller tensors have 32-bit states
constexpr std::int64_t kLeastPagedElements = 100000;
constexpr std::int64_t kMapEntries = 256;  // a float32 for each value of a byte

/// How many tensors like the parameter each state holds: AdEMAMix keeps two averages in its first.
struct States {
  int count = 1;
  int in_first = 1;
  int bits = 32;
  bool paged = false;
  bool named_by_trainer = false;  // Trainer.create_optimizer: embeddings then keep 32-bit states
};

constexpr States kOne32{}, kOne8{.bits = 8, .named_by_trainer = true}, kOne8Unnamed{.bits = 8};
constexpr States kOne32Paged{.paged = true}, kOne8Paged{.bits = 8, .paged = true, .named_by_trainer = true};
constexpr States kTwo32{.count = 2}, kTwo8{.count = 2, .bits = 8, .named_by_trainer = true};
constexpr States kTwo32Paged{.count = 2, .paged = true};
constexpr States kTwo8Paged{.count = 2, .bits = 8, .paged = true, .named_by_trainer = true};
constexpr States kThree32{.count = 2, .in_first = 2};
constexpr States kThree8{.count = 2, .in_first = 2, .bits = 8, .named_by_trainer = true};
constexpr States kThree32Paged{.count = 2, .in_first = 2, .paged = true};
constexpr States kThree8Paged{.count = 2, .in_first = 2, .bits = 8, .paged = true, .named_by_trainer = true};

bool is_8bit(const States& states, std::int64_t elements, bool is_embedding, Loop loop) {
  const bool kept_wide = is_embedding && is_trainer(loop) && states.named_by_trainer;
  return states.bits == 8 && elements >= kLeast8bitElements && !kept_wide;
}

bool is_paged(const States& states, std::int64_t elements) { return states.paged && elements >= kLeastPagedElements; }

void make_state(OptimizerMemory& memory, const States& states, const Parameter& parameter, bool eight_bit, int copies) {
  const std::int64_t elements = parameter.tensor.elements();
  const DType dtype = eight_bit ? DType::kUInt8 : DType::kFloat32;
  if (is_paged(states, elements)) {
    memory.managed_state(checked_multiply(copies * size_of(dtype), elements));
  } else {
    memory.state({copies, elements}, dtype, aten::kZerosLike);
  }
}

/// init_state. The scales of AdEMAMix come before its states.
void init_state(OptimizerMemory& memory, const States& states, const Parameter& parameter, bool eight_bit) {
  const std::int64_t blocks = ceil_div(parameter.tensor.elements(), kBlock);
  const auto scales = [&](int i) {
    memory.state({i == 0 ? states.in_first : 1, blocks}, DType::kFloat32, aten::kZeros);
  };
  const bool scales_first = states.in_first > 1;
  for (int i = 0; i < states.count && eight_bit && scales_first; ++i) scales(i);
  for (int i = 0; i < states.count; ++i) {
    make_state(memory, states, parameter, eight_bit, i == 0 ? states.in_first : 1);
  }
  for (int i = 0; i < states.count && eight_bit && !scales_first; ++i) scales(i);
}

template <const States& states>
void step(OptimizerMemory& memory, const ParameterGroup& group) {
  for (const Parameter* each : group) {
    const bool eight_bit = is_8bit(states, each->tensor.elements(), each->is_embedding, memory.loop);
    for (int i = 0; i < states.count && eight_bit; ++i) {  // the maps from bytes to numbers: qmap1, qmap2
      memory.shared_state(i, {kMapEntries}, DType::kFloat32, aten::kToCopy);
    }
    init_state(memory, states, *each, eight_bit);
    Tensor& grad = each->tensor.impl()->grad;
    if (!grad.is_contiguous()) grad = contiguous(grad);
  }
}

template <const States& states>
StateBytes state_bytes(const OptimizedTensor& tensor, Loop loop) {
  const std::int64_t elements = tensor.shape.elements();
  const bool eight_bit = is_8bit(states, elements, tensor.is_embedding, loop);
  const int copies = states.count + states.in_first - 1;
  const Bytes numbers = checked_multiply(copies * (eight_bit ? 1 : 4), elements);
  StateBytes bytes;
  (is_paged(states, elements) ? bytes.managed : bytes.tensors) = numbers;
  if (eight_bit) {
    bytes.tensors = checked_add(bytes.tensors, copies * 4 * ceil_div(elements, kBlock));
    bytes.tables = states.count * kMapEntries * 4;
  }
  return bytes;
}

// Python around one parameter's update, in what _init_group takes for one, and around the fetching of its states: a
// step of 64 parameters of 3,000 elements takes 36 us for each, 12 us more where two states are paged (one H200's host,
// tests/measured/optimizer_times_h200.jsonl).
constexpr std::int64_t kPythonOfUpdate = 8, kPythonOfPrefetch = 2;

/// Optimizer8bit.step(): prefetch_state(), update_step(), and then it waits for the card.
template <const States& states>
void record_kernels(const OptimizerRule& rule, const Parameter& parameter, Loop loop) {
  const Tensor& tensor = parameter.tensor;
  Tape& tape = tensor.tape();
  const bool eight_bit = is_8bit(states, tensor.elements(), parameter.is_embedding, loop);
  const int copies = states.count + states.in_first - 1;
  const auto elements = static_cast<double>(tensor.elements());
  const double bytes_of_states = (eight_bit ? 1.0 : 4.0) * copies * elements;
  record_host_work(tape, HostWork::kOptimizerTensor, kPythonOfUpdate);
  if (is_paged(states, tensor.elements())) {
    record_host_work(tape, HostWork::kOptimizerTensor, kPythonOfPrefetch * states.count);
    tape.kernels.add(kPrefetch, OperatorClass::kOptimizer, DType::kUInt8, 0, bytes_of_states, KernelKind::kVectorized,
                     bytes_of_states);
  }
  const Operator& update = !eight_bit ? kUpdate32bit : copies > 1 ? kUpdate8bit : kUpdate8bitOneState;
  const double moved = 3 * static_cast<double>(tensor.bytes()) + 2 * bytes_of_states;
  tape.kernels.add(update, OperatorClass::kOptimizer, tensor.dtype(), rule.flops * elements, moved,
                   KernelKind::kVectorized, elements);
  tape.kernels.synchronize(update);
}

/// Reads gradient, weight and states, writes weight and states.
template <const States& states>
double bytes_moved(double itemsize) {
  return 3 * itemsize + 2.0 * (states.count + states.in_first - 1) * states.bits / 8;
}

constexpr const char* kOneWide = "one state of 4 bytes";
constexpr const char* kTwoWide = "two states of 4 bytes";
constexpr const char* kThreeWide = "three states of 4 bytes";
constexpr const char* kOneByte = "one state of 1 byte with 4 bytes for each block of 256; small tensors: 4 bytes";
constexpr const char* kTwoBytes = "two states of 1 byte with 4 bytes for each block of 256; small tensors: 4 bytes";
constexpr const char* kThreeBytes = "three states of 1 byte with 4 bytes for each block of 256; small tensors: 4 bytes";

template <const States& states>
constexpr OptimizerRule rule(Optimizer optimizer, const char* title, const char* text, double flops) {
  return {.optimizer = optimizer,
          .title = title,
          .source = kSource,
          .states = text,
          .state_bytes = state_bytes<states>,
          .step = step<states>,
          .flops = flops,
          .bytes_moved = bytes_moved<states>,
          .operators = 1,
          .record_kernels = record_kernels<states>};
}

}  // namespace

std::span<const OptimizerRule> bitsandbytes_rules() {
  static constexpr OptimizerRule kRules[] = {
      rule<kTwo32>(Optimizer::kAdamWBnb, "AdamW (bitsandbytes)", kTwoWide, 14),
      rule<kTwo8>(Optimizer::kAdamW8bit, "8-bit AdamW", kTwoBytes, 18),
      rule<kTwo32Paged>(Optimizer::kPagedAdamW, "paged AdamW", kTwoWide, 14),
      rule<kTwo8Paged>(Optimizer::kPagedAdamW8bit, "paged 8-bit AdamW", kTwoBytes, 18),
      rule<kOne32>(Optimizer::kLion, "Lion", kOneWide, 8),
      rule<kOne8>(Optimizer::kLion8bit, "8-bit Lion", kOneByte, 10),
      rule<kOne32Paged>(Optimizer::kPagedLion, "paged Lion", kOneWide, 8),
      rule<kOne8Paged>(Optimizer::kPagedLion8bit, "paged 8-bit Lion", kOneByte, 10),
      rule<kOne32>(Optimizer::kRmspropBnb, "RMSprop (bitsandbytes)", kOneWide, 8),
      rule<kOne8>(Optimizer::kRmsprop8bit, "8-bit RMSprop", kOneByte, 10),
      rule<kOne8Unnamed>(Optimizer::kSgdMomentum8bit, "8-bit SGD with momentum", kOneByte, 6),
      rule<kThree32>(Optimizer::kAdEMAMix, "AdEMAMix", kThreeWide, 18),
      rule<kThree8>(Optimizer::kAdEMAMix8bit, "8-bit AdEMAMix", kThreeBytes, 24),
      rule<kThree32Paged>(Optimizer::kPagedAdEMAMix, "paged AdEMAMix", kThreeWide, 18),
      rule<kThree8Paged>(Optimizer::kPagedAdEMAMix8bit, "paged 8-bit AdEMAMix", kThreeBytes, 24),
  };
  return kRules;
}

}  // namespace memcalc
