// torchtune 0.6.1: a recipe's own loop, with models of its own, is not modelled.
#include <array>
#include <string>

#include "memcalc/spec/config_files/trainer.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr KeyRow kRows[] = {
    {"model", U::kRefused,
     "torchtune's models and recipes have a loop of their own, which is not modelled; ask for the nearest run by "
     "options"},
    {"tokenizer dataset data dataset_val seed shuffle batch_size batch_size_val epochs max_steps_per_epoch "
     "gradient_accumulation_steps optimizer optimizer_in_bwd lr_scheduler loss compile device dtype "
     "enable_activation_checkpointing enable_activation_offloading clip_grad_norm checkpointer resume_from_checkpoint "
     "save_adapter_weights_only output_dir metric_logger log_every_n_steps log_peak_memory_stats log_level profiler "
     "fsdp_cpu_offload fsdp_reshard_after_forward fsdp_sharding_strategy custom_sharded_layers "
     "tensor_parallel_dim tensor_parallel_plan data_parallel_shard_dim data_parallel_replicate_dim "
     "run_val_every_n_steps "
     "memory_efficient_fsdp_wrap ac_mode ac_option my_output_dir cudnn_deterministic_mode",
     U::kIrrelevant, "of the recipe that is refused"},
};

}  // namespace

void read_torchtune(Account& account, const JsonNode& root) {
  Section section(account, root, account.file(), {kRows});
  if (!section.has("model")) account.refuse(account.file() + ": /recipe", "torchtune's recipes are not modelled");
  section.done();
}

}  // namespace memcalc::config
