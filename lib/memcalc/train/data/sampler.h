// The order in which transformers' Trainer takes the samples of a data set, and the batches that each process gets.
// Covered by tests/unit/sampler_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memcalc/base/torch_generator.h"

namespace memcalc {

/// TrainingArguments.train_sampling_strategy (transformers 5.17); "batch_rebalance" is not modelled.
enum class SamplingStrategy : std::uint8_t { kRandom, kSequential, kGroupByLength };

struct SamplerOptions {
  SamplingStrategy strategy = SamplingStrategy::kRandom;
  std::uint64_t seed = 42;  // TrainingArguments.seed
  std::optional<std::uint64_t>
      data_seed{};  // TrainingArguments.data_seed; as in transformers, grouping does not use it
  /// Of kGroupByLength: samples that are put together, per_device_train_batch_size x gradient_accumulation_steps.
  std::int64_t group_size = 1;
};

/// The sampler of a training, epoch after epoch. Assumes that nothing else draws from the host's generator while the
/// Trainer trains: models on a card draw from the card's, and a `model_init` or a collator that masks at random do
/// draw.
class TrainSampler {
 public:
  /// `lengths`: tokens of each sample; they are kept by reference. Throws Error(kInternal) where there is none.
  TrainSampler(std::span<const std::int32_t> lengths, const SamplerOptions& options);

  /// Places in the data set, in the order in which the next epoch takes them.
  [[nodiscard]] std::vector<std::uint32_t> next_epoch();

  /// An evaluation begins: its loader draws a number, which moves the later epochs of kGroupByLength.
  void evaluate();

 private:
  std::span<const std::int32_t> lengths_;
  SamplerOptions options_;
  TorchGenerator host_;  // torch.default_generator, as set_seed() of Trainer.__init__ leaves it
  std::uint64_t epoch_ = 0;
};

/// The order of an evaluation: that of the data set, or grouped anew in each evaluation in the same way. Of
/// kGroupByLength: `options.group_size` is per_device_eval_batch_size, and the seed is data_seed where there is one.
[[nodiscard]] std::vector<std::uint32_t> evaluation_order(std::span<const std::int32_t> lengths,
                                                          const SamplerOptions& options);

struct LoaderOptions {
  std::int64_t batch_size = 1;  // samples of a micro-batch, at least 1
  bool drop_last = false;       // dataloader_drop_last
  std::int64_t processes = 1;   // data-parallel ranks, at least 1
  std::int64_t rank = 0;
};

/// Lists of samples, one after the other.
struct Batches {
  std::vector<std::uint32_t> samples;
  std::vector<std::size_t> ends;  // behind the last sample of each

  [[nodiscard]] std::size_t size() const { return ends.size(); }
  [[nodiscard]] std::span<const std::uint32_t> operator[](std::size_t batch) const {
    const std::size_t begin = batch == 0 ? 0 : ends[batch - 1];
    return std::span(samples).subspan(begin, ends[batch] - begin);
  }
};

/// The micro-batches of a process in an epoch. Where there are several processes all get as many: unless drop_last,
/// samples of the epoch's beginning come again at its end (accelerate: even_batches, split_batches=False).
[[nodiscard]] Batches loaded_batches(std::span<const std::uint32_t> order, const LoaderOptions& options);

}  // namespace memcalc
