// FSDP as accelerate 1.15 (utils/dataclasses.py, FullyShardedDataParallelPlugin) and transformers 5.17
// (training_args.py, _process_fsdp_args) are told of it: the same keys, in accelerate's files with "fsdp_" in front.
// MIRRORS(accelerate, "utils/dataclasses.py", "1.15.0")
// MIRRORS(transformers, "training_args.py", "5.17.0")
#include <algorithm>
#include <string>

#include "memcalc/spec/config_files/trainer.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr KeyRow kRows[] = {
    {"fsdp_config/version fsdp_config/fsdp_version", U::kUsed},
    {"fsdp_config/offload_params fsdp_config/fsdp_offload_params fsdp_config/cpu_offload fsdp_config/fsdp_cpu_offload",
     U::kUsed},
    {"fsdp_config/reshard_after_forward fsdp_config/fsdp_reshard_after_forward", U::kUsed},
    {"fsdp_config/sharding_strategy fsdp_config/fsdp_sharding_strategy", U::kUsed},
    {"fsdp_config/activation_checkpointing fsdp_config/fsdp_activation_checkpointing", U::kUsed},
    {"fsdp_config/auto_wrap_policy fsdp_config/fsdp_auto_wrap_policy", U::kUsed},
    {"fsdp_config/mixed_precision_policy fsdp_config/fsdp_mixed_precision_policy", U::kUsed},
    {"fsdp_config/min_num_params fsdp_config/fsdp_min_num_params", U::kRefused,
     "units by the number of parameters are not modelled"},
    {"fsdp_config/activation_checkpointing_offload fsdp_config/fsdp_activation_checkpointing_offload", U::kRefused,
     "checkpoints that are offloaded by FSDP are not modelled"},
    {"fsdp_config/xla fsdp_config/xla_fsdp_v2 fsdp_config/xla_fsdp_settings fsdp_config/xla_fsdp_grad_ckpt",
     U::kRefused, "XLA is not modelled"},
    {"fsdp_config/forward_prefetch fsdp_config/fsdp_forward_prefetch", U::kApproximated,
     "weights are taken to be gathered without prefetching in forward"},
    {"fsdp_config/transformer_layer_cls_to_wrap fsdp_config/fsdp_transformer_layer_cls_to_wrap "
     "fsdp_config/transformer_cls_names_to_wrap",
     U::kIrrelevant, "the model's own layers"},
    {"fsdp_config/state_dict_type fsdp_config/fsdp_state_dict_type fsdp_config/final_state_dict_type "
     "fsdp_config/fsdp_final_state_dict_type",
     U::kIrrelevant, "saving"},
    {"fsdp_config/cpu_ram_efficient_loading fsdp_config/fsdp_cpu_ram_efficient_loading", U::kApproximated,
     "the peak of loading is left out, on the card and on the host (--stages all --load host)"},
    {"fsdp_config/sync_module_states fsdp_config/fsdp_sync_module_states", U::kIrrelevant,
     "loading, before the peak of the training"},
    {"fsdp_config/use_orig_params fsdp_config/fsdp_use_orig_params", U::kIrrelevant,
     "views of the same flat parameters"},
    {"fsdp_config/limit_all_gathers fsdp_config/fsdp_limit_all_gathers", U::kIrrelevant, "its default"},
    {"fsdp_config/backward_prefetch fsdp_config/fsdp_backward_prefetch fsdp_config/fsdp_backward_prefetch_policy",
     U::kUsed},
    {"fsdp_config/cpu_offload_pin_memory fsdp_config/fsdp_cpu_offload_pin_memory", U::kIrrelevant, "host memory alone"},
};

// Under the name that the file has.
std::string name_in(const Section& section, std::string_view name) {
  const std::string with = "fsdp_config/fsdp_" + std::string(name);
  return section.has(with) ? with : "fsdp_config/" + std::string(name);
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char each) { return std::toupper(each); });
  return text;
}

constexpr std::string_view kPrefetches[] = {"fsdp_config/backward_prefetch", "fsdp_config/fsdp_backward_prefetch",
                                            "fsdp_config/fsdp_backward_prefetch_policy"};

/// A name, or its number among NO_PREFETCH's others: 1 is BACKWARD_PRE, 2 BACKWARD_POST.
void read_prefetch(Section& section) {
  for (const std::string_view key : kPrefetches) {
    if (!section.has(key)) continue;
    const std::string policy = upper(section.text(key).value_or("NO_PREFETCH"));
    if (policy == "BACKWARD_PRE" || policy == "1") {
      section.set(key, "--fsdp-backward-prefetch");
    } else if (policy == "BACKWARD_POST" || policy == "2") {
      section.refuse(key, "gathering the next unit after a unit's backward (BACKWARD_POST) is not modelled");
    } else if (policy != "NO_PREFETCH") {
      section.wrong(key, "BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH");
    }
  }
}

}  // namespace

KeyTable fsdp_keys() { return kRows; }

void read_fsdp(Section& section, std::int64_t version_by_default) {
  const std::string version_key = name_in(section, "version");
  const std::int64_t version = section.whole(version_key).value_or(version_by_default);
  if (version != 1 && version != 2) section.wrong(version_key, "1 or 2");
  section.set(version_key, "--parallel", version == 2 ? "fsdp2" : "fsdp1");

  const std::string offload =
      section.has("fsdp_config/cpu_offload") ? "fsdp_config/cpu_offload" : name_in(section, "offload_params");
  if (section.on(offload)) section.set(offload, "--offload-parameters", "host");
  if (section.on(name_in(section, "activation_checkpointing"))) {
    section.set(name_in(section, "activation_checkpointing"), "--checkpointing", "full");
  }
  const std::string policy = name_in(section, "auto_wrap_policy");
  const std::string wraps = upper(section.text(policy).value_or("TRANSFORMER_BASED_WRAP"));
  if (wraps != "TRANSFORMER_BASED_WRAP") {
    section.refuse(policy, "FSDP with units other than the model's layers is not modelled");
  }
  const std::string mixed = name_in(section, "mixed_precision_policy");
  if (const auto type = section.text(mixed); type && *type != "bf16") {
    section.refuse(mixed, "a mixed-precision policy of " + *type + " is not modelled in the Trainer");
  }

  // FSDP1's strategy may stand under either name; FSDP2 knows true and false alone.
  const std::string reshard = name_in(section, "reshard_after_forward");
  const std::string strategy_key = name_in(section, "sharding_strategy");
  const std::string strategy = upper(section.text(strategy_key).value_or("FULL_SHARD"));
  if (version == 2) {
    if (section.has(reshard) && !section.flag(reshard).value_or(true))
      section.set(reshard, "--no-reshard-after-forward");
    if (section.has(strategy_key)) section.irrelevant(strategy_key, "of FSDP1");
    for (const std::string_view key : kPrefetches) {
      if (section.has(key)) section.irrelevant(key, "of FSDP1");
    }
    return;
  }
  read_prefetch(section);
  const std::string also = upper(section.text(reshard).value_or("FULL_SHARD"));
  for (const auto& [key, value] : {std::pair{strategy_key, strategy}, std::pair{reshard, also}}) {
    if (value != "FULL_SHARD" && value != "1" && value != "TRUE") {
      section.refuse(key, "of FSDP1 the strategy FULL_SHARD is modelled, not " + value);
    }
  }
}

}  // namespace memcalc::config
