// What kind of model a specification describes: what it takes, what it is trained for, how long its sequences can be;
// and the same with fewer layers.
// Covered by tests/unit/run_options_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memcalc/spec/behaviors.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// The longest sequence that the position table holds; absent where positions are computed (rotary embeddings).
[[nodiscard]] std::optional<std::int64_t> position_limit(const ModelSpec& model);

/// The longest sequence that the model was trained with; absent where config.json says none (no positions: BLOOM,
/// Mamba).
[[nodiscard]] std::optional<std::int64_t> trained_context(const ModelSpec& model);

/// The longest sequence that vLLM is ready for where it is not told one.
[[nodiscard]] std::int64_t context_of_vllm(const ModelSpec& model);

/// BERT and its like: one sequence, every token sees every other.
[[nodiscard]] bool is_encoder(const ModelSpec& model);

/// A decoder that attends to an encoder: T5, BART, Whisper.
[[nodiscard]] bool is_encoder_decoder(const ModelSpec& model);

/// gpt-oss: its attention sinks are in transformers' eager attention only (and in kernels from the hub).
[[nodiscard]] bool has_eager_attention_only(const ModelSpec& model);

/// Whether it is made with attn_implementation (--attn): none of torchvision's, no user's layers without attention.
/// Mamba is, as transformers takes the name for any of its models.
[[nodiscard]] bool takes_attention(const ModelSpec& model);

/// Whether that chooses how it attends: not of Mamba. A program attends as it was recorded.
[[nodiscard]] bool chooses_attention(const ModelSpec& model);

/// A user's own layers.
[[nodiscard]] bool is_custom(const ModelSpec& model);

/// A recorded program, of whatever module.
[[nodiscard]] bool is_program(const ModelSpec& model);
/// Families for which transformers has no other attention than eager, with these behaviours.
[[nodiscard]] bool is_eager_in(const ModelSpec& model, const Behaviors& behaviors);
/// Built of torchvision's modules.
[[nodiscard]] bool is_of_torchvision(const ModelSpec& model);
/// A family that follows transformers' modeling files, so that its versions matter.
[[nodiscard]] bool is_of_transformers(const ModelSpec& model);
/// The same, or a program that was recorded from a class of transformers.
[[nodiscard]] bool runs_transformers(const ModelSpec& model);
/// Whether its module takes `labels` and returns a loss, as models of transformers do: their Trainer can train it.
[[nodiscard]] bool takes_labels(const ModelSpec& model);

/// Takes features of sound instead of token ids: Whisper.
[[nodiscard]] bool is_speech(const ModelSpec& model);

/// What a model of this family is mostly trained for.
[[nodiscard]] Task usual_task(const ModelSpec& model);

/// What Megatron-LM's script for such a model trains it for: pretrain_gpt.py, pretrain_bert.py, pretrain_t5.py.
[[nodiscard]] Task megatron_task(const ModelSpec& model);

/// All that a model can be trained for; the usual one is among them.
[[nodiscard]] std::span<const Task> tasks_of(const ModelSpec& model);
/// As --task takes them.
[[nodiscard]] std::vector<std::string> names_of(std::span<const Task> tasks);

/// True for families that predict the next token of their one sequence.
[[nodiscard]] bool is_decoder(const ModelSpec& model);

/// A decoder some of whose layers are mixtures of experts.
[[nodiscard]] bool has_experts(const ModelSpec& model);

/// True for models that classify images.
[[nodiscard]] bool is_vision(const ModelSpec& model);

/// Takes images and texts that belong together: CLIP.
[[nodiscard]] bool is_contrastive(const ModelSpec& model);

/// Pixels a side of the images that the model was trained with.
[[nodiscard]] std::int64_t trained_image_size(const ModelSpec& model);

/// The same model with so many layers, of an encoder and a decoder each: what a measured case with "layers" ran.
void set_layers(ModelSpec& model, std::int64_t layers);

/// Whether all layers of a stack are of one kind; what is no stack of layers has none.
[[nodiscard]] bool layers_are_alike(const ModelSpec& model);

/// The same model with so many labels, where it is one that may classify.
void set_labels(ModelSpec& model, std::int64_t labels);

}  // namespace memcalc
