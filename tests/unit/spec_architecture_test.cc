// Sizes as options: of a family alone and of a named model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "memcalc/families/bart/spec.h"
#include "memcalc/families/gemma/spec.h"
#include "memcalc/families/gpt2/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/families/opt/spec.h"
#include "memcalc/families/t5/spec.h"
#include "memcalc/spec/architecture_keys.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/run_fields.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/spec/run_request.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

using test::registry;

std::int64_t parameters_of(const ModelSpec& model) {
  RunOptions options{.loop = Loop::kBare};
  const RunSpec run = resolve(model, options).run;
  std::int64_t sum = 0;
  for (const ParameterInfo& each : run_symbolically(model, run, registry().device("h100-sxm")).parameters) {
    sum += each.elements;
  }
  return sum;
}

// --- a family alone

TEST(Families, LlamaBySizesHasTheParametersOfACountByHand) {
  const ModelSpec model = model_of_family(
      "llama", {.layers = 24, .hidden = 1024, .heads = 16, .kv_heads = 8, .ffn = 4096, .vocabulary = 50304});
  const std::int64_t layer = 2 * 1024 * 1024 + 2 * 1024 * 512 + 3 * 1024 * 4096 + 2 * 1024;
  EXPECT_EQ(parameters_of(model), 2 * 50304 * 1024 + 24 * layer + 1024);
  EXPECT_EQ(model.name, "llama (layers=24, hidden=1024, heads=16, kv-heads=8, ffn=4096, vocab=50304)");
  EXPECT_EQ(model.published_parameters, std::nullopt);
}

TEST(Families, TellEveryDefault) {
  const ModelSpec model = model_of_family("gpt2", {.layers = 3});
  EXPECT_THAT(model.assumptions,
              Contains("vocab_size = 50257, n_positions = 1024, n_embd = 768, n_head = 12 (not given; transformers' "
                       "defaults for gpt2)"));
  EXPECT_THAT(model.assumptions, Not(Contains(HasSubstr("config.json"))));
}

/// Of which a config.json says more than sizes: its text model, the kinds of its layers.
bool says_more_than_sizes(std::string_view type) {
  return type == "torchvision" || type == "clip" || type == "gemma3" || type == "mistral3" || type == "qwen3_5" ||
         type == "qwen3_5_moe" || type == "lfm2_moe" || type == "nemotron_h" || type == "mamba2" || type == "mamba" ||
         type == "llava" || type == "internvl" || type.starts_with("gemma3n") || type == "paligemma" ||
         type == "mllama" || type == "llama4" || type.starts_with("gemma4") ||
         type.find("_vl") != std::string_view::npos;
}

/// Whose mixers or MLPs have sizes of their own, which no option gives.
bool has_mixers_of_its_own(std::string_view type) {
  return type == "qwen3_next" || type.starts_with("qwen3_5") || type == "lfm2" || type == "granitemoehybrid" ||
         type == "falcon_h1";
}

TEST(Families, EachStandsByItself) {
  for (const std::string_view type : modelled_types()) {
    if (says_more_than_sizes(type)) continue;
    EXPECT_EQ(error_text([&] { (void)model_of_family(std::string(type), {.layers = 2}); }), "") << type;
  }
  EXPECT_THAT(model_of_family("deepseek_v2", {}).assumptions, Contains(HasSubstr("num_experts_per_tok = 6")));
}

/// A key that the family's reader does not know would be ignored, and the model keep its default size.
TEST(Families, EachTakesEverySizeThatItClaims) {
  for (const std::string_view type : modelled_types()) {
    if (says_more_than_sizes(type)) continue;
    ASSERT_TRUE(has_architecture_keys(type)) << type << ": add its keys to architecture_keys.cc";
    // Experts have sizes of their own, which a config.json gives and no option does.
    if (type == "mixtral" || type.ends_with("_moe") || type == "gpt_oss" || type.starts_with("deepseek")) continue;
    if (type == "olmoe" || type == "glm4_moe_lite" || type == "kimi_k2" || type == "kimi_linear" ||
        type == "minimax_m2" || type == "dots1" || type == "glm_moe_dsa" || type == "hy_v3" ||
        type == "mimo_v2_flash" || type == "minimax" || type == "minicpm3" || type == "jamba" || type == "bamba" ||
        type == "mistral4" || type == "llama4_text" || type == "youtu" || has_mixers_of_its_own(type))
      continue;
    ArchitectureChanges small{.layers = 2, .hidden = 64, .heads = 4};
    if (type == "gptj") small.heads = 1;  // of a head 64 numbers are rotated, unless config.json says else
    const bool images = type == "vit" || type == "deit";
    if (!images) small.vocabulary = 500;
    const auto accepts = [&](const ArchitectureChanges& sizes) {
      return error_text([&] { (void)config_changes(std::string(type), sizes, nullptr); }).empty();
    };
    if (accepts({.ffn = 96})) small.ffn = 96;  // BLOOM's, Falcon's and MPT's follow from the hidden size
    if (accepts({.max_positions = 40})) small.max_positions = 40;
    if (accepts({.kv_heads = 2})) small.kv_heads = 2;
    if (accepts({.head_dim = 16})) small.head_dim = 16;
    const std::int64_t parameters = parameters_of(model_of_family(std::string(type), small));
    EXPECT_LT(parameters, 600'000) << type;

    const auto differs = [&](const char* what, const ArchitectureChanges& other) {
      EXPECT_NE(parameters_of(model_of_family(std::string(type), other)), parameters) << type << " " << what;
    };
    ArchitectureChanges other = small;
    other.layers = 3;
    if (type != "albert") differs("layers", other);  // one layer's parameters, run again and again
    if (small.ffn) {
      other = small;
      other.ffn = 128;
      differs("ffn", other);
    }
    if (small.head_dim) {
      other = small;
      other.head_dim = 32;
      differs("head_dim", other);
    }
    if (small.kv_heads) {
      other = small;
      other.kv_heads = 4;
      differs("kv_heads", other);
    }
  }
}

TEST(Families, AnotherIsRefusedWithTheNearest) {
  EXPECT_THAT(error_text([] { (void)model_of_family("lama", {}); }), HasSubstr("did you mean 'llama'?"));
  EXPECT_THAT(error_text([] { (void)model_of_family("torchvision", {}); }), HasSubstr("fixed layers"));
  EXPECT_THAT(error_text([] { (void)model_of_family("clip", {}); }), HasSubstr("two towers"));
  EXPECT_EQ(
      error_text([] { (void)model_of_family("t5", {.max_positions = 512}); }),
      "--max-positions: t5 has no such size; it has --layers, --hidden, --heads, --head-dim, --ffn, --vocab, --tie");
}

TEST(Families, LimitsAreThoseOfAConfig) {
  EXPECT_EQ(error_text([] { (void)model_of_family("llama", {.heads = 7}); }),
            "--arch llama (heads=7): /hidden_size: found 4096; accepted: a multiple of num_attention_heads (7)");
  EXPECT_THAT(error_text([] { (void)model_of_family("bert", {.layers = 100'000}); }), HasSubstr("from 1 to 2000"));
}

// --- a named model

TEST(NamedModels, WithOtherSizesSaySo) {
  const ModelSpec model = registry().model("llama-3-8b", {.layers = 8, .tie = true});
  EXPECT_EQ(model.name, "llama-3-8b (layers=8, tie=true)");
  EXPECT_EQ(model.published_parameters, std::nullopt);
  const auto& llama = model.architecture.as<LlamaSpec>();
  EXPECT_EQ(llama.num_hidden_layers, 8);
  EXPECT_TRUE(llama.tie_word_embeddings);
  EXPECT_EQ(llama.vocab_size, 128256) << "the rest stays";
  EXPECT_THAT(model.assumptions, Contains("num_hidden_layers = 8 instead of 32 (--layers)"));
  EXPECT_THAT(model.assumptions, Contains("tie_word_embeddings = true instead of false (--tie)"));
}

TEST(NamedModels, WithoutChangesAreThemselves) {
  const ModelSpec model = registry().model("llama-3-8b", {});
  EXPECT_EQ(model.name, "llama-3-8b");
  EXPECT_NE(model.published_parameters, std::nullopt);
}

TEST(NamedModels, TheFamilysOwnKeysAreReplaced) {
  EXPECT_EQ(registry().model("gpt2", {.hidden = 384, .heads = 6}).architecture.as<Gpt2Spec>().n_embd, 384);
  const auto t5 = registry().model("t5-small", {.layers = 2}).architecture.as<T5Spec>();
  EXPECT_EQ(t5.num_layers, 2);
  EXPECT_EQ(t5.num_decoder_layers, 2);
  const auto bart = registry().model("bart-base", {.heads = 8, .ffn = 100}).architecture.as<BartSpec>();
  EXPECT_EQ(bart.encoder_attention_heads, 8);
  EXPECT_EQ(bart.decoder_ffn_dim, 100);
}

TEST(NamedModels, WhatFollowsTheWidthFollows) {
  const auto opt = [](const char* name) { return registry().model(name, {.hidden = 1536}).architecture.as<OptSpec>(); };
  EXPECT_EQ(opt("opt-125m").word_embed_proj_dim, 1536);
  EXPECT_EQ(opt("opt-350m").word_embed_proj_dim, 512) << "projected before, projected after";
}

TEST(NamedModels, AHeadDimThatStaysIsSaid) {
  const ModelSpec model = registry().model("llama-3.2-1b", {.hidden = 1024});
  EXPECT_EQ(model.architecture.as<LlamaSpec>().head_dim, 64);
  EXPECT_THAT(model.assumptions, Contains("head_dim stays 64, as the config says (--head-dim)"));
}

TEST(NamedModels, ALayerListOfAnotherLengthGoes) {
  const JsonDocument config = JsonDocument::parse(
      R"({"model_type": "gemma2", "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]})",
      "config.json");
  const JsonObject root = config.root();
  const ConfigChanges changes = config_changes("gemma2", {.layers = 4}, &root);
  const ModelSpec model = model_from_hf_config(config.changed(changes.keys, "", "changed").root(), "gemma");
  EXPECT_EQ(model.architecture.as<Gemma2Spec>().sliding_layers, (std::vector<bool>{true, false, true, false}));
  EXPECT_THAT(changes.told, Contains(HasSubstr("layer_types")));
}

TEST(NamedModels, GeneralNamesDoNotContradict) {
  const JsonDocument config =
      JsonDocument::parse(R"({"model_type": "gpt2", "hidden_size": 768, "num_hidden_layers": 12})", "config.json");
  const JsonObject root = config.root();
  const ConfigChanges changes = config_changes("gpt2", {.layers = 4, .hidden = 96}, &root);
  const auto gpt2 =
      model_from_hf_config(config.changed(changes.keys, "", "changed").root(), "gpt2").architecture.as<Gpt2Spec>();
  EXPECT_EQ(gpt2.n_embd, 96);
  EXPECT_EQ(gpt2.n_layer, 4);
}

// 16 x 16 pixels a patch: (512 / 16)^2 + 1 positions in the place of (224 / 16)^2 + 1.
TEST(NamedModels, ImagesOfAnotherSizeHaveOtherPositions) {
  RunRequest request;
  request.model = "vit-base-patch16-224";
  const ModelSpec recorded = model_of(request, registry());
  request.run.image_size = 512;
  const ModelSpec larger = model_of(request, registry());
  EXPECT_EQ(parameters_of(larger) - parameters_of(recorded), (32 * 32 - 14 * 14) * 768);
  EXPECT_THAT(larger.assumptions, Contains("image_size = 512 instead of 224 (--image)"));
  const Question question = question_of(request, registry());
  EXPECT_THAT(command_of(RunRecord{question.model, question.run.run, &question.device, &question.time}),
              HasSubstr("--model vit-base-patch16-224 --image 512"));
  request.run.image_size = 224;
  EXPECT_EQ(model_of(request, registry()).name, "vit-base-patch16-224");
}

TEST(NamedModels, SomeHaveNoSizes) {
  EXPECT_THAT(error_text([] { (void)registry().model("resnet50", {.layers = 8}); }), HasSubstr("layers are fixed"));
  const std::string mlp = (test::specs_dir() / "examples" / "mlp.json").string();
  EXPECT_THAT(error_text([&] { (void)registry().model(mlp, {.layers = 8}); }), HasSubstr("layer by layer"));
  EXPECT_THAT(error_text([] { (void)registry().model("gpt2-xll", {.layers = 8}); }), HasSubstr("did you mean"));
  EXPECT_EQ(error_text([] { (void)registry().model("gpt2", {.kv_heads = 8}); }),
            "--kv-heads: gpt2 has no such size; it has --layers, --hidden, --heads, --ffn, --vocab, --max-positions, "
            "--tie");
}

TEST(ArchitectureChanges, AreTextInOneOrder) {
  EXPECT_TRUE(ArchitectureChanges{}.empty());
  EXPECT_EQ((ArchitectureChanges{.layers = 1, .vocabulary = 2, .max_positions = 3, .tie = false}.text()),
            "layers=1, vocab=2, max-positions=3, tie=false");
}

}  // namespace
}  // namespace memcalc
