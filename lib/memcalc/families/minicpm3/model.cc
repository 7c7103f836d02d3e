// MiniCPM 3: transformers models/minicpm3/modeling_minicpm3.py.
// MIRRORS(transformers, "models/minicpm3/modeling_minicpm3.py", "5.17.0")
#include "memcalc/families/minicpm3/spec.h"

#include <utility>

#include "memcalc/families/deepseek/latent.h"
#include "memcalc/models/hooked_module.h"

namespace memcalc {

namespace {

void rotate_parts(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  apply_rotary(query, key, positions.cos, positions.sin);
}

/// MiniCPM3ScaledWordEmbedding: times scale_emb, of which torch.tensor() makes a buffer of int64, since config.json has
/// it without a point; each forward pass converts it.
struct MiniCpm3Embedding : Embedding {
  Tensor embed_scale;
  bool product_requires_grad;  // enable_input_require_grads hooks this module, not what it inherits

  MiniCpm3Embedding(ModuleBuilder& b, std::string_view name, std::int64_t rows, std::int64_t width)
      : Embedding(b, name, rows, width),
        embed_scale(b.buffer({}, DType::kInt64)),
        product_requires_grad(std::exchange(output_requires_grad, false)) {}

  [[nodiscard]] Tensor operator()(const Tensor& input_ids) const {
    return hooked_module(*this, {&weight}, input_ids, [this](const Tensor& hooked_ids) { return scaled(hooked_ids); });
  }

 private:
  [[nodiscard]] Tensor scaled(const Tensor& input_ids) const {
    Tape& tape = weight.tape();
    const Scoped<ModuleHooks*> inherited(tape.modes.module_hooks, nullptr);  // super().forward: no module of its own
    Tensor rows = Embedding::operator()(input_ids);
    Tensor product = std::move(rows) * to_dtype(embed_scale, weight.dtype());
    if (product_requires_grad && tape.modes.grad_enabled && !product.requires_grad()) {
      tape.autograd.require_gradient(product);
    }
    return product;
  }
};

struct MiniCpm3Attention : LatentAttention {
  MiniCpm3Attention(ModuleBuilder& b, const MiniCpm3Spec& spec, const RunSpec& run, bool /*sliding*/)
      : LatentAttention(b, spec, run, rotate_parts) {
    rotated_key_dies_first = true;
  }
};

using MiniCpm3Layer = PreNormLayer<MiniCpm3Spec, MiniCpm3Attention, RmsNorm, GatedMlp, /*kScalesHalves=*/true>;

}  // namespace

std::unique_ptr<Model> build_minicpm3(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<MiniCpm3Spec>();
  auto plan = decoder_plan<MiniCpm3Layer>(spec, run);
  plan.embedding = embedding_of<MiniCpm3Embedding>(spec);
  plan.logits = LogitsChange::kStatesDivided;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
