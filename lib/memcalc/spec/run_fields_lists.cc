// The rows of the table of a run that stand in --megatron's and --deepspeed's lists, by those programs' own names.
// MIRRORS(deepspeed, "runtime/zero/config.py", "0.19.8")
#include <string>

#include "memcalc/spec/family.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/run_field_access.h"

namespace memcalc {
namespace {

using fields::has_stages, fields::is_deepspeed, fields::is_megatron, fields::kBelowOne, fields::kProbability,
    fields::nothing, fields::put, fields::put_not, fields::row, fields::take, fields::take_but, fields::take_not;
using M = MegatronLayout;
using Z = DeepSpeedZero;
using G = FieldGroup;
using K = FieldType;

constexpr std::string_view kAttentionBackends[] = {"fused", "flash", "auto", "unfused"};
constexpr std::string_view kEngines[] = {"2.11", "1.2"};
constexpr std::string_view kTransformerImplementations[] = {"transformer_engine", "local"};
constexpr std::string_view kLossImplementations[] = {"native", "te"};
constexpr std::string_view kNormalizations[] = {"LayerNorm", "RMSNorm"};
constexpr std::string_view kRouterTypes[] = {"none", "fp32"};
constexpr std::string_view kDispatchers[] = {"alltoall", "allgather"};
constexpr std::string_view kPositionEmbeddings[] = {"learned_absolute", "rope"};
constexpr std::string_view kRecomputeMethods[] = {"uniform", "block"};
constexpr double kMostMegatron = 1 << 20;
constexpr double kMostPositions = 1 << 30;
constexpr double kMostElements = 1e15;  // of DeepSpeed's buckets

bool has_megatron_stages(const RunRecord& r) { return is_megatron(r) && has_stages(r); }
bool has_even_megatron_stages(const RunRecord& r) {
  return has_megatron_stages(r) && r.run.parallel.virtual_stages == 1;
}
bool has_megatron_chunks(const RunRecord& r) { return is_megatron(r) && r.run.parallel.virtual_stages > 1; }
bool defers_head_gradient(const RunRecord& r) {
  return is_megatron(r) && r.run.parallel.megatron().defers_head_gradient;
}
bool has_megatron_experts(const RunRecord& r) { return is_megatron(r) && has_experts(r.model); }
bool has_uneven_experts(const RunRecord& r) {
  return has_megatron_experts(r) && !r.run.parallel.megatron().expert_capacity;
}
bool is_megatron_dense(const RunRecord& r) { return is_megatron(r) && !has_experts(r.model); }
bool has_megatron_rotary(const RunRecord& r) {
  const Family* const family = family_of(r.model);
  const bool latent = family != nullptr && family->has_latent_attention;
  const bool by_itself = !position_limit(r.model);  // no table of positions
  return is_megatron(r) && !latent && r.run.parallel.megatron().rotary.value_or(by_itself);
}
bool shards_megatron_states(const RunRecord& r) { return r.run.parallel.data_parallel == DataParallel::kMegatronDist; }
bool recomputes_megatron_layers(const RunRecord& r) {
  return is_megatron(r) && r.run.checkpointing() == Checkpointing::kFull;
}
bool is_zero3(const RunRecord& r) { return r.run.parallel.data_parallel == DataParallel::kDsZero3; }
bool gathers_by_zero3(const RunRecord& r) {
  return is_zero3(r) && (r.run.parallel.gpus > 1 || r.run.parallel.offload_parameters != OffloadTo::kNowhere);
}
bool steps_on_card_by_zero3(const RunRecord& r) {
  return is_zero3(r) && r.run.parallel.offload_states == OffloadTo::kNowhere;
}

// Megatron's: two values of one name are two enumerators, or true and false.
bool put_attention_backend(RunRequest& request, const FieldValue& value) {
  MegatronAttention& attention = request.run.megatron.attention;
  if (attention == MegatronAttention::kLocal) return true;
  const auto& name = std::get<std::string>(value);
  attention = name == "unfused" ? MegatronAttention::kUnfused
              : name == "flash" ? MegatronAttention::kFlash
                                : MegatronAttention::kFused;
  return true;
}
std::optional<FieldValue> take_attention_backend(const RunRecord& r) {
  const MegatronAttention attention = r.run.parallel.megatron().attention;
  switch (attention) {
    case MegatronAttention::kLocal: return std::nullopt;
    case MegatronAttention::kFlash: return std::string("flash");
    case MegatronAttention::kUnfused: return std::string("unfused");
    case MegatronAttention::kFused: break;
  }
  return std::string("fused");
}
bool put_transformer_implementation(RunRequest& request, const FieldValue& value) {
  if (std::get<std::string>(value) == "local") request.run.megatron.attention = MegatronAttention::kLocal;
  return true;
}
std::optional<FieldValue> take_transformer_implementation(const RunRecord& r) {
  return r.run.parallel.megatron().attention == MegatronAttention::kLocal ? std::string("local")
                                                                          : std::string("transformer_engine");
}
bool put_loss_fusion(RunRequest& request, const FieldValue& value) {
  MegatronLoss& loss = request.run.megatron.loss;
  if (std::get<bool>(value) && loss == MegatronLoss::kNative) loss = MegatronLoss::kFused;
  return true;
}
std::optional<FieldValue> take_loss_fusion(const RunRecord& r) {
  return r.run.parallel.megatron().loss != MegatronLoss::kNative;
}
bool put_loss_implementation(RunRequest& request, const FieldValue& value) {
  const bool by_engine = std::get<std::string>(value) == "te";
  request.run.megatron.loss = by_engine ? MegatronLoss::kTe : MegatronLoss::kFused;
  return true;
}
std::optional<FieldValue> take_loss_implementation(const RunRecord& r) {
  if (r.run.parallel.megatron().loss == MegatronLoss::kNative) return std::nullopt;
  return r.run.parallel.megatron().loss == MegatronLoss::kTe ? std::string("te") : std::string("native");
}
/// Of two names: the second means true.
template <auto kMember, const auto& kNames>
bool put_second(RunRequest& request, const FieldValue& value) {
  const auto& name = std::get<std::string>(value);
  return (name == kNames[0] || name == kNames[1]) && put<kMember>(request, name == kNames[1]);
}
template <auto kMember, const auto& kNames>
std::optional<FieldValue> take_second(const RunRecord& ran) {
  const auto value = take<kMember>(ran);
  if (!value) return std::nullopt;
  return std::string(kNames[std::get<bool>(*value) ? 1 : 0]);
}
bool put_nothing(RunRequest& /*request*/, const FieldValue& /*value*/) { return true; }

constexpr std::string_view kMegatronRuns = "Megatron (--framework megatron)";
constexpr std::string_view kMegatronStages = "Megatron's pipelines (--framework megatron --pp N)";
constexpr std::string_view kMegatronExperts = "Megatron's models with experts (--framework megatron)";

const Field kFields[] = {
    // --- in --megatron: megatron/training/arguments.py, core_r0.14.0 ---
    row("account-for-embedding-in-pipeline-split", "account-for-embedding-in-pipeline-split", G::kMegatron, K::kFlag,
        "", "the embedding takes the place of a layer",
        {.set = put<&M::counts_embedding>,
         .get = take<&M::counts_embedding>,
         .exists = has_megatron_stages,
         .belongs_to = kMegatronStages}),
    row("account-for-loss-in-pipeline-split", "account-for-loss-in-pipeline-split", G::kMegatron, K::kFlag, "",
        "the loss takes the place of a layer",
        {.set = put<&M::counts_loss>,
         .get = take<&M::counts_loss>,
         .exists = has_megatron_stages,
         .belongs_to = kMegatronStages}),
    // A kernel that adds 1 to its weights as it reads them: nothing changes.
    row("apply-layernorm-1p", "apply-layernorm-1p", G::kMegatron, K::kFlag, "", "changes no byte",
        {.set = put_nothing, .get = nothing, .exists = is_megatron, .belongs_to = kMegatronRuns}),
    row("apply-query-key-layer-scaling", "apply-query-key-layer-scaling", G::kMegatron, K::kFlag, "",
        "scores are scaled by layer (transformer-impl=local)",
        {.set = put<&M::scales_by_layer>,
         .get = take<&M::scales_by_layer>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("transformer-impl", "transformer-impl", G::kMegatron, K::kName, "I", "transformer_engine or local",
        {.names = kTransformerImplementations,
         .set = put_transformer_implementation,
         .get = take_transformer_implementation,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("transformer-engine", "transformer-engine", G::kMegatron, K::kName, "V", "its release, 2.11 or 1.2 [2.11]",
        {.names = kEngines,
         .set = put_second<&M::engine_1_2, kEngines>,
         .get = take_second<&M::engine_1_2, kEngines>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("attention-backend", "attention-backend", G::kMegatron, K::kName, "B", "fused, flash, auto or unfused [fused]",
        {.names = kAttentionBackends,
         .set = put_attention_backend,
         .get = take_attention_backend,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("attention-dropout", "attention-dropout", G::kMegatron, K::kNumber, "P", "of the scores [as the model's]",
        {.least = 0,
         .most = kBelowOne,
         .accepted = kProbability,
         .set = put<&M::attention_dropout>,
         .get = take<&M::attention_dropout>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("attention-softmax-in-fp32", "attention-softmax-in-fp32", G::kMegatron, K::kFlag, "",
        "matters to a softmax that is not fused",
        {.set = put<&M::softmax_in_float32>,
         .get = take<&M::softmax_in_float32>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("cross-entropy-loss-fusion", "cross-entropy-loss-fusion", G::kMegatron, K::kFlag, "", "a fused loss",
        {.set = put_loss_fusion, .get = take_loss_fusion, .exists = is_megatron, .belongs_to = kMegatronRuns}),
    row("cross-entropy-fusion-impl", "cross-entropy-fusion-impl", G::kMegatron, K::kName, "I", "native or te",
        {.names = kLossImplementations,
         .set = put_loss_implementation,
         .get = take_loss_implementation,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("decoder-first-pipeline-num-layers", "decoder-first-pipeline-num-layers", G::kMegatron, K::kWhole, "N",
        "layers of the first stage [as others]",
        {.unit = "layers",
         .most = kMostMegatron,
         .set = put<&M::first_stage_layers>,
         .get = take_but<&M::first_stage_layers, std::int64_t{0}>,
         .exists = has_even_megatron_stages,
         .belongs_to = "Megatron's pipelines without virtual stages (--framework megatron --pp N)"}),
    row("decoder-last-pipeline-num-layers", "decoder-last-pipeline-num-layers", G::kMegatron, K::kWhole, "N",
        "layers of the last stage [as others]",
        {.unit = "layers",
         .most = kMostMegatron,
         .set = put<&M::last_stage_layers>,
         .get = take_but<&M::last_stage_layers, std::int64_t{0}>,
         .exists = has_even_megatron_stages,
         .belongs_to = "Megatron's pipelines without virtual stages (--framework megatron --pp N)"}),
    row("defer-embedding-wgrad-compute", "defer-embedding-wgrad-compute", G::kMegatron, K::kFlag, "",
        "the head's weight gradients are put off",
        {.set = put<&M::defers_head_gradient>,
         .get = take<&M::defers_head_gradient>,
         .exists = has_megatron_stages,
         .belongs_to = kMegatronStages}),
    row("deterministic-mode", "deterministic-mode", G::kMegatron, K::kFlag, "",
        "no cuDNN attention but on compute capability 9",
        {.set = put<&M::deterministic>,
         .get = take<&M::deterministic>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("disable-bias-linear", "disable-bias-linear", G::kMegatron, K::kFlag, "", "linear layers without bias",
        {.set = put_not<&M::bias_linear>,
         .get = take_not<&M::bias_linear>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("expert-imbalance", "expert-imbalance", G::kMegatron, K::kNumber, "X",
        "tokens on the fullest rank / average [1]",
        {.least = 1,
         .most = 1e6,
         .accepted = "a number from 1",
         .set = put<&M::expert_imbalance>,
         .get = take<&M::expert_imbalance>,
         .exists = has_uneven_experts,
         .belongs_to =
             "models with experts that take as many tokens as are routed to them: no moe-expert-capacity-factor"}),
    row("expert-tensor-parallel-size", "expert-tensor-parallel-size", G::kMegatron, K::kWhole, "N",
        "ranks that share an expert's matrices [as --tp]",
        {.unit = "ranks",
         .most = kMostMegatron,
         .set = put<&M::expert_tensor>,
         .get = take_but<&M::expert_tensor, std::int64_t{0}>,
         .exists = has_megatron_experts,
         .belongs_to = kMegatronExperts}),
    row("hidden-dropout", "hidden-dropout", G::kMegatron, K::kNumber, "P", "of the residuals [as the model's]",
        {.least = 0,
         .most = kBelowOne,
         .accepted = kProbability,
         .set = put<&M::hidden_dropout>,
         .get = take<&M::hidden_dropout>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("make-vocab-size-divisible-by", "make-vocab-size-divisible-by", G::kMegatron, K::kWhole, "N",
        "rows of the embedding are padded to it, times tp [128]",
        {.most = kMostMegatron,
         .set = put<&M::vocabulary_multiple>,
         .get = take<&M::vocabulary_multiple>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("max-position-embeddings", "max-position-embeddings", G::kMegatron, K::kWhole, "N",
        "learned positions [as the model's; T5: --seq]",
        {.most = kMostPositions,
         .set = put<&M::max_positions>,
         .get = take_but<&M::max_positions, std::int64_t{0}>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("microbatch-group-size-per-virtual-pipeline-stage", "microbatch-group-size-per-virtual-pipeline-stage",
        G::kMegatron, K::kWhole, "N", "micro-batches before the next chunk [--pp]",
        {.unit = "micro-batches",
         .most = kMostMegatron,
         .set = put<&M::micro_batch_group>,
         .get = take_but<&M::micro_batch_group, std::int64_t{0}>,
         .exists = has_megatron_chunks,
         .belongs_to = "Megatron's pipelines with virtual stages (--virtual-stages N)"}),
    row("moe-expert-capacity-factor", "moe-expert-capacity-factor", G::kMegatron, K::kNumber, "X",
        "tokens of an expert / average, padded [none dropped]",
        {.least = 1e-6,
         .most = 1e6,
         .accepted = "a number above 0",
         .set = put<&M::expert_capacity>,
         .get = take<&M::expert_capacity>,
         .exists = has_megatron_experts,
         .belongs_to = kMegatronExperts}),
    row("moe-grouped-gemm", "moe-grouped-gemm", G::kMegatron, K::kFlag, "", "experts' products as one [true]",
        {.set = put<&M::groups_experts>,
         .get = take<&M::groups_experts>,
         .exists = has_megatron_experts,
         .belongs_to = kMegatronExperts}),
    row("moe-permute-fusion", "moe-permute-fusion", G::kMegatron, K::kFlag, "",
        "tokens are permuted by TransformerEngine [true]",
        {.set = put<&M::fuses_permutation>,
         .get = take<&M::fuses_permutation>,
         .exists = has_megatron_experts,
         .belongs_to = kMegatronExperts}),
    row("moe-router-dtype", "moe-router-dtype", G::kMegatron, K::kName, "T", "fp32 or none, as activations [fp32]",
        {.names = kRouterTypes,
         .set = put_second<&M::routes_in_float32, kRouterTypes>,
         .get = take_second<&M::routes_in_float32, kRouterTypes>,
         .exists = has_megatron_experts,
         .belongs_to = kMegatronExperts}),
    row("moe-shared-expert-intermediate-size", "moe-shared-expert-intermediate-size", G::kMegatron, K::kWhole, "N",
        "width of an expert for all tokens [as the model's]",
        {.most = kMostMegatron,
         .set = put<&M::shared_expert_width>,
         .get = take_but<&M::shared_expert_width, std::int64_t{0}>,
         .exists = has_megatron_experts,
         .belongs_to = kMegatronExperts}),
    row("moe-token-dispatcher-type", "moe-token-dispatcher-type", G::kMegatron, K::kName, "T",
        "alltoall or allgather [alltoall]",
        {.names = kDispatchers,
         .set = put_second<&M::gathers_tokens, kDispatchers>,
         .get = take_second<&M::gathers_tokens, kDispatchers>,
         .exists = has_megatron_experts,
         .belongs_to = kMegatronExperts}),
    row("no-gradient-accumulation-fusion", "no-gradient-accumulation-fusion", G::kMegatron, K::kFlag, "",
        "weight gradients are added outside of their products",
        {.set = put_not<&M::fuses_weight_gradients>,
         .get = take_not<&M::fuses_weight_gradients>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("no-masked-softmax-fusion", "no-masked-softmax-fusion", G::kMegatron, K::kFlag, "",
        "the softmax in several kernels (transformer-impl=local)",
        {.set = put_not<&M::fuses_softmax>,
         .get = take_not<&M::fuses_softmax>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    // Another kernel of apex's LayerNorm, which keeps the same.
    row("no-persist-layer-norm", "no-persist-layer-norm", G::kMegatron, K::kFlag, "", "changes no byte",
        {.set = put_nothing, .get = nothing, .exists = is_megatron, .belongs_to = kMegatronRuns}),
    row("no-rope-fusion", "no-rope-fusion", G::kMegatron, K::kFlag, "", "rotary positions in several kernels",
        {.set = put_not<&M::fuses_rope>,
         .get = take_not<&M::fuses_rope>,
         .exists = has_megatron_rotary,
         .belongs_to = "Megatron's models with rotary positions and without latent attention"}),
    row("normalization", "normalization", G::kMegatron, K::kName, "N", "LayerNorm or RMSNorm [as the model's]",
        {.names = kNormalizations,
         .set = put_second<&M::rms_norm, kNormalizations>,
         .get = take_second<&M::rms_norm, kNormalizations>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("overlap-grad-reduce", "overlap-grad-reduce", G::kMegatron, K::kFlag, "", "gradients in buckets",
        {.set = put<&M::overlaps_gradient_reduce>,
         .get = take<&M::overlaps_gradient_reduce>,
         .exists = shards_megatron_states,
         .belongs_to = "Megatron's distributed optimizer (--parallel megatron-dist)"}),
    row("position-embedding-type", "position-embedding-type", G::kMegatron, K::kName, "T",
        "learned_absolute or rope [as the model's]",
        {.names = kPositionEmbeddings,
         .set = put_second<&M::rotary, kPositionEmbeddings>,
         .get = take_second<&M::rotary, kPositionEmbeddings>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("recompute-method", "recompute-method", G::kMegatron, K::kName, "M", "uniform or block [uniform]",
        {.names = kRecomputeMethods,
         .set = put_second<&M::recomputes_blocks, kRecomputeMethods>,
         .get = take_second<&M::recomputes_blocks, kRecomputeMethods>,
         .exists = recomputes_megatron_layers,
         .belongs_to = "Megatron's full recomputation (--checkpointing full)"}),
    row("recompute-num-layers", "recompute-num-layers", G::kMegatron, K::kWhole, "N",
        "at a time; block: of each chunk [1]",
        {.unit = "layers",
         .most = kMostMegatron,
         .set = put<&M::recompute_layers>,
         .get = take_but<&M::recompute_layers, std::int64_t{0}>,
         .exists = recomputes_megatron_layers,
         .belongs_to = "Megatron's full recomputation (--checkpointing full)"}),
    row("rotary-percent", "rotary-percent", G::kMegatron, K::kNumber, "X", "of a head's width [1]",
        {.least = 1e-6,
         .most = 1,
         .accepted = "a number above 0, up to 1",
         .set = put<&M::rotary_percent>,
         .get = take<&M::rotary_percent>,
         .exists = has_megatron_rotary,
         .belongs_to = "Megatron's models with rotary positions and without latent attention"}),
    row("squared-relu", "squared-relu", G::kMegatron, K::kFlag, "", "of the feed-forward layers",
        {.set = put<&M::squared_relu>,
         .get = take<&M::squared_relu>,
         .exists = is_megatron_dense,
         .belongs_to = "Megatron's models without experts, which have feed-forward layers of their own"}),
    row("swiglu", "swiglu", G::kMegatron, K::kFlag, "", "gated feed-forward layers [as the model's]",
        {.set = put<&M::swiglu>, .get = take<&M::swiglu>, .exists = is_megatron, .belongs_to = kMegatronRuns}),
    row("untie-embeddings-and-output-weights", "untie-embeddings-and-output-weights", G::kMegatron, K::kFlag, "",
        "the head has a weight of its own",
        {.set = put_not<&M::shares_embeddings>,
         .get = take_not<&M::shares_embeddings>,
         .exists = is_megatron,
         .belongs_to = kMegatronRuns}),
    row("wgrad-deferral-limit", "wgrad-deferral-limit", G::kMegatron, K::kWhole, "N",
        "micro-batches that are put off, 0: all [0]",
        {.unit = "micro-batches",
         .least = 0,
         .set = put<&M::deferral_limit>,
         .get = take<&M::deferral_limit>,
         .exists = defers_head_gradient,
         .belongs_to = "--megatron defer-embedding-wgrad-compute"}),

    // --- in --deepspeed: deepspeed/runtime/zero/config.py, 0.19.8 ---
    row("overlap_comm", "overlap_comm", G::kDeepSpeed, K::kFlag, "", "[in stage 3 alone]",
        {.set = put<&Z::overlap_comm>,
         .get = take<&Z::overlap_comm>,
         .exists = is_deepspeed,
         .belongs_to = "DeepSpeed (--parallel ds-zero1, ds-zero2 or ds-zero3)"}),
    row("reduce_bucket_size", "reduce_bucket_size", G::kDeepSpeed, K::kWhole, "N",
        "gradients reduced at once [5e8; Trainer: auto]",
        {.unit = "elements",
         .most = kMostElements,
         .set = put<&DeepSpeedSizes::reduce_bucket_size>,
         .get = take<&Z::reduce_bucket_size>,
         .exists = is_deepspeed,
         .belongs_to = "DeepSpeed (--parallel ds-zero1, ds-zero2 or ds-zero3)"}),
    row("stage3_max_live_parameters", "stage3_max_live_parameters", G::kDeepSpeed, K::kWhole, "N",
        "gathered at a time [1e9]",
        {.unit = "elements",
         .least = 0,
         .most = kMostElements,
         .set = put<&Z::max_live_parameters>,
         .get = take<&Z::max_live_parameters>,
         .exists = gathers_by_zero3,
         .belongs_to =
             "ZeRO-3 that gathers parameters (--parallel ds-zero3 on several GPUs, or with --offload-parameters)"}),
    row("stage3_max_reuse_distance", "stage3_max_reuse_distance", G::kDeepSpeed, K::kWhole, "N",
        "kept where used again so soon [1e9]",
        {.unit = "elements",
         .least = 0,
         .most = kMostElements,
         .set = put<&Z::max_reuse_distance>,
         .get = take<&Z::max_reuse_distance>,
         .exists = gathers_by_zero3,
         .belongs_to =
             "ZeRO-3 that gathers parameters (--parallel ds-zero3 on several GPUs, or with --offload-parameters)"}),
    row("stage3_param_persistence_threshold", "stage3_param_persistence_threshold", G::kDeepSpeed, K::kWhole, "N",
        "smaller parameters stay whole [1e5; Trainer: auto]",
        {.unit = "elements",
         .least = 0,
         .most = kMostElements,
         .set = put<&DeepSpeedSizes::param_persistence_threshold>,
         .get = take<&Z::param_persistence_threshold>,
         .exists = gathers_by_zero3,
         .belongs_to =
             "ZeRO-3 that gathers parameters (--parallel ds-zero3 on several GPUs, or with --offload-parameters)"}),
    row("stage3_prefetch_bucket_size", "stage3_prefetch_bucket_size", G::kDeepSpeed, K::kWhole, "N",
        "gathered ahead [5e7; Trainer: auto]",
        {.unit = "elements",
         .least = 0,
         .most = kMostElements,
         .set = put<&DeepSpeedSizes::prefetch_bucket_size>,
         .get = take<&Z::prefetch_bucket_size>,
         .exists = gathers_by_zero3,
         .belongs_to =
             "ZeRO-3 that gathers parameters (--parallel ds-zero3 on several GPUs, or with --offload-parameters)"}),
    row("sub_group_size", "sub_group_size", G::kDeepSpeed, K::kWhole, "N", "stepped at once by the optimizer [1e9]",
        {.unit = "elements",
         .least = 0,  // a group for each parameter
         .most = kMostElements,
         .set = put<&Z::sub_group_size>,
         .get = take<&Z::sub_group_size>,
         .exists = steps_on_card_by_zero3,
         .belongs_to = "ZeRO-3 whose optimizer steps on the card (--parallel ds-zero3, no --offload-states)"}),
};

}  // namespace

std::span<const Field> fields_of_lists() { return kFields; }

}  // namespace memcalc
