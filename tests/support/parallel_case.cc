#include "support/parallel_case.h"

#include <optional>
#include <string>

#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/run_fields.h"
#include "memcalc/spec/run_names.h"

namespace memcalc::measured {

void set_parallel(const JsonObject& case_json, RunOptions& options) {
  const std::optional<std::int64_t> world = case_json.optional_int("world");
  if (!world) return;
  const auto flag = [&](const char* key) { return case_json.optional_bool(key).value_or(false); };
  options.gpus = world;
  Parallel& parallel = options.parallel;
  // "tp", "cp", "pp": sizes of a mesh's dimensions; without them all ranks work as `mode` says.
  const std::string mode = case_json.required_string("mode");
  const auto size = [&](const char* dimension) {
    const bool has_others = case_json.has("tp") || case_json.has("cp") || case_json.has("pp");
    return case_json.optional_int(dimension).value_or(mode == dimension && !has_others ? *world : 1);
  };
  parallel.tensor = size("tp");
  parallel.context = size("cp");
  parallel.pipeline = size("pp");
  parallel.expert = size("ep");
  if (parallel.context > 1) {
    const std::string rotate = case_json.optional_string("rotate").value_or("allgather");
    parallel.context_type = rotate == "alltoall"  ? ContextParallel::kRing
                            : rotate == "ulysses" ? ContextParallel::kUlysses
                                                  : ContextParallel::kAllGather;
  }
  if (parallel.pipeline > 1) {
    parallel.schedule = enum_from<PipelineSchedule>(kScheduleNames, case_json.required_string("schedule")).value();
    parallel.virtual_stages = case_json.optional_int("chunks").value_or(1);
    parallel.micro_batches = case_json.required_int("micro_batches");
    if (case_json.has("stage_layers")) parallel.stage_layers = case_json.required_ints("stage_layers");
    options.batch_size = options.batch_size.value() / parallel.micro_batches;  // of all of them
  }
  if (const auto named = enum_from<DataParallel>(kDataParallelNames, mode)) parallel.data_parallel = *named;
  if (flag("mp")) {
    parallel.fsdp_param_dtype = DType::kBFloat16;
    const bool bf16 = case_json.optional_string("reduce").value_or("fp32") == "bf16";
    parallel.fsdp_reduce_dtype = bf16 ? DType::kBFloat16 : DType::kFloat32;
  }
  parallel.reshard_after_forward = case_json.optional_bool("reshard").value_or(true);
  const std::string plan = case_json.optional_string("tp_plan").value_or("layers");
  parallel.sequence_parallel = plan.starts_with("sequence");
  parallel.loss_parallel = plan == "sequence-loss";
  parallel.hsdp_shard = case_json.optional_int("hsdp").value_or(0);
  parallel.ddp_bucket_view = flag("bucket_view");
  parallel.ddp_static_graph = flag("static_graph");
  RunRequest request;
  set_list(request, FieldGroup::kDeepSpeed, case_json.optional_string("deepspeed").value_or(""));
  parallel.deepspeed = request.run.parallel.deepspeed;
  if (flag("offload_states")) parallel.offload_states = OffloadTo::kHost;
  if (flag("offload_parameters")) parallel.offload_parameters = OffloadTo::kHost;
  if (flag("offload")) parallel.offload_states = parallel.offload_parameters = OffloadTo::kHost;
}

}  // namespace memcalc::measured
