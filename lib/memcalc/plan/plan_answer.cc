// The words of the plan.
#include <algorithm>
#include <string>

#include "memcalc/plan/plan.h"
#include "memcalc/report/quantity.h"
#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/run_fields.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

/// "1,1,8"; with what is not 1F1B of one stage a rank: "1,1,8 x 2", "1,1,8 gpipe".
std::string layout_of(const Parallel& p) {
  std::string text = std::to_string(p.tensor) + "," + std::to_string(p.context) + "," + std::to_string(p.pipeline);
  if (p.virtual_stages > 1) text += " x " + std::to_string(p.virtual_stages);
  if (p.pipeline > 1 && p.schedule == PipelineSchedule::kGpipe) text += " gpipe";
  return text;
}

std::string rejections_note(const Plan& plan) {
  constexpr std::size_t kListed = 6;
  std::string text = "candidates taken out: ";
  for (std::size_t i = 0; i < std::min(kListed, plan.rejections.size()); ++i) {
    text += (i > 0 ? "; " : "") + format_count(static_cast<std::int64_t>(plan.rejections[i].count)) + " (" +
            plan.rejections[i].rule + ")";
  }
  if (plan.rejections.size() > kListed) {
    text += "; and " + std::to_string(plan.rejections.size() - kListed) +
            (plan.rejections.size() == kListed + 1 ? " rule" : " rules") + " more (--format json)";
  }
  return text;
}

/// The card, where it was named.
const DeviceSpec* named_card(const PlanQuestion& question) {
  return question.device.reference.empty() ? nullptr : &question.device;
}

std::int64_t count_of(std::size_t count) { return static_cast<std::int64_t>(count); }

}  // namespace

Answer answer_of(const PlanQuestion& question, const Plan& plan, Emit emit) {
  Answer answer;
  answer.command = "plan";
  answer.complete = plan.complete;
  answer.positive = !plan.front.empty();
  answer.assumptions = plan.assumptions;
  answer.not_modelled = plan.not_modelled;
  const std::string where = question.model.name + " on " + std::to_string(question.gpus) + " x " +
                            question.device.name + ", global batch " + std::to_string(question.global_batch);
  answer.headline = plan.front.empty() ? "No plan for " + where + "."
                                       : where + ": " + options_of(RunRecord{question.model, plan.front[0].run});
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
                    {"host_bytes", "host, a GPU", Unit::kBytes, true},
                    {"tokens_per_second", "tokens/s", Unit::kRate, true},
                    {"mfu", "MFU", Unit::kShare, true},
                    {"options", "options", Unit::kText, true}};
  bool built_whole = false;
  for (const PlanEntry& each : plan.front) {
    const Parallel& p = each.run.parallel;
    std::string mode(name_of(p.data_parallel));
    const auto* mesh = std::get_if<TorchMesh>(&p.layout);
    if (mesh != nullptr && !mesh->reshard_after_forward) mode += ", keeps";
    if (p.framework() == Framework::kMegatron) mode = p.data_parallel == DataParallel::kNone ? "megatron" : mode;
    if (p.framework() == Framework::kMegatron && p.data_parallel == DataParallel::kDdp) mode = "megatron ddp";
    std::string saving = checkpointing_of(each.run);
    if (each.run.training().offload_activations) saving += ", offload";
    if (p.offload_parameters != OffloadTo::kNowhere) {
      mode += ", all on host";
    } else if (p.offload_states != OffloadTo::kNowhere) {
      mode += ", states on host";
    }
    const std::int64_t micro_batches = std::max(each.run.training().accumulation_steps, p.micro_batches);
    if (p.expert > 1) mode += ", ep " + std::to_string(p.expert);
    std::vector<Value> row = {mode, layout_of(p), each.run.batch_size, micro_batches, saving, each.outcome.needed};
    row.resize(answer.columns.size());
    row[7] = each.ranking_seconds;
    row[8] = each.outcome.headroom;
    row[9] = each.outcome.host;
    row[12] = command_of(RunRecord{question.model, each.run, named_card(question)});
    if (each.outcome.speed) {
      row[6] = each.outcome.speed->step_seconds;
      row[10] = each.outcome.speed->tokens_per_second;
      row[11] = each.outcome.speed->mfu;
    }
    built_whole = built_whole || each.outcome.built_whole;
    answer.rows.push_back(std::move(row));
  }
  const auto hosted =
      std::max_element(plan.front.begin(), plan.front.end(),
                       [](const PlanEntry& a, const PlanEntry& b) { return a.outcome.host < b.outcome.host; });
  if (!plan.front.empty() && hosted->outcome.host > kGiB) {
    answer.notes.push_back("what is offloaded takes up to " + format_bytes(hosted->outcome.host) +
                           " of the host's memory for each GPU");
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
        "without a predicted step (an optimizer that steps on the host is not timed), a candidate is ordered by a "
        "closed "
        "form, work and traffic at the datasheet's rates with nothing hidden: it ranks, it does not predict");
  }
  if (!plan.complete) answer.notes.emplace_back("stopped early: the best that was found by then");
  if (plan.front.empty() && question.run.uses_trainer() && question.gpus > 1) {
    answer.notes.emplace_back(
        "in the Trainer DDP and, of causal models with a tied head, FSDP2 are modelled (docs/parallel.md); --loop bare "
        "plans a plain loop");
  }
  if (!plan.front.empty()) {
    const RunSpec& first = plan.front.front().run;
    answer.appendix = settings_of(question.model, first, emit);
    for (std::string& note : beside_settings(first, emit)) answer.notes.push_back(std::move(note));
  }
  return answer;
}

}  // namespace memcalc
