// torchao 0.17, optim/adam.py (_AdamBase, single_param_adam), optim/subclass_8bit.py, optim/subclass_4bit.py, behind
// transformers' adamw_torch_8bit and adamw_torch_4bit. A state is bytes with a float32 scale for each block and a table
// of what the bytes stand for. The update of a parameter is compiled; its buffers are those in inductor's code for it
// (torch 2.11, lowered without a card).
// MIRRORS(torchao, "optim/adam.py", "0.17.0")
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
void update_8bit(Tape& tape, const Tensor& param) {
  if (param.size(-1) == k8bit.block) return;
  const std::int64_t elements = param.elements();
  const auto floats = [&](std::int64_t count) { return tape.empty({count}, DType::kFloat32, kUpdate); };
  Tensor scale = floats(elements / k8bit.block), scale_sq = floats(elements / k8bit.block);
  Tensor exp_avg = floats(elements), exp_avg_sq = floats(elements);
  drop(exp_avg, exp_avg_sq, scale, scale_sq);
}

/// Likewise; the codes, two of which share a byte, are bytes of their own before.
void update_4bit(Tape& tape, const Tensor& param) {
  const std::int64_t elements = param.elements();
  const auto part = [&](std::int64_t count, DType dtype) { return tape.empty({count}, dtype, kUpdate); };
  Tensor exp_avg = part(elements, DType::kFloat32), exp_avg_sq = part(elements, DType::kFloat32);
  Tensor scale = part(elements / k4bit.block, DType::kFloat32);
  if (param.rank() == 1) {  // both codes in one kernel
    Tensor scale_sq = part(elements / k4bit.block, DType::kFloat32);
    Tensor codes = part(elements, DType::kUInt8), codes_sq = part(elements, DType::kUInt8);
    drop(exp_avg, scale, exp_avg_sq, scale_sq, codes, codes_sq);
    return;
  }
  Tensor codes = part(elements, DType::kUInt8);
  exp_avg.reset();
  Tensor codes_sq = part(elements, DType::kUInt8);
  drop(exp_avg_sq, scale, codes, codes_sq);
}

template <const Bits& bits, void (*update)(Tape&, const Tensor&)>
void step(OptimizerMemory& memory, const ParameterGroup& group) {
  for (const Parameter* each : group) {
    make_state(memory, bits, each->tensor);
    make_state(memory, bits, each->tensor);
    if (is_packed(bits, each->tensor.elements())) update(memory.tape, each->tensor);
  }
}

template <const Bits& bits>
StateBytes state_bytes(const OptimizedTensor& tensor, Loop /*loop*/) {
  const std::int64_t elements = tensor.shape.elements();
  if (!is_packed(bits, elements)) return {.tensors = 2 * tensor.bytes()};
  return {.tensors = 2 * (bits.codes(elements) + 4 * (elements / bits.block)), .scalars = 2 * 4 * bits.map_entries()};
}

/// Reads gradient and states twice, where the means are written and where the weights are; both means in float32.
double bytes_of_8bit(double itemsize) { return 4 * itemsize + 22; }
/// The means are written, read for their scales and read for their codes; these are written as bytes, then packed.
double bytes_of_4bit(double itemsize) { return 3 * itemsize + 30; }

}  // namespace

std::span<const OptimizerRule> torchao_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kAdamWTorchao8bit,
       .title = "8-bit AdamW (torchao)",
       .source = "torchao/optim/adam.py",
       .states = "two states of 1 byte with 4 bytes for each block of 256; small tensors: the weight's type",
       .scalars = "tables of what the bytes stand for",
       .state_bytes = state_bytes<k8bit>,
       .step = step<k8bit, update_8bit>,
       .flops = 40,
       .bytes_moved = bytes_of_8bit,
       .operators = 4,
       .is_measured = false},
      {.optimizer = Optimizer::kAdamWTorchao4bit,
       .title = "4-bit AdamW (torchao)",
       .source = "torchao/optim/adam.py",
       .states = "two states of half a byte with 4 bytes for each block of 128; small tensors: the weight's type",
       .scalars = "tables of what the bytes stand for",
       .state_bytes = state_bytes<k4bit>,
       .step = step<k4bit, update_4bit>,
       .flops = 30,
       .bytes_moved = bytes_of_4bit,
       .operators = 7,
       .is_measured = false},
  };
  return kRules;
}

}  // namespace memcalc
