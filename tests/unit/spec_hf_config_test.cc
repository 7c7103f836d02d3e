// config.json of the modelled families: transformers' defaults, what is listed as assumed, what is refused.
#include "memcalc/families/albert/spec.h"
#include "memcalc/families/bert/spec.h"
#include "memcalc/families/deberta_v2/spec.h"
#include "memcalc/families/gemma/spec.h"
#include "memcalc/families/gpt2/spec.h"
#include "memcalc/families/gpt_neox/spec.h"
#include "memcalc/families/gptj/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/families/modernbert/spec.h"
#include "memcalc/families/mpnet/spec.h"
#include "memcalc/families/opt/spec.h"
#include "memcalc/families/phi/spec.h"
#include "memcalc/families/phi3/spec.h"
#include "memcalc/families/qwen/spec.h"
#include "memcalc/families/t5/spec.h"
#include "memcalc/spec/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "support/error_text.h"

namespace memcalc {
namespace {

ModelSpec read(const std::string& text) {
  const JsonDocument document = JsonDocument::parse(text, "config.json");
  return model_from_hf_config(document.root(), "config.json");
}

template <typename Spec>
Spec architecture(const std::string& text) {
  return read(text).architecture.as<Spec>();
}

TEST(HfConfig, BertTakesTransformersDefaults) {
  const ModelSpec model = read(R"({"model_type": "bert"})");
  EXPECT_EQ(model.model_type, "bert");
  const auto& bert = model.architecture.as<BertSpec>();
  EXPECT_EQ(bert.vocab_size, 30522);
  EXPECT_EQ(bert.hidden_size, 768);
  EXPECT_EQ(bert.num_hidden_layers, 12);
  EXPECT_EQ(bert.num_attention_heads, 12);
  EXPECT_EQ(bert.intermediate_size, 3072);
  EXPECT_EQ(bert.max_position_embeddings, 512);
  EXPECT_EQ(bert.type_vocab_size, 2);
  EXPECT_EQ(bert.num_labels, 2);
  EXPECT_EQ(bert.hidden_act, "gelu");
  EXPECT_EQ(bert.hidden_dropout_prob, 0.1);
  EXPECT_EQ(bert.attention_probs_dropout_prob, 0.1);
  EXPECT_FALSE(bert.classifier_dropout.has_value());
  EXPECT_TRUE(bert.tie_word_embeddings);
  EXPECT_FALSE(bert.is_roberta);
  EXPECT_EQ(bert.first_position, 0);
  EXPECT_FALSE(model.checkpoint_dtype.has_value());
  const std::vector<std::string> expected = {
      "vocab_size = 30522, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12, "
      "intermediate_size = 3072, max_position_embeddings = 512, type_vocab_size = 2 "
      "(absent from config.json; transformers' defaults for bert)",
      "hidden_act = gelu (absent from config.json; transformers' default)",
      "hidden_dropout_prob = 0.1 (absent from config.json; transformers' default)",
      "attention_probs_dropout_prob = 0.1 (absent from config.json; transformers' default)",
      "tie_word_embeddings = true (absent from config.json; transformers' default)",
      "num_labels = 2 (absent from config.json; transformers' default)",
  };
  EXPECT_EQ(model.assumptions, expected);
}

// configuration_t5.py of transformers 5.17: "we tie weights always"; the key decides about the scale alone.
TEST(HfConfig, T5WithoutACheckpointTiesItsHead) {
  ModelSpec model = read(R"({"model_type": "t5", "tie_word_embeddings": false})");
  ASSERT_FALSE(model.architecture.as<T5Spec>().tie_word_embeddings);
  const std::size_t told = model.assumptions.size();
  take_as_transformers(model);
  EXPECT_TRUE(model.architecture.as<T5Spec>().tie_word_embeddings);
  EXPECT_FALSE(model.architecture.as<T5Spec>().scale_decoder_outputs);
  EXPECT_EQ(model.assumptions.size(), told + 1);

  ModelSpec llama = read(R"({"model_type": "llama", "tie_word_embeddings": false})");
  take_as_transformers(llama);
  EXPECT_FALSE(llama.architecture.as<LlamaSpec>().tie_word_embeddings);
}

TEST(HfConfig, RobertaHasItsOwnDefaults) {
  const auto roberta = architecture<BertSpec>(R"({"model_type": "roberta"})");
  EXPECT_TRUE(roberta.is_roberta);
  EXPECT_EQ(roberta.vocab_size, 50265);
  EXPECT_EQ(roberta.max_position_embeddings, 512);
  EXPECT_EQ(roberta.type_vocab_size, 2);
  EXPECT_EQ(roberta.first_position, 2);  // pad_token_id 1, and positions start behind it
  EXPECT_EQ(architecture<BertSpec>(R"({"model_type": "roberta", "pad_token_id": 0})").first_position, 1);
}

TEST(HfConfig, EncodersTakeTransformersDefaults) {
  const auto xlm = architecture<BertSpec>(R"({"model_type": "xlm-roberta"})");
  EXPECT_TRUE(xlm.is_roberta);
  EXPECT_TRUE(xlm.head_comes_first);
  EXPECT_EQ(xlm.vocab_size, 30522);
  EXPECT_EQ(xlm.first_position, 2);
  EXPECT_TRUE(architecture<BertSpec>(R"({"model_type": "camembert"})").head_comes_first);
  const auto albert = architecture<AlbertSpec>(R"({"model_type": "albert"})");
  EXPECT_EQ(albert.hidden_size, 4096);
  EXPECT_EQ(albert.num_attention_heads, 64);
  EXPECT_EQ(albert.classifier_dropout_prob, 0.1);
  const auto mpnet = architecture<MpnetSpec>(R"({"model_type": "mpnet", "max_position_embeddings": 514})");
  EXPECT_EQ(mpnet.position_limit(), 512);
}

TEST(HfConfig, ModernBertKnowsTheOlderNamesOfItsPattern) {
  const auto modern = architecture<ModernBertSpec>(R"({"model_type": "modernbert", "num_hidden_layers": 4})");
  EXPECT_THAT(modern.sliding_layers, testing::ElementsAre(false, true, true, false));
  EXPECT_FALSE(modern.pools_by_mean);
  const auto other = architecture<ModernBertSpec>(
      R"({"model_type": "modernbert", "num_hidden_layers": 4, "global_attn_every_n_layers": 2,
          "classifier_pooling": "mean"})");
  EXPECT_THAT(other.sliding_layers, testing::ElementsAre(false, true, false, true));
  EXPECT_TRUE(other.pools_by_mean);
}

TEST(HfConfig, DebertaReadsItsPositions) {
  const auto v3 = architecture<DebertaV2Spec>(
      R"({"model_type": "deberta-v2", "relative_attention": true, "position_buckets": 256, "pos_att_type": "p2c | C2P",
          "norm_rel_ebd": "layer_norm", "share_att_key": true, "position_biased_input": false})");
  EXPECT_EQ(v3.position_span, 256);
  EXPECT_TRUE(v3.buckets_positions && v3.norms_positions && v3.shares_keys);
  EXPECT_TRUE(v3.content_to_position && v3.position_to_content);
  EXPECT_FALSE(v3.position_limit().has_value());
  const auto plain = architecture<DebertaV2Spec>(
      R"({"model_type": "deberta-v2", "relative_attention": true, "pos_att_type": ["c2p"]})");
  EXPECT_EQ(plain.position_span, 512);  // max_position_embeddings
  EXPECT_FALSE(plain.buckets_positions || plain.position_to_content);
  EXPECT_EQ(plain.position_limit(), 512);
}

TEST(HfConfig, Gpt2TakesTransformersDefaults) {
  const auto gpt2 = architecture<Gpt2Spec>(R"({"model_type": "gpt2"})");
  EXPECT_EQ(gpt2.vocab_size, 50257);
  EXPECT_EQ(gpt2.n_positions, 1024);
  EXPECT_EQ(gpt2.n_embd, 768);
  EXPECT_EQ(gpt2.n_layer, 12);
  EXPECT_EQ(gpt2.n_head, 12);
  EXPECT_EQ(gpt2.n_inner, 3072);
  EXPECT_EQ(gpt2.activation_function, "gelu_new");
  EXPECT_EQ(gpt2.resid_pdrop, 0.1);
  EXPECT_EQ(gpt2.embd_pdrop, 0.1);
  EXPECT_EQ(gpt2.attn_pdrop, 0.1);
  EXPECT_TRUE(gpt2.tie_word_embeddings);
}

TEST(HfConfig, Gpt2TakesTheGeneralNamesToo) {
  const auto gpt2 = architecture<Gpt2Spec>(R"({"model_type": "gpt2", "hidden_size": 1024, "num_hidden_layers": 24,
      "num_attention_heads": 16, "max_position_embeddings": 2048, "n_inner": null})");
  EXPECT_EQ(gpt2.n_embd, 1024);
  EXPECT_EQ(gpt2.n_layer, 24);
  EXPECT_EQ(gpt2.n_head, 16);
  EXPECT_EQ(gpt2.n_positions, 2048);
  EXPECT_EQ(gpt2.n_inner, 4096);
  EXPECT_EQ(architecture<Gpt2Spec>(R"({"model_type": "gpt2", "n_inner": 1000})").n_inner, 1000);
}

TEST(HfConfig, LlamaTakesTransformersDefaults) {
  const auto llama = architecture<LlamaSpec>(R"({"model_type": "llama"})");
  EXPECT_EQ(llama.vocab_size, 32000);
  EXPECT_EQ(llama.hidden_size, 4096);
  EXPECT_EQ(llama.intermediate_size, 11008);
  EXPECT_EQ(llama.num_hidden_layers, 32);
  EXPECT_EQ(llama.num_attention_heads, 32);
  EXPECT_EQ(llama.num_key_value_heads, 32);
  EXPECT_EQ(llama.head_dim, 128);
  EXPECT_EQ(llama.max_position_embeddings, 2048);
  EXPECT_EQ(llama.hidden_act, "silu");
  EXPECT_FALSE(llama.tie_word_embeddings);
  EXPECT_FALSE(llama.attention_bias);
  EXPECT_FALSE(llama.mlp_bias);
  EXPECT_EQ(llama.attention_dropout, 0);
  EXPECT_FALSE(llama.sliding_window.has_value());
}

TEST(HfConfig, MistralDiffersFromLlama) {
  const auto mistral = architecture<LlamaSpec>(R"({"model_type": "mistral"})");
  EXPECT_EQ(mistral.intermediate_size, 14336);
  EXPECT_EQ(mistral.num_key_value_heads, 8);
  EXPECT_EQ(mistral.max_position_embeddings, 131072);
  EXPECT_EQ(mistral.sliding_window, 4096);
  EXPECT_FALSE(architecture<LlamaSpec>(R"({"model_type": "mistral", "sliding_window": null})").sliding_window);
  EXPECT_EQ(architecture<LlamaSpec>(R"({"model_type": "mistral", "num_key_value_heads": null})").num_key_value_heads,
            32);
}

TEST(HfConfig, KeyValueHeadsFollowTheAttentionHeads) {
  const ModelSpec model = read(R"({"model_type": "llama", "num_attention_heads": 16, "hidden_size": 2048})");
  EXPECT_EQ(model.architecture.as<LlamaSpec>().num_key_value_heads, 16);
  EXPECT_EQ(model.architecture.as<LlamaSpec>().head_dim, 128);
}

TEST(HfConfig, HeadDimMayBeFree) {
  const auto wide = architecture<LlamaSpec>(
      R"({"model_type": "mistral", "hidden_size": 5120, "num_attention_heads": 32, "head_dim": 128})");
  EXPECT_EQ(wide.head_dim, 128);  // 32 x 128 is not 5120: Mistral NeMo
}

TEST(HfConfig, QwenSlidesOnlyWhereTold) {
  const auto qwen2 = architecture<Qwen2Spec>(R"({"model_type": "qwen2", "sliding_window": 4096})");
  EXPECT_EQ(qwen2.vocab_size, 151936);
  EXPECT_EQ(qwen2.head_dim, 128);
  EXPECT_FALSE(qwen2.sliding_window.has_value());
  EXPECT_TRUE(qwen2.sliding_layers.empty());
  const auto qwen3 = architecture<Qwen3Spec>(R"({"model_type": "qwen3", "use_sliding_window": true,
      "num_hidden_layers": 4, "max_window_layers": 3, "hidden_size": 1024, "num_attention_heads": 16,
      "num_key_value_heads": 8})");
  EXPECT_EQ(qwen3.head_dim, 128);  // not 1024 / 16
  EXPECT_EQ(qwen3.sliding_window, 4096);
  EXPECT_EQ(qwen3.sliding_layers, (std::vector<bool>{false, false, false, true}));
}

TEST(HfConfig, GemmaAlternates) {
  EXPECT_EQ(architecture<GemmaSpec>(R"({"model_type": "gemma"})").hidden_act, "gelu_pytorch_tanh");
  const auto gemma2 = architecture<Gemma2Spec>(R"({"model_type": "gemma2", "num_hidden_layers": 4,
      "attn_logit_softcapping": null})");
  EXPECT_EQ(gemma2.sliding_layers, (std::vector<bool>{true, false, true, false}));
  EXPECT_FALSE(gemma2.attention_softcap);
  EXPECT_TRUE(gemma2.final_softcap);
  const auto gemma3 = architecture<Gemma3Spec>(R"({"model_type": "gemma3_text", "num_hidden_layers": 3,
      "sliding_window": 512, "layer_types": ["full_attention", "sliding_attention", "full_attention"]})");
  EXPECT_EQ(gemma3.sliding_layers, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(gemma3.sliding_window, 512);
  EXPECT_FALSE(gemma3.final_softcap);
  EXPECT_TRUE(gemma3.tie_word_embeddings);
}

TEST(HfConfig, Gemma3WithImagesIsItsTextModel) {
  const ModelSpec model = read(R"({"model_type": "gemma3", "dtype": "bfloat16", "vision_config": {"hidden_size": 1152},
      "text_config": {"hidden_size": 2560, "num_hidden_layers": 7, "sliding_window": 1024}})");
  const auto& text = model.architecture.as<Gemma3Spec>();
  EXPECT_EQ(text.hidden_size, 2560);
  EXPECT_EQ(text.vocab_size, 262208);
  EXPECT_EQ(text.sliding_layers, (std::vector<bool>{true, true, true, true, true, false, true}));
  EXPECT_EQ(model.checkpoint_dtype, DType::kBFloat16);
  EXPECT_THAT(model.assumptions, testing::Contains(testing::HasSubstr("gemma3 is its text model")));
  EXPECT_EQ(error_text([] { static_cast<void>(read(R"({"model_type": "gemma3"})")); }),
            "config.json: missing key \"text_config\"");
}

TEST(HfConfig, PartsOfHeadsAreRotated) {
  EXPECT_EQ(architecture<GptNeoxSpec>(R"({"model_type": "gpt_neox", "hidden_size": 1024, "num_attention_heads": 16})")
                .rotary_dim,
            16);
  EXPECT_EQ(architecture<GptNeoxSpec>(R"({"model_type": "gpt_neox", "hidden_size": 1024, "num_attention_heads": 16,
      "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}})")
                .rotary_dim,
            32);
  EXPECT_EQ(
      architecture<PhiSpec>(R"({"model_type": "phi", "hidden_size": 2560, "partial_rotary_factor": 0.4})").rotary_dim,
      32);
  EXPECT_EQ(architecture<Phi3Spec>(R"({"model_type": "phi3"})").rotary_dim, 96);
}

TEST(HfConfig, GptjRotatesAPartOfEachHead) {
  const auto gptj = architecture<GptjSpec>(R"({"model_type": "gptj"})");
  EXPECT_EQ(gptj.rotary_dim, 64);
  EXPECT_EQ(gptj.n_inner, 16384);
  EXPECT_EQ(gptj.n_layer, 28);
  EXPECT_FALSE(gptj.tie_word_embeddings);
  EXPECT_EQ(architecture<GptjSpec>(R"({"model_type": "gptj", "hidden_size": 2048, "n_inner": 99})").n_inner, 99);
}

TEST(HfConfig, OptProjectsItsEmbeddingsWhereTold) {
  EXPECT_EQ(architecture<OptSpec>(R"({"model_type": "opt"})").word_embed_proj_dim, 768);
  const auto opt = architecture<OptSpec>(R"({"model_type": "opt", "hidden_size": 1024, "num_attention_heads": 16,
      "word_embed_proj_dim": 512, "do_layer_norm_before": false})");
  EXPECT_EQ(opt.word_embed_proj_dim, 512);
  EXPECT_FALSE(opt.do_layer_norm_before);
}

TEST(HfConfig, LabelsAreCounted) {
  EXPECT_EQ(architecture<BertSpec>(R"({"model_type": "bert", "id2label": {"0": "a", "1": "b", "2": "c"}})").num_labels,
            3);
  EXPECT_EQ(architecture<BertSpec>(R"({"model_type": "bert", "num_labels": 5})").num_labels, 5);
  EXPECT_EQ(architecture<BertSpec>(R"({"model_type": "bert", "num_labels": 5, "id2label": {"0": "a"}})").num_labels, 1);
}

TEST(HfConfig, DtypeHasTwoNames) {
  EXPECT_EQ(read(R"({"model_type": "llama", "torch_dtype": "bfloat16"})").checkpoint_dtype, DType::kBFloat16);
  EXPECT_EQ(read(R"({"model_type": "llama", "dtype": "float16"})").checkpoint_dtype, DType::kFloat16);
  EXPECT_EQ(read(R"({"model_type": "llama", "dtype": "float32", "torch_dtype": "float16"})").checkpoint_dtype,
            DType::kFloat32);
  EXPECT_FALSE(read(R"({"model_type": "llama", "torch_dtype": null})").checkpoint_dtype.has_value());
}

TEST(HfConfig, AMistypedSizeIsNoticed) {
  const ModelSpec model = read(R"({"model_type": "gpt2", "n_layers": 48, "n_ctx": 1024})");
  EXPECT_EQ(model.architecture.as<Gpt2Spec>().n_layer, 12);
  EXPECT_EQ(model.assumptions[1], "key 'n_layers' of config.json is ignored; did you mean 'n_layer'?");
}

TEST(HfConfig, UnknownKeysAreIgnored) {
  EXPECT_NO_THROW(
      static_cast<void>(read(R"({"model_type": "bert", "gradient_checkpointing": false, "x": {"y": []}})")));
}

struct Wrong {
  const char* name;
  const char* text;
  std::string message;
  ErrorCode code = ErrorCode::kInput;
};

const std::string kAcceptedTypes =
    "accepted: a model of a family here ('memcalc models' lists them), or its program: "
    "python -m memcalc.record --hf config.json";

class WrongConfig : public testing::TestWithParam<Wrong> {};

TEST_P(WrongConfig, GivesOneClearLine) {
  EXPECT_EQ(error_text([] { static_cast<void>(read(GetParam().text)); }), GetParam().message);
  EXPECT_EQ(error_code([] { static_cast<void>(read(GetParam().text)); }), GetParam().code);
}

INSTANTIATE_TEST_SUITE_P(
    Configs, WrongConfig,
    testing::Values(
        Wrong{"no_type", R"({"vocab_size": 1})", "config.json: missing key \"model_type\""},
        Wrong{"empty", "{}", "config.json: missing key \"model_type\""},
        Wrong{"type_of_type", R"({"model_type": 3})", "config.json: /model_type: found 3; accepted: a string"},
        Wrong{"mistyped_type", R"({"model_type": "lama"})",
              "config.json: /model_type: found the string \"lama\"; " + kAcceptedTypes + "; did you mean 'llama'?"},
        Wrong{
            "type_with_reason", R"({"model_type": "csm"})",
            "config.json: /model_type: csm is not modelled: it trains a second decoder on frames of sound, as many as "
            "its labels choose (llama and qwen3 have its backbones); in Python memcalc.Model.from_module() takes any "
            "torch module",
            ErrorCode::kUnsupported},
        Wrong{"type_to_come", R"({"model_type": "zamba2"})",
              "config.json: /model_type: zamba2 is not modelled yet; " + kAcceptedTypes, ErrorCode::kUnsupported},
        Wrong{"layer_types", R"({"model_type": "gemma2", "layer_types": ["full_attention"]})",
              "config.json: /layer_types: has 1 entries; accepted: one for each of num_hidden_layers (26)"},
        Wrong{"layer_type", R"({"model_type": "qwen3", "use_sliding_window": true, "layer_types": ["chunked"]})",
              "config.json: /layer_types: 'chunked' is not modelled; accepted: full_attention, sliding_attention"},
        Wrong{"layerdrop", R"({"model_type": "opt", "layerdrop": 0.1})",
              "config.json: /layerdrop: leaving layers out at random is not modelled; accepted: 0",
              ErrorCode::kUnsupported},
        Wrong{"zero_layers", R"({"model_type": "bert", "num_hidden_layers": 0})",
              "config.json: /num_hidden_layers: found 0; accepted: an integer from 1 to 2000"},
        Wrong{"negative_hidden", R"({"model_type": "bert", "hidden_size": -768})",
              "config.json: /hidden_size: found -768; accepted: an integer from 1 to 1099511627776"},
        Wrong{"null_hidden", R"({"model_type": "bert", "hidden_size": null})",
              "config.json: /hidden_size: found null; accepted: an integer from 1 to 1099511627776"},
        Wrong{"huge_vocab", R"({"model_type": "bert", "vocab_size": 9223372036854775808})",
              "config.json: /vocab_size: found 9223372036854775808; accepted: an integer from 1 to 1099511627776"},
        Wrong{"bert_heads", R"({"model_type": "bert", "num_attention_heads": 7})",
              "config.json: /hidden_size: found 768; accepted: a multiple of num_attention_heads (7)"},
        Wrong{"gpt2_heads", R"({"model_type": "gpt2", "n_head": 7})",
              "config.json: /n_embd: found 768; accepted: a multiple of n_head (7)"},
        Wrong{"gptj_rotary", R"({"model_type": "gptj", "n_embd": 512, "n_head": 16})",
              "config.json: /rotary_dim: found 64; accepted: an even number up to the width of a head (32)"},
        Wrong{"llama_heads", R"({"model_type": "llama", "num_attention_heads": 7})",
              "config.json: /hidden_size: found 4096; accepted: a multiple of num_attention_heads (7)"},
        Wrong{"llama_heads_despite_head_dim", R"({"model_type": "llama", "num_attention_heads": 7, "head_dim": 64})",
              "config.json: /hidden_size: found 4096; accepted: a multiple of num_attention_heads (7)"},
        Wrong{"kv_heads", R"({"model_type": "llama", "num_key_value_heads": 6})",
              "config.json: /num_attention_heads: found 32; accepted: a multiple of num_key_value_heads (6)"},
        Wrong{"odd_head", R"({"model_type": "mistral", "head_dim": 65})",
              "config.json: /head_dim: gives a head of 65; accepted: an even one (rotary positions turn pairs)"},
        Wrong{"tower_heads", R"({"model_type": "qwen3_vl", "vision_config": {"num_heads": 64}})",
              "config.json: /vision_config/hidden_size: found 1152; accepted: a multiple of 4 x num_heads (4 x 64)"},
        Wrong{"embed_dim", R"({"model_type": "qwen2_vl", "vision_config": {"embed_dim": 1288, "hidden_size": 1536}})",
              "config.json: /vision_config/embed_dim: found 1288; accepted: a multiple of 4 x num_heads (4 x 16)"},
        Wrong{"report", R"({"needed_bytes": 1, "run": {"model": "gpt2"}})",
              "config.json: this is a report of memcalc, not a model; accepted: --config with it"},
        Wrong{"two_names", R"({"model_type": "gpt2", "n_embd": 768, "hidden_size": 1024})",
              "config.json: /hidden_size: found 1024, but n_embd is 768; accepted: one of the two names, or equal "
              "values"},
        Wrong{"dropout", R"({"model_type": "gpt2", "attn_pdrop": 10})",
              "config.json: /attn_pdrop: found 10; accepted: a number from 0 to 1"},
        Wrong{"dtype", R"({"model_type": "gpt2", "torch_dtype": "bfloat"})",
              "config.json: /torch_dtype: found the string \"bfloat\"; accepted: one of bfloat16, float16, float32, "
              "float64; did you mean 'bfloat16'?"},
        Wrong{"labels", R"({"model_type": "bert", "id2label": {}})",
              "config.json: /id2label: found an object of 0; accepted: at least one label"},
        Wrong{
            "roberta_positions", R"({"model_type": "roberta", "max_position_embeddings": 2})",
            "config.json: /max_position_embeddings: found 2; accepted: more than pad_token_id + 1 (2), where RoBERTa's "
            "positions start"},
        Wrong{"decoder_bert", R"({"model_type": "bert", "is_decoder": true})",
              "config.json: /is_decoder: true is not modelled for bert yet", ErrorCode::kUnsupported},
        Wrong{"quantized", R"({"model_type": "llama", "quantization_config": {"quant_method": "hqq"}})",
              "config.json: /quantization_config: is not modelled for llama yet; remove the key to see the plain model",
              ErrorCode::kUnsupported},
        Wrong{"overflow",
              R"({"model_type": "llama", "hidden_size": 1099511627776, "intermediate_size": 1099511627776,
                  "num_attention_heads": 1, "num_key_value_heads": 1})",
              "config.json: the parameters need more than 2^63 - 1 bytes: check layers, vocabulary and hidden size",
              ErrorCode::kOverflow}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace memcalc
