// MIRRORS(unsloth, "kernels/fast_lora.py", "2026.10.9")
// MIRRORS(unsloth, "kernels/qk_norm_rope.py", "2026.10.9")
// MIRRORS(unsloth, "kernels/rms_layernorm.py", "2026.10.9")
// MIRRORS(unsloth, "kernels/rope_embedding.py", "2026.10.9")
// MIRRORS(unsloth, "kernels/swiglu.py", "2026.10.9")
// MIRRORS(unsloth, "kernels/utils.py", "2026.10.9")
// MIRRORS(unsloth, "utils/attention_dispatch.py", "2026.10.9")
// MIRRORS(unsloth_zoo, "fused_losses/fused_linear.py", "2026.10.9")
#include "memcalc/symbolic/ops/unsloth.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/attention.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kUnslothNorm{"unsloth::rms_layernorm"}, kUnslothNormBackward{"Fast_RMS_LayernormBackward"};
constexpr Operator kUnslothRotate{"unsloth::rope_embedding"}, kUnslothRotateBackward{"Fast_RoPE_EmbeddingBackward"};
constexpr Operator kNormRotate{"unsloth::qk_norm_rope"}, kNormRotateBackward{"Fast_QK_Norm_RoPEBackward"};
constexpr Operator kAdaptersBackward{"LoRA adapters"}, kLoraW{"LoRA_WBackward"}, kLoraQkv{"LoRA_QKVBackward"};
constexpr Operator kLoraMlp{"LoRA_MLPBackward"}, kSwiGluKernel{"unsloth::swiglu_fg"},
    kUnpack{"unsloth::dequantize_nf4"};
constexpr Operator kFusedLoss{"unsloth_zoo::fused_linear_ce"}, kFusedLossBackward{"fused_linear_ceBackward"};
constexpr Operator kPositions{"unsloth::cos_sin_cache"};

double number(std::int64_t count) { return static_cast<double>(count); }

// --- norms and positions

void unsloth_norm_backward(BackwardCall& call) { call.set(0, call.take_gradient()); }  // saved: x, r; dX in dY's place

/// _bshd_buffer: [batch, heads, sequence, width] whose heads stand side by side.
Tensor heads_side_by_side(const Tensor& x, const Operator& op) {
  const Shape& s = x.shape();
  return x.tape().empty_strided(s, {s[1] * s[2] * s[3], s[3], s[1] * s[3], 1}, x.dtype(), op);
}

void unsloth_rotate_backward(BackwardCall& call) {
  Tensor query = heads_side_by_side(call.gradient(0), kUnslothRotateBackward);
  Tensor key = heads_side_by_side(call.gradient(1), kUnslothRotateBackward);
  call.set(0, std::move(query));
  call.set(1, std::move(key));
}

void norm_and_rotate_backward(BackwardCall& call) {
  const auto gradient_of = [&](int i) {
    const Shape& s = call.gradient(i).shape();
    return call.tape.empty(s, call.gradient(i).dtype(), kNormRotateBackward);
  };
  Tensor query = gradient_of(0);
  Tensor key = gradient_of(1);
  call.set(0, std::move(query));
  call.set(1, std::move(key));
}

// --- products and their adapters

/// The adapters of a product are inputs of the function, of which a node has no room for so many: a node of their own
/// passes their gradients on.
struct AdapterGradients {
  std::shared_ptr<Tensor> of_b;  // that of A comes as the gradient
};

struct LoraPayload {
  std::vector<UnslothProduct> products;
  std::vector<AdapterGradients> gradients;
  Shape shape;  // of x
};

void adapters_backward(BackwardCall& call) {
  call.set(0, call.take_gradient());
  call.set(1, std::move(*call.payload<AdapterGradients>().of_b));
}

/// Stands for the adapters among the function's inputs; takes no memory.
Tensor token_of(Tape& tape, const UnslothProduct& product, AdapterGradients& gradients) {
  const Tensor* inputs[] = {&product.lora_a, &product.lora_b};
  Tensor token = tape.empty({0}, product.lora_a.dtype(), kAdaptersBackward);
  Node* node = tape.autograd.record(kAdaptersBackward, adapters_backward, inputs, 2);
  if (node == nullptr) return token;
  gradients.of_b = std::make_shared<Tensor>();
  node->payload.set(gradients);
  tape.autograd.set_history(node, token);
  node->outputs_differ = true;  // what arrives has the shape of A
  return token;
}

void log_product(Tape& tape, DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  tape.memory.use_cublas(false);
  tape.kernels.product(aten::kMm, dtype, 1, rows, columns, inner);
}

Tensor product_of(Tape& tape, DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  Tensor result = tape.empty({rows, columns}, dtype, aten::kMm);
  log_product(tape, dtype, rows, columns, inner);
  return result;
}

void log_unpacking(Tape& tape, const UnslothProduct& product, DType dtype) {
  const std::int64_t elements = product.in() * product.out();
  tape.kernels.add(kUnpack, OperatorClass::kElementwise, dtype, number(elements), 2.5 * number(elements));
}

/// fast_dequantize(use_global_buffer=True): into one buffer that grows to the largest weight and stays.
void unpack_into_buffer(Tape& tape, const UnslothProduct& product, DType dtype) {
  if (product.packed == nullptr) return;
  const std::int64_t elements = product.in() * product.out();
  Tensor& buffer = tape.modes.unsloth.unpacked;
  if (!buffer.defined() || buffer.elements() < elements) buffer = tape.empty({elements}, dtype, kUnpack);
  log_unpacking(tape, product, dtype);
}

/// The same without the buffer, for as long as the result lives.
Tensor unpacked(Tape& tape, const UnslothProduct& product, DType dtype) {
  if (product.packed == nullptr) return {};
  log_unpacking(tape, product, dtype);
  return tape.empty({product.out(), product.in()}, dtype, kUnpack);
}

/// matmul_lora of `rows` rows, from `in` to `out` numbers each. Adapters that were cast before are cast no more.
Tensor matmul_lora(Tape& tape, const UnslothProduct& product, DType dtype, std::int64_t rows, bool backward) {
  const std::int64_t from = backward ? product.out() : product.in(), to = backward ? product.in() : product.out();
  unpack_into_buffer(tape, product, dtype);
  Tensor result = product_of(tape, dtype, rows, to, from);
  Tensor low;
  {
    const Tensor first = backward ? Tensor() : to_dtype(product.lora_a, dtype);
    low = product_of(tape, dtype, rows, product.rank(), from);
  }
  {
    const Tensor second = backward ? Tensor() : to_dtype(product.lora_b, dtype);
    log_product(tape, dtype, rows, to, product.rank());
  }
  low.reset();
  return result;
}

Shape with_last(Shape shape, std::int64_t last) {
  shape[-1] = last;
  return shape;
}

/// Gradients of the adapters of a function, while it runs.
struct AdapterWork {
  std::vector<Tensor> casts;      // the adapters in the activations' type
  std::vector<Tensor> gradients;  // empty_like(A), empty_like(B), and so on
  std::vector<Tensor> low;        // dY @ B.T

  void cast(const LoraPayload& lora, DType dtype) {
    for (const UnslothProduct& each : lora.products) {
      casts.push_back(to_dtype(each.lora_a, dtype));
      casts.push_back(to_dtype(each.lora_b, dtype));
    }
  }
  void make_gradients(Tape& tape, const UnslothProduct& product, DType dtype) {
    gradients.push_back(tape.empty(product.lora_a.shape(), dtype, aten::kEmptyLike));
    gradients.push_back(tape.empty(product.lora_b.shape(), dtype, aten::kEmptyLike));
  }
  /// d_A.addmm_(X.t(), low), d_B.addmm_(A.t() @ X.t(), dY)
  static void fill(Tape& tape, const UnslothProduct& product, DType dtype, std::int64_t rows) {
    log_product(tape, dtype, product.rank(), product.in(), rows);
    const Tensor inner = product_of(tape, dtype, product.rank(), rows, product.in());
    log_product(tape, dtype, product.rank(), product.out(), rows);
  }
  void drop_locals() {
    for (Tensor& each : casts) each.reset();
    for (Tensor& each : low) each.reset();
  }
};

/// The engine's cast to the adapters' own type, in the order of the function's inputs; `at`: where the gradients of the
/// i-th product stand.
void hand_over(BackwardCall& call, AdapterWork& work, std::span<const std::size_t> at) {
  const auto& lora = call.payload<LoraPayload>();
  for (std::size_t i = 0; i < lora.products.size(); ++i) {
    Tensor of_a = to_dtype(std::move(work.gradients[2 * at[i]]), lora.products[i].lora_a.dtype());
    Tensor of_b = to_dtype(std::move(work.gradients[2 * at[i] + 1]), lora.products[i].lora_b.dtype());
    if (lora.gradients[i].of_b) *lora.gradients[i].of_b = std::move(of_b);
    call.set(static_cast<int>(i) + 1, std::move(of_a));
  }
}

std::int64_t rows_of(const Shape& shape) { return shape[0] * shape[1]; }

/// dX += dY @ W.t() + low @ A.t(): what the product adds to the gradient of x.
void log_input_gradient(Tape& tape, const UnslothProduct& product, DType dtype, std::int64_t rows) {
  log_product(tape, dtype, rows, product.in(), product.out());
  log_product(tape, dtype, rows, product.in(), product.rank());
}

constexpr std::size_t kInOrder[] = {0, 1, 2};

void lora_w_backward(BackwardCall& call) {  // saved: x
  const auto& lora = call.payload<LoraPayload>();
  const UnslothProduct& product = lora.products.front();
  Tape& tape = call.tape;
  const DType dtype = call.saved(0).dtype();
  const std::int64_t rows = rows_of(lora.shape);
  const Tensor gradient = reshape(call.gradient(), {rows, product.out()});
  AdapterWork work;
  work.cast(lora, dtype);
  work.make_gradients(tape, product, dtype);
  work.low.push_back(product_of(tape, dtype, rows, product.rank(), product.out()));
  AdapterWork::fill(tape, product, dtype, rows);
  Tensor result;
  {
    const Tensor weight = unpacked(tape, product, dtype);
    result = tape.empty({rows, product.in()}, dtype, aten::kMm);
    log_input_gradient(tape, product, dtype, rows);
  }
  work.drop_locals();
  hand_over(call, work, {kInOrder, 1});
  call.set(0, view(std::move(result), lora.shape));
}

void lora_qkv_backward(BackwardCall& call) {  // saved: x, which becomes its gradient
  const auto& lora = call.payload<LoraPayload>();
  Tape& tape = call.tape;
  const Tensor& x = call.saved(0);
  const DType dtype = x.dtype();
  const std::int64_t rows = rows_of(lora.shape);
  std::array<Tensor, 3> gradients;
  for (std::size_t i = 0; i < 3; ++i) {
    const Tensor& arrived = call.gradient(static_cast<int>(i));
    const Shape shape{rows, lora.products[i].out()};
    gradients[i] = arrived.defined() ? reshape(arrived, shape) : tape.empty(shape, dtype, aten::kZeros);
  }
  AdapterWork work;
  work.cast(lora, dtype);
  for (const UnslothProduct& each : lora.products) work.make_gradients(tape, each, dtype);
  for (const UnslothProduct& each : lora.products) {
    work.low.push_back(product_of(tape, dtype, rows, each.rank(), each.out()));
  }
  for (const UnslothProduct& each : lora.products) AdapterWork::fill(tape, each, dtype, rows);
  for (const UnslothProduct& each : lora.products) {
    const Tensor weight = unpacked(tape, each, dtype);
    log_input_gradient(tape, each, dtype, rows);
  }
  work.drop_locals();
  hand_over(call, work, kInOrder);
  call.set(0, view(x, lora.shape));
}

void lora_mlp_backward(BackwardCall& call) {  // saved: x, gate, up, which become gradients
  const auto& lora = call.payload<LoraPayload>();
  const auto& [gate, up, down] = std::tie(lora.products[0], lora.products[1], lora.products[2]);
  Tape& tape = call.tape;
  const Tensor& x = call.saved(0);
  const DType dtype = x.dtype();
  const std::int64_t rows = rows_of(lora.shape);
  AdapterWork work;
  work.cast(lora, dtype);
  Tensor inner = matmul_lora(tape, down, dtype, rows, true);
  tape.kernels.add(kSwiGluKernel, OperatorClass::kElementwise, dtype, 12.0 * number(inner.elements()),
                   6.0 * number(inner.bytes()));
  for (const UnslothProduct* each : {&down, &gate, &up}) work.make_gradients(tape, *each, dtype);
  log_product(tape, dtype, down.rank(), down.in(), rows);
  (void)product_of(tape, dtype, rows, down.rank(), down.out());
  (void)product_of(tape, dtype, down.rank(), rows, down.in());
  log_product(tape, dtype, down.rank(), down.out(), rows);
  for (const UnslothProduct* each : {&up, &gate}) {
    work.low.push_back(product_of(tape, dtype, rows, each->rank(), each->out()));
  }
  for (const UnslothProduct* each : {&up, &gate}) AdapterWork::fill(tape, *each, dtype, rows);
  for (const UnslothProduct* each : {&up, &gate}) {
    const Tensor weight = unpacked(tape, *each, dtype);
    log_input_gradient(tape, *each, dtype, rows);
  }
  for (Tensor& each : work.casts) each.reset();
  inner.reset();
  work.drop_locals();
  constexpr std::size_t kDownFirst[] = {1, 2, 0};
  hand_over(call, work, kDownFirst);
  call.set(0, view(x, lora.shape));
}

/// The function's node, which knows its products; null where nothing needs a gradient.
Node* record_lora(const Tensor& x, std::span<const UnslothProduct> products, const Operator& name,
                  BackwardFunction backward) {
  Tape& tape = x.tape();
  LoraPayload payload{.products = {products.begin(), products.end()}, .gradients = {}, .shape = x.shape()};
  payload.gradients.resize(products.size());
  std::array<Tensor, 3> tokens;
  const Tensor* inputs[] = {&x, &tokens[0], &tokens[1], &tokens[2]};
  for (std::size_t i = 0; i < products.size(); ++i) tokens[i] = token_of(tape, products[i], payload.gradients[i]);
  Node* node = tape.autograd.record(name, backward, inputs, 1 + static_cast<int>(products.size()));
  if (node == nullptr) return nullptr;
  node->payload.set(std::move(payload));
  tape.autograd.save(*node, x);
  return node;
}

// --- the loss

constexpr std::int64_t kMostRows = 4096;  // UNSLOTH_FUSED_LINEAR_MAX_ROWS, and those of a tile
constexpr std::int64_t kSplitColumns = 16384;
constexpr Bytes kLossBudget = 2 * kGiB;
constexpr Bytes kSmallCard = 49 * kGiB / 2;

std::int64_t power_of_two_below(std::int64_t x) {
  return x < 1 ? 0 : static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(x)));
}

/// _ce_impl: whether tiles of the vocabulary take the place of chunks of whole rows.
bool is_tiled(const DeviceSpec& device, std::int64_t targets, std::int64_t vocabulary) {
  const std::int64_t least = device.memory_bytes > 0 && device.memory_bytes <= kSmallCard ? 0 : 4096;
  return targets >= least && ceil_div(vocabulary, kSplitColumns) > 2 &&
         architecture_of(device) >= CudaArchitecture::kAmpere;
}

void fused_loss_backward(BackwardCall& call) {  // saved: the gradient of hidden
  Tape& tape = call.tape;
  const Tensor factor = tape.empty({}, DType::kFloat64, aten::kDiv);
  const Tensor& gradient = call.saved(0);
  Tensor scaled = tape.empty({rows_of(gradient.shape()), gradient.size(-1)}, gradient.dtype(), kFusedLossBackward);
  tape.kernels.add(kFusedLossBackward, OperatorClass::kElementwise, gradient.dtype(), number(scaled.elements()),
                   2.0 * number(scaled.bytes()));
  call.set(0, view(std::move(scaled), gradient.shape()));
}

struct LossShape {
  std::int64_t targets, width, vocabulary;
  bool has_gradient;
};

void log_loss(Tape& tape, const LossShape& s, DType dtype, std::int64_t rows) {
  tape.kernels.product(aten::kMm, dtype, 1, rows, s.vocabulary, s.width);
  tape.kernels.add(kFusedLoss, OperatorClass::kElementwise, dtype, 8.0 * number(rows * s.vocabulary),
                   6.0 * number(rows * s.vocabulary));
  if (s.has_gradient) tape.kernels.product(aten::kMm, dtype, 1, rows, s.width, s.vocabulary);
}

/// _tiled_forward
void loss_in_tiles(Tape& tape, const LossShape& s, DType dtype) {
  const std::int64_t rows = std::min(kMostRows, s.targets);
  const std::int64_t tile =
      std::min(round_up(s.vocabulary, kSplitColumns),
               std::max(kSplitColumns, 64 * kMiB / rows / kSplitColumns * kSplitColumns));  // 256 MiB of float32
  const Tensor logits = tape.empty({rows, tile}, DType::kFloat32, kFusedLoss);
  Tensor sum, highest, hidden, targets, parts;
  if (s.has_gradient) {
    sum = tape.empty({rows, s.width}, DType::kFloat32, kFusedLoss);
    highest = tape.empty({rows}, DType::kFloat32, kFusedLoss);
  }
  for (std::int64_t first = 0; first < s.targets; first += rows) {
    const std::int64_t n = std::min(rows, s.targets - first);
    hidden = tape.empty({n, s.width}, dtype, aten::kIndexSelect);
    targets = tape.empty({n}, DType::kInt64, aten::kIndexSelect);
    parts = tape.empty({8, ceil_div(s.vocabulary, kSplitColumns), n}, DType::kFloat32, kFusedLoss);
    log_loss(tape, s, dtype, n);
  }
}

/// The loop of _ce_impl: logits and their gradient in one buffer.
void loss_in_chunks(Tape& tape, const LossShape& s, DType dtype) {
  const std::int64_t chunk = unsloth_chunk_rows(s.targets, s.width, s.vocabulary);
  Tensor logits = tape.empty({chunk, round_up(s.vocabulary, 8)}, DType::kFloat32, kFusedLoss);
  const std::int64_t splits = ceil_div(s.vocabulary, kSplitColumns);
  const Tensor rest_of_coefficient = tape.empty({}, DType::kFloat32, aten::kDiv);  // its power of two aside
  Tensor hidden, targets, statistics, gradient;
  for (std::int64_t first = 0; first < s.targets; first += chunk) {
    const std::int64_t n = std::min(chunk, s.targets - first);
    hidden = tape.empty({n, s.width}, dtype, aten::kIndexSelect);
    targets = tape.empty({n}, DType::kInt64, aten::kIndexSelect);
    Tensor lse = tape.empty({n}, DType::kFloat32, kFusedLoss);
    if (splits > 2) tape.memory.scratch(4 * 7 * splits * n, kFusedLoss);
    statistics = std::move(lse);
    log_loss(tape, s, dtype, n);
    if (!s.has_gradient) continue;
    gradient = tape.empty({n, s.width}, DType::kFloat32, aten::kMm);
    tape.memory.scratch(n * s.width * size_of(dtype), aten::kToCopy);
  }
  drop(hidden, targets, statistics, logits, gradient);
}

}  // namespace

std::int64_t unsloth_chunk_rows(std::int64_t targets, std::int64_t hidden_size, std::int64_t vocabulary) {
  constexpr std::int64_t kLeastLogits = 512 * 151936;
  const std::int64_t least = std::clamp<std::int64_t>(power_of_two_below(kLeastLogits / vocabulary), 512, kMostRows);
  const std::int64_t rows = std::clamp(power_of_two_below(targets * hidden_size / vocabulary), least, kMostRows);
  const std::int64_t within_budget = std::max<std::int64_t>(kLossBudget / (4 * vocabulary), 2);
  return std::max<std::int64_t>(std::min({rows, within_budget, targets}), 1);
}

Tensor unsloth_rms_norm(const Tensor& x, const Tensor& weight) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &weight};
  Node* node = tape.autograd.record(kUnslothNormBackward, unsloth_norm_backward, inputs, 2);
  Tensor result = tape.empty(x.shape(), x.dtype(), kUnslothNorm);
  const Tensor reciprocal = tape.empty({x.elements() / x.size(-1)}, DType::kFloat32, kUnslothNorm);
  tape.kernels.add(kUnslothNorm, OperatorClass::kNormalization, x.dtype(), 4.0 * number(x.elements()),
                   2.0 * number(x.bytes()));
  if (node != nullptr) {
    tape.autograd.save(*node, x);
    tape.autograd.save(*node, reciprocal);
  }
  tape.autograd.set_history(node, result);
  return result;
}

void unsloth_rotate(Tensor& query, Tensor& key) {
  Tape& tape = query.tape();
  const Tensor* inputs[] = {&query, &key};
  Node* node = tape.autograd.record(kUnslothRotateBackward, unsloth_rotate_backward, inputs, 2);
  Tensor rotated_query = tape.alias(query, query.shape(), query.strides(), true);
  Tensor rotated_key = tape.alias(key, key.shape(), key.strides(), true);
  tape.kernels.add(kUnslothRotate, OperatorClass::kElementwise, query.dtype(),
                   3.0 * number(query.elements() + key.elements()), 2.0 * number(query.bytes() + key.bytes()));
  tape.autograd.set_history(node, rotated_query);
  tape.autograd.set_history(node, rotated_key);
  query = std::move(rotated_query);
  key = std::move(rotated_key);
}

void unsloth_norm_and_rotate(Tensor& query, Tensor& key) {
  Tape& tape = query.tape();
  const Tensor* inputs[] = {&query, &key};
  Node* node = tape.autograd.record(kNormRotateBackward, norm_and_rotate_backward, inputs, 2);
  const auto rows = [](const Tensor& x) { return Shape{x.size(0) * x.size(1), x.size(2)}; };
  Tensor rotated_query = tape.empty(query.shape(), query.dtype(), kNormRotate);
  Tensor rotated_key = tape.empty(key.shape(), key.dtype(), kNormRotate);
  const Tensor of_query = tape.empty(rows(query), DType::kFloat32, kNormRotate);
  const Tensor of_key = tape.empty(rows(key), DType::kFloat32, kNormRotate);
  tape.kernels.add(kNormRotate, OperatorClass::kNormalization, query.dtype(),
                   7.0 * number(query.elements() + key.elements()), 2.0 * number(query.bytes() + key.bytes()));
  if (node != nullptr) {
    const Tensor* saved[] = {&query, &key, &of_query, &of_key};
    for (const Tensor* each : saved) tape.autograd.save(*node, *each);
  }
  tape.autograd.set_history(node, rotated_query);
  tape.autograd.set_history(node, rotated_key);
  query = std::move(rotated_query);
  key = std::move(rotated_key);
}

Tensor unsloth_linear(const Tensor& x, const UnslothProduct& product) {
  Tape& tape = x.tape();
  Node* node = record_lora(x, {&product, 1}, kLoraW, lora_w_backward);
  Tensor result;
  {
    const NoGrad no_grad(tape.modes);
    result =
        view(matmul_lora(tape, product, x.dtype(), rows_of(x.shape()), false), with_last(x.shape(), product.out()));
  }
  tape.autograd.set_history(node, result);
  return result;
}

std::array<Tensor, 3> unsloth_qkv(const Tensor& x, const std::array<UnslothProduct, 3>& products) {
  Tape& tape = x.tape();
  Node* node = record_lora(x, products, kLoraQkv, lora_qkv_backward);
  std::array<Tensor, 3> results;
  {
    const NoGrad no_grad(tape.modes);
    for (std::size_t i = 0; i < results.size(); ++i) {
      results[i] = view(matmul_lora(tape, products[i], x.dtype(), rows_of(x.shape()), false),
                        with_last(x.shape(), products[i].out()));
    }
  }
  for (Tensor& each : results) tape.autograd.set_history(node, each);
  if (node != nullptr) node->outputs_differ = true;
  return results;
}

Tensor unsloth_mlp(const Tensor& x, const std::array<UnslothProduct, 3>& products) {
  Tape& tape = x.tape();
  Node* node = record_lora(x, products, kLoraMlp, lora_mlp_backward);
  const std::int64_t rows = rows_of(x.shape());
  Tensor result;
  {
    const NoGrad no_grad(tape.modes);
    Tensor gate = matmul_lora(tape, products[0], x.dtype(), rows, false);
    Tensor up = matmul_lora(tape, products[1], x.dtype(), rows, false);
    Tensor inner = tape.empty(gate.shape(), gate.dtype(), kSwiGluKernel);
    tape.kernels.add(kSwiGluKernel, OperatorClass::kElementwise, gate.dtype(), 6.0 * number(gate.elements()),
                     3.0 * number(gate.bytes()));
    result = view(matmul_lora(tape, products[2], x.dtype(), rows, false), x.shape());
    if (node != nullptr) {
      tape.autograd.save(*node, gate);
      tape.autograd.save(*node, up);
    }
    drop(inner, gate, up);
  }
  tape.autograd.set_history(node, result);
  return result;
}

Tensor unsloth_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  constexpr std::int64_t kBucket = 128;
  const SdpaOptions options{.causal = true};
  SdpaOptions chosen = options;
  chosen.grouped_heads = query.size(1) != key.size(1);
  if (choose_sdpa_backend(query, key, value, {}, chosen) != SdpaBackend::kCudnn) {
    return scaled_dot_product_attention(query, key, value, {}, options);
  }
  const std::int64_t length = query.size(2);
  const auto padded = [&](const Tensor& x) {
    Shape shape = x.shape();
    shape[2] = (length / kBucket + 1) * kBucket;
    return pad_to(x, shape);
  };
  Tensor q = padded(query), k = padded(key), v = padded(value);
  Tensor result = slice(scaled_dot_product_attention(q, k, v, {}, options), 2, 0, length);
  drop(q, k, v);
  return result;
}

Tensor unsloth_linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& labels,
                                    std::int64_t targets) {
  Tape& tape = hidden.tape();
  const Tensor* inputs[] = {&hidden};
  Node* node = tape.autograd.record(kFusedLossBackward, fused_loss_backward, inputs, 1);
  const LossShape s{targets, hidden.size(-1), weight.size(0), node != nullptr};
  Tensor loss, gradient;
  {
    const NoGrad no_grad(tape.modes);
    const Tensor shifted = tape.empty({labels.elements()}, DType::kInt64, aten::kCat);
    const Tensor divisor = tape.empty({}, DType::kFloat32, aten::kWhere);
    const Tensor same_divisor = tape.empty({}, DType::kFloat32, aten::kWhere);
    const Tensor scaling = tape.empty({}, DType::kFloat32, aten::kOnes);
    const Tensor in_range = tape.empty({labels.elements()}, DType::kBool, aten::kBitwiseAnd);
    const Tensor all_in_range = tape.empty({}, DType::kBool, aten::kAll);
    const Tensor places = tape.empty({targets}, DType::kInt64, aten::kNonzero);
    if (node != nullptr) gradient = tape.empty(hidden.shape(), hidden.dtype(), aten::kZeros);
    const Tensor zero = tape.empty({}, DType::kFloat32, aten::kZeros);
    const Tensor coefficient = tape.empty({}, DType::kFloat32, aten::kDiv);
    Tensor losses = tape.empty({targets}, DType::kFloat32, kFusedLoss);
    const DType dtype = tape.modes.autocast.dtype.value_or(weight.dtype());
    if (is_tiled(tape.device, targets, s.vocabulary)) {
      const Tensor statistics = tape.empty({targets}, DType::kFloat32, kFusedLoss);
      loss_in_tiles(tape, s, dtype);
    } else {
      loss_in_chunks(tape, s, dtype);
    }
    tape.memory.scratch(2 * 8 * targets, aten::kToCopy);  // of float64: the losses and their negatives
    loss = tape.empty({}, DType::kFloat32, aten::kToCopy);
  }
  if (node != nullptr) tape.autograd.save(*node, gradient);
  tape.autograd.set_history(node, loss);
  return loss;
}

void unsloth_make_positions(Tape& tape, std::int64_t rows, std::int64_t width, DType dtype) {
  UnslothBuffers& kept = tape.modes.unsloth;
  if (kept.cos.defined()) return;
  const NoGrad no_grad(tape.modes);
  const auto numbers = [&](const Shape& shape, DType type) { return tape.empty(shape, type, kPositions); };
  Tensor whole = numbers({rows}, DType::kInt64);
  Tensor places = numbers({rows}, DType::kFloat32);
  whole.reset();
  Tensor angles = numbers({rows, width / 2}, DType::kFloat32);
  Tensor twice = numbers({rows, width}, DType::kFloat32);
  for (Tensor* each : {&kept.cos, &kept.sin}) {
    Tensor values = numbers({rows, width}, DType::kFloat32);
    values = numbers({rows, width}, DType::kFloat32);  // times attention_scaling
    *each = numbers({rows, width}, dtype);
  }
  drop(places, angles, twice);
}

}  // namespace memcalc
