#include "memcalc/spec/custom_reader.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/spec/custom_shapes.h"
#include "memcalc/spec/limits.h"

namespace memcalc::custom {

namespace {

constexpr IntRange kSize = {1, std::int64_t{1} << 40U};
constexpr IntRange kPadding = {0, std::int64_t{1} << 40U};
constexpr IntRange kTimes = {1, kMostCustomLayers};
constexpr IntRange kDimension = {1, 4};  // of a layer's input, the batch being 0
constexpr DoubleRange kProbability = {0, 1};

using Keys = std::initializer_list<std::string_view>;

/// A layer's object: every one has a type and may have a name.
void refuse_other_keys(const JsonObject& json, Keys own) {
  std::vector<std::string_view> known = {"type", "name"};
  known.insert(known.end(), own.begin(), own.end());
  json.refuse_unknown_keys(known);
}

void refuse_keys_but(const JsonObject& json, Keys known) { json.refuse_unknown_keys({known.begin(), known.size()}); }

/// Counts the layers while it reads them: a block that is repeated counts as often as it is made.
class Reader {
 public:
  /// `vocabulary`: 0 where the input is no token ids.
  explicit Reader(std::int64_t vocabulary) : vocabulary_(vocabulary) {}
  [[nodiscard]] Layers layers(const JsonObject& parent, std::string_view key, std::int64_t copies);

 private:
  [[nodiscard]] Layer layer(const JsonObject& json, std::size_t place, std::int64_t copies);
  [[nodiscard]] RepeatLayer repeat(const JsonObject& json, std::int64_t copies);

  std::int64_t vocabulary_;
  std::int64_t count_ = 0;
};

LinearLayer linear(const JsonObject& json) {
  refuse_other_keys(json, {"in_features", "out_features", "bias"});
  return {.in_features = json.optional_int("in_features", kSize),
          .out_features = json.required_int("out_features", kSize),
          .bias = json.optional_bool("bias").value_or(true)};
}

ConvolutionLayer convolution(const JsonObject& json, int dimensions) {
  refuse_other_keys(json, {"in_channels", "out_channels", "kernel_size", "stride", "padding", "groups", "bias"});
  return {.dimensions = dimensions,
          .in_channels = json.optional_int("in_channels", kSize),
          .out_channels = json.required_int("out_channels", kSize),
          .kernel_size = json.required_int("kernel_size", kSize),
          .stride = json.optional_int("stride", kSize).value_or(1),
          .padding = json.optional_int("padding", kPadding).value_or(0),
          .groups = json.optional_int("groups", kSize).value_or(1),
          .bias = json.optional_bool("bias").value_or(true)};
}

NormLayer norm(const JsonObject& json, NormKind kind) {
  if (kind != NormKind::kGroup) {
    refuse_other_keys(json, {});
    return {.kind = kind};
  }
  refuse_other_keys(json, {"num_groups"});
  return {.kind = kind, .num_groups = json.required_int("num_groups", kSize)};
}

AttentionLayer attention(const JsonObject& json) {
  refuse_other_keys(json, {"heads", "kv_heads", "head_dim", "causal", "rotary", "fused", "bias", "dropout"});
  return {.heads = json.required_int("heads", kSize),
          .kv_heads = json.optional_int("kv_heads", kSize),
          .head_dim = json.optional_int("head_dim", kSize),
          .causal = json.optional_bool("causal").value_or(false),
          .rotary = json.optional_bool("rotary").value_or(false),
          .fused = json.optional_bool("fused").value_or(true),
          .bias = json.optional_bool("bias").value_or(true),
          .dropout = json.optional_double("dropout", kProbability).value_or(0)};
}

bool has_in_place_form(Function function) {
  return function == Function::kRelu || function == Function::kSilu || function == Function::kHardswish ||
         function == Function::kRelu6;
}

ActivationLayer activation(const JsonObject& json, Function function) {
  if (!has_in_place_form(function)) {
    refuse_other_keys(json, {});
    return {.function = function};
  }
  refuse_other_keys(json, {"in_place"});
  return {.function = function, .in_place = json.optional_bool("in_place").value_or(false)};
}

DropoutLayer dropout(const JsonObject& json) {
  refuse_other_keys(json, {"p"});
  const DropoutLayer layer{.p = json.required_double("p", kProbability)};
  if (layer.p == 1) throw json.error_found("p", "a probability from 0 to less than 1");
  return layer;
}

PoolLayer pool(const JsonObject& json, PoolKind kind) {
  PoolLayer layer{.kind = kind};
  if (kind == PoolKind::kAdaptiveAverage) {
    refuse_other_keys(json, {"output_size"});
    layer.output_size = json.required_int("output_size", kSize);
    return layer;
  }
  refuse_other_keys(json, {"kernel_size", "stride", "padding"});
  layer.kernel_size = json.required_int("kernel_size", kSize);
  layer.stride = json.optional_int("stride", kSize).value_or(layer.kernel_size);
  layer.padding = json.optional_int("padding", kPadding).value_or(0);
  if (layer.padding > layer.kernel_size / 2) {  // torch refuses it, too
    throw json.error_found("padding", "at most half of kernel_size (" + std::to_string(layer.kernel_size / 2) + ")");
  }
  return layer;
}

FlattenLayer flatten(const JsonObject& json) {
  refuse_other_keys(json, {"start_dim", "end_dim"});
  return {.start_dim = json.optional_int("start_dim", kDimension).value_or(1),
          .end_dim = json.optional_int("end_dim", {-1, kDimension.max}).value_or(-1)};
}

TransposeLayer transpose(const JsonObject& json) {
  refuse_other_keys(json, {"dim0", "dim1"});
  return {.dim0 = json.optional_int("dim0", kDimension).value_or(1),
          .dim1 = json.optional_int("dim1", kDimension).value_or(2)};
}

std::int64_t one_dimension(const JsonObject& json) {
  refuse_other_keys(json, {"dim"});
  return json.optional_int("dim", kDimension).value_or(1);
}

EmbeddingLayer embedding(const JsonObject& json) {
  refuse_other_keys(json, {"num_embeddings", "embedding_dim", "positions"});
  return {.num_embeddings = json.optional_int("num_embeddings", kSize).value_or(0),
          .embedding_dim = json.required_int("embedding_dim", kSize),
          .positions = json.optional_int("positions", kSize)};
}

PositionsLayer positions(const JsonObject& json) {
  refuse_other_keys(json, {});
  return {};
}

/// What needs no more than its own object.
using Leaf = decltype(Layer::kind) (*)(const JsonObject&);

struct LayerType {
  std::string_view name;
  Leaf read;  // null: a container
};

template <Function function>
decltype(Layer::kind) act(const JsonObject& json) {
  return activation(json, function);
}
template <NormKind kind>
decltype(Layer::kind) normalise(const JsonObject& json) {
  return norm(json, kind);
}
template <PoolKind kind>
decltype(Layer::kind) reduce(const JsonObject& json) {
  return pool(json, kind);
}
template <int dimensions>
decltype(Layer::kind) convolve(const JsonObject& json) {
  return convolution(json, dimensions);
}
template <auto read>
decltype(Layer::kind) as_layer(const JsonObject& json) {
  return read(json);
}

constexpr std::array kTypes = {
    LayerType{"adaptive_avg_pool", reduce<PoolKind::kAdaptiveAverage>},
    LayerType{"attention", as_layer<attention>},
    LayerType{"avg_pool", reduce<PoolKind::kAverage>},
    LayerType{"batch_norm", normalise<NormKind::kBatch>},
    LayerType{"conv1d", convolve<1>},
    LayerType{"conv2d", convolve<2>},
    LayerType{"dropout", as_layer<dropout>},
    LayerType{"elu", act<Function::kElu>},
    LayerType{"embedding", as_layer<embedding>},
    LayerType{"first", [](const JsonObject& json) -> decltype(Layer::kind) { return FirstLayer{one_dimension(json)}; }},
    LayerType{"flatten", as_layer<flatten>},
    LayerType{"gated", nullptr},
    LayerType{"gelu", act<Function::kGelu>},
    LayerType{"group_norm", normalise<NormKind::kGroup>},
    LayerType{"hardswish", act<Function::kHardswish>},
    LayerType{"layer_norm", normalise<NormKind::kLayer>},
    LayerType{"leaky_relu", act<Function::kLeakyRelu>},
    LayerType{"linear", as_layer<linear>},
    LayerType{"max_pool", reduce<PoolKind::kMax>},
    LayerType{"mean", [](const JsonObject& json) -> decltype(Layer::kind) { return MeanLayer{one_dimension(json)}; }},
    LayerType{"mish", act<Function::kMish>},
    LayerType{"positions", as_layer<positions>},
    LayerType{"relu", act<Function::kRelu>},
    LayerType{"relu6", act<Function::kRelu6>},
    LayerType{"repeat", nullptr},
    LayerType{"residual", nullptr},
    LayerType{"rms_norm", normalise<NormKind::kRms>},
    LayerType{"sequential", nullptr},
    LayerType{"sigmoid", act<Function::kSigmoid>},
    LayerType{"silu", act<Function::kSilu>},
    LayerType{"softplus", act<Function::kSoftplus>},
    LayerType{"tanh", act<Function::kTanh>},
    LayerType{"transpose", as_layer<transpose>},
};

constexpr auto kTypeNames = [] {
  std::array<std::string_view, kTypes.size()> names;
  std::transform(kTypes.begin(), kTypes.end(), names.begin(), [](const LayerType& type) { return type.name; });
  return names;
}();

/// A name becomes a part of the parameters' names.
std::string name_of(const JsonObject& json, std::size_t place) {
  const std::optional<std::string> name = json.optional_string("name");
  if (!name) return std::to_string(place);
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  if (name->empty() || name->size() > 60 || name->find_first_not_of(allowed) != std::string::npos) {
    throw json.error_found("name", "1 to 60 letters, digits and underscores");
  }
  return *name;
}

RepeatLayer Reader::repeat(const JsonObject& json, std::int64_t copies) {
  refuse_other_keys(json, {"times", "layers"});
  RepeatLayer layer{.times = json.required_int("times", kTimes)};
  // Neither factor passes the limit by more than itself, so the product fits.
  const std::int64_t inner = copies * layer.times;
  if (inner > kMostCustomLayers) {
    throw json.error("times", "makes more than " + std::to_string(kMostCustomLayers) +
                                  " layers, each copy counted; accepted: at most that many in all");
  }
  layer.layers = layers(json, "layers", inner);
  return layer;
}

Layer Reader::layer(const JsonObject& json, std::size_t place, std::int64_t copies) {
  count_ += copies;
  if (count_ > kMostCustomLayers) {
    throw json.error("", "makes more than " + std::to_string(kMostCustomLayers) +
                             " layers, each copy of a repeated block counted; accepted: at most that many");
  }
  Layer layer;
  layer.type = json.required_choice("type", kTypeNames);
  layer.name = name_of(json, place);
  layer.where = json.where();
  const auto* type =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const LayerType& t) { return t.name == layer.type; });
  if (type->read != nullptr) {
    layer.kind = type->read(json);
    if (auto* embedding = std::get_if<EmbeddingLayer>(&layer.kind)) {
      if (embedding->num_embeddings == 0) embedding->num_embeddings = vocabulary_;
      if (embedding->num_embeddings < vocabulary_) {
        throw json.error_found("num_embeddings",
                               "at least the input's vocabulary (" + std::to_string(vocabulary_) + ")");
      }
    }
  } else if (layer.type == "repeat") {
    layer.kind = repeat(json, copies);
  } else if (layer.type == "residual") {
    refuse_other_keys(json, {"layers", "shortcut"});
    ResidualLayer residual{.layers = layers(json, "layers", copies), .shortcut = {}};
    if (json.has("shortcut")) residual.shortcut = layers(json, "shortcut", copies);
    layer.kind = std::move(residual);
  } else if (layer.type == "gated") {
    refuse_other_keys(json, {"layers", "gate"});
    Layers gate = layers(json, "gate", copies);
    layer.kind = GatedLayer{.layers = layers(json, "layers", copies), .gate = std::move(gate)};
  } else {
    refuse_other_keys(json, {"layers"});
    layer.kind = SequentialLayer{layers(json, "layers", copies)};
  }
  return layer;
}

Layers Reader::layers(const JsonObject& parent, std::string_view key, std::int64_t copies) {
  const std::vector<JsonObject> list = parent.optional_objects(key);
  if (list.empty()) throw parent.error_found(key, "an array of at least one layer");
  Layers result;
  std::set<std::string> names;
  for (const JsonObject& json : list) {
    result.push_back(layer(json, result.size(), copies));
    if (!names.insert(result.back().name).second) {
      throw json.error("name",
                       "another layer of the list is called '" + result.back().name + "'; accepted: a name once");
    }
  }
  return result;
}

constexpr std::array<std::string_view, 3> kInputTypes = {"features", "images", "tokens"};

decltype(CustomSpec::input) read_input(const JsonObject& json) {
  const std::string type = json.required_choice("type", kInputTypes);
  if (type == "features") {
    refuse_keys_but(json, {"type", "shape"});
    FeaturesInput input{json.required_ints("shape", kSize)};
    constexpr std::size_t kMostDimensions = 3;
    if (input.shape.empty() || input.shape.size() > kMostDimensions) {
      throw json.error_found("shape", "1 to 3 sizes, without the batch");
    }
    return input;
  }
  if (type == "images") {
    refuse_keys_but(json, {"type", "channels", "size"});
    return ImagesInput{.channels = json.optional_int("channels", kSize).value_or(3),
                       .size = json.required_int("size", kSize)};
  }
  refuse_keys_but(json, {"type", "vocabulary", "length"});
  return TokensInput{.vocabulary = json.required_int("vocabulary", kSize),
                     .length = json.required_int("length", kSize)};
}

constexpr std::array<std::string_view, 2> kLossTypes = {"causal_lm", "cross_entropy"};

decltype(CustomSpec::loss) read_loss(const JsonObject& json) {
  if (json.required_choice("type", kLossTypes) == "cross_entropy") {
    refuse_keys_but(json, {"type", "classes"});
    return CrossEntropyLoss{json.required_int("classes", kSize)};
  }
  refuse_keys_but(json, {"type", "tie_weights", "bias"});
  return CausalLmLoss{.tie_weights = json.optional_bool("tie_weights").value_or(true),
                      .bias = json.optional_bool("bias").value_or(false)};
}

constexpr std::array<std::string_view, 6> kFileKeys = {"$schema", "name", "notes", "input", "layers", "loss"};

}  // namespace

std::span<const std::string_view> layer_types() { return kTypeNames; }

bool is_layers_file(const JsonObject& json) {
  return json.has("layers") && !json.has("model_type") && !json.has("config");
}

ModelSpec read_layers_file(const JsonObject& json) {
  json.refuse_unknown_keys(kFileKeys);
  for (const std::string_view text : {"$schema", "notes"}) static_cast<void>(json.optional_string(text));
  CustomSpec spec;
  spec.where = json.where();
  spec.input = read_input(json.required_object("input"));
  const auto* tokens = std::get_if<TokensInput>(&spec.input);
  spec.layers = Reader(tokens != nullptr ? tokens->vocabulary : 0).layers(json, "layers", 1);
  spec.loss = read_loss(json.required_object("loss"));
  check_shapes(spec, input_shape(spec), 1);

  ModelSpec model;
  model.name = json.optional_string("name").value_or(std::filesystem::path(json.file()).stem().string());
  if (model.name.empty()) throw json.error_found("name", "a name of at least one letter");
  model.model_type = "layers";
  model.architecture = std::move(spec);
  model.source = json.file();
  return model;
}

}  // namespace memcalc::custom
