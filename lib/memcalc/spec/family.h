// Family: all that memcalc knows of the models of one model_type, in one record. A family is a folder: families/NAME/
// has spec.h (its sizes), config.cc (how its config.json is read, and its record), model.cc (its forward pass); its
// record is a line of families/list.cc.
// Covered by tests/unit/families_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "memcalc/spec/architecture.h"
#include "memcalc/spec/behaviors.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

class HfReader;
class Model;
class ModuleBuilder;
struct MegatronConfig;
struct ModelSpec;

/// Sizes out of a config.json, with transformers' defaults. Throws Error(kInput), Error(kUnsupported).
using ReadFamily = Architecture(HfReader&);
/// The modules, on the builder's tape. `BuildFamily build_opt;` declares such a function.
using BuildFamily = std::unique_ptr<Model>(const Architecture&, const RunSpec&, ModuleBuilder&);

enum class FamilyKind {
  kEncoder,         // one sequence, every token sees every other: BERT
  kDecoder,         // predicts the next token of its one sequence
  kEncoderDecoder,  // a decoder that attends to an encoder of tokens: T5, BART
  kSpeech,          // the same of sound: Whisper
  kImages,          // classifies images
  kContrastive,     // images and texts that belong together: CLIP
};

/// A size stands under one key of config.json, or under two where an encoder and a decoder have it each; none: the
/// family has no such size.
struct SizeKeys {
  std::string_view first, second;

  [[nodiscard]] constexpr bool empty() const { return first.empty(); }
};
/// In the order of ArchitectureChanges: layers, hidden, heads, kv-heads, head-dim, ffn, vocab, max-positions, tie,
/// image.
using SizeKeysOfFamily = std::array<SizeKeys, 10>;

[[nodiscard]] constexpr SizeKeysOfFamily with(SizeKeysOfFamily keys, std::size_t size, SizeKeys of) {
  keys[size] = of;
  return keys;
}
inline constexpr SizeKeysOfFamily kEncoderKeys = {{{"num_hidden_layers", ""},
                                                   {"hidden_size", ""},
                                                   {"num_attention_heads", ""},
                                                   {},
                                                   {},
                                                   {"intermediate_size", ""},
                                                   {"vocab_size", ""},
                                                   {"max_position_embeddings", ""},
                                                   {"tie_word_embeddings", ""},
                                                   {}}};
inline constexpr SizeKeysOfFamily kDecoderKeys =
    with(with(kEncoderKeys, 3, {"num_key_value_heads", ""}), 4, {"head_dim", ""});
/// Of decoders whose heads are as wide as hidden_size has it.
inline constexpr SizeKeysOfFamily kUnsizedHeadKeys = with(kDecoderKeys, 4, {});
/// Of DeepSeek's attention, in which a head has several widths and every query its own key.
inline constexpr SizeKeysOfFamily kLatentKeys = with(kEncoderKeys, 2, {"num_attention_heads", "num_key_value_heads"});
inline constexpr SizeKeysOfFamily kImageKeys =
    with(with(with(with(kEncoderKeys, 6, {}), 7, {}), 8, {}), 9, {"image_size", ""});
inline constexpr SizeKeysOfFamily kSeq2SeqKeys = {{{"encoder_layers", "decoder_layers"},
                                                   {"d_model", ""},
                                                   {"encoder_attention_heads", "decoder_attention_heads"},
                                                   {},
                                                   {},
                                                   {"encoder_ffn_dim", "decoder_ffn_dim"},
                                                   {"vocab_size", ""},
                                                   {"max_position_embeddings", ""},
                                                   {"tie_word_embeddings", ""},
                                                   {}}};

/// Tasks that several families have or were compared in.
inline constexpr Task kCausalLmAlone[] = {Task::kCausalLm};
inline constexpr Task kCausalLmAndClassifier[] = {Task::kCausalLm, Task::kSequenceClassification};
inline constexpr Task kMaskedLmAlone[] = {Task::kMaskedLm};
inline constexpr Task kClassifierAndMaskedLm[] = {Task::kSequenceClassification, Task::kMaskedLm};
inline constexpr Task kEncoderTasks[] = {Task::kSequenceClassification, Task::kMaskedLm, Task::kTokenClassification};
inline constexpr Task kSeq2SeqAlone[] = {Task::kSeq2Seq};
inline constexpr Task kImageClassifier[] = {Task::kImageClassification};

/// The ids that generation_config holds as tensors on the card; the tokenizer's pad token always is one. What the
/// configuration class of a model type gives where config.json says nothing (configuration_*.py).
struct SpecialTokens {
  bool begins = true;              // bos_token_id
  bool ends = true;                // eos_token_id: one
  bool has_decoder_start = false;  // decoder_start_token_id
  bool forces_end = false;         // forced_eos_token_id: the last token is the end
};

/// A part of a tensor's name in a checkpoint, and what stands for it in the module's.
struct Renaming {
  std::string_view from, to;
  bool starts_name = false;  // only there
};

struct Family {
  std::string_view model_type;  // of transformers
  FamilyKind kind = FamilyKind::kDecoder;
  ReadFamily* read = nullptr;
  BuildFamily* build = nullptr;
  SizeKeysOfFamily size_keys = {};   // none: its sizes are no options
  std::span<const Task> tasks{};     // that its classes have; none: those of its kind
  std::span<const Task> measured{};  // tasks of which runs were compared with recorded ones (tests/measured)

  // --- what it shares with transformers' class
  SpecialTokens special_tokens{};
  std::span<const Renaming> renamings{};          // of a checkpoint's names, in this order
  bool loads_by_checkpoint_names = false;         // the renamings decide in which order the tensors are loaded
  std::span<const std::string_view> tp_plan{};    // of base_model_tp_plan: the last parts of the modules' names
  bool (*is_eager)(const Behaviors&) = nullptr;   // there is no other attention than eager with these behaviours
  bool dropout_is_module = true;                  // nn.Dropout, which TRL can switch off; else F.dropout
  bool shares_position_bias = false;              // between layers (T5)
  bool decoder_config_is_copy = false;            // the decoder has its own copy of the configuration (T5)
  bool use_cache_by_default = true;               // use_cache of its configuration class
  bool keeps_cache_in_inference = false;          // of encoder-decoders; decoders do
  bool has_own_classifier = false;                // …ForSequenceClassification that took no loss kwargs before 5.0
  bool is_torchvision = false;                    // torchvision's modules, not transformers'
  bool checkpoints = true;                        // supports_gradient_checkpointing
  bool repeats_layers = false;                    // a layer runs several times in a forward pass (ALBERT)
  bool skips_layers_at_random = false;            // LayerDrop: in training Python reads a random number before each
  bool has_no_attention = false;                  // state spaces alone: Mamba
  bool answers_questions = false;                 // …ForQuestionAnswering, whose head is models/span_head.h's
  double instructions_per_operator = 0;           // Python's, in a layer that decodes; 0: not counted
  void (*as_transformers)(ModelSpec&) = nullptr;  // what transformers makes of config.json whatever it says

  // --- what memcalc models of it
  bool liger = false;
  bool cut_cross_entropy = true;      // a causal model's head and loss are those that --cut-cross-entropy replaces
  bool has_router_loss = false;       // that balances its experts: router logits of all layers are kept for it
  bool sequence_parallel = false;     // --sp of torch
  bool ulysses = false;               // layers hand position_ids to the attention function
  bool float8 = false;                // it is known which products torchao converts
  bool fp8_layers = false;            // transformers' FP8Linear takes the place of its nn.Linear
  bool has_stages = false;            // models/pipeline_stages.h
  bool has_latent_attention = false;  // keys and values of every head from a compressed state
  bool loops_over_experts = false;    // before 5.0, as it was then
  bool compiled_whole_alone = false;  // which layers torch.compile would take is not known
  std::string_view preset{};          // of --arch: keys without a default in transformers, as JSON members
  std::string_view told{};            // the assumption that goes with them
  void (*to_megatron)(const Architecture&, MegatronConfig&) = nullptr;  // Megatron-core's model in its shape
};

/// Of the family of that name; transformers' own defaults where there is none.
[[nodiscard]] SpecialTokens special_tokens_of(std::string_view model_type);

/// All of them, by model_type.
[[nodiscard]] std::span<const Family* const> families();
/// Null: there is none of that name.
[[nodiscard]] const Family* find_family(std::string_view model_type);
/// Null: a program, or a user's own layers.
[[nodiscard]] const Family* family_of(const ModelSpec& model);

}  // namespace memcalc
