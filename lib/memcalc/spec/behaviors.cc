#include "memcalc/spec/behaviors.h"

#include <type_traits>

namespace memcalc {
namespace {

constexpr std::string_view kNoYes[] = {"no", "yes"};
constexpr std::string_view kCudnnAttention[] = {"nowhere", "9.0-10.0", "9.0-10.0-10.3"};
constexpr std::string_view kCublasWorkspaces[] = {"hopper", "hopper-and-blackwell"};
constexpr std::string_view kExpertForms[] = {"loop", "argsort", "masked-in-place", "masked-by-copies", "unmasked"};
constexpr std::string_view kGpt2Buffers[] = {"none", "mask", "mask-and-scalar"};
constexpr std::string_view kFsdp2Upcasts[] = {"all-shards", "nothing", "trainable"};
constexpr std::string_view kT5Attention[] = {"eager", "sdpa", "sdpa-contiguous"};

template <auto kMember>
constexpr Behavior row(std::string_view name, Software software, std::string_view meaning,
                       std::span<const std::string_view> values = kNoYes) {
  using Value = std::remove_cvref_t<decltype(Behaviors{}.*kMember)>;
  return {.name = name,
          .software = software,
          .meaning = meaning,
          .values = values,
          .get = [](const Behaviors& b) { return static_cast<std::uint8_t>(b.*kMember); },
          .set = [](Behaviors& b, std::uint8_t value) { b.*kMember = static_cast<Value>(value); }};
}

using B = Behaviors;
using S = Software;

constexpr Behavior kTable[] = {
    row<&B::cudnn_attention>("sdpa.prefers-cudnn", S::kTorch, "SDPA tries cuDNN first on cards of this capability",
                             kCudnnAttention),
    row<&B::cublas_workspace>("cublas.workspace", S::kTorch, "cards whose cuBLAS workspace is 32 MiB by default",
                              kCublasWorkspaces),
    row<&B::open_slices_are_views>("indexing.open-slices", S::kTorch,
                                   "x[:, ...] slices each dimension that it takes whole, with a backward of its own"),

    row<&B::packed_check_keeps_mask>("masks.packed-check", S::kTransformers,
                                     "without mask and cache the check for packed rows always makes a mask"),
    row<&B::masks_by_vmap>("masks.by-vmap", S::kTransformers, "masks are made by torch.vmap, not by broadcasting"),
    row<&B::cache_positions>("masks.cache-positions", S::kTransformers,
                             "models make one tensor of positions, cache_position, and keep it"),
    row<&B::all_by_sum>("masks.all-by-sum", S::kTransformers, "whether nothing is padded is asked by a sum"),
    row<&B::masks_of_ones>("masks.of-ones", S::kTransformers, "encoders make a mask of ones where none is passed"),
    row<&B::reentrant_checkpoints>("checkpointing.reentrant", S::kTransformers,
                                   "activation checkpointing is reentrant by default"),
    row<&B::gemma_caches_in_training>("gemma.caches-in-training", S::kTransformers,
                                      "Gemma 2 and 3 keep the key-value cache while they train"),
    row<&B::gemma_scales_late>("gemma.scales-late", S::kTransformers,
                               "Gemma and Gemma 2 scale embeddings after the masks and keep the raw ones"),
    row<&B::gemma2_eager>("gemma2.eager", S::kTransformers, "Gemma 2 has no SDPA: eager attention"),
    row<&B::gemma3_rotates_per_layer>("gemma3.rotates-per-layer", S::kTransformers,
                                      "Gemma 3 computes rotary angles for each layer, not for each kind of layer"),
    row<&B::two_inverse_frequencies>("rotary.two-buffers", S::kTransformers,
                                     "rotary embeddings hold a copy of their inverse frequencies"),
    row<&B::inverse_frequencies_from_int>("rotary.from-int", S::kTransformers,
                                          "inverse frequencies are made from whole numbers"),
    row<&B::rotary_by_matmul>("rotary.by-matmul", S::kTransformers, "rotary angles are a matrix product"),
    row<&B::opt_mask_of_ones>("opt.mask-of-ones", S::kTransformers, "OPT's own mask of ones reaches the causal mask"),
    row<&B::vit_keeps_locals>("vit.keeps-locals", S::kTransformers, "a ViT layer keeps its norm's output to its end"),
    row<&B::clip_text_mask>("clip.text-mask", S::kTransformers, "CLIP's text model always makes its causal mask"),
    row<&B::electra_eager>("electra.eager", S::kTransformers, "ELECTRA has no SDPA: eager attention"),
    row<&B::t5_masks_of_ones>("t5.masks-of-ones", S::kTransformers,
                              "T5 makes masks of ones and adds them to the position bias"),
    row<&B::t5_ties_head>("t5.ties-head", S::kTransformers,
                          "T5's head shares the embedding's weight whatever config.json says"),
    row<&B::t5_attention>("t5.attention", S::kTransformers, "T5's attention, and whether its bias is contiguous",
                          kT5Attention),
    row<&B::experts>("experts.form", S::kTransformers, "how a layer of experts multiplies", kExpertForms),
    row<&B::qwen_routes_in_float32>("experts.qwen-float32", S::kTransformers,
                                    "Qwen's mixtures keep routing weights in float32"),
    row<&B::gpt2_buffers>("gpt2.buffers", S::kTransformers, "what GPT-2's attention registers beside its weights",
                          kGpt2Buffers),
    row<&B::decoding_packs_queries>("decoding.packs-queries", S::kTransformers,
                                    "padded batches decode without repeated keys and values"),
    row<&B::trainer_keeps_use_cache>("trainer.keeps-use-cache", S::kTransformers,
                                     "the Trainer leaves config.use_cache on"),
    row<&B::loads_in_float32>("load.float32", S::kTransformers, "from_pretrained loads in float32 by default"),
    row<&B::counts_shifted_labels>("trainer.shifted-counts", S::kTransformers,
                                   "the Trainer counts labels without the first of each row where the loss shifts"),
    row<&B::decoders_alone_take_counts>("trainer.decoder-counts", S::kTransformers,
                                        "the Trainer counts labels for decoders' losses alone"),

    row<&B::fsdp2_upcasts>("fsdp2.upcasts", S::kAccelerate, "what FSDP2 with mixed precision turns into float32",
                           kFsdp2Upcasts),
    row<&B::fsdp2_wraps_ends>("fsdp2.wraps-ends", S::kAccelerate,
                              "embedding, and final norm with the head, are FSDP2 units of their own"),

    row<&B::sft_chunked_loss>("sft.chunked-loss", S::kTrl, "SFTTrainer computes its loss in chunks"),

    row<&B::keeps_packed_inputs>("nf4.keeps-inputs", S::kBitsandbytes,
                                 "4-bit products keep their input until the backward pass"),
};

}  // namespace

std::span<const Behavior> behavior_table() { return kTable; }

}  // namespace memcalc
