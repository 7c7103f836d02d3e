// StepTime: how long a step takes and where its time goes, as plain values. cost.h makes it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace memcalc {

/// Where the seconds of a step go. The first five are kernels (OperatorClass); the others are times in which no kernel
/// of the compute stream runs.
enum class TimeClass : std::uint8_t {
  kContraction,
  kNormalization,
  kElementwise,
  kMovement,
  kOptimizer,
  kCommunication,  // exposed: collectives that nothing hides
  kHost,           // the card waits for the host to issue a kernel
  kBubble,         // of the pipeline
  kInput,          // the card waits for data
  kFirstCalls,     // it waits for libraries that prepare for a size that they have not seen
};
inline constexpr std::size_t kTimeClassCount = 10;

/// "contraction", "normalization", …: the key in JSON.
[[nodiscard]] std::string_view name_of(TimeClass time_class);

/// What decides how long a step is.
enum class Bound : std::uint8_t { kCard, kHost, kLinks, kData, kFirstCalls };

/// "card", "host", "links", "data", "first-calls"
[[nodiscard]] std::string_view name_of(Bound bound);

/// Kernels of one operator and shape, of a whole step.
struct CostlyKernel {
  std::string name;   // the operator
  std::string shape;  // "8192 x 2048 x 5632 bf16"
  double seconds = 0;
  std::int64_t calls = 0;
  double flops = 0, bytes = 0;           // of all calls
  double possible_flops_per_second = 0;  // by the datasheet; 0: it computes nothing that counts
  double possible_bytes_per_second = 0;
};

/// Of batches as long as the data makes them (--lengths): cuDNN's plans and cuBLAS's choices for sizes that they have
/// not seen (symbolic/first_calls.h).
struct FirstCallTime {
  double seen_step_seconds = 0;  // of a step of which the libraries have seen all sizes,
  double new_step_seconds = 0;   // and of one of which they have seen none
  double plans = 0;              // of attention, in an average step
  double products = 0;           // likewise
};

/// How long the step is on the hosts that were measured.
struct HostRange {
  double least_seconds = 0, most_seconds = 0;
  std::string least_host, most_host;  // their names
};

/// Of a training step, or of a call of a model that does not train.
struct StepTime {
  double step_seconds = 0;                         // with all below the mean, where a generation serves several steps
  double generating_step_seconds = 0;              // where steps differ: of one with a generation
  double other_step_seconds = 0;                   // and of one without
  std::array<double, kTimeClassCount> by_class{};  // sums to step_seconds
  double forward_seconds = 0;
  double decode_seconds = 0;    // of forward_seconds: tokens that generate() makes after the first
  double backward_seconds = 0;  // with recomputation
  double optimizer_seconds = 0;
  double kernel_seconds = 0;         // of all kernels of the compute stream
  double host_seconds = 0;           // that the host needs to issue them
  double communication_seconds = 0;  // of all collectives, hidden or not
  double tensor_core_seconds = 0;    // of kernels that run on tensor cores
  std::int64_t kernels = 0;          // launched in a step
  double model_flops = 0;            // of products in forward and backward; attention in full, also where it is causal
  double hardware_flops = 0;         // with what checkpointing computes again
  double masked_model_flops = 0;     // of model_flops those that causal kernels leave out: above the diagonal
  double masked_hardware_flops = 0;  // the same of hardware_flops
  double peak_flops_per_second = 0;  // the datasheet's, of the type that most of them have
  std::optional<FirstCallTime> first_calls;  // of which `step_seconds` is the mean
  std::string host;                          // whose rates were taken; empty: the middle of `hosts`
  HostRange hosts;                           // 0 to 0 where a host was named
  std::vector<CostlyKernel> costliest;       // of the kernels those that take most, the longest first
  [[nodiscard]] bool host_bound() const;     // the host needs as long as the card, or nearly
  [[nodiscard]] Bound bound() const;
  [[nodiscard]] double tensor_core_share() const {
    return kernel_seconds > 0 ? tensor_core_seconds / kernel_seconds : 0;
  }
};

}  // namespace memcalc
