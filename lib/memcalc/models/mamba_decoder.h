// …ForCausalLM of Mamba and Mamba-2: layers of one mixer each, without positions and attention.
// MIRRORS(transformers, "models/mamba/modeling_mamba.py", "5.17.0")
// MIRRORS(transformers, "models/mamba2/modeling_mamba2.py", "5.17.0")
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memcalc/models/causal_lm_head.h"
#include "memcalc/models/linear_states.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

/// MambaBlock, Mamba2Block. `Mixer` is constructed from (builder, spec).
template <typename Mixer>
struct MambaBlock {
  RmsNorm norm;
  Mixer mixer;
  bool residual_in_fp32;

  template <typename Spec>
  MambaBlock(ModuleBuilder& b, const Spec& spec)
      : norm(b, "norm", spec.hidden_size),
        mixer(b.scope("mixer", [&] { return Mixer(b, spec); })),
        residual_in_fp32(spec.residual_in_fp32) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& mask, KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor hidden_states;
    {
      const Tensor converted = to_dtype(input, norm.weight.dtype());
      hidden_states = norm(converted);
    }
    if (residual_in_fp32) residual = to_dtype(residual, DType::kFloat32);
    hidden_states = mixer.forward(hidden_states, mask, cache);
    hidden_states = residual + hidden_states;
    residual.reset();
    return hidden_states;
  }
};

/// `kMakesMask`: create_recurrent_attention_mask's, which is left out where no sequence is padded; else the batch's
/// own.
template <typename Mixer, bool kMakesMask>
class MambaDecoder : public Model {
 public:
  template <typename Spec>
  MambaDecoder(const Spec& spec, const RunSpec& run, ModuleBuilder& b) : run_(run) {
    check_activation_function(spec.hidden_act);
    if (run.task == Task::kSequenceClassification) throw refusal(rules::kNoClassifier);
    if (run.compiles()) throw refusal(rules::kLinearLayersCompiled);
    loss_shifts_labels = true;
    b.scope("backbone", [&] {
      embeddings_ = Embedding(b, "embeddings", spec.vocab_size, spec.hidden_size);
      for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
        layers_.push_back(b.scope("layers." + std::to_string(i), [&] { return MambaBlock<Mixer>(b, spec); }));
      }
      norm_f_ = RmsNorm(b, "norm_f", spec.hidden_size);
      b.parameters.back().decays = true;  // by its name it is no norm (trainer.py, get_decay_parameter_names)
      return 0;
    });
    lm_head_ = language_model_head(b, embeddings_, spec.tie_word_embeddings, spec.hidden_size, spec.vocab_size);
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    ModelOutput output;
    // In training there is no cache, whatever use_cache says.
    const bool trains = batch.input_ids.tape().modes.training;
    KeyValueCache* cache = trains ? nullptr : self_attention_cache_of(run_, batch, output);
    Tensor hidden_states = backbone(batch, cache);
    if (batch.fused_head != nullptr) {
      predict(std::nullopt, lm_head_, hidden_states, batch, output);
      return output;
    }
    output.logits = lm_head_(to_dtype(kept_positions(hidden_states, batch), lm_head_.weight.dtype()));
    output.logits = to_dtype(output.logits, DType::kFloat32);
    if (!batch.labels.defined()) return output;
    output.loss = causal_lm_loss(output.logits, batch.labels, batch.number_of_items);
    return output;
  }

 private:
  [[nodiscard]] Tensor backbone(const Batch& batch, KeyValueCache* cache) const {
    Tensor inputs_embeds = embeddings_(batch.input_ids);
    Tensor attention_mask = kMakesMask ? create_recurrent_mask(batch) : batch.attention_mask;
    Tensor hidden_states = inputs_embeds;
    for (const MambaBlock<Mixer>& block : layers_) {
      hidden_states = checkpointed(
          run_, {hidden_states}, {attention_mask},
          [&block, cache](const KeptTensors& kept) { return block.forward(kept[0], kept[1], cache); }, cache);
    }
    hidden_states = norm_f_(hidden_states);
    drop(inputs_embeds, attention_mask);
    return hidden_states;
  }

  RunSpec run_;
  Embedding embeddings_;
  std::vector<MambaBlock<Mixer>> layers_;
  RmsNorm norm_f_;
  Linear lm_head_;
};

}  // namespace memcalc
