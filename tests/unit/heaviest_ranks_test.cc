// memcalc.h, estimate_heaviest_ranks(): the ranks that a search leaves out need no more than those that it simulates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/parallel_names.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

struct Case {
  std::string model;
  std::int64_t layers = 0;
  std::int64_t batch = 1;
  std::int64_t gpus = 0;
  DataParallel mode = DataParallel::kNone;
};

HeaviestRanks heaviest_of(const ModelSpec& model, const RunSpec& run) {
  return estimate_heaviest_ranks(model, run, registry().device("a100-sxm4-80gb"));
}

TEST(HeaviestRanksTest, OfShardsNeedWhatTheLargestRankAllocates) {
  std::size_t simulated = 0, distinct = 0;
  // Embeddings larger than DeepSpeed's bucket, smaller ones, tied ones, a batch whose logits are the peak, and ranks
  // that hold nothing but a part of the head.
  for (const DataParallel mode : {DataParallel::kDsZero1, DataParallel::kDsZero2, DataParallel::kFsdp1,
                                  DataParallel::kFsdp2, DataParallel::kZero1}) {
    for (const Case& each : {Case{"llama-3.1-8b", 4, 4, 4, mode}, Case{"llama-3.1-8b", 4, 1, 2, mode},
                             Case{"llama-3.1-8b", 6, 16, 16, mode}, Case{"gpt2", 12, 2, 6, mode},
                             Case{"qwen2.5-7b", 4, 2, 12, mode}, Case{"mixtral-8x7b", 2, 4, 7, mode}}) {
      SCOPED_TRACE(each.model + " on " + std::to_string(each.gpus) + ", " + std::string(name_of(mode)));
      ModelSpec model = registry().model(each.model);
      set_layers(model, each.layers);
      RunOptions options{.batch_size = each.batch, .sequence_length = 1024, .loop = Loop::kBare, .gpus = each.gpus};
      options.parallel.data_parallel = mode;
      options.data_parallel_given = true;
      const RunSpec run = resolve(model, options).run;
      const Report all = estimate(model, run, registry().device("a100-sxm4-80gb"));
      const auto [heaviest, is_all] = heaviest_of(model, run);
      EXPECT_EQ(is_all, heaviest.ranks.size() == all.ranks.size());
      simulated += heaviest.ranks.size();
      distinct += all.ranks.size();
      const auto largest = [](const Report& report) {
        Bytes most = 0;
        for (const RankRow& row : report.ranks) most = std::max(most, row.peak_allocated);
        return static_cast<double>(most);
      };
      EXPECT_GE(largest(heaviest), 0.985 * largest(all));
    }
  }
  EXPECT_LT(4 * simulated, 2 * distinct);
}

TEST(HeaviestRanksTest, AreAllWhereItIsNotKnownWhichNeedMost) {
  const ModelSpec model = registry().model("llama-3.2-1b");
  RunOptions options{.batch_size = 1, .sequence_length = 512, .loop = Loop::kBare};
  EXPECT_TRUE(heaviest_of(model, resolve(model, options).run).all) << "one GPU";
  options.parallel.pipeline = 4;
  const RunSpec stages = resolve(model, options).run;
  const auto [report, all] = heaviest_of(model, stages);
  const Report whole = estimate(model, stages, registry().device("a100-sxm4-80gb"));
  EXPECT_TRUE(all) << "a pipeline's stages";
  EXPECT_EQ(report.ranks.size(), whole.ranks.size());
  EXPECT_EQ(report.memory.peak_reserved, whole.memory.peak_reserved);
}

}  // namespace
}  // namespace memcalc
