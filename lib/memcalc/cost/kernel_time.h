// The time of one kernel on one card, each class by its own small model: what enters is the kernel's shape, the card's
// datasheet and the fitted rates (spec/device_rates.h). Clocks are those that hold under load: the rates were fitted to
// loops of milliseconds on a card at its power limit, so they are sustained ones, not boost.
// Covered by tests/unit/kernel_time_test.cc.
#pragma once

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// Seconds on the card, from the end of the kernel before to its own end where the queue is full. Collectives and
/// copies are in collective.h. Pre, of this and the functions below: missing_rates() names nothing.
[[nodiscard]] double kernel_seconds(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates);

/// The same by class.
[[nodiscard]] double memory_seconds(const Kernel& kernel, const DeviceSpec& device, const MemoryRates& rates);
[[nodiscard]] double softmax_seconds(const Kernel& kernel, const work::Rows& rows, const DeviceSpec& device,
                                     const DeviceRates& rates);
[[nodiscard]] double batch_norm_seconds(const Kernel& kernel, const work::Rows& rows, const DeviceSpec& device,
                                        const DeviceRates& rates);
[[nodiscard]] double rows_seconds(const Kernel& kernel, const work::Rows& rows, const DeviceSpec& device,
                                  const DeviceRates& rates);
/// How many results a sum over outer dimensions has, of the bytes that it reads and writes; 0: they do not say.
[[nodiscard]] std::int64_t column_sums(const Kernel& kernel);
/// Whether column_sum_seconds() has its time.
[[nodiscard]] bool is_column_sum(const Kernel& kernel, const DeviceSpec& device);
[[nodiscard]] double column_sum_seconds(const Kernel& kernel, const DeviceSpec& device, const MemoryRates& rates);
[[nodiscard]] double pooling_seconds(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates);
/// At most 16 rows of float32 by a matrix: product_seconds() is fitted to such products themselves.
[[nodiscard]] bool is_few_float32_rows(const Kernel& kernel, const work::Product& product);
[[nodiscard]] double product_seconds(const Kernel& kernel, const work::Product& product, const DeviceSpec& device,
                                     const ProductRates& rates);
[[nodiscard]] double attention_seconds(const Kernel& kernel, const work::Attention& attention, const DeviceSpec& device,
                                       const AttentionRates& rates);
[[nodiscard]] double efficient_attention_seconds(const Kernel& kernel, const work::Attention& attention,
                                                 const DeviceSpec& device, const AttentionRates& rates);
/// cuDNN's kernels for Hopper, at the full clock (cudnn_attention.cc).
[[nodiscard]] bool has_hopper_attention(const Kernel& kernel, const DeviceSpec& device);
[[nodiscard]] double hopper_attention_seconds(const Kernel& kernel, const work::Attention& attention,
                                              const DeviceSpec& device);
[[nodiscard]] double convolution_seconds(const Kernel& kernel, const work::Convolution& convolution,
                                         const DeviceSpec& device, const ConvolutionRates& rates);
[[nodiscard]] bool is_depthwise(const work::Convolution& convolution);
[[nodiscard]] double depthwise_seconds(const Kernel& kernel, const work::Convolution& convolution,
                                       const DeviceSpec& device, const DeviceRates& rates);

/// PyTorch's own depthwise kernels, of row-major images (kDepthwiseConvolution).
[[nodiscard]] double own_depthwise_seconds(const Kernel& kernel, const work::Convolution& convolution,
                                           const DeviceSpec& device);
[[nodiscard]] double embedding_seconds(const Kernel& kernel, const work::EmbeddingGradient& gradient,
                                       const DeviceSpec& device, const DeviceRates& rates);

/// The units that a card has. A card that is no CUDA device has what its spec gives a rate for.
[[nodiscard]] bool has_tensor_cores(const DeviceSpec& device);
[[nodiscard]] bool has_int8_tensor_cores(const DeviceSpec& device);
[[nodiscard]] bool computes_tf32(const DeviceSpec& device);
[[nodiscard]] bool emulates_bfloat16(const DeviceSpec& device);

/// A product or convolution of float32 operands that may run in TF32, where the card has it.
[[nodiscard]] bool allows_tf32(const Kernel& kernel);

/// Of a product in a 16-bit type that the card has no units for, so that PyTorch computes it in float32: its rate over
/// float32's. 0: the card has them, or nobody timed it.
[[nodiscard]] double share_of_float32(const Kernel& kernel, const DeviceSpec& device);

/// The datasheet's FLOP/s for a product of this type; TF32 where the kernel asks for it and the card has it, else
/// float32. Zero where the datasheet has none.
[[nodiscard]] double peak_flops(const Kernel& kernel, const DeviceSpec& device);

/// The same times the card's ProductShares: what the shares of measured rates are multiplied by.
[[nodiscard]] double sustained_flops(const Kernel& kernel, const DeviceSpec& device);

/// True for kernels that run on tensor cores.
[[nodiscard]] bool uses_tensor_cores(const Kernel& kernel, const DeviceSpec& device);

/// Which of the product's or attention's rates a kernel takes on a card.
[[nodiscard]] const ProductRates& product_rates(const Kernel& kernel, const DeviceSpec& device,
                                                const DeviceRates& rates);
[[nodiscard]] const AttentionRates& attention_rates(const Kernel& kernel, const DeviceRates& rates);
[[nodiscard]] const ConvolutionRates& convolution_rates(const Kernel& kernel, const DeviceSpec& device,
                                                        const DeviceRates& rates);
[[nodiscard]] const MemoryRates& memory_rates(const Kernel& kernel, const DeviceRates& rates);

}  // namespace memcalc
