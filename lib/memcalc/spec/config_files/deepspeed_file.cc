// DeepSpeed's configuration (0.19.8, runtime/constants.py, zero/config.py, zero/offload_config.py), alone or as the
// Trainer is given it: "auto" is filled in by transformers (integrations/deepspeed.py) with the Trainer's own values.
// MIRRORS(deepspeed, "runtime/constants.py", "0.19.8")
// MIRRORS(deepspeed, "runtime/zero/config.py", "0.19.8")
// MIRRORS(deepspeed, "runtime/zero/offload_config.py", "0.19.8")
// MIRRORS(transformers, "integrations/deepspeed.py", "5.17.0")
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr KeyRow kRows[] = {
    {"zero_optimization/stage", U::kUsed},
    {"zero_optimization/offload_optimizer/device zero_optimization/offload_param/device", U::kUsed},
    {"zero_optimization/overlap_comm zero_optimization/reduce_bucket_size "
     "zero_optimization/stage3_max_live_parameters zero_optimization/stage3_max_reuse_distance "
     "zero_optimization/stage3_param_persistence_threshold zero_optimization/stage3_prefetch_bucket_size "
     "zero_optimization/sub_group_size zero_optimization/max_live_parameters zero_optimization/max_reuse_distance "
     "zero_optimization/param_persistence_threshold zero_optimization/prefetch_bucket_size",
     U::kUsed},
    {"bf16/enabled bfloat16/enabled fp16/enabled", U::kUsed},
    {"train_micro_batch_size_per_gpu gradient_accumulation_steps gradient_clipping", U::kUsed},
    {"train_batch_size", U::kIrrelevant, "follows from the others"},
    {"optimizer/type", U::kUsed},
    {"optimizer/params optimizer/legacy_fusion", U::kIrrelevant, "numbers of the optimizer"},
    {"scheduler", U::kIrrelevant, "the learning rate"},
    {"zero_optimization/contiguous_gradients", U::kApproximated, "gradients are taken to be copied into one buffer", "",
     "true auto"},
    {"zero_optimization/reduce_scatter", U::kApproximated, "gradients are taken to be reduced by reduce-scatter", "",
     "true auto"},
    {"zero_optimization/allgather_bucket_size zero_optimization/allgather_partitions", U::kIrrelevant,
     "parameters are gathered in place"},
    {"zero_optimization/use_multi_rank_bucket_allreduce zero_optimization/compute_grad_norm "
     "zero_optimization/parameter_alignment zero_optimization/pipeline_loading_checkpoint "
     "zero_optimization/override_module_apply zero_optimization/log_trace_cache_warnings "
     "zero_optimization/enable_sanity_checks zero_optimization/save_muon_momentum_buffer_in_memory "
     "zero_optimization/offload_optimizer/cpuadam_cores_perc gradient_allreduce_op dataloader_drop_last",
     U::kIrrelevant, "no memory of the card"},
    {"zero_optimization/zenflow zero_optimization/offload_optimizer/super_offload "
     "zero_optimization/stage3_use_all_reduce_for_fetch_params zero_optimization/use_all_reduce_for_fetch_params "
     "zero_optimization/stage3_allgather_sequential zero_optimization/allgather_sequential "
     "managed_gradient_accumulation",
     U::kRefused, "this part of DeepSpeed is not modelled"},
    {"zero_optimization/cpu_offload zero_optimization/cpu_offload_param zero_optimization/cpu_offload_use_pin_memory",
     U::kRefused, "of earlier versions: offload_optimizer and offload_param say it"},
    {"zero_optimization/round_robin_gradients", U::kIrrelevant, "the order of the host's copies"},
    {"zero_optimization/gather_16bit_weights_on_model_save zero_optimization/stage3_gather_16bit_weights_on_model_save "
     "zero_optimization/stage3_gather_fp16_weights_on_model_save",
     U::kApproximated, "the whole weights that are gathered to be saved are left out of the peak"},
    {"zero_optimization/ignore_unused_parameters zero_optimization/elastic_checkpoint "
     "zero_optimization/load_from_fp32_weights zero_optimization/legacy_stage1 "
     "zero_optimization/memory_efficient_linear",
     U::kIrrelevant, "no memory of the card"},
    {"zero_optimization/offload_optimizer/pin_memory zero_optimization/offload_optimizer/buffer_count "
     "zero_optimization/offload_optimizer/fast_init zero_optimization/offload_optimizer/nvme_path "
     "zero_optimization/offload_optimizer/pipeline_read zero_optimization/offload_optimizer/pipeline_write "
     "zero_optimization/offload_optimizer/pipeline zero_optimization/offload_param/pin_memory "
     "zero_optimization/offload_param/buffer_count zero_optimization/offload_param/buffer_size "
     "zero_optimization/offload_param/max_in_cpu zero_optimization/offload_param/nvme_path",
     U::kIrrelevant, "of the host"},
    {"zero_optimization/offload_optimizer/ratio", U::kRefused,
     "states of which a part stays on the card are not modelled", "", "1 1.0"},
    {"zero_optimization/zero_hpz_partition_size zero_optimization/zero_quantized_weights "
     "zero_optimization/zero_quantized_nontrainable_weights zero_optimization/zero_quantized_gradients "
     "zero_optimization/mics_shard_size zero_optimization/mics_hierarchical_params_gather "
     "zero_optimization/stage3_module_granularity_threshold zero_optimization/module_granularity_threshold "
     "zero_optimization/leaf_module",
     U::kRefused, "this part of DeepSpeed is not modelled", "", "1 -1"},
    {"fp16/loss_scale fp16/initial_scale_power fp16/loss_scale_window fp16/hysteresis fp16/min_loss_scale "
     "fp16/consecutive_hysteresis",
     U::kIrrelevant, "the scale of the loss"},
    {"fp16/auto_cast bf16/auto_cast", U::kIrrelevant, "the type of inputs that are floats, which ids are not"},
    {"fp16/opt_level bf16/immediate_grad_update", U::kIrrelevant, "no memory of the card under ZeRO"},
    {"fp16/fp16_master_weights_and_grads bf16/bf16_master_weights_and_grads", U::kRefused,
     "an optimizer of 16-bit weights is not modelled"},
    {"prescale_gradients gradient_predivide_factor", U::kIrrelevant, "collectives"},
    {"communication_data_type", U::kUsed},
    {"seq_parallel_communication_data_type", U::kRefused, "a sequence is shared in float32 here", "", "fp32"},
    {"sparse_gradients", U::kRefused, "sparse gradients are not modelled"},
    {"steps_per_print wall_clock_breakdown dump_state memory_breakdown tensorboard wandb csv_monitor comms_logger "
     "flops_profiler "
     "monitor_config",
     U::kIrrelevant, "logs"},
    {"zero_allow_untested_optimizer zero_force_ds_cpu_optimizer checkpoint aio data_types _comment "
     "zero_optimization/model_persistence_threshold zero_optimization/stage3_model_persistence_threshold",
     U::kIrrelevant, "no memory of the card"},
    {"activation_checkpointing", U::kApproximated,
     "its keys hold where a model calls deepspeed.checkpointing, which transformers' models do not"},
    {"compile/deepcompile compression_training data_efficiency curriculum_learning eigenvalue pipeline tensor_parallel "
     "sparse_attention autotuning elasticity amp torch_autocast quantize_training hybrid_engine",
     U::kRefused, "this part of DeepSpeed is not modelled"},
    {"compile/backend compile/kwargs compile/disable", U::kIrrelevant, "of compilation"},
    {"compile/enabled", U::kRefused, "compilation under DeepSpeed is not modelled"},
};

bool is_auto(Section& section, std::string_view key) { return section.text(key).value_or("auto") == "auto"; }

bool says_auto(const JsonNode& node) {
  if (node.kind == JsonNode::Kind::kString && node.text == "auto") return true;
  return std::any_of(node.children.begin(), node.children.end(), says_auto);
}

void read_offload(Section& section, const std::string& part, std::string_view flag) {
  const std::string key = "zero_optimization/" + part + "/device";
  const std::string device = section.text(key).value_or("none");
  if (device == "cpu") return section.set(key, flag, "host");
  if (device == "nvme") return section.set(key, flag, "nvme");
  if (device != "none" && device != "auto") section.wrong(key, "cpu, nvme or none");
}

/// runtime/engine.py: without communication_data_type gradients are reduced in the type that fp16 or bf16 says, else in
/// float32. In another type ZeRO copies each bucket into it (stage_1_and_2.py, allreduce_bucket; stage3.py,
/// __avg_scatter_contiguous_grads), which is not modelled.
void read_type_of_reduction(Section& section) {
  constexpr std::string_view kKey = "communication_data_type";
  if (!section.has(kKey) || is_auto(section, kKey)) return;
  const std::string type = ascii_lower(section.text(kKey).value_or(""));
  if (type != "fp32" && type != "fp16" && type != "bf16") section.wrong(kKey, "fp32, fp16 or bf16");
  const Account& account = section.account();
  const bool alone = account.is_set("--framework");
  const std::string precision = account.text_of("--precision").value_or(alone ? "fp32" : "");
  std::string_view own;  // empty: options beside the file say it
  if (precision == "fp32" || precision == "tf32") own = "fp32";
  if (precision.ends_with("fp16")) own = "fp16";
  if (precision.ends_with("bf16")) own = "bf16";
  if (type == own) return;
  section.refuse(kKey, "gradients that are reduced in another type than theirs are not modelled");
}

}  // namespace

KeyTable deepspeed_keys() { return kRows; }

void read_deepspeed(Account& account, const JsonNode& object, const std::string& file, std::string prefix) {
  Section section(account, object, file, {kRows}, std::move(prefix));
  const std::int64_t stage =
      is_auto(section, "zero_optimization/stage") ? 0 : section.whole("zero_optimization/stage").value_or(0);
  if (stage < 0 || stage > 3) section.wrong("zero_optimization/stage", "0, 1, 2 or 3");
  if (stage > 0) {
    section.set("zero_optimization/stage", "--parallel", fmt::format("ds-zero{}", stage));
    std::vector<std::string> list;
    for (const std::string_view name :
         {"overlap_comm", "reduce_bucket_size", "stage3_max_live_parameters", "stage3_max_reuse_distance",
          "stage3_param_persistence_threshold", "stage3_prefetch_bucket_size", "sub_group_size"}) {
      // zero/config.py: of stage 3 either name is taken, with and without "stage3_".
      std::string key = "zero_optimization/" + std::string(name);
      if (!section.has(key) && name.starts_with("stage3_")) key = "zero_optimization/" + std::string(name.substr(7));
      if (name != "overlap_comm" && name != "reduce_bucket_size" && stage < 3) continue;  // of stage 3 alone
      if (!section.has(key) || is_auto(section, key)) continue;
      const std::string value = name == "overlap_comm" ? (section.on(key) ? "true" : "false")
                                                       : std::to_string(section.whole(key).value_or(0));
      list.push_back(std::string(name) + "=" + value);
    }
    if (!list.empty()) account.set("--deepspeed", join(list, ","), "zero_optimization");
    read_offload(section, "offload_optimizer", "--offload-states");
    if (stage == 3) read_offload(section, "offload_param", "--offload-parameters");
  } else {
    section.refuse("zero_optimization/stage", "DeepSpeed's engine without ZeRO (stage 0) is not modelled");
  }
  if (!is_auto(section, "train_micro_batch_size_per_gpu")) {
    section.set("train_micro_batch_size_per_gpu", "--bs", *section.text("train_micro_batch_size_per_gpu"));
  }
  if (!is_auto(section, "gradient_accumulation_steps")) {
    section.set("gradient_accumulation_steps", "--accum", *section.text("gradient_accumulation_steps"));
  }
  if (!is_auto(section, "gradient_clipping")) {
    section.set("gradient_clipping", "--clip-grad", *section.text("gradient_clipping"));
  }
  const std::string_view bf16 = section.has("bfloat16/enabled") ? "bfloat16/enabled" : "bf16/enabled";
  const bool alone = account.is_set("--framework");
  if (!is_auto(section, bf16) && section.on(bf16)) section.set(bf16, "--precision", alone ? "bf16" : "amp-bf16");
  if (!is_auto(section, "fp16/enabled") && section.on("fp16/enabled")) {
    section.set("fp16/enabled", "--precision", alone ? "fp16" : "amp-fp16");
  }
  read_type_of_reduction(section);
  if (const auto type = section.text("optimizer/type")) {
    const std::string lower = ascii_lower(*type);
    if (lower == "adamw" || lower == "adam") {
      section.set("optimizer/type", "--optimizer", lower == "adamw" ? "adamw-fused" : "adam");
      section.approximate("optimizer/type", "DeepSpeed's fused Adam is predicted as torch's: the same states");
    } else {
      section.refuse("optimizer/type", "DeepSpeed's optimizer " + *type + " is not modelled");
    }
  }
  section.done();
}

void read_deepspeed_alone(Account& account, const JsonNode& root) {
  // "auto" is transformers': DeepSpeed itself takes no such value.
  if (says_auto(root)) {
    account.set("--loop", "trainer");
    account.note("\"auto\" values are the Trainer's: its defaults, or options beside --config");
  } else {
    account.set("--loop", "bare");
    account.set("--framework", "deepspeed");
  }
  read_deepspeed(account, root, account.file(), "");
}

}  // namespace memcalc::config
