// Model: a family's modules and its forward pass, from input ids to the loss. One file a family; each reads like the
// family's modeling file in transformers.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/models/kv_cache.h"
#include "memcalc/models/module.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/capture.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/layer_hooks.h"
#include "memcalc/symbolic/ops/chunked_log_probs.h"
#include "memcalc/symbolic/region_compiler.h"

namespace memcalc {

/// model(…, fused_lm_head=True) of trl's add_fused_lm_head: what it computes of each token, and how many labels of the
/// batch, shifted by one, are not -100.
struct FusedHeadCall {
  LogProbOutputs outputs;
  std::int64_t targets = 0;
  bool balances_experts = false;  // output_router_logits=True: of mixtures of experts the auxiliary loss, too
};

/// What a data loader hands over, on the card. Dies in this order.
struct Batch {
  Tensor input_ids;               // [batch, sequence] int64
  Tensor input_features;          // numbers that are no RGB image, in the weights' dtype: speech, a user's own layers
  Tensor pixel_values;            // image models: [batch, 3, size, size] in the weights' dtype
  Tensor labels;                  // [batch] or [batch, sequence] int64
  Tensor token_type_ids;          // as input_ids; undefined: the model makes them
  Tensor attention_mask;          // as input_ids, where sequences are padded
  Tensor completion_mask;         // trainers on answers: as input_ids, 1 where a token is part of the answer
  std::int64_t valid_labels = 0;  // labels that are not -100, where batches differ; 0: all
  std::int64_t sequences = 0;     // of one row without padding: how many there are in it; 0: rows are sequences
  bool padded = true;             // the mask masks something: the framework looks at its values
  Tensor number_of_items;         // Trainer: by which a summed loss is divided; undefined: the loss is a mean

  // What generate() passes beside them (train/generate.h).
  Tensor position_ids;                             // [batch, tokens] int64; undefined: the model makes them
  Tensor decoder_input_ids;                        // encoder-decoders; undefined: the labels shifted to the right
  Tensor encoder_outputs;                          // encoder-decoders; undefined: the model runs its encoder
  std::vector<Tensor> others;                      // of a program: its inputs, as Model::inputs says; train/trl/batch.h
  EncoderDecoderCache* past_key_values = nullptr;  // null: the output's own, where the run uses a cache
  std::int64_t logits_to_keep = 0;                 // of the last tokens; 0: of all
  const FusedHeadCall* fused_head = nullptr;       // null: the model's own head

  Batch() = default;
  Batch(const Batch&) = default;
  Batch& operator=(const Batch& other) {
    clear();
    input_ids = other.input_ids;
    input_features = other.input_features;
    pixel_values = other.pixel_values;
    labels = other.labels;
    token_type_ids = other.token_type_ids;
    attention_mask = other.attention_mask;
    completion_mask = other.completion_mask;
    valid_labels = other.valid_labels;
    sequences = other.sequences;
    padded = other.padded;
    number_of_items = other.number_of_items;
    position_ids = other.position_ids;
    decoder_input_ids = other.decoder_input_ids;
    encoder_outputs = other.encoder_outputs;
    others = other.others;
    past_key_values = other.past_key_values;
    logits_to_keep = other.logits_to_keep;
    fused_head = other.fused_head;
    return *this;
  }
  ~Batch() { clear(); }
  void clear() {
    drop(input_ids, input_features, pixel_values, labels, token_type_ids, attention_mask, completion_mask);
    number_of_items.reset();
    drop(position_ids, decoder_input_ids, encoder_outputs);
    for (Tensor& each : others) each.reset();
    others.clear();
  }
};

/// trl's FusedCausalLMOutput beside its loss: [batch, tokens - 1] each, zero where the label is -100. Members die in
/// this order.
struct FusedHead {
  Tensor log_probs, entropy, log_sum_sq_probs, mean_logits, is_top1, label_mask, aux_loss;
  void clear() { drop(log_probs, entropy, log_sum_sq_probs, mean_logits, is_top1, label_mask, aux_loss); }
};

/// A transformers ModelOutput: alive as long as the caller keeps it. Members die in this order.
struct ModelOutput {
  Tensor loss;  // where the batch has labels
  Tensor logits;
  FusedHead fused;                      // of a batch with a fused head
  EncoderDecoderCache past_key_values;  // empty where generate() owns the cache
  Tensor encoder_last_hidden_state;     // encoder-decoders
  std::vector<Tensor> others;           // of a program: what else it returns
  std::size_t cached = 0;               // the last of these are a cache's

  ModelOutput() = default;
  ModelOutput(ModelOutput&&) = default;
  ModelOutput& operator=(ModelOutput&&) = default;
  ~ModelOutput() { clear(); }
  void clear() {
    drop(loss, logits);
    fused.clear();
    past_key_values.clear();
    encoder_last_hidden_state.reset();
    for (Tensor& each : others) each.reset();
    others.clear();
  }
};

/// A tensor that a program's forward pass is given.
struct ModelInput {
  std::string name;
  Shape shape;
  DType dtype = DType::kInt64;
  Tensor Batch::*member = nullptr;  // null: one of Batch::others
};

class ImageParts;  // models/image_text.h

class Model {
 public:
  virtual ~Model() = default;
  [[nodiscard]] virtual ModelOutput forward(const Batch& batch) = 0;
  /// The encoder of an encoder-decoder by itself: [batch, tokens, width]. Throws Error(kInternal) for other models.
  [[nodiscard]] virtual Tensor encode(const Batch& batch);

  std::vector<Parameter> parameters;                            // in the order of module.parameters()
  std::int64_t inactive_parameters = 0;                         // of experts that a token does not take
  std::vector<std::shared_ptr<FineTunedLinear>> linear_layers;  // those that fine-tuning may change
  std::vector<std::shared_ptr<PackedExperts>> experts;          // and routers: those that fine-tuning may change
  std::vector<Tensor> buffers;                                  // in the order in which they were made
  std::optional<std::vector<std::string>> layer_paths;          // of a program: its checkpointable layers, as they run
  std::vector<ModelInput> inputs;      // of a program: the whole batch; else the batch is as the task says
  Shape input_features;                // of one sample, where it is neither token ids nor an RGB image
  Shape sample_labels;                 // a user's own layers: of one sample; none: one label
  const ImageParts* images = nullptr;  // of a model of images and text with its tower
  bool uses_sdpa = true;               // F.scaled_dot_product_attention where the run asks for sdpa
  bool is_encoder_decoder = false;
  std::optional<std::int64_t> sliding_window;  // of the layers that keep no more keys and values
  bool loss_shifts_labels = false;             // the Trainer then counts the items of labels[..., 1:]
  bool accepts_loss_kwargs = true;  // forward(**kwargs): the Trainer then counts the batch's labels for the loss
  bool takes_token_types = false;   // its tokenizer gives token_type_ids
  bool takes_position_ids = true;   // forward(position_ids=…): generate() then makes them of a decoder
  bool random_labels = false;       // the bare loop draws them as they are, without a multiplication by 0
  /// LayerDrop: Dynamo finds a break in the loop over the layers and leaves that frame to Python; the frames that it
  /// calls are graphs, of which each layer is one, and the head with its loss.
  bool breaks_at_layers = false;
  std::vector<std::string> not_modelled;
  std::vector<std::string> assumptions;  // about what was asked of it, beside those that resolve() told
};

/// Builds the modules on the tape, which records their memory. Throws Error(kUnsupported) for what is not modelled.
[[nodiscard]] std::unique_ptr<Model> build_model(const ModelSpec& spec, const RunSpec& run, Tape& tape, DType dtype);

/// The cache that a forward pass fills: generate()'s, the output's own where the run uses one, or null.
[[nodiscard]] EncoderDecoderCache* cache_of(const RunSpec& run, const Batch& batch, ModelOutput& output);
/// A decoder's part of it.
[[nodiscard]] KeyValueCache* self_attention_cache_of(const RunSpec& run, const Batch& batch, ModelOutput& output);

/// hidden_states[:, -logits_to_keep:, :], all where that is 0: what a …ForCausalLM hands to its head.
[[nodiscard]] Tensor kept_positions(const Tensor& hidden_states, const Batch& batch);

/// The probability that --dropout overrides, or the config's; 0 in model.eval().
[[nodiscard]] double dropout_probability(const RunSpec& run, double configured);

[[nodiscard]] inline Recomputes recomputes_of(const RunSpec& run) {
  return run.checkpointing() == Checkpointing::kSelective ? Recomputes::kSelected : Recomputes::kAll;
}

/// Runs a layer, the module around it that a wrapper hooks into (Modes::layer_hooks), under torch.utils.checkpoint
/// where the run asks for it (of every N-th the first): it then runs a second time in backward. The layer gets
/// `positional` and then `keywords`, which are kept until the layer's backward is done, and must need nothing else that
/// could die before (GradientCheckpointingLayer.__call__).
template <typename Layer>
[[nodiscard]] Tensor checkpointed_layer(const RunSpec& run, std::int64_t index, KeptTensors positional,
                                        const KeptTensors& keywords, Layer layer) {
  const std::size_t positional_count = positional.size();
  positional.insert(positional.end(), keywords.begin(), keywords.end());
  const Modes& modes = positional.front().tape().modes;
  if (run.checkpointing() == Checkpointing::kNone || index % run.training().checkpoint_every != 0 || !modes.training ||
      !modes.grad_enabled) {
    return layer(positional);
  }
  if (run.checkpoints_reentrantly()) {
    return run_checkpointed_reentrant(positional, positional_count, std::move(layer));
  }
  return run_checkpointed(std::move(positional), positional_count, std::move(layer), recomputes_of(run));
}

/// The same where the layer is being traced: its checkpoint becomes a part of the graph.
template <typename Layer>
[[nodiscard]] Tensor traced_layer(const RunSpec& run, std::int64_t index, const KeptTensors& arguments,
                                  const Layer& layer) {
  if (run.checkpointing() == Checkpointing::kNone || index % run.training().checkpoint_every != 0)
    return layer(arguments);
  const CapturedCheckpoint checkpoint(*arguments.front().tape().modes.capture, recomputes_of(run));
  return layer(arguments);
}

/// What a layer makes beside its hidden states: further results of its graph, where it has one of its own.
struct Byproducts {
  std::vector<Tensor*> shared;         // the model's variables that a layer sets and later layers get as arguments
  std::vector<KeyValueCache*> caches;  // to which it adds keys and values

  Byproducts() = default;
  Byproducts(std::initializer_list<Tensor*> shared, EncoderDecoderCache* cache) : Byproducts(cache) {
    this->shared = shared;
  }
  Byproducts(KeyValueCache* cache) {  // NOLINT(google-explicit-constructor): what most layers have; null: none
    if (cache != nullptr) caches = {cache};
  }
  Byproducts(EncoderDecoderCache* cache) {  // NOLINT(google-explicit-constructor)
    if (cache != nullptr) caches = {&cache->self_attention, &cache->cross_attention};
  }
};

/// tape.modes.compiler's call of a layer; nothing where it gives up on the layer, which is then to be run as it is.
[[nodiscard]] std::optional<Tensor> run_compiled(Tape& tape, std::int64_t index, const KeptTensors& arguments,
                                                 const Byproducts& byproducts,
                                                 const std::function<Tensor(const KeptTensors&)>& layer);

/// Loss and logits of `head`, which `arguments` go into, as a graph of its own (RegionCompiler::kHead); nothing where
/// it is to be run as it is.
[[nodiscard]] std::optional<ModelOutput> compiled_head(const KeptTensors& arguments,
                                                       const std::function<ModelOutput(const KeptTensors&)>& head);

/// A layer in a graph, the model's or its own: torch.compile(layer), which the hooks are around.
template <typename Layer>
[[nodiscard]] Tensor compiled_layer(const RunSpec& run, std::int64_t index, KeptTensors positional,
                                    const KeptTensors& keywords, const Layer& layer, const Byproducts& byproducts) {
  positional.insert(positional.end(), keywords.begin(), keywords.end());
  Tape& tape = positional.front().tape();
  if (tape.modes.capture != nullptr) return traced_layer(run, index, positional, layer);
  const auto compiled = [&](const KeptTensors& arguments) {
    std::optional<Tensor> result = run_compiled(tape, index, arguments, byproducts, [&](const KeptTensors& traced) {
      return traced_layer(run, index, traced, layer);
    });
    return result ? std::move(*result) : checkpointed_layer(run, index, arguments, {}, layer);
  };
  if (tape.modes.layer_hooks == nullptr) return compiled(positional);
  return hooked(*tape.modes.layer_hooks, index, compiled)(positional);
}

template <typename Layer>
[[nodiscard]] Tensor checkpointed(const RunSpec& run, KeptTensors positional, const KeptTensors& keywords, Layer layer,
                                  const Byproducts& byproducts = {}) {
  Tape& tape = (positional.empty() ? keywords : positional).front().tape();
  const std::int64_t index = tape.modes.checkpointable_layers++;
  if (tape.modes.capture != nullptr || (tape.modes.compiler != nullptr && tape.modes.compiler->compiles(index))) {
    return compiled_layer(run, index, std::move(positional), keywords, layer, byproducts);
  }
  if (tape.modes.layer_hooks == nullptr) {
    return checkpointed_layer(run, index, std::move(positional), keywords, std::move(layer));
  }
  const DataParallel mode = run.parallel.data_parallel;
  const bool hooks_forward = mode == DataParallel::kFsdp2 && tape.behaviors.checkpoints_forward;
  if (!hooks_forward && mode != DataParallel::kFsdp1) {
    return checkpointed_layer(run, index, std::move(positional), keywords,
                              hooked(*tape.modes.layer_hooks, index, std::move(layer)));
  }
  // modeling_layers.py from 5.23 on: forward is what the checkpoint wraps, and FSDP2's hooks are around forward. FSDP1
  // is a module around the layer, and so around its checkpoint.
  const auto count = static_cast<std::ptrdiff_t>(positional.size());
  positional.insert(positional.end(), keywords.begin(), keywords.end());
  const auto wrapped = [&run, index, count, &layer](const KeptTensors& all) {
    return checkpointed_layer(run, index, KeptTensors(all.begin(), all.begin() + count),
                              KeptTensors(all.begin() + count, all.end()), layer);
  };
  return hooked(*tape.modes.layer_hooks, index, wrapped)(positional);
}

/// What has no family: a recorded program, a user's own layers.
[[nodiscard]] std::unique_ptr<Model> build_program(const ProgramSpec& spec, const RunSpec& run, ModuleBuilder& builder);
[[nodiscard]] std::unique_ptr<Model> build_custom(const CustomSpec& spec, const RunSpec& run, ModuleBuilder& builder);

}  // namespace memcalc
