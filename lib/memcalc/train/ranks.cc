#include "memcalc/train/ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "memcalc/models/model.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/fine_tuning.h"
#include "memcalc/train/loop_megatron.h"
#include "memcalc/train/loop_pipeline.h"
#include "memcalc/train/parallel/deepspeed_zero.h"
#include "memcalc/train/parallel/fsdp1_units.h"
#include "memcalc/train/parallel/fsdp2.h"
#include "memcalc/train/parallel/tensor_parallel.h"
#include "memcalc/train/parallel/zero1.h"

namespace memcalc {
namespace {

// More kinds of ranks are not simulated: then the one that holds most stands for all.
constexpr std::size_t kMostGroups = 16;
constexpr std::size_t kMostNamed = 64;  // ranks of a group, where they are not neighbours

std::int64_t total_of(const Holding& holding) {
  return std::accumulate(holding.elements.begin(), holding.elements.end(), std::int64_t{0});
}

std::string words_of(const RunSpec& run, const Holding& holding) {
  const std::vector<std::int64_t>& held = holding.elements;
  const auto tensors = std::count_if(held.begin(), held.end(), [](std::int64_t each) { return each > 0; });
  const std::string of_all = std::to_string(tensors) + " of " + std::to_string(held.size()) + " parameters, ";
  const std::string elements = std::to_string(total_of(holding)) + " elements";
  return run.parallel.data_parallel == DataParallel::kZero1 ? "updates " + of_all + elements
                                                            : "holds a part of " + of_all + elements;
}

std::vector<Holding> holdings_of(Model& model, const RunSpec& run, std::int64_t ranks) {
  switch (run.parallel.data_parallel) {
    case DataParallel::kZero1: return zero1_holdings(model, ranks);
    case DataParallel::kDsZero1:
    case DataParallel::kDsZero2: return deepspeed_holdings(model, run, ranks);
    case DataParallel::kFsdp1: return fsdp1_holdings(model, run, ranks);
    case DataParallel::kFsdp2: return fsdp2_holdings(model, ranks);
    default: return {};
  }
}

/// For each holding, whether another one is known to need as much memory. Ranks of torch's modes need it by how much
/// they hold; where they share sequences, too, it is not known.
std::vector<bool> lighter_ones(const Model& model, const RunSpec& run, const std::vector<Holding>& holdings) {
  std::vector<bool> lighter(holdings.size());
  if (holdings.size() < 2 || run.parallel.context > 1) return lighter;
  if (run.parallel.framework() == Framework::kDeepSpeed) {
    lighter = deepspeed_heaviest(model, run, holdings);
    lighter.flip();
    return lighter;
  }
  const auto most = std::max_element(holdings.begin(), holdings.end(),
                                     [](const Holding& a, const Holding& b) { return total_of(a) < total_of(b); });
  lighter.assign(holdings.size(), true);
  lighter[static_cast<std::size_t>(most - holdings.begin())] = false;
  return lighter;
}

/// The first rank of a context-parallel group, the last and those between do other halves of the attention.
bool attend_alike(const Parallel& p, std::int64_t a, std::int64_t b) {
  const std::int64_t x = a % p.context, y = b % p.context;
  return x == y || (std::min(x, y) > 0 && std::max(x, y) + 1 < p.context);
}

/// None where all hold the same.
std::vector<RankGroup> groups_of(const Model& model, const RunSpec& run, const std::vector<Holding>& holdings) {
  if (holdings.size() < 2) return {};
  std::vector<std::pair<const Holding*, std::vector<std::int64_t>>> alike;
  for (const Holding& holding : holdings) {
    for (std::int64_t rank = holding.first; rank < holding.first + holding.count; ++rank) {
      const auto same = [&](const auto& each) {
        return (each.first == &holding || each.first->elements == holding.elements) &&
               attend_alike(run.parallel, each.second.front(), rank);
      };
      // The neighbour first: in a large job most are alike.
      auto found = std::find_if(alike.rbegin(), alike.rend(), same);
      if (found == alike.rend()) {
        alike.push_back({&holding, {}});
        found = alike.rbegin();
      }
      found->second.push_back(rank);
    }
  }
  const std::vector<bool> lighter = lighter_ones(model, run, holdings);
  std::vector<RankGroup> groups;
  if (alike.size() > kMostGroups) {
    const auto most = std::max_element(alike.begin(), alike.end(), [](const auto& a, const auto& b) {
      return total_of(*a.first) < total_of(*b.first);
    });
    const std::int64_t rank = most->second.front();
    groups.push_back({.first = rank,
                      .count = holdings.back().first + holdings.back().count,
                      .name = "rank " + std::to_string(rank) + ", which holds most",
                      .holds = words_of(run, *most->first)});
    return groups;
  }
  for (const auto& [holding, ranks] : alike) {
    std::string name = ranks.size() == 1 ? "rank " : "ranks ";
    if (ranks.size() > 1 && ranks.back() - ranks.front() + 1 == static_cast<std::int64_t>(ranks.size())) {
      name += std::to_string(ranks.front()) + " to " + std::to_string(ranks.back());
    } else {
      const std::size_t named = std::min(ranks.size(), kMostNamed);
      for (std::size_t i = 0; i < named; ++i) name += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
      if (named < ranks.size()) name += fmt::format(" and {} more", ranks.size() - named);
    }
    groups.push_back({.first = ranks.front(),
                      .count = static_cast<std::int64_t>(ranks.size()),
                      .name = std::move(name),
                      .holds = words_of(run, *holding),
                      .lighter = lighter[static_cast<std::size_t>(holding - holdings.data())]});
  }
  return groups;
}

}  // namespace

std::vector<RankGroup> context_ranks(const Parallel& p) {
  if (p.context == 1) return {{.first = 0, .count = p.gpus, .name = "", .holds = ""}};
  const std::int64_t last = p.context - 1;
  const std::int64_t replicas = p.gpus / p.context;
  std::vector<RankGroup> groups;
  const auto add = [&](std::int64_t first, std::int64_t count, std::string name) {
    groups.push_back({.first = first * p.tensor,
                      .count = count * replicas,
                      .name = std::move(name),
                      .holds = "attends in " + std::to_string(first) + " turns to half of the keys, in " +
                               std::to_string(last - first) + " with half of its queries"});
  };
  add(0, 1, "context rank 0");
  if (last == 2) add(1, 1, "context rank 1");
  if (last > 2) add(1, last - 1, "context ranks 1 to " + std::to_string(last - 1));
  add(last, 1, "context rank " + std::to_string(last));
  return groups;
}

namespace {

/// Batches of real lengths: no two ranks have the same. Of more ranks than are simulated, one of each group.
std::vector<RankGroup> with_batches_of_their_own(const std::vector<RankGroup>& groups, std::int64_t gpus) {
  std::vector<RankGroup> ranks;
  for (const RankGroup& group : groups) {
    RankGroup each = group;
    each.lighter = false;
    each.holds += each.holds.empty() ? "batches of its own" : "; batches of its own";
    if (gpus > static_cast<std::int64_t>(kMostGroups)) {
      each.holds += fmt::format(", of rank {}", each.first);
      ranks.push_back(std::move(each));
      continue;
    }
    for (std::int64_t i = 0; i < group.count; ++i) {
      each.first = group.first + i;
      each.count = 1;
      each.name = fmt::format("rank {}", each.first);
      ranks.push_back(each);
    }
  }
  return ranks;
}

std::vector<RankGroup> ranks_by_what_they_hold(const ModelSpec& spec, const RunSpec& run, const DeviceSpec& device);

}  // namespace

std::vector<RankGroup> distinct_ranks(const ModelSpec& spec, const RunSpec& run, const DeviceSpec& device) {
  std::vector<RankGroup> groups = ranks_by_what_they_hold(spec, run, device);
  const bool differ = run.trains() && run.training().lengths.has_value();
  return differ ? with_batches_of_their_own(groups, run.parallel.gpus) : groups;
}

namespace {

std::vector<RankGroup> ranks_by_what_they_hold(const ModelSpec& spec, const RunSpec& run, const DeviceSpec& device) {
  if (run.parallel.framework() == Framework::kMegatron && run.parallel.pipeline > 1) return megatron_ranks(spec, run);
  if (run.parallel.pipeline > 1) return pipeline_ranks(spec, run);
  const std::int64_t gpus = run.parallel.gpus;
  const DataParallel mode = run.parallel.data_parallel;
  if (mode == DataParallel::kDp) {
    const bool two = gpus == 2;
    return {
        {.first = 0, .count = 1, .name = "GPU 0", .holds = "the module, its gradients and states, what is gathered"},
        {.first = 1,
         .count = gpus - 1,
         .name = two ? "GPU 1" : "GPUs 1 to " + std::to_string(gpus - 1),
         .holds = "a replica that each step makes anew"}};
  }
  const bool shards = mode == DataParallel::kZero1 || mode == DataParallel::kFsdp1 || mode == DataParallel::kFsdp2 ||
                      mode == DataParallel::kDsZero1 || mode == DataParallel::kDsZero2;
  if (shards) {
    Tape tape(device, run.profile.behaviors);
    const bool unties = run.parallel.sequence_parallel && run.parallel.tensor > 1;
    const std::unique_ptr<Model> model = build_model(unties ? untied(spec) : spec, run, tape, weights_dtype_of(run));
    apply_fine_tuning(tape, *model, run);
    const std::int64_t tensor = run.parallel.tensor;
    if (tensor > 1) split_model(tape, *model, run.parallel);
    const auto* mesh = std::get_if<TorchMesh>(&run.parallel.layout);
    const std::int64_t shard = mesh != nullptr ? mesh->hsdp_shard : 0;
    const std::int64_t ranks = shard > 0 ? shard : sharing_ranks(run.parallel);
    std::vector<RankGroup> groups = groups_of(*model, run, holdings_of(*model, run, ranks));
    for (RankGroup& group : groups) {
      group.count *= gpus / ranks;  // HSDP: in each copy; and each rank of tensor parallelism
      group.first *= tensor;
      if (tensor > 1) group.name = "data-parallel " + group.name;
    }
    tape.memory.stop();
    if (!groups.empty()) return groups;
  }
  if (run.parallel.context > 1 && run.parallel.framework() != Framework::kDeepSpeed) return context_ranks(run.parallel);
  return {{.first = 0, .count = gpus, .name = gpus == 1 ? "rank 0" : "all " + std::to_string(gpus) + " ranks"}};
}

}  // namespace

}  // namespace memcalc
