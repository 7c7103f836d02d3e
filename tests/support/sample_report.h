// A Report made by hand, round enough to be checked by eye in tests/golden.
#pragma once

#include "memcalc/families/bert/spec.h"
#include "memcalc/report/accounting.h"
#include "memcalc/report/report.h"

namespace memcalc::test {

[[nodiscard]] inline Report sample_report() {
  Report report;
  report.model = {.name = "bert-sample", .model_type = "bert", .source = "made by hand", .date = "2026-11-21"};
  report.model.architecture = BertSpec{.max_position_embeddings = 512};
  report.run = {.task = Task::kSequenceClassification,
                .batch_size = 4,
                .sequence_length = 512,
                .precision = Precision::kAmpFp16,
                .purpose = Training{.max_grad_norm = 1.0}};
  report.device = {.name = "h100-sxm",
                   .description = "NVIDIA H100 80GB HBM3 (SXM5)",
                   .memory_bytes = 85017493504,
                   .context_bytes = 621 * kMiB,
                   .validated = true};
  report.parameters_total = 335143938;
  report.parameters_trainable = 335143938;
  report.parameters_active = 335143938;
  // weights, copies, gradients, states, activations, temporaries, inputs, workspaces; the rest is slack
  report.memory.categories_at_peak = {1280 * kMiB, 640 * kMiB, 0,     2560 * kMiB,
                                      2000 * kMiB, 96 * kMiB,  16896, 64 * kMiB};
  report.memory.slack_at_peak = 4 * kMiB - 16896;
  report.memory.peak_allocated = 6644 * kMiB;
  report.memory.peak_reserved = 6754 * kMiB;
  report.memory.reserved_at_peak = 6754 * kMiB;
  report.memory.exact_peak = 6600 * kMiB;
  report.memory.phase_peaks = {1280 * kMiB, 3840 * kMiB, 6600 * kMiB, 6644 * kMiB, 5120 * kMiB, 6400 * kMiB};
  report.memory.allocated_at_end = 3904 * kMiB;
  report.memory.reserved_at_end = 6754 * kMiB;
  report.memory.segments_at_peak = 301;
  report.device_used_bytes = 6754 * kMiB + 767 * kMiB;
  report.verdict = Verdict::kFits;
  report.peak_operator = "AddmmBackward0>aten::mm";
  report.peak_phase = Phase::kBackward;
  report.peak_step = 1;
  report.contributors = {
      {Category::kOptimizerStates, "Optimizer.step#AdamW.step", 784, 3 * kMiB, 2352 * kMiB},
      {Category::kActivations, "aten::gelu", 48, 32 * kMiB, 1536 * kMiB},
      {Category::kTemporaries, "ScaledDotProductEfficientAttentionBackward0>aten::_efficient_attention_backward", 1,
       128 * kMiB, 128 * kMiB},
      {Category::kWeights, "parameter", 1, 120 * kMiB, 120 * kMiB}};
  report.accounting = account({.parameters = 335143938,
                               .trainable_parameters = 335143938,
                               .trainable_tensors = 393,
                               .precision = Precision::kAmpFp16,
                               .optimizer = Optimizer::kAdamWFused,
                               .states = {.tensors = 8 * Bytes{335143938}, .scalars = 4 * 393},
                               .weights = {{"float32", 335143938, 4 * Bytes{335143938}}},
                               .gradients = 4 * Bytes{335143938}});
  report.flops = {{{OperatorClass::kContraction, 1.25e12, 2.5e12, 0, 0, 3e9},
                   {OperatorClass::kNormalization, 1.5e9, 3e9, 0, 0, 2e9},
                   {OperatorClass::kElementwise, 2e9, 4e9, 0, 0, 6e9},
                   {OperatorClass::kMovement, 0, 0, 0, 0, 1e9},
                   {OperatorClass::kOptimizer, 0, 0, 0, 5e9, 9.5e9}}};
  report.profile = "torch 2.11.0 (CUDA 13.0, cuDNN 9.19), transformers 5.17.0";
  report.versions = {{"torch", "2.11.0"}, {"cuda", "13.0"}, {"cudnn", "9.19"}, {"transformers", "5.17.0"}};
  report.assumptions = {"sequence length 512: the model's trained context (--seq)",
                        "the loop is transformers' Trainer with its defaults: no KV cache, outputs die before the "
                        "backward pass (--loop bare for a plain loop)"};
  report.not_modelled = {"other processes and the display on the same card", "a comma, and a \"quote\""};
  return report;
}

/// The same run where no card was named: what is optional is there or absent the other way round.
[[nodiscard]] inline Report sample_report_without_card() {
  Report report = sample_report();
  report.device_assumed = true;
  report.device_used_bytes.reset();
  report.parameters_trainable = 1000;
  report.run.training().checkpointing = Checkpointing::kFull;
  report.run.training().accumulation_steps = 8;
  report.run.dropout = 0.1;
  report.other_gpus = {{"rtx-4090", 24564 * kMiB, 25000 * kMiB, 0, -436 * kMiB, Verdict::kDoesNotFit},
                       {"h100-sxm", 85017493504, 25000 * kMiB, 0, 85017493504 - 25000 * kMiB, Verdict::kFits}};
  report.flops[0].recomputation = 1.25e12;
  return report;
}

}  // namespace memcalc::test
