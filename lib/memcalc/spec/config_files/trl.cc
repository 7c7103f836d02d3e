// TRL 1.16: the dataclasses that `trl sft` and `trl dpo` read from a YAML file (its scripts, TrlParser;
// trainer/base_config.py, sft_config.py, dpo_config.py, model_config.py). bf16 and checkpoints are on by default, and
// a model is loaded in float32.
#include <fmt/core.h>

#include <string>
#include <vector>

#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr KeyRow kShared[] = {
    {"model_name_or_path", U::kUsed, "", "--model"},
    {"dtype torch_dtype attn_implementation model_init_kwargs", U::kUsed},
    {"max_length max_seq_length", U::kUsed},
    {"use_peft lora_r lora_dropout lora_target_modules", U::kUsed},
    {"load_in_4bit load_in_8bit use_bnb_nested_quant bnb_4bit_quant_type bnb_4bit_quant_storage", U::kUsed},
    {"activation_offloading", U::kUsed},
    {"lora_alpha use_rslora lora_task_type", U::kIrrelevant, "values of the adapters"},
    {"lora_modules_to_save lora_target_parameters use_dora", U::kRefused, "adapters of this kind are not modelled"},
    {"router_aux_loss_coef", U::kIrrelevant, "a number of the loss"},
    {"padding_free", U::kApproximated, "rows are taken to be full: nothing is padded", ""},
    {"model_revision trust_remote_code chat_template_path eos_token pad_token dataset_num_proc truncation_mode "
     "pad_to_multiple_of dataset_name dataset_config dataset_train_split dataset_test_split dataset_streaming "
     "ignore_bias_buffers datasets streaming test_split_size columns config env",
     U::kIrrelevant, "the data and the tokenizer"},
};

constexpr KeyRow kSft[] = {
    {"packing packing_strategy", U::kUsed},
    {"loss_type", U::kRefused, "this loss is not modelled", "", "nll chunked_nll"},
    {"dataset_text_field dataset_kwargs shuffle_dataset eval_packing completion_only_loss assistant_only_loss",
     U::kIrrelevant, "which tokens the data has; labels alone differ"},
};

constexpr KeyRow kDpo[] = {
    {"disable_dropout", U::kUsed},
    {"max_prompt_length max_completion_length", U::kIrrelevant, "every sequence has max_length tokens here"},
    {"beta loss_type loss_weights ld_alpha f_divergence_type f_alpha_divergence_coef label_smoothing use_weighting "
     "discopop_tau precompute_ref_batch_size ref_model_mixup_alpha ref_model_sync_steps",
     U::kIrrelevant, "numbers of the loss"},
    {"precompute_ref_log_probs sync_ref_model", U::kRefused, "this reference model is not modelled"},
};

void read_weights(Section& section) {
  const std::string_view key = section.has("torch_dtype") ? "torch_dtype" : "dtype";
  const std::string type = section.text(key).value_or("float32");
  if (type == "float32") return section.set(key, "--weights-dtype", "fp32");
  if (type == "bfloat16") return section.set(key, "--weights-dtype", "bf16");
  if (type == "float16") return section.set(key, "--weights-dtype", "fp16");
  if (type == "auto") return section.account().note("weights in the type of the checkpoint (dtype: auto)");
  section.wrong(key, "auto, float32, bfloat16 or float16");
}

void read_adapter(Section& section) {
  if (!section.on("use_peft")) return;
  section.set("lora_r", "--lora", std::to_string(section.whole("lora_r").value_or(16)));
  section.set("lora_dropout", "--lora-dropout", section.text("lora_dropout").value_or("0.05"));
  const std::vector<std::string> targets = section.texts("lora_target_modules");
  if (!targets.empty()) return set_targets(section, "lora_target_modules", targets);
  section.account().set("--lora-targets", "q_proj,v_proj");
  section.account().note("adapters on q_proj and v_proj: peft's default for most decoders (--lora-targets)");
}

void read_quantization(Section& section) {
  const bool in_4bit = section.on("load_in_4bit");
  const bool in_8bit = section.on("load_in_8bit");
  if (in_8bit) section.set("load_in_8bit", "--quantize", "int8");
  if (!in_4bit) return;
  if (section.text("bnb_4bit_quant_type").value_or("nf4") != "nf4") {
    return section.refuse("bnb_4bit_quant_type", "4-bit floats are not modelled (nf4 is)");
  }
  section.set("load_in_4bit", "--quantize", section.on("use_bnb_nested_quant") ? "nf4-double" : "nf4");
  const std::string storage = section.text("bnb_4bit_quant_storage").value_or("uint8");
  if (storage == "bfloat16") section.set("bnb_4bit_quant_storage", "--quant-storage", "bf16");
}

}  // namespace

void read_trl(Account& account, const JsonNode& root, std::string_view trainer) {
  const bool pairs = trainer == "dpo";
  Section section(account, root, account.file(),
                  {kShared, pairs ? KeyTable(kDpo) : KeyTable(kSft), trainer_keys(), fsdp_keys()});
  account.set("--loop", pairs ? "trl-dpo" : "trl-sft");
  const std::string_view length = section.has("max_seq_length") ? "max_seq_length" : "max_length";
  section.set(length, "--seq", std::to_string(section.whole(length).value_or(1024)));
  account.note(fmt::format("every sequence has {} tokens, the most that the file lets through (--seq)", length));
  // base_config.py: bf16 is on unless fp16 is.
  read_trainer(section, {.batch_size = 8, .checkpointing = true, .bf16 = true});
  read_weights(section);
  if (const auto name = section.text("attn_implementation")) set_attention(section, "attn_implementation", *name);
  if (section.mapping("model_init_kwargs") != nullptr) {
    section.refuse("model_init_kwargs", "arguments of from_pretrained are told by dtype and attn_implementation");
  }
  read_adapter(section);
  read_quantization(section);
  if (section.on("activation_offloading")) section.set("activation_offloading", "--activation-offload");
  if (!pairs && section.on("packing")) {
    const std::string strategy = section.text("packing_strategy").value_or("bfd");
    if (strategy != "bfd" && strategy != "wrapped" && strategy != "bfd_split")
      section.wrong("packing_strategy", "bfd, bfd_split or wrapped");
    section.approximate("packing",
                        "each row is packed full: as sequences of max_length tokens that attend as one each");
  }
  if (pairs && section.has("disable_dropout") && !section.on("disable_dropout")) {
    section.refuse("disable_dropout", "DPO with dropout is not modelled from a file (--dropout is)");
  }
  section.done();
}

}  // namespace memcalc::config
