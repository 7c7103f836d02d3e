// The options that split a run over several GPUs.
#pragma once

#include <string>

#include "memcalc/memcalc.h"

namespace CLI {
class App;
}

namespace memcalc::cli {

/// As typed; parsed by set_parallel().
struct ParallelArguments {
  std::string gpus, nodes, mode, framework, tensor, context, context_type, expert;
  std::string pipeline, schedule, virtual_stages, stage_layers, micro_batches;
  std::string hsdp_shard, fsdp_param_dtype, fsdp_reduce_dtype;
  std::string offload_states, offload_parameters, megatron, deepspeed;
  bool sequence_parallel = false;
  bool loss_parallel = false;
  bool no_reshard_after_forward = false;
  bool keep_last_layer = false;
  bool ddp_bucket_view = false;
  bool ddp_static_graph = false;
};

/// Declares the options on a command; `arguments` must outlive it.
void add_parallel_options(CLI::App& command, ParallelArguments& arguments);

/// Throws UsageError.
void set_parallel(const ParallelArguments& arguments, RunOptions& options);

}  // namespace memcalc::cli
