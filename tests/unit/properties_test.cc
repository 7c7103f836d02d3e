// Properties of the whole simulation: what must hold for every run, and closed forms that it must equal.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "memcalc/families/bert/spec.h"
#include "memcalc/families/gpt2/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/memcalc.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

const DeviceSpec& h100() {
  static const DeviceSpec device = registry().device("h100-sxm");
  return device;
}

ModelSpec with_layers(const std::string& name, std::int64_t layers) {
  ModelSpec model = registry().model(name);
  model.architecture.set_layers(layers);
  return model;
}

RunSpec run_of(const std::string& name, std::int64_t batch, std::int64_t sequence, Precision precision,
               Loop loop = Loop::kBare) {
  RunSpec run;
  run.task = name == "bert-large" ? Task::kSequenceClassification : Task::kCausalLm;
  run.batch_size = batch;
  run.sequence_length = sequence;
  run.precision = precision;
  run.training().loop = loop;
  run.training().optimizer = Optimizer::kAdamWForeach;
  return run;
}

/// Bytes that wait at the end of the forward pass of step 0, by category.
std::array<Bytes, kCategoryCount> at_end_of_forward(const Trace& trace) {
  std::array<Bytes, kCategoryCount> live{};
  for (const Event& event : trace.events) {
    if (event.phase == Phase::kBackward) break;
    if (event.block < 0) continue;
    const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
    live[static_cast<std::size_t>(block.category)] +=
        event.kind == EventKind::kAllocate ? block.requested : -block.requested;
  }
  return live;
}

Bytes activations_of(const ModelSpec& model, const RunSpec& run) {
  return at_end_of_forward(
      run_symbolically(model, run, h100()).trace)[static_cast<std::size_t>(Category::kActivations)];
}

/// What one more layer keeps for the backward pass.
Bytes activations_per_layer(const std::string& name, const RunSpec& run) {
  return activations_of(with_layers(name, 3), run) - activations_of(with_layers(name, 2), run);
}

const char* const kModels[] = {"bert-large", "gpt2", "llama-3.2-1b"};
constexpr Precision kPrecisions[] = {Precision::kFp32, Precision::kAmpBf16, Precision::kAmpFp16, Precision::kBf16};

// --- order

/// Both peaks of a run. What was requested is monotone; what the allocator hands out may have an unsplit remainder of
/// up to 1 MiB at one size and none at the next.
struct Peaks {
  Bytes exact = 0;
  Bytes allocated = 0;

  [[nodiscard]] static Peaks of(const ModelSpec& model, const RunSpec& run) {
    const ReplayResult memory = estimate(model, run, h100()).memory;
    return {memory.exact_peak, memory.peak_allocated};
  }
  void expect_above(const Peaks& smaller) const {
    EXPECT_GE(exact, smaller.exact);
    EXPECT_GE(allocated, smaller.allocated - kMiB);
  }
};

TEST(Properties, ThePeakGrowsWithTheBatchAndWithTheLayers) {
  for (const std::string name : kModels) {
    for (const Precision precision : kPrecisions) {
      for (const Loop loop : {Loop::kBare, Loop::kTrainer}) {
        SCOPED_TRACE(name + ", precision " + std::to_string(static_cast<int>(precision)));
        Peaks before;
        for (std::int64_t batch = 1; batch <= 64; batch *= 2) {
          const Peaks peaks = Peaks::of(with_layers(name, 2), run_of(name, batch, 128, precision, loop));
          peaks.expect_above(before);
          before = peaks;
        }
        before = {};
        for (std::int64_t layers = 1; layers <= 5; ++layers) {
          const Peaks peaks = Peaks::of(with_layers(name, layers), run_of(name, 2, 128, precision, loop));
          peaks.expect_above(before);
          before = peaks;
        }
      }
    }
  }
}

TEST(Properties, ExactIsAtMostAllocatedIsAtMostReservedAndCategoriesSum) {
  for (const std::string name : kModels) {
    for (const Precision precision : kPrecisions) {
      for (const Optimizer optimizer : {Optimizer::kAdamWForeach, Optimizer::kAdamWFused, Optimizer::kAdamWForLoop,
                                        Optimizer::kSgd, Optimizer::kSgdMomentum}) {
        for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
          RunSpec run = run_of(name, 3, 77, precision);  // odd on purpose
          run.training().optimizer = optimizer;
          run.training().checkpointing = checkpointing;
          const ReplayResult memory = estimate(with_layers(name, 2), run, h100()).memory;
          EXPECT_LE(memory.exact_peak, memory.peak_allocated);
          EXPECT_LE(memory.peak_allocated, memory.peak_reserved);
          EXPECT_GE(memory.slack_at_peak, 0);
          EXPECT_EQ(
              std::accumulate(memory.categories_at_peak.begin(), memory.categories_at_peak.end(), memory.slack_at_peak),
              memory.peak_allocated);
        }
      }
    }
  }
}

TEST(Properties, CheckpointingNeverRaisesWhatForwardKeeps) {
  for (const std::string name : kModels) {
    for (const Precision precision : kPrecisions) {
      RunSpec run = run_of(name, 4, 128, precision);
      const Bytes without = activations_of(with_layers(name, 4), run);
      run.training().checkpointing = Checkpointing::kFull;
      EXPECT_LT(activations_of(with_layers(name, 4), run), without) << name << ' ' << static_cast<int>(precision);
    }
  }
}

TEST(Properties, OptimizerStatesByOptimizer) {
  const auto states = [](Optimizer optimizer) {
    RunSpec run = run_of("gpt2", 1, 64, Precision::kFp32);
    run.training().optimizer = optimizer;
    const Trace trace = run_symbolically(with_layers("gpt2", 2), run, h100()).trace;
    Bytes bytes = 0;
    for (const Block& block : trace.blocks) {
      if (block.category == Category::kOptimizerStates) bytes += block.requested;
    }
    return bytes;
  };
  EXPECT_EQ(states(Optimizer::kSgd), 0);
  EXPECT_GT(states(Optimizer::kSgdMomentum), 0);
  EXPECT_EQ(states(Optimizer::kAdamWForeach), 2 * states(Optimizer::kSgdMomentum));
  EXPECT_GT(states(Optimizer::kAdamWFused), states(Optimizer::kAdamWForeach)) << "step counters on the card";
}

// --- closed forms: bytes a token and layer, summed by hand from what each operator saves

TEST(Properties, BertKeeps66HiddenBytesATokenInFloat32) {
  // h each: the layer's input 4, q k v 12, attention's output 4, dropout mask 1, sum (layer norm's input) 4, its
  // output 4, intermediate 16, GELU's output 16, mask 1, sum 4 = 66; the mem-efficient kernel keeps log-sum-exp,
  // 4 bytes a head and query, and two layer norms mean and 1/std, 4 * 4 = 16.
  const std::int64_t batch = 4, sequence = 128, hidden = 1024, heads = 16;
  const RunSpec run = run_of("bert-large", batch, sequence, Precision::kFp32);
  EXPECT_EQ(activations_per_layer("bert-large", run), batch * sequence * (66 * hidden + 4 * heads + 16));
}

TEST(Properties, BertKeeps34HiddenBytesATokenIn16Bits) {
  // 2 bytes where there were 4; the masks stay one. cuDNN's two scalars, seed and offset, are 8 bytes each.
  const std::int64_t batch = 4, sequence = 128, hidden = 1024, heads = 16;
  const RunSpec run = run_of("bert-large", batch, sequence, Precision::kBf16);
  EXPECT_EQ(activations_per_layer("bert-large", run), batch * sequence * (34 * hidden + 4 * heads + 16) + 16);
}

TEST(Properties, Gpt2Keeps114HiddenBytesATokenInFloat32) {
  // ln_1 4 + 4, qkv 12, attention's output 4, mask 1, ln_2 4 + 4, fc 16, gelu_new 48, its product 16, mask 1 = 114
  const std::int64_t batch = 2, sequence = 128, hidden = 768, heads = 12;
  const RunSpec run = run_of("gpt2", batch, sequence, Precision::kFp32);
  EXPECT_EQ(activations_per_layer("gpt2", run), batch * sequence * (114 * hidden + 4 * heads + 16));
}

TEST(Properties, LlamaKeepsWhatSection11Says) {
  // 16h (two norms: x in float32, x^ and y in 16 bits) + 4 Hq D (q and the output) + 4 Hkv D (k, v) + 8I (gate, silu,
  // up, product) + 4 Hq (log-sum-exp) + 8 (two 1/std); cuDNN's seed and offset once.
  const std::int64_t batch = 2, sequence = 256;
  for (const std::string name : {"llama-3.2-1b", "llama-3-8b", "tinyllama-1.1b"}) {
    const auto spec = registry().model(name).architecture.as<LlamaSpec>();
    const std::int64_t token = 16 * spec.hidden_size + 4 * spec.num_attention_heads * spec.head_dim +
                               4 * spec.num_key_value_heads * spec.head_dim + 8 * spec.intermediate_size +
                               4 * spec.num_attention_heads + 8;
    if (name == "llama-3-8b") {
      EXPECT_EQ(token, 200840);
    }
    EXPECT_EQ(activations_per_layer(name, run_of(name, batch, sequence, Precision::kBf16)),
              batch * sequence * token + 16)
        << name;
  }
}

TEST(Properties, ACheckpointedLayerKeepsItsInput) {  // 4h bytes a token, 2h in 16 bits
  const std::int64_t batch = 2, sequence = 128;
  const struct {
    const char* name;
    Precision precision;
    std::int64_t bytes_a_token;
  } cases[] = {{"bert-large", Precision::kFp32, 4 * 1024},
               {"bert-large", Precision::kBf16, 2 * 1024},
               {"gpt2", Precision::kFp32, 4 * 768},
               {"llama-3.2-1b", Precision::kBf16, 2 * 2048}};
  for (const auto& each : cases) {
    RunSpec run = run_of(each.name, batch, sequence, each.precision);
    run.training().checkpointing = Checkpointing::kFull;
    const auto kept = [&](std::int64_t layers) {
      const auto live = at_end_of_forward(run_symbolically(with_layers(each.name, layers), run, h100()).trace);
      return live[static_cast<std::size_t>(Category::kActivations)] +
             live[static_cast<std::size_t>(Category::kTemporaries)];
    };
    EXPECT_EQ(kept(3) - kept(2), batch * sequence * each.bytes_a_token) << each.name;
  }
}

// --- effort and limits

TEST(Properties, NoWorkGrowsWithBatchSequenceOrWidth) {
  for (const std::string name : kModels) {
    for (const Loop loop : {Loop::kBare, Loop::kTrainer}) {
      const auto events = [&](const ModelSpec& model, std::int64_t batch, std::int64_t sequence) {
        return run_symbolically(model, run_of(name, batch, sequence, Precision::kAmpBf16, loop), h100())
            .trace.events.size();
      };
      const ModelSpec model = with_layers(name, 2);
      const std::size_t reference = events(model, 8, 512);
      EXPECT_EQ(events(model, 64, 512), reference) << name;
      // Below some thousand tokens reductions need no staging and embeddings no sorting: fewer events, not other ones.
      EXPECT_LE(events(model, 1, 512), reference) << name;
      EXPECT_LE(reference, events(model, 1, 16) * 5 / 4) << name;
      if (name != "bert-large") {  // whose positions end at 512
        EXPECT_EQ(events(model, 8, 1024), reference) << name;
      }
      ModelSpec wide = model;
      if (wide.architecture.is<LlamaSpec>()) {
        wide.architecture.change<LlamaSpec>().hidden_size *= 4;
        wide.architecture.change<LlamaSpec>().intermediate_size *= 4;
        EXPECT_NEAR(static_cast<double>(events(wide, 8, 512)), static_cast<double>(reference),
                    0.02 * static_cast<double>(reference));
      }
    }
  }
}

TEST(Properties, AbsurdSizesAreAnOverflowNotANumber) {
  const struct {
    const char* what;
    std::function<void(ModelSpec&, RunSpec&)> change;
  } cases[] = {
      {"batch", [](ModelSpec&, RunSpec& run) { run.batch_size = std::int64_t{1} << 50; }},
      {"batch, largest", [](ModelSpec&, RunSpec& run) { run.batch_size = INT64_MAX; }},
      {"sequence",
       [](ModelSpec& model, RunSpec& run) {
         run.sequence_length = std::int64_t{1} << 45;
         model.architecture.change<LlamaSpec>().max_position_embeddings = std::int64_t{1} << 46;
       }},
      {"sequence, largest",
       [](ModelSpec& model, RunSpec& run) {
         run.sequence_length = INT64_MAX;
         model.architecture.change<LlamaSpec>().max_position_embeddings = INT64_MAX;
       }},
      {"vocabulary", [](ModelSpec& model, RunSpec&) { model.architecture.change<LlamaSpec>().vocab_size = INT64_MAX; }},
      {"hidden size",
       [](ModelSpec& model, RunSpec&) { model.architecture.change<LlamaSpec>().hidden_size = std::int64_t{1} << 46; }},
      {"intermediate size",
       [](ModelSpec& model, RunSpec&) { model.architecture.change<LlamaSpec>().intermediate_size = INT64_MAX / 4; }},
      {"head dim", [](ModelSpec& model, RunSpec&) { model.architecture.change<LlamaSpec>().head_dim = INT64_MAX / 2; }},
  };
  for (const auto& each : cases) {
    for (const Precision precision : {Precision::kFp32, Precision::kAmpBf16}) {
      for (const Loop loop : {Loop::kBare, Loop::kTrainer}) {
        ModelSpec model = with_layers("llama-3.2-1b", 1);
        RunSpec run = run_of("llama-3.2-1b", 2, 128, precision, loop);
        each.change(model, run);
        EXPECT_EQ(error_code([&] { (void)run_symbolically(model, run, h100()); }), ErrorCode::kOverflow)
            << each.what << ": " << error_text([&] { (void)run_symbolically(model, run, h100()); });
      }
    }
  }
}

}  // namespace
}  // namespace memcalc
