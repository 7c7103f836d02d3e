// Swin Transformer (v1): torchvision models/swin_transformer.py.
// MIRRORS(torchvision, "models/swin_transformer.py", "0.26.0")
#include <algorithm>
#include <array>

#include "memcalc/families/torchvision/networks.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"

namespace memcalc {

namespace {

constexpr std::int64_t kWindow = 7;

struct Variant {
  std::string_view name;
  std::int64_t width;
  std::array<int, 4> blocks;
  std::int64_t heads;  // of the first stage; doubles with the width
  double stochastic_depth;
};

constexpr Variant kVariants[] = {{"swin_t", 96, {2, 2, 6, 2}, 3, 0.2},
                                 {"swin_s", 96, {2, 2, 18, 2}, 3, 0.3},
                                 {"swin_b", 128, {2, 2, 18, 2}, 4, 0.5},
                                 // No function of torchvision: its class with the sizes of Microsoft's Swin-L.
                                 {"swin_l", 192, {2, 2, 18, 2}, 6, 0.2}};

/// ShiftedWindowAttention.
struct WindowAttention {
  Linear qkv, proj;
  Tensor bias_table, position_index;
  std::int64_t heads;
  bool shifts;

  WindowAttention(ModuleBuilder& b, std::int64_t dim, std::int64_t heads, bool shifts) : heads(heads), shifts(shifts) {
    const std::size_t first = b.parameters.size();
    qkv = Linear(b, "qkv", dim, 3 * dim);
    proj = Linear(b, "proj", dim, dim);
    bias_table = b.parameter("relative_position_bias_table", {(2 * kWindow - 1) * (2 * kWindow - 1), heads});
    std::rotate(b.parameters.begin() + static_cast<std::ptrdiff_t>(first), b.parameters.end() - 1, b.parameters.end());
    define_relative_position_index(b);
  }

  void define_relative_position_index(ModuleBuilder& b) {
    constexpr std::int64_t kTokens = kWindow * kWindow;
    Tensor rows = no_grad::arange(b.tape, kWindow);
    Tensor columns = no_grad::arange(b.tape, kWindow);
    // torch.stack(torch.meshgrid(rows, columns))
    Tensor coordinates =
        no_grad::cat(no_grad::expand(no_grad::view(rows, {1, kWindow, 1}), {1, kWindow, kWindow}),
                     no_grad::expand(no_grad::view(columns, {1, 1, kWindow}), {1, kWindow, kWindow}), 0);
    Tensor relative =
        no_grad::subtract(no_grad::view(coordinates, {2, kTokens, 1}), no_grad::view(coordinates, {2, 1, kTokens}));
    relative = no_grad::clone(relative);  // permute(1, 2, 0).contiguous()
    position_index = b.buffer({kTokens * kTokens}, DType::kInt64);
    drop(rows, columns, coordinates, relative);
  }

  [[nodiscard]] Tensor relative_position_bias() const {
    constexpr std::int64_t kTokens = kWindow * kWindow;
    Tensor bias = index_rows(bias_table, position_index);
    bias = view(bias, {kTokens, kTokens, -1});
    bias = unsqueeze(contiguous(permute(bias, {2, 0, 1})), 0);
    return bias;
  }

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    const Tensor bias = relative_position_bias();
    return shifted_window_attention(input, bias);
  }

  /// Which tokens of a shifted window really are neighbours.
  [[nodiscard]] static Tensor attention_mask(const Tensor& x, std::int64_t height, std::int64_t width) {
    constexpr std::int64_t kTokens = kWindow * kWindow;
    const std::int64_t windows = height / kWindow * (width / kWindow);
    Tensor mask = no_grad::new_zeros(x.tape(), {height, width}, x.dtype());
    mask = no_grad::clone(no_grad::view(mask, {windows, kTokens}));  // permuted into windows, so reshaped by copying
    mask = no_grad::subtract(no_grad::view(mask, {windows, 1, kTokens}), no_grad::view(mask, {windows, kTokens, 1}));
    Tensor filled = no_grad::masked_fill(mask, no_grad::not_equal(mask));
    mask = no_grad::masked_fill(std::move(filled), no_grad::equal(mask));
    return mask;
  }

  [[nodiscard]] Tensor shifted_window_attention(const Tensor& input, const Tensor& bias) const {
    const std::int64_t batch = input.size(0), height = input.size(1), width = input.size(2), channels = input.size(3);
    const auto padded = [](std::int64_t n) { return (n + kWindow - 1) / kWindow * kWindow; };
    const std::int64_t pad_h = padded(height), pad_w = padded(width);
    constexpr std::int64_t kTokens = kWindow * kWindow;
    const bool shift = shifts && (kWindow < pad_h || kWindow < pad_w);
    Tensor x = pad_to(input, {batch, pad_h, pad_w, channels});
    if (shift) x = roll(x);
    const std::int64_t rows = pad_h / kWindow, columns = pad_w / kWindow, windows = rows * columns;
    x = view(x, {batch, rows, kWindow, columns, kWindow, channels});
    x = reshape(permute(x, {0, 1, 3, 2, 4, 5}), {batch * windows, kTokens, channels});
    Tensor qkv_states = qkv(x);
    qkv_states = permute(reshape(qkv_states, {x.size(0), kTokens, 3, heads, channels / heads}), {2, 0, 3, 1, 4});
    Tensor q = select(qkv_states, 0);
    Tensor k = select(qkv_states, 0);
    Tensor v = select(qkv_states, 0);
    q = multiply_scalar(q);
    Tensor attn = matmul(q, transpose(k, -2, -1));
    attn = attn + bias;
    Tensor attn_mask;
    if (shift) {
      attn_mask = attention_mask(x, pad_h, pad_w);
      attn = view(attn, {batch, windows, heads, kTokens, kTokens});
      attn = attn + unsqueeze(unsqueeze(attn_mask, 1), 0);
      attn = view(attn, {-1, heads, kTokens, kTokens});
    }
    attn = softmax(attn);
    x = reshape(transpose(matmul(attn, v), 1, 2), {x.size(0), kTokens, channels});
    x = proj(x);
    x = view(x, {batch, rows, columns, kWindow, kWindow, channels});
    x = reshape(permute(x, {0, 1, 3, 2, 4, 5}), {batch, pad_h, pad_w, channels});
    if (shift) x = roll(x);
    x = open_slices(std::move(x), {0});
    if (pad_h != height) x = slice(x, 1, 0, height);
    if (pad_w != width) x = slice(x, 2, 0, width);
    x = open_slices(std::move(x), {3});
    x = contiguous(x);
    drop(qkv_states, q, k, v, attn, attn_mask);
    return x;
  }
};

struct Block {
  LayerNorm norm1, norm2;
  std::vector<WindowAttention> attention;  // one; made between the norms
  Linear fc1, fc2;
  double drop_probability;

  Block(ModuleBuilder& b, std::int64_t dim, std::int64_t heads, bool shifts, double drop)
      : norm1(b, "norm1", dim), drop_probability(drop) {
    attention.push_back(b.scope("attn", [&] { return WindowAttention(b, dim, heads, shifts); }));
    norm2 = LayerNorm(b, "norm2", dim);
    fc1 = Linear(b, "mlp.0", dim, 4 * dim);
    fc2 = Linear(b, "mlp.3", 4 * dim, dim);
  }

  [[nodiscard]] Tensor mlp(const Tensor& x) const {
    Tensor input = fc1(x);
    input = gelu(input);
    input = fc2(input);
    return input;
  }

  [[nodiscard]] Tensor forward(Tensor x) const {
    const auto residual = [&](const LayerNorm& norm, auto branch_of) {
      Tensor normed = norm(x);
      Tensor branch = branch_of(normed);
      normed.reset();
      branch = stochastic_depth(branch, drop_probability);
      Tensor sum = x + branch;
      branch.reset();
      x = std::move(sum);
    };
    residual(norm1, [&](const Tensor& normed) { return attention[0].forward(normed); });
    residual(norm2, [&](const Tensor& normed) { return mlp(normed); });
    return x;
  }
};

/// Four neighbouring pixels become one of twice the channels.
struct PatchMerging {
  LayerNorm norm;
  Linear reduction;
  PatchMerging(ModuleBuilder& b, std::int64_t dim) : reduction(b, "reduction", 4 * dim, 2 * dim, false) {
    norm = LayerNorm(b, "norm", 4 * dim);
  }

  [[nodiscard]] static Tensor merge(const Tensor& input) {
    Tensor x = pad_to(
        input, {input.size(0), input.size(1) + input.size(1) % 2, input.size(2) + input.size(2) % 2, input.size(3)});
    std::array<Tensor, 4> parts;
    for (Tensor& part : parts) part = open_slices(every_second(every_second(x, -3), -2), {3});
    x = cat4(parts, -1);
    return x;
  }
  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor x = merge(input);
    x = norm(x);
    x = reduction(x);
    return x;
  }
};

class Swin : public ImageClassifier {
 public:
  Swin(const Variant& variant, std::int64_t num_classes, ModuleBuilder& b)
      : stem_(b, "features.0.0", 3, variant.width, 4, {.stride = 4}, true),
        stem_norm_(b, "features.0.2", variant.width) {
    int total = 0;
    for (const int blocks : variant.blocks) total += blocks;
    int number = 0;
    std::int64_t dim = variant.width;
    for (std::size_t stage = 0; stage < 4; ++stage) {
      const std::int64_t heads = variant.heads << stage;
      for (int i = 0; i < variant.blocks[stage]; ++i) {
        const double drop = variant.stochastic_depth * number++ / (total - 1);
        blocks_[stage].push_back(b.scope("features." + std::to_string(2 * stage + 1) + "." + std::to_string(i),
                                         [&] { return Block(b, dim, heads, i % 2 == 1, drop); }));
      }
      if (stage == 3) break;
      merging_.push_back(b.scope("features." + std::to_string(2 * stage + 2), [&] { return PatchMerging(b, dim); }));
      dim *= 2;
    }
    norm_ = LayerNorm(b, "norm", dim);
    head_ = Linear(b, "head", dim, num_classes);
  }

  [[nodiscard]] Tensor forward(Tensor x) const override {
    x = features(x);
    x = norm_(x);
    x = permute(x, {0, 3, 1, 2});
    x = adaptive_avg_pool2d(x, 1);
    x = view(x, {x.size(0), -1});
    x = head_(x);
    return x;
  }

 private:
  [[nodiscard]] Tensor stem(const Tensor& image) const {
    Tensor input = stem_(image);
    input = permute(input, {0, 2, 3, 1});
    input = stem_norm_(input);
    return input;
  }
  [[nodiscard]] Tensor run(std::size_t stage, const Tensor& x) const {
    Tensor input = x;
    for (const Block& block : blocks_[stage]) input = block.forward(input);
    return input;
  }
  [[nodiscard]] Tensor features(const Tensor& image) const {
    Tensor input = stem(image);
    for (std::size_t stage = 0; stage < 4; ++stage) {
      input = run(stage, input);
      if (stage < 3) input = merging_[stage].forward(input);
    }
    return input;
  }

  Conv2d stem_;
  LayerNorm stem_norm_;
  std::array<std::vector<Block>, 4> blocks_;
  std::vector<PatchMerging> merging_;
  LayerNorm norm_;
  Linear head_;
};

}  // namespace

std::unique_ptr<ImageClassifier> build_swin(const TorchvisionSpec& spec, ModuleBuilder& builder) {
  for (const Variant& variant : kVariants) {
    if (variant.name == spec.architecture) return std::make_unique<Swin>(variant, spec.num_classes, builder);
  }
  return nullptr;
}

}  // namespace memcalc
