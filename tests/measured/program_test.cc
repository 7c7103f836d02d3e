// Two derivations, one answer: programs recorded from transformers 5.17 (python/memcalc/record) leave the same events
// as the families that are written by hand. tests/measured/programs/NAME.json.gz is the program of NAME.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/program_places.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/event_texts.h"
#include "support/paths.h"
#include "support/registry.h"
#include "support/ways.h"

namespace memcalc {
namespace {

using test::events_of;
using test::expect_same;

std::string path_of(const std::string& name) { return (test::measured_dir() / "programs" / name).string(); }

using test::registry;

struct Case {
  std::string model;
  Task task;
};

Trace trace_of(const std::string& file, const RunOptions& options) {
  const ModelSpec model = registry().model(path_of(file));
  return run_symbolically(model, resolve(model, options).run, registry().device("h100-sxm")).trace;
}

std::vector<std::string> sorted(std::vector<std::string> events) {
  std::sort(events.begin(), events.end());
  return events;
}

/// transformers' class has no checkpointing; layers that run several times are neither gathered nor compiled.
bool is_refused(const std::string& model, const RunOptions& options) {
  const bool is_albert = model == "albert";
  const bool checkpoints = options.checkpointing.value_or(Checkpointing::kNone) != Checkpointing::kNone;
  if (checkpoints && (is_albert || model == "mpnet")) return true;
  const DataParallel mode = options.parallel.data_parallel;
  const bool is_deberta = model == "deberta_v2";  // reads a weight directly, and has functions of torch.jit.script
  if (options.compile && (is_albert || is_deberta)) return true;
  if (mode == DataParallel::kDsZero3) return is_albert || is_deberta;
  return is_albert && (mode == DataParallel::kFsdp1 || mode == DataParallel::kFsdp2);
}

class Programs : public testing::TestWithParam<Case> {
 protected:
  /// The program of the model and its family leave the same events.
  static void expect_equal(RunOptions options, bool in_any_order = false) {
    const auto& [model, task] = GetParam();
    if (is_refused(model, options)) return;
    // peft cannot wrap Llama 4's router, a linear layer whose forward returns two tensors; a program adapts it.
    if (model == "llama4" && options.lora_rank > 0) return;
    // peft cannot adapt DeepSeek-V4's o_a_proj either, a linear layer whose output is narrower than its out_features.
    if (model == "deepseek_v4" && options.lora_rank > 0 && options.lora_targets.empty()) return;
    options.batch_size = 3;
    options.sequence_length = has_mamba() ? 192 : 77;  // a program of Mamba-2 takes whole chunks alone
    // Their loop over the tokens is written out in the program.
    if (model == "mamba" || model == "jamba") options.sequence_length = 12;
    if (model == "deepseek_v4" || model == "minimax_m3" || model == "kimi_linear")
      options.sequence_length = 96;  // and one of windows of 16 tokens
    if (task == Task::kSeq2Seq) options.target_sequence_length = 33;
    const std::vector<std::string> recorded = events_of(trace_of(model + ".json.gz", options));
    options.task = task;
    const std::vector<std::string> written = events_of(trace_of(model + ".json", options));
    EXPECT_GT(written.size(), 200U);
    expect_same(in_any_order ? sorted(recorded) : recorded, in_any_order ? sorted(written) : written);
  }

  static bool has_experts() {
    const std::string& model = GetParam().model;
    return model == "mixtral" || model == "deepseek_v3" || model == "gpt_oss" || model == "qwen2_moe" ||
           model == "olmoe" || model == "glm4_moe" || model == "minimax_m2" || model == "ernie4_5_moe" ||
           model == "qwen3_next" || model == "qwen3_5_moe" || model == "lfm2_moe" || model == "granitemoehybrid" ||
           model == "glm4_moe_lite" || model == "granitemoe" || model == "gemma4_moe" || model == "dots1" ||
           model == "deepseek_v32" || model == "deepseek_v4" || model == "minimax_m3" || model == "kimi_linear" ||
           model == "glm_moe_dsa" || model == "hy_v3" || model == "nemotron_h_moe" || model == "deepseek_ocr2_text" ||
           model == "mimo_v2_flash" || model == "minimax" || model == "hunyuan_v1_moe" || model == "jamba" ||
           model == "mistral4";
  }

  static bool has_mamba() {
    const std::string& model = GetParam().model;
    return model.starts_with("nemotron_h") || model == "granitemoehybrid" || model == "mamba2" || model == "falcon_h1";
  }

  /// Families whose graphs are not modelled.
  static bool has_linear_layers() {
    const std::string& model = GetParam().model;
    return model == "qwen3_next" || model == "qwen3_5" || model == "qwen3_5_moe" || model == "lfm2" ||
           model == "lfm2_moe" || model.starts_with("gemma4") || model == "gemma3n" || model == "deepseek_v32" ||
           model == "kimi_linear" || model == "deepseek_v4" || model == "minimax_m3" || model == "glm_moe_dsa" ||
           model == "llama4" || model == "mllama" || model == "mamba" || model == "minimax" || model == "jamba" ||
           has_mamba();
  }

  static bool has_frozen_sines() { return GetParam().model == "pegasus" || GetParam().model == "marian"; }
  /// Its class asks for the gate's type, which DeepSpeed's module.bfloat16() changes; a program has the answer of its
  /// recording.
  static bool has_gate_in_float32() { return GetParam().model == "hunyuan_v1_moe"; }
  static bool is_refused_under_zero3() {
    const std::string& model = GetParam().model;
    return has_experts() || model == "t5" || has_frozen_sines() || model == "llama4" || model == "mllama" ||
           model == "gemma3n";
  }
  /// Indexers and layers that look at images get no gradient.
  static bool is_refused_under_fsdp1() {
    const std::string& model = GetParam().model;
    return model == "mllama" || model == "deepseek_v32" || model == "deepseek_v4" || model == "minimax_m3" ||
           model == "glm_moe_dsa";
  }

  /// With adapters and checkpointing the family of BART and mBART keeps one tensor of the encoder longer than the
  /// program does; which of the two is right is not known yet. Gemma 4's layers get shared_kv_states, a dict, which
  /// GradientCheckpointingLayer keeps among their keywords; a program knows of tensors alone.
  static bool keeps_another_tensor(const RunOptions& options) {
    const std::string& model = GetParam().model;
    if (model.starts_with("gemma4") || model == "gemma3n") return options.checkpointing == Checkpointing::kFull;
    // peft's hook makes what Muse Glimmer's embedding returns require a gradient, behind the norm inside of it; a
    // program knows the look-up alone, so that the norm is differentiated, too.
    if (model == "muse_glimmer_text") return options.checkpointing == Checkpointing::kFull && options.lora_rank > 0;
    // Of what MiniMax-M3's layers were called with, position_ids die first in its program and later in the family.
    return (model == "bart" || model == "mbart" || model == "minimax_m3") &&
           options.checkpointing == Checkpointing::kFull && options.lora_rank > 0;
  }

  /// Where a recomputation stops in some layers, variables die in another order: a program does not say which function
  /// has which variable, and Python's traceback lets go of them function by function.
  static bool stops_otherwise(const RunOptions& options) {
    if (options.checkpointing != Checkpointing::kFull) return false;
    const std::string& model = GetParam().model;
    return has_experts() || has_mamba() || model == "mamba" || model == "llama4" ||
           ((model == "gpt2" || model == "mpt") && options.precision == Precision::kAmpBf16);
  }
};

TEST_P(Programs, LeaveTheEventsOfTheirFamily) {
  test::in_every_way([](const RunOptions& options) {
    if (keeps_another_tensor(options)) return;
    expect_equal(options, stops_otherwise(options));
  });
}

TEST_P(Programs, AreTrainedInTheTrainer) {
  const RunOptions trainer{.precision = Precision::kAmpBf16, .weights_dtype = DType::kFloat32, .loop = Loop::kTrainer};
  const bool is_t5 = GetParam().model == "t5";
  expect_equal(trainer, is_t5);  // its cache stands before what the encoder returns, and a program's behind it
  RunOptions checkpointed = trainer;
  checkpointed.checkpointing = Checkpointing::kFull;
  checkpointed.accumulation_steps = 2;
  if (!keeps_another_tensor(checkpointed)) expect_equal(checkpointed, stops_otherwise(checkpointed));
  RunOptions adapted = trainer;
  // The family of T5 leaves encoder_last_hidden_state in 16 bits, which accelerate converts with the other outputs.
  // Encoders ask their first norm's result for a type, of a mask or of rotary angles: under autocast it is float32.
  // BLOOM's ALiBi takes the type of a norm's result, too; its program says the weights'. Nemotron's norm casts what it
  // is given, and of Hunyuan's experts the gate is in float32 whatever the others are. What MiniMax-M3's and
  // Kimi-Linear's modules ask a type of stays in float32 in their programs.
  const std::string& model = GetParam().model;
  const bool asks_type = is_t5 || model == "deberta_v2" || model == "modernbert" || model == "nomic_bert" ||
                         model == "bloom" || model == "nemotron" || model == "hunyuan_v1_moe" ||
                         model == "minimax_m3" || model == "kimi_linear";
  adapted.weights_dtype = asks_type ? DType::kFloat32 : DType::kBFloat16;
  adapted.lora_rank = 4;
  expect_equal(adapted, is_t5);
}

/// peft's target_parameters, also of mixtures whose experts all-linear leaves alone.
TEST_P(Programs, AdaptExpertsThatAreNamed) {
  if (!has_experts()) GTEST_SKIP();
  RunOptions options{.precision = Precision::kBf16, .loop = Loop::kBare, .lora_rank = 4};
  const bool has_gate = GetParam().model != "nemotron_h_moe";
  options.lora_targets = {has_gate ? "experts.gate_up_proj" : "experts.up_proj", "experts.down_proj"};
  // Before Jamba's first adapter nothing is saved, and 512 bytes of a mixer die later than in its family.
  expect_equal(options, GetParam().model == "jamba");
}

TEST_P(Programs, TakeAMaskWhereSequencesArePadded) {
  RunOptions options{.precision = Precision::kBf16, .loop = Loop::kBare};
  options.padding = true;
  expect_equal(options);
}

TEST_P(Programs, StandOnAQuantisedBase) {
  // Of T5 the family quantises `wo`, too, which transformers leaves alone (_keep_in_fp32_modules); a program, as well.
  // The hook on Muse Glimmer's embedding is not in its program, see above.
  if (GetParam().model == "t5" || GetParam().model == "muse_glimmer_text") GTEST_SKIP();
  for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
    const RunOptions options{.precision = Precision::kBf16,
                             .loop = Loop::kBare,
                             .checkpointing = checkpointing,
                             .lora_rank = 4,
                             .quantization = Quantization::kNf4};
    const std::string& model = GetParam().model;
    if (model == "mamba" || model == "jamba" || model == "gemma3n") {  // it reads a weight directly, which is packed
      EXPECT_THROW((void)trace_of(model + ".json", options), Error);
      continue;
    }
    if (!keeps_another_tensor(options)) expect_equal(options);
  }
}

TEST_P(Programs, AreSharedOutByEveryWrapper) {
  for (const DataParallel mode : {DataParallel::kDdp, DataParallel::kZero1, DataParallel::kFsdp1, DataParallel::kFsdp2,
                                  DataParallel::kDsZero1, DataParallel::kDsZero2, DataParallel::kDsZero3}) {
    SCOPED_TRACE(static_cast<int>(mode));
    if (mode == DataParallel::kDsZero3 && is_refused_under_zero3()) continue;
    // Frozen parameters are refused: its bias, their sines.
    if (mode == DataParallel::kFsdp1 && (GetParam().model == "ernie4_5_moe" || has_frozen_sines())) continue;
    if (mode == DataParallel::kFsdp1 && is_refused_under_fsdp1()) continue;
    if (mode == DataParallel::kFsdp2 && GetParam().model == "mllama") continue;  // layers that are left out
    if (has_gate_in_float32() && mode >= DataParallel::kFsdp1) continue;
    if (GetParam().model == "minimax" && mode >= DataParallel::kDsZero1) continue;  // refused: it casts the decays
    RunOptions options{.precision = Precision::kBf16, .loop = Loop::kBare, .gpus = 2};
    options.parallel.data_parallel = mode;
    options.data_parallel_given = true;
    expect_equal(options);
  }
}

/// "auto" bucket sizes are of the model's width, which a program says (hidden_size).
TEST_P(Programs, AreSharedOutByDeepSpeedInTheTrainer) {
  // DeepSpeed's module.bfloat16() takes buffers along, layer_scalar, mup_vector and MiniMax's decays too; a program
  // leaves them in the type it loaded.
  const std::string& model = GetParam().model;
  if (model.starts_with("gemma4") || model == "gemma3n" || model == "falcon_h1" || model == "minimax" ||
      has_gate_in_float32())
    GTEST_SKIP();
  for (const DataParallel mode : {DataParallel::kDsZero1, DataParallel::kDsZero2, DataParallel::kDsZero3}) {
    SCOPED_TRACE(static_cast<int>(mode));
    if (mode == DataParallel::kDsZero3 && is_refused_under_zero3()) continue;
    RunOptions options{
        .precision = Precision::kAmpBf16, .weights_dtype = DType::kFloat32, .loop = Loop::kTrainer, .gpus = 8};
    options.parallel.data_parallel = mode;
    options.data_parallel_given = true;
    expect_equal(options, GetParam().model == "t5");
  }
}

TEST_P(Programs, CompileTheirLayers) {
  if (has_linear_layers()) GTEST_SKIP();
  RunOptions options{.precision = Precision::kBf16, .loop = Loop::kBare, .compile = true};
  options.compiled_parts = CompiledParts::kLayers;
  if (GetParam().model == "bloom") {  // its GELU is a custom function, whose graph is not modelled
    options.batch_size = 3;
    EXPECT_THROW((void)trace_of("bloom.json.gz", options), Error);
    options.task = Task::kCausalLm;
    EXPECT_THROW((void)trace_of("bloom.json", options), Error);
    return;
  }
  expect_equal(options);
  RunOptions sharded = options;
  sharded.gpus = 2;
  sharded.parallel.data_parallel = DataParallel::kFsdp2;
  sharded.data_parallel_given = true;
  expect_equal(sharded);
  options.precision = Precision::kAmpBf16;
  options.weights_dtype = DType::kFloat32;
  expect_equal(options);
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, Programs,
    testing::Values(
        Case{"bert", Task::kMaskedLm}, Case{"gpt2", Task::kCausalLm}, Case{"llama", Task::kCausalLm},
        Case{"qwen3", Task::kCausalLm}, Case{"roberta", Task::kMaskedLm}, Case{"gemma3", Task::kCausalLm},
        Case{"mixtral", Task::kCausalLm}, Case{"gpt_oss", Task::kCausalLm}, Case{"deepseek_v3", Task::kCausalLm},
        Case{"t5", Task::kSeq2Seq}, Case{"cohere", Task::kCausalLm}, Case{"cohere2", Task::kCausalLm},
        Case{"ernie4_5", Task::kCausalLm}, Case{"exaone4", Task::kCausalLm}, Case{"glm", Task::kCausalLm},
        Case{"glm4", Task::kCausalLm}, Case{"granite", Task::kCausalLm}, Case{"hunyuan_v1_dense", Task::kCausalLm},
        Case{"ministral3", Task::kCausalLm}, Case{"olmo", Task::kCausalLm}, Case{"olmo3", Task::kCausalLm},
        Case{"seed_oss", Task::kCausalLm}, Case{"smollm3", Task::kCausalLm}, Case{"stablelm", Task::kCausalLm},
        Case{"starcoder2", Task::kCausalLm}, Case{"qwen2_moe", Task::kCausalLm}, Case{"olmoe", Task::kCausalLm},
        Case{"glm4_moe", Task::kCausalLm}, Case{"minimax_m2", Task::kCausalLm}, Case{"gptj", Task::kCausalLm},
        Case{"ernie4_5_moe", Task::kCausalLm}, Case{"apertus", Task::kCausalLm}, Case{"falcon", Task::kCausalLm},
        Case{"falcon_new", Task::kCausalLm}, Case{"falcon_alibi", Task::kCausalLm}, Case{"bloom", Task::kCausalLm},
        Case{"mpt", Task::kCausalLm}, Case{"glm4_moe_lite", Task::kCausalLm}, Case{"bart", Task::kSeq2Seq},
        Case{"mbart", Task::kSeq2Seq}, Case{"pegasus", Task::kSeq2Seq}, Case{"m2m_100", Task::kSeq2Seq},
        Case{"marian", Task::kSeq2Seq}, Case{"albert", Task::kMaskedLm}, Case{"deberta_v2", Task::kMaskedLm},
        Case{"modernbert", Task::kMaskedLm}, Case{"mpnet", Task::kMaskedLm}, Case{"nomic_bert", Task::kMaskedLm},
        Case{"xlm_roberta", Task::kMaskedLm}, Case{"qwen3_next", Task::kCausalLm}, Case{"qwen3_5", Task::kCausalLm},
        Case{"qwen3_5_moe", Task::kCausalLm}, Case{"lfm2", Task::kCausalLm}, Case{"lfm2_moe", Task::kCausalLm},
        Case{"nemotron_h", Task::kCausalLm}, Case{"granitemoehybrid", Task::kCausalLm}, Case{"mamba2", Task::kCausalLm},
        Case{"granitemoe", Task::kCausalLm}, Case{"cohere_plus", Task::kCausalLm}, Case{"gemma4", Task::kCausalLm},
        Case{"gemma4_moe", Task::kCausalLm}, Case{"gemma4_ple", Task::kCausalLm}, Case{"gemma3n", Task::kCausalLm},
        Case{"arcee", Task::kCausalLm}, Case{"youtu", Task::kCausalLm}, Case{"dots1", Task::kCausalLm},
        Case{"falcon_h1", Task::kCausalLm}, Case{"llama4", Task::kCausalLm}, Case{"mllama", Task::kCausalLm},
        Case{"deepseek_v32", Task::kCausalLm}, Case{"deepseek_v4", Task::kCausalLm},
        Case{"glm_moe_dsa", Task::kCausalLm}, Case{"hy_v3", Task::kCausalLm}, Case{"minimax_m3", Task::kCausalLm},
        Case{"kimi_linear", Task::kCausalLm}, Case{"nemotron_h_moe", Task::kCausalLm},
        Case{"deepseek_ocr2_text", Task::kCausalLm}, Case{"mamba", Task::kCausalLm},
        Case{"mimo_v2_flash", Task::kCausalLm}, Case{"minimax", Task::kCausalLm}, Case{"minicpm3", Task::kCausalLm},
        Case{"nemotron", Task::kCausalLm}, Case{"hunyuan_v1_moe", Task::kCausalLm}, Case{"jamba", Task::kCausalLm},
        Case{"mistral4", Task::kCausalLm}, Case{"muse_glimmer_text", Task::kCausalLm}),
    [](const auto& info) { return info.param.model; });

/// As above: where a recomputation stops in some layers, variables die in another order.
bool stops_otherwise(const std::string& model, const RunOptions& options) {
  if (options.checkpointing != Checkpointing::kFull) return false;
  return model == "mixtral" || model == "qwen2_moe" || (model == "mpt" && options.precision == Precision::kAmpBf16);
}

/// Models with another head or attention: NAME.KIND.json.gz.
TEST(Programs, WithOtherHeadsAndAttentionLeaveTheEventsOfTheirFamily) {
  struct OtherCase {
    const char *model, *kind;
    Task task;
    Attention attention;
    bool caches = false;  // its class takes no use_cache, so that the recording has config.use_cache's cache
  };
  for (const OtherCase& each : {OtherCase{"albert", "eager", Task::kMaskedLm, Attention::kEager},
                                {"albert", "seqcls", Task::kSequenceClassification, Attention::kSdpa},
                                {"deberta_v2", "seqcls", Task::kSequenceClassification, Attention::kEager},
                                {"deberta_v2", "tokcls", Task::kTokenClassification, Attention::kEager},
                                {"modernbert", "eager", Task::kMaskedLm, Attention::kEager},
                                {"modernbert", "seqcls", Task::kSequenceClassification, Attention::kSdpa},
                                {"modernbert", "tokcls", Task::kTokenClassification, Attention::kSdpa},
                                {"mpnet", "seqcls", Task::kSequenceClassification, Attention::kEager},
                                {"bert", "qa", Task::kQuestionAnswering, Attention::kSdpa},
                                {"opt", "qa", Task::kQuestionAnswering, Attention::kSdpa},
                                {"bloom", "qa", Task::kQuestionAnswering, Attention::kEager},
                                {"falcon", "qa", Task::kQuestionAnswering, Attention::kSdpa, true},
                                {"mpt", "qa", Task::kQuestionAnswering, Attention::kEager},
                                {"mixtral", "qa", Task::kQuestionAnswering, Attention::kSdpa},
                                {"qwen2_moe", "qa", Task::kQuestionAnswering, Attention::kSdpa},
                                {"nomic_bert", "seqcls", Task::kSequenceClassification, Attention::kSdpa}}) {
    SCOPED_TRACE(std::string(each.model) + ", " + each.kind);
    const auto compare = [&each](RunOptions options) {
      if (is_refused(each.model, options)) return;
      options.batch_size = 3;
      options.sequence_length = 77;
      const std::string name = each.model;
      const std::vector<std::string> recorded = events_of(trace_of(name + "." + each.kind + ".json.gz", options));
      options.task = each.task;
      options.attention = each.attention;
      options.use_cache = each.caches;
      const std::vector<std::string> written = events_of(trace_of(name + ".json", options));
      EXPECT_GT(written.size(), 200U);
      const bool sorts = stops_otherwise(name, options);
      expect_same(sorts ? sorted(recorded) : recorded, sorts ? sorted(written) : written);
    };
    test::in_every_way(compare);
    RunOptions padded{.precision = Precision::kBf16, .loop = Loop::kBare};
    padded.padding = true;
    compare(padded);
  }
}

/// As one graph: what torch.compile traces is recorded beside what eager mode runs.
class CompiledPrograms : public testing::TestWithParam<Case> {
 protected:
  static void expect_equal(RunOptions options) {
    const auto& [model, task] = GetParam();
    options.batch_size = 3;
    if (task != Task::kImageClassification) options.sequence_length = 77;
    options.compile = true;
    const std::vector<std::string> recorded = events_of(trace_of(model + ".json.gz", options));
    options.task = task;
    const std::vector<std::string> written = events_of(trace_of(model + ".json", options));
    EXPECT_GT(written.size(), 200U);
    expect_same(recorded, written);
  }
};

TEST_P(CompiledPrograms, LeaveTheEventsOfTheirFamily) { test::in_every_way(expect_equal); }

TEST_P(CompiledPrograms, AreTrainedInTheTrainer) {
  RunOptions options{.precision = Precision::kAmpBf16, .weights_dtype = DType::kFloat32, .loop = Loop::kTrainer};
  expect_equal(options);
  options.checkpointing = Checkpointing::kFull;
  options.accumulation_steps = 2;
  expect_equal(options);
}

INSTANTIATE_TEST_SUITE_P(Recorded, CompiledPrograms,
                         testing::Values(Case{"bert", Task::kMaskedLm}, Case{"roberta", Task::kMaskedLm},
                                         Case{"llama", Task::kCausalLm}, Case{"qwen3", Task::kCausalLm},
                                         Case{"gemma3", Task::kCausalLm}, Case{"vit", Task::kImageClassification}),
                         [](const auto& info) { return info.param.model; });

Bytes most_of(const Trace& trace) {
  Bytes now = 0, most = 0;
  for (const Event& event : trace.events) {
    const Bytes bytes = trace.blocks[static_cast<std::size_t>(event.block)].requested;
    if (event.kind == EventKind::kAllocate) now += bytes;
    if (event.kind == EventKind::kFree) now -= bytes;
    most = std::max(most, now);
  }
  return most;
}

/// Whisper draws a number for each layer and asks whether to skip it: Dynamo breaks the graph there. Its layers are
/// graphs, and parts of what is around them.
TEST(Programs, ThatReadAValueAreGraphs) {
  RunOptions options{.precision = Precision::kBf16, .loop = Loop::kBare, .compile = true};
  options.batch_size = 3;
  options.sequence_length = 32;
  const Trace whole = trace_of("whisper.json.gz", options);
  RunOptions checkpointed = options;
  checkpointed.checkpointing = Checkpointing::kFull;
  EXPECT_LT(most_of(trace_of("whisper.json.gz", checkpointed)), most_of(whole));
  options.compiled_parts = CompiledParts::kLayers;
  const Trace layers = trace_of("whisper.json.gz", options);
  EXPECT_NE(whole.events.size(), layers.events.size());
  const std::vector<std::string> recorded = events_of(trace_of("whisper.json.gz", options));
  options.task = Task::kSpeech;
  expect_same(recorded, events_of(trace_of("whisper.json", options)));
}

/// GPT-2's loss warns, which breaks the graph: its family has one graph whose parts hand a gradient over, its program
/// two.
TEST(Programs, OfGpt2NeedAsMuchInTwoGraphsAsItsFamily) {
  for (const test::Way& way : test::kWays) {
    SCOPED_TRACE(way.name);
    RunOptions options{.precision = way.precision, .weights_dtype = way.weights, .loop = Loop::kBare, .compile = true};
    options.batch_size = 3;
    options.sequence_length = 77;
    const Bytes recorded = most_of(trace_of("gpt2.json.gz", options));
    options.task = Task::kCausalLm;
    EXPECT_EQ(recorded, most_of(trace_of("gpt2.json", options)));
    options.loop = Loop::kTrainer;
    const Bytes trained = most_of(trace_of("gpt2.json", options));
    options.task.reset();
    EXPECT_EQ(trained, most_of(trace_of("gpt2.json.gz", options)));
  }
}

/// The family of torchvision's models returns the logits beside the loss, so that they get zeros for a gradient; a
/// recorded loss is part of the module, which returns nothing else. With those zeros another order of the kernels may
/// be the one that needs least memory (peak_order.h): what is asked for is the same, in any order.
TEST(Programs, OfTorchvisionAreCompiledAsTheirFamily) {
  for (const std::string model : {"resnet18", "resnet50", "convnext_tiny", "swin_t", "efficientnet_b0"}) {
    for (const test::Way& way : test::kWays) {
      SCOPED_TRACE(model + ", " + way.name);
      RunOptions options{
          .precision = way.precision, .weights_dtype = way.weights, .loop = Loop::kBare, .compile = true};
      options.batch_size = 3;
      const auto others = [&](const Trace& trace) {
        const Bytes logits = 3 * 1000 * (way.precision == Precision::kFp32 ? 4 : 2);
        std::vector<std::string> events = events_of(trace);
        std::erase_if(events, [&](const std::string& each) {
          return each.ends_with(" " + std::to_string(logits)) || each.starts_with(name_of(Phase::kBackward));
        });
        return events;
      };
      const std::vector<std::string> recorded = others(trace_of(model + ".json.gz", options));
      const ModelSpec family = registry().model(model);
      const RunSpec run = resolve(family, options).run;
      const std::vector<std::string> written =
          others(run_symbolically(family, run, registry().device("h100-sxm")).trace);
      EXPECT_GT(written.size(), 200U);
      expect_same(recorded, written);
    }
  }
}

/// Images and speech in a plain loop: ViT of 64 pixels, whose size its program holds, and Whisper.
TEST(Programs, OfImagesAndSpeechLeaveTheEventsOfTheirFamily) {
  struct OtherCase {
    const char* model;
    Task task;
    std::int64_t sequence;
  };
  for (const OtherCase& each : {OtherCase{"vit", Task::kImageClassification, 0}, {"whisper", Task::kSpeech, 32}}) {
    for (const test::Way& way : test::kWays) {
      for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
        SCOPED_TRACE(std::string(each.model) + ", " + way.name +
                     (checkpointing == Checkpointing::kFull ? ", checkpointing" : ""));
        RunOptions options{.precision = way.precision,
                           .weights_dtype = way.weights,
                           .loop = Loop::kBare,
                           .checkpointing = checkpointing};
        options.batch_size = 3;
        options.sequence_length = each.sequence;
        const std::string model = each.model;
        const std::vector<std::string> recorded = events_of(trace_of(model + ".json.gz", options));
        options.task = each.task;
        const std::vector<std::string> written = events_of(trace_of(model + ".json", options));
        EXPECT_GT(written.size(), 200U);
        expect_same(recorded, written);
      }
    }
  }
}

/// A dataset's images are float32, which a ViT of 16 bits turns into its type.
TEST(Programs, OfImagesTakeADatasetsTypeInTheTrainer) {
  for (const test::Way& way : test::kWays) {
    SCOPED_TRACE(way.name);
    RunOptions options{.precision = way.precision, .weights_dtype = way.weights, .loop = Loop::kTrainer};
    options.batch_size = 3;
    const std::vector<std::string> recorded = events_of(trace_of("vit.json.gz", options));
    options.task = Task::kImageClassification;
    expect_same(recorded, events_of(trace_of("vit.json", options)));
  }
}

/// The same with adapters, on a quantised base, too. Whisper with checkpointing differs: what torch does there is not
/// settled.
TEST(Programs, OfImagesAndSpeechAreFineTunedAsTheirFamily) {
  struct OtherCase {
    const char* model;
    Task task;
    std::int64_t sequence;
  };
  for (const OtherCase& each : {OtherCase{"vit", Task::kImageClassification, 0},
                                {"whisper", Task::kSpeech, 32},
                                {"clip", Task::kContrastive, 55}}) {
    for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
      if (each.task == Task::kSpeech && checkpointing == Checkpointing::kFull) continue;
      for (const Quantization quantization : {Quantization::kNone, Quantization::kNf4}) {
        SCOPED_TRACE(std::string(each.model) + (checkpointing == Checkpointing::kFull ? ", checkpointing" : "") +
                     (quantization == Quantization::kNf4 ? ", NF4" : ""));
        RunOptions options{.precision = Precision::kBf16,
                           .loop = Loop::kBare,
                           .checkpointing = checkpointing,
                           .lora_rank = 4,
                           .quantization = quantization};
        options.batch_size = 3;
        options.sequence_length = each.sequence;
        const std::string model = each.model;
        const std::vector<std::string> recorded = events_of(trace_of(model + ".json.gz", options));
        options.task = each.task;
        expect_same(recorded, events_of(trace_of(model + ".json", options)));
      }
    }
  }
}

/// CLIP's towers of 64 pixels and 55 tokens against each other.
TEST(Programs, OfImagesAndTheirCaptionsLeaveTheEventsOfTheirFamily) {
  test::in_every_way([](RunOptions options) {
    options.batch_size = 3;
    options.sequence_length = 55;
    const std::vector<std::string> recorded = events_of(trace_of("clip.json.gz", options));
    options.task = Task::kContrastive;
    const std::vector<std::string> written = events_of(trace_of("clip.json", options));
    EXPECT_GT(written.size(), 200U);
    // The returned object holds the towers' outputs, which die behind autocast's cache; the family's die before it.
    const bool in_any_order = options.precision == Precision::kAmpBf16;
    expect_same(in_any_order ? sorted(recorded) : recorded, in_any_order ? sorted(written) : written);
  });
}

/// torchvision's models, whose families have no file of their own.
TEST(Programs, OfTorchvisionLeaveTheEventsOfTheirFamily) {
  for (const std::string model : {"resnet18", "resnet50", "convnext_tiny", "swin_t", "efficientnet_b0"}) {
    for (const test::Way& way : test::kWays) {
      SCOPED_TRACE(model + ", " + way.name);
      RunOptions options{.precision = way.precision, .weights_dtype = way.weights, .loop = Loop::kBare};
      options.batch_size = 3;
      std::vector<std::string> recorded = events_of(trace_of(model + ".json.gz", options));
      const ModelSpec family = registry().model(model);
      const RunSpec run = resolve(family, options).run;
      std::vector<std::string> written = events_of(run_symbolically(family, run, registry().device("h100-sxm")).trace);
      EXPECT_GT(written.size(), 200U);
      // A recorded loss is part of the module: its input dies before autocast empties its cache, and not after it.
      const bool in_any_order = way.precision == Precision::kAmpBf16;
      expect_same(in_any_order ? sorted(recorded) : recorded, in_any_order ? sorted(written) : written);
    }
  }
}

/// torchvision's families call no part as a layer: fully_shard(model) and FullyShardedDataParallel(model) alone.
TEST(Families, WithoutLayersAreOneUnit) {
  for (const std::string model : {"resnet50", "convnext_tiny", "swin_t", "efficientnet_b0"}) {
    const ModelSpec family = registry().model(model);
    for (const DataParallel mode : {DataParallel::kFsdp1, DataParallel::kFsdp2}) {
      SCOPED_TRACE(model);
      RunOptions options{.precision = Precision::kBf16, .loop = Loop::kBare, .gpus = 4};
      options.batch_size = 2;
      options.parallel.data_parallel = mode;
      options.data_parallel_given = true;
      const SymbolicRun run = run_symbolically(family, resolve(family, options).run, registry().device("h100-sxm"));
      EXPECT_THAT(run.assumptions, testing::Contains(testing::HasSubstr("wrapped as one unit")));
    }
  }
}

// What the functions of a program name is kept with it; a copy that is changed finds its own.
TEST(Programs, AreNamedAnewWhereTheyAreCopied) {
  ModelSpec model = registry().model(path_of("llama.json.gz"));
  const RunOptions options{.precision = Precision::kFp32, .loop = Loop::kBare};
  const auto run_it = [&] {
    return run_symbolically(model, resolve(model, options).run, registry().device("h100-sxm"));
  };
  (void)run_it();
  Program copy = *model.architecture.as<ProgramSpec>().program;
  for (std::int64_t i = 0; i < std::ssize(copy.functions); ++i) {
    for (std::string& name : copy.functions.at(i).parameters) name += ".lost";
  }
  model.architecture = ProgramSpec{std::make_shared<Program>(std::move(copy))};
  EXPECT_THROW((void)run_it(), Error);
}

// A function is read when it is asked for: what is wrong in one that no run takes troubles none.
TEST(Programs, AreReadAsFarAsARunGoes) {
  const std::string text = R"({"format": "memcalc.program", "version": 1, "name": "x", "inputs": [], "parameters": [],
    "forwards": [{"mode": "train", "function": 0}, {"mode": "eval", "function": 1}, {"mode": "eval", "function": 2}],
    "functions": [{"inputs": 0, "body": [["drop", [0]]], "results": []},
                  {"inputs": 0, "body": [["layer", 3, "", [], {}, [0]]], "results": []},
                  {"inputs": 0, "body": [["layers"]], "results": []}]})";
  const Program program = read_program(text, "a file");
  EXPECT_EQ(program.functions.size(), 3U);
  EXPECT_NO_THROW(check_forward(program, 0));
  EXPECT_THAT(error_text([&] { check_forward(program, 1); }), testing::HasSubstr("has no function 3"));
  EXPECT_THAT(error_text([&] { check_forward(program, 2); }),
              testing::HasSubstr("a file: /functions/2/body/0: layers takes 7 parts"));
  EXPECT_THAT(error_text([&] { check_forward(program, 3); }), testing::HasSubstr("has no function 3"));
}

TEST(Programs, AreRefusedInOneLineWhereTheyAreDamaged) {
  const SymbolValues sizes = [] {
    SymbolValues values;
    values.set("batch", 3);
    return values;
  }();
  EXPECT_EQ(sizes.evaluate("2*batch*(batch+1)//5 - max(batch, 4)"), 0);
  EXPECT_THROW((void)sizes.evaluate("batch*sequence"), Error);
  EXPECT_THROW((void)sizes.evaluate("1//(batch-3)"), Error);
  const auto read = [](const std::string& text) {
    Program program = read_program(text, "a file");
    check_forward(program, 0);
    return program;
  };
  EXPECT_THROW((void)read("{}"), Error);
  EXPECT_THROW((void)read(R"({"format": "memcalc.program", "version": 2})"), Error);
  const std::string start = R"({"format": "memcalc.program", "version": 1, "name": "x", "inputs": [],
    "parameters": [], "forwards": [{"mode": "train", "function": 0}], "functions": )";
  EXPECT_THROW((void)read(start + R"([{"inputs": 0, "body": [["layer", 0, "", [], {}, []]], "results": []}]})"), Error);
  EXPECT_THROW((void)read(start + R"([{"inputs": 0, "body": [["jump"]], "results": []}]})"), Error);
  const std::string body = R"([{"inputs": 0, "body": [["drop", [0]]], "results": []}])";
  EXPECT_NO_THROW((void)read(start + body + "}"));
  const std::string made = R"(, "construction": [{"shape": [4], "dtype": "weights"}, {"freed": [)";
  EXPECT_NO_THROW((void)read(start + body + made + "0]}]}"));
  EXPECT_THAT(error_text([&] { (void)read(start + body + made + "0, 1]}]}"); }),
              testing::HasSubstr("/construction/1/freed/1: there is no such tensor yet"));
}

}  // namespace
}  // namespace memcalc
