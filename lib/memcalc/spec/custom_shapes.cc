#include "memcalc/spec/custom_shapes.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "memcalc/base/bytes.h"
#include "memcalc/base/error.h"

namespace memcalc::custom {

namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 40U;

[[noreturn]] void refuse(const std::string& where, const std::string& message) {
  throw Error(ErrorCode::kInput, where + ": " + message);
}

[[noreturn]] void refuse(const Layer& layer, const std::string& message) {
  refuse(layer.where, layer.type + " " + message);
}

std::string text(std::int64_t number) { return std::to_string(number); }

/// A product of sizes that must stay within what a run can count.
void limit_elements(const std::string& where, const std::string& what, std::initializer_list<std::int64_t> sizes) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(elements, size, &elements) || elements > kMostElements) {
      refuse(where, what + " has more than 2^40 elements, which no card holds; accepted: fewer");
    }
  }
}

/// [channels, length] or [channels, height, width].
void require_image_or_sequence(const Layer& layer, const SampleShape& in) {
  if (in.rank() == 2 || in.rank() == 3) return;
  refuse(layer, "takes [batch, channels, length] or [batch, channels, height, width], found " + shown(in));
}

/// How many windows of a kernel fit along one side.
std::int64_t windows(const Layer& layer, const SampleShape& in, std::int64_t size, std::int64_t kernel,
                     std::int64_t stride, std::int64_t padding) {
  const std::int64_t reach = size + 2 * padding - kernel;
  if (reach < 0) {
    refuse(layer, "has a kernel_size of " + text(kernel) + ", which is larger than a side of " + shown(in) +
                      (padding > 0 ? " with its padding" : "") + "; accepted: at most " + text(size + 2 * padding));
  }
  return reach / stride + 1;
}

SampleShape after(const Layer& layer, const LinearLayer& linear, SampleShape in) {
  if (linear.in_features && *linear.in_features != in.last()) {
    refuse(layer, "takes [batch, " + std::string(in.rank() > 1 ? "..., " : "") + text(*linear.in_features) +
                      "], found " + shown(in) + "; accepted: in_features " + text(in.last()) + ", or none");
  }
  limit_elements(layer.where, "the weight", {in.last(), linear.out_features});
  in.sizes.back() = linear.out_features;
  return in;
}

SampleShape after(const Layer& layer, const ConvolutionLayer& conv, SampleShape in) {
  if (in.rank() != conv.dimensions + 1) {
    refuse(layer, std::string("takes [batch, channels, ") + (conv.dimensions == 1 ? "length" : "height, width") +
                      "], found " + shown(in));
  }
  const std::int64_t channels = in.sizes[0];
  if (conv.in_channels && *conv.in_channels != channels) {
    refuse(layer, "takes [batch, " + text(*conv.in_channels) + ", ...], found " + shown(in) +
                      "; accepted: in_channels " + text(channels) + ", or none");
  }
  for (const std::int64_t count : {channels, conv.out_channels}) {
    if (count % conv.groups == 0) continue;
    refuse(layer, "has groups " + text(conv.groups) + ", which do not divide its " + text(channels) + " and " +
                      text(conv.out_channels) + " channels, found " + shown(in));
  }
  const std::int64_t kernel = conv.kernel_size;
  limit_elements(layer.where, "the weight",
                 {conv.out_channels, channels / conv.groups, kernel, conv.dimensions == 2 ? kernel : 1});
  const SampleShape before = in;
  for (int i = 1; i < in.rank(); ++i) {
    std::int64_t& size = in.sizes[static_cast<std::size_t>(i)];
    size = windows(layer, before, size, kernel, conv.stride, conv.padding);
  }
  in.sizes[0] = conv.out_channels;
  return in;
}

SampleShape after(const Layer& layer, const NormLayer& norm, SampleShape in) {
  const std::int64_t channels = in.sizes[0];
  if (norm.kind == NormKind::kGroup) {
    if (in.rank() < 2) refuse(layer, "takes [batch, channels, ...], found " + shown(in));
    if (channels % norm.num_groups != 0) {
      refuse(layer, "has num_groups " + text(norm.num_groups) + ", which do not divide the " + text(channels) +
                        " channels of " + shown(in));
    }
  }
  return in;
}

SampleShape after(const Layer& layer, const AttentionLayer& attention, SampleShape in) {
  if (in.rank() != 2) refuse(layer, "takes [batch, sequence, width], found " + shown(in));
  const std::int64_t width = in.last();
  if (!attention.head_dim && width % attention.heads != 0) {
    refuse(layer, "has heads " + text(attention.heads) + ", which do not divide the width " + text(width) + " of " +
                      shown(in) + "; accepted: a divisor of " + text(width) + ", or a head_dim");
  }
  const AttentionSizes sizes = attention_sizes(attention, width);
  if (sizes.heads % sizes.kv_heads != 0) {
    refuse(layer, "has kv_heads " + text(sizes.kv_heads) + ", which do not divide its heads; accepted: a divisor of " +
                      text(sizes.heads));
  }
  if (attention.rotary && sizes.head_dim % 2 != 0) {
    refuse(layer, "has a head_dim of " + text(sizes.head_dim) + "; accepted: an even one (rotary turns pairs)");
  }
  limit_elements(layer.where, "the heads of a sample", {in.sizes[0], sizes.heads, sizes.head_dim, 3});
  limit_elements(layer.where, "the weight", {width, sizes.heads, sizes.head_dim, 3});
  return in;
}

SampleShape after(const Layer& layer, const PoolLayer& pool, SampleShape in) {
  require_image_or_sequence(layer, in);
  const SampleShape before = in;
  for (int i = 1; i < in.rank(); ++i) {
    std::int64_t& size = in.sizes[static_cast<std::size_t>(i)];
    size = pool.kind == PoolKind::kAdaptiveAverage
               ? pool.output_size
               : windows(layer, before, size, pool.kernel_size, pool.stride, pool.padding);
  }
  return in;
}

/// A dimension of the tensor, the batch being 0, as a place in the sample's shape.
std::size_t place_of(const Layer& layer, const SampleShape& in, std::int64_t dim) {
  if (dim > in.rank()) {
    refuse(layer, "names dimension " + text(dim) + ", found " + shown(in) + "; accepted: 1 to " + text(in.rank()));
  }
  return static_cast<std::size_t>(dim - 1);
}

SampleShape after(const Layer& layer, const FlattenLayer& flatten, SampleShape in) {
  const std::size_t first = place_of(layer, in, flatten.start_dim);
  const std::size_t last = flatten.end_dim < 0 ? in.sizes.size() - 1 : place_of(layer, in, flatten.end_dim);
  if (last < first || flatten.end_dim == 0) {
    refuse(layer, "has an end_dim of " + text(flatten.end_dim) + "; accepted: start_dim (" + text(flatten.start_dim) +
                      ") or beyond, or -1");
  }
  for (std::size_t i = first; i < last; ++i) {
    limit_elements(layer.where, "a sample", {in.sizes[first], in.sizes[first + 1]});
    in.sizes[first] *= in.sizes[first + 1];
    in.sizes.erase(in.sizes.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  }
  return in;
}

SampleShape after(const Layer& layer, const TransposeLayer& transpose, SampleShape in) {
  std::swap(in.sizes[place_of(layer, in, transpose.dim0)], in.sizes[place_of(layer, in, transpose.dim1)]);
  return in;
}

SampleShape without(const Layer& layer, std::int64_t dim, SampleShape in) {
  if (in.rank() < 2) refuse(layer, "leaves nothing of " + shown(in) + "; accepted: at least two dimensions");
  in.sizes.erase(in.sizes.begin() + static_cast<std::ptrdiff_t>(place_of(layer, in, dim)));
  return in;
}

SampleShape after(const Layer& layer, const MeanLayer& mean, SampleShape in) {
  return without(layer, mean.dim, std::move(in));
}
SampleShape after(const Layer& layer, const FirstLayer& first, SampleShape in) {
  return without(layer, first.dim, std::move(in));
}

SampleShape after(const Layer& layer, const EmbeddingLayer& embedding, const SampleShape& in) {
  if (embedding.positions && in.sizes[0] > *embedding.positions) {
    refuse(layer, "has " + text(*embedding.positions) + " positions, found " + shown(in) +
                      "; accepted: a sequence of at most that many tokens");
  }
  limit_elements(layer.where, "the weight", {embedding.num_embeddings, embedding.embedding_dim});
  limit_elements(layer.where, "the weight", {embedding.positions.value_or(1), embedding.embedding_dim});
  return {.sizes = {in.sizes[0], embedding.embedding_dim}};
}

/// Element-wise layers: the shape stays.
template <typename Same>
SampleShape after(const Layer&, const Same&, SampleShape in) {
  return in;
}

/// Follows lists of layers, and what stands beside each other in them.
class Follower {
 public:
  explicit Follower(std::int64_t batch) : batch_(batch) {}

  [[nodiscard]] SampleShape follow(const Layers& layers, SampleShape shape) const {
    const Layer* before = nullptr;
    for (const Layer& layer : layers) {
      if (const auto* activation = std::get_if<ActivationLayer>(&layer.kind)) {
        if (activation->in_place) check_in_place(layer, before, shape);
      }
      shape = follow(layer, shape);
      before = &layer;
    }
    return shape;
  }

  void limit(const std::string& where, const SampleShape& shape) const {
    std::int64_t elements = batch_;
    for (const std::int64_t size : shape.sizes) {
      if (__builtin_mul_overflow(elements, size, &elements) || elements > kMostElements) {
        refuse(where, shown(shape) + " with a batch of " + text(batch_) +
                          " has more than 2^40 elements, which no card holds; accepted: fewer");
      }
    }
  }

 private:
  [[nodiscard]] SampleShape follow(const Layer& layer, const SampleShape& in) const {
    if (const auto* sequential = std::get_if<SequentialLayer>(&layer.kind)) return follow(sequential->layers, in);
    if (const auto* repeat = std::get_if<RepeatLayer>(&layer.kind)) {
      SampleShape shape = in;
      for (std::int64_t i = 0; i < repeat->times; ++i) {
        SampleShape next = follow(repeat->layers, shape);
        if (next == shape) break;  // and so will every further one
        shape = std::move(next);
      }
      return shape;
    }
    if (const auto* residual = std::get_if<ResidualLayer>(&layer.kind)) {
      return same(layer, follow(residual->shortcut, in), follow(residual->layers, in),
                  residual->shortcut.empty() ? "a shortcut that makes the shape of the layers" : "equal shapes");
    }
    if (const auto* gated = std::get_if<GatedLayer>(&layer.kind)) {
      return same(layer, follow(gated->gate, in), follow(gated->layers, in), "equal shapes");
    }
    SampleShape out = output_shape(layer, in);
    limit(layer.where, out);
    return out;
  }

  static SampleShape same(const Layer& layer, const SampleShape& side, SampleShape main, const std::string& accepted) {
    if (side == main) return main;
    const bool adds = std::holds_alternative<ResidualLayer>(layer.kind);
    refuse(layer, std::string("has ") + shown(side) + (adds ? " + " : " * ") + shown(main) + "; accepted: " + accepted);
  }

  /// An operator whose own result is needed for its gradient must not be overwritten, and a view takes another path
  /// through autograd (CopySlices), which is not modelled.
  static void check_in_place(const Layer& layer, const Layer* before, const SampleShape& shape) {
    if (before != nullptr) {
      if (std::holds_alternative<ConvolutionLayer>(before->kind) || std::holds_alternative<NormLayer>(before->kind) ||
          std::holds_alternative<ResidualLayer>(before->kind)) {
        return;
      }
      if (std::holds_alternative<LinearLayer>(before->kind) && shape.rank() == 1) return;
    }
    refuse(layer.where + "/in_place", "found true behind " + (before == nullptr ? "no layer" : before->type) +
                                          "; accepted: true directly behind a convolution, a norm, a residual, or a "
                                          "linear of [batch, features]");
  }

  std::int64_t batch_;
};

}  // namespace

std::string shown(const SampleShape& shape) {
  std::string result = "[batch";
  for (const std::int64_t size : shape.sizes) result += ", " + text(size);
  return result + (shape.is_ids ? "] of token ids" : "]");
}

AttentionSizes attention_sizes(const AttentionLayer& layer, std::int64_t width) {
  return {.heads = layer.heads,
          .kv_heads = layer.kv_heads.value_or(layer.heads),
          .head_dim = layer.head_dim.value_or(width / layer.heads)};
}

SampleShape input_shape(const CustomSpec& spec) {
  if (const auto* features = std::get_if<FeaturesInput>(&spec.input)) return {.sizes = features->shape};
  if (const auto* images = std::get_if<ImagesInput>(&spec.input)) {
    return {.sizes = {images->channels, images->size, images->size}};
  }
  return {.sizes = {std::get<TokensInput>(spec.input).length}, .is_ids = true};
}

SampleShape input_shape(const CustomSpec& spec, const RunSpec& run) {
  SampleShape shape = input_shape(spec);
  if (std::holds_alternative<ImagesInput>(spec.input)) shape.sizes[1] = shape.sizes[2] = run.image_size;
  if (shape.is_ids) shape.sizes[0] = run.sequence_length;
  return shape;
}

SampleShape output_shape(const Layer& layer, const SampleShape& in) {
  const bool embeds = std::holds_alternative<EmbeddingLayer>(layer.kind);
  if (embeds != in.is_ids) {
    refuse(layer, "takes " + std::string(embeds ? "[batch, sequence] of token ids" : "numbers") + ", found " +
                      shown(in) + (embeds ? "" : "; accepted: an embedding first"));
  }
  return std::visit([&](const auto& kind) { return after(layer, kind, in); }, layer.kind);
}

SampleShape check_shapes(const CustomSpec& spec, const SampleShape& input, std::int64_t batch) {
  if (!has_layer<LinearLayer>(spec.layers) && !has_layer<ConvolutionLayer>(spec.layers) &&
      !has_layer<NormLayer>(spec.layers) && !has_layer<AttentionLayer>(spec.layers) &&
      !has_layer<EmbeddingLayer>(spec.layers) && !has_layer<PositionsLayer>(spec.layers)) {
    refuse(spec.where + ": /layers", "none has weights, so there is nothing to train; accepted: at least one that has");
  }
  const Follower follower(batch);
  follower.limit(spec.where + ": /input", input);
  SampleShape out = follower.follow(spec.layers, input);
  const std::string where = spec.where + ": /loss";
  if (out.is_ids) refuse(where, "the layers end in " + shown(out) + "; accepted: numbers");
  if (const auto* loss = std::get_if<CrossEntropyLoss>(&spec.loss)) {
    if (out.rank() > 2 || out.last() != loss->classes) {
      refuse(where, "cross_entropy takes [batch, " + text(loss->classes) + "] or [batch, sequence, " +
                        text(loss->classes) + "], found " + shown(out) + " behind the last layer");
    }
    return out;
  }
  const auto& loss = std::get<CausalLmLoss>(spec.loss);
  const auto* tokens = std::get_if<TokensInput>(&spec.input);
  if (tokens == nullptr || out.rank() != 2) {
    refuse(where, "causal_lm takes token ids and [batch, sequence, width], found " + shown(input) + " and " +
                      shown(out) + " behind the last layer");
  }
  const EmbeddingLayer* embedding = first_embedding(spec.layers);
  const std::int64_t rows = embedding->num_embeddings;
  if (loss.tie_weights && (embedding->embedding_dim != out.last() || rows != tokens->vocabulary)) {
    refuse(where, "tie_weights: the embedding's weight is [" + text(rows) + ", " + text(embedding->embedding_dim) +
                      "], the head's [" + text(tokens->vocabulary) + ", " + text(out.last()) +
                      "]; accepted: equal shapes, or false");
  }
  limit_elements(where, "the head's weight", {tokens->vocabulary, out.last()});
  follower.limit(where, {.sizes = {out.sizes[0], tokens->vocabulary}});
  return out;
}

const EmbeddingLayer* first_embedding(const Layers& layers) {
  const EmbeddingLayer* first = nullptr;
  for_each_layer(layers, [&](const Layer& layer) {
    if (first == nullptr) first = std::get_if<EmbeddingLayer>(&layer.kind);
  });
  return first;
}

}  // namespace memcalc::custom
