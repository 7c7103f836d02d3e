// LLaMA-Factory 0.9.5: hparams/*.py (the keys), hparams/parser.py, model/patcher.py, model/adapter.py,
// model/model_utils/{quantization,checkpointing,attention}.py, train/sft (what becomes of them).
// MIRRORS(llamafactory, "hparams/parser.py", "0.9.5")
// MIRRORS(llamafactory, "model/adapter.py", "0.9.5")
// MIRRORS(llamafactory, "model/model_utils/attention.py", "0.9.5")
// MIRRORS(llamafactory, "model/model_utils/checkpointing.py", "0.9.5")
// MIRRORS(llamafactory, "model/model_utils/quantization.py", "0.9.5")
// MIRRORS(llamafactory, "model/patcher.py", "0.9.5")
#include <fmt/core.h>

#include <array>
#include <string>
#include <vector>

#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr KeyRow kRows[] = {
    {"model_name_or_path", U::kUsed, "", "--model"},
    {"stage finetuning_type", U::kUsed},
    {"cutoff_len", U::kUsed},
    {"packing neat_packing", U::kApproximated,
     "each row is packed full: as per_device_train_batch_size sequences of cutoff_len tokens that attend as one each"},
    {"lora_rank lora_dropout lora_target", U::kUsed},
    {"quantization_bit quantization_method quantization_type double_quantization", U::kUsed},
    {"pure_bf16 flash_attn enable_liger_kernel disable_gradient_checkpointing use_reentrant_gc", U::kUsed},
    {"gradient_checkpointing gradient_checkpointing_kwargs", U::kIrrelevant,
     "disable_gradient_checkpointing and use_reentrant_gc say it"},
    {"predict_with_generate max_new_tokens num_beams", U::kUsed},
    {"lora_alpha loraplus_lr_ratio loraplus_lr_embedding use_rslora pissa_init pissa_iter pissa_convert "
     "create_new_adapter adapter_name_or_path adapter_folder",
     U::kIrrelevant, "values of the adapters"},
    {"additional_target", U::kRefused, "modules that are trained in full beside adapters are not modelled"},
    {"use_dora", U::kUsed},
    {"freeze_trainable_layers freeze_trainable_modules freeze_extra_modules", U::kIrrelevant, "of the type freeze"},
    {"module_dropout oft_rank oft_block_size oft_target", U::kIrrelevant, "of the type oft"},
    {"use_llama_pro use_galore use_apollo use_badam use_adam_mini use_muon use_mca use_hyper_parallel use_kt "
     "shift_attn mixture_of_depths use_v1_kernels fp8 fp8_enable_fsdp_float8_all_gather",
     U::kRefused, "this method of LLaMA-Factory is not modelled"},
    {"use_unsloth", U::kRefused,
     "Unsloth is modelled in TRL's SFTTrainer, whose settings it rewrites; here its model runs in Seq2SeqTrainer"},
    {"use_unsloth_gc", U::kRefused, "Unsloth's checkpoints are modelled with its own model alone"},
    {"use_dft_loss use_asft_loss use_eaft_loss", U::kRefused, "this loss is not modelled"},
    {"upcast_lmhead_output", U::kRefused, "logits in float32 by a hook are not modelled"},
    {"upcast_layernorm", U::kApproximated, "norms stay in the type of the weights"},
    {"resize_vocab", U::kApproximated, "the vocabulary keeps its size"},
    {"galore_target galore_rank galore_update_interval galore_scale galore_proj_type galore_layerwise apollo_target "
     "apollo_rank apollo_update_interval apollo_scale apollo_proj apollo_proj_type apollo_scale_type apollo_layerwise "
     "apollo_scale_front badam_mode badam_start_block badam_switch_mode badam_switch_interval badam_update_ratio "
     "badam_mask_mode badam_verbose asft_alpha eaft_alpha hyper_parallel_args fp8_backend kt_weight_path "
     "kt_expert_checkpoint_path kt_use_lora_experts kt_lora_expert_num kt_lora_expert_intermediate_size",
     U::kIrrelevant, "of a method not in use"},
    {"pref_loss pref_ftx ref_model ref_model_adapters", U::kUsed},
    {"pref_beta pref_bco_weight dpo_label_smoothing kto_chosen_weight kto_rejected_weight "
     "simpo_gamma ppo_buffer_size ppo_epochs ppo_score_norm ppo_target ppo_whiten_rewards "
     "ref_model_quantization_bit reward_model reward_model_adapters reward_model_quantization_bit "
     "reward_model_type ld_alpha",
     U::kIrrelevant, "of a stage other than sft"},
    {"freeze_vision_tower freeze_multi_modal_projector freeze_language_model image_max_pixels image_min_pixels "
     "image_do_pan_and_scan crop_to_patches video_max_pixels video_min_pixels video_fps video_maxlen "
     "use_audio_in_video audio_sampling_rate media_dir",
     U::kIrrelevant, "of models with images"},
    {"template dataset eval_dataset dataset_dir train_on_prompt mask_history streaming buffer_size mix_strategy "
     "interleave_probs overwrite_cache preprocessing_batch_size preprocessing_num_workers max_samples eval_num_beams "
     "ignore_pad_token_for_loss val_size eval_on_each_dataset tool_format default_system enable_thinking "
     "preserve_thinking tokenized_path data_shared_file_system disable_shuffling",
     U::kIrrelevant, "the data"},
    {"cache_dir use_fast_tokenizer split_special_tokens add_tokens add_special_tokens new_special_tokens_config "
     "init_special_tokens model_revision low_cpu_mem_usage offload_folder hf_hub_token ms_hub_token om_hub_token "
     "trust_remote_code train_from_scratch print_param_status",
     U::kIrrelevant, "the tokenizer and loading"},
    {"rope_scaling moe_aux_loss_coef", U::kIrrelevant, "values, no memory"},
    {"infer_backend infer_dtype use_kv_cache vllm_maxlen vllm_gpu_util vllm_enforce_eager vllm_max_lora_rank "
     "vllm_config sglang_maxlen sglang_mem_fraction sglang_tp_size sglang_config sglang_lora_backend export_dir "
     "export_size export_device export_quantization_bit export_quantization_dataset export_quantization_nsamples "
     "export_quantization_maxlen export_legacy_format export_hub_model_id quantization_device_map do_sample "
     "temperature top_p top_k max_length repetition_penalty length_penalty "
     "skip_special_tokens generation_max_length generation_num_beams generation_config sortish_sampler",
     U::kIrrelevant, "of inference and export"},
    {"compute_accuracy", U::kApproximated, "the predicted tokens that evaluation keeps are left out"},
    {"early_stopping_steps plot_loss include_effective_tokens_per_second use_swanlab swanlab_project "
     "swanlab_workspace swanlab_run_name swanlab_mode swanlab_api_key swanlab_logdir swanlab_lark_webhook_url "
     "swanlab_lark_secret enable_torch_profiler profiler_output_dir profiler_wait_steps profiler_warmup_steps "
     "profiler_active_steps profiler_repeat profiler_record_shapes profiler_profile_memory profiler_with_stack "
     "profile_modules",
     U::kIrrelevant, "logs"},
    {"ray_run_name ray_storage_path ray_storage_filesystem ray_num_workers ray_init_kwargs resources_per_worker "
     "placement_strategy master_addr master_port",
     U::kIrrelevant, "how processes are started"},
};

void read_attention(Section& section) {
  constexpr std::array<std::string_view, 5> kNames = {"auto", "disabled", "sdpa", "fa2", "fa3"};
  const std::string name = section.choice("flash_attn", kNames).value_or("auto");
  if (name == "disabled") section.set("flash_attn", "--attn", "eager");
  if (name == "sdpa") section.set("flash_attn", "--attn", "sdpa");
  if (name == "fa2") section.set("flash_attn", "--attn", "flash");
  if (name == "fa3") section.refuse("flash_attn", "FlashAttention 3 is not modelled");
}

void read_quantization(Section& section, bool sharded) {
  const auto bits = section.whole("quantization_bit");
  if (!bits) return;
  const std::string method = section.text("quantization_method").value_or("bnb");
  if (method != "bnb" && method != "bitsandbytes") {
    return section.refuse("quantization_method", "weights packed by " + one_line(method) + " are not modelled");
  }
  if (*bits != 4 && *bits != 8) section.wrong("quantization_bit", "4 or 8, as bitsandbytes packs");
  section.account().set("--no-prepare-kbit");  // it is not called
  if (*bits == 8) return section.set("quantization_bit", "--quantize", "int8");
  if (section.text("quantization_type").value_or("nf4") != "nf4") {
    return section.refuse("quantization_type", "4-bit floats are not modelled (nf4 is)");
  }
  const bool twice = section.flag("double_quantization").value_or(true);
  section.set("quantization_bit", "--quantize", twice ? "nf4-double" : "nf4");
  if (sharded) section.account().set("--quant-storage", "bf16");
}

void read_method(Section& section) {
  const std::string type = section.text("finetuning_type").value_or("lora");
  const bool pure = section.on("pure_bf16");
  const bool bf16 = section.on("bf16");
  const bool fp16 = section.on("fp16");
  const bool deepspeed = section.has("deepspeed");
  // parser.py: compute_dtype; adapter.py, init_adapter(): what trains is turned into float32, under ZeRO-3 it is.
  const char* const compute = pure || bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
  if (pure) section.set("pure_bf16", "--precision", "bf16");
  if (type == "full") {
    if (!deepspeed) section.set("finetuning_type", "--weights-dtype", pure ? "bf16" : "fp32");
    return;
  }
  if (type != "lora") {
    return section.refuse("finetuning_type", "fine-tuning of the type " + one_line(type) + " is not modelled");
  }
  section.set("lora_rank", "--lora", std::to_string(section.whole("lora_rank").value_or(8)));
  section.account().set("--weights-dtype", compute);
  if (pure) section.account().set("--lora-dtype", "base");
  if (section.on("use_dora")) section.set("use_dora", "--dora");
  if (section.number("lora_dropout")) section.set("lora_dropout", "--lora-dropout", *section.text("lora_dropout"));
  const std::vector<std::string> targets = section.texts("lora_target");
  const bool all = targets.empty() || targets == std::vector<std::string>{"all"};
  all ? section.set("lora_target", "--lora-targets", "all-linear") : set_targets(section, "lora_target", targets);
}

/// CustomSeq2SeqTrainer.prediction_step: without labels, behind prompts; GeneratingArguments writes 1,024 tokens.
void read_generation_in_evaluation(Section& section) {
  const bool generates = section.on("predict_with_generate") && section.account().is_set("--eval-bs");
  const auto tokens = section.whole("max_new_tokens");
  const auto beams = section.whole("num_beams");
  if (!generates) {
    for (const std::string_view key : {"max_new_tokens", "num_beams"}) {
      if (section.has(key)) section.irrelevant(key, "of an evaluation that generates, which this one does not");
    }
    return;
  }
  section.set("predict_with_generate", "--eval-generate", std::to_string(tokens.value_or(1024)));
  section.account().set("--no-eval-labels");
  if (beams) section.set("num_beams", "--eval-beams", std::to_string(*beams));
  section.approximate("predict_with_generate",
                      "behind prompts of cutoff_len tokens; what it samples by (top_k, top_p) is left out");
}

/// CustomDPOTrainer and CustomKTOTrainer: the losses that pref_loss names are numbers of each sample. The reference is
/// the model without its adapters, or another that is loaded in the type of computation and evaluated.
void read_whole_logits(Section& section, const std::string& stage) {
  section.set("stage", "--loop", "trl-" + stage);
  section.account().set("--whole-logits");
  if (section.has("quantization_bit")) {
    section.refuse("quantization_bit", "a packed base in LLaMA-Factory's own trainers is not modelled");
  }
  for (const std::string_view key : {"ref_model", "ref_model_adapters"}) {
    if (section.has(key)) section.refuse(key, "a reference of other weights is not modelled");
  }
  const bool full = section.text("finetuning_type").value_or("lora") == "full";
  section.account().set("--ref-model", full ? "own" : "adapters");
  if (full && !section.on("pure_bf16")) {
    section.approximate("stage", "the reference is predicted in the type of the trained weights, not of computation");
  }
}

/// train/dpo, train/kto, train/rm: trainers of LLaMA-Factory's own.
void read_stage(Section& section) {
  const std::string stage = section.text("stage").value_or("sft");
  section.account().set("--loop", "trainer");
  if (stage == "sft" || stage == "pt") return;
  if (stage == "rm") {
    return section.refuse("stage",
                          "LLaMA-Factory's rm puts a value head beside the language model's, whose logits it makes, "
                          "too: not modelled");
  }
  if (stage != "dpo" && stage != "kto") {
    return section.refuse("stage", "LLaMA-Factory's trainer of the stage " + one_line(stage) + " is not modelled");
  }
  const std::string loss = section.text("pref_loss").value_or("sigmoid");
  if (stage == "kto" || (loss != "orpo" && loss != "simpo")) return read_whole_logits(section, stage);
  section.account().set("--loop", "trl-orpo");
  section.approximate(
      "pref_loss",
      "as TRL's ORPO, which holds the float32 logits of both answers, too, and beside them up to 8 bytes a "
      "logit of the chosen ones that LLaMA-Factory does not");
  if (section.number("pref_ftx").value_or(0) > 0) {
    section.approximate("pref_ftx", "the supervised loss beside it is left out");
  }
}

}  // namespace

void read_llama_factory(Account& account, const JsonNode& root) {
  Section section(account, root, account.file(), {kRows, trainer_keys(), fsdp_keys()});
  if (!section.on("do_train")) section.refuse("do_train", "it does not train (do_train is false by default)");
  read_stage(section);
  account.set("--task", "causal");
  section.set("cutoff_len", "--seq", std::to_string(section.whole("cutoff_len").value_or(2048)));
  account.note("every sequence has cutoff_len tokens, the most that the file lets through (--seq)");
  read_trainer(section, {.batch_size = 8, .checkpointing = std::nullopt, .bf16 = false});
  const bool checkpoints = !section.on("disable_gradient_checkpointing");
  section.set("disable_gradient_checkpointing", "--checkpointing", checkpoints ? "full" : "none");
  if (checkpoints) {
    section.set("use_reentrant_gc", section.flag("use_reentrant_gc").value_or(true) ? "--reentrant" : "--no-reentrant");
  }
  read_attention(section);
  if (section.on("enable_liger_kernel")) section.set("enable_liger_kernel", "--liger");
  read_method(section);
  read_quantization(section, section.has("fsdp"));
  read_generation_in_evaluation(section);
  section.done();
}

}  // namespace memcalc::config
