// torchtune 0.6.1, the last release: the recipes full_finetune_single_device, full_finetune_distributed,
// lora_finetune_single_device and lora_finetune_distributed. Their loop is a plain one: the whole model in `dtype`, the
// loss of logits that come in eight chunks, adapters in the weights' type, FSDP2 on several GPUs.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/user_file.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr KeyRow kRows[] = {
    {"model/_component_ model/lora_attn_modules model/apply_lora_to_mlp model/lora_rank model/lora_dropout "
     "model/quantize_base",
     U::kUsed},
    {"model/apply_lora_to_output", U::kRefused, "adapters of the head are not modelled"},
    {"model/use_dora", U::kRefused, "torchtune's own DoRA is not modelled"},
    {"model/lora_alpha", U::kIrrelevant, "a number of the adapters"},
    {"model/decoder_trainable model/encoder_trainable model/fusion_trainable model/image_size", U::kIrrelevant,
     "of models with images"},
    {"batch_size", U::kUsed, "", "--bs"},
    {"gradient_accumulation_steps", U::kUsed, "", "--accum"},
    {"clip_grad_norm", U::kUsed, "", "--clip-grad"},
    {"dtype device compile", U::kUsed},
    {"enable_activation_checkpointing enable_activation_offloading ac_mode ac_option", U::kUsed},
    {"tokenizer/max_seq_len", U::kUsed},
    {"tokenizer/_component_ tokenizer/path tokenizer/merges_file tokenizer/merges_path tokenizer/vocab_path "
     "tokenizer/special_tokens_path tokenizer/prompt_template tokenizer/truncation_type tokenizer/image_size "
     "tokenizer/max_num_tiles",
     U::kIrrelevant, "the tokenizer"},
    {"dataset", U::kUsed},
    {"seed shuffle collate_fn epochs max_steps_per_epoch lr_scheduler", U::kIrrelevant,
     "the data, and how long it trains"},
    {"optimizer/_component_ optimizer/fused optimizer/foreach", U::kUsed},
    {"optimizer/amsgrad", U::kRefused, "amsgrad in torchtune's optimizer is told by --optimizer"},
    {"optimizer/lr optimizer/weight_decay optimizer/betas optimizer/eps optimizer/momentum optimizer/nesterov "
     "optimizer/dampening",
     U::kIrrelevant, "numbers of the optimizer"},
    {"optimizer_in_bwd", U::kUsed},
    {"loss/_component_", U::kUsed},
    {"loss/num_output_chunks loss/ignore_index", U::kIrrelevant, "of the loss"},
    {"fsdp_cpu_offload fsdp_reshard_after_forward", U::kUsed},
    {"fsdp/cpu_offload", U::kIrrelevant, "no recipe reads it (fsdp_cpu_offload is read)"},
    {"custom_sharded_layers", U::kApproximated, "embeddings and head are gathered with what no layer holds"},
    {"fsdp_sharding_strategy", U::kRefused, "sharding of an earlier torchtune: fsdp_reshard_after_forward says it", "",
     "FULL_SHARD"},
    {"tensor_parallel_dim", U::kRefused, "tensor parallelism of torchtune is not modelled", "", "1"},
    {"tensor_parallel_plan", U::kIrrelevant, "beside tensor parallelism alone"},
    {"checkpointer resume_from_checkpoint save_adapter_weights_only enable_async_checkpointing low_cpu_ram output_dir "
     "my_output_dir",
     U::kIrrelevant, "reading and saving"},
    {"metric_logger log_every_n_steps log_peak_memory_stats log_level cudnn_deterministic_mode profiler",
     U::kIrrelevant, "logs"},
    // What only other recipes read says which one it is.
    {"ref_checkpointer", U::kRefused, "torchtune's DPO and PPO recipes are not modelled"},
    {"reward_and_value_model reward_checkpointer value_checkpointer policy_model ppo_epochs", U::kRefused,
     "torchtune's PPO recipe is not modelled"},
    {"teacher_model teacher_checkpointer kd_loss kd_ratio", U::kRefused,
     "torchtune's distillation recipes are not modelled"},
    {"quantizer fake_quant_after_n_steps memory_efficient_fsdp_wrap", U::kRefused,
     "torchtune's recipes of quantisation-aware training are not modelled"},
    {"tasks limit max_seq_length prompt instruct_template max_new_tokens temperature top_k", U::kRefused,
     "torchtune's recipes that do not train are not modelled"},
    {"dataset_val batch_size_val run_val_every_n_steps data_parallel_shard_dim data_parallel_replicate_dim",
     U::kRefused, "of a torchtune that was not released"},
};

/// The model builders, without "lora_" and "qlora_" in front.
struct Builder {
  std::string_view name;
  std::string_view model;
};
constexpr Builder kBuilders[] = {
    {"llama2_7b", "llama-2-7b"},
    {"llama2_13b", "llama-2-13b"},
    {"llama2_70b", "llama-2-70b"},
    {"code_llama2_7b", "codellama-7b"},
    {"code_llama2_13b", "codellama-13b"},
    {"code_llama2_70b", "codellama-70b"},
    {"llama3_8b", "llama-3-8b"},
    {"llama3_70b", "llama-3-70b"},
    {"llama3_1_8b", "llama-3.1-8b"},
    {"llama3_1_70b", "llama-3.1-70b"},
    {"llama3_1_405b", "llama-3.1-405b"},
    {"llama3_2_1b", "llama-3.2-1b"},
    {"llama3_2_3b", "llama-3.2-3b"},
    {"llama3_3_70b", "llama-3.1-70b"},  // the same sizes, as below
    {"mistral_7b", "mistral-7b"},
    {"gemma_2b", "gemma-2b"},
    {"gemma_7b", "gemma-7b"},
    {"gemma2_2b", "gemma-2-2b"},
    {"gemma2_9b", "gemma-2-9b"},
    {"gemma2_27b", "gemma-2-27b"},
    {"phi3_mini", "phi-3-mini-4k"},
    {"phi4_14b", "phi-4"},
    {"qwen2_0_5b", "qwen2.5-0.5b"},
    {"qwen2_1_5b", "qwen2.5-1.5b"},
    {"qwen2_7b", "qwen2.5-7b"},
    {"qwen2_5_0_5b", "qwen2.5-0.5b"},
    {"qwen2_5_1_5b_base", "qwen2.5-1.5b"},
    {"qwen2_5_1_5b_instruct", "qwen2.5-1.5b"},
    {"qwen2_5_3b", "qwen2.5-3b"},
    {"qwen2_5_7b_base", "qwen2.5-7b"},
    {"qwen2_5_7b_instruct", "qwen2.5-7b"},
    {"qwen2_5_14b_base", "qwen2.5-14b"},
    {"qwen2_5_14b_instruct", "qwen2.5-14b"},
    {"qwen2_5_32b_base", "qwen2.5-32b"},
    {"qwen2_5_32b_instruct", "qwen2.5-32b"},
    {"qwen2_5_72b_base", "qwen2.5-72b"},
    {"qwen2_5_72b_instruct", "qwen2.5-72b"},
};

struct Component {
  std::string_view path;
  std::string_view optimizer;
};
constexpr Component kOptimizers[] = {
    {"torch.optim.Adam", "adam"},
    {"torch.optim.SGD", "sgd"},
    {"bitsandbytes.optim.AdamW8bit", "adamw_bnb_8bit"},
    {"bitsandbytes.optim.PagedAdamW", "paged_adamw_32bit"},
    {"bitsandbytes.optim.PagedAdamW8bit", "paged_adamw_8bit"},
};

/// What an adapter is on, by torchtune's names of layers.
std::string targets_of(Section& section) {
  std::string targets;
  const auto add = [&](std::string_view name) { targets += (targets.empty() ? "" : ",") + std::string(name); };
  for (const std::string& each : section.texts("model/lora_attn_modules")) {
    const bool is_output = each == "output_proj";
    if (!is_output && each != "q_proj" && each != "k_proj" && each != "v_proj") {
      section.wrong("model/lora_attn_modules", "q_proj, k_proj, v_proj and output_proj");
    }
    add(is_output ? "o_proj" : each);
  }
  if (section.on("model/apply_lora_to_mlp")) {
    for (const std::string_view each : {"gate_proj", "up_proj", "down_proj"}) add(each);
  }
  return targets;
}

void read_model(Section& section) {
  const std::string path = section.text("model/_component_").value_or("");
  std::string builder = path.substr(path.rfind('.') == std::string::npos ? 0 : path.rfind('.') + 1);
  const bool is_packed = builder.starts_with("qlora_") || section.on("model/quantize_base");
  const bool has_adapters = builder.starts_with("lora_") || builder.starts_with("qlora_");
  if (has_adapters) builder = builder.substr(builder.find('_') + 1);
  const auto* found = std::find_if(std::begin(kBuilders), std::end(kBuilders),
                                   [&](const Builder& each) { return each.name == builder; });
  if (found == std::end(kBuilders)) {
    return section.refuse("model/_component_", fmt::format("torchtune's {} is no model of memcalc", one_line(path)));
  }
  section.set("model/_component_", "--model", std::string(found->model));
  if (!has_adapters) {
    if (is_packed) section.refuse("model/quantize_base", "packed weights without adapters are not modelled");
    return;
  }
  if (builder.starts_with("phi")) {
    return section.refuse(
        "model/_component_",
        "adapters of Phi are not modelled: torchtune splits the projections that transformers merges");
  }
  section.set("model/lora_rank", "--lora", std::to_string(section.whole("model/lora_rank").value_or(8)));
  section.set("model/lora_attn_modules", "--lora-targets", targets_of(section));
  section.account().set("--lora-dtype", "base");
  if (section.number("model/lora_dropout")) {
    section.set("model/lora_dropout", "--lora-dropout", *section.text("model/lora_dropout"));
  }
  if (!is_packed) return;
  section.account().set("--quantize", "nf4-double");
  section.account().set("--no-prepare-kbit");
  section.approximate("model/_component_", "NF4 of torchao is predicted as bitsandbytes' with double quantisation");
}

void read_optimizer(Section& section) {
  if (section.on("optimizer_in_bwd")) section.set("optimizer_in_bwd", "--optimizer-in-backward");
  const std::string path = section.text("optimizer/_component_").value_or("");
  const bool fused = section.on("optimizer/fused");
  const bool foreach = section.flag("optimizer/foreach").value_or(true);
  if (path == "torch.optim.AdamW") {
    return section.set("optimizer/_component_", "--optimizer", fused ? "adamw-fused" : foreach ? "adamw" : "adamw-for");
  }
  const auto* found = std::find_if(std::begin(kOptimizers), std::end(kOptimizers),
                                   [&](const Component& each) { return each.path == path; });
  if (found == std::end(kOptimizers)) {
    return section.refuse("optimizer/_component_", fmt::format("the optimizer {} is not modelled", one_line(path)));
  }
  if (fused && path.starts_with("torch.")) {
    section.refuse("optimizer/fused", fmt::format("a fused {} is not modelled", one_line(path)));
  }
  section.set("optimizer/_component_", "--optimizer", std::string(found->optimizer));
}

void read_loss(Section& section) {
  const std::string path = section.text("loss/_component_").value_or("");
  if (path == "torchtune.modules.loss.CEWithChunkedOutputLoss") {
    return section.approximate("loss/_component_",
                               "all logits are turned into float32 at once, not in eight chunks: up to 4 bytes a "
                               "logit more than torchtune holds");
  }
  if (path == "torch.nn.CrossEntropyLoss") {
    return section.approximate("loss/_component_",
                               "logits are turned into float32, which torchtune leaves as they are: up to 8 bytes a "
                               "logit more than it holds");
  }
  section.refuse("loss/_component_", fmt::format("the loss {} is not modelled", one_line(path)));
}

void read_recomputation(Section& section) {
  const bool full = section.on("enable_activation_checkpointing");
  if (full) section.set("enable_activation_checkpointing", "--checkpointing", "full");
  if (const auto mode = section.text("ac_mode"); mode && full) {
    section.refuse("ac_mode", "torchtune does nothing with ac_mode beside enable_activation_checkpointing");
  } else if (mode) {
    constexpr std::array<std::string_view, 3> kModes = {"full", "selective", "none"};
    (void)section.choice("ac_mode", kModes);
    const std::string option = section.text("ac_option").value_or("1");
    section.set("ac_mode", "--checkpointing",
                *mode != "selective" ? *mode
                : option == "op"     ? "selective"
                                     : "every-" + option);
  }
  if (!section.on("enable_activation_offloading")) return;
  section.set("enable_activation_offloading", "--activation-offload");
  section.approximate("enable_activation_offloading",
                      "as torch's save_on_cpu: what torchtune's second stream keeps a little longer is left out");
}

void read_sharding(Section& section) {
  bool shards = section.has("custom_sharded_layers");
  if (section.on("fsdp_cpu_offload")) {
    section.set("fsdp_cpu_offload", "--offload-parameters", "host");
    shards = true;
  }
  if (section.has("fsdp_reshard_after_forward")) {
    shards = true;
    if (!section.on("fsdp_reshard_after_forward")) {
      section.set("fsdp_reshard_after_forward", "--no-reshard-after-forward");
    }
  }
  if (shards) section.account().set("--parallel", "fsdp2");
}

}  // namespace

void read_torchtune(Account& account, const JsonNode& root) {
  account.set("--loop", "bare");
  account.set("--task", "causal");
  account.set("--loss-in-loop");
  Section section(account, root, account.file(), {kRows});
  for (const char* key : {"model/_component_", "optimizer/_component_", "loss/_component_"}) {
    if (section.has(key) || account.leaves_out(key)) continue;
    throw Error(
        ErrorCode::kUsage,
        fmt::format("{}: it has no {}, which torchtune's recipes of training need", shown_path(account.file()), key),
        account.file());
  }
  constexpr std::array<std::string_view, 2> kTypes = {"bf16", "fp32"};
  section.set("dtype", "--precision", section.choice("dtype", kTypes).value_or("fp32"));
  if (section.text("device").value_or("cuda") != "cuda") {
    section.refuse("device", "of torchtune's devices cuda is modelled");
  }
  if (section.has("model/_component_")) read_model(section);
  if (section.has("optimizer/_component_")) read_optimizer(section);
  if (section.has("loss/_component_")) read_loss(section);
  read_recomputation(section);
  read_sharding(section);
  if (section.on("compile")) {
    section.set("compile", "--compile");
    account.set("--compile-parts", "layers-loss");
  }
  if (const auto tokens = section.whole("tokenizer/max_seq_len")) {
    section.set("tokenizer/max_seq_len", "--seq", std::to_string(*tokens));
    account.note("every sequence has max_seq_len tokens, the most that the file lets through (--seq)");
  } else {
    account.note("the file does not say how long sequences are: tokenizer/max_seq_len is empty (--seq)");
  }
  if (const JsonNode* dataset = section.mapping("dataset")) {
    const auto packed = std::find_if(dataset->children.begin(), dataset->children.end(),
                                     [](const JsonNode& child) { return child.key == "packed"; });
    if (packed != dataset->children.end() && !is_off(*packed)) {
      section.approximate("dataset",
                          "rows are packed full: as sequences of max_seq_len tokens that attend as one each");
    } else {
      section.irrelevant("dataset", "the data");
    }
  }
  account.note(
      "torchtune's own modules (TransformerDecoder, RMSNorm, RotaryPositionalEmbeddings) are approximated by "
      "transformers' (not validated)");
  section.done();
}

}  // namespace memcalc::config
