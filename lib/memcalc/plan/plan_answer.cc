// The words of the plan, and its settings for other programs.
#include <algorithm>
#include <string>

#include "memcalc/plan/plan.h"
#include "memcalc/report/quantity.h"
#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

std::string checkpointing_words(const RunSpec& run) {
  if (run.checkpointing == Checkpointing::kFull && run.checkpoint_every > 1) {
    return "every-" + std::to_string(run.checkpoint_every);
  }
  return std::string(name_of(run.checkpointing));
}

void add_size(std::string& text, const char* option, std::int64_t size) {
  if (size > 1) text += std::string(" ") + option + " " + std::to_string(size);
}

bool is_fsdp(const RunSpec& run) {
  return run.parallel.data_parallel == DataParallel::kFsdp1 || run.parallel.data_parallel == DataParallel::kFsdp2;
}

std::int64_t zero_stage(const RunSpec& run) {
  switch (run.parallel.data_parallel) {
    case DataParallel::kDsZero1:
    case DataParallel::kZero1: return 1;
    case DataParallel::kDsZero2: return 2;
    case DataParallel::kDsZero3:
    case DataParallel::kFsdp1:
    case DataParallel::kFsdp2: return 3;
    default: return 0;
  }
}

bool in_bfloat16(const RunSpec& run) {
  return run.precision == Precision::kBf16 || run.precision == Precision::kAmpBf16 ||
         run.parallel.fsdp_param_dtype == DType::kBFloat16;
}

/// A plain loop of PyTorch around the model.
std::string torchrun_settings(const RunSpec& run) {
  const Parallel& p = run.parallel;
  std::string out = "# torchrun --nnodes=" + std::to_string(p.nodes) +
                    " --nproc-per-node=" + std::to_string(p.gpus / p.nodes) + " train.py\n";
  out += "micro_batch_size = " + std::to_string(run.batch_size) + "  # sequences per GPU\n";
  out += "accumulation_steps = " + std::to_string(run.accumulation_steps) + "\n";
  if (run.checkpointing == Checkpointing::kFull) {
    out += "for i, layer in enumerate(layers):\n    if i % " + std::to_string(run.checkpoint_every) +
           " == 0: layers[i] = checkpoint_wrapper(layer)\n";
  }
  if (run.checkpointing == Checkpointing::kSelective) {
    out +=
        "# selective: every second mm is kept, as in torchtitan\n"
        "for i, layer in enumerate(layers):\n    layers[i] = checkpoint_wrapper(layer, context_fn=selective)\n";
  }
  if (p.data_parallel == DataParallel::kFsdp2) {
    out += "mesh = init_device_mesh(\"cuda\", (" + std::to_string(p.gpus) + ",))\n";
    std::string policy;
    if (p.fsdp_param_dtype) policy = ", mp_policy=policy";
    if (p.fsdp_param_dtype) out += "policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)\n";
    const std::string reshard = p.reshard_after_forward ? "" : ", reshard_after_forward=False";
    out += "for layer in layers:\n    fully_shard(layer, mesh=mesh" + policy + reshard + ")\n";
    out += "fully_shard(model, mesh=mesh" + policy + reshard + ")\n";
  } else if (p.data_parallel == DataParallel::kFsdp1) {
    out += "model = FullyShardedDataParallel(model, auto_wrap_policy=wrap_layers, use_orig_params=True)\n";
  } else if (p.gpus > 1) {
    out += "model = DistributedDataParallel(model, device_ids=[local_rank])\n";
  }
  if (p.data_parallel == DataParallel::kZero1) {
    out += "optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)\n";
  }
  if (run.offload_activations) out += "# forward under torch.autograd.graph.save_on_cpu(pin_memory=True)\n";
  return out;
}

std::string deepspeed_settings(const RunSpec& run) {
  const std::int64_t micro_batches = std::max(run.accumulation_steps, run.parallel.micro_batches);
  std::string out = "{\n  \"train_micro_batch_size_per_gpu\": " + std::to_string(run.batch_size) +
                    ",\n  \"gradient_accumulation_steps\": " + std::to_string(micro_batches) + ",\n";
  if (run.max_grad_norm) out += "  \"gradient_clipping\": " + format_exact(*run.max_grad_norm) + ",\n";
  out += "  \"bf16\": {\"enabled\": " + std::string(in_bfloat16(run) ? "true" : "false") + "},\n";
  out += "  \"zero_optimization\": {\n    \"stage\": " + std::to_string(zero_stage(run));
  if (run.parallel.offload_states == OffloadTo::kHost) {
    out += ",\n    \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}";
  }
  return out + "\n  }\n}\n";
}

std::string megatron_settings(const RunSpec& run) {
  const Parallel& p = run.parallel;
  const std::int64_t replicas = p.gpus / (p.tensor * p.context * p.pipeline);
  const std::int64_t micro_batches = std::max({run.accumulation_steps, p.micro_batches, std::int64_t{1}});
  std::string out = "--micro-batch-size " + std::to_string(run.batch_size) + " --global-batch-size " +
                    std::to_string(run.batch_size * micro_batches * replicas) + " --seq-length " +
                    std::to_string(run.sequence_length);
  add_size(out, "--tensor-model-parallel-size", p.tensor);
  add_size(out, "--pipeline-model-parallel-size", p.pipeline);
  add_size(out, "--num-virtual-stages-per-pipeline-rank", p.virtual_stages);
  add_size(out, "--context-parallel-size", p.context);
  add_size(out, "--expert-model-parallel-size", p.expert);
  if (p.sequence_parallel) out += " --sequence-parallel";
  if (zero_stage(run) > 0 || p.data_parallel == DataParallel::kMegatronDist) out += " --use-distributed-optimizer";
  if (in_bfloat16(run)) out += " --bf16";
  if (run.checkpointing == Checkpointing::kFull) {
    out += " --recompute-granularity full --recompute-method uniform --recompute-num-layers " +
           std::to_string(run.checkpoint_every);
  }
  if (run.checkpointing == Checkpointing::kSelective) out += " --recompute-granularity selective";
  return out + "\n";
}

std::string trainer_settings(const RunSpec& run) {
  std::string out = "TrainingArguments(\n    per_device_train_batch_size=" + std::to_string(run.batch_size) +
                    ",\n    gradient_accumulation_steps=" + std::to_string(run.accumulation_steps) + ",\n";
  if (in_bfloat16(run)) out += "    bf16=True,\n";
  if (run.checkpointing != Checkpointing::kNone) {
    out += "    gradient_checkpointing=True,\n    gradient_checkpointing_kwargs={\"use_reentrant\": False},\n";
  }
  if (is_fsdp(run)) {
    const bool second = run.parallel.data_parallel == DataParallel::kFsdp2;
    out += "    fsdp=\"" + std::string(run.parallel.reshard_after_forward ? "full_shard" : "shard_grad_op") +
           " auto_wrap\",\n    fsdp_config={\"fsdp_version\": " + (second ? "2" : "1") + "},\n";
  }
  return out + ")\n";
}

std::string rejections_note(const Plan& plan) {
  constexpr std::size_t kListed = 6;
  std::string text = "candidates taken out: ";
  for (std::size_t i = 0; i < std::min(kListed, plan.rejections.size()); ++i) {
    text += (i > 0 ? "; " : "") + format_count(static_cast<std::int64_t>(plan.rejections[i].count)) + " (" +
            plan.rejections[i].rule + ")";
  }
  if (plan.rejections.size() > kListed) {
    text += "; and " + std::to_string(plan.rejections.size() - kListed) + " rules more (--format json)";
  }
  return text;
}

std::int64_t count_of(std::size_t count) { return static_cast<std::int64_t>(count); }

}  // namespace

std::string options_of(const RunSpec& run) {
  const Parallel& p = run.parallel;
  std::string text = " --precision " + std::string(name_of(run.precision));
  if (run.loop == Loop::kBare) text += " --loop bare";
  add_size(text, "--gpus", p.gpus);
  add_size(text, "--nodes", p.nodes);
  if (p.framework == Framework::kMegatron) text += " --framework megatron";
  if (p.data_parallel != DataParallel::kNone) text += " --parallel " + std::string(name_of(p.data_parallel));
  add_size(text, "--tp", p.tensor);
  if (p.sequence_parallel) text += " --sp";
  add_size(text, "--cp", p.context);
  add_size(text, "--ep", p.expert);
  add_size(text, "--pp", p.pipeline);
  if (p.pipeline > 1) text += " --schedule " + std::string(name_of(p.schedule));
  add_size(text, "--virtual-stages", p.virtual_stages);
  add_size(text, "--micro-batches", p.micro_batches);
  if (!p.reshard_after_forward) text += " --no-reshard-after-forward";
  if (p.fsdp_param_dtype) text += " --fsdp-param-dtype bf16 --fsdp-reduce-dtype fp32";
  if (p.offload_states == OffloadTo::kHost) text += " --offload-states host";
  text += " --bs " + std::to_string(run.batch_size);
  add_size(text, "--accum", run.accumulation_steps);
  if (run.checkpointing != Checkpointing::kNone) text += " --checkpointing " + checkpointing_words(run);
  if (run.offload_activations) text += " --activation-offload";
  return text.substr(1);
}

std::string settings_of(const ModelSpec& model, const RunSpec& run, Emit emit) {
  (void)model;
  switch (emit) {
    case Emit::kTorchrun: return torchrun_settings(run);
    case Emit::kDeepSpeed: return deepspeed_settings(run);
    case Emit::kMegatron: return megatron_settings(run);
    case Emit::kTrainer: return trainer_settings(run);
    case Emit::kNothing: break;
  }
  return {};
}

Answer answer_of(const PlanQuestion& question, const Plan& plan, Emit emit) {
  Answer answer;
  answer.command = "plan";
  answer.complete = plan.complete;
  answer.positive = !plan.front.empty();
  answer.assumptions = plan.assumptions;
  answer.not_modelled = plan.not_modelled;
  const std::string where = question.model.name + " on " + std::to_string(question.gpus) + " x " +
                            question.device.name + ", global batch " + std::to_string(question.global_batch);
  answer.headline = plan.front.empty() ? "No plan for " + where + "." : where + ": " + options_of(plan.front[0].run);
  answer.facts = {{"candidates", "candidates", Unit::kCount, count_of(plan.candidates)},
                  {"simulated", "simulated", Unit::kCount, count_of(plan.simulated)},
                  {"fitting", "of these fit", Unit::kCount, count_of(plan.fitting)}};
  answer.columns = {{"mode", "mode", Unit::kText},
                    {"layout", "tp,cp,pp", Unit::kText, true},
                    {"micro_batch", "batch", Unit::kCount},
                    {"micro_batches", "accum", Unit::kCount, true},
                    {"checkpointing", "checkpointing", Unit::kText},
                    {"needed_bytes", "needed", Unit::kBytes},
                    {"step_seconds", "step", Unit::kSeconds},
                    {"ranking_seconds", "closed form", Unit::kSeconds, true},
                    {"headroom_bytes", "headroom", Unit::kBytes, true},
                    {"tokens_per_second", "tokens/s", Unit::kRate, true},
                    {"mfu", "MFU", Unit::kShare, true},
                    {"options", "options", Unit::kText, true}};
  bool built_whole = false;
  for (const PlanEntry& each : plan.front) {
    const Parallel& p = each.run.parallel;
    std::string mode(name_of(p.data_parallel));
    if (!p.reshard_after_forward) mode += ", keeps";
    if (p.framework == Framework::kMegatron) mode = p.data_parallel == DataParallel::kNone ? "megatron" : mode;
    if (p.framework == Framework::kMegatron && p.data_parallel == DataParallel::kDdp) mode = "megatron ddp";
    std::string saving = checkpointing_words(each.run);
    if (each.run.offload_activations) saving += ", offload";
    const std::int64_t micro_batches = std::max(each.run.accumulation_steps, p.micro_batches);
    std::vector<Value> row = {
        mode,
        std::to_string(p.tensor) + "," + std::to_string(p.context) + "," + std::to_string(p.pipeline),
        each.run.batch_size,
        micro_batches,
        saving,
        each.outcome.needed};
    row.resize(answer.columns.size());
    row[7] = each.ranking_seconds;
    row[8] = each.outcome.headroom;
    row[11] = options_of(each.run);
    if (each.outcome.speed) {
      row[6] = each.outcome.speed->step_seconds;
      row[9] = each.outcome.speed->tokens_per_second;
      row[10] = each.outcome.speed->mfu;
    }
    built_whole = built_whole || each.outcome.built_whole;
    answer.rows.push_back(std::move(row));
  }
  if (built_whole) {
    answer.notes.emplace_back(
        "some would hold the whole model at its construction: it has to be made on the meta device, and what is needed "
        "is then counted without fragmentation (memcalc estimate counts the construction)");
  }
  for (const Rejection& each : plan.rejections) {
    answer.facts.push_back({"rejected: " + each.rule, "", Unit::kCount, count_of(each.count)});
  }
  answer.notes.push_back(rejections_note(plan));
  const bool untimed = std::any_of(plan.front.begin(), plan.front.end(),
                                   [](const PlanEntry& each) { return !each.outcome.speed.has_value(); });
  if (untimed) {
    answer.notes.emplace_back(
        "without a predicted step (copies of offloaded activations are not timed), a candidate is ordered by a closed "
        "form, work and traffic at the datasheet's rates with nothing hidden: it ranks, it does not predict");
  }
  if (!plan.complete) answer.notes.emplace_back("stopped early: the best that was found by then");
  if (!plan.front.empty()) answer.appendix = settings_of(question.model, plan.front[0].run, emit);
  return answer;
}

}  // namespace memcalc
