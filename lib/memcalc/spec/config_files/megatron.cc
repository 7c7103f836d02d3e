// Megatron-LM core_r0.14.0, megatron/training/arguments.py: the arguments of pretrain_gpt.py, pretrain_bert.py and
// pretrain_t5.py. A GPT is told as a GPT-2, a LLaMA or a Mixtral of these sizes, with what Megatron has otherwise.
// MIRRORS(megatron, "training/arguments.py", "0.14.0")
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"

namespace memcalc::config {
namespace {

using U = RowUse;

/// Told by the same name in --megatron: flags, and what has a value.
constexpr std::string_view kPassedFlags =
    "account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split apply_layernorm_1p "
    "apply_query_key_layer_scaling attention_softmax_in_fp32 cross_entropy_loss_fusion defer_embedding_wgrad_compute "
    "deterministic_mode disable_bias_linear no_gradient_accumulation_fusion no_masked_softmax_fusion "
    "no_persist_layer_norm squared_relu swiglu untie_embeddings_and_output_weights";
constexpr std::string_view kPassedValues =
    "attention_dropout cross_entropy_fusion_impl decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers "
    "hidden_dropout make_vocab_size_divisible_by microbatch_group_size_per_virtual_pipeline_stage normalization "
    "transformer_impl wgrad_deferral_limit";

constexpr KeyRow kRows[] = {
    {"num_layers hidden_size ffn_hidden_size num_attention_heads kv_channels group_query_attention num_query_groups "
     "max_position_embeddings encoder_num_layers decoder_num_layers",
     U::kUsed},
    {"seq_length encoder_seq_length decoder_seq_length", U::kUsed},
    {"vocab_size vocab_extra_ids tokenizer_type", U::kUsed},
    {"position_embedding_type use_rotary_position_embeddings no_position_embedding rotary_percent no_rope_fusion "
     "add_qkv_bias qk_layernorm attention_backend",
     U::kUsed},
    {kPassedFlags, U::kUsed},
    {kPassedValues, U::kUsed},
    {"clip_grad", U::kUsed, "", "--clip-grad"},
    {"micro_batch_size global_batch_size bf16 fp16 optimizer", U::kUsed},
    {"tensor_model_parallel_size sequence_parallel pipeline_model_parallel_size context_parallel_size cp_comm_type "
     "expert_model_parallel_size num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank "
     "use_distributed_optimizer overlap_grad_reduce",
     U::kUsed},
    {"recompute_granularity recompute_activations recompute_method recompute_num_layers", U::kUsed},
    {"num_experts moe_router_topk moe_ffn_hidden_size moe_grouped_gemm moe_permute_fusion moe_router_dtype "
     "moe_token_dispatcher_type moe_expert_capacity_factor moe_pad_expert_input_to_capacity "
     "moe_shared_expert_intermediate_size expert_tensor_parallel_size",
     U::kUsed},

    {"lr min_lr lr_decay_style lr_decay_iters lr_decay_samples lr_warmup_fraction lr_warmup_iters lr_warmup_samples "
     "lr_warmup_init lr_wsd_decay_style lr_wsd_decay_iters lr_wsd_decay_samples decoupled_lr decoupled_min_lr "
     "override_opt_param_scheduler use_checkpoint_opt_param_scheduler",
     U::kIrrelevant, "the learning rate"},
    {"weight_decay start_weight_decay end_weight_decay weight_decay_incr_style adam_beta1 adam_beta2 adam_eps "
     "sgd_momentum init_method_std init_method_xavier_uniform "
     "norm_epsilon loss_scale initial_loss_scale min_loss_scale loss_scale_window hysteresis rotary_base "
     "rotary_interleaved rotary_seq_len_interpolation_factor use_rope_scaling rope_scaling_factor "
     "relative_attention_num_buckets relative_attention_max_distance",
     U::kIrrelevant, "numbers of the optimizer and the model"},
    {"train_iters train_samples exit_interval exit_duration_in_mins exit_signal_handler seed data_parallel_random_init "
     "te_rng_tracker iterations_to_skip ",
     U::kIrrelevant, "how long it trains"},
    {"data_path split train_data_path valid_data_path test_data_path data_args_path per_split_data_args_path "
     "data_cache_path no_mmap_bin_files mock_data mask_prob short_seq_prob num_workers reset_position_ids "
     "reset_attention_mask eod_mask_loss num_dataset_builder_threads dataloader_type vocab_file merge_file "
     "tokenizer_model tiktoken_pattern tiktoken_num_special_tokens tiktoken_special_tokens "
     "mid_level_dataset_surplus object_storage_cache_path no_data_sharding",
     U::kIrrelevant, "the data"},
    {"no_create_attention_mask_in_dataloader", U::kIrrelevant, "masks of a batch, which are left out"},
    {"save load save_interval save_retain_interval no_save_optim no_save_rng no_load_optim no_load_rng finetune "
     "non_persistent_save_interval non_persistent_ckpt_type pretrained_checkpoint ckpt_step exit_on_missing_checkpoint "
     "auto_detect_ckpt_format use_dist_ckpt dist_ckpt_format ckpt_format async_save "
     "ckpt_fully_parallel_save no_ckpt_fully_parallel_save ckpt_fully_parallel_load "
     "ckpt_assume_constant_structure dist_ckpt_strictness use_checkpoint_args "
     "no_use_tokenizer_model_from_checkpoint_args "
     "no_initialization use_cpu_initialization",
     U::kIrrelevant, "reading and saving"},
    {"eval_iters eval_interval full_validation multiple_validation_sets test_mode", U::kIrrelevant,
     "evaluation, beside the peak of the training"},
    {"log_interval log_params_norm log_num_zeros_in_grad log_throughput log_progress log_energy log_straggler "
     "log_timers_to_tensorboard log_validation_ppl_to_tensorboard log_memory_to_tensorboard "
     "log_world_size_to_tensorboard no_log_loss_scale_to_tensorboard timing_log_level "
     "timing_log_option tensorboard_dir tensorboard_log_interval tensorboard_queue_size wandb_project wandb_exp_name "
     "wandb_save_dir logging_level profile profile_step_start profile_step_end profile_ranks use_pytorch_profiler "
     "record_memory_history memory_snapshot_path no_one_logger one_logger_project one_logger_run_name "
     "no_barrier_with_level_1_timing config_logger_dir moe_per_layer_logging",
     U::kIrrelevant, "logs"},
    {"distributed_backend distributed_timeout_minutes local_rank lazy_mpu_init nccl_communicator_config_path "
     "disable_gloo_process_groups use_tp_pp_dp_mapping high_priority_stream_groups rerun_mode error_injection_rate "
     "error_injection_type check_weight_hash_across_dp_replicas_interval manual_gc manual_gc_interval "
     "no_manual_gc_eval train_sync_interval enable_ft_package calc_ft_timeouts adlr_autoresume "
     "adlr_autoresume_interval no_check_for_nan_in_loss_and_grad check_for_spiky_loss check_for_large_grads",
     U::kIrrelevant, "how processes run"},
    {"use_mcore_models use_flash_attn "
     "no_scatter_gather_tensors_in_pipeline no_async_tensor_model_parallel_allreduce onnx_safe",
     U::kIrrelevant, "the default, or of earlier versions"},
    {"disable_bf16_reduced_precision_matmul", U::kIrrelevant, "how products are summed up"},
    {"overlap_param_gather overlap_param_gather_with_optimizer_step ddp_average_in_collective calculate_per_token_loss "
     "no_align_grad_reduce no_align_param_gather no_overlap_p2p_communication",
     U::kIrrelevant, "when collectives run"},
    {"moe_aux_loss_coeff moe_z_loss_coeff moe_router_load_balancing_type moe_router_score_function "
     "moe_router_pre_softmax moe_router_num_groups moe_router_group_topk moe_router_topk_scaling_factor "
     "moe_router_enable_expert_bias moe_router_bias_update_rate moe_router_force_load_balancing moe_input_jitter_eps "
     "moe_token_drop_policy moe_router_fusion",
     U::kIrrelevant, "the router's scores"},

    {"empty_unused_memory_level", U::kApproximated,
     "the cache is not emptied: reserved memory is at most what is said"},
    {"rampup_batch_size", U::kApproximated, "the global batch is taken at its full size"},
    {"tp_comm_overlap tp_comm_overlap_cfg tp_comm_bootstrap_backend", U::kApproximated,
     "the buffers that overlap tensor-parallel communication with products are left out"},
    {"moe_shared_expert_overlap overlap_moe_expert_parallel_comm delay_wgrad_compute "
     "overlap_p2p_communication_warmup_flush",
     U::kApproximated, "communication beside products is left out"},
    {"moe_enable_deepep moe_deepep_num_sms", U::kApproximated, "DeepEP's buffers are left out"},
    {"no_bias_gelu_fusion no_bias_swiglu_fusion no_bias_dropout_fusion", U::kApproximated,
     "activations are taken to be fused: what the parts keep is left out"},
    {"apply_residual_connection_post_layernorm openai_gelu", U::kApproximated, "the model's usual form is taken"},
    {"ddp_bucket_size ddp_num_buckets ddp_pad_buckets_for_high_nccl_busbw", U::kApproximated,
     "buckets are taken to be of the default size"},
    {"use_nccl_ub use_sharp sharp_enabled_group", U::kApproximated, "NCCL's registered buffers are left out"},
    {"accumulate_allreduce_grads_in_fp32", U::kUsed},
    {"grad_reduce_in_bf16", U::kRefused, "gradients that are summed in bfloat16 are not modelled"},
    {"fp8_format fp8 fp8_recipe fp8_margin fp8_interval fp8_amax_history_len fp8_amax_compute_algo no_fp8_wgrad "
     "fp8_param_gather first_last_layers_bf16 num_layers_at_start_in_bf16 num_layers_at_end_in_bf16 "
     "keep_fp8_transpose_cache fp4_format",
     U::kRefused, "FP8 under Megatron is not modelled"},
    {"use_precision_aware_optimizer main_grads_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype", U::kRefused,
     "optimizer states of other types are not modelled", "", "fp32"},
    {"optimizer_cpu_offload optimizer_offload_fraction use_torch_optimizer_for_cpu_offload "
     "overlap_cpu_optimizer_d2h_h2d",
     U::kRefused, "offload of the optimizer under Megatron is not modelled"},
    {"use_megatron_fsdp use_custom_fsdp use_torch_fsdp2 data_parallel_sharding_strategy init_model_with_meta_device "
     "fsdp_double_buffer",
     U::kRefused, "FSDP under Megatron is not modelled", "", "no_shard"},
    {"num_distributed_optimizer_instances", U::kRefused, "several distributed optimizers are not modelled", "", "1"},
    {"multi_latent_attention q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim rotary_scaling_factor "
     "mscale mscale_all_dim rope_type",
     U::kRefused, "latent attention is told by --model CONFIG --framework megatron, not by these arguments"},
    {"mtp_num_layers mtp_loss_scaling_factor", U::kRefused, "multi-token prediction is not modelled"},
    {"hybrid_override_pattern hybrid_layer_pattern hybrid_attention_ratio hybrid_mlp_ratio mamba_state_dim "
     "mamba_head_dim mamba_num_groups mamba_num_heads is_hybrid_model disable_mamba_mem_eff_path spec",
     U::kRefused, "a hybrid model is told by --model CONFIG --framework megatron, not by these arguments"},
    {"moe_layer_freq", U::kRefused, "dense layers between those of experts are told by --model CONFIG", "", "1"},
    {"enable_cuda_graph external_cuda_graph cuda_graph_scope cuda_graph_warmup_steps", U::kRefused,
     "CUDA graphs under Megatron are not modelled"},
    {"recompute_modules moe_layer_recompute distribute_saved_activations checkpoint_activations", U::kRefused,
     "other recomputation than of whole layers and of core attention is not modelled", "", "core_attn"},
    {"use_legacy_models", U::kRefused, "Megatron's models before Megatron-core are not modelled"},
    {"fp32_residual_connection", U::kRefused, "residuals in float32 are not modelled"},
    {"fp16_lm_cross_entropy", U::kRefused, "a loss in 16 bits is not modelled"},
    {"pipeline_model_parallel_layout padded_vocab_size qk_l2_norm bert_no_binary_head heterogeneous_layers_config_path "
     "heterogeneous_layers_config_encoded_json yaml_cfg skip_train sft model_parallel_size "
     "moe_extended_tp moe_use_upcycling moe_use_legacy_grouped_gemm moe_apply_probs_on_input "
     "use_fused_weighted_squared_relu",
     U::kRefused, "not modelled"},

    // Of other versions: what a script of an earlier or a later one has beside the arguments above.
    {"async_strategy step_batch_size_schedule verify_integrity perform_initialization muon_momentum "
     "muon_extra_scale_factor muon_scale_mode log_loss_scale_to_tensorboard barrier_with_L1_time "
     "use_dist_checkpointing",
     U::kIrrelevant, "of another version: numbers, saving and logs"},
    {"data_impl DDP_impl ddp_impl no_contiguous_buffers_in_local_ddp fim_data fim_rate fim_spm_rate", U::kIrrelevant,
     "of an earlier version: the data and the default"},
    {"softmax_type", U::kRefused, "another softmax of the attention is not modelled", "", "vanilla"},
    {"window_size cpu_offloading cpu_offloading_num_layers", U::kRefused, "not modelled"},
};

/// What --megatron gets.
class MegatronList {
 public:
  explicit MegatronList(Section& section) : section_(section) {}
  void add(std::string_view name, std::string_view value = {}) {
    std::string word(name);
    for (char& letter : word) {
      if (letter == '_') letter = '-';
    }
    text_ += (text_.empty() ? "" : ",") + word + (value.empty() ? "" : "=") + std::string(value);
  }
  void add_flag(std::string_view key) {
    if (section_.on(key)) add(key);
  }
  void add_value(std::string_view key) {
    if (const auto value = section_.text(key)) add(key, *value);
  }
  void finish() const {
    if (!text_.empty()) section_.account().set("--megatron", text_);
  }

 private:
  Section& section_;
  std::string text_;
};

std::int64_t required_size(Section& section, std::string_view key) {
  const auto value = section.whole(key);
  constexpr std::int64_t kMost = std::int64_t{1} << 30U;
  if (!value || *value < 1 || *value > kMost) section.wrong(key, "a whole number from 1");
  return *value;
}

/// num_layers and encoder_num_layers are one argument, seq_length and encoder_seq_length another.
std::string_view either(const Section& section, std::string_view key, std::string_view other) {
  return section.has(key) || !section.has(other) ? key : other;
}
std::string_view layers_key(const Section& section) { return either(section, "num_layers", "encoder_num_layers"); }

void set_size(Section& section, std::string_view key, std::string_view flag) {
  section.set(key, flag, std::to_string(required_size(section, key)));
}

void set_length(Section& section) { set_size(section, either(section, "seq_length", "encoder_seq_length"), "--seq"); }

enum class MegatronModel : std::uint8_t { kGpt, kBert, kT5 };

/// By the script's name; of another name by the length that a decoder alone has.
MegatronModel model_of(Section& section) {
  const std::string& script = section.account().script;
  if (script == "pretrain_gpt.py") return MegatronModel::kGpt;
  if (script == "pretrain_bert.py") return MegatronModel::kBert;
  return script == "pretrain_t5.py" || section.has("decoder_seq_length") ? MegatronModel::kT5 : MegatronModel::kGpt;
}

/// Whose words are known without its file, and which arguments add to them.
struct Tokenizer {
  std::string_view name;
  std::int64_t words;             // 0: as many as vocab_size says
  std::int64_t own = 0;           // that it adds
  bool takes_vocab_size = false;  // in place of `words`
  bool takes_extra_ids = false;
};

/// megatron/training/tokenizer/tokenizer.py. WordPieces are those of bert-large, with [BOS] and [EOS]; Null… end a
/// document by a word of their own.
constexpr Tokenizer kTokenizers[] = {
    {.name = "BertWordPieceLowerCase", .words = 30522, .own = 2, .takes_extra_ids = true},
    {.name = "BertWordPieceCase", .words = 28996, .own = 2, .takes_extra_ids = true},
    {.name = "GPT2BPETokenizer", .words = 50257},
    {.name = "Llama2Tokenizer", .words = 32000},
    {.name = "TikTokenizer", .words = 131072, .takes_vocab_size = true},
    {.name = "NullTokenizer", .words = 0, .own = 1, .takes_vocab_size = true},
    {.name = "NullMultimodalTokenizer", .words = 0, .own = 1, .takes_vocab_size = true},
    {.name = "SentencePieceTokenizer", .words = 0, .takes_vocab_size = true, .takes_extra_ids = true},
};

/// Where the words are those of a file, vocab_size is taken to say how many; where nothing does, --vocab has to.
void read_vocabulary(Section& section, MegatronModel model) {
  Account& account = section.account();
  if (account.is_left_out("tokenizer_type")) {
    return account.need({"--vocab", "tokenizer_type", "without it nothing says how many words there are"});
  }
  const std::string_view usual = model == MegatronModel::kGpt ? "GPT2BPETokenizer" : "BertWordPieceLowerCase";
  const std::string name = section.text("tokenizer_type").value_or(std::string(usual));
  const auto* const found = std::find_if(std::begin(kTokenizers), std::end(kTokenizers),
                                         [&](const Tokenizer& each) { return each.name == name; });
  const Tokenizer tokenizer =
      found == std::end(kTokenizers) ? Tokenizer{.name = name, .words = 0, .takes_vocab_size = true} : *found;
  const bool is_said = tokenizer.takes_vocab_size && section.has("vocab_size");
  const std::int64_t words = is_said ? required_size(section, "vocab_size") : tokenizer.words;
  const std::int64_t more = tokenizer.takes_extra_ids ? section.whole("vocab_extra_ids").value_or(0) : 0;
  if (!tokenizer.takes_vocab_size) section.irrelevant("vocab_size", "the tokenizer says how many words there are");
  if (!tokenizer.takes_extra_ids) section.irrelevant("vocab_extra_ids", "this tokenizer takes none");
  if (words == 0) {
    return account.need({"--vocab", section.has("tokenizer_type") ? "tokenizer_type" : "vocab_size",
                         "how many words " + one_line(name) + " has is not known"});
  }
  if (is_said && tokenizer.own == 0) account.note("the tokenizer is taken to have as many words as vocab_size says");
  section.set(is_said ? "vocab_size" : "tokenizer_type", "--vocab", std::to_string(words + tokenizer.own + more));
}

/// arguments.py: where nothing is said four times the width, and two thirds of that, in steps of 64, for the two
/// products of a gated layer.
std::int64_t feed_forward_width(Section& section, std::int64_t hidden) {
  const std::int64_t wide = 4 * hidden;
  return section.whole("ffn_hidden_size").value_or(section.on("swiglu") ? wide * 2 / 3 / 64 * 64 : wide);
}

/// What LLaMA and Mixtral have otherwise than Megatron's defaults.
void tell_defaults(Section& section, MegatronList& list) {
  constexpr std::pair<std::string_view, std::string_view> kDefaults[] = {{"normalization", "LayerNorm"},
                                                                         {"swiglu", "false"},
                                                                         {"disable_bias_linear", "false"},
                                                                         {"hidden_dropout", "0.1"},
                                                                         {"attention_dropout", "0.1"}};
  for (const auto& [key, value] : kDefaults) {
    if (!section.has(key)) list.add(key, value);
  }
}

/// arguments.py: what is not asked for is not so, and tokens are gathered.
void read_experts(Section& section, MegatronList& list) {
  for (const std::string_view key : {"moe_grouped_gemm", "moe_permute_fusion"}) {
    list.add(key, section.on(key) ? "true" : "false");
  }
  const std::string type = section.text("moe_router_dtype").value_or("none");
  if (type == "fp64") section.refuse("moe_router_dtype", "a router in float64 is not modelled");
  if (type != "fp64") list.add("moe_router_dtype", type);
  const std::string dispatcher = section.text("moe_token_dispatcher_type").value_or("allgather");
  if (dispatcher == "flex")
    section.approximate("moe_token_dispatcher_type", "DeepEP's dispatcher is taken to be alltoall");
  list.add("moe_token_dispatcher_type", dispatcher == "flex" ? "alltoall" : dispatcher);
  if (section.has("moe_expert_capacity_factor") && !section.on("moe_pad_expert_input_to_capacity")) {
    section.refuse("moe_expert_capacity_factor", "a capacity without moe-pad-expert-input-to-capacity is not modelled");
  } else {
    list.add_value("moe_expert_capacity_factor");
  }
  list.add_value("moe_shared_expert_intermediate_size");
  list.add_value("expert_tensor_parallel_size");
  const std::int64_t experts = section.whole("num_experts").value_or(0);
  const std::int64_t each = section.whole("moe_router_topk").value_or(2);
  constexpr std::int64_t kMixtralExperts = 8, kMixtralTop = 2;
  if (experts != kMixtralExperts || each != kMixtralTop) {
    section.refuse("num_experts",
                   "other mixtures than of 8 experts, 2 of each token, are told by --model CONFIG "
                   "--framework megatron, not by these arguments");
  }
}

void read_gpt(Section& section, MegatronList& list) {
  Account& account = section.account();
  const std::int64_t hidden = required_size(section, "hidden_size"),
                     heads = required_size(section, "num_attention_heads");
  const bool has_experts = section.whole("num_experts").value_or(0) > 0;
  const std::int64_t width = section.whole("kv_channels").value_or(hidden / heads);
  const bool grouped = section.on("group_query_attention");
  const std::int64_t groups = grouped ? section.whole("num_query_groups").value_or(1) : heads;
  const bool qkv_bias = section.on("add_qkv_bias"), qk_norm = section.on("qk_layernorm");
  const bool is_gpt2 = !grouped && !has_experts && width * heads == hidden && !qkv_bias && !qk_norm;
  if ((qkv_bias || qk_norm) && (has_experts || (qkv_bias && qk_norm))) {
    section.refuse(qk_norm ? "qk_layernorm" : "add_qkv_bias",
                   "beside the other arguments it is told by --model CONFIG");
  }
  account.set("--arch", is_gpt2 ? "gpt2" : has_experts ? "mixtral" : qk_norm ? "qwen3" : qkv_bias ? "qwen2" : "llama");
  set_size(section, layers_key(section), "--layers");
  section.set("hidden_size", "--hidden", std::to_string(hidden));
  section.set("num_attention_heads", "--heads", std::to_string(heads));
  std::int64_t feed_forward = feed_forward_width(section, hidden);
  if (has_experts) feed_forward = section.whole("moe_ffn_hidden_size").value_or(feed_forward);
  section.set(has_experts && section.has("moe_ffn_hidden_size") ? "moe_ffn_hidden_size" : "ffn_hidden_size", "--ffn",
              std::to_string(feed_forward));
  set_size(section, "max_position_embeddings", "--max-positions");
  if (is_gpt2) return;
  section.set("num_query_groups", "--kv-heads", std::to_string(groups));
  section.set("kv_channels", "--head-dim", std::to_string(width));
  account.set("--tie");
  tell_defaults(section, list);
  if (has_experts) read_experts(section, list);
}

void read_positions(Section& section, MegatronList& list, bool is_gpt2) {
  std::string type = section.text("position_embedding_type").value_or("learned_absolute");
  if (section.on("use_rotary_position_embeddings")) type = "rope";
  if (type != "rope" && type != "learned_absolute") {
    section.refuse("position_embedding_type", "positions of the type " + one_line(type) + " are not modelled");
  } else if (type == "learned_absolute" && section.on("no_position_embedding")) {
    section.refuse("no_position_embedding", "a model without positions is not modelled");
  } else if (type == "rope" || !is_gpt2) {
    list.add("position_embedding_type", type);
  }
  if (type != "rope") return;
  list.add_value("rotary_percent");
  list.add_flag("no_rope_fusion");
}

/// What BERT and T5 have otherwise than by default is not modelled (docs/parallel.md).
void refuse_forms_of_gpt(Section& section) {
  if (section.text("position_embedding_type").value_or("learned_absolute") != "learned_absolute") {
    section.refuse("position_embedding_type", "of BERT and T5 learned positions are modelled");
  }
  for (const std::string_view key : {"use_rotary_position_embeddings", "no_position_embedding", "group_query_attention",
                                     "qk_layernorm", "add_qkv_bias"}) {
    if (section.on(key)) section.refuse(key, "not modelled of BERT and T5");
  }
  if (section.whole("num_experts").value_or(0) > 0) section.refuse("num_experts", "not modelled of BERT and T5");
}

void read_sizes(Section& section, MegatronList& list) {
  Account& account = section.account();
  if (section.has("hybrid_layer_pattern") || section.has("hybrid_override_pattern")) return;  // they are refused
  const MegatronModel model = model_of(section);
  read_vocabulary(section, model);
  if (model == MegatronModel::kGpt) {
    read_gpt(section, list);
    read_positions(section, list, account.text_of("--arch") == "gpt2");
    return set_length(section);
  }
  const std::int64_t hidden = required_size(section, "hidden_size"),
                     heads = required_size(section, "num_attention_heads");
  account.set("--arch", model == MegatronModel::kBert ? "bert" : "t5");
  refuse_forms_of_gpt(section);
  if (model == MegatronModel::kBert && section.whole("kv_channels").value_or(hidden / heads) * heads != hidden) {
    section.refuse("kv_channels",
                   "of BERT another width of the heads than hidden_size / num_attention_heads is not "
                   "modelled");
  }
  section.set("hidden_size", "--hidden", std::to_string(hidden));
  section.set("num_attention_heads", "--heads", std::to_string(heads));
  section.set("ffn_hidden_size", "--ffn", std::to_string(feed_forward_width(section, hidden)));
  if (model == MegatronModel::kBert) {
    set_size(section, layers_key(section), "--layers");
    set_size(section, "max_position_embeddings", "--max-positions");
    return set_length(section);
  }
  set_size(section, layers_key(section), "--layers");
  const std::int64_t layers = required_size(section, layers_key(section));
  if (section.whole("decoder_num_layers").value_or(layers) != layers) {
    section.refuse("decoder_num_layers", "another number than of the encoder is told by --model CONFIG");
  }
  section.set("kv_channels", "--head-dim", std::to_string(section.whole("kv_channels").value_or(hidden / heads)));
  list.add_value("max_position_embeddings");
  set_length(section);
  set_size(section, "decoder_seq_length", "--target-seq");
}

void read_layout(Section& section) {
  const auto degree = [&](std::string_view key, std::string_view flag) {
    const std::int64_t size = section.has(key) ? required_size(section, key) : 1;
    if (size > 1) section.set(key, flag, std::to_string(size));
    return size;
  };
  const std::int64_t tensor = degree("tensor_model_parallel_size", "--tp");
  const std::int64_t stages = degree("pipeline_model_parallel_size", "--pp");
  const std::int64_t context = degree("context_parallel_size", "--cp");
  (void)degree("expert_model_parallel_size", "--ep");
  if (tensor > 1 && section.on("sequence_parallel")) section.set("sequence_parallel", "--sp");
  if (context > 1) {
    const std::string type = section.text("cp_comm_type").value_or("p2p");
    if (type != "p2p" && type != "a2a" && type != "all_gather") {
      section.refuse("cp_comm_type", "context parallelism by " + one_line(type) + " is not modelled");
    }
    section.set("cp_comm_type", "--cp-type", type == "p2p" ? "ring" : type == "a2a" ? "ulysses" : "all-gather");
  }
  if (section.on("use_distributed_optimizer")) section.set("use_distributed_optimizer", "--parallel", "megatron-dist");
  std::int64_t chunks = section.whole("num_virtual_stages_per_pipeline_rank").value_or(1);
  if (const auto layers = section.whole("num_layers_per_virtual_pipeline_stage")) {
    std::int64_t all = required_size(section, layers_key(section));
    for (const std::string_view key : {"account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"})
      all += section.on(key) ? 1 : 0;  // each counts as a layer
    if (*layers < 1 || all % stages != 0 || all / stages % *layers != 0) {
      section.wrong("num_layers_per_virtual_pipeline_stage", "a number that divides the layers of a stage");
    }
    chunks = all / stages / *layers;
  }
  if (stages == 1 || chunks <= 1) return;
  const std::string_view key = section.has("num_layers_per_virtual_pipeline_stage")
                                   ? "num_layers_per_virtual_pipeline_stage"
                                   : "num_virtual_stages_per_pipeline_rank";
  section.set(key, "--virtual-stages", std::to_string(chunks));
  section.account().set("--schedule", "interleaved");
}

void read_recomputation(Section& section, MegatronList& list) {
  const bool of_activations = section.on("recompute_activations");  // which overwrites the granularity
  const std::string granularity = of_activations ? "selective" : section.text("recompute_granularity").value_or("none");
  if (granularity == "none") return;
  section.set(of_activations ? "recompute_activations" : "recompute_granularity", "--checkpointing", granularity);
  if (granularity != "full") return;
  list.add_value("recompute_method");
  list.add_value("recompute_num_layers");
}

}  // namespace

void read_megatron(Account& account, const JsonNode& root) {
  account.set("--framework", "megatron");
  Section section(account, root, account.file(), {kRows});
  MegatronList list(section);
  read_sizes(section, list);
  read_layout(section);
  read_recomputation(section, list);
  const bool fp16 = section.on("fp16"), bf16 = section.on("bf16");
  section.set(fp16 ? "fp16" : "bf16", "--precision", fp16 ? "fp16" : bf16 ? "bf16" : "fp32");
  if (fp16 && section.on("accumulate_allreduce_grads_in_fp32")) {
    section.refuse("accumulate_allreduce_grads_in_fp32", "float32 gradients beside fp16 are not modelled");
  }
  const std::string optimizer = section.text("optimizer").value_or("adam");
  if (optimizer != "adam") section.set("optimizer", "--optimizer", optimizer);
  set_size(section, "micro_batch_size", "--bs");
  for (const std::string_view key : words_of(kPassedFlags, " ")) list.add_flag(key);
  for (const std::string_view key : words_of(kPassedValues, " ")) list.add_value(key);
  if (section.on("use_distributed_optimizer")) {
    list.add_flag("overlap_grad_reduce");
  } else if (section.on("overlap_grad_reduce")) {
    section.approximate("overlap_grad_reduce", "gradients are taken to be reduced behind the backward pass");
  }
  const std::string backend = section.text("attention_backend").value_or("auto");
  if (backend == "local") section.refuse("attention_backend", "transformer-impl=local is modelled, this is not");
  if (backend != "local" && backend != "auto") list.add("attention_backend", backend);
  list.finish();
  if (const auto batch = section.whole("global_batch_size")) account.set_global_batch(*batch, "global_batch_size");
  section.done();
}

}  // namespace memcalc::config
