// torchtitan 0.2.2 (config/job_config.py), the last release that reads TOML: FSDP2 with bf16 over float32 shards, the
// loss outside of the model, the last layer left gathered. docs/published-torchtitan.md compares runs of it.
// MIRRORS(torchtitan, "config/job_config.py", "0.2.2")
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr KeyRow kRows[] = {
    {"model/name model/flavor model/converters", U::kUsed},
    {"hf_transformers/model", U::kUsed},
    {"model/hf_assets_path model/tokenizer_path model/print_after_conversion", U::kIrrelevant, "the tokenizer"},
    {"optimizer/name optimizer/implementation", U::kUsed},
    {"optimizer/early_step_in_backward", U::kRefused, "an optimizer step within backward is not modelled"},
    {"optimizer/lr optimizer/beta1 optimizer/beta2 optimizer/eps optimizer/weight_decay lr_scheduler", U::kIrrelevant,
     "numbers of the optimizer and its schedule"},
    {"training/local_batch_size", U::kUsed, "", "--bs"},
    {"training/seq_len", U::kUsed, "", "--seq"},
    {"training/max_norm", U::kUsed, "", "--clip-grad"},
    {"training/enable_cpu_offload training/dtype training/mixed_precision_param training/mixed_precision_reduce "
     "training/global_batch_size",
     U::kUsed},
    {"training/dataset training/dataset_path training/steps training/gc_freq training/gc_debug training/dataloader "
     "training/seed training/deterministic training/debug_moe_force_load_balance",
     U::kIrrelevant, "the data, and how long it trains"},
    {"parallelism/data_parallel_replicate_degree parallelism/data_parallel_shard_degree "
     "parallelism/fsdp_reshard_after_forward parallelism/tensor_parallel_degree parallelism/disable_loss_parallel "
     "parallelism/pipeline_parallel_degree parallelism/pipeline_parallel_schedule "
     "parallelism/context_parallel_degree parallelism/expert_parallel_degree "
     "parallelism/context_parallel_rotate_method",
     U::kUsed},
    {"parallelism/enable_async_tensor_parallel", U::kRefused, "asynchronous tensor parallelism is not modelled"},
    {"parallelism/expert_tensor_parallel_degree", U::kIrrelevant, "beside tensor parallelism alone"},
    {"parallelism/module_fqns_per_model_part parallelism/pipeline_parallel_layers_per_stage "
     "parallelism/pipeline_parallel_schedule_csv",
     U::kRefused, "stages of this kind are told by --stage-layers"},
    {"parallelism/pipeline_parallel_first_stage_less_layers parallelism/pipeline_parallel_last_stage_less_layers "
     "parallelism/pipeline_parallel_microbatch_size parallelism/pipeline_parallel_expert_parallel_overlap "
     "parallelism/context_parallel_load_balancer parallelism/expert_parallel_comm_backend",
     U::kIrrelevant, "of a pipeline, or of the order of tokens"},
    {"activation_checkpoint/mode activation_checkpoint/selective_ac_option", U::kUsed},
    {"activation_checkpoint/per_op_sac_force_recompute_mm_shapes_by_fqns activation_checkpoint/early_stop "
     "activation_checkpoint/memory_budget activation_checkpoint/visualize_memory_budget_pareto "
     "activation_checkpoint/preserve_rng_state activation_checkpoint/determinism_check activation_checkpoint/debug",
     U::kIrrelevant, "of checkpoints not in use"},
    {"compile/enable compile/components", U::kUsed},
    {"compile/backend", U::kRefused, "of torch.compile the backend inductor is modelled", "", "inductor"},
    {"quantize/linear/float8/enable_fsdp_float8_all_gather quantize/linear/float8/recipe_name", U::kUsed},
    {"quantize/linear/float8/precompute_float8_dynamic_scale_for_fsdp quantize/linear/float8/filter_fqns "
     "quantize/linear/mx quantize/grouped_mm quantize/linear/float8/emulate",
     U::kIrrelevant, "of converters"},
    {"validation/enable", U::kApproximated, "validation is left out: the peak is that of the training steps"},
    {"validation/dataset validation/dataset_path validation/freq validation/steps validation/local_batch_size "
     "validation/seq_len validation/dataloader",
     U::kIrrelevant, "of validation"},
    {"fault_tolerance/enable memory_estimation/enable", U::kRefused, "this part of torchtitan is not modelled"},
    {"job profiling metrics checkpoint comm fault_tolerance/group_size fault_tolerance/replica_id "
     "fault_tolerance/min_replica_size fault_tolerance/process_group fault_tolerance/process_group_timeout_ms "
     "fault_tolerance/semi_sync_method experimental debug memory_estimation/disable_fake_mode",
     U::kIrrelevant, "logs and saving"},
};

struct Flavor {
  std::string_view name;
  std::string_view flavor;
  std::string_view model;
};
constexpr Flavor kFlavors[] = {
    {"llama3", "8B", "llama-3.1-8b"}, {"llama3", "70B", "llama-3.1-70b"}, {"llama3", "405B", "llama-3.1-405b"},
    {"qwen3", "0.6B", "qwen3-0.6b"},  {"qwen3", "1.7B", "qwen3-1.7b"},    {"qwen3", "4B", "qwen3-4b"},
    {"qwen3", "8B", "qwen3-8b"},      {"qwen3", "14B", "qwen3-14b"},      {"qwen3", "32B", "qwen3-32b"},
};

void read_model(Section& section) {
  const std::string name = section.text("model/name").value_or("llama3");
  const std::string flavor = section.text("model/flavor").value_or("debugmodel");
  if (const auto model = section.text("hf_transformers/model"))
    return section.set("hf_transformers/model", "--model", *model);
  for (const Flavor& each : kFlavors) {
    if (each.name == name && each.flavor == flavor)
      return section.set("model/flavor", "--model", std::string(each.model));
  }
  section.refuse("model/flavor",
                 fmt::format("torchtitan's {} {} is no model of memcalc (--model)", one_line(name), one_line(flavor)));
}

void read_optimizer(Section& section) {
  const std::string name = section.text("optimizer/name").value_or("AdamW");
  const std::string how = section.text("optimizer/implementation").value_or("fused");
  if (name != "AdamW" && name != "Adam") {
    return section.refuse("optimizer/name", "the optimizer " + one_line(name) + " of torchtitan is not modelled");
  }
  if (name == "Adam") return section.set("optimizer/name", "--optimizer", "adam");
  section.set("optimizer/implementation", "--optimizer",
              how == "fused"     ? "adamw-fused"
              : how == "foreach" ? "adamw"
                                 : "adamw-for");
}

std::int64_t degree(Section& section, const std::string& name, std::int64_t least = 1) {
  const std::string key = "parallelism/" + name;
  const std::int64_t value = section.whole(key).value_or(1);
  if (value < least || value == 0 || value > 131072)
    section.wrong(key, least < 0 ? "-1, or a number of GPUs" : "a number of GPUs");
  return value;
}

void read_mesh(Section& section) {
  Account& account = section.account();
  const std::int64_t replicas = degree(section, "data_parallel_replicate_degree");
  const std::int64_t shards =
      section.has("parallelism/data_parallel_shard_degree") ? degree(section, "data_parallel_shard_degree", -1) : -1;
  const std::int64_t tensor = degree(section, "tensor_parallel_degree");
  const std::int64_t stages = degree(section, "pipeline_parallel_degree");
  const std::int64_t context = degree(section, "context_parallel_degree");
  const std::int64_t experts = degree(section, "expert_parallel_degree");
  if (shards > 0) {
    section.set("parallelism/data_parallel_shard_degree", "--gpus",
                std::to_string(replicas * shards * tensor * stages * context));
  }
  if (replicas > 1 && shards > 1)
    section.set("parallelism/data_parallel_replicate_degree", "--hsdp-shard", std::to_string(shards));
  if (tensor > 1) {
    section.set("parallelism/tensor_parallel_degree", "--tp", std::to_string(tensor));
    account.set("--sp");
    if (!section.on("parallelism/disable_loss_parallel")) account.set("--loss-parallel");
  }
  if (context > 1) {
    section.set("parallelism/context_parallel_degree", "--cp", std::to_string(context));
    const std::string rotate = section.text("parallelism/context_parallel_rotate_method").value_or("allgather");
    section.set("parallelism/context_parallel_rotate_method", "--cp-type",
                rotate == "alltoall" ? "ring" : "all-gather");
  }
  if (experts > 1) section.set("parallelism/expert_parallel_degree", "--ep", std::to_string(experts));
  if (stages > 1) {
    section.set("parallelism/pipeline_parallel_degree", "--pp", std::to_string(stages));
    const std::string schedule = ascii_lower(section.text("parallelism/pipeline_parallel_schedule").value_or("1F1B"));
    if (schedule == "1f1b" || schedule == "gpipe") {
      section.set("parallelism/pipeline_parallel_schedule", "--schedule", schedule);
    } else {
      section.refuse("parallelism/pipeline_parallel_schedule",
                     "this schedule is told by --schedule and --virtual-stages");
    }
  }
  const std::string reshard = section.text("parallelism/fsdp_reshard_after_forward").value_or("default");
  account.set("--parallel", "fsdp2");
  if (reshard == "never" || (reshard == "default" && stages > 1)) {
    section.set("parallelism/fsdp_reshard_after_forward", "--no-reshard-after-forward");
  } else if (reshard == "default" || reshard == "always") {
    account.set("--keep-last-layer");  // parallelize.py: the last layer is gathered again at once, so it stays
  } else {
    section.wrong("parallelism/fsdp_reshard_after_forward", "default, always or never");
  }
}

void read_recomputation(Section& section) {
  constexpr std::array<std::string_view, 4> kModes = {"selective", "full", "memory_budget", "none"};
  const std::string mode = section.choice("activation_checkpoint/mode", kModes).value_or("selective");
  const std::string option = section.text("activation_checkpoint/selective_ac_option").value_or("2");
  if (mode == "memory_budget")
    return section.refuse("activation_checkpoint/mode", "a memory budget of torch.compile is not modelled");
  if (mode != "selective") return section.set("activation_checkpoint/mode", "--checkpointing", mode);
  section.set("activation_checkpoint/selective_ac_option", "--checkpointing",
              option == "op" ? "selective" : "every-" + option);
}

void read_compilation(Section& section) {
  if (section.on("compile/enable")) {
    std::vector<std::string> parts = section.texts("compile/components");
    if (!section.has("compile/components")) parts = {"model", "loss"};
    const auto has = [&](std::string_view part) { return std::find(parts.begin(), parts.end(), part) != parts.end(); };
    if (has("model")) {
      section.set("compile/enable", "--compile");
      section.set("compile/components", "--compile-parts", has("loss") ? "layers-loss" : "layers");
    } else if (has("loss")) {
      section.refuse("compile/components", "a compiled loss of a model that is not compiled is not modelled");
    }
  }
  for (const std::string& converter : section.texts("model/converters")) {
    if (converter != "float8" && converter != "quantize.linear.float8") {
      section.refuse("model/converters", "the converter " + one_line(converter) + " is not modelled");
      continue;
    }
    const std::string recipe = section.text("quantize/linear/float8/recipe_name").value_or("tensorwise");
    const bool gathers = section.on("quantize/linear/float8/enable_fsdp_float8_all_gather");
    if (recipe == "rowwise") {
      section.set("model/converters", "--float8", "rowwise");
    } else if (recipe == "tensorwise") {
      section.set("model/converters", "--float8", gathers ? "tensorwise-gather" : "tensorwise");
    } else {
      section.refuse("quantize/linear/float8/recipe_name", "the recipe " + one_line(recipe) + " is not modelled");
    }
  }
}

std::string type_of(Section& section, const std::string& key, const std::string& otherwise) {
  constexpr std::array<std::string_view, 2> kTypes = {"bfloat16", "float32"};
  return section.choice(key, kTypes).value_or(otherwise) == "bfloat16" ? "bf16" : "fp32";
}

}  // namespace

void read_torchtitan(Account& account, const JsonNode& root) {
  account.set("--loop", "bare");
  account.set("--task", "causal");
  account.set("--loss-in-loop");
  account.set("--bs", "8");
  account.set("--seq", "2048");
  account.set("--clip-grad", "1");
  Section section(account, root, account.file(), {kRows});
  read_model(section);
  read_optimizer(section);
  read_mesh(section);
  read_recomputation(section);
  read_compilation(section);
  // FSDP's shards are in training.dtype, what it gathers in mixed_precision_param.
  const std::string weights = type_of(section, "training/dtype", "float32");
  account.set("--precision", weights);
  section.set("training/mixed_precision_param", "--fsdp-param-dtype",
              type_of(section, "training/mixed_precision_param", "bfloat16"));
  section.set("training/mixed_precision_reduce", "--fsdp-reduce-dtype",
              type_of(section, "training/mixed_precision_reduce", "float32"));
  if (section.on("training/enable_cpu_offload"))
    section.set("training/enable_cpu_offload", "--offload-parameters", "host");
  if (section.whole("training/global_batch_size").value_or(-1) > 0) {
    section.refuse("training/global_batch_size", "micro-batches that follow from the global batch are told by --accum");
  }
  section.done();
}

}  // namespace memcalc::config
