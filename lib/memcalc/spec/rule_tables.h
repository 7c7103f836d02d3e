// The files of rules, in the order in which they are looked at. A new file is a line here.
#pragma once

#include <array>
#include <span>

#include "memcalc/spec/rules.h"

namespace memcalc {

[[nodiscard]] std::span<const RuleGroup> rules_of_models();  // what a model takes: task, sequence, image, precision
[[nodiscard]] std::span<const RuleGroup> rules_of_fine_tuning();  // LoRA, quantisation, freezing, Liger, LitGPT
[[nodiscard]] std::span<const RuleGroup> rules_of_inference();
[[nodiscard]] std::span<const RuleGroup> rules_of_training();  // optimizers, what is offloaded on one GPU
[[nodiscard]] std::span<const RuleGroup> rules_of_sizes();     // GPUs, ranks, heads: of every framework
[[nodiscard]] std::span<const RuleGroup> rules_of_megatron();
[[nodiscard]] std::span<const RuleGroup> rules_of_deepspeed();
[[nodiscard]] std::span<const RuleGroup> rules_of_torch();  // DDP, FSDP, TP, CP, EP, pipelines, accelerate
[[nodiscard]] std::span<const RuleGroup> rules_of_compile();
[[nodiscard]] std::span<const RuleGroup> rules_of_trl();     // TRL's trainers, evaluation
[[nodiscard]] std::span<const RuleGroup> rules_of_stages();  // loading and saving

[[nodiscard]] std::span<const RuleGroup> rules_of_versions();

inline constexpr std::array<std::span<const RuleGroup> (*)(), 12> kRuleTables = {
    rules_of_models,  rules_of_fine_tuning, rules_of_inference, rules_of_training,
    rules_of_sizes,   rules_of_megatron,    rules_of_deepspeed, rules_of_torch,
    rules_of_compile, rules_of_trl,         rules_of_stages,    rules_of_versions};

}  // namespace memcalc
