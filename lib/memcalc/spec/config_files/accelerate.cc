// accelerate 1.15: the YAML that `accelerate config` writes (commands/config/config_args.py, cluster.py) and the
// arguments of `accelerate launch` (commands/launch.py), which have the same names.
// MIRRORS(accelerate, "commands/config/cluster.py", "1.15.0")
// MIRRORS(accelerate, "commands/config/config_args.py", "1.15.0")
// MIRRORS(accelerate, "commands/launch.py", "1.15.0")
// MIRRORS(transformers, "training_args.py", "5.17.0")
#include <fmt/core.h>

#include <string>

#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr KeyRow kRows[] = {
    {"distributed_type num_processes num_machines mixed_precision", U::kUsed},
    {"use_fsdp use_deepspeed multi_gpu", U::kUsed},
    {"deepspeed_config/zero_stage deepspeed_config/offload_optimizer_device deepspeed_config/offload_param_device "
     "deepspeed_config/deepspeed_config_file deepspeed_config/gradient_accumulation_steps "
     "deepspeed_config/gradient_clipping",
     U::kUsed},
    {"deepspeed_config/zero3_init_flag", U::kIrrelevant, "loading, before the peak of the training"},
    {"deepspeed_config/zero3_save_16bit_model", U::kApproximated,
     "the whole weights that are gathered to be saved are left out of the peak"},
    {"deepspeed_config/deepspeed_multinode_launcher deepspeed_config/deepspeed_hostfile "
     "deepspeed_config/deepspeed_exclusion_filter deepspeed_config/deepspeed_inclusion_filter "
     "deepspeed_config/offload_optimizer_nvme_path deepspeed_config/offload_param_nvme_path "
     "deepspeed_config/deepspeed_moe_layer_cls_names",
     U::kIrrelevant, "how processes are started"},
    {"compute_environment debug machine_rank main_training_function rdzv_backend rdzv_conf same_network gpu_ids "
     "main_process_ip main_process_port enable_cpu_affinity tpu_env tpu_use_cluster tpu_use_sudo tpu_name tpu_zone "
     "tpu_vm command_file commands mpirun_config num_cpu_threads_per_process quiet q role log_dir tee max_restarts "
     "monitor_interval module no_python downcast_bf16 ipex_config ipex_plugin_kwargs config_file",
     U::kIrrelevant, "how processes are started"},
    {"dynamo_config/dynamo_backend dynamo_backend", U::kRefused,
     "compilation by accelerate is not modelled (--compile)", "", "NO"},
    {"dynamo_config/dynamo_mode dynamo_config/dynamo_use_dynamic dynamo_config/dynamo_use_fullgraph "
     "dynamo_config/dynamo_use_regional_compilation dynamo_mode "
     "dynamo_use_fullgraph dynamo_use_dynamic dynamo_use_regional_compilation",
     U::kIrrelevant, "of compilation"},
    {"use_cpu cpu tpu megatron_lm_config use_megatron_lm fp8_config parallelism_config use_parallelism_config",
     U::kRefused, "this part of accelerate is not modelled"},
};

void read_deepspeed_plugin(Section& section) {
  if (const auto name = section.text("deepspeed_config/deepspeed_config_file")) {
    const std::string path = find_named_file(*name, section.file());
    const JsonNode tree = read_config_tree(path);
    return read_deepspeed(section.account(), tree, path, "deepspeed_config_file/");
  }
  const std::int64_t stage = section.whole("deepspeed_config/zero_stage").value_or(2);  // DeepSpeedPlugin's default
  if (stage < 1 || stage > 3) {
    return section.refuse("deepspeed_config/zero_stage", "of DeepSpeed ZeRO stages 1, 2 and 3 are modelled");
  }
  section.set("deepspeed_config/zero_stage", "--parallel", fmt::format("ds-zero{}", stage));
  for (const auto& [key, flag] : {std::pair{"deepspeed_config/offload_optimizer_device", "--offload-states"},
                                  std::pair{"deepspeed_config/offload_param_device", "--offload-parameters"}}) {
    const std::string device = section.text(key).value_or("none");
    if (device != "none" && device != "cpu" && device != "nvme") section.wrong(key, "none, cpu or nvme");
    if (device != "none") section.set(key, flag, device == "cpu" ? "host" : "nvme");
  }
  if (const auto steps = section.text("deepspeed_config/gradient_accumulation_steps"); steps && *steps != "auto") {
    section.set("deepspeed_config/gradient_accumulation_steps", "--accum", *steps);
  }
  if (const auto norm = section.text("deepspeed_config/gradient_clipping"); norm && *norm != "auto") {
    section.set("deepspeed_config/gradient_clipping", "--clip-grad", *norm);
  }
}

}  // namespace

void read_accelerate(Account& account, const JsonNode& root, const std::string& file, const std::string& prefix) {
  Section section(account, root, file, {kRows, fsdp_keys()}, prefix);
  if (!account.is_set("--loop")) account.set("--loop", "trainer");
  if (const auto gpus = section.whole("num_processes")) section.set("num_processes", "--gpus", std::to_string(*gpus));
  if (const auto nodes = section.whole("num_machines"); nodes.value_or(1) > 1) {
    section.set("num_machines", "--nodes", std::to_string(*nodes));
  }
  // The launcher sets ACCELERATE_MIXED_PRECISION; bf16 and fp16 of TrainingArguments take its place (training_args.py).
  const std::string precision = ascii_lower(section.text("mixed_precision").value_or("no"));
  if (precision == "bf16" || precision == "fp16") {
    if (account.text_of("--precision").value_or("fp32") == "fp32") {
      section.set("mixed_precision", "--precision", "amp-" + precision);
    }
  } else if (precision != "no" && precision != "false" && precision != "none") {
    section.refuse("mixed_precision", "mixed precision " + one_line(precision) + " is not modelled");
  }
  std::string type = ascii_lower(section.text("distributed_type").value_or("no"));
  if (section.on("use_fsdp")) type = "fsdp";
  if (section.on("use_deepspeed")) type = "deepspeed";
  if (type == "fsdp") {
    read_fsdp(section, 1);
  } else if (type == "deepspeed") {
    read_deepspeed_plugin(section);
  } else if (type != "no" && type != "false" && type != "multi_gpu") {
    section.refuse("distributed_type", "training of the kind " + one_line(type) + " is not modelled");
  }
  (void)section.flag("multi_gpu");
  section.done();
}

}  // namespace memcalc::config
