// TRL 1.16: the dataclasses that `trl sft`, `trl dpo` and so on read from a YAML file (its scripts, TrlParser;
// trainer/base_config.py, sft_config.py, dpo_config.py, model_config.py). bf16 and checkpoints are on by default, and
// a model is loaded in float32.
// MIRRORS(trl, "experimental/online_dpo/online_dpo_config.py", "1.16.0")
// MIRRORS(trl, "experimental/orpo/orpo_config.py", "1.16.0")
// MIRRORS(trl, "trainer/base_config.py", "1.16.0")
// MIRRORS(trl, "trainer/dpo_config.py", "1.16.0")
// MIRRORS(trl, "trainer/grpo_config.py", "1.16.0")
// MIRRORS(trl, "trainer/grpo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/kto_config.py", "1.16.0")
// MIRRORS(trl, "trainer/model_config.py", "1.16.0")
// MIRRORS(trl, "trainer/reward_config.py", "1.16.0")
// MIRRORS(trl, "trainer/rloo_config.py", "1.16.0")
// MIRRORS(trl, "trainer/rloo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/sft_config.py", "1.16.0")
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/config_files/config_text.h"
#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/run_names.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr KeyRow kShared[] = {
    {"model_name_or_path", U::kUsed, "", "--model"},
    {"dtype torch_dtype attn_implementation model_init_kwargs", U::kUsed},
    {"max_length max_seq_length", U::kUsed},
    {"use_peft lora_r lora_dropout lora_target_modules lora_target_parameters", U::kUsed},
    {"load_in_4bit load_in_8bit use_bnb_nested_quant bnb_4bit_quant_type bnb_4bit_quant_storage", U::kUsed},
    {"activation_offloading", U::kUsed},
    // trl/cli: given on to accelerate launch
    {"num_processes num_machines accelerate_config", U::kUsed},
    // peft's examples/sft/train.py and earlier scripts of alignment-handbook
    {"use_peft_lora use_4bit_quantization use_8bit_quantization use_nested_quant bnb_4bit_quant_storage_dtype "
     "use_flash_attn use_flash_attention_2 use_reentrant",
     U::kUsed},
    {"use_unsloth", U::kRefused, "Unsloth in a script of its own is told by --unsloth"},
    {"lora_alpha use_rslora lora_task_type bnb_4bit_compute_dtype", U::kIrrelevant, "values of the adapters"},
    {"lora_modules_to_save use_dora", U::kUsed},
    {"router_aux_loss_coef", U::kUsed},
    {"padding_free", U::kUsed},
    {"model_revision trust_remote_code chat_template_path eos_token pad_token dataset_num_proc truncation_mode "
     "dataset_name dataset_config dataset_train_split dataset_test_split dataset_streaming "
     "ignore_bias_buffers datasets streaming test_split_size columns config env chat_template chat_template_format "
     "add_special_tokens append_concat_token splits",
     U::kIrrelevant, "the data and the tokenizer"},
    // alignment-handbook and open-r1, which add to TRL's classes
    {"dataset_mixture dataset_mixer dataset_splits dataset_prompt_column preprocessing_num_workers system_prompt "
     "auto_insert_empty_system_msg hub_model_revision push_to_hub_revision overwrite_hub_revision benchmarks callbacks "
     "wandb_entity wandb_project wandb_run_group wandb_log_unique_prompts code_language code_eval_test_batch_size "
     "code_eval_scoring_mode code_provider parallel_code_exec_per_proc e2b_router_url ioi_provider",
     U::kIrrelevant, "the data, the rewards and the hub"},
};

constexpr KeyRow kSft[] = {
    {"packing packing_strategy loss_type pad_to_multiple_of", U::kUsed},
    {"completion_only_loss assistant_only_loss", U::kApproximated,
     "every token is taken to be part of the answer: the head takes no others (--completion)"},
    {"dataset_text_field dataset_kwargs shuffle_dataset eval_packing", U::kIrrelevant, "which tokens the data has"},
};

// dpo_config.py, kto_config.py
constexpr KeyRow kAnswers[] = {
    {"disable_dropout precompute_ref_log_probs pad_to_multiple_of", U::kUsed},
    {"max_prompt_length max_completion_length", U::kIrrelevant, "every sequence has max_length tokens here"},
    {"beta loss_weights f_divergence_type f_alpha_divergence_coef label_smoothing discopop_tau "
     "precompute_ref_batch_size ref_model_mixup_alpha ref_model_sync_steps desirable_weight undesirable_weight",
     U::kIrrelevant, "numbers of the loss"},
    {"loss_type", U::kUsed},
    {"use_weighting ld_alpha", U::kApproximated, "a few numbers of each token are left out"},
    {"sync_ref_model", U::kRefused, "a reference that follows the model is not modelled"},
};

// reward_config.py
constexpr KeyRow kReward[] = {
    {"disable_dropout pad_to_multiple_of", U::kUsed},
    {"center_rewards_coefficient", U::kIrrelevant, "a number of the loss"},
};

// experimental/orpo/orpo_config.py
constexpr KeyRow kOrpo[] = {
    {"disable_dropout", U::kUsed},
    {"beta padding_value", U::kIrrelevant, "numbers of the loss"},
    {"max_prompt_length max_completion_length", U::kIrrelevant,
     "of earlier releases and of encoder-decoders (--completion says how long answers are)"},
    {"is_encoder_decoder", U::kRefused, "ORPO of an encoder-decoder is not modelled"},
    {"generate_during_eval", U::kRefused, "evaluation that generates text is not modelled"},
};

// experimental/online_dpo/online_dpo_config.py
constexpr KeyRow kOnlineDpo[] = {
    {"max_new_tokens disable_dropout", U::kUsed},
    {"use_vllm", U::kRefused, "online DPO with vLLM is not modelled"},
    {"reward_model_path", U::kRefused, "a reward model on the card is not modelled"},
    {"temperature top_p top_k min_p repetition_penalty generation_kwargs cache_implementation "
     "ds3_gather_for_generation",
     U::kIrrelevant, "which tokens are generated"},
    {"beta loss_type missing_eos_penalty reward_weights reward_funcs", U::kIrrelevant,
     "numbers of the loss and the rewards"},
    {"vllm_model_impl vllm_structured_outputs_regex vllm_gpu_memory_utilization vllm_mode vllm_server_base_url "
     "vllm_server_host vllm_server_port vllm_server_timeout vllm_group_port vllm_tensor_parallel_size "
     "vllm_enable_sleep_mode",
     U::kIrrelevant, "of vLLM, which is not in use"},
};

// grpo_config.py, rloo_config.py
constexpr KeyRow kGenerating[] = {
    {"max_completion_length max_prompt_length beta disable_dropout generation_batch_size steps_per_generation",
     U::kUsed},
    {"use_vllm vllm_mode vllm_gpu_memory_utilization vllm_enable_sleep_mode vllm_max_model_length", U::kUsed},
    {"vllm_tensor_parallel_size", U::kRefused, "vLLM over several cards is not modelled", "", "1"},
    {"vllm_importance_sampling_correction vllm_importance_sampling_mode num_iterations loss_type "
     "importance_sampling_level cast_lm_head_to_fp32",
     U::kUsed},
    {"use_transformers_paged use_transformers_continuous_batching transformers_continuous_batching_config", U::kRefused,
     "continuous batching, whose cache takes a share of the card, is not modelled"},
    {"cache_implementation", U::kRefused, "caches of this kind are not modelled in generation", "", "dynamic"},
    {"reward_model_name_or_path", U::kRefused, "a reward model on the card is not modelled"},
    {"sync_ref_model", U::kRefused, "a reference that follows the model is not modelled"},
    {"ds3_gather_for_generation", U::kApproximated, "generation gathers the whole model", "", "true"},
    {"pad_to_multiple_of", U::kApproximated, "prompts and completions are taken as long as the file says"},
    {"top_entropy_quantile", U::kApproximated, "a mask of each token is left out", "", "1 1.0"},
    {"mask_truncated_completions", U::kApproximated,
     "completions are taken to end: one that does not is trained on all the same"},
    {"num_generations num_generations_eval temperature top_p top_k min_p repetition_penalty generation_kwargs "
     "chat_template_kwargs max_tool_calling_iterations",
     U::kIrrelevant, "which tokens are generated"},
    {"delta entropy_coef use_adaptive_entropy off_policy_mask_threshold", U::kApproximated,
     "a few numbers of each token are left out"},
    {"use_bias_correction_kl", U::kApproximated, "the KL term is multiplied by the ratio all the same", "",
     "true True"},
    {"scale_rewards", U::kApproximated, "rewards are divided by their group's standard deviation all the same", "",
     "group true True"},
    {"multi_objective_aggregation", U::kApproximated, "rewards are taken to be summed before they are normalised", "",
     "sum_then_normalize"},
    {"epsilon epsilon_high sapo_temperature_neg sapo_temperature_pos vespo_k_pos vespo_lambda_pos vespo_k_neg "
     "vespo_lambda_neg reward_weights "
     "ref_model_mixup_alpha ref_model_sync_steps "
     "entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target "
     "normalize_advantages reward_clip_range reward_funcs",
     U::kIrrelevant, "numbers of the loss and the rewards"},
    {"shuffle_dataset", U::kIrrelevant, "the data"},
    {"log_completions log_multimodal num_completions_to_print log_unique_prompts log_completions_hub_repo",
     U::kIrrelevant, "logs"},
    {"vllm_model_impl vllm_structured_outputs_regex vllm_server_base_url vllm_server_host vllm_server_port "
     "vllm_server_timeout vllm_group_port vllm_importance_sampling_cap vllm_importance_sampling_clip_max "
     "vllm_importance_sampling_clip_min",
     U::kIrrelevant, "where vLLM is, which tokens it generates, and numbers of the loss"},
};

KeyTable keys_of_trainer(std::string_view trainer) {
  if (trainer == "sft") return kSft;
  if (trainer == "dpo" || trainer == "kto") return kAnswers;
  if (trainer == "reward") return kReward;
  if (trainer == "orpo") return kOrpo;
  if (trainer == "online-dpo") return kOnlineDpo;
  return kGenerating;
}

/// peft's examples/sft/utils.py: in the type that 4 bits are stored in, where that is a float, else in float32.
void read_weights_by_peft(Section& section) {
  constexpr std::string_view kKey = "bnb_4bit_quant_storage_dtype";
  const std::string type = section.on("use_4bit_quantization") ? section.text(kKey).value_or("uint8") : "float32";
  section.set(kKey, "--weights-dtype", type == "bfloat16" ? "bf16" : type == "float16" ? "fp16" : "fp32");
}

void read_weights(Section& section) {
  for (const std::string_view key : {"use_peft_lora", "use_4bit_quantization", "use_8bit_quantization"}) {
    if (section.has(key)) return read_weights_by_peft(section);
  }
  const std::string_view key = section.has("torch_dtype") ? "torch_dtype" : "dtype";
  const std::string type = section.text(key).value_or("float32");
  if (type == "float32") return section.set(key, "--weights-dtype", "fp32");
  if (type == "bfloat16") return section.set(key, "--weights-dtype", "bf16");
  if (type == "float16") return section.set(key, "--weights-dtype", "fp16");
  if (type == "auto") return section.account().note("weights in the type of the checkpoint (dtype: auto)");
  section.wrong(key, "auto, float32, bfloat16 or float16");
}

/// Of `--lora_target_modules q_proj, v_proj`, as TRL's own examples have it, the first is the name "q_proj,", and peft
/// finds no such module.
std::vector<std::string> names_that_match(Section& section, std::vector<std::string> names) {
  const bool has_list = names.size() > 1;
  const auto is_broken = [&](const std::string& name) { return has_list && name.ends_with(","); };
  if (std::none_of(names.begin(), names.end(), is_broken)) return names;
  section.account().note(
      "no adapters on the names that end in a comma: peft compares whole names, and finds none so called");
  std::erase_if(names, is_broken);
  return names;
}

void read_adapter(Section& section) {
  const bool by_peft = section.on("use_peft_lora");  // examples/sft/train.py, whose rank is 64 where none is said
  if (!section.on("use_peft") && !by_peft) return;
  constexpr std::int64_t kRank = 16, kRankByPeft = 64;
  section.set("lora_r", "--lora", std::to_string(section.whole("lora_r").value_or(by_peft ? kRankByPeft : kRank)));
  if (section.on("use_dora")) section.set("use_dora", "--dora");
  section.set("lora_dropout", "--lora-dropout", section.text("lora_dropout").value_or(by_peft ? "0.1" : "0.05"));
  set_saved(section);
  if (set_targets(section, names_that_match(section, section.texts("lora_target_modules")))) return;
  if (by_peft)
    return section.account().set("--lora-targets", "q_proj,k_proj,v_proj,o_proj,down_proj,up_proj,gate_proj");
  section.account().set("--lora-targets", "q_proj,v_proj");
  section.account().note("adapters on q_proj and v_proj: peft's default for most decoders (--lora-targets)");
}

void read_quantization(Section& section) {
  const bool in_4bit = section.on("load_in_4bit") || section.on("use_4bit_quantization");
  const bool in_8bit = section.on("load_in_8bit") || section.on("use_8bit_quantization");
  if (in_8bit) section.set("load_in_8bit", "--quantize", "int8");
  if (!in_4bit) return;
  if (section.text("bnb_4bit_quant_type").value_or("nf4") != "nf4") {
    return section.refuse("bnb_4bit_quant_type", "4-bit floats are not modelled (nf4 is)");
  }
  const bool nested = section.on("use_bnb_nested_quant") || section.on("use_nested_quant");
  section.set(section.has("load_in_4bit") ? "load_in_4bit" : "use_4bit_quantization", "--quantize",
              nested ? "nf4-double" : "nf4");
  const std::string_view key =
      section.has("bnb_4bit_quant_storage_dtype") ? "bnb_4bit_quant_storage_dtype" : "bnb_4bit_quant_storage";
  const std::string storage = section.text(key).value_or("uint8");
  if (storage == "bfloat16") section.set(key, "--quant-storage", "bf16");
}

void read_length(Section& section, std::int64_t otherwise) {
  const std::string_view length = section.has("max_seq_length") ? "max_seq_length" : "max_length";
  section.set(length, "--seq", std::to_string(section.whole(length).value_or(otherwise)));
  section.account().note(
      fmt::format("every sequence has {} tokens, the most that the file lets through (--seq)", length));
}

/// Files of trl/accelerate_configs, less what is accelerate's default.
struct LaunchFile {
  std::string_view name, text;
};
constexpr LaunchFile kLaunchFiles[] = {
    {"single_gpu", "distributed_type: 'NO'\nmixed_precision: bf16\n"},
    {"multi_gpu", "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8\n"},
    {"zero1",
     "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
     "deepspeed_config:\n  zero_stage: 1\n"},
    {"zero2",
     "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
     "deepspeed_config:\n  zero_stage: 2\n"},
    {"zero3",
     "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
     "deepspeed_config:\n  zero_stage: 3\n  zero3_init_flag: true\n  zero3_save_16bit_model: true\n"},
    {"fsdp1",
     "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
     "fsdp_config:\n  fsdp_version: 1\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
     "  fsdp_backward_prefetch: BACKWARD_PRE\n  fsdp_forward_prefetch: true\n  fsdp_reshard_after_forward: FULL_SHARD\n"
     "  fsdp_use_orig_params: true\n"},
    {"fsdp2",
     "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
     "fsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
     "  fsdp_reshard_after_forward: true\n"},
};

/// trl/cli/accelerate_config.py: a file, or one of TRL's own by its name.
void read_launch(Section& section) {
  Account& account = section.account();
  if (const auto name = section.text("accelerate_config")) {
    const auto* own = std::find_if(std::begin(kLaunchFiles), std::end(kLaunchFiles),
                                   [&](const LaunchFile& each) { return each.name == *name; });
    if (own != std::end(kLaunchFiles)) {
      read_accelerate(account, parse_config_text(own->text, ConfigSyntax::kYaml, *name), *name, "accelerate_config/");
    } else {
      const std::string path = find_named_file(*name, section.file() == "command line" ? "./" : section.file());
      read_accelerate(account, read_config_tree(path), path, "accelerate_config/");
    }
  }
  if (const auto nodes = section.whole("num_machines"); nodes && *nodes > 1)
    section.set("num_machines", "--nodes", std::to_string(*nodes));
  if (const auto processes = section.whole("num_processes"))
    section.set("num_processes", "--gpus", std::to_string(*processes));
}

/// sft_config.py, kto_config.py. Losses of DPO are sums of a few numbers of each pair.
void read_loss(Section& section, std::string_view trainer) {
  if (section.number("router_aux_loss_coef").value_or(1) == 0) {
    section.set("router_aux_loss_coef", "--no-router-loss");
  }
  if (trainer == "sft") {
    constexpr std::string_view kLosses[] = {"nll", "chunked_nll", "dft"};
    if (section.choice("loss_type", kLosses) == "dft") section.set("loss_type", "--sft-loss", "dft");
  } else if (trainer == "kto") {
    constexpr std::string_view kLosses[] = {"kto", "apo_zero_unpaired"};
    if (const auto loss = section.choice("loss_type", kLosses)) section.set("loss_type", "--kto-loss", *loss);
  } else if (trainer == "dpo" && section.has("loss_type")) {
    section.irrelevant("loss_type", "a few numbers of each pair");
  }
}

/// vLLM in the place of transformers' generate().
void read_vllm(Section& section) {
  if (!section.on("use_vllm")) return;
  const std::string mode = section.text("vllm_mode").value_or("colocate");
  if (mode != "colocate" && mode != "server") section.wrong("vllm_mode", "colocate or server");
  section.set("use_vllm", "--vllm", mode);
  if (mode == "server") return;
  section.set("vllm_gpu_memory_utilization", "--vllm-utilization",
              section.text("vllm_gpu_memory_utilization").value_or("0.3"));
  if (section.on("vllm_enable_sleep_mode")) section.set("vllm_enable_sleep_mode", "--vllm-sleep");
  if (const auto tokens = section.whole("vllm_max_model_length")) {
    section.set("vllm_max_model_length", "--vllm-max-length", std::to_string(*tokens));
  }
}

/// grpo_config.py, rloo_config.py: how many completions are generated at once, and what the loss makes of them.
void read_completions(Section& section, std::string_view trainer) {
  if (section.has("steps_per_generation") && section.has("generation_batch_size")) {
    section.wrong("generation_batch_size", "one of it and steps_per_generation, as TRL asks");
  }
  if (const auto steps = section.whole("steps_per_generation")) {
    section.set("steps_per_generation", "--steps-per-generation", std::to_string(*steps));
  }
  if (const auto all = section.whole("generation_batch_size")) {
    const std::int64_t batch = section.whole("per_device_train_batch_size").value_or(8);
    std::int64_t processes = 1;  // as an accelerate file beside this one says
    if (const auto gpus = section.account().text_of("--gpus")) processes = std::stoll(*gpus);
    if (batch < 1 || *all % (batch * processes) != 0 || *all < batch) {
      section.wrong("generation_batch_size", "a multiple of per_device_train_batch_size on all GPUs, as TRL asks");
    }
    section.set("generation_batch_size", "--steps-per-generation", std::to_string(*all / (batch * processes)));
  }
  if (const auto iterations = section.whole("num_iterations")) {
    section.set("num_iterations", "--iterations", std::to_string(*iterations));
  }
  if (trainer != "grpo") return;
  if (section.on("cast_lm_head_to_fp32")) section.set("cast_lm_head_to_fp32", "--float32-head");
  if (const auto loss = section.choice("loss_type", kGrpoLossNames)) section.set("loss_type", "--grpo-loss", *loss);
  if (const auto level = section.choice("importance_sampling_level", kImportanceLevelNames)) {
    section.set("importance_sampling_level", "--importance-level", *level);
  }
  if (!section.on("use_vllm")) return;
  if (!section.flag("vllm_importance_sampling_correction").value_or(true)) {
    return section.set("vllm_importance_sampling_correction", "--vllm-correction", "none");
  }
  const auto modes = std::span(kVllmCorrectionNames).subspan(1);
  if (const auto mode = section.choice("vllm_importance_sampling_mode", modes)) {
    section.set("vllm_importance_sampling_mode", "--vllm-correction", *mode);
  }
}

/// grpo_trainer.py, rloo_trainer.py: a prompt and max_completion_length tokens; what is generated at once is a batch of
/// every micro-batch of a step.
void read_generation(Section& section, std::string_view trainer) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 40U;
  const std::int64_t completion = section.whole("max_completion_length").value_or(512);
  const std::int64_t prompt = section.whole("max_prompt_length").value_or(completion);
  for (const auto& [key, tokens] : {std::pair{"max_completion_length", completion}, {"max_prompt_length", prompt}}) {
    if (tokens < 1 || tokens > kMostTokens) section.wrong(key, "a number of tokens");
  }
  section.set("max_completion_length", "--completion", std::to_string(completion));
  section.set("max_prompt_length", "--seq", std::to_string(prompt + completion));
  if (!section.has("max_prompt_length")) {
    section.account().note("prompts as long as max_completion_length: the file does not say how long (--seq)");
  }
  const double beta = section.number("beta").value_or(trainer == "rloo" ? 0.05 : 0);
  if (beta == 0) section.set("beta", "--ref-model", "none");
  if (beta > 0 && trainer == "grpo") section.set("beta", "--ref-model", section.on("use_peft") ? "adapters" : "own");
  if (section.on("disable_dropout")) section.set("disable_dropout", "--dropout", "0");
  read_completions(section, trainer);
}

}  // namespace

void read_trl(Account& account, const JsonNode& root, std::string_view trainer) {
  Section section(account, root, account.file(), {kShared, keys_of_trainer(trainer), trainer_keys(), fsdp_keys()});
  account.set("--loop", "trl-" + std::string(trainer));
  // base_config.py: bf16 is on unless fp16 is.
  read_trainer(section, {.batch_size = 8, .checkpointing = true, .bf16 = true});
  if (trainer == "grpo" || trainer == "rloo") {
    read_generation(section, trainer);
    read_vllm(section);
  } else if (trainer == "online-dpo") {
    read_length(section, 512);
    section.set("max_new_tokens", "--completion", std::to_string(section.whole("max_new_tokens").value_or(64)));
  } else {
    read_length(section, 1024);
  }
  read_loss(section, trainer);
  read_weights(section);
  for (const std::string_view key : {"use_flash_attn", "use_flash_attention_2"}) {
    if (section.on(key)) section.set(key, "--attn", "flash");
  }
  if (const auto name = section.text("attn_implementation")) set_attention(section, "attn_implementation", *name);
  if (const auto reentrant = section.flag("use_reentrant"); reentrant && account.text_of("--checkpointing") != "none")
    section.set("use_reentrant", *reentrant ? "--reentrant" : "--no-reentrant");
  if (section.mapping("model_init_kwargs") != nullptr) {
    section.refuse("model_init_kwargs", "arguments of from_pretrained are told by dtype and attn_implementation");
  }
  read_adapter(section);
  read_quantization(section);
  if (const auto multiple = section.has("pad_to_multiple_of") && trainer != "grpo" && trainer != "rloo"
                                ? section.whole("pad_to_multiple_of")
                                : std::nullopt) {
    section.set("pad_to_multiple_of", "--pad-to-multiple", std::to_string(*multiple));  // beside --lengths alone
  }
  if (section.on("activation_offloading")) section.set("activation_offloading", "--activation-offload");
  if (trainer == "sft" && section.on("packing")) {
    std::string strategy = section.text("packing_strategy").value_or("bfd");
    if (strategy == "ffd") strategy = "bfd";  // its name before TRL 0.20
    if (strategy != "bfd" && strategy != "wrapped" && strategy != "bfd_split") {
      section.wrong("packing_strategy", "bfd, bfd_split or wrapped");
    }
    section.set("packing", "--packing", strategy);  // beside --lengths alone: config_beside()
  }
  if (section.on("padding_free")) {
    if (trainer == "sft") {
      section.set("padding_free", "--padding-free");
    } else {
      section.approximate("padding_free", "rows are taken to be full: nothing is padded");
    }
  }
  const bool compares = trainer == "dpo" || trainer == "kto";
  if (compares && section.on("precompute_ref_log_probs")) {
    section.set("precompute_ref_log_probs", "--ref-model", "precomputed");
  }
  if ((compares || trainer == "reward" || trainer == "orpo" || trainer == "online-dpo") &&
      !section.flag("disable_dropout").value_or(true)) {
    section.refuse("disable_dropout", "this trainer with dropout is not modelled from a file (--dropout is)");
  }
  read_launch(section);
  section.done();
}

}  // namespace memcalc::config
