#include "memcalc/models/custom_layers.h"

#include <array>
#include <string>
#include <utility>

#include "memcalc/models/vision.h"
#include "memcalc/symbolic/capture.h"
#include "memcalc/symbolic/ops/attention.h"
#include "memcalc/symbolic/ops/conv1d.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"

namespace memcalc::custom {

namespace {

/// A module whose forward is one call.
template <typename Function>
class Functional : public LayerModule {
 public:
  explicit Functional(Function function) : function_(std::move(function)) {}
  [[nodiscard]] Tensor forward(const Tensor& x) const override { return function_(x); }

 private:
  Function function_;
};

template <typename Function>
std::unique_ptr<LayerModule> module_of(Function function) {
  return std::make_unique<Functional<Function>>(std::move(function));
}

using Module = std::unique_ptr<LayerModule>;

/// What a layer is made in.
struct Place {
  const std::string& name;
  const SampleShape& in;
  const RunSpec& run;
  ModuleBuilder& b;
};

std::string weight_of(const Place& p) { return p.name + ".weight"; }

Module make(const LinearLayer& layer, const Place& p) {
  return module_of(Linear(p.b, p.name, p.in.last(), layer.out_features, layer.bias));
}

Module make(const ConvolutionLayer& layer, const Place& p) {
  const std::int64_t channels = p.in.sizes[0];
  const ConvolutionOptions options{.stride = layer.stride, .padding = layer.padding, .groups = layer.groups};
  if (layer.dimensions == 2) {
    return module_of(Conv2d(p.b, p.name, channels, layer.out_channels, layer.kernel_size, options, layer.bias));
  }
  const Tensor weight = p.b.parameter(weight_of(p), {layer.out_channels, channels / layer.groups, layer.kernel_size});
  Tensor bias;
  if (layer.bias) bias = p.b.parameter(p.name + ".bias", {layer.out_channels}, false);
  return module_of([=](const Tensor& x) { return conv1d(x, weight, bias, options.stride[0], options.padding[0]); });
}

Module make(const NormLayer& layer, const Place& p) {
  switch (layer.kind) {
    case NormKind::kBatch: return module_of(BatchNorm2d(p.b, p.name, p.in.sizes[0]));
    case NormKind::kLayer: return module_of(LayerNorm(p.b, p.name, p.in.last()));
    case NormKind::kRms: {
      const Tensor weight = p.b.parameter(weight_of(p), {p.in.last()}, false);
      return module_of([weight](const Tensor& x) { return rms_norm(x, weight); });
    }
    case NormKind::kGroup: break;
  }
  const LayerNorm affine(p.b, p.name, p.in.sizes[0]);
  return module_of([affine, groups = layer.num_groups](const Tensor& x) {
    return group_norm(x, affine.weight, affine.bias, groups);
  });
}

/// x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin
Tensor turn(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const std::int64_t half = x.size(-1) / 2;
  Tensor kept = x * cos;
  Tensor negated = negate(slice(x, -1, half, half));
  Tensor turned = cat(std::move(negated), slice(x, -1, 0, half), -1);
  return std::move(kept) + std::move(turned) * sin;
}

class Attention : public LayerModule {
 public:
  Attention(const AttentionLayer& layer, const Place& p)
      : sizes_(attention_sizes(layer, p.in.last())),
        fused_(layer.fused),
        options_{.dropout = dropout_probability(p.run, layer.dropout), .causal = layer.causal} {
    const std::int64_t width = p.in.last();
    const std::int64_t query = sizes_.heads * sizes_.head_dim, key = sizes_.kv_heads * sizes_.head_dim;
    p.b.scope(p.name, [&] {
      if (fused_) {
        query_ = Linear(p.b, "qkv", width, query + 2 * key, layer.bias);
      } else {
        query_ = Linear(p.b, "query", width, query, layer.bias);
        key_ = Linear(p.b, "key", width, key, layer.bias);
        value_ = Linear(p.b, "value", width, key, layer.bias);
      }
      out_ = Linear(p.b, "out", query, width, layer.bias);
      return 0;
    });
    if (!layer.rotary) return;
    cos_ = p.b.buffer({p.in.sizes[0], sizes_.head_dim}, DType::kFloat32);
    sin_ = p.b.buffer({p.in.sizes[0], sizes_.head_dim}, DType::kFloat32);
  }

  [[nodiscard]] Tensor forward(const Tensor& x) const override {
    Tensor query, key, value;
    if (fused_) {
      const std::int64_t key_width = sizes_.kv_heads * sizes_.head_dim;
      std::vector<Tensor> parts = split(query_(x), 2, {sizes_.heads * sizes_.head_dim, key_width, key_width});
      query = heads(parts[0]);
      key = heads(parts[1]);
      value = heads(parts[2]);
    } else {
      query = heads(query_(x));
      key = heads(key_(x));
      value = heads(value_(x));
    }
    if (cos_.defined()) {
      query = turn(query, cos_, sin_);
      key = turn(key, cos_, sin_);
    }
    Tensor y = scaled_dot_product_attention(query, key, value, {}, options_);
    Tensor result = out_(view(contiguous(transpose(y, 1, 2)), {x.size(0), x.size(1), -1}));
    drop(query, key, value, y);
    return result;
  }

 private:
  [[nodiscard]] Tensor heads(const Tensor& x) const {
    return memcalc::transpose(view(x, {x.size(0), x.size(1), -1, sizes_.head_dim}), 1, 2);
  }

  AttentionSizes sizes_;
  bool fused_;
  SdpaOptions options_;
  Linear query_, key_, value_, out_;  // query_: all three where fused
  Tensor cos_, sin_;                  // [sequence, head_dim] where positions are rotated
};

Module make(const AttentionLayer& layer, const Place& p) { return std::make_unique<Attention>(layer, p); }

Tensor activate(Function function, const Tensor& x) {
  switch (function) {
    case Function::kRelu: return relu(x);
    case Function::kGelu: return gelu(x);
    case Function::kSilu: return silu(x);
    case Function::kTanh: return tanh(x);
    case Function::kSigmoid: return sigmoid(x);
    case Function::kLeakyRelu: return leaky_relu(x);
    case Function::kElu: return elu(x);
    case Function::kHardswish: return hardswish(x);
    case Function::kRelu6: return relu6(x);
    case Function::kMish: return mish(x);
    case Function::kSoftplus: break;
  }
  return softplus(x);
}

Tensor activate_in_place(Function function, const Tensor& x) {
  switch (function) {
    case Function::kRelu: return relu_in_place(x);
    case Function::kSilu: return silu_in_place(x);
    case Function::kHardswish: return hardswish_in_place(x);
    default: break;
  }
  return relu6_in_place(x);
}

Module make(const ActivationLayer& layer, const Place&) {
  return module_of([layer](const Tensor& x) {
    return layer.in_place ? activate_in_place(layer.function, x) : activate(layer.function, x);
  });
}

Module make(const DropoutLayer& layer, const Place& p) {
  return module_of(
      [probability = dropout_probability(p.run, layer.p)](const Tensor& x) { return dropout(x, probability); });
}

Module make(const PoolLayer& layer, const Place&) {
  return module_of([layer](const Tensor& x) {
    const bool image = x.rank() == 4;
    switch (layer.kind) {
      case PoolKind::kMax: return (image ? max_pool2d : max_pool1d)(x, layer.kernel_size, layer.stride, layer.padding);
      case PoolKind::kAverage:
        return image ? avg_pool2d(x, layer.kernel_size, layer.stride, layer.padding)
                     : avg_pool1d(x, layer.kernel_size, layer.stride, layer.padding);
      case PoolKind::kAdaptiveAverage: break;
    }
    return (image ? adaptive_avg_pool2d : adaptive_avg_pool1d)(x, layer.output_size);
  });
}

Module make(const FlattenLayer& layer, const Place&) {
  return module_of([layer](const Tensor& x) {
    const auto last = static_cast<int>(layer.end_dim < 0 ? x.rank() - 1 : layer.end_dim);
    Shape shape;
    for (int i = 0; i < x.rank(); ++i) {
      if (i > layer.start_dim && i <= last) {
        shape[-1] *= x.size(i);
      } else {
        shape.dims[static_cast<std::size_t>(shape.rank++)] = x.size(i);
      }
    }
    return reshape(x, shape);
  });
}

Module make(const TransposeLayer& layer, const Place&) {
  return module_of([layer](const Tensor& x) {
    return memcalc::transpose(x, static_cast<int>(layer.dim0), static_cast<int>(layer.dim1));
  });
}

Module make(const MeanLayer& layer, const Place&) {
  return module_of([dim = static_cast<int>(layer.dim)](const Tensor& x) { return mean_over(x, dim); });
}

Module make(const FirstLayer& layer, const Place&) {
  return module_of([dim = static_cast<int>(layer.dim)](const Tensor& x) { return select(x, dim); });
}

Module make(const EmbeddingLayer& layer, const Place& p) {
  if (!layer.positions) return module_of(Embedding(p.b, p.name, layer.num_embeddings, layer.embedding_dim));
  return p.b.scope(p.name, [&] {
    const Embedding token(p.b, "token", layer.num_embeddings, layer.embedding_dim);
    const Embedding position(p.b, "position", *layer.positions, layer.embedding_dim);
    return module_of([=](const Tensor& ids) {
      Tensor by_token = token(ids);
      Tensor by_place = position(no_grad::arange(ids.tape(), ids.size(1)));
      return std::move(by_token) + std::move(by_place);
    });
  });
}

Module make(const PositionsLayer&, const Place& p) {
  Shape shape{1};
  for (const std::int64_t size : p.in.sizes) shape.dims[static_cast<std::size_t>(shape.rank++)] = size;
  return module_of([weight = p.b.parameter(weight_of(p), shape)](const Tensor& x) { return x + weight; });
}

/// Containers are made by Chain.
template <typename Container>
Module make(const Container&, const Place&) {
  throw Error(ErrorCode::kInternal, "a container is no single layer");
}

/// Copies of one block, each a chain with weights of its own.
class Repeated : public LayerModule {
 public:
  Repeated(const RepeatLayer& layer, SampleShape& shape, const RunSpec& run, ModuleBuilder& b, bool checkpoint)
      : checkpoint_(checkpoint && run.checkpointing() != Checkpointing::kNone) {
    blocks_.reserve(static_cast<std::size_t>(layer.times));
    for (std::int64_t i = 0; i < layer.times; ++i) {
      blocks_.push_back(
          b.scope(std::to_string(i), [&] { return Chain(layer.layers, shape, run, b, checkpoint && !checkpoint_); }));
    }
  }

  [[nodiscard]] Tensor forward(const Tensor& x) const override {
    Tensor input = x;
    for (const Chain& block : blocks_) {
      if (GraphCapture* capture = input.tape().modes.capture; checkpoint_ && capture != nullptr) {
        const CapturedCheckpoint checkpoint(*capture, Recomputes::kAll);  // a part of the graph
        input = block.forward(input);
      } else if (checkpoint_) {
        input = run_checkpointed({input}, 1, [&block](const KeptTensors& kept) { return block.forward(kept[0]); });
      } else {
        input = block.forward(input);
      }
    }
    return input;
  }

 private:
  bool checkpoint_;  // torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
  std::vector<Chain> blocks_;
};

/// Two chains over one input, and what joins them.
enum class Join { kAdd, kMultiply };

class TwoPaths : public LayerModule {
 public:
  TwoPaths(Join join, Chain layers, Chain beside)
      : join_(join), layers_(std::move(layers)), beside_(std::move(beside)) {}

  [[nodiscard]] Tensor forward(const Tensor& x) const override {
    if (beside_.empty()) return x + layers_.forward(x);
    Tensor left = beside_.forward(x);
    Tensor right = layers_.forward(x);
    return join_ == Join::kAdd ? std::move(left) + std::move(right) : std::move(left) * std::move(right);
  }

 private:
  Join join_;
  Chain layers_, beside_;
};

Module make_container(const Layer& layer, SampleShape& shape, const RunSpec& run, ModuleBuilder& b, bool checkpoint) {
  const auto chain = [&](const char* name, const Layers& layers, SampleShape& from) {
    return b.scope(name, [&] { return Chain(layers, from, run, b, checkpoint); });
  };
  const auto two_paths = [&](Join join, const Layers& layers, const char* name, const Layers& beside) {
    SampleShape side = shape;
    Chain main = chain("layers", layers, shape);
    Chain other;
    if (!beside.empty()) other = chain(name, beside, side);
    return std::make_unique<TwoPaths>(join, std::move(main), std::move(other));
  };
  return b.scope(layer.name, [&]() -> Module {
    if (const auto* residual = std::get_if<ResidualLayer>(&layer.kind)) {
      return two_paths(Join::kAdd, residual->layers, "shortcut", residual->shortcut);
    }
    if (const auto* gated = std::get_if<GatedLayer>(&layer.kind)) {
      return two_paths(Join::kMultiply, gated->layers, "gate", gated->gate);
    }
    if (const auto* repeat = std::get_if<RepeatLayer>(&layer.kind)) {
      return std::make_unique<Repeated>(*repeat, shape, run, b, checkpoint);
    }
    const auto& layers = std::get<SequentialLayer>(layer.kind).layers;
    return std::make_unique<Chain>(layers, shape, run, b, checkpoint);
  });
}

}  // namespace

Module make_module(const Layer& layer, const SampleShape& in, const RunSpec& run, ModuleBuilder& b) {
  const Place place{layer.name, in, run, b};
  return std::visit([&](const auto& kind) { return make(kind, place); }, layer.kind);
}

Chain::Chain(const Layers& layers, SampleShape& shape, const RunSpec& run, ModuleBuilder& b, bool checkpoint) {
  modules_.reserve(layers.size());
  for (const Layer& layer : layers) {
    if (is_container(layer)) {
      modules_.push_back(make_container(layer, shape, run, b, checkpoint));
    } else {
      modules_.push_back(make_module(layer, shape, run, b));
      shape = output_shape(layer, shape);
    }
  }
}

Tensor Chain::forward(const Tensor& x) const {
  Tensor input = x;
  for (const auto& module : modules_) input = module->forward(input);
  return input;
}

}  // namespace memcalc::custom
