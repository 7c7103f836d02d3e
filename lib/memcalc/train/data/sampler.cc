// MIRRORS(accelerate, "data_loader.py", "1.15.0")
// MIRRORS(transformers, "trainer_pt_utils.py", "5.17.0")
#include "memcalc/train/data/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "memcalc/base/error.h"

namespace memcalc {
namespace {

/// get_length_grouped_indices (transformers 5.17, trainer_pt_utils.py).
std::vector<std::uint32_t> grouped_by_length(std::span<const std::int32_t> lengths, std::int64_t group_size,
                                             TorchGenerator& generator) {
  const auto samples = static_cast<std::int64_t>(lengths.size());
  // 50 batches are sorted together, or a quarter of the data set where that is less.
  const std::int64_t batches = std::clamp<std::int64_t>(samples / (group_size * 4), 1, 50);
  const std::int64_t sorted = batches * group_size;
  std::vector<std::uint32_t> order = generator.randperm(samples);
  std::int64_t longest = 0;  // the first sample of the group with the longest one
  for (std::int64_t begin = 0; begin < samples; begin += sorted) {
    const auto first = order.begin() + begin;
    std::stable_sort(first, order.begin() + std::min(begin + sorted, samples),
                     [&](std::uint32_t a, std::uint32_t b) { return lengths[a] > lengths[b]; });
    if (lengths[*first] > lengths[order[static_cast<std::size_t>(longest)]]) longest = begin;
  }
  std::swap(order[0], order[static_cast<std::size_t>(longest)]);  // so that a lack of memory shows at once
  return order;
}

std::vector<std::uint32_t> in_order(std::size_t samples) {
  std::vector<std::uint32_t> order(samples);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

void add(Batches& batches, std::span<const std::uint32_t> samples) {
  batches.samples.insert(batches.samples.end(), samples.begin(), samples.end());
  batches.ends.push_back(batches.samples.size());
}

void require(bool right) {
  if (!right) throw Error(ErrorCode::kInternal, "sampler: no samples, or sizes below 1");
}

}  // namespace

TrainSampler::TrainSampler(std::span<const std::int32_t> lengths, const SamplerOptions& options)
    : lengths_(lengths), options_(options), host_(options.seed) {
  require(!lengths.empty() && options.group_size >= 1);
}

std::vector<std::uint32_t> TrainSampler::next_epoch() {
  evaluate();  // the loader of an epoch draws a number as well, whether it has workers that need it or not
  const std::uint64_t epoch = epoch_++;
  switch (options_.strategy) {
    case SamplingStrategy::kSequential: break;
    case SamplingStrategy::kGroupByLength: return grouped_by_length(lengths_, options_.group_size, host_);
    case SamplingStrategy::kRandom:
      // accelerate puts its SeedableRandomSampler in the place of torch's RandomSampler (use_seedable_sampler).
      return TorchGenerator(options_.data_seed.value_or(options_.seed) + epoch)
          .randperm(static_cast<std::int64_t>(lengths_.size()));
  }
  return in_order(lengths_.size());
}

void TrainSampler::evaluate() { (void)host_.random64(); }  // _BaseDataLoaderIter: _base_seed

std::vector<std::uint32_t> evaluation_order(std::span<const std::int32_t> lengths, const SamplerOptions& options) {
  require(!lengths.empty() && options.group_size >= 1);
  if (options.strategy != SamplingStrategy::kGroupByLength) return in_order(lengths.size());
  TorchGenerator generator(options.data_seed.value_or(options.seed));
  return grouped_by_length(lengths, options.group_size, generator);
}

// accelerate 1.15, data_loader.py: BatchSamplerShard._iter_with_no_split, for more than one process.
Batches loaded_batches(std::span<const std::uint32_t> order, const LoaderOptions& options) {
  require(options.batch_size >= 1 && options.rank >= 0 && options.rank < options.processes);
  const auto size = static_cast<std::size_t>(options.batch_size);
  const auto processes = static_cast<std::size_t>(options.processes);
  const auto rank = static_cast<std::size_t>(options.rank);
  const std::size_t full = order.size() / size;
  const std::size_t rest = order.size() % size;
  Batches result;

  const std::size_t rounds = full / processes;
  const std::size_t tail = full % processes;  // full batches behind the last round in which every process has one
  for (std::size_t round = 0; round < rounds; ++round)
    add(result, order.subspan((round * processes + rank) * size, size));
  if (options.drop_last || order.empty()) return result;
  if (processes == 1) {
    if (rest > 0) add(result, order.last(rest));
    return result;
  }
  if (tail == 0 && rest == 0) return result;

  if (rank < tail) {
    add(result, order.subspan((rounds * processes + rank) * size, size));
    return result;
  }
  // The missing samples are the first ones again, in a circle over those of the first round.
  const std::size_t circle = std::min(order.size(), processes * size);
  std::size_t next =
      (rank - tail) * size;  // of those from the incomplete batch on, counted over the ranks behind `tail`
  std::vector<std::uint32_t> batch;
  for (; batch.size() < size; ++next) {
    batch.push_back(next < rest ? order[full * size + next] : order[(next - rest) % circle]);
  }
  add(result, batch);
  return result;
}

}  // namespace memcalc
