// Every pair of training choices and every choice with every optimizer, in both loops, and every pair of choices of
// inference, on a model of each kind: it is answered, or refused in one line that
// says what to take instead. Nothing else: no internal error, no number that does not add up.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/run_names.h"
#include "support/paths.h"

namespace memcalc {
namespace {

struct Choice {
  const char* name;
  void (*apply)(RunOptions& options);
};

constexpr Choice kChoices[] = {
    {"padding", [](RunOptions& o) { o.padding = true; }},
    {"accumulation", [](RunOptions& o) { o.accumulation_steps = 3; }},
    {"use_cache", [](RunOptions& o) { o.use_cache = true; }},
    {"clipping", [](RunOptions& o) { o.max_grad_norm = 1.0; }},
    {"tf32", [](RunOptions& o) { o.precision = Precision::kTf32; }},
    {"amp-fp16", [](RunOptions& o) { o.precision = Precision::kAmpFp16; }},
    {"amp-bf16", [](RunOptions& o) { o.precision = Precision::kAmpBf16; }},
    {"amp-bf16 over bf16",
     [](RunOptions& o) {
       o.precision = Precision::kAmpBf16;
       o.weights_dtype = DType::kBFloat16;
     }},
    {"bf16", [](RunOptions& o) { o.precision = Precision::kBf16; }},
    {"fp16", [](RunOptions& o) { o.precision = Precision::kFp16; }},
    {"eager attention", [](RunOptions& o) { o.attention = Attention::kEager; }},
    {"flash attention", [](RunOptions& o) { o.attention = Attention::kFlash; }},
    {"checkpointing", [](RunOptions& o) { o.checkpointing = Checkpointing::kFull; }},
    {"every second layer",
     [](RunOptions& o) {
       o.checkpointing = Checkpointing::kFull;
       o.checkpoint_every = 2;
     }},
    {"selective", [](RunOptions& o) { o.checkpointing = Checkpointing::kSelective; }},
    {"activation offload", [](RunOptions& o) { o.offload_activations = true; }},
    {"optimizer offload", [](RunOptions& o) { o.offload_optimizer = true; }},
    {"gradient offload", [](RunOptions& o) { o.offload_optimizer = o.offload_gradients = true; }},
    {"expandable", [](RunOptions& o) { o.expandable_segments = true; }},
    {"workers", [](RunOptions& o) { o.dataloader_workers = 2; }},
    {"compile", [](RunOptions& o) { o.compile = true; }},
    {"liger", [](RunOptions& o) { o.liger = true; }},
    {"lora", [](RunOptions& o) { o.lora_rank = 4; }},
    {"lora with dropout",
     [](RunOptions& o) {
       o.lora_rank = 4;
       o.lora_dropout = 0.1;
     }},
    {"lora in the base's dtype",
     [](RunOptions& o) {
       o.lora_rank = 4;
       o.lora_in_base_dtype = true;
     }},
    {"nf4",
     [](RunOptions& o) {
       o.lora_rank = 4;
       o.quantization = Quantization::kNf4;
     }},
    {"nf4-double, not prepared",
     [](RunOptions& o) {
       o.lora_rank = 4;
       o.quantization = Quantization::kNf4Double;
       o.prepares_for_kbit = false;
     }},
    {"nf4 with its head, by an old bitsandbytes",
     [](RunOptions& o) {
       o.lora_rank = 4;
       o.quantization = Quantization::kNf4;
       o.packs_head = true;
       o.profile.behaviors.keeps_packed_inputs = true;
     }},
    {"lora that trains the head",
     [](RunOptions& o) {
       o.lora_rank = 4;
       o.lora_trains_head = true;
     }},
    {"offloaded parameters", [](RunOptions& o) { o.parallel.offload_parameters = OffloadTo::kHost; }},
    {"int8",
     [](RunOptions& o) {
       o.lora_rank = 4;
       o.quantization = Quantization::kInt8;
     }},
    {"frozen",
     [](RunOptions& o) {
       o.frozen = {".0.", ".1."};
     }},
    {"no dropout", [](RunOptions& o) { o.dropout = 0; }},
};

constexpr Choice kInferenceChoices[] = {
    {"one pass", [](RunOptions&) {}},
    {"generate", [](RunOptions& o) { o.inference->new_tokens = 3; }},
    {"beams",
     [](RunOptions& o) {
       o.inference->new_tokens = 3;
       o.inference->beams = 2;
     }},
    {"cache of another type",
     [](RunOptions& o) {
       o.inference->new_tokens = 2;
       o.inference->key_value_cache_dtype = DType::kFloat16;
     }},
    {"padding", [](RunOptions& o) { o.padding = true; }},
    {"tf32", [](RunOptions& o) { o.precision = Precision::kTf32; }},
    {"amp-fp16", [](RunOptions& o) { o.precision = Precision::kAmpFp16; }},
    {"bf16", [](RunOptions& o) { o.precision = Precision::kBf16; }},
    {"fp16", [](RunOptions& o) { o.precision = Precision::kFp16; }},
    {"eager attention", [](RunOptions& o) { o.attention = Attention::kEager; }},
    {"flash attention", [](RunOptions& o) { o.attention = Attention::kFlash; }},
    {"expandable", [](RunOptions& o) { o.expandable_segments = true; }},
    {"workers", [](RunOptions& o) { o.dataloader_workers = 2; }},
    {"liger", [](RunOptions& o) { o.liger = true; }},
    {"nf4", [](RunOptions& o) { o.quantization = Quantization::kNf4; }},
    {"nf4-double with its head",
     [](RunOptions& o) {
       o.quantization = Quantization::kNf4Double;
       o.packs_head = true;
     }},
    {"int8", [](RunOptions& o) { o.quantization = Quantization::kInt8; }},
    {"gptq4", [](RunOptions& o) { o.quantization = Quantization::kGptq4; }},
    {"gptq8", [](RunOptions& o) { o.quantization = Quantization::kGptq8; }},
    {"awq4", [](RunOptions& o) { o.quantization = Quantization::kAwq4; }},
    {"lora", [](RunOptions& o) { o.lora_rank = 4; }},
    {"checkpointing", [](RunOptions& o) { o.checkpointing = Checkpointing::kFull; }},
    {"compile", [](RunOptions& o) { o.compile = true; }},
    {"optimizer offload", [](RunOptions& o) { o.offload_optimizer = true; }},
    {"offloaded parameters", [](RunOptions& o) { o.parallel.offload_parameters = OffloadTo::kHost; }},
};

struct Subject {
  const char* model;
  std::int64_t layers;  // 0: the model's own
};
void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.model; }

constexpr Subject kSubjects[] = {{"llama-3.2-1b", 2},         {"bert-base", 2}, {"gpt2", 2}, {"t5-small", 2},
                                 {"vit-base-patch16-224", 2}, {"resnet18", 0}};

/// A refusal is one line; it may not be a bug of ours.
void check(const ModelSpec& model, const RunOptions& options, const DeviceSpec& device) {
  try {
    const Report report = estimate(model, resolve(model, options), device);
    const auto& categories = report.memory.categories_at_peak;
    EXPECT_EQ(std::accumulate(categories.begin(), categories.end(), report.memory.slack_at_peak),
              report.memory.peak_allocated);
    EXPECT_LE(report.memory.peak_allocated, report.memory.peak_reserved);
    EXPECT_GT(report.memory.peak_allocated, 0);
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kUsage || error.code() == ErrorCode::kUnsupported) << error.what();
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_GE(text.size(), 20U) << text;
  }
}

class Combinations : public ::testing::TestWithParam<Subject> {
 protected:
  Combinations() {
    ArchitectureChanges changes;
    if (GetParam().layers > 0) changes.layers = GetParam().layers;
    const SpecRegistry registry(test::specs_dir().string());
    model_ = registry.model(GetParam().model, changes);
    device_ = registry.device("h100-sxm");
    while (std::string_view(kSubjects[place_].model) != GetParam().model) ++place_;
  }

  /// Whether a pair runs on this model. Under the sanitizers (MEMCALC_TEST_EACH_PAIR_ONCE) each does on one of them,
  /// the next pair on the next, else on all.
  [[nodiscard]] bool takes_pair([[maybe_unused]] std::size_t i, [[maybe_unused]] std::size_t j) const {
#ifdef MEMCALC_TEST_EACH_PAIR_ONCE
    return (i + j) % std::size(kSubjects) == place_;
#else
    return true;
#endif
  }

  [[nodiscard]] RunOptions options() const {
    RunOptions options{.batch_size = 2};
    if (model_.model_type != "torchvision" && model_.model_type != "vit") options.sequence_length = 128;
    return options;
  }

  ModelSpec model_;
  DeviceSpec device_;
  std::size_t place_ = 0;  // of the model among kSubjects
};

TEST_P(Combinations, EveryPairIsAnsweredOrRefusedWithAReason) {
  for (const Loop loop : {Loop::kBare, Loop::kTrainer}) {
    for (std::size_t i = 0; i < std::size(kChoices); ++i) {
      for (std::size_t j = i; j < std::size(kChoices) + kOptimizerCount; ++j) {
        if (!takes_pair(i, j)) continue;
        RunOptions options = this->options();
        options.loop = loop;
        kChoices[i].apply(options);
        std::string second;
        if (j < std::size(kChoices)) {
          kChoices[j].apply(options);
          second = kChoices[j].name;
        } else {
          options.optimizer = static_cast<Optimizer>(j - std::size(kChoices));
          second = name_of(*options.optimizer);
        }
        SCOPED_TRACE(std::string(kChoices[i].name) + " and " + second +
                     (loop == Loop::kBare ? ", plain loop" : ", Trainer"));
        check(model_, options, device_);
        if (::testing::Test::HasFailure()) return;  // the first is enough to work on
      }
    }
  }
}

TEST_P(Combinations, EveryPairOfInferenceIsAnsweredOrRefusedWithAReason) {
  for (std::size_t i = 0; i < std::size(kInferenceChoices); ++i) {
    for (std::size_t j = i; j < std::size(kInferenceChoices); ++j) {
      if (!takes_pair(i, j)) continue;
      RunOptions options = this->options();
      options.inference = Inference{};
      kInferenceChoices[i].apply(options);
      kInferenceChoices[j].apply(options);
      SCOPED_TRACE(std::string(kInferenceChoices[i].name) + " and " + kInferenceChoices[j].name);
      check(model_, options, device_);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Combinations, ::testing::ValuesIn(kSubjects));

}  // namespace
}  // namespace memcalc
