// torchao 0.17, optim/adam.py (_AdamBase, single_param_adam), optim/subclass_8bit.py, optim/subclass_4bit.py, behind
// transformers' adamw_torch_8bit and adamw_torch_4bit. A state is bytes with a float32 scale for each block and a table
// of what the bytes stand for. The update of a parameter is compiled; its buffers are those in inductor's code for it
// (torch 2.11, lowered without a card).
// MIRRORS(torchao, "optim/adam.py", "0.17.0")
// MIRRORS(transformers, "trainer_optimizer.py", "5.17.0")
#include "memcalc/symbolic/aten.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

constexpr std::int64_t kLeastElements = 4096;  // smaller tensors have states like themselves
constexpr Operator kUpdate{"torchao::single_param_adam"};

struct Bits {
  int bits = 8;
  std::int64_t block = 256;  // elements with one scale

  [[nodiscard]] constexpr std::int64_t codes(std::int64_t elements) const { return elements * bits / 8; }
  [[nodiscard]] constexpr std::int64_t map_entries() const { return std::int64_t{1} << bits; }
};

constexpr Bits k8bit{}, k4bit{.bits = 4, .block = 128};

/// _get_torchao_optimizer (transformers/trainer_optimizer.py): block_size is 256 for both where optim_args says
/// nothing.
constexpr Bits as_made(Bits bits, Loop loop) {
  if (loop != Loop::kBare) bits.block = 256;
  return bits;
}

/// The rate of each of two groups is a tensor. accelerate (optimizer.py) moves both to the card, and the scheduler
/// copies them: its base rates, initial_lr and, from the first step on, the last rates. Eight blocks of 512 bytes in
/// one.
constexpr std::int64_t kFloatsOfRates = 8 * 128;
void make_rates(OptimizerMemory& memory) {
  if (memory.loop != Loop::kBare) memory.shared_state(0, {kFloatsOfRates}, DType::kFloat32, aten::kToCopy);
}
constexpr const char* kRatesNote = "the rates of two groups, as accelerate and the scheduler copy them to the card";

/// _new_buffer
bool is_packed(const Bits& bits, std::int64_t elements) {
  return elements >= kLeastElements && elements % bits.block == 0;
}

/// OptimState8bit.zeros, OptimState4bit.zeros
void make_state(OptimizerMemory& memory, const Bits& bits, const Tensor& param) {
  const std::int64_t elements = param.elements();
  if (!is_packed(bits, elements)) {
    memory.state(param.shape(), param.dtype(), aten::kZerosLike);
    return;
  }
  memory.state({bits.codes(elements)}, DType::kUInt8, aten::kZeros);
  memory.state({elements / bits.block}, DType::kFloat32, aten::kZeros);
  memory.state({bits.map_entries()}, DType::kFloat32, aten::kToCopy);
}

/// The means are scaled by their blocks' largest, so they are written in float32 before the codes are. Where a block is
/// a row of the parameter, one kernel does all of it.
void update_8bit(Tape& tape, const Tensor& param, const Bits& bits) {
  if (param.size(-1) == bits.block) return;
  const std::int64_t elements = param.elements();
  const auto floats = [&](std::int64_t count) { return tape.empty({count}, DType::kFloat32, kUpdate); };
  Tensor scale = floats(elements / bits.block), scale_sq = floats(elements / bits.block);
  Tensor exp_avg = floats(elements), exp_avg_sq = floats(elements);
  drop(exp_avg, exp_avg_sq, scale, scale_sq);
}

/// Likewise; the codes, two of which share a byte, are int64 before (as an H200 was asked; split reductions' parts of 8
/// bytes a block are left out).
void update_4bit(Tape& tape, const Tensor& param, const Bits& bits) {
  const std::int64_t elements = param.elements();
  const auto part = [&](std::int64_t count, DType dtype) { return tape.empty({count}, dtype, kUpdate); };
  Tensor scale = part(elements / bits.block, DType::kFloat32), scale_sq = part(elements / bits.block, DType::kFloat32);
  Tensor exp_avg = part(elements, DType::kFloat32), exp_avg_sq = part(elements, DType::kFloat32);
  Tensor codes = part(elements, DType::kInt64), codes_sq = part(elements, DType::kInt64);
  drop(scale, scale_sq, exp_avg, codes, exp_avg_sq, codes_sq);
}

template <const Bits& default_bits, void (*update)(Tape&, const Tensor&, const Bits&)>
void step(OptimizerMemory& memory, const ParameterGroup& group) {
  const Bits bits = as_made(default_bits, memory.loop);
  make_rates(memory);
  for (const Parameter* each : group) {
    make_state(memory, bits, each->tensor);
    make_state(memory, bits, each->tensor);
    if (is_packed(bits, each->tensor.elements())) update(memory.tape, each->tensor, bits);
  }
}

template <const Bits& default_bits>
StateBytes state_bytes(const OptimizedTensor& tensor, Loop loop) {
  const Bits bits = as_made(default_bits, loop);
  const std::int64_t elements = tensor.shape.elements();
  const Bytes rates = loop == Loop::kBare ? 0 : 4 * kFloatsOfRates;
  if (!is_packed(bits, elements)) return {.tensors = 2 * tensor.bytes(), .tables = rates};
  return {.tensors = 2 * (bits.codes(elements) + 4 * (elements / bits.block)),
          .scalars = 2 * 4 * bits.map_entries(),
          .tables = rates};
}

/// Reads gradient and states twice, where the means are written and where the weights are; both means in float32.
double bytes_of_8bit(double itemsize) { return 4 * itemsize + 22; }
/// The means are written, read for their scales and read for their codes; these are written as int64, then packed.
double bytes_of_4bit(double itemsize) { return 3 * itemsize + 58; }

}  // namespace

std::span<const OptimizerRule> torchao_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kAdamWTorchao8bit,
       .title = "8-bit AdamW (torchao)",
       .source = "torchao/optim/adam.py",
       .states = "two states of 1 byte with 4 bytes for each block of 256; small tensors: the weight's type",
       .scalars = "tables of the codes",
       .tables = "learning rates",
       .tables_note = kRatesNote,
       .state_bytes = state_bytes<k8bit>,
       .step = step<k8bit, update_8bit>,
       .flops = 40,
       .bytes_moved = bytes_of_8bit,
       .operators = 4},
      {.optimizer = Optimizer::kAdamWTorchao4bit,
       .title = "4-bit AdamW (torchao)",
       .source = "torchao/optim/adam.py",
       .states =
           "two states of half a byte with 4 bytes for each block of 256, in a plain loop of 128; small tensors: the "
           "weight's type",
       .scalars = "tables of the codes",
       .tables = "learning rates",
       .tables_note = kRatesNote,
       .state_bytes = state_bytes<k4bit>,
       .step = step<k4bit, update_4bit>,
       .flops = 30,
       .bytes_moved = bytes_of_4bit,
       .operators = 7},
  };
  return kRules;
}

}  // namespace memcalc
