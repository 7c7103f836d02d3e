// MIRRORS(deepspeed, "runtime/zero/config.py", "0.19.8")
// MIRRORS(transformers, "training_args.py", "5.17.0")
#include "memcalc/plan/settings.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "memcalc/models/megatron_config.h"
#include "memcalc/plan/training_script.h"
#include "memcalc/report/quantity.h"
#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/train/fine_tuning.h"

namespace memcalc {
namespace {

bool in_bfloat16(const RunSpec& run) {
  return run.precision == Precision::kBf16 || run.precision == Precision::kAmpBf16 ||
         run.parallel.gathered_dtype() == DType::kBFloat16;
}

bool in_float16(const RunSpec& run) {
  return run.precision == Precision::kFp16 || run.precision == Precision::kAmpFp16;
}

std::int64_t micro_batches_of(const RunSpec& run) {
  return std::max({run.training().accumulation_steps, run.parallel.micro_batches, std::int64_t{1}});
}

std::int64_t replicas_of(const RunSpec& run) {
  const Parallel& p = run.parallel;
  return p.gpus / (p.tensor * p.context * p.pipeline);
}

/// A JSON object of already written values, one line a key.
class JsonLines {
 public:
  explicit JsonLines(std::string indent) : indent_(std::move(indent)) {}
  void add(std::string_view key, const std::string& value) {
    text_ += (text_.empty() ? "" : ",\n") + indent_ + "  \"" + std::string(key) + "\": " + value;
  }
  [[nodiscard]] std::string object() const { return text_.empty() ? "{}" : "{\n" + text_ + "\n" + indent_ + "}"; }

 private:
  std::string indent_;
  std::string text_;
};

/// deepspeed/runtime/zero/config.py, 0.19.8; what is DeepSpeed's default is left out.
std::string zero_settings(const Parallel& p) {
  const DeepSpeedZero& options = p.deepspeed();
  const DeepSpeedZero defaults;
  JsonLines zero("  ");
  const bool third = p.data_parallel == DataParallel::kDsZero3;
  zero.add("stage", third ? "3" : p.data_parallel == DataParallel::kDsZero2 ? "2" : "1");
  const auto size = [&](const char* key, std::int64_t DeepSpeedZero::*member) {
    if (options.*member != defaults.*member) zero.add(key, std::to_string(options.*member));
  };
  size("reduce_bucket_size", &DeepSpeedZero::reduce_bucket_size);
  if (options.overlap_comm) zero.add("overlap_comm", *options.overlap_comm ? "true" : "false");
  size("sub_group_size", &DeepSpeedZero::sub_group_size);
  size("stage3_prefetch_bucket_size", &DeepSpeedZero::prefetch_bucket_size);
  size("stage3_param_persistence_threshold", &DeepSpeedZero::param_persistence_threshold);
  size("stage3_max_live_parameters", &DeepSpeedZero::max_live_parameters);
  size("stage3_max_reuse_distance", &DeepSpeedZero::max_reuse_distance);
  const auto offload = [&](const char* key, OffloadTo where) {
    if (where == OffloadTo::kHost) zero.add(key, R"({"device": "cpu", "pin_memory": true})");
    if (where == OffloadTo::kNvme) zero.add(key, R"({"device": "nvme", "nvme_path": "/local_nvme"})");
  };
  offload("offload_optimizer", p.offload_states);
  offload("offload_param", p.offload_parameters);
  return zero.object();
}

std::string deepspeed_settings(const RunSpec& run) {
  JsonLines json("");
  json.add("train_micro_batch_size_per_gpu", std::to_string(run.batch_size));
  json.add("gradient_accumulation_steps", std::to_string(run.training().accumulation_steps));
  json.add("gradient_clipping", format_exact(run.training().max_grad_norm.value_or(0.0)));  // its default is 1.0
  if (in_bfloat16(run)) json.add("bf16", R"({"enabled": true})");
  if (in_float16(run)) json.add("fp16", R"({"enabled": true})");
  json.add("zero_optimization", zero_settings(run.parallel));
  json.add("zero_allow_untested_optimizer", "true");  // the script's own, handed to initialize()
  if (run.parallel.offload_states != OffloadTo::kNowhere) json.add("zero_force_ds_cpu_optimizer", "false");
  return json.object() + "\n";
}

/// One argument a line, as a shell continues them.
class ShellArguments {
 public:
  void add(const std::string& argument) { text_ += (text_.empty() ? "" : " \\\n") + argument; }
  void add(const char* argument, std::int64_t value) { add(argument + (" " + std::to_string(value))); }
  void add_beyond_one(const char* argument, std::int64_t value) {
    if (value > 1) add(argument, value);
  }
  void add_if(bool condition, const char* argument) {
    if (condition) add(argument);
  }
  [[nodiscard]] std::string lines() const { return text_ + "\n"; }

 private:
  std::string text_;
};

/// megatron/training/arguments.py, core_r0.14.0.
void add_megatron_model(const MegatronConfig& config, std::int64_t vocabulary, ShellArguments& a) {
  a.add("--num-layers", config.num_layers);
  a.add("--hidden-size", config.hidden_size);
  a.add("--ffn-hidden-size", config.ffn_hidden_size);
  a.add("--num-attention-heads", config.num_attention_heads);
  if (config.num_query_groups != config.num_attention_heads) {
    a.add("--group-query-attention --num-query-groups", config.num_query_groups);
  }
  if (!config.latent) a.add("--kv-channels", config.kv_channels);
  a.add("--max-position-embeddings", config.max_position_embeddings);
  a.add("--vocab-size", vocabulary);
  a.add("--make-vocab-size-divisible-by", config.options.vocabulary_multiple);
  a.add(std::string("--position-embedding-type ") + (config.rotary ? "rope" : "learned_absolute"));
  a.add(std::string("--normalization ") + (config.rms_norm ? "RMSNorm" : "LayerNorm"));
  a.add_if(config.swiglu, "--swiglu");
  a.add_if(!config.bias_linear, "--disable-bias-linear");
  a.add_if(config.qkv_bias, "--add-qkv-bias");
  a.add_if(config.qk_layernorm, "--qk-layernorm");
  a.add_if(!config.shares_embeddings, "--untie-embeddings-and-output-weights");
  a.add("--hidden-dropout " + format_exact(config.hidden_dropout));
  a.add("--attention-dropout " + format_exact(config.attention_dropout));
}

void add_megatron_experts(const MegatronConfig& config, ShellArguments& a) {
  if (config.latent) {
    const LatentAttentionSpec& latent = *config.latent;
    a.add("--multi-latent-attention");
    if (latent.q_lora_rank) a.add("--q-lora-rank", *latent.q_lora_rank);
    a.add("--kv-lora-rank", latent.kv_lora_rank);
    a.add("--qk-head-dim", latent.qk_nope_head_dim);
    a.add("--qk-pos-emb-head-dim", latent.qk_rope_head_dim);
    a.add("--v-head-dim", latent.v_head_dim);
  }
  if (!config.moe) return;
  a.add("--num-experts", config.moe->experts.count);
  a.add("--moe-router-topk", config.moe->experts.per_token);
  a.add("--moe-ffn-hidden-size", config.moe->experts.intermediate_size);
  if (config.moe->shared_intermediate_size > 0) {
    a.add("--moe-shared-expert-intermediate-size", config.moe->shared_intermediate_size);
  }
  const std::vector<bool>& dense = config.moe->dense_layers;
  if (std::find(dense.begin(), dense.end(), true) != dense.end()) {
    std::string frequency = "--moe-layer-freq '[";
    for (std::size_t i = 0; i < dense.size(); ++i) frequency += std::string(i > 0 ? "," : "") + (dense[i] ? "0" : "1");
    a.add(frequency + "]'");
  }
  const MegatronLayout& options = config.options;
  a.add_if(options.groups_experts, "--moe-grouped-gemm");
  a.add(std::string("--moe-token-dispatcher-type ") + (options.gathers_tokens ? "allgather" : "alltoall"));
  if (options.expert_capacity) {
    a.add("--moe-expert-capacity-factor " + format_exact(*options.expert_capacity));
    a.add("--moe-pad-expert-input-to-capacity");
  }
}

std::string context_type_of(ContextParallel type) {
  switch (type) {
    case ContextParallel::kAllGather: return "all_gather";
    case ContextParallel::kRing: return "p2p";
    case ContextParallel::kUlysses: break;
  }
  return "a2a";
}

void add_megatron_layout(const RunSpec& run, ShellArguments& a) {
  const Parallel& p = run.parallel;
  a.add_beyond_one("--tensor-model-parallel-size", p.tensor);
  a.add_if(p.sequence_parallel, "--sequence-parallel");
  a.add_beyond_one("--context-parallel-size", p.context);
  if (p.context > 1) a.add("--cp-comm-type " + context_type_of(p.context_type));
  a.add_beyond_one("--expert-model-parallel-size", p.expert);
  if (p.megatron().expert_tensor > 0) a.add("--expert-tensor-parallel-size", p.megatron().expert_tensor);
  a.add_beyond_one("--pipeline-model-parallel-size", p.pipeline);
  a.add_beyond_one("--num-virtual-stages-per-pipeline-rank", p.virtual_stages);
  if (p.megatron().first_stage_layers > 0)
    a.add("--decoder-first-pipeline-num-layers", p.megatron().first_stage_layers);
  if (p.megatron().last_stage_layers > 0) a.add("--decoder-last-pipeline-num-layers", p.megatron().last_stage_layers);
  a.add_if(p.data_parallel == DataParallel::kMegatronDist, "--use-distributed-optimizer");
  a.add_if(p.megatron().overlaps_gradient_reduce, "--overlap-grad-reduce");
  a.add_if(!p.megatron().fuses_weight_gradients, "--no-gradient-accumulation-fusion");
}

void add_megatron_operators(const MegatronLayout& options, ShellArguments& a) {
  const bool local = options.attention == MegatronAttention::kLocal;
  a.add(std::string("--transformer-impl ") + (local ? "local" : "transformer_engine"));
  if (!local) {
    const bool flash = options.attention == MegatronAttention::kFlash;
    const bool fused = options.attention == MegatronAttention::kFused;
    a.add(std::string("--attention-backend ") + (flash ? "flash" : fused ? "fused" : "unfused"));
  }
  a.add_if(!options.fuses_softmax, "--no-masked-softmax-fusion");
  a.add_if(options.softmax_in_float32, "--attention-softmax-in-fp32");
  a.add_if(options.loss != MegatronLoss::kNative, "--cross-entropy-loss-fusion");
  a.add_if(options.loss == MegatronLoss::kTe, "--cross-entropy-fusion-impl te");
}

std::string megatron_settings(const ModelSpec& model, const RunSpec& run) {
  const MegatronConfig config = megatron_config(model, run);
  RunSpec unpadded = run;
  unpadded.parallel.megatron().vocabulary_multiple = unpadded.parallel.tensor = 1;
  ShellArguments a;
  a.add("--micro-batch-size", run.batch_size);
  a.add("--global-batch-size", run.batch_size * micro_batches_of(run) * replicas_of(run));
  a.add("--seq-length", run.sequence_length);
  a.add_if(in_bfloat16(run), "--bf16");
  a.add_if(in_float16(run), "--fp16");
  add_megatron_layout(run, a);
  if (run.checkpointing() == Checkpointing::kFull) {
    const MegatronLayout& options = run.parallel.megatron();
    a.add("--recompute-granularity full");
    a.add(std::string("--recompute-method ") + (options.recomputes_blocks ? "block" : "uniform"));
    a.add("--recompute-num-layers", std::max<std::int64_t>(1, options.recompute_layers));
  }
  a.add_if(run.checkpointing() == Checkpointing::kSelective, "--recompute-granularity selective");
  if (run.training().max_grad_norm) a.add("--clip-grad " + format_exact(*run.training().max_grad_norm));
  add_megatron_operators(run.parallel.megatron(), a);
  add_megatron_model(config, megatron_config(model, unpadded).padded_vocab_size, a);
  add_megatron_experts(config, a);
  return a.lines();
}

std::string_view trainer_optimizer(Optimizer optimizer) {
  for (const TrainerOptimizer& each : kTrainerOptimizers) {
    if (each.optimizer == optimizer) return each.name;
  }
  return "";
}

/// transformers 5.17, training_args.py.
std::string trainer_settings(const RunSpec& run) {
  const Parallel& p = run.parallel;
  const bool fsdp = p.data_parallel == DataParallel::kFsdp2 || p.data_parallel == DataParallel::kFsdp1;
  const bool checkpoints = run.checkpointing() != Checkpointing::kNone;
  std::string out = "TrainingArguments(\n    per_device_train_batch_size=" + std::to_string(run.batch_size) +
                    ",\n    gradient_accumulation_steps=" + std::to_string(run.training().accumulation_steps) + ",\n";
  if (is_autocast(run.precision) || p.gathered_dtype()) {
    out += in_float16(run) ? "    fp16=True,\n" : "    bf16=True,\n";
  }
  if (run.precision == Precision::kTf32) out += "    tf32=True,\n";
  if (const std::string_view name = trainer_optimizer(run.training().optimizer); !name.empty()) {
    out += "    optim=\"" + std::string(name) + "\",\n";
  }
  out += "    max_grad_norm=" + format_exact(run.training().max_grad_norm.value_or(0.0)) + ",\n";
  if (checkpoints && !fsdp) {
    out += "    gradient_checkpointing=True,\n    gradient_checkpointing_kwargs={\"use_reentrant\": " +
           std::string(run.checkpoints_reentrantly() ? "True" : "False") + "},\n";
  }
  if (fsdp) {
    out += "    fsdp=True,\n    fsdp_config={\"version\": 2, \"reshard_after_forward\": " +
           std::string(p.torch().reshard_after_forward ? "True" : "False");
    if (p.offload_parameters == OffloadTo::kHost) out += ", \"cpu_offload\": True";
    // transformers warns of gradient_checkpointing here: it gathers once more in backward.
    if (checkpoints) out += ", \"activation_checkpointing\": True";
    out += "},\n";
  }
  return out + ")\n";
}

}  // namespace

std::string settings_of(const ModelSpec& model, const RunSpec& run, Emit emit) {
  switch (emit) {
    case Emit::kTorchrun: return training_script(model, run);
    case Emit::kDeepSpeed: return deepspeed_settings(run);
    case Emit::kMegatron: return megatron_settings(model, run);
    case Emit::kTrainer: return trainer_settings(run);
    case Emit::kNothing: break;
  }
  return {};
}

std::vector<std::string> beside_settings(const RunSpec& run, Emit emit) {
  std::vector<std::string> notes;
  if (emit == Emit::kNothing) return notes;
  const bool saves = emit == Emit::kDeepSpeed || emit == Emit::kTrainer;
  if (emit == Emit::kDeepSpeed) {
    if (run.checkpointing() != Checkpointing::kNone) {
      notes.push_back("checkpointing is the script's: torch.utils.checkpoint around layers (" + checkpointing_of(run) +
                      "), not DeepSpeed's");
    }
    notes.push_back("the optimizer is the script's: deepspeed.initialize(optimizer=…), here " +
                    std::string(name_of(run.training().optimizer)));
  }
  if (emit == Emit::kTrainer) {
    if (!run.uses_trainer()) {
      notes.emplace_back(
          "predicted is a plain loop with these choices; the Trainer's own steps differ (--loop trainer plans them)");
    }
    const Parallel& p = run.parallel;
    if (p.tensor * p.context * p.pipeline > 1 || p.data_parallel == DataParallel::kZero1) {
      notes.emplace_back("these arguments say nothing of tp, cp, pp and ZeRO-1, which this run has one of");
    }
    if (run.checkpointing() != Checkpointing::kNone && checkpointing_of(run) != "full") {
      notes.push_back("the Trainer checkpoints every layer; " + checkpointing_of(run) + " has no argument");
    }
    if (trainer_optimizer(run.training().optimizer).empty()) {
      notes.push_back("the Trainer has no name for the optimizer " + std::string(name_of(run.training().optimizer)));
    }
    if (run.fine_tuning.quant_storage) {
      notes.emplace_back("the model is loaded with BitsAndBytesConfig(…, bnb_4bit_quant_storage=torch.bfloat16)" +
                         std::string(packs_on_host(run) ? " and device_map={\"\": \"cpu\"}" : ""));
    }
    if (run.precision == Precision::kBf16 || run.precision == Precision::kFp16) {
      notes.push_back("the model is loaded with dtype=\"" +
                      std::string(run.precision == Precision::kBf16 ? "bfloat16" : "float16") + "\"");
    }
  }
  if (saves && run.training().offload_activations) {
    notes.emplace_back("activations go to the host under torch.autograd.graph.save_on_cpu(pin_memory=True)");
  }
  return notes;
}

}  // namespace memcalc
