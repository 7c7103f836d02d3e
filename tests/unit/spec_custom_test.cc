// Files of layers: what is read, what is refused and where, and that the models have the parameters that a count by
// hand gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "memcalc/spec/custom_reader.h"
#include "memcalc/spec/custom_shapes.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using ::testing::HasSubstr;

ModelSpec read(const std::string& text) {
  return custom::read_layers_file(JsonDocument::parse(text, "net.json").root());
}

/// A file of these layers over `input`, with `classes` to choose from.
std::string file(const std::string& input, const std::string& layers, int classes = 10) {
  return R"({"input": )" + input + R"(, "layers": [)" + layers + R"(], "loss": {"type": "cross_entropy", "classes": )" +
         std::to_string(classes) + "}}";
}

constexpr const char* kNumbers = R"({"type": "features", "shape": [784]})";
constexpr const char* kSequence = R"({"type": "features", "shape": [32, 64]})";
constexpr const char* kImages = R"({"type": "images", "size": 32})";
constexpr const char* kTokens = R"({"type": "tokens", "vocabulary": 1000, "length": 32})";

using test::registry;

ModelSpec example(const std::string& name) {
  return registry().model((test::specs_dir() / "examples" / (name + ".json")).string());
}

SymbolicRun run_of(const ModelSpec& model, const RunOptions& options = {}) {
  return run_symbolically(model, resolve(model, options).run, registry().device("h100-sxm"));
}

std::int64_t parameters_of(const ModelSpec& model) {
  std::int64_t sum = 0;
  for (const ParameterInfo& parameter : run_of(model).parameters) sum += parameter.elements;
  return sum;
}

// --- the examples

TEST(Examples, HaveTheParametersOfACountByHand) {
  EXPECT_EQ(parameters_of(example("mlp")), (784 * 512 + 512) + (512 * 512 + 512) + (512 * 10 + 10));
  EXPECT_EQ(parameters_of(example("cnn")), (3 * 32 * 9 + 32) + 2 * 32 + (32 * 64 * 9 + 64) + 2 * 64 + (64 * 10 + 10));
  const std::int64_t block =
      2 * (2 * 512) + (512 * 1536 + 1536) + (512 * 512 + 512) + (512 * 2048 + 2048) + (2048 * 512 + 512);
  EXPECT_EQ(parameters_of(example("decoder")), 32000 * 512 + 1024 * 512 + 4 * block + 2 * 512) << "the head is tied";
}

TEST(Examples, NameTheirParametersAsTorchDoes) {
  const SymbolicRun run = run_of(example("decoder"), {.sequence_length = 16});
  EXPECT_EQ(run.parameters[0].name, "layers.embedding.token.weight");
  EXPECT_EQ(run.parameters[1].name, "layers.embedding.position.weight");
  EXPECT_EQ(run.parameters[4].name, "layers.blocks.0.attend.layers.attention.qkv.weight");
  EXPECT_EQ(run.parameters[10].name, "layers.blocks.0.feed_forward.layers.mlp.0.weight");
  EXPECT_EQ(run.parameters.back().name, "layers.norm.bias") << "the tied head has none of its own";
}

TEST(Examples, TakeWhatTheFileSaysUnlessOptionsDo) {
  const ModelSpec cnn = example("cnn");
  EXPECT_EQ(resolve(cnn, {}).run.image_size, 64);
  EXPECT_EQ(resolve(cnn, {.image_size = 224}).run.image_size, 224);
  EXPECT_EQ(resolve(cnn, {}).run.training().loop, Loop::kBare);
  EXPECT_EQ(resolve(example("decoder"), {}).run.sequence_length, 1024);
  EXPECT_EQ(cnn.name, "cnn");
  EXPECT_EQ(cnn.model_type, "layers");
}

TEST(Examples, CheckpointingKeepsTheBlocksInputsOnly) {
  const ModelSpec decoder = example("decoder");
  const auto kept = [&](Checkpointing checkpointing) {
    const SymbolicRun run = run_of(decoder, {.batch_size = 4, .sequence_length = 256, .checkpointing = checkpointing});
    Bytes live = 0, peak = 0;
    for (const Event& event : run.trace.events) {
      if (event.block < 0) continue;
      const Bytes bytes = run.trace.blocks[static_cast<std::size_t>(event.block)].requested;
      live += event.kind == EventKind::kAllocate ? bytes : -bytes;
      if (event.phase == Phase::kForward) peak = std::max(peak, live);
    }
    return peak;
  };
  const Bytes of_a_block_input = 4 * 256 * 512 * 4;
  EXPECT_GT(kept(Checkpointing::kNone) - kept(Checkpointing::kFull), 4 * 8 * of_a_block_input);
}

// --- shapes

/// What the layers end in.
std::string ends_in(const std::string& input, const std::string& layers) {
  // The loss takes anything but this; its message tells what arrived.
  const std::string text = error_text([&] { (void)read(file(input, layers, 999983)); });
  const std::size_t at = text.find("found ");
  return at == std::string::npos ? text : text.substr(at + 6, text.find(" behind") - at - 6);
}

TEST(Shapes, AreThoseOfTorch) {
  EXPECT_EQ(ends_in(kNumbers, R"({"type": "linear", "out_features": 7})"), "[batch, 7]");
  EXPECT_EQ(ends_in(kSequence, R"({"type": "linear", "out_features": 7})"), "[batch, 32, 7]");
  const std::string conv = R"({"type": "conv2d", "out_channels": 8, "kernel_size": 5)";
  EXPECT_EQ(ends_in(kImages, conv + "}"), "[batch, 8, 28, 28]");
  EXPECT_EQ(ends_in(kImages, conv + R"(, "stride": 2, "padding": 1})"), "[batch, 8, 15, 15]");
  EXPECT_EQ(ends_in(kSequence, R"({"type": "conv1d", "out_channels": 8, "kernel_size": 3, "groups": 4})"),
            "[batch, 8, 62]");
  EXPECT_EQ(ends_in(kImages, R"({"type": "batch_norm"}, {"type": "max_pool", "kernel_size": 3, "stride": 2})"),
            "[batch, 3, 15, 15]");
  EXPECT_EQ(ends_in(kImages, R"({"type": "batch_norm"}, {"type": "adaptive_avg_pool", "output_size": 7})"),
            "[batch, 3, 7, 7]");
  EXPECT_EQ(ends_in(kImages, R"({"type": "batch_norm"}, {"type": "flatten", "start_dim": 2})"), "[batch, 3, 1024]");
  EXPECT_EQ(ends_in(kImages, R"({"type": "batch_norm"}, {"type": "flatten", "end_dim": 2})"), "[batch, 96, 32]");
  EXPECT_EQ(ends_in(kSequence, R"({"type": "layer_norm"}, {"type": "transpose"})"), "[batch, 64, 32]");
  EXPECT_EQ(ends_in(kSequence, R"({"type": "layer_norm"}, {"type": "mean"})"), "[batch, 64]");
  EXPECT_EQ(ends_in(kSequence, R"({"type": "layer_norm"}, {"type": "first", "dim": 2})"), "[batch, 32]");
  EXPECT_EQ(ends_in(kTokens, R"({"type": "embedding", "embedding_dim": 24})"), "[batch, 32, 24]");
  EXPECT_EQ(ends_in(kSequence, R"({"type": "repeat", "times": 3, "layers": [
                        {"type": "conv1d", "out_channels": 32, "kernel_size": 3}]})"),
            "[batch, 32, 58]")
      << "each copy takes what the one before left";
  EXPECT_EQ(ends_in(kSequence, R"({"type": "attention", "heads": 4, "head_dim": 5})"), "[batch, 32, 64]");
}

// --- what is refused

struct Wrong {
  const char* name;
  std::string text;
  std::string message;
  ErrorCode code = ErrorCode::kInput;
};

void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

class WrongFiles : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongFiles, AreRefusedWithThePlaceInTheFile) {
  const Wrong& wrong = GetParam();
  const auto call = [&] { (void)read(wrong.text); };
  EXPECT_EQ(error_text(call), "net.json: " + wrong.message);
  EXPECT_EQ(error_code(call), wrong.code);
}

const std::string kLinear = R"({"type": "linear", "out_features": 10})";

INSTANTIATE_TEST_SUITE_P(
    All, WrongFiles,
    ::testing::Values(
        Wrong{"unknown_key", file(kNumbers, R"({"type": "linear", "out_feature": 10})"),
              "/layers/0: unknown key \"out_feature\"; did you mean 'out_features'?"},
        Wrong{"missing_key", file(kNumbers, R"({"type": "linear"})"), "/layers/0: missing key \"out_features\""},
        Wrong{"unknown_type", file(kNumbers, R"({"type": "GELUU"})"),
              "/layers/0/type: found the string \"GELUU\"; accepted: one of adaptive_avg_pool, attention, avg_pool, "
              "batch_norm, conv1d, conv2d, dropout, elu, embedding, first, flatten, gated, gelu, group_norm, "
              "hardswish, layer_norm, leaky_relu, linear, max_pool, mean, mish, positions, relu, relu6, repeat, "
              "residual, rms_norm, sequential, sigmoid, silu, softplus, tanh, transpose; did you mean 'gelu'?"},
        Wrong{"unknown_top_key", R"({"layer": [], "layers": [], "input": {}, "loss": {}})",
              "unknown key \"layer\"; did you mean 'layers'?"},
        Wrong{"no_layers", file(kNumbers, ""),
              "/layers: found an array of 0; accepted: an array of at least one layer"},
        Wrong{"nested_without_layers", file(kNumbers, R"({"type": "sequential", "layers": []})"),
              "/layers/0/layers: found an array of 0; accepted: an array of at least one layer"},
        Wrong{"wrong_width", file(kNumbers, R"({"type": "linear", "in_features": 500, "out_features": 10})"),
              "/layers/0: linear takes [batch, 500], found [batch, 784]; accepted: in_features 784, or none"},
        Wrong{"wrong_width_of_a_sequence",
              file(kSequence, R"({"type": "linear", "in_features": 500, "out_features": 10})"),
              "/layers/0: linear takes [batch, ..., 500], found [batch, 32, 64]; accepted: in_features 64, or none"},
        Wrong{"wrong_channels",
              file(kImages, R"({"type": "conv2d", "in_channels": 1, "out_channels": 8, "kernel_size": 3})"),
              "/layers/0: conv2d takes [batch, 1, ...], found [batch, 3, 32, 32]; accepted: in_channels 3, or none"},
        Wrong{"conv_of_numbers", file(kNumbers, R"({"type": "conv2d", "out_channels": 8, "kernel_size": 3})"),
              "/layers/0: conv2d takes [batch, channels, height, width], found [batch, 784]"},
        Wrong{"groups", file(kImages, R"({"type": "conv2d", "out_channels": 8, "kernel_size": 3, "groups": 2})"),
              "/layers/0: conv2d has groups 2, which do not divide its 3 and 8 channels, found [batch, 3, 32, 32]"},
        Wrong{"kernel", file(kImages, R"({"type": "conv2d", "out_channels": 8, "kernel_size": 40, "padding": 3})"),
              "/layers/0: conv2d has a kernel_size of 40, which is larger than a side of [batch, 3, 32, 32] with its "
              "padding; accepted: at most 38"},
        Wrong{"heads", file(kSequence, R"({"type": "attention", "heads": 7})"),
              "/layers/0: attention has heads 7, which do not divide the width 64 of [batch, 32, 64]; accepted: a "
              "divisor of 64, or a head_dim"},
        Wrong{"kv_heads", file(kSequence, R"({"type": "attention", "heads": 8, "kv_heads": 3})"),
              "/layers/0: attention has kv_heads 3, which do not divide its heads; accepted: a divisor of 8"},
        Wrong{"odd_rotary", file(kSequence, R"({"type": "attention", "heads": 2, "head_dim": 5, "rotary": true})"),
              "/layers/0: attention has a head_dim of 5; accepted: an even one (rotary turns pairs)"},
        Wrong{"attention_of_images", file(kImages, R"({"type": "attention", "heads": 2})"),
              "/layers/0: attention takes [batch, sequence, width], found [batch, 3, 32, 32]"},
        Wrong{"num_groups", file(kImages, R"({"type": "group_norm", "num_groups": 2})"),
              "/layers/0: group_norm has num_groups 2, which do not divide the 3 channels of [batch, 3, 32, 32]"},
        Wrong{"residual", file(kImages, R"({"type": "residual", "layers": [{"type": "conv2d", "out_channels": 8,
                                            "kernel_size": 3}]})"),
              "/layers/0: residual has [batch, 3, 32, 32] + [batch, 8, 30, 30]; accepted: a shortcut that makes the "
              "shape of the layers"},
        Wrong{"shortcut", file(kNumbers, R"({"type": "residual", "layers": [{"type": "linear", "out_features": 8}],
                                 "shortcut": [{"type": "linear", "out_features": 9}]})"),
              "/layers/0: residual has [batch, 9] + [batch, 8]; accepted: equal shapes"},
        Wrong{"gated", file(kNumbers, R"({"type": "gated", "layers": [{"type": "linear", "out_features": 8}],
                                          "gate": [{"type": "linear", "out_features": 9}]})"),
              "/layers/0: gated has [batch, 9] * [batch, 8]; accepted: equal shapes"},
        Wrong{
            "classes", file(kNumbers, R"({"type": "linear", "out_features": 8})"),
            "/loss: cross_entropy takes [batch, 10] or [batch, sequence, 10], found [batch, 8] behind the last layer"},
        Wrong{"ids", file(kTokens, kLinear),
              "/layers/0: linear takes numbers, found [batch, 32] of token ids; accepted: an embedding first"},
        Wrong{"embedding_of_numbers", file(kNumbers, R"({"type": "embedding", "embedding_dim": 8})"),
              "/layers/0: embedding takes [batch, sequence] of token ids, found [batch, 784]"},
        Wrong{"short_table", file(kTokens, R"({"type": "embedding", "embedding_dim": 8, "num_embeddings": 999})"),
              "/layers/0/num_embeddings: found 999; accepted: at least the input's vocabulary (1000)"},
        Wrong{"positions", file(kTokens, R"({"type": "embedding", "embedding_dim": 8, "positions": 16})"),
              "/layers/0: embedding has 16 positions, found [batch, 32] of token ids; accepted: a sequence of at most "
              "that many tokens"},
        Wrong{"in_place", file(kNumbers, kLinear + R"(, {"type": "tanh"}, {"type": "relu", "in_place": true})"),
              "/layers/2/in_place: found true behind tanh; accepted: true directly behind a convolution, a norm, a "
              "residual, or a linear of [batch, features]"},
        Wrong{"in_place_view", file(kSequence, kLinear + R"(, {"type": "relu", "in_place": true})"),
              "/layers/1/in_place: found true behind linear; accepted: true directly behind a convolution, a norm, a "
              "residual, or a linear of [batch, features]"},
        Wrong{"names", file(kNumbers, R"({"type": "relu", "name": "1"}, )" + kLinear),
              "/layers/1/name: another layer of the list is called '1'; accepted: a name once"},
        Wrong{"dot_in_name", file(kNumbers, R"({"type": "relu", "name": "a.b"}, )" + kLinear),
              "/layers/0/name: found the string \"a.b\"; accepted: 1 to 60 letters, digits and underscores"},
        Wrong{"no_weights", file(kNumbers, R"({"type": "relu"})", 784),
              "/layers: none has weights, so there is nothing to train; accepted: at least one that has"},
        Wrong{"probability", file(kNumbers, R"({"type": "dropout", "p": 1})"),
              "/layers/0/p: found 1; accepted: a probability from 0 to less than 1"},
        Wrong{"tied_width",
              R"({"input": {"type": "tokens", "vocabulary": 100, "length": 8}, "layers": [
                  {"type": "embedding", "embedding_dim": 8}, {"type": "linear", "out_features": 9}],
                  "loss": {"type": "causal_lm"}})",
              "/loss: tie_weights: the embedding's weight is [100, 8], the head's [100, 9]; accepted: equal shapes, or "
              "false"},
        Wrong{"causal_lm_of_numbers",
              R"({"input": {"type": "features", "shape": [4]}, "layers": [{"type": "linear", "out_features": 9}],
                  "loss": {"type": "causal_lm"}})",
              "/loss: causal_lm takes token ids and [batch, sequence, width], found [batch, 4] and [batch, 9] behind "
              "the last layer"},
        // hostile
        Wrong{"many_copies", file(kNumbers, R"({"type": "repeat", "times": 1180591620717411303424, "layers": []})"),
              "/layers/0/times: found 1180591620717411303424; accepted: an integer from 1 to 10000"},
        Wrong{"many_copies_within_copies", file(kNumbers, R"({"type": "repeat", "times": 10000, "layers": [
                                   {"type": "repeat", "times": 10000, "layers": [{"type": "relu"}]}]})"),
              "/layers/0/layers/0: makes more than 10000 layers, each copy of a repeated block counted; accepted: at "
              "most that many"},
        Wrong{"copies_beyond_the_limit", file(kNumbers, R"({"type": "repeat", "times": 200, "layers": [
                                   {"type": "repeat", "times": 60, "layers": [{"type": "relu"}]}]})"),
              "/layers/0/layers/0/times: makes more than 10000 layers, each copy counted; accepted: at most that many "
              "in all"},
        Wrong{"zero", file(R"({"type": "features", "shape": [0]})", kLinear),
              "/input/shape/0: found 0; accepted: an integer from 1 to 1099511627776"},
        Wrong{"no_dimension", file(R"({"type": "features", "shape": []})", kLinear),
              "/input/shape: found an array of 0; accepted: 1 to 3 sizes, without the batch"},
        Wrong{"negative_stride",
              file(kImages, R"({"type": "conv2d", "out_channels": 8, "kernel_size": 3, "stride": -1})"),
              "/layers/0/stride: found -1; accepted: an integer from 1 to 1099511627776"},
        Wrong{"exbibytes", file(R"({"type": "features", "shape": [1048576, 1048576, 1048576]})", kLinear),
              "/input: [batch, 1048576, 1048576, 1048576] with a batch of 1 has more than 2^40 elements, which no card "
              "holds; accepted: fewer"},
        Wrong{"huge_weight", file(kNumbers, R"({"type": "linear", "out_features": 1099511627776})"),
              "/layers/0: the weight has more than 2^40 elements, which no card holds; accepted: fewer"}),
    [](const auto& test) { return test.param.name; });

TEST(WrongFilesOfAnyDepth, AreRefused) {
  std::string layers = R"({"type": "relu"})";
  for (int i = 0; i < 100; ++i) layers = R"({"type": "sequential", "layers": [)" + layers + "]}";
  EXPECT_EQ(error_text([&] { (void)read(file(kNumbers, layers)); }), "net.json: nested deeper than 64 levels");
}

TEST(Limits, TenThousandLayersAreAccepted) {
  const std::string layers = R"({"type": "repeat", "times": 4999, "layers": [{"type": "relu"}, {"type": "tanh"}]}, )";
  EXPECT_EQ(parameters_of(read(file(kNumbers, layers + kLinear))), 784 * 10 + 10);
}

// --- what a run may ask of it

std::string refusal(const ModelSpec& model, const RunOptions& options) {
  return error_text([&] { (void)resolve(model, options); });
}

TEST(RunsOfLayers, RefuseWhatAPlainModuleDoesNotHave) {
  const ModelSpec decoder = example("decoder");
  const auto broken = [](const ModelSpec& model, const RunOptions& options) {
    return error_rule([&] { (void)resolve(model, options); });
  };
  EXPECT_EQ(broken(decoder, {.loop = Loop::kTrainer}), "layers-in-a-plain-loop");
  EXPECT_EQ(broken(decoder, {.task = Task::kCausalLm}), "task-of-layers");
  EXPECT_EQ(broken(decoder, {.attention = Attention::kEager}), "layers-attention");
  EXPECT_EQ(broken(decoder, {.padding = true}), "padding-of-layers");
  EXPECT_EQ(broken(decoder, {.use_cache = true}), "cache-of-decoders");
  EXPECT_EQ(broken(example("mlp"), {.checkpointing = Checkpointing::kFull}), "layers-checkpointing");
  EXPECT_EQ(broken(registry().model("gpt2"), {.task = Task::kCustom}), "task-custom-of-layers");
}

TEST(RunsOfLayers, AreCheckedWithTheRunsOwnSizes) {
  EXPECT_THAT(refusal(example("decoder"), {.sequence_length = 2000}), HasSubstr("/layers/0: embedding has 1024 pos"));
  EXPECT_THAT(refusal(example("cnn"), {.image_size = 2}), HasSubstr("/layers/7: max_pool has a kernel_size of 2"));
  EXPECT_THAT(refusal(example("mlp"), {.batch_size = std::int64_t{1} << 40}), HasSubstr("more than 2^40 elements"));
}

// --- the types

std::string minimal(std::string_view type) {
  static const std::map<std::string_view, const char*> keys = {
      {"attention", R"("heads": 2)"},
      {"adaptive_avg_pool", R"("output_size": 1)"},
      {"avg_pool", R"("kernel_size": 2)"},
      {"conv1d", R"("out_channels": 4, "kernel_size": 1)"},
      {"conv2d", R"("out_channels": 4, "kernel_size": 1)"},
      {"dropout", R"("p": 0.1)"},
      {"embedding", R"("embedding_dim": 4)"},
      {"gated", R"("layers": [{"type": "relu"}], "gate": [{"type": "relu"}])"},
      {"group_norm", R"("num_groups": 1)"},
      {"linear", R"("out_features": 4)"},
      {"max_pool", R"("kernel_size": 2)"},
      {"repeat", R"("times": 2, "layers": [{"type": "relu"}])"},
      {"residual", R"("layers": [{"type": "relu"}])"},
      {"sequential", R"("layers": [{"type": "relu"}])"},
  };
  const auto found = keys.find(type);
  return R"({"type": ")" + std::string(type) + "\"" + (found == keys.end() ? "" : std::string(", ") + found->second) +
         "}";
}

TEST(Types, EachRunsInEveryPrecision) {
  for (const std::string_view type : custom::layer_types()) {
    const bool image = type == "conv2d";
    const std::string input = type == "embedding" ? kTokens : image ? kImages : kSequence;
    const std::string before = type == "embedding" ? "" : R"({"type": "layer_norm"}, )";
    for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kAmpFp16, Precision::kAmpBf16,
                                      Precision::kBf16, Precision::kFp16}) {
      const std::string after = R"(, {"type": "flatten"}, {"type": "linear", "out_features": 10})";
      const ModelSpec model = read(file(input, before + minimal(type) + after));
      const SymbolicRun run = run_of(model, {.batch_size = 2, .precision = precision});
      EXPECT_GT(run.trace.events.size(), 20U) << type;
    }
  }
}

TEST(Types, AreThoseOfTheSchema) {
  const JsonDocument schema = JsonDocument::read_file((test::specs_dir() / "schema" / "layers.schema.json").string());
  std::vector<std::string> types;
  const JsonObject definitions = schema.root().required_object("$defs");
  for (const std::string& key : definitions.keys()) {
    const auto properties = definitions.required_object(key).nullable_object("properties");
    if (!properties || !properties->has("type")) continue;
    const JsonObject type = properties->required_object("type");
    if (const auto one = type.optional_string("const")) types.push_back(*one);
    for (const std::string& each : type.optional_strings("enum")) types.push_back(each);
  }
  std::sort(types.begin(), types.end());
  const auto known = custom::layer_types();
  EXPECT_EQ(types, std::vector<std::string>(known.begin(), known.end()));
}

}  // namespace
}  // namespace memcalc
