#include "memcalc/spec/behaviors.h"

#include <algorithm>
#include <iterator>
#include <type_traits>

namespace memcalc {
namespace {

constexpr std::string_view kNoYes[] = {"no", "yes"};
constexpr std::string_view kCudnnAttention[] = {"nowhere", "9.0-10.0", "9.0-10.0-10.3"};
constexpr std::string_view kCublasWorkspaces[] = {"hopper", "hopper-and-blackwell"};
constexpr std::string_view kExpertForms[] = {"loop", "argsort", "masked-in-place", "masked-by-copies", "unmasked"};
constexpr std::string_view kGpt2Buffers[] = {"none", "mask", "mask-and-scalar"};
constexpr std::string_view kFsdp2Upcasts[] = {"all-shards", "nothing", "trainable"};
constexpr std::string_view kExpertAdapters[] = {"as-made", "whole", "factors"};
constexpr std::string_view kConvertedNames[] = {"none", "listed", "all"};
constexpr std::string_view kSftLossForms[] = {"logits",        "checkpointed-chunks",  "fused-head",
                                              "packed-chunks", "chunks-in-their-type", "shifted-copies",
                                              "shifted-views"};
constexpr std::string_view kPreferenceScores[] = {"unread", "logits-of-pairs", "logits", "fused-head"};
constexpr std::string_view kLigerLosses[] = {"products", "float32-in-place", "in-place"};
constexpr std::string_view kT5Attention[] = {"eager", "sdpa", "sdpa-contiguous"};

// Of each value, in the order of the values. Measured: runs on a card under a release that has it are exact, or what is
// left of their error has another cause (docs/versions.md).
using E = Evidence;
constexpr Evidence kMeasured[] = {E::kMeasured, E::kMeasured};
constexpr Evidence kSourcesAlone[] = {E::kSources, E::kSources};
constexpr Evidence kYesMeasured[] = {E::kSources, E::kMeasured};
constexpr Evidence kNoMeasured[] = {E::kMeasured, E::kSources};
constexpr Evidence kYesRecorded[] = {E::kMeasured, E::kStreams};
constexpr Evidence kCudnnEvidence[] = {E::kSources, E::kMeasured, E::kSources};
constexpr Evidence kExpertEvidence[] = {E::kMeasured, E::kMeasured, E::kStreams, E::kMeasured, E::kMeasured};
constexpr Evidence kGpt2Evidence[] = {E::kMeasured, E::kSources, E::kMeasured};
constexpr Evidence kLigerEvidence[] = {E::kMeasured, E::kSources, E::kMeasured};
constexpr Evidence kT5Evidence[] = {E::kMeasured, E::kMeasured, E::kMeasured};
constexpr Evidence kLastOfThreeMeasured[] = {E::kSources, E::kSources, E::kMeasured};
constexpr Evidence kSftLossEvidence[] = {E::kMeasured, E::kMeasured, E::kMeasured, E::kMeasured,
                                         E::kMeasured, E::kMeasured, E::kSources};
constexpr Evidence kPreferenceEvidence[] = {E::kSources, E::kMeasured, E::kMeasured, E::kMeasured};
constexpr Evidence kUpcastEvidence[] = {E::kSources, E::kSources, E::kMeasured};

template <auto kMember, std::size_t kCount>
constexpr Behavior row(Software software, std::string_view meaning, const Evidence (&evidence)[kCount],
                       std::string_view source, std::span<const std::string_view> values = kNoYes) {
  using Choice = std::remove_cvref_t<decltype(Behaviors{}.*kMember)>;
  return {.name = Choice::kName,
          .software = software,
          .meaning = meaning,
          .values = values,
          .evidence = evidence,
          .source = source,
          .get = [](const Behaviors& b) { return static_cast<std::uint8_t>((b.*kMember).unnoted()); },
          .set = [](Behaviors& b, std::uint8_t value) { b.*kMember = static_cast<typename Choice::Value>(value); }};
}

using B = Behaviors;
using S = Software;

constexpr Behavior kTable[] = {
    row<&B::cudnn_attention>(S::kTorch, "SDPA tries cuDNN first on cards of this capability", kCudnnEvidence,
                             "ATen/native/transformers/cuda/sdp_utils.cpp; wheels 2.8.0, 2.9.1, 2.10.0, 2.11.0, 2.15.0",
                             kCudnnAttention),
    row<&B::cublas_workspace>(S::kTorch, "cards whose cuBLAS workspace is 32 MiB by default", kNoMeasured,
                              "ATen/cuda/CublasHandlePool.cpp; wheels 2.8.0 to 2.15.0", kCublasWorkspaces),
    row<&B::open_slices_are_views>(
        S::kTorch, "x[:, ...] slices each dimension that it takes whole, with a backward of its own", kYesRecorded,
        "torch/csrc/autograd/python_variable_indexing.cpp; streams under 2.8.0, 2.10.0, 2.15.0"),

    row<&B::packed_check_keeps_mask>(S::kTransformers,
                                     "without mask and cache the check for packed rows always makes a mask", kMeasured,
                                     "masking_utils.py; 4.57.6, 5.5.4"),
    row<&B::masks_by_vmap>(S::kTransformers, "masks are made by torch.vmap, not by broadcasting", kMeasured,
                           "masking_utils.py; 4.57.6, 5.5.4"),
    row<&B::cache_positions>(S::kTransformers, "models make one tensor of positions, cache_position, and keep it",
                             kMeasured, "models/llama/modeling_llama.py; 4.57.6, 5.0.0, 5.5.4"),
    row<&B::all_by_sum>(S::kTransformers, "whether nothing is padded is asked by a sum", kMeasured,
                        "masking_utils.py; 5.13.1, 5.14.1"),
    row<&B::masks_of_ones>(S::kTransformers, "encoders make a mask of ones where none is passed", kMeasured,
                           "models/bert/modeling_bert.py; 4.57.6, 5.5.4"),
    row<&B::adds_positions_in_place>(
        S::kTransformers, "encoders of BERT's line add positions in place and slice their token types, not gather them",
        kMeasured, "models/bert/modeling_bert.py; 4.57.6, 5.5.4"),
    row<&B::roberta_positions_twice>(
        S::kTransformers,
        "RoBERTa makes its position embeddings twice: the second keep the first's place among the parameters",
        kNoMeasured, "models/roberta/modeling_roberta.py; 4.57.6, 5.0.0, 5.5.4"),
    row<&B::reentrant_checkpoints>(S::kTransformers, "activation checkpointing is reentrant by default", kMeasured,
                                   "modeling_utils.py; 4.57.6, 5.0.0"),
    row<&B::checkpoints_forward>(S::kTransformers, "a layer's checkpoint lies inside of FSDP2's hooks", kNoMeasured,
                                 "modeling_layers.py; 5.22.2, 5.23.0"),
    row<&B::checkpoints_every_nth>(S::kTransformers, "gradient_checkpointing_enable takes every_n_layers", kYesMeasured,
                                   "modeling_utils.py; 5.15.1, 5.16.1"),
    row<&B::gemma_caches_in_training>(S::kTransformers, "Gemma 2 and 3 keep the key-value cache while they train",
                                      kMeasured, "models/gemma3/modeling_gemma3.py; 4.57.6, 5.0.0"),
    row<&B::gemma_scales_late>(S::kTransformers,
                               "Gemma and Gemma 2 scale embeddings after the masks and keep the raw ones", kMeasured,
                               "models/gemma2/modeling_gemma2.py; 4.57.6, 5.5.4"),
    row<&B::gemma2_eager>(S::kTransformers, "Gemma 2 has no SDPA: eager attention", kNoMeasured,
                          "models/gemma2/modeling_gemma2.py; 5.20.2, 5.21.1"),
    row<&B::gemma3_rotates_per_layer>(S::kTransformers,
                                      "Gemma 3 computes rotary angles for each layer, not for each kind of layer",
                                      kMeasured, "models/gemma3/modeling_gemma3.py; 5.5.4, 5.9.0"),
    row<&B::two_inverse_frequencies>(S::kTransformers, "rotary embeddings hold a copy of their inverse frequencies",
                                     kMeasured, "models/llama/modeling_llama.py; 4.57.6, 5.5.4"),
    row<&B::inverse_frequencies_from_int>(S::kTransformers, "inverse frequencies are made from whole numbers",
                                          kMeasured, "modeling_rope_utils.py; 5.14.1, 5.15.1"),
    row<&B::rotary_by_matmul>(S::kTransformers, "rotary angles are a matrix product", kMeasured,
                              "models/llama/modeling_llama.py; 5.18.0, 5.19.0"),
    row<&B::opt_mask_of_ones>(S::kTransformers, "OPT's own mask of ones reaches the causal mask", kMeasured,
                              "models/opt/modeling_opt.py; 5.17.0, 5.18.0"),
    row<&B::vit_keeps_locals>(S::kTransformers, "a ViT layer keeps its norm's output to its end", kMeasured,
                              "models/vit/modeling_vit.py; 5.5.4, 5.9.0"),
    row<&B::clip_text_mask>(S::kTransformers, "CLIP's text model always makes its causal mask", kYesRecorded,
                            "models/clip/modeling_clip.py; 4.57.6, 5.5.4"),
    row<&B::clip_projects_last>(S::kTransformers, "CLIP projects its images behind the text model", kMeasured,
                                "models/clip/modeling_clip.py; 5.5.4, 5.9.0"),
    row<&B::whisper_projects_first>(S::kTransformers, "Whisper projects keys and values before it copies either",
                                    kMeasured, "models/whisper/modeling_whisper.py; 5.0.0, 5.5.4"),
    row<&B::electra_eager>(S::kTransformers, "ELECTRA has no SDPA: eager attention", kNoMeasured,
                           "models/electra/modeling_electra.py; 4.57.6, 5.0.0"),
    row<&B::t5_masks_of_ones>(S::kTransformers, "T5 makes masks of ones and adds them to the position bias", kMeasured,
                              "models/t5/modeling_t5.py; 4.57.6, 5.5.4"),
    row<&B::t5_ties_head>(S::kTransformers, "T5's head shares the embedding's weight whatever config.json says",
                          kMeasured, "models/t5/configuration_t5.py; 4.57.6, 5.0.0"),
    row<&B::t5_attention>(S::kTransformers, "T5's attention, and whether its bias is contiguous", kT5Evidence,
                          "models/t5/modeling_t5.py, integrations/sdpa_attention.py; 5.14.1, 5.15.1, 5.20.2",
                          kT5Attention),
    row<&B::experts>(S::kTransformers, "how a layer of experts multiplies", kExpertEvidence,
                     "integrations/moe.py; 4.57.6, 5.5.4, 5.9.0, 5.12.1, 5.17.0, 5.18.0", kExpertForms),
    row<&B::qwen_routes_in_float32>(S::kTransformers, "Qwen's mixtures keep routing weights in float32", kMeasured,
                                    "models/qwen3_moe/modeling_qwen3_moe.py; 5.5.4, 5.9.0"),
    row<&B::mixtral_rebinds_logits>(S::kTransformers, "Mixtral's router lets go of its logits before it chooses",
                                    kYesRecorded, "models/mixtral/modeling_mixtral.py; 5.5.4, 5.9.0"),
    row<&B::deepseek_caches_latent>(S::kTransformers, "DeepSeek's cache holds the latent, expanded in each layer",
                                    kYesMeasured, "models/deepseek_v3/modeling_deepseek_v3.py; 5.14.1, 5.15.0"),
    row<&B::gpt2_buffers>(S::kTransformers, "what GPT-2's attention registers beside its weights", kGpt2Evidence,
                          "models/gpt2/modeling_gpt2.py; 4.57.6, 5.0.0, 5.5.4", kGpt2Buffers),
    row<&B::decoding_packs_queries>(S::kTransformers, "padded batches decode without repeated keys and values",
                                    kYesRecorded, "integrations/sdpa_attention.py; 5.22.2, 5.23.0"),
    row<&B::trainer_keeps_use_cache>(S::kTransformers, "the Trainer leaves config.use_cache on", kMeasured,
                                     "trainer.py; 4.57.6, 5.5.4"),
    row<&B::loads_in_float32>(S::kTransformers, "from_pretrained loads in float32 by default", kNoMeasured,
                              "modeling_utils.py; 4.57.6, 5.0.0"),
    row<&B::counts_shifted_labels>(S::kTransformers,
                                   "the Trainer counts labels without the first of each row where the loss shifts",
                                   kMeasured, "trainer.py; 5.9.0, 5.12.1"),
    row<&B::decoders_alone_take_counts>(S::kTransformers, "the Trainer counts labels for decoders' losses alone",
                                        kMeasured, "trainer.py; 4.57.6, 5.0.0"),
    row<&B::loads_by_conversion>(S::kTransformers, "from_pretrained converts and places tensors as they are read",
                                 kYesMeasured, "core_model_loading.py; none in 4.57.6, 5.0.0"),
    row<&B::drops_with_epoch>(S::kTransformers, "an epoch's last batches, loss and gradient norm die with it",
                              kYesMeasured, "trainer.py; 4.57.6, 5.0.0, 5.5.4"),
    row<&B::compile_is_read>(S::kTransformers, "what torch.compile traces of these models was read", kYesMeasured,
                             "masking_utils.py, models/; 5.17.0"),

    row<&B::fsdp2_upcasts>(S::kAccelerate, "what FSDP2 with mixed precision turns into float32", kUpcastEvidence,
                           "utils/fsdp_utils.py; 1.12.0, 1.13.0, 1.14.0", kFsdp2Upcasts),
    row<&B::fsdp2_wraps_ends>(S::kAccelerate, "embedding, and final norm with the head, are FSDP2 units of their own",
                              kYesMeasured, "utils/fsdp_utils.py; 1.13.0, 1.14.0"),

    row<&B::kbit_empties_cache>(S::kPeft, "prepare_model_for_kbit_training empties the cache after its casts",
                                kYesMeasured, "utils/other.py; 0.19.1, 0.20.0"),

    row<&B::expert_adapters>(S::kPeft, "how the adapter of experts in one parameter is added to it",
                             kLastOfThreeMeasured, "tuners/lora/layer.py; 0.18.1, 0.19.1, 0.20.0, 0.21.2",
                             kExpertAdapters),
    row<&B::converted_names>(S::kPeft, "which names of expert modules mean their parameters", kLastOfThreeMeasured,
                             "utils/transformers_weight_conversion.py; 0.18.1, 0.19.1, 0.20.0", kConvertedNames),

    row<&B::sft_loss>(S::kTrl, "how SFTTrainer computes its loss by default", kSftLossEvidence,
                      "trainer/sft_config.py, sft_trainer.py; 1.1.0, 1.3.0 to 1.14.2, 1.15.0", kSftLossForms),
    row<&B::trl_trainers_are_read>(S::kTrl, "trainers beside the SFTTrainer do what was read of them", kYesMeasured,
                                   "trainer/; 0.27.2, 1.1.0 (reward models), 1.15.0, 1.16.0"),
    row<&B::preference_scores>(
        S::kTrl, "how DPOTrainer, ORPOTrainer and KTOTrainer take each token's log-probability", kPreferenceEvidence,
        "trainer/dpo_trainer.py, kto_trainer.py, utils.py, experimental/orpo; 1.6.0 to 1.14.2, 1.15.0",
        kPreferenceScores),
    row<&B::reference_is_as_policy>(
        S::kTrl, "a reference read beside a model object has its dtype and attention, not float32 and the default",
        kMeasured, "trainer/dpo_trainer.py, grpo_trainer.py, kto_trainer.py, rloo_trainer.py; 1.15.0, 1.16.0"),
    row<&B::casts_lengths>(S::kTrl, "DoRA's lengths over a packed base are cast with the adapters", kSourcesAlone,
                           "trainer/sft_trainer.py, reward_trainer.py; 1.14.2, 1.15.0"),

    row<&B::keeps_packed_inputs>(S::kBitsandbytes, "4-bit products keep their input until the backward pass",
                                 kNoMeasured, "autograd/_functions.py; 0.43.2"),

    row<&B::liger_loss>(S::kLigerKernel, "how the fused loss adds each chunk's part to the gradient of the head",
                        kLigerEvidence, "ops/fused_linear_cross_entropy.py; wheels 0.6.1 to 0.8.5", kLigerLosses),
};

}  // namespace

static_assert(std::size(kTable) <= BehaviorReads::Rows{}.size());

std::span<const Behavior> behavior_table() { return kTable; }

std::size_t row_of_behavior(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kTable), std::end(kTable), [&](const Behavior& row) { return row.name == name; });
  return static_cast<std::size_t>(found - std::begin(kTable));
}

Evidence evidence_of(const Behavior& row, const Behaviors& behaviors) { return row.evidence[row.get(behaviors)]; }

}  // namespace memcalc
