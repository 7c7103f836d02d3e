#include "support/parallel_case.h"

#include <optional>
#include <string>

#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/run_names.h"

namespace memcalc::measured {

void set_parallel(const JsonObject& case_json, RunOptions& options) {
  const std::optional<std::int64_t> world = case_json.optional_int("world");
  if (!world) return;
  const auto flag = [&](const char* key) { return case_json.optional_bool(key).value_or(false); };
  options.gpus = world;
  Parallel& parallel = options.parallel;
  const std::string mode = case_json.required_string("mode");
  if (mode == "tp") {
    parallel.tensor = *world;
  } else if (mode == "cp") {
    parallel.context = *world;
    const bool rotates = case_json.optional_string("rotate").value_or("allgather") == "alltoall";
    parallel.context_type = rotates ? ContextParallel::kRing : ContextParallel::kAllGather;
  } else if (mode == "pp") {
    parallel.pipeline = *world;
    parallel.schedule = enum_from<PipelineSchedule>(kScheduleNames, case_json.required_string("schedule")).value();
    parallel.virtual_stages = case_json.optional_int("chunks").value_or(1);
    parallel.micro_batches = case_json.required_int("micro_batches");
    options.batch_size = options.batch_size.value() / parallel.micro_batches;  // of all of them
  } else {
    parallel.data_parallel = enum_from<DataParallel>(kDataParallelNames, mode).value();
  }
  if (flag("mp")) {
    parallel.fsdp_param_dtype = DType::kBFloat16;
    const bool bf16 = case_json.optional_string("reduce").value_or("fp32") == "bf16";
    parallel.fsdp_reduce_dtype = bf16 ? DType::kBFloat16 : DType::kFloat32;
  }
  parallel.reshard_after_forward = case_json.optional_bool("reshard").value_or(true);
  parallel.hsdp_shard = case_json.optional_int("hsdp").value_or(0);
  parallel.ddp_bucket_view = flag("bucket_view");
  parallel.ddp_static_graph = flag("static_graph");
  parallel.deepspeed = parse_deepspeed_options(case_json.optional_string("deepspeed").value_or(""));
  if (flag("offload_states")) parallel.offload_states = OffloadTo::kHost;
  if (flag("offload_parameters")) parallel.offload_parameters = OffloadTo::kHost;
  if (flag("offload")) parallel.offload_states = parallel.offload_parameters = OffloadTo::kHost;
}

}  // namespace memcalc::measured
