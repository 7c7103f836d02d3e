// CustomSpec: a user's own model, layer by layer, as plain values. docs/specs.md says what each layer is in torch; the
// names are those of torch.nn's arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace memcalc::custom {

struct Layer;
using Layers = std::vector<Layer>;

/// nn.Linear over the last dimension.
struct LinearLayer {
  std::optional<std::int64_t> in_features;  // absent: what arrives
  std::int64_t out_features = 0;
  bool bias = true;
};

/// nn.Conv1d over [channels, length], nn.Conv2d over [channels, height, width].
struct ConvolutionLayer {
  int dimensions = 2;
  std::optional<std::int64_t> in_channels;  // absent: what arrives
  std::int64_t out_channels = 0;
  std::int64_t kernel_size = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;
  bool bias = true;
};

enum class NormKind : std::uint8_t { kLayer, kRms, kBatch, kGroup };

/// nn.LayerNorm and nn.RMSNorm over the last dimension, nn.BatchNorm1d or 2d and nn.GroupNorm over the channels.
struct NormLayer {
  NormKind kind = NormKind::kLayer;
  std::int64_t num_groups = 1;  // group norm only
};

/// Projections around F.scaled_dot_product_attention, over [sequence, width].
struct AttentionLayer {
  std::int64_t heads = 1;
  std::optional<std::int64_t> kv_heads;  // absent: as many as heads
  std::optional<std::int64_t> head_dim;  // absent: width / heads
  bool causal = false;
  bool rotary = false;
  bool fused = true;  // one linear layer makes query, key and value
  bool bias = true;   // of the projections
  double dropout = 0;
};

enum class Function : std::uint8_t {
  kRelu,
  kGelu,
  kSilu,
  kTanh,
  kSigmoid,
  kLeakyRelu,
  kElu,
  kHardswish,
  kRelu6,
  kMish,
  kSoftplus,
};

struct ActivationLayer {
  Function function = Function::kRelu;
  bool in_place = false;
};

struct DropoutLayer {
  double p = 0;
};

enum class PoolKind : std::uint8_t { kMax, kAverage, kAdaptiveAverage };

/// Over [channels, length] or [channels, height, width].
struct PoolLayer {
  PoolKind kind = PoolKind::kMax;
  std::int64_t kernel_size = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t output_size = 1;  // adaptive pooling only
};

/// Dimensions count from the batch, 0, as in torch.
struct FlattenLayer {
  std::int64_t start_dim = 1;
  std::int64_t end_dim = -1;
};
struct TransposeLayer {
  std::int64_t dim0 = 1;
  std::int64_t dim1 = 2;
};
/// x.mean(dim)
struct MeanLayer {
  std::int64_t dim = 1;
};
/// x[:, 0] and the like: the first of dimension `dim`.
struct FirstLayer {
  std::int64_t dim = 1;
};

/// nn.Embedding of token ids; with `positions` a second table is added, by place.
struct EmbeddingLayer {
  std::int64_t num_embeddings = 0;  // rows; the input's vocabulary where the file names none
  std::int64_t embedding_dim = 0;
  std::optional<std::int64_t> positions;
};

/// x + nn.Parameter of x's shape (one for all samples).
struct PositionsLayer {};

struct SequentialLayer {
  Layers layers;
};
/// `times` blocks of the same layers, each with weights of its own.
struct RepeatLayer {
  std::int64_t times = 1;
  Layers layers;
};
/// shortcut(x) + layers(x); without a shortcut x + layers(x)
struct ResidualLayer {
  Layers layers;
  Layers shortcut;
};
/// gate(x) * layers(x)
struct GatedLayer {
  Layers layers;
  Layers gate;
};

struct Layer {
  std::string name;   // as given, else its place in the list
  std::string type;   // as written
  std::string where;  // "mlp.json: /layers/3", for messages
  std::variant<LinearLayer, ConvolutionLayer, NormLayer, AttentionLayer, ActivationLayer, DropoutLayer, PoolLayer,
               FlattenLayer, TransposeLayer, MeanLayer, FirstLayer, EmbeddingLayer, PositionsLayer, SequentialLayer,
               RepeatLayer, ResidualLayer, GatedLayer>
      kind;
};

/// Made of lists of layers.
[[nodiscard]] inline bool is_container(const Layer& layer) {
  return std::visit(
      [](const auto& kind) {
        return requires { kind.layers; };
      },
      layer.kind);
}

/// Calls `visit` with every layer, each container before its contents, in the order in which they are made.
template <typename Visit>
void for_each_layer(const Layers& layers, const Visit& visit) {
  for (const Layer& layer : layers) {
    visit(layer);
    std::visit(
        [&](const auto& kind) {
          if constexpr (requires { kind.layers; }) for_each_layer(kind.layers, visit);
        },
        layer.kind);
    if (const auto* residual = std::get_if<ResidualLayer>(&layer.kind)) for_each_layer(residual->shortcut, visit);
    if (const auto* gated = std::get_if<GatedLayer>(&layer.kind)) for_each_layer(gated->gate, visit);
  }
}

template <typename Kind>
[[nodiscard]] bool has_layer(const Layers& layers) {
  bool found = false;
  for_each_layer(layers, [&](const Layer& layer) { found = found || std::holds_alternative<Kind>(layer.kind); });
  return found;
}

struct FeaturesInput {
  std::vector<std::int64_t> shape;  // of one sample
};
struct ImagesInput {
  std::int64_t channels = 3;
  std::int64_t size = 0;  // pixels a side; --image
};
struct TokensInput {
  std::int64_t vocabulary = 0;
  std::int64_t length = 0;  // tokens per sequence; --seq
};

/// F.cross_entropy of [classes] for each sample, or for each position of a sequence.
struct CrossEntropyLoss {
  std::int64_t classes = 0;
};
/// A linear head onto the vocabulary, and F.cross_entropy at each position.
struct CausalLmLoss {
  bool tie_weights = true;  // the head's weight is the embedding's
  bool bias = false;
};

}  // namespace memcalc::custom

namespace memcalc {

struct CustomSpec {
  std::variant<custom::FeaturesInput, custom::ImagesInput, custom::TokensInput> input;
  custom::Layers layers;
  std::variant<custom::CrossEntropyLoss, custom::CausalLmLoss> loss;
  std::string where;  // "mlp.json"
};

}  // namespace memcalc
