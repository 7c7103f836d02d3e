// A report says "not validated" exactly of the optimizers, the ways to fine-tune, to save memory and to infer that no
// record under tests/measured is of; docs/not-modelled.md lists the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/train/measured_modes.h"
#include "memcalc/train/optimizers/rule.h"
#include "support/measured_row.h"
#include "support/paths.h"
#include "support/recorded_file.h"

namespace memcalc::measured {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

/// What some record is of.
struct Recorded {
  std::array<bool, kOptimizerCount> optimizers{};
  std::set<std::string_view> modes;
};

void add(const JsonObject& record, Recorded& recorded) {
  if (!record.has("run") || !is_modelled(record)) return;
  const RunSpec run = measured_row(record).run;
  if (run.parallel.is_parallel()) return;
  for (const Mode& each : modes()) {
    if (each.is_taken(run)) recorded.modes.insert(each.name);
  }
  if (run.trains()) recorded.optimizers[static_cast<std::size_t>(run.training().optimizer)] = true;
}

/// Jobs of trainers, which have words of the command line: --optimizer adamw_torch_8bit, and options that are modes.
void add_job(const JsonObject& job, Recorded& recorded) {
  constexpr std::pair<std::string_view, std::string_view> kModesOfOptions[] = {
      {"--cut-cross-entropy", "cut cross entropy"},
      {"--lora-modules-to-save", "lora modules to save"},
      {"--dora", "dora"},
      {"--optimizer-in-backward", "an optimizer within backward"},
      {"--quantize-experts", "quantised experts"},
      {"--whole-logits", "whole logits"}};
  const std::vector<std::string> words = job.optional_strings("arguments");
  if (std::find(words.begin(), words.end(), "--gpus") != words.end()) return;
  for (const auto& [option, mode] : kModesOfOptions) {
    if (std::find(words.begin(), words.end(), option) != words.end()) recorded.modes.insert(mode);
  }
  const auto flag = std::find(words.begin(), words.end(), "--optimizer");
  if (flag == words.end()) return;
  std::string name = *std::next(flag);
  std::replace(name.begin(), name.end(), '_', '-');
  for (std::size_t i = 0; i < kOptimizerCount; ++i) {
    if (name_of(static_cast<Optimizer>(i)) == name) recorded.optimizers[i] = true;
  }
}

const Recorded& recorded() {
  static const Recorded all = [] {
    Recorded found;
    for_each_record([&](const std::string& file, const JsonObject& record) {
      if (file.starts_with("rows_max_batch") || file.starts_with("rows_parallel")) return;
      add(record, found);
    });
    for_each_row("jobs/rows.jsonl", [&](const JsonObject& job, const std::string& /*text*/) { add_job(job, found); });
    return found;
  }();
  return all;
}

TEST(MeasuredModes, AreThoseOfTheRecords) {
  for (const Mode& mode : modes()) {
    EXPECT_EQ(mode.is_measured, recorded().modes.contains(mode.name)) << mode.name;
  }
  for (std::size_t i = 0; i < kOptimizerCount; ++i) {
    const auto optimizer = static_cast<Optimizer>(i);
    EXPECT_EQ(rule_of(optimizer).is_measured, recorded().optimizers[i]) << name_of(optimizer);
  }
}

/// One run for each mode, as a person would ask for it.
struct Example {
  const char* mode;
  RunOptions options;
};

RunOptions packed(Quantization kind) { return {.precision = Precision::kBf16, .lora_rank = 4, .quantization = kind}; }

RunOptions inference(Quantization kind) {
  return {.precision = Precision::kBf16, .quantization = kind, .inference = Inference{}};
}

/// Of a denoising network.
RunOptions frozen(Quantization kind, std::int64_t swapped) {
  return {.image_size = 256,
          .precision = Precision::kAmpBf16,
          .lora_rank = 4,
          .quantization = kind,
          .blocks_to_swap = swapped};
}

std::vector<Example> examples() {
  RunOptions head = packed(Quantization::kNf4);
  head.packs_head = true;
  RunOptions experts = packed(Quantization::kNf4);
  experts.packs_experts = true;
  experts.lora_targets = {"q_proj"};
  RunOptions old = packed(Quantization::kNf4);
  old.profile.behaviors.keeps_packed_inputs = true;
  RunOptions liger{.liger = true};
  liger.profile.behaviors.liger_loss = LigerLoss::kFloat32InPlace;
  RunOptions offloaded{.inference = Inference{}};
  offloaded.parallel.offload_parameters = OffloadTo::kHost;
  return {
      {"lora", {.lora_rank = 4}},
      {"lora dropout", {.lora_rank = 4, .lora_dropout = 0.1}},
      {"dora", {.lora_rank = 4, .dora = true}},
      {"lora dtype base", {.precision = Precision::kBf16, .lora_rank = 4, .lora_in_base_dtype = true}},
      {"quantize nf4", packed(Quantization::kNf4)},
      {"quantize nf4-double", packed(Quantization::kNf4Double)},
      {"quantize int8", packed(Quantization::kInt8)},
      {"quantize fp8-cast", frozen(Quantization::kFp8Cast, 0)},
      {"quantize fp8-scaled", frozen(Quantization::kFp8Scaled, 0)},
      {"blocks to swap", frozen(Quantization::kNone, 2)},
      {"quantize head", head},
      {"quantised experts", experts},
      {"whole logits",
       {.loop = Loop::kTrlDpo, .whole_logits = true, .reference = Reference::kAdapters, .lora_rank = 4}},
      {"bitsandbytes before 0.43.2", old},
      {"prepare_model_for_kbit_training", packed(Quantization::kNf4)},
      {"freeze", {.frozen = {"embed_tokens"}}},
      {"liger", {.liger = true}},
      {"liger-kernel 0.8.1 and 0.8.2", liger},
      {"cut cross entropy",
       {.precision = Precision::kAmpBf16, .weights_dtype = DType::kBFloat16, .cut_cross_entropy = true}},
      {"lora modules to save", {.lora_rank = 4, .lora_saved = {"lm_head"}}},
      {"an optimizer within backward", {.loop = Loop::kBare, .optimizer_in_backward = true}},
      {"checkpointing full", {.checkpointing = Checkpointing::kFull}},
      {"checkpointing every-N", {.checkpointing = Checkpointing::kFull, .checkpoint_every = 2}},
      {"checkpointing selective", {.checkpointing = Checkpointing::kSelective}},
      {"activation offload", {.offload_activations = true}},
      {"optimizer offload", {.max_grad_norm = 0, .offload_optimizer = true}},
      {"gradient offload", {.max_grad_norm = 0, .offload_optimizer = true, .offload_gradients = true}},
      {"expandable segments", {.expandable_segments = true}},
      {"compile", {.compile = true}},
      {"compile mode reduce-overhead",
       {.loop = Loop::kBare, .compile = true, .compile_mode = CompileMode::kReduceOverhead}},
      {"forward pass", {.inference = Inference{}}},
      {"generation", {.inference = Inference{.new_tokens = 2}}},
      {"beam search", {.inference = Inference{.new_tokens = 2, .beams = 2}}},
      {"several answers", {.inference = Inference{.new_tokens = 2, .beams = 2, .return_sequences = 2}}},
      {"expandable segments in inference", {.expandable_segments = true, .inference = Inference{}}},
      {"inference with offloaded parameters", offloaded},
      {"inference with quantize nf4", inference(Quantization::kNf4)},
      {"inference with quantize nf4-double", inference(Quantization::kNf4Double)},
      {"inference with quantize int8", inference(Quantization::kInt8)},
      {"inference with quantize gptq4", inference(Quantization::kGptq4)},
      {"inference with quantize gptq8", inference(Quantization::kGptq8)},
      {"inference with quantize awq4", inference(Quantization::kAwq4)},
      {"inference with quantize mxfp4", inference(Quantization::kMxfp4)},
      {"inference with quantize fp8", inference(Quantization::kFp8)},
  };
}

Report report_of(RunOptions options) {
  static const SpecRegistry registry(test::specs_dir().string());
  static const ModelSpec llama = registry.model("tinyllama-1.1b", {.layers = 1});
  static const ModelSpec gpt_oss = registry.model("gpt-oss-20b", {.layers = 2});
  static const ModelSpec denoiser = registry.model("sd3-medium");
  const bool is_frozen = options.blocks_to_swap > 0 || is_fp8_base(options.quantization.value_or(Quantization::kNone));
  static const ModelSpec qwen_moe = registry.model("qwen3-30b-a3b", {.layers = 1});
  const ModelSpec& model = options.packs_experts                          ? qwen_moe
                           : options.quantization == Quantization::kMxfp4 ? gpt_oss
                           : is_frozen                                    ? denoiser
                                                                          : llama;
  static const DeviceSpec device = registry.device("h100-sxm");
  options.batch_size = 1;
  if (!is_frozen) options.sequence_length = 128;
  return estimate(model, resolve(model, options), device);
}

TEST(MeasuredModes, TheReportSaysWhatIsNot) {
  std::set<std::string_view> shown;
  for (const Example& example : examples()) {
    shown.insert(example.mode);
    const auto said =
        Contains(HasSubstr(std::string(example.mode) + " follows its source; no run with it was compared"));
    for (const Mode& mode : modes()) {
      if (mode.name != example.mode) continue;
      const Report report = report_of(example.options);
      EXPECT_TRUE(mode.is_taken(report.run)) << mode.name;
      if (mode.is_measured) {
        EXPECT_THAT(report.assumptions, Not(said));
      } else {
        EXPECT_THAT(report.assumptions, said);
      }
    }
  }
  EXPECT_EQ(shown.size(), modes().size());
}

TEST(MeasuredModes, TheReportSaysWhichOptimizersAreNot) {
  for (std::size_t i = 0; i < kOptimizerCount; ++i) {
    const auto optimizer = static_cast<Optimizer>(i);
    const Report report = report_of({.loop = Loop::kBare, .optimizer = optimizer});
    const auto said = Contains(
        AllOf(HasSubstr("optimizer " + std::string(name_of(optimizer)) + " follows"), HasSubstr("not validated")));
    if (rule_of(optimizer).is_measured) {
      EXPECT_THAT(report.assumptions, Not(said)) << name_of(optimizer);
    } else {
      EXPECT_THAT(report.assumptions, said) << name_of(optimizer);
    }
  }
}

// docs/not-modelled.md lists, in a line each, the modes and the optimizers that were not measured.
TEST(MeasuredModes, TheDocumentationSaysWhatIsNot) {
  std::ifstream file(test::tests_dir().parent_path() / "docs/not-modelled.md");
  std::stringstream text;
  text << file.rdbuf();
  std::set<std::string> listed;
  for (std::string line; std::getline(text, line);) {
    constexpr std::string_view kItem = "- not validated: ";
    if (line.starts_with(kItem)) listed.insert(line.substr(kItem.size()));
  }
  std::set<std::string> expected;
  for (const Mode& mode : modes()) {
    if (!mode.is_measured) expected.emplace(mode.name);
  }
  for (std::size_t i = 0; i < kOptimizerCount; ++i) {
    const auto optimizer = static_cast<Optimizer>(i);
    if (!rule_of(optimizer).is_measured) expected.insert("optimizer " + std::string(name_of(optimizer)));
  }
  EXPECT_EQ(listed, expected);
}

}  // namespace
}  // namespace memcalc::measured
