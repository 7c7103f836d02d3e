// A module that Python traced: the bytes are its parameters, operators and events, sound or not. It is simulated where
// it is sound, so that blocks freed twice, gradients of nothing and the like are met.
#include <algorithm>
#include <cstring>

#include "memcalc/memcalc.h"
#include "target.h"

namespace {

/// Numbers out of bytes; zeros behind their end.
class Numbers {
 public:
  explicit Numbers(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  std::int64_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = static_cast<unsigned char>(bytes_.front());
    bytes_.remove_prefix(1);
    return value;
  }
  /// Mostly small; with 255 in front any number of 64 bits.
  std::int64_t number() {
    const std::int64_t first = byte();
    if (first < 255) return first - 1;
    std::int64_t value = 0;
    const std::size_t size = std::min(bytes_.size(), sizeof value);
    std::memcpy(&value, bytes_.data(), size);
    bytes_.remove_prefix(size);
    return value;
  }
  std::int32_t index() { return static_cast<std::int32_t>(number()); }
  template <typename Enum>
  Enum one_of(int count) {
    return static_cast<Enum>(byte() % count);
  }

 private:
  std::string_view bytes_;
};

constexpr int kDTypes = 9, kEventKinds = 5, kCublas = 3, kPasses = 3, kPrecisions = 6;

memcalc::TracedStep step_of(Numbers in) {
  memcalc::TracedStep step;
  step.name = "Fuzzed";
  step.operators = {"aten::mm", "aten::add"};
  step.batch_size = in.number();
  step.precision = in.one_of<memcalc::Precision>(kPrecisions);
  step.block_count = static_cast<std::size_t>(in.byte() % 16);
  step.loss = in.index();
  for (auto left = in.byte() % 4; left > 0; --left) {
    memcalc::TracedParameter parameter{
        "p" + std::to_string(left), {}, in.one_of<memcalc::DType>(kDTypes), in.byte() % 4 != 0};
    for (auto dims = in.byte() % 10; dims > 0; --dims) parameter.shape.push_back(in.number());
    step.parameters.push_back(parameter);
  }
  for (auto left = in.byte() % 3; left > 0; --left) step.buffers.push_back(in.number());
  for (auto left = in.byte() % 3; left > 0; --left) step.inputs.push_back(in.number());
  for (auto left = in.byte() % 3; left > 0; --left) {
    memcalc::TracedConvolution call{.pass = in.one_of<memcalc::TracedConvolutionPass>(kPasses)};
    for (auto* sizes : {&call.input, &call.weight, &call.output}) {
      for (std::int64_t& size : *sizes) size = in.number();
    }
    call.stride = in.number();
    call.padding = in.number();
    call.groups = in.number();
    call.dtype = in.one_of<memcalc::DType>(kDTypes);
    step.convolutions.push_back(call);
  }
  while (!in.empty()) {
    const std::int64_t what = in.byte();
    memcalc::TracedEvent event;
    event.kind = static_cast<memcalc::TracedEventKind>(what % kEventKinds);
    event.block = in.index();
    event.operator_index = what / 8 % 2;
    if (event.kind == memcalc::TracedEventKind::kGradient) event.parameter = in.index();
    if (event.kind == memcalc::TracedEventKind::kAllocate) event.bytes = in.number();
    if (event.kind == memcalc::TracedEventKind::kCompute) {
      event.bytes = in.number();
      event.flops = static_cast<double>(in.number());
      event.cublas = in.one_of<memcalc::TracedCublas>(kCublas);
      event.dtype = in.one_of<memcalc::DType>(kDTypes);
      event.operator_index = in.index();
    }
    (what / 64 % 2 == 0 ? step.forward : step.backward).push_back(event);
  }
  return step;
}

}  // namespace

MEMCALC_FUZZ_TARGET(traced_step) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const memcalc::DeviceSpec card{.name = "card", .memory_bytes = memcalc::kGiB};
    Numbers in(text);
    memcalc::RunOptions options;
    const std::int64_t choice = in.byte();
    options.optimizer = choice % 2 == 0 ? memcalc::Optimizer::kSgd : memcalc::Optimizer::kAdamWForeach;
    if (choice / 2 % 2 == 1) options.max_grad_norm = 1.0;
    if (choice / 4 % 2 == 1) options.accumulation_steps = 2;
    (void)memcalc::render(memcalc::estimate(step_of(in), options, card), memcalc::Format::kJson);
  });
}
