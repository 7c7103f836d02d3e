// axolotl 0.19.0: utils/schemas/*.py (the keys), core/builders/base.py and causal.py (what becomes of them),
// loaders/model.py and adapter.py, utils/config/__init__.py (types of the weights).
// MIRRORS(axolotl, "core/builders/base.py", "0.19.0")
// MIRRORS(axolotl, "core/builders/causal.py", "0.19.0")
// MIRRORS(axolotl, "loaders/adapter.py", "0.19.0")
// MIRRORS(axolotl, "loaders/model.py", "0.19.0")
// MIRRORS(axolotl, "utils/config/__init__.py", "0.19.0")
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/freeze_patterns.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/peft_targets.h"
#include "memcalc/spec/run_names.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr std::string_view kOtherConfiguration =
    "another configuration of the model is told by --model FILE or --layers, --hidden, …";

constexpr KeyRow kRows[] = {
    // model
    {"base_model", U::kUsed, "", "--model"},
    {"base_model_config base_model_ignore_patterns cls_model_config model_type type_of_model tokenizer_config "
     "tokenizer_type tokenizer_use_fast "
     "tokenizer_legacy "
     "tokenizer_use_mistral_common tokenizer_save_jinja_files processor_type processor_kwargs trust_remote_code "
     "is_falcon_derived_model is_llama_derived_model is_mistral_derived_model is_qwen_derived_model revision_of_model "
     "special_tokens tokens added_tokens_overrides chat_template chat_template_jinja chat_template_kwargs "
     "default_system_message eot_tokens added_tokens",
     U::kIrrelevant, "the model's class and its tokenizer"},
    {"overrides_of_model_config overrides_of_model_kwargs", U::kRefused, kOtherConfiguration},
    {"model_config", U::kUsed},
    {"rope_scaling scaling_softmax scaling_softmax_factor scaling_softmax_bias", U::kIrrelevant, "values, no memory"},
    {"resize_token_embeddings_to_32x", U::kApproximated, "the vocabulary is not rounded up to a multiple of 32"},
    {"mean_resizing_embeddings shrink_embeddings reinit_weights fix_untrained_tokens", U::kIrrelevant,
     "values of weights"},
    {"experimental_skip_move_to_device low_cpu_mem_usage device device_map max_memory gpu_memory_limit lora_on_cpu "
     "qlora_sharded_model_loading",
     U::kIrrelevant, "loading"},
    // precision
    {"bf16 fp16 tf32 bfloat16 float16", U::kUsed},
    {"float32", U::kIrrelevant, "as no 16-bit type"},
    {"torch_dtype", U::kRefused, "no key of axolotl 0.19: bf16, fp16 say the type"},
    {"fp8 fp8_config fp8_enable_fsdp_float8_all_gather", U::kRefused,
     "float8 of accelerate in the Trainer is not modelled"},
    {"fp32_norms fp32_norm_classes", U::kRefused, "norms in float32 beside 16-bit weights are not modelled"},
    // batch and sequence
    {"micro_batch_size gradient_accumulation_steps batch_size", U::kUsed},
    {"eval_batch_size val_set_size test_datasets eval_strategy evaluation_strategy", U::kUsed},
    {"sequence_len", U::kUsed},
    {"sample_packing", U::kApproximated,
     "each row is packed full: as micro_batch_size sequences of sequence_len tokens that attend as one each"},
    {"eval_sample_packing eval_sequence_len sample_packing_group_size sample_packing_bin_size "
     "sample_packing_sequentially sample_packing_mp_start_method sample_packing_eff_est pretrain_multipack_attn "
     "pretrain_multipack_buffer_size pretraining_sample_concatenation streaming streaming_multipack_buffer_size "
     "multipack_real_batches sample_packing_seq_len_multiplier total_num_tokens total_supervised_tokens",
     U::kIrrelevant, "how rows are packed; they are full here"},
    {"pad_to_sequence_len pad_to_multiple_of excess_length_strategy min_sample_len max_prompt_len group_by_length "
     "curriculum_sampling train_on_inputs max_packed_sequence_len",
     U::kIrrelevant, "every sequence has sequence_len tokens here"},
    {"batch_flattening", U::kApproximated, "each row is taken to be full, attending as one sequence", "", "auto"},
    {"auto_find_batch_size", U::kApproximated, "the batch size of the file is taken, not the one that it finds"},
    {"use_pose pose_split_on_token_ids pose_max_context_len pose_num_chunks", U::kIrrelevant, "positions"},
    // data
    {"datasets shuffle_merged_datasets shuffle_before_merging_datasets dataset_prepared_path dataset_shard_num "
     "dataset_shard_idx skip_prepare_dataset num_dataset_shards_to_save pretraining_dataset dataset_processes "
     "dataset_num_proc dataset_exact_deduplication dataset_keep_in_memory push_dataset_to_hub is_preprocess "
     "preprocess_iterable remove_unused_columns dataloader_drop_last accelerator_config role_boundaries",
     U::kIrrelevant, "the data"},
    {"dataloader_num_workers dataloader_prefetch_factor", U::kUsed},
    {"dataloader_pin_memory", U::kApproximated, "batches are taken to be pinned: host memory alone differs", "",
     "true"},
    {"image_size image_resize_algorithm freeze_mm_modules", U::kIrrelevant, "of images"},
    // adapters
    {"adapter lora_r lora_dropout lora_target_modules lora_target_linear lora_target_parameters load_in_4bit "
     "load_in_8bit",
     U::kUsed},
    {"peft_autocast_adapter_dtype bnb_config_kwargs", U::kUsed},
    {"lora_alpha lora_alpha_pattern peft_use_rslora rslora lora_fan_in_fan_out peft_init_lora_weights "
     "loraplus_lr_ratio loraplus_lr_embedding merge_lora merge_method lora_model_dir peft_ensure_weight_tying",
     U::kIrrelevant, "values of the adapters"},
    {"lora_modules_to_save", U::kUsed},
    {"peft_use_dora", U::kUsed},
    {"lora_rank_pattern peft_layers_to_transform peft_layers_pattern "
     "peft_layer_replication peft_trainable_token_indices peft gptq gptq_groupsize gptq_model_v1 gptq_disable_exllama "
     "relora "
     "relora_prune_ratio relora_cpu_offload",
     U::kRefused, "adapters of this kind are not modelled"},
    {"relora_prune_method", U::kIrrelevant, "of ReLoRA"},
    {"lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel", U::kUsed},
    {"embeddings_skip_upcast", U::kIrrelevant, "embeddings end in the type of the rest"},
    {"quantize_moe_experts unfrozen_parameters", U::kUsed},
    {"model_quantization_config model_quantization_config_kwargs use_onebitllms qat quantization "
     "nvfp4_merge_aware",
     U::kRefused, "weights packed in this way are not modelled"},
    {"lisa_n_layers lisa_step_interval", U::kRefused, "training a part of the parameters is told by --freeze"},
    {"lisa_layers_attribute", U::kIrrelevant, "of LISA"},
    // attention and kernels
    {"attn_implementation xformers_attention sdp_attention flex_attention flash_attention sage_attention "
     "eager_attention s2_attention",
     U::kUsed},
    {"flex_attn_compile_kwargs heads_k_stride ring_attn_func", U::kIrrelevant, "of attention not in use"},
    {"flash_attn_cross_entropy flash_attn_fuse_mlp flash_optimum flash_attn_rms_norm large_head_attention "
     "flash_attn_d512 sdpa_varlen fused_attn_kernel gemma4_hybrid_attn_impl experts_implementation use_kernels "
     "chunked_cross_entropy use_eaft tiled_mlp llama4_linearized_experts ple_cpu_offload layer_offloading "
     "use_scattermoe use_sonicmoe use_dsv4_kernels dsv4_fp4_grouped_mode use_glm_dsa_kernels llmcompressor",
     U::kRefused, "these kernels are not modelled"},
    {"chunked_cross_entropy_num_chunks eaft_alpha eaft_k tiled_mlp_num_shards tiled_mlp_use_original_mlp",
     U::kIrrelevant, "of kernels not in use"},
    {"plugins liger_rope liger_rms_norm liger_glu_activation liger_swiglu liger_fused_linear_cross_entropy "
     "cut_cross_entropy",
     U::kUsed},
    {"liger_layer_norm liger_rms_norm_gated", U::kIrrelevant, "of norms that the models with --liger have not"},
    {"liger_cross_entropy liger_use_token_scaling liger_kernel_impl", U::kRefused,
     "of Liger's losses the fused linear one is modelled (liger_fused_linear_cross_entropy)"},
    {"torch_compile torch_compile_backend torch_compile_mode", U::kUsed},
    {"torch_compile_options", U::kRefused, "options of torch.compile are not modelled"},
    // checkpointing and offload
    {"gradient_checkpointing gradient_checkpointing_kwargs activation_offloading", U::kUsed},
    {"selective_checkpointing", U::kRefused, "selective checkpoints in the Trainer are not modelled"},
    {"torch_empty_cache_steps gc_steps", U::kApproximated,
     "the cache is not emptied: reserved memory is at most what is said"},
    {"gc_collect_steps", U::kIrrelevant, "Python's garbage"},
    {"neftune_noise_alpha noisy_embedding_alpha", U::kApproximated,
     "the noise on the embeddings is left out: one tensor of their size"},
    // optimizer
    {"optimizer", U::kUsed, "", "--optimizer"},
    {"max_grad_norm", U::kUsed, "", "--clip-grad"},
    {"optim_target_modules", U::kRefused, "optimizers that project the gradients are not modelled"},
    {"learning_rate embedding_lr embedding_lr_scale weight_decay optim_args torchdistx_path lr_scheduler "
     "lr_scheduler_kwargs lr_quadratic_warmup cosine_min_lr_ratio cosine_constant_lr_ratio lr_div_factor lr_groups "
     "adam_epsilon adam_epsilon2 adam_eps adam_beta1 adam_beta2 adam_beta3 eta_min dion_lr dion_momentum "
     "dion_rank_fraction "
     "dion_rank_multiple_of qgalore_rank qgalore_update_proj_gap qgalore_scale qgalore_proj_type qgalore_proj_quant "
     "qgalore_proj_bits qgalore_proj_group_size qgalore_cos_threshold qgalore_gamma_proj qgalore_queue_size "
     "jagged_restart_steps jagged_restart_warmup_steps jagged_restart_anneal_steps warmup_steps warmup_ratio",
     U::kIrrelevant, "numbers of the optimizer and its schedule"},
    {"num_epochs max_steps early_stopping_patience loss_watchdog_threshold loss_watchdog_patience", U::kIrrelevant,
     "how long it trains"},
    // several GPUs
    {"deepspeed fsdp fsdp_version dp_shard_size dp_replicate_size tensor_parallel_size context_parallel_size "
     "sequence_parallel_degree expert_parallel_size",
     U::kUsed},
    {"fsdp_final_state_dict_type", U::kIrrelevant, "saving"},
    {"deepcompile", U::kRefused, "compilation under DeepSpeed is not modelled"},
    {"ddp_find_unused_parameters", U::kApproximated, "what DDP holds to look for unused parameters is left out"},
    {"ddp_bucket_cap_mb", U::kRefused, "other sizes of DDP's buckets than 25 MiB are not modelled", "", "25"},
    {"ddp ddp_timeout ddp_broadcast_buffers world_size local_rank use_ray ray_run_name ray_num_workers "
     "resources_per_worker",
     U::kIrrelevant, "how processes are started"},
    // the trainer
    {"rl reward_model process_reward_model trainer_cls num_labels", U::kUsed},
    {"rl_beta dpo_beta dpo_use_weighting dpo_label_smoothing dpo_loss_type dpo_loss_weights "
     "dpo_use_logits_to_keep dpo_norm_loss rpo_alpha orpo_alpha simpo_gamma cpo_alpha kto_desirable_weight "
     "kto_undesirable_weight center_rewards_coefficient",
     U::kIrrelevant, "numbers of the loss"},
    {"precompute_ref_log_probs", U::kUsed},
    {"dpo_use_liger_kernel dpo_padding_free dpo_generate_during_eval", U::kRefused, "this form of DPO is not modelled"},
    {"ebft diffusion", U::kRefused, "this trainer is not modelled"},
    // trl/ and vllm/: of rl: grpo
    {"trl/beta trl/max_completion_length trl/use_vllm trl/vllm_mode trl/vllm_enable_sleep_mode "
     "vllm/gpu_memory_utilization trl/num_iterations trl/loss_type trl/importance_sampling_level",
     U::kUsed},
    {"trl/generation_batch_size", U::kRefused, "say how many micro-batches it is: --steps-per-generation"},
    {"trl/sync_ref_model", U::kRefused, "a reference that follows the model is not modelled"},
    {"trl/use_liger_loss trl/use_data_producer trl/async_prefetch trl/streaming_partial_batch "
     "trl/off_policy_mask_threshold trl/vllm_lora_sync",
     U::kRefused, "this form of GRPO is not modelled"},
    {"trl/use_bias_correction_kl", U::kApproximated, "the KL term is multiplied by the ratio all the same", "", "true"},
    {"trl/scale_rewards", U::kApproximated, "rewards are divided by their group's standard deviation all the same", "",
     "group true"},
    {"trl/multi_objective_aggregation", U::kApproximated, "rewards are taken to be summed before they are normalised",
     "", "sum_then_normalize"},
    {"trl/replay_buffer_size", U::kRefused, "a buffer of earlier completions is not modelled", "", "0"},
    {"vllm/tensor_parallel_size vllm/data_parallel_size", U::kRefused, "vLLM over several cards is not modelled", "",
     "1"},
    {"trl/num_generations trl/temperature trl/top_p trl/top_k trl/min_p trl/repetition_penalty trl/generation_kwargs "
     "trl/chat_template_kwargs trl/vllm_guided_decoding_regex trl/rollout_func",
     U::kIrrelevant, "which tokens are generated"},
    {"trl/reward_funcs trl/reward_weights trl/ref_model_mixup_alpha "
     "trl/ref_model_sync_steps trl/epsilon trl/epsilon_high "
     "trl/mask_truncated_completions trl/entropy_coef trl/use_adaptive_entropy trl/entropy_target "
     "trl/entropy_coef_delta trl/entropy_coef_min trl/entropy_coef_max trl/vllm_importance_sampling_clip_min "
     "trl/vllm_importance_sampling_clip_max trl/vllm_importance_sampling_correction "
     "trl/vllm_importance_sampling_mode trl/vllm_importance_sampling_cap "
     "trl/replay_recompute_logps trl/reroll_start_fraction trl/reroll_max_groups trl/skip_zero_advantage_batches "
     "trl/reward_num_workers trl/prefetch_depth trl/vllm_sync_interval trl/streaming_min_groups",
     U::kIrrelevant, "numbers of the loss and the rewards"},
    {"trl/log_completions trl/num_completions_to_print trl/log_multimodal", U::kIrrelevant, "logs"},
    {"trl/vllm_server_host trl/vllm_server_port trl/vllm_server_timeout vllm/max_model_len vllm/host vllm/port "
     "vllm/device vllm/dtype "
     "vllm/enable_prefix_caching vllm/enable_reasoning vllm/reasoning_parser vllm/enforce_eager vllm/serve_module "
     "vllm/worker_extension_cls",
     U::kIrrelevant, "where vLLM is, and how it is started"},
    // evaluation, saving, logs
    {"do_causal_lm_eval do_bench_eval generate_samples", U::kRefused, "evaluation that generates text is not modelled"},
    {"eval_causal_lm_metrics bench_dataset bench_split num_generation_samples generation_max_new_tokens "
     "generation_temperature generation_top_p generation_top_k generation_prompt_ratio generation_do_sample "
     "eval_table_size eval_table_max_new_tokens eval_max_new_tokens eval_steps evals_per_epoch metric_for_best_model "
     "greater_is_better",
     U::kIrrelevant, "when it evaluates"},
    {"output_dir hub_model_id hub_strategy hub_revision save_safetensors save_steps saves_per_epoch save_strategy "
     "save_total_limit save_first_step load_best_model_at_end save_only_model resume_from_checkpoint "
     "auto_resume_from_checkpoints dynamic_checkpoint",
     U::kIrrelevant, "saving, which the peak of the training leaves out"},
    {"logging_steps use_tensorboard profiler_steps profiler_steps_start include_tokens_per_second include_tkps "
     "use_wandb wandb_name wandb_run_id wandb_mode wandb_project wandb_entity wandb_watch wandb_log_model use_mlflow "
     "mlflow_tracking_uri mlflow_experiment_name mlflow_run_name hf_mlflow_log_artifacts use_comet comet_api_key "
     "comet_workspace comet_project_name comet_experiment_key comet_mode comet_online comet_experiment_config "
     "gradio_title gradio_share gradio_server_name gradio_server_port gradio_max_new_tokens gradio_temperature "
     "use_otel_metrics otel_metrics_host otel_metrics_port use_trackio trackio_project_name trackio_run_name "
     "trackio_space_id use_swanlab swanlab_project swanlab_mode swanlab_experiment_name swanlab_description "
     "swanlab_workspace swanlab_log_model swanlab_log_completions swanlab_completion_log_interval "
     "swanlab_completion_max_buffer",
     U::kIrrelevant, "logs"},
    {"seed strict hf_use_auth_token axolotl_config_path debug", U::kIrrelevant, "of axolotl itself"},
};

constexpr std::string_view kLiger = "axolotl.integrations.liger.LigerPlugin";
constexpr std::string_view kCutCrossEntropy = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin";

void read_types(Section& section) {
  // utils/config/__init__.py, resolve_dtype(): bf16 is "auto", so on, where nothing is said; weights are loaded in it.
  const std::string bf16 = section.text("bf16").value_or("auto");
  const bool fp16 = section.on("fp16");
  const bool full = bf16 == "full";
  const bool tf32 = section.text("tf32").value_or("auto") == "true";
  const bool wants_bf16 = full || bf16 == "true" || (bf16 == "auto" && !fp16) || section.on("bfloat16");
  if (bf16 != "auto" && bf16 != "full" && bf16 != "true" && bf16 != "false")
    section.wrong("bf16", "true, false, auto or full");
  if (full || (section.on("bfloat16") && bf16 == "false")) return section.set("bf16", "--precision", "bf16");
  if (wants_bf16) {
    section.set("bf16", "--precision", "amp-bf16");
    return section.account().set("--weights-dtype", "bf16");
  }
  if (fp16) {
    section.set("fp16", "--precision", "amp-fp16");
    return section.account().set("--weights-dtype", "fp16");
  }
  if (section.on("float16")) return section.set("float16", "--precision", "fp16");
  section.set("tf32", "--precision", tf32 ? "tf32" : "fp32");
  section.account().set("--weights-dtype", "fp32");
}

void read_batch(Section& section) {
  const std::int64_t micro = section.whole("micro_batch_size").value_or(1);
  section.set("micro_batch_size", "--bs", std::to_string(micro));
  std::optional<std::int64_t> steps = section.whole("gradient_accumulation_steps");
  if (!steps && section.has("batch_size") && micro > 0) steps = *section.whole("batch_size") / micro;
  if (steps) section.set("gradient_accumulation_steps", "--accum", std::to_string(*steps));
  section.set("sequence_len", "--seq", std::to_string(section.whole("sequence_len").value_or(512)));
  section.account().note("every sequence has sequence_len tokens, the most that the file lets through (--seq)");
  if (const auto workers = section.whole("dataloader_num_workers")) {
    section.set("dataloader_num_workers", "--loader-workers", std::to_string(*workers));
    const auto ahead = section.whole("dataloader_prefetch_factor");
    if (*workers > 0 && ahead) section.set("dataloader_prefetch_factor", "--prefetch-factor", std::to_string(*ahead));
  }
}

void read_evaluation_of(Section& section) {
  const double share = section.number("val_set_size").value_or(0);
  const bool has_set = section.has("test_datasets");
  const std::string strategy = section.text("eval_strategy").value_or(section.text("evaluation_strategy").value_or(""));
  if ((share == 0 && !has_set) || strategy == "no" || strategy == "false") return;
  const std::int64_t size = section.whole("eval_batch_size").value_or(section.whole("micro_batch_size").value_or(1));
  section.set("val_set_size", "--eval-bs", std::to_string(size));
}

void read_attention(Section& section) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kFlags = {
      {{"flash_attention", "flash_attention_2"},
       {"sdp_attention", "sdpa"},
       {"eager_attention", "eager"},
       {"flex_attention", "flex_attention"}}};
  for (const std::string_view other : {"xformers_attention", "sage_attention", "s2_attention"}) {
    if (section.on(other))
      section.refuse(other, "this attention is not modelled (sdpa, eager and flash_attention are)");
  }
  for (const auto& [key, name] : kFlags) {
    if (section.on(key)) set_attention(section, key, std::string(name));
  }
  if (const auto name = section.text("attn_implementation")) set_attention(section, "attn_implementation", *name);
}

void read_checkpoints(Section& section) {
  const std::string value = section.text("gradient_checkpointing").value_or("false");
  const std::string offload = section.text("activation_offloading").value_or("false");
  if (value == "offload" || value == "offload_disk") {
    return section.refuse(
        "gradient_checkpointing",
        "checkpoints that are offloaded one by one are not modelled (activation_offloading: true is)");
  }
  if (value != "true" && value != "false") section.wrong("gradient_checkpointing", "true or false");
  if (offload == "true") {
    section.set("activation_offloading", "--activation-offload");
    section.set("gradient_checkpointing", "--checkpointing", value == "true" ? "full" : "none");
    section.approximate("activation_offloading",
                        "predicted as --activation-offload: all saved tensors go to the host, "
                        "while axolotl's offloader leaves small ones on the card");
    return;
  }
  if (offload != "false") {
    return section.refuse("activation_offloading", "activation offload of the kind " + offload + " is not modelled");
  }
  section.set("gradient_checkpointing", "--checkpointing", value == "true" ? "full" : "none");
  if (value != "true") return;
  // normalize_config(): {"use_reentrant": True} where nothing is said.
  if (section.mapping("gradient_checkpointing_kwargs") == nullptr) {
    section.set("gradient_checkpointing", "--reentrant");
  } else {
    read_checkpointing_arguments(section, "gradient_checkpointing", "gradient_checkpointing_kwargs");
  }
}

/// utils/__init__.py, set_pytorch_cuda_alloc_conf(), called by every command.
void read_allocator(Section& section) {
  section.account().set("--expandable");
  section.account().note(
      "axolotl sets PYTORCH_ALLOC_CONF=expandable_segments:True where the environment says nothing; with torch before "
      "2.9 also roundup_power2_divisions:16, which is not modelled (--no-expandable: neither)");
}

void read_plugins(Section& section) {
  bool has_plugin = false, cuts_loss = false;
  for (const std::string& plugin : section.texts("plugins")) {
    if (plugin == kLiger) {
      has_plugin = true;
    } else if (plugin == "axolotl.integrations.swanlab.SwanLabPlugin") {
      continue;  // logs
    } else if (plugin == kCutCrossEntropy) {
      cuts_loss = true;
    } else {
      section.refuse("plugins", "the plugin " + one_line(plugin) + " is not modelled");
    }
  }
  // integrations/cut_cross_entropy/args.py: true where nothing is said.
  if (cuts_loss && section.flag("cut_cross_entropy").value_or(true)) {
    section.set(section.has("cut_cross_entropy") ? "cut_cross_entropy" : "plugins", "--cut-cross-entropy");
  } else if (!cuts_loss && section.on("cut_cross_entropy")) {
    section.irrelevant("cut_cross_entropy", "only with its plugin");
  }
  const bool fused_loss = section.on("liger_fused_linear_cross_entropy");
  const bool all = section.on("liger_rope") && section.on("liger_rms_norm") &&
                   (section.on("liger_glu_activation") || section.on("liger_swiglu"));
  const bool any = section.on("liger_rope") || section.on("liger_rms_norm") || section.on("liger_glu_activation") ||
                   section.on("liger_swiglu") || fused_loss;
  if (!has_plugin || !any) return;
  if (!fused_loss) {
    return section.refuse("plugins", "Liger's kernels without its fused linear cross entropy are not modelled");
  }
  section.set("liger_fused_linear_cross_entropy", "--liger");
  if (!all) {
    section.approximate("liger_fused_linear_cross_entropy",
                        "predicted with all of Liger's kernels, of which the file switches on a part");
  }
}

void read_lora_kernels(Section& section, bool quantized_8bit) {
  bool said = false;
  for (const std::string_view key : {"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel"}) {
    said |= section.has(key);
    if (section.on(key))
      section.approximate(key, "peft's adapters are predicted in place of axolotl's kernels, which keep less");
  }
  // schemas/config.py, check_auto_enable_lora_kernels().
  if (!said && !quantized_8bit && !section.has("rl") && !section.on("trust_remote_code")) {
    section.account().note(
        "axolotl switches its LoRA kernels on by itself; peft's adapters are predicted, which keep more");
  }
}

void read_adapter(Section& section) {
  const std::string adapter = section.text("adapter").value_or("");
  const bool in_4bit = section.on("load_in_4bit");
  const bool in_8bit = section.on("load_in_8bit");
  if (adapter.empty() || adapter == "none") {
    if (in_4bit || in_8bit) section.irrelevant(in_4bit ? "load_in_4bit" : "load_in_8bit", "only beside an adapter");
    return;
  }
  if (adapter != "lora" && adapter != "qlora") {
    return section.refuse("adapter", "adapters of the kind " + one_line(adapter) + " are not modelled");
  }
  if (!section.has("lora_r")) section.wrong("lora_r", "the rank of the adapters, beside adapter: " + adapter);
  section.set("lora_r", "--lora", *section.text("lora_r"));
  if (section.on("peft_use_dora")) section.set("peft_use_dora", "--dora");
  if (const auto dropout = section.number("lora_dropout")) {
    section.set("lora_dropout", "--lora-dropout", *section.text("lora_dropout"));
  }
  if (!section.flag("peft_autocast_adapter_dtype").value_or(true)) {
    section.set("peft_autocast_adapter_dtype", "--lora-dtype", "base");
  }
  std::vector<std::string> targets = section.texts("lora_target_modules");
  if (const auto pattern = section.scalar("lora_target_modules"); pattern && is_pattern(*pattern)) {
    targets = {std::string(kPatternPrefix) + *pattern};
  }
  if (section.on("lora_target_linear")) targets = {"linear"};
  if (!set_targets(section, std::move(targets))) {
    section.account().set("--lora-targets", "q_proj,v_proj");
    section.account().note("adapters on q_proj and v_proj: peft's default for most decoders (--lora-targets)");
  }
  set_saved(section);
  // loaders/model.py: `qlora` with 4 bits and `lora` with 8 bits alone are quantised.
  const bool nf4 = adapter == "qlora" && in_4bit;
  const bool int8 = adapter == "lora" && in_8bit;
  if (nf4) section.set("load_in_4bit", "--quantize", "nf4-double");
  if (int8) section.set("load_in_8bit", "--quantize", "int8");
  if (section.has("bnb_config_kwargs")) {
    section.refuse("bnb_config_kwargs", "other arguments of bitsandbytes are not modelled");
  }
  if (nf4) section.set("load_in_4bit", "--quant-storage", "bf16");
  if (nf4 || int8) {
    // _configure_embedding_dtypes() turns norms and embeddings back into the 16-bit type after that call.
    section.account().set("--no-prepare-kbit");
    section.account().note(
        "norms and embeddings are in the type of the weights: axolotl turns them back after "
        "prepare_model_for_kbit_training");
  }
  read_lora_kernels(section, int8);
}

/// Sets members of the model's config; of these output_router_logits alone is an option.
void read_model_config(Section& section) {
  const JsonNode* config = section.mapping("model_config");
  if (config == nullptr) return;
  for (const JsonNode& each : config->children) {
    if (each.key != "output_router_logits") return section.refuse("model_config", std::string(kOtherConfiguration));
    const bool is_off = each.kind == JsonNode::Kind::kNull;
    if (!is_off && each.kind != JsonNode::Kind::kBool)
      section.wrong("model_config", "output_router_logits: true or false");
    if (each.boolean) section.set("model_config", "--router-loss");
  }
}

/// monkeypatch/moe_quant.py: each parameter of three dimensions in a module called experts is packed as it is loaded.
void read_packed_experts(Section& section) {
  if (!section.on("quantize_moe_experts")) return;
  section.set("quantize_moe_experts", "--quantize-experts");
}

/// utils/freeze.py, LayerNamePattern: re.match() of a pattern in which dots are dots, behind which rows may be told;
/// the others' gradients are set to zero in place.
std::string without_rows(std::string pattern) {
  if (pattern.ends_with(']')) {
    const std::size_t start = pattern.rfind('[');
    const bool has_rows =
        start != std::string::npos && pattern.find_first_not_of("0123456789:", start + 1) == pattern.size() - 1;
    if (has_rows && start > 0) pattern.resize(start);
  }
  std::string escaped;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '.' && (i + 1 == pattern.size() || pattern[i + 1] != '+')) escaped += '\\';
    escaped += pattern[i];
  }
  return escaped;
}

/// train.py calls freeze_layers_except() behind the adapters.
void read_unfrozen(Section& section) {
  std::vector<std::string> patterns = section.texts("unfrozen_parameters");
  if (patterns.empty()) return;
  if (section.account().is_set("--lora")) {
    return section.refuse("unfrozen_parameters",
                          "axolotl freezes what no pattern matches from the name's beginning, and beside adapters all "
                          "names begin with base_model.model.: the adapters are frozen, too, and nothing trains");
  }
  for (std::string& each : patterns) each = without_rows(std::move(each));
  section.set("unfrozen_parameters", "--freeze", std::string(kFreezeExcept) + join(patterns, ","));
}

void read_gpus(Section& section) {
  std::int64_t gpus = 1;
  for (const std::string_view key : {"dp_shard_size", "dp_replicate_size", "tensor_parallel_size",
                                     "context_parallel_size", "sequence_parallel_degree", "expert_parallel_size"}) {
    const std::int64_t size = std::max<std::int64_t>(section.whole(key).value_or(1), 1);
    if (key != "expert_parallel_size" && size <= 131072) gpus *= size;  // experts are spread over ranks that are there
    if (size == 1) continue;
    if (key == "tensor_parallel_size") section.set(key, "--tp", std::to_string(size));
    if (key == "expert_parallel_size") section.set(key, "--ep", std::to_string(size));
    if (key == "context_parallel_size" || key == "sequence_parallel_degree")
      section.set(key, "--cp", std::to_string(size));
    if (key == "dp_replicate_size") section.refuse(key, "hybrid sharding in the Trainer is not modelled");
  }
  if (gpus > 1) section.set("dp_shard_size", "--gpus", std::to_string(gpus));
  const bool sharded = !section.texts("fsdp").empty() || section.has("fsdp_config/offload_params");
  const auto version = section.whole("fsdp_version");
  bool has_config = false;
  for (const KeyRow& row : fsdp_keys()) {
    for (std::size_t at = 0; at < row.keys.size();) {
      const std::size_t end = std::min(row.keys.find(' ', at), row.keys.size());
      has_config |= section.has(row.keys.substr(at, end - at));
      at = end + 1;
    }
  }
  if (sharded || has_config) {
    read_fsdp(section, version.value_or(2));
    if (!version && !section.has("fsdp_config/fsdp_version") && !section.has("fsdp_config/version")) {
      section.account().note("fsdp_version is not said: TrainingArguments of transformers 5.16 makes FSDP2 of it");
    }
  }
  read_deepspeed_key(section, "deepspeed");
}

/// core/trainers/grpo: the keys of trl: and vllm:.
void read_generation(Section& section) {
  const std::int64_t completion = section.whole("trl/max_completion_length").value_or(0);
  const std::int64_t sequence = section.whole("sequence_len").value_or(512);
  if (completion < 1) section.wrong("trl/max_completion_length", "how many tokens are generated, beside rl: grpo");
  if (sequence <= completion) {
    section.wrong("sequence_len", "more tokens than trl/max_completion_length: a prompt and what is generated");
  }
  section.set("trl/max_completion_length", "--completion", std::to_string(completion));
  section.account().note("prompts are as long as sequence_len leaves room for beside max_completion_length (--seq)");
  const double beta = section.number("trl/beta").value_or(0);
  section.set("trl/beta", "--ref-model", beta == 0 ? "none" : section.has("adapter") ? "adapters" : "own");
  if (const auto iterations = section.whole("trl/num_iterations")) {
    section.set("trl/num_iterations", "--iterations", std::to_string(*iterations));
  }
  if (const auto loss = section.choice("trl/loss_type", kGrpoLossNames)) {
    section.set("trl/loss_type", "--grpo-loss", *loss);
  }
  if (const auto level = section.choice("trl/importance_sampling_level", kImportanceLevelNames)) {
    section.set("trl/importance_sampling_level", "--importance-level", *level);
  }
  if (!section.on("trl/use_vllm")) return;
  const std::string mode = section.text("trl/vllm_mode").value_or("server");
  if (mode != "colocate" && mode != "server") section.wrong("trl/vllm_mode", "colocate or server");
  section.set("trl/use_vllm", "--vllm", mode);
  if (mode == "server") return;
  section.set("vllm/gpu_memory_utilization", "--vllm-utilization",
              section.text("vllm/gpu_memory_utilization").value_or("0.9"));
  if (section.on("trl/vllm_enable_sleep_mode")) section.set("trl/vllm_enable_sleep_mode", "--vllm-sleep");
}

void read_trainer_of(Section& section) {
  const std::string rl = section.text("rl").value_or("");
  if (section.on("process_reward_model")) {
    return section.refuse("process_reward_model", "a reward for each step of an answer is not modelled");
  }
  if (section.has("trainer_cls")) return section.refuse("trainer_cls", "another class of trainer is not modelled");
  const bool classifies = section.whole("num_labels").value_or(0) > 0;
  if (section.on("reward_model")) {
    section.set("reward_model", "--loop", "trl-reward");
    section.account().note("axolotl 0.19.0 takes the trainer of TRL 1.9; that of TRL 1.16 is predicted");
    return;
  }
  section.set("num_labels", "--task", classifies ? "seqcls" : "causal");
  if (rl.empty()) {
    section.account().set("--loop", "trainer");
  } else if (rl == "dpo" || rl == "ipo" || rl == "kto" || rl == "orpo" || rl == "grpo" || rl == "gdpo") {
    section.set("rl", "--loop", rl == "ipo" ? "trl-dpo" : rl == "gdpo" ? "trl-grpo" : "trl-" + rl);
    section.account().note("axolotl 0.19.0 takes the trainer of TRL 1.9; that of TRL 1.16 is predicted");
    if (rl == "grpo" || rl == "gdpo") read_generation(section);
    if (section.on("precompute_ref_log_probs")) section.set("precompute_ref_log_probs", "--ref-model", "precomputed");
  } else {
    section.refuse("rl", "the trainer " + one_line(rl) + " is not modelled");
  }
}

}  // namespace

void read_axolotl(Account& account, const JsonNode& root) {
  Section section(account, root, account.file(), {kRows, fsdp_keys()});
  if (!account.is_set("--optimizer")) account.set("--optimizer", "adamw_torch_fused");
  read_trainer_of(section);
  read_allocator(section);
  read_batch(section);
  read_types(section);
  read_evaluation_of(section);
  read_attention(section);
  read_checkpoints(section);
  read_plugins(section);
  read_adapter(section);
  read_packed_experts(section);
  read_model_config(section);
  read_unfrozen(section);
  read_compile(section);
  read_gpus(section);
  // _configure_embedding_dtypes(): they are turned back for adapters, FSDP and flash attention alone.
  const bool turned_back = account.is_set("--lora") || account.text_of("--attn") == "flash" ||
                           account.text_of("--parallel").value_or("").starts_with("fsdp");
  if (!turned_back && account.text_of("--weights-dtype").value_or("fp32") != "fp32") {
    account.note(
        "norms and embeddings in the type of the other weights: axolotl leaves them in float32 without flash "
        "attention");
  }
  section.done();
}

}  // namespace memcalc::config
