// transformers 5.17, src/transformers/training_args.py: a row for each of TrainingArguments, and what they ask.
// MIRRORS(transformers, "training_args.py", "5.17.0")
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include "memcalc/spec/config_files/example_scripts.h"
#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/peft_targets.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr KeyRow kRows[] = {
    {"gradient_accumulation_steps", U::kUsed, "", "--accum"},
    {"max_grad_norm", U::kUsed, "", "--clip-grad"},
    {"optim", U::kUsed, "", "--optimizer"},
    {"per_device_train_batch_size per_gpu_train_batch_size", U::kUsed},
    {"bf16 fp16 tf32", U::kUsed},
    {"gradient_checkpointing gradient_checkpointing_kwargs", U::kUsed},
    {"activation_checkpointing activation_checkpointing_kwargs", U::kUsed},
    {"torch_compile torch_compile_backend torch_compile_mode", U::kUsed},
    {"use_liger_kernel use_liger", U::kUsed},
    {"use_cache", U::kUsed},
    {"eval_strategy evaluation_strategy per_device_eval_batch_size per_gpu_eval_batch_size do_eval", U::kUsed},
    {"do_train", U::kUsed},
    {"fsdp deepspeed", U::kUsed},
    {"ddp_static_graph", U::kUsed},
    {"dataloader_num_workers dataloader_prefetch_factor", U::kUsed},
    {"label_names", U::kIrrelevant, "names of columns"},
    {"learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon optim_args", U::kIrrelevant,
     "numbers of the optimizer"},
    {"lr_scheduler_type lr_scheduler_kwargs warmup_steps warmup_ratio", U::kIrrelevant, "the learning rate"},
    {"num_train_epochs max_steps max_train_steps", U::kIrrelevant, "how long it trains"},
    {"average_tokens_across_devices", U::kIrrelevant, "a number is reduced"},
    {"output_dir overwrite_output_dir overwrite_output logging_dir run_name project report_to logging_strategy "
     "logging_steps "
     "logging_first_step log_on_each_node logging_nan_inf_filter log_level log_level_replica disable_tqdm "
     "include_num_input_tokens_seen include_tokens_per_second trackio_space_id trackio_bucket_id "
     "trackio_static_space_id",
     U::kIrrelevant, "logs"},
    {"save_strategy", U::kApproximated, "the peak of saving is left out (--stages all --save checkpoint)", "", "no"},
    {"save_steps save_total_limit save_only_model save_on_each_node save_safetensors "
     "enable_jit_checkpoint load_best_model_at_end metric_for_best_model greater_is_better resume_from_checkpoint "
     "ignore_data_skip restore_callback_states_from_checkpoint",
     U::kIrrelevant, "saving, which the peak of the training leaves out"},
    {"push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision "
     "push_to_hub_model_id push_to_hub_organization push_to_hub_token",
     U::kIrrelevant, "the hub"},
    {"seed data_seed", U::kUsed},
    {"full_determinism", U::kIrrelevant, "random numbers"},
    {"prediction_loss_only eval_accumulation_steps", U::kUsed},
    {"eval_steps eval_delay eval_on_start", U::kIrrelevant, "when it evaluates"},
    {"eval_do_concat_batches eval_use_gather_object include_for_metrics include_inputs_for_metrics", U::kIrrelevant,
     "what metrics get on the host"},
    {"batch_eval_metrics", U::kApproximated, "metrics are taken of the whole set, not of a batch at a time"},
    {"bf16_full_eval fp16_full_eval", U::kApproximated,
     "it evaluates in the precision of the training; weights in 16 bits take half of it"},
    {"do_predict", U::kIrrelevant, "after the training"},
    {"dataloader_drop_last dataloader_persistent_workers dataloader_multiprocessing_context dataloader_in_order "
     "remove_unused_columns length_column_name accelerator_config dispatch_batches split_batches",
     U::kIrrelevant, "how batches are fetched"},
    {"train_sampling_strategy group_by_length", U::kUsed},
    {"ddp_backend ddp_timeout ddp_broadcast_buffers local_rank", U::kIrrelevant, "how processes find each other"},
    {"fsdp_transformer_layer_cls_to_wrap", U::kIrrelevant, "the model's own layers"},
    {"fsdp_min_num_params", U::kRefused, "units by the number of parameters are not modelled"},
    {"debug skip_memory_metrics", U::kIrrelevant, "diagnostics"},
    {"fp16_opt_level half_precision_backend fp16_backend", U::kIrrelevant, "of earlier versions"},
    {"dataloader_pin_memory", U::kApproximated, "batches are taken to be pinned: host memory alone differs", "",
     "true"},
    {"ddp_find_unused_parameters", U::kApproximated, "what DDP holds to look for unused parameters is left out"},
    {"neftune_noise_alpha", U::kApproximated, "the noise on the embeddings is left out: one tensor of their size"},
    {"torch_empty_cache_steps", U::kApproximated, "the cache is not emptied: reserved memory is at most what is said"},
    {"auto_find_batch_size", U::kApproximated, "the batch size of the file is taken, not the one that it finds"},
    {"label_smoothing_factor", U::kUsed},
    {"liger_kernel_config", U::kRefused, "a choice among Liger's kernels is not modelled"},
    {"optim_target_modules", U::kRefused, "optimizers that project the gradients (GaLore, APOLLO) are not modelled"},
    {"ddp_bucket_cap_mb", U::kRefused, "other sizes of DDP's buckets than 25 MiB are not modelled", "", "25"},
    {"parallelism_config", U::kRefused, "accelerate's parallelism_config is not modelled in the Trainer"},
    {"use_cpu no_cuda use_mps_device", U::kRefused, "a training without a GPU is not modelled"},
    {"xla tpu_num_cores torchdynamo use_ipex jit_mode_eval past_index mp_parameters", U::kRefused,
     "not modelled (and removed from transformers 5)", "", "-1"},
};

/// Of two names of an argument the one that counts: transformers 5.23 mirrors the new one to the old one.
std::string_view newer_name(Section& section, std::string_view now, std::string_view before) {
  if (!section.has(now)) return before;
  if (section.has(before)) section.irrelevant(before, fmt::format("{} stands for it", now));
  return now;
}

}  // namespace

KeyTable trainer_keys() { return kRows; }

void read_compile(Section& section) {
  const std::optional<std::string> backend = section.text("torch_compile_backend");
  const std::optional<std::string> mode = section.text("torch_compile_mode");
  if (backend && *backend != "inductor") {
    section.refuse("torch_compile_backend", "of torch.compile the backend inductor is modelled, not " + *backend);
  }
  if (mode && *mode == "reduce-overhead") {
    section.set("torch_compile_mode", "--compile-mode", *mode);
  } else if (mode && *mode != "default") {
    section.refuse("torch_compile_mode",
                   "of torch.compile the modes default and reduce-overhead are modelled, not " + *mode);
  }
  // training_args.py: a backend or mode switches it on.
  const std::string value = section.text("torch_compile").value_or("false");
  if (value == "auto" || (value != "false" && section.on("torch_compile")) || backend || mode)
    section.set("torch_compile", "--compile");
}

void read_mixed_precision(Section& section, bool bf16_by_default) {
  const std::optional<bool> bf16 = section.flag("bf16");
  const std::optional<bool> fp16 = section.flag("fp16");
  const std::optional<bool> tf32 = section.flag("tf32");
  if (fp16.value_or(false)) return section.set("fp16", "--precision", "amp-fp16");
  if (bf16.value_or(bf16_by_default)) return section.set("bf16", "--precision", "amp-bf16");
  section.set("tf32", "--precision", tf32.value_or(false) ? "tf32" : "fp32");
}

void read_checkpointing(Section& section, bool on_by_default) {
  const std::string_view key = newer_name(section, "activation_checkpointing", "gradient_checkpointing");
  const std::string_view more = newer_name(section, "activation_checkpointing_kwargs", "gradient_checkpointing_kwargs");
  const bool on = section.flag(key).value_or(on_by_default);
  section.set(key, "--checkpointing", on ? "full" : "none");
  if (on) read_checkpointing_arguments(section, key, more);
}

void read_checkpointing_arguments(Section& section, std::string_view key, std::string_view more) {
  const JsonNode* arguments = section.mapping(more);
  if (arguments == nullptr) return;
  for (const JsonNode& each : arguments->children) {
    if (each.key == "use_reentrant") section.set(more, is_off(each) ? "--no-reentrant" : "--reentrant");
    // modeling_utils.py, from 5.16 on: layers 0, N, 2N, …, counted through all stacks.
    if (each.key == "every_n_layers" && shown(each) != "1") {
      section.set(key, "--checkpointing", "every-" + shown(each));
    }
    if (each.key == "offload" && !is_off(each)) {
      section.refuse(more,
                     "checkpoints that are offloaded one by one are not modelled (--activation-offload: all that "
                     "autograd saves)");
    }
  }
}

namespace {

Metrics metrics_of(std::string_view script) {
  const ExampleScript* const found = find_example_script(script);
  return found == nullptr ? Metrics::kNone : found->metrics;
}

/// What the evaluation keeps for compute_metrics: --eval-logits, --eval-accum. Without it, nothing (Trainer.evaluate).
void read_predictions(Section& section, std::string_view evaluation) {
  const auto batches = section.whole("eval_accumulation_steps");
  Account& account = section.account();
  if (section.on("prediction_loss_only")) {
    if (batches) section.irrelevant("eval_accumulation_steps", "nothing but the loss is kept");
    return;
  }
  const Metrics metrics = metrics_of(account.script);
  if (metrics == Metrics::kTokens) {
    account.note("the predicted tokens that " + account.script + " keeps of the evaluation set are left out");
  }
  const bool keeps = metrics == Metrics::kLogits || (metrics == Metrics::kNone && batches);
  if (!keeps || section.on("predict_with_generate")) return;
  if (account.text_of("--loop").value_or("trainer") != "trainer") {
    return section.approximate("eval_accumulation_steps",
                               "what compute_metrics would be given of this trainer is left out");
  }
  section.set(metrics == Metrics::kLogits ? evaluation : "eval_accumulation_steps", "--eval-logits");
  if (metrics == Metrics::kNone) {
    account.note("compute_metrics is taken to be given, without which eval_accumulation_steps has nothing to move");
  }
  if (batches) section.set("eval_accumulation_steps", "--eval-accum", std::to_string(*batches));
}

}  // namespace

void read_evaluation(Section& section) {
  const bool old_name = !section.has("eval_strategy") && section.has("evaluation_strategy");
  std::string_view key = old_name ? "evaluation_strategy" : "eval_strategy";
  std::string strategy = section.text(key).value_or("no");
  if (section.on("evaluate_during_training")) {  // before transformers 4
    key = "evaluate_during_training";
    strategy = "steps";
  }
  // training_args.py: do_eval is what eval_strategy says; alone it lets transformers' example scripts evaluate after
  // the training, beside the same weights and states.
  const bool asked = section.on("do_eval");
  if (strategy == "no" || strategy == "false") {
    if (asked && metrics_of(section.account().script) == Metrics::kNone) {
      section.irrelevant("do_eval", "evaluation after the training, beside its peak");
    }
    if (!asked || metrics_of(section.account().script) == Metrics::kNone) return;
    key = "do_eval";
  }
  const std::string_view size =
      section.has("per_gpu_eval_batch_size") ? "per_gpu_eval_batch_size" : "per_device_eval_batch_size";
  section.set(section.has(size) ? size : key, "--eval-bs", std::to_string(section.whole(size).value_or(8)));
  read_predictions(section, key);
}

void set_attention(Section& section, std::string_view key, const std::string& name) {
  const std::string base = name.substr(0, name.find_first_of("@:"));
  if (base == "sdpa") return section.set(key, "--attn", "sdpa");
  if (base == "eager") return section.set(key, "--attn", "eager");
  if (base == "flash_attention_2" || base == "kernels-community/flash-attn2" ||
      base == "kernels-community/flash-attn") {
    return section.set(key, "--attn", "flash");
  }
  section.refuse(key, "attention " + name + " is not modelled (sdpa, eager and flash_attention_2 are)");
}

bool set_targets(Section& section, std::vector<std::string> modules) {
  const std::vector<std::string> parameters = section.texts("lora_target_parameters");
  if (!parameters.empty() && modules.empty()) {
    section.account().note("adapters on these parameters alone: peft has no modules by default for most mixtures");
  }
  modules.insert(modules.end(), parameters.begin(), parameters.end());
  if (modules.empty()) return false;
  set_targets(section, parameters.empty() ? "lora_target_modules" : "lora_target_parameters", modules);
  return true;
}

bool is_pattern(const std::string& target) { return target.find_first_of("\\[(*?|^$") != std::string::npos; }

void set_targets(Section& section, std::string_view key, const std::vector<std::string>& targets) {
  // A string is a pattern of whole names; in a list peft compares names' ends.
  const bool is_one = targets.size() == 1 && targets.front().starts_with(kPatternPrefix);
  if (!is_one && std::any_of(targets.begin(), targets.end(), is_pattern)) {
    return section.refuse(key,
                          "a list of patterns: peft takes a pattern as one string, and in a list the ends of names");
  }
  section.set(key, "--lora-targets", join(targets, ","));
}

void set_saved(Section& section) {
  const std::vector<std::string> saved = section.texts("lora_modules_to_save");
  if (!saved.empty()) section.set("lora_modules_to_save", "--lora-modules-to-save", join(saved, ","));
}

void read_deepspeed_key(Section& section, std::string_view key) {
  if (!section.has(key)) return;
  if (const JsonNode* mapping = section.mapping(key)) {
    return read_deepspeed(section.account(), *mapping, section.file(), std::string(key) + "/");
  }
  const std::optional<std::string> name = section.text(key);
  if (!name || name->empty()) return;
  const std::string path = find_named_file(*name, section.file());
  const JsonNode tree = read_config_tree(path);
  read_deepspeed(section.account(), tree, path, std::string(key) + "/");
}

void read_trainer(Section& section, const TrainerDefaults& defaults) {
  const std::string_view batch =
      section.has("per_gpu_train_batch_size") ? "per_gpu_train_batch_size" : "per_device_train_batch_size";
  section.set(batch, "--bs", std::to_string(section.whole(batch).value_or(defaults.batch_size)));
  read_mixed_precision(section, defaults.bf16);
  if (defaults.checkpointing) read_checkpointing(section, *defaults.checkpointing);
  read_compile(section);
  if (section.on("use_liger_kernel") || section.on("use_liger")) section.set("use_liger_kernel", "--liger");
  if (section.on("use_cache")) section.set("use_cache", "--use-cache");
  if (section.number("label_smoothing_factor").value_or(0) != 0) {
    section.set("label_smoothing_factor", "--label-smoothing");
  }
  if (section.on("ddp_static_graph")) section.set("ddp_static_graph", "--ddp-static-graph");
  if (const auto workers = section.whole("dataloader_num_workers")) {
    section.set("dataloader_num_workers", "--loader-workers", std::to_string(*workers));
    const auto ahead = section.whole("dataloader_prefetch_factor");
    if (*workers > 0 && ahead) section.set("dataloader_prefetch_factor", "--prefetch-factor", std::to_string(*ahead));
  }
  if (!section.flag("do_train").value_or(true)) section.refuse("do_train", "it does not train");
  // Beside --lengths alone: config_beside().
  const std::string order = section.text("train_sampling_strategy").value_or("random");
  if (order == "group_by_length") section.set("train_sampling_strategy", "--group-by-length");
  if (order == "sequential") section.approximate("train_sampling_strategy", "samples are taken in a random order");
  if (section.on("group_by_length")) section.set("group_by_length", "--group-by-length");
  read_evaluation(section);
  // trainer.py: of the sampler data_seed comes first. Beside --lengths alone: config_beside().
  const std::string_view seed = section.has("data_seed") ? "data_seed" : "seed";
  if (const auto number = section.whole(seed)) section.set(seed, "--seed", std::to_string(*number));
  // `fsdp: ""`, or words: training_args.py, _apply_legacy_fsdp_to_config.
  const std::vector<std::string> fsdp = section.texts("fsdp");
  const bool sharded = !fsdp.empty() && fsdp.front() != "false" && fsdp.front() != "no";
  if (sharded) {
    read_fsdp(section, 2);
    for (const std::string& word : fsdp) {
      if (word == "offload") section.set("fsdp", "--offload-parameters", "host");
      if (word == "shard_grad_op" || word == "hybrid_shard" || word == "hybrid_shard_zero2") {
        section.refuse("fsdp", "the strategy " + word + " is not modelled in the Trainer");
      }
    }
  }
  read_deepspeed_key(section, "deepspeed");
}

}  // namespace memcalc::config
