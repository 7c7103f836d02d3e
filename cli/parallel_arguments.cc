#include "parallel_arguments.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <sstream>
#include <vector>

#include "arguments.h"

namespace memcalc::cli {
namespace {

constexpr const char* kGroup = "Several GPUs";

void set_whole(std::string_view option, const std::string& text, std::int64_t& value) {
  if (!text.empty()) value = parse_whole(option, text, 1);
}

template <typename Enum, std::size_t kSize>
void set_choice(std::string_view option, const std::string& text, const std::array<std::string_view, kSize>& names,
                Enum& value) {
  if (!text.empty()) value = parse_choice<Enum>(option, text, names);
}

void set_dtype(std::string_view option, const std::string& text, std::optional<DType>& value) {
  if (!text.empty()) value = parse_choice<DType>(option, text, kWeightDTypeNames);
}

void set_stage_layers(const std::string& text, std::vector<std::int64_t>& layers) {
  std::istringstream list(text);
  for (std::string each; std::getline(list, each, ',');) layers.push_back(parse_whole("--stage-layers", each, 1));
}

}  // namespace

void add_parallel_options(CLI::App& command, ParallelArguments& a) {
  const auto option = [&](const char* name, std::string& value, const char* type, const char* description) {
    command.add_option(name, value, description)->type_name(type)->group(kGroup);
  };
  const auto flag = [&](const char* name, bool& value, const char* description) {
    command.add_flag(name, value, description)->disable_flag_override()->group(kGroup);
  };
  option("--gpus", a.gpus, "N", "GPUs in all [tp x cp x pp]");
  option("--nodes", a.nodes, "N", "hosts that they are in [1]");
  option("--parallel", a.mode, "MODE", "ddp, dp, zero1, fsdp1, fsdp2, … (docs/parallel.md) [ddp]");
  option("--framework", a.framework, "F", "torch, deepspeed or megatron [as the mode says]");
  option("--tp", a.tensor, "N", "ranks that share each layer's matrices [1]");
  flag("--sp", a.sequence_parallel, "sequence parallel between those matrices");
  flag("--loss-parallel", a.loss_parallel, "torch with --sp: logits stay split by vocabulary");
  option("--cp", a.context, "N", "ranks that share each sequence [1]");
  option("--cp-type", a.context_type, "TYPE", "all-gather, ring or ulysses [all-gather]");
  option("--ep", a.expert, "N", "ranks that share the experts [1]");
  option("--pp", a.pipeline, "N", "stages of the pipeline [1]");
  option("--schedule", a.schedule, "S", "gpipe, 1f1b, interleaved, zero-bubble or zbv [1f1b]");
  option("--virtual-stages", a.virtual_stages, "N", "model chunks on each rank, interleaved [1]");
  option("--stage-layers", a.stage_layers, "LIST", "layers of each stage: 7,8,8,7 [even]");
  option("--micro-batches", a.micro_batches, "N", "in a step of the pipeline [as many as stages]");
  option("--megatron", a.megatron, "LIST", "Megatron's own arguments: name or name=value, …");
  option("--deepspeed", a.deepspeed, "LIST", "its zero_optimization: name=value, …");
  option("--hsdp-shard", a.hsdp_shard, "N", "FSDP: ranks that share one copy [all]");
  option("--fsdp-param-dtype", a.fsdp_param_dtype, "T", "fp32, fp16 or bf16, of gathered parameters");
  option("--fsdp-reduce-dtype", a.fsdp_reduce_dtype, "T", "the same, of gradients that are reduced");
  flag("--no-reshard-after-forward", a.no_reshard_after_forward, "FSDP keeps what it has gathered");
  flag("--keep-last-layer", a.keep_last_layer, "FSDP2 keeps the last layer gathered until its backward");
  flag("--ddp-bucket-view", a.ddp_bucket_view, "DDP: gradient_as_bucket_view=True");
  flag("--ddp-static-graph", a.ddp_static_graph, "DDP: static_graph=True");
  option("--offload-states", a.offload_states, "TO", "host or nvme: sharded states and gradients");
  option("--offload-parameters", a.offload_parameters, "TO", "host or nvme: parameters (--infer: host)");
}

void set_parallel(const ParallelArguments& a, RunOptions& options) {
  Parallel& parallel = options.parallel;
  if (!a.gpus.empty()) options.gpus = parse_whole("--gpus", a.gpus, 1);
  set_whole("--nodes", a.nodes, parallel.nodes);
  set_choice("--parallel", a.mode, kDataParallelNames, parallel.data_parallel);
  if (!a.framework.empty()) options.framework = parse_choice<Framework>("--framework", a.framework, kFrameworkNames);
  set_whole("--tp", a.tensor, parallel.tensor);
  parallel.sequence_parallel = a.sequence_parallel;
  parallel.loss_parallel = a.loss_parallel;
  set_whole("--cp", a.context, parallel.context);
  set_choice("--cp-type", a.context_type, kContextParallelNames, parallel.context_type);
  set_whole("--ep", a.expert, parallel.expert);
  set_whole("--pp", a.pipeline, parallel.pipeline);
  set_choice("--schedule", a.schedule, kScheduleNames, parallel.schedule);
  set_whole("--virtual-stages", a.virtual_stages, parallel.virtual_stages);
  set_stage_layers(a.stage_layers, parallel.stage_layers);
  set_whole("--micro-batches", a.micro_batches, parallel.micro_batches);
  parallel.megatron = parse_megatron_options(a.megatron);
  parallel.deepspeed = parse_deepspeed_options(a.deepspeed);
  set_whole("--hsdp-shard", a.hsdp_shard, parallel.hsdp_shard);
  set_dtype("--fsdp-param-dtype", a.fsdp_param_dtype, parallel.fsdp_param_dtype);
  set_dtype("--fsdp-reduce-dtype", a.fsdp_reduce_dtype, parallel.fsdp_reduce_dtype);
  parallel.reshard_after_forward = !a.no_reshard_after_forward;
  parallel.keep_last_layer = a.keep_last_layer;
  parallel.ddp_bucket_view = a.ddp_bucket_view;
  parallel.ddp_static_graph = a.ddp_static_graph;
  set_choice("--offload-states", a.offload_states, kOffloadNames, parallel.offload_states);
  set_choice("--offload-parameters", a.offload_parameters, kOffloadNames, parallel.offload_parameters);
}

}  // namespace memcalc::cli
