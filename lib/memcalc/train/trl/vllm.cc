// MIRRORS(torch, "aten/src/ATen/cuda/CublasHandlePool.cpp", "2.11.0")
// MIRRORS(trl, "generation/vllm_generation.py", "1.16.0")
#include "memcalc/train/trl/vllm.h"

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/train/saving.h"

namespace memcalc {

namespace {

// vllm/distributed/weight_transfer/packed_tensor.py
constexpr Bytes kPackedBufferBytes = Bytes{1} << 30;
constexpr std::size_t kPackedBuffers = 2;

/// _iter_named_params without its names: adapters are merged before the first weight is taken, and are out again after
/// the last; they themselves are left out.
class WeightIterator {
 public:
  WeightIterator(Tape& tape, Model& model, const RunSpec& run)
      : tape_(tape), model_(model), merges_(run.fine_tuning.lora.has_value()) {}

  /// Null after the last one.
  [[nodiscard]] const Tensor* next() {
    if (place_ == 0 && merges_) {
      use_cublas();
      merge_adapters(tape_, model_);
    }
    for (; place_ < model_.parameters.size(); ++place_) {
      const Parameter& parameter = model_.parameters[place_];
      if (std::string_view(parameter.name).find(".lora_") != std::string_view::npos) continue;
      ++place_;
      return &parameter.tensor;
    }
    if (merges_ && !std::exchange(ended_, true)) {
      use_cublas();
      unmerge_adapters(tape_, model_);
    }
    return nullptr;
  }

 private:
  void use_cublas() {
    const CudaStream stream = tape_.moment.stream;
    if (stream == CudaStream::kDefault || stream == last_stream_) return;
    last_stream_ = stream;
    tape_.memory.use_cublas_on_stream();
  }

  Tape& tape_;
  Model& model_;
  bool merges_;
  bool ended_ = false;
  CudaStream last_stream_ = CudaStream::kDefault;
  std::size_t place_ = 0;
};

void walk(WeightIterator weights) {
  while (weights.next() != nullptr) {
  }
}

/// packed_nccl_broadcast_producer: a gibibyte at a time is put together, in turn on two streams that are new in each
/// update, so that one is filled while the other is sent.
void send_to_server(Tape& tape, Model& model, const RunSpec& run) {
  if (tape.moment.step == 0) walk(WeightIterator(tape, model, run));  // update_named_params asks for all shapes first
  WeightIterator weights(tape, model, run);
  std::array<Tensor, kPackedBuffers> in_flight;
  for (std::size_t buffer = 0;; buffer = (buffer + 1) % kPackedBuffers) {
    in_flight.at(buffer).reset();
    const OnStream on_stream(tape.moment, stream_of_update(tape.moment.step, static_cast<std::int64_t>(buffer)));
    Bytes bytes = 0;
    while (bytes <= kPackedBufferBytes) {
      const Tensor* weight = weights.next();
      if (weight == nullptr) break;
      bytes = checked_add(bytes, checked_multiply(weight->elements(), size_of(weight->dtype())));
    }
    if (bytes == 0) break;
    in_flight.at(buffer) = tape.empty({bytes}, DType::kUInt8, aten::kCat, Category::kCommunication);
  }
}

}  // namespace

void generate_by_vllm(Tape& tape, Model& model, const RunSpec& run) {
  const Vllm& vllm = run.training().vllm;
  if (vllm.mode == VllmMode::kServer) {
    send_to_server(tape, model, run);
    return;
  }
  if (!vllm.sleeps) {
    walk(WeightIterator(tape, model, run));  // load_weights copies each into vLLM's own
    return;
  }
  tape.memory.empty_cache();  // sync_weights
  tape.memory.empty_cache();  // CuMemAllocator.wake_up(["weights"])
  walk(WeightIterator(tape, model, run));
  tape.memory.empty_cache();  // wake_up(["kv_cache"])
  const Phase before = std::exchange(tape.moment.phase, Phase::kDecode);
  tape.memory.empty_cache();  // CuMemAllocator.sleep(), once all is generated
  tape.moment.phase = before;
}

}  // namespace memcalc
