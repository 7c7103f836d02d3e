#include "memcalc/models/checkpoint_names.h"

#include <algorithm>
#include <array>
#include <span>

#include "memcalc/spec/family.h"

namespace memcalc {
namespace {

constexpr Renaming kLegacy[] = {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}};

// MergeModulelist and Concatenate of "mixtral" and "qwen2_moe": the experts of a layer become two parameters.
constexpr Renaming kExperts[] = {{".w1.weight", ".gate_up_proj"},      {".w3.weight", ".gate_up_proj"},
                                 {".w2.weight", ".down_proj"},         {".gate_proj.weight", ".gate_up_proj"},
                                 {".up_proj.weight", ".gate_up_proj"}, {".down_proj.weight", ".down_proj"}};

void rename(std::string& name, std::span<const Renaming> renamings) {
  for (const Renaming& each : renamings) {
    const std::size_t at = name.find(each.from);
    if (at != std::string::npos && (at == 0 || !each.starts_name)) name.replace(at, each.from.size(), each.to);
  }
}

// "model.layers.3.mlp.experts.17.gate_proj.weight" -> "model.layers.3.mlp.experts.gate_up_proj".
void stack_experts(std::string& name) {
  constexpr std::string_view marker = ".experts.";
  std::size_t at = name.find(marker);
  if (at == std::string::npos) return;
  at += marker.size();
  const std::size_t digits = std::min(name.find_first_not_of("0123456789", at), name.size());
  if (digits == at || digits == name.size() || name[digits] != '.') return;
  std::string rest = name.substr(digits);
  rename(rest, kExperts);
  name = name.substr(0, at - 1) + rest;
}

// The last parts of a name, from a dot on or whole.
bool ends_with_one_of(std::string_view name, std::span<const std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) {
    if (!name.ends_with(ending)) return false;
    return name.size() == ending.size() || name[name.size() - ending.size() - 1] == '.';
  });
}

}  // namespace

std::string parameter_name_of(std::string_view model_type, std::string_view tensor) {
  std::string name(tensor);
  rename(name, kLegacy);
  if (const Family* const family = find_family(model_type)) rename(name, family->renamings);
  stack_experts(name);
  return name;
}

std::string sorted_name_of(std::string_view model_type, std::string_view parameter) {
  std::string name(parameter);
  const Family* const family = find_family(model_type);
  if (family == nullptr || !family->loads_by_checkpoint_names) return name;
  for (const Renaming& each : family->renamings) {
    const Renaming back{each.to, each.from, each.starts_name};
    rename(name, {&back, 1});
  }
  return name;
}

bool is_named_like_buffer(std::string_view tensor) {
  constexpr std::array<std::string_view, 13> endings = {"attn.bias",
                                                        "attn.masked_bias",
                                                        "attention.bias",
                                                        "attention.masked_bias",
                                                        "rotary_emb.inv_freq",
                                                        "rotary_pos_emb.inv_freq",
                                                        "position_ids",
                                                        "token_type_ids",
                                                        "running_mean",
                                                        "running_var",
                                                        "num_batches_tracked",
                                                        "final_logits_bias",
                                                        "relative_position_index"};
  return ends_with_one_of(tensor, endings);
}

bool is_named_like_tied(std::string_view tensor) {
  constexpr std::array<std::string_view, 12> endings = {"lm_head.weight",
                                                        "proj_out.weight",
                                                        "embed_out.weight",
                                                        "shared.weight",
                                                        "embed_tokens.weight",
                                                        "wte.weight",
                                                        "cls.predictions.decoder.weight",
                                                        "cls.predictions.decoder.bias",
                                                        "lm_head.decoder.weight",
                                                        "lm_head.decoder.bias",
                                                        "vocab_projector.weight",
                                                        "generator_lm_head.weight"};
  return ends_with_one_of(tensor, endings);
}

}  // namespace memcalc
