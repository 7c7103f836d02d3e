// The rows of several GPUs: how many, in what layout, and what its frameworks are told.
#include "memcalc/spec/limits.h"
#include "memcalc/spec/run_field_access.h"

namespace memcalc {
namespace {

using fields::has_stages, fields::row, fields::put, fields::put_not, fields::take, fields::take_but,
    fields::take_filled, fields::take_not;
using R = RunOptions;
using P = Parallel;
using M = TorchMesh;
using G = FieldGroup;
using K = FieldType;

constexpr double kMostRanks = kMostGpus;

bool splits_tensors(const RunRecord& r) {
  return r.run.parallel.tensor > 1 && r.run.parallel.framework() != Framework::kDeepSpeed;
}
bool splits_sequences(const RunRecord& r) { return r.run.parallel.context > 1; }
bool is_torch(const RunRecord& r) { return r.run.parallel.framework() == Framework::kTorch; }
bool has_torch_stages(const RunRecord& r) { return has_stages(r) && is_torch(r); }
bool splits_loss(const RunRecord& r) { return splits_tensors(r) && is_torch(r) && r.run.parallel.sequence_parallel; }
bool is_fsdp2(const RunRecord& r) { return r.run.parallel.data_parallel == DataParallel::kFsdp2; }
bool is_fsdp(const RunRecord& r) { return is_fsdp2(r) || r.run.parallel.data_parallel == DataParallel::kFsdp1; }
bool is_fsdp1_of_trainer(const RunRecord& r) {
  return r.run.parallel.data_parallel == DataParallel::kFsdp1 && r.run.trains() && r.run.uses_trainer();
}
bool reshards_all(const RunRecord& r) {
  const auto* mesh = fields::part_of<TorchMesh>(r);
  return is_fsdp2(r) && mesh != nullptr && mesh->reshard_after_forward;
}
bool has_ddp_buckets(const RunRecord& r) {
  const DataParallel mode = r.run.parallel.data_parallel;
  return is_torch(r) && (mode == DataParallel::kDdp || mode == DataParallel::kZero1);
}

bool put_data_parallel(RunRequest& request, const FieldValue& value) {
  request.run.data_parallel_given = true;
  return put<&P::data_parallel>(request, value);
}

std::optional<FieldValue> take_framework(const RunRecord& r) { return fields::named(r.run.parallel.framework()); }

std::optional<FieldValue> take_micro_batches(const RunRecord& r) {
  const Parallel& p = r.run.parallel;
  return p.micro_batches == 0 ? p.pipeline : p.micro_batches;
}

constexpr std::string_view kStages = "a pipeline (--pp N)";
constexpr std::string_view kFsdp2 = "FSDP2 (--parallel fsdp2)";
constexpr std::string_view kFsdp = "FSDP (--parallel fsdp2 or fsdp1)";
constexpr std::string_view kDdp = "DDP (--parallel ddp or zero1)";

const Field kFields[] = {
    row("--gpus", "gpus", G::kParallel, K::kWhole, "N", "GPUs in all [tp x cp x pp]",
        {.unit = "GPUs", .most = kMostRanks, .set = put<&R::gpus>, .get = take<&P::gpus>}),
    row("--nodes", "nodes", G::kParallel, K::kWhole, "N", "hosts that they are in [1]",
        {.unit = "hosts", .most = kMostRanks, .set = put<&P::nodes>, .get = take<&P::nodes>}),
    row("--parallel", "parallel", G::kParallel, K::kName, "MODE",
        "ddp, dp, zero1, fsdp1, fsdp2, … (docs/parallel.md) [ddp]",
        {.names = kDataParallelNames, .set = put_data_parallel, .get = take<&P::data_parallel>}),
    row("--framework", "framework", G::kParallel, K::kName, "F", "torch, deepspeed or megatron [as the mode says]",
        {.names = kFrameworkNames, .set = put<&R::framework>, .get = take_framework}),
    row("--tp", "tp", G::kParallel, K::kWhole, "N", "ranks that share each layer's matrices [1]",
        {.unit = "ranks", .most = kMostRanks, .set = put<&P::tensor>, .get = take<&P::tensor>}),
    row("--sp", "sp", G::kParallel, K::kFlag, "", "sequence parallel between those matrices",
        {.set = put<&P::sequence_parallel>,
         .get = take<&P::sequence_parallel>,
         .exists = splits_tensors,
         .belongs_to = "tensor parallelism (--tp N) of torch or Megatron"}),
    row("--loss-parallel", "loss_parallel", G::kParallel, K::kFlag, "",
        "torch with --sp: logits stay split by vocabulary",
        {.set = put<&M::loss_parallel>,
         .get = take<&M::loss_parallel>,
         .exists = splits_loss,
         .belongs_to = "torch's tensor parallelism with a split sequence (--tp N --sp)"}),
    row("--cp", "cp", G::kParallel, K::kWhole, "N", "ranks that share each sequence [1]",
        {.unit = "ranks", .most = kMostRanks, .set = put<&P::context>, .get = take<&P::context>}),
    row("--cp-type", "cp_type", G::kParallel, K::kName, "TYPE", "all-gather, ring or ulysses [all-gather]",
        {.names = kContextParallelNames,
         .set = put<&P::context_type>,
         .get = take<&P::context_type>,
         .exists = splits_sequences,
         .belongs_to = "context parallelism (--cp N)"}),
    row("--ep", "ep", G::kParallel, K::kWhole, "N", "ranks that share the experts [1]",
        {.unit = "ranks", .most = kMostRanks, .set = put<&P::expert>, .get = take<&P::expert>}),
    row("--pp", "pp", G::kParallel, K::kWhole, "N", "stages of the pipeline [1]",
        {.unit = "stages", .most = kMostRanks, .set = put<&P::pipeline>, .get = take<&P::pipeline>}),
    row("--schedule", "schedule", G::kParallel, K::kName, "S", "gpipe, 1f1b, interleaved, zero-bubble or zbv [1f1b]",
        {.names = kScheduleNames,
         .set = put<&P::schedule>,
         .get = take<&P::schedule>,
         .exists = has_stages,
         .belongs_to = kStages}),
    row("--virtual-stages", "virtual_stages", G::kParallel, K::kWhole, "N",
        "model chunks on each rank, interleaved [1]",
        {.unit = "chunks",
         .most = kMostRanks,
         .set = put<&P::virtual_stages>,
         .get = take<&P::virtual_stages>,
         .exists = has_stages,
         .belongs_to = kStages}),
    row("--stage-layers", "stage_layers", G::kParallel, K::kWholes, "LIST", "layers of each stage: 7,8,8,7 [even]",
        {.unit = "layers",
         .set = put<&P::stage_layers>,
         .get = take_filled<&P::stage_layers>,
         .exists = has_torch_stages,
         .belongs_to =
             "torch's pipelines (--pp N); Megatron's are told by --megatron decoder-first-pipeline-num-layers=N, "
             "decoder-last-pipeline-num-layers=N"}),
    row("--micro-batches", "micro_batches", G::kParallel, K::kWhole, "N",
        "in a step of the pipeline [as many as stages]",
        {.unit = "micro-batches",
         .set = put<&P::micro_batches>,
         .get = take_micro_batches,
         .exists = has_stages,
         .belongs_to = kStages}),
    row("--hsdp-shard", "hsdp_shard", G::kParallel, K::kWhole, "N", "FSDP: ranks that share one copy [all]",
        {.unit = "ranks",
         .most = kMostRanks,
         .set = put<&M::hsdp_shard>,
         .get = take_but<&M::hsdp_shard, std::int64_t{0}>,
         .exists = is_fsdp2,
         .belongs_to = kFsdp2}),
    row("--fsdp-param-dtype", "fsdp_param_dtype", G::kParallel, K::kName, "T",
        "fp32, fp16 or bf16, of gathered parameters",
        {.names = kWeightDTypeNames,
         .set = put<&M::fsdp_param_dtype>,
         .get = take<&M::fsdp_param_dtype>,
         .exists = is_fsdp,
         .belongs_to = kFsdp}),
    row("--fsdp-reduce-dtype", "fsdp_reduce_dtype", G::kParallel, K::kName, "T",
        "the same, of gradients that are reduced",
        {.names = kWeightDTypeNames,
         .set = put<&M::fsdp_reduce_dtype>,
         .get = take<&M::fsdp_reduce_dtype>,
         .exists = is_fsdp,
         .belongs_to = kFsdp}),
    row("--no-reshard-after-forward", "no_reshard_after_forward", G::kParallel, K::kFlag, "",
        "FSDP keeps what it has gathered",
        {.set = put_not<&M::reshard_after_forward>,
         .get = take_not<&M::reshard_after_forward>,
         .exists = is_fsdp2,
         .belongs_to = kFsdp2}),
    row("--fsdp-backward-prefetch", "fsdp_backward_prefetch", G::kParallel, K::kFlag, "",
        "FSDP1 in the Trainer: BACKWARD_PRE",
        {.set = put<&M::prefetches_backward>,
         .get = take<&M::prefetches_backward>,
         .exists = is_fsdp1_of_trainer,
         .belongs_to = "FSDP1 in the Trainer (--parallel fsdp1), which a plain loop has by default"}),
    row("--keep-last-layer", "keep_last_layer", G::kParallel, K::kFlag, "",
        "FSDP2 keeps the last layer gathered until its backward",
        {.set = put<&M::keep_last_layer>,
         .get = take<&M::keep_last_layer>,
         .exists = reshards_all,
         .belongs_to = "FSDP2 that reshards after forward (--parallel fsdp2)"}),
    row("--ddp-bucket-view", "ddp_bucket_view", G::kParallel, K::kFlag, "", "DDP: gradient_as_bucket_view=True",
        {.set = put<&M::ddp_bucket_view>,
         .get = take<&M::ddp_bucket_view>,
         .exists = has_ddp_buckets,
         .belongs_to = kDdp}),
    row("--ddp-static-graph", "ddp_static_graph", G::kParallel, K::kFlag, "", "DDP: static_graph=True",
        {.set = put<&M::ddp_static_graph>,
         .get = take<&M::ddp_static_graph>,
         .exists = has_ddp_buckets,
         .belongs_to = kDdp}),
    row("--offload-states", "offload_states", G::kParallel, K::kName, "TO",
        "host or nvme: sharded states and gradients",
        {.names = kOffloadNames,
         .set = put<&P::offload_states>,
         .get = take_but<&P::offload_states, OffloadTo::kNowhere>}),
    row("--offload-parameters", "offload_parameters", G::kParallel, K::kName, "TO",
        "host or nvme: parameters (--infer: host)",
        {.names = kOffloadNames,
         .set = put<&P::offload_parameters>,
         .get = take_but<&P::offload_parameters, OffloadTo::kNowhere>}),
};

}  // namespace

std::span<const Field> fields_of_parallel() { return kFields; }

}  // namespace memcalc
