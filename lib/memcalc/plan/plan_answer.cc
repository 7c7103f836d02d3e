// The words of the plan.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "memcalc/plan/plainness.h"
#include "memcalc/plan/plan.h"
#include "memcalc/plan/technique.h"
#include "memcalc/report/quantity.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/rules.h"
#include "memcalc/spec/run_fields.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

/// Of the table, in their order.
struct PlanColumn {
  enum : std::uint8_t {
    kMode,
    kLayout,
    kMicroBatch,
    kMicroBatches,
    kCheckpointing,
    kNeeded,
    kStep,
    kPlace,
    kRanking,
    kHeadroom,
    kHost,
    kTokens,
    kMfu,
    kOptions
  };
};

/// "1,1,8"; with what is not 1F1B of one stage a rank: "1,1,8 x 2", "1,1,8 gpipe".
std::string layout_of(const Parallel& p) {
  std::string text = std::to_string(p.tensor) + "," + std::to_string(p.context) + "," + std::to_string(p.pipeline);
  if (p.virtual_stages > 1) text += " x " + std::to_string(p.virtual_stages);
  if (p.pipeline > 1 && p.schedule == PipelineSchedule::kGpipe) text += " gpipe";
  return text;
}

/// "--optimizer --tp --ep", the options of a rule; nothing: a reason of the planner's own.
std::optional<std::string_view> options_of(std::string_view rule) {
  for (const RuleGroup& group : rule_groups()) {
    for (const Rule& each : group.rules) {
      if (each.id == rule) return each.options;
    }
  }
  for (const BuiltRule* each : built_rules()) {
    if (each->id == rule) return each->options;
  }
  return std::nullopt;
}

/// "--optimizer with --tp, --ep, rule tp-optimizer": an id (docs/what-goes-with-what.md) with the options that do not
/// go together; a reason of the planner's own as it is.
std::string reason_words(const std::string& rule) {
  const std::optional<std::string_view> found = options_of(rule);
  if (!found || found->empty()) return rule;
  std::string options(*found);
  std::string_view between = " with ";
  for (std::size_t at = 0; (at = options.find(' ', at)) != std::string::npos; at += between.size(), between = ", ") {
    options.replace(at, 1, between);
  }
  return options + ", rule " + rule;
}

std::string rejections_note(const Plan& plan) {
  constexpr std::size_t kListed = 6;
  std::string text = "candidates taken out: ";
  for (std::size_t i = 0; i < std::min(kListed, plan.rejections.size()); ++i) {
    text += (i > 0 ? "; " : "") + format_count(static_cast<std::int64_t>(plan.rejections[i].count)) + " (" +
            reason_words(plan.rejections[i].rule) + ")";
  }
  if (plan.rejections.size() > kListed) {
    text += "; and " + std::to_string(plan.rejections.size() - kListed) +
            (plan.rejections.size() == kListed + 1 ? " reason" : " reasons") + " more (--format json)";
  }
  return text;
}

/// The card, where it was named.
const DeviceSpec* named_card(const PlanQuestion& question) {
  return question.device.reference.empty() ? nullptr : &question.device;
}

std::int64_t count_of(std::size_t count) { return static_cast<std::int64_t>(count); }

std::string candidates_looked_at(const Plan& plan) {
  return format_count(count_of(plan.surveyed)) + " of " + format_count(count_of(plan.candidates)) +
         " candidates were looked at";
}

/// "torch 91.2 GiB, deepspeed 88.0 GiB, megatron not possible"
std::string leanest_of(const Plan& plan) {
  std::string text;
  for (const Tried& each : plan.tried) {
    text += (text.empty() ? "" : ", ") + std::string(name_of(each.framework));
    if (each.leanest) {
      text += " " + format_bytes(each.leanest->outcome.needed);
    } else {
      text += each.refused.empty() ? " no answer" : " not possible";
    }
  }
  return text;
}

/// Whether one would fit, but for the host.
bool leanest_is_beyond_host(const PlanQuestion& question, const Plan& plan) {
  return std::any_of(plan.tried.begin(), plan.tried.end(), [&](const Tried& each) {
    return each.leanest && each.leanest->outcome.fits() && question.host.bytes_per_gpu > 0 &&
           each.leanest->outcome.host > question.host.bytes_per_gpu;
  });
}

bool nothing_was_possible(const Plan& plan) {
  return std::none_of(plan.tried.begin(), plan.tried.end(), [](const Tried& each) { return each.leanest.has_value(); });
}

std::string headline_of(const PlanQuestion& question, const Plan& plan) {
  const std::string where = question.model.name + " on " + std::to_string(question.gpus) + " x " +
                            question.device.name + ", global batch " + std::to_string(question.global_batch);
  if (!plan.front.empty()) return where + ": " + options_of(RunRecord{question.model, plan.front[0].run});
  if (!plan.complete) return "Stopped before a plan was found for " + where + ": " + candidates_looked_at(plan) + ".";
  if (nothing_was_possible(plan)) {
    return "No plan for " + where + ": none of " + format_count(count_of(plan.candidates)) +
           " candidates could be simulated; the notes say why.";
  }
  return "No plan for " + where + ": the leanest that was simulated needs, by framework, " + leanest_of(plan) +
         ", of a card's " + format_bytes(question.device.usable_bytes()) +
         (leanest_is_beyond_host(question, plan) ? ", and more than the host has" : "") + ". " +
         candidates_looked_at(plan) + ", " + format_count(count_of(plan.simulated)) + " simulated whole.";
}

/// What was tried of each framework, where nothing fits.
std::vector<std::string> tried_notes(const PlanQuestion& question, const Plan& plan) {
  std::vector<std::string> notes;
  const Bytes usable = question.device.usable_bytes();
  for (const Tried& each : plan.tried) {
    std::string note = std::string(name_of(each.framework)) + ": ";
    if (each.leanest) {
      const Outcome& outcome = each.leanest->outcome;
      if (outcome.needed > usable) {
        note += format_bytes(outcome.needed - usable) + " too much";
      } else if (outcome.fits()) {
        note += format_bytes(outcome.needed);
      } else {
        note += "too close to call, it may be off by " + format_bytes(outcome.error) + ",";
      }
      note += " with " + options_of(RunRecord{question.model, each.leanest->run});
      if (question.host.bytes_per_gpu > 0 && outcome.host > question.host.bytes_per_gpu) {
        note += ", and " + format_bytes(outcome.host) + " of the host for each GPU";
      }
    } else {
      note +=
          each.refused.empty() ? "all that was looked at is refused" : "none is possible, most for: " + each.refused;
    }
    notes.push_back(note + " (" + format_count(count_of(each.surveyed)) + " of " +
                    format_count(count_of(each.candidates)) + " looked at)");
  }
  return notes;
}

/// --tokens, of one that is timed.
void add_whole_training(const PlanQuestion& question, const PlanEntry& first, Answer& answer) {
  const WholeTraining& whole = question.whole;
  if (whole.tokens <= 0) return;
  if (!first.outcome.speed || first.outcome.speed->tokens_per_second <= 0) {
    answer.notes.emplace_back("--tokens: the step of the first is not predicted, so days and dollars are not known");
    return;
  }
  const double seconds = whole.tokens / first.outcome.speed->tokens_per_second;
  const double gpu_hours = seconds * static_cast<double>(question.gpus) / 3600;
  answer.facts.push_back({"training_tokens", "training, tokens", Unit::kCount, whole.tokens});
  answer.facts.push_back({"training_days", "training, days", Unit::kCount, seconds / 86400});
  answer.facts.push_back({"training_gpu_hours", "training, GPU hours", Unit::kCount, gpu_hours});
  if (whole.dollars_per_gpu_hour > 0) {
    answer.facts.push_back({"training_usd", "training, price", Unit::kDollars, gpu_hours * whole.dollars_per_gpu_hour});
    answer.notes.push_back("price: $" + format_fixed(whole.dollars_per_gpu_hour, 2) + " per GPU and hour, " +
                           whole.price_source);
  } else {
    answer.notes.emplace_back("the card's price is not known (--price)");
  }
}

/// What a plan does not search, and what is worth most: models stored in float32 are trained in it unless one asks.
void add_precision(const DeviceSpec& device, Answer& answer) {
  const bool brain = takes_bfloat16(device);
  const double half = brain ? device.bf16_flops_per_second : device.fp16_flops_per_second;
  constexpr double kWorthSaying = 2;
  if (device.fp32_flops_per_second <= 0 || half < kWorthSaying * device.fp32_flops_per_second) return;
  answer.notes.push_back("products are in float32 (precision is not searched): in 16 bits the card's datasheet has " +
                         format_fixed(half / device.fp32_flops_per_second, 0) + " times the rate (--precision " +
                         (brain ? "amp-bf16" : "amp-fp16") + ")");
}

/// Whether one is the quicker, whichever of the measured hosts it runs on: by more than steps are predicted to.
bool is_quicker(const Speed& one, const Speed& other) {
  const auto by = [](double a, double b) { return a * (1 + kAsFast) < b; };
  return by(one.step_seconds, other.step_seconds) && by(one.least_seconds, other.least_seconds) &&
         by(one.most_seconds, other.most_seconds);
}

/// "1", "2-4": where it may come among those that are timed, the quickest first.
std::string place_of(const Speed& speed, const std::vector<PlanEntry>& all) {
  std::size_t first = 1, last = 0;
  for (const PlanEntry& each : all) {
    if (!each.outcome.speed) continue;
    if (is_quicker(*each.outcome.speed, speed)) ++first;
    if (!is_quicker(speed, *each.outcome.speed)) ++last;
  }
  return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
}

void add_places(const std::vector<PlanEntry>& front, Answer& answer) {
  const bool tied = std::any_of(answer.rows.begin(), answer.rows.end(), [](const std::vector<Value>& row) {
    const auto* place = std::get_if<std::string>(&row[PlanColumn::kPlace]);
    return place != nullptr && place->find('-') != std::string::npos;
  });
  if (!tied) return;
  std::string note = "place: predictions are not exact enough to order steps less than " +
                     format_fixed(100 * kAsFast, 0) +
                     " % apart, or those that a quicker or slower host would order otherwise (docs/planning.md)";
  if (front[1].seconds() < front[0].seconds()) note += "; of those the first row is the plainest";
  answer.notes.push_back(std::move(note));
}

/// What "2,1,4 x 4" says, where a row has it.
void add_virtual_stages(const std::vector<PlanEntry>& front, Answer& answer) {
  const bool has = std::any_of(front.begin(), front.end(),
                               [](const PlanEntry& each) { return each.run.parallel.virtual_stages > 1; });
  if (has) answer.notes.emplace_back("tp,cp,pp x N: N stages of the pipeline on each GPU (--virtual-stages)");
}

void add_host(const PlanQuestion& question, const Plan& plan, Answer& answer) {
  const auto hosted =
      std::max_element(plan.front.begin(), plan.front.end(),
                       [](const PlanEntry& a, const PlanEntry& b) { return a.outcome.host < b.outcome.host; });
  const bool offloads = hosted != plan.front.end() && hosted->outcome.host > kGiB;
  std::string note;
  if (offloads) {
    note =
        "what is offloaded takes up to " + format_bytes(hosted->outcome.host) + " of the host's memory for each GPU; ";
  }
  if (question.host.bytes_per_gpu > 0) {
    note += "a GPU's share of its host is taken as " + format_bytes(question.host.bytes_per_gpu) + ": " +
            question.host.source;
    if (question.host.source != "--host-memory") note += " (--host-memory)";
  } else {
    note += "the host's memory is not known, so it limits nothing (--host-memory)";
  }
  answer.notes.push_back(std::move(note));
}

}  // namespace

Answer answer_of(const PlanQuestion& question, const Plan& plan, Emit emit) {
  Answer answer;
  answer.command = "plan";
  answer.complete = plan.complete;
  answer.positive = !plan.front.empty();
  answer.assumptions = plan.assumptions;
  answer.not_modelled = plan.not_modelled;
  answer.headline = headline_of(question, plan);
  answer.facts = {{"candidates", "candidates", Unit::kCount, count_of(plan.candidates)},
                  {"surveyed", "looked at", Unit::kCount, count_of(plan.surveyed)},
                  {"simulated", "simulated", Unit::kCount, count_of(plan.simulated)},
                  {"fitting", "of these fit", Unit::kCount, count_of(plan.fitting)}};
  answer.columns = {{"mode", "mode", Unit::kText},
                    {"layout", "tp,cp,pp", Unit::kText, true},
                    {"micro_batch", "batch", Unit::kCount},
                    {"micro_batches", "accum", Unit::kCount, true},
                    {"checkpointing", "checkpointing", Unit::kText},
                    {"needed_bytes", "needed", Unit::kBytes},
                    {"step_seconds", "step", Unit::kSeconds},
                    {"place", "place", Unit::kText},
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
      mode += ", on host";
    } else if (p.offload_states != OffloadTo::kNowhere) {
      mode += ", states on host";
    }
    const std::int64_t micro_batches = std::max(each.run.training().accumulation_steps, p.micro_batches);
    if (p.expert > 1) mode += ", ep " + std::to_string(p.expert);
    std::vector<Value> row(answer.columns.size());
    row[PlanColumn::kMode] = mode;
    row[PlanColumn::kLayout] = layout_of(p);
    row[PlanColumn::kMicroBatch] = each.run.batch_size;
    row[PlanColumn::kMicroBatches] = micro_batches;
    row[PlanColumn::kCheckpointing] = saving;
    row[PlanColumn::kNeeded] = each.outcome.needed;
    row[PlanColumn::kRanking] = each.ranking_seconds;
    row[PlanColumn::kHeadroom] = each.outcome.headroom;
    row[PlanColumn::kHost] = each.outcome.host;
    row[PlanColumn::kOptions] = command_of(RunRecord{question.model, each.run, named_card(question)});
    if (each.outcome.speed) {
      row[PlanColumn::kStep] = each.outcome.speed->step_seconds;
      row[PlanColumn::kPlace] = place_of(*each.outcome.speed, plan.front);
      row[PlanColumn::kTokens] = each.outcome.speed->tokens_per_second;
      row[PlanColumn::kMfu] = each.outcome.speed->mfu;
    }
    built_whole = built_whole || each.outcome.built_whole;
    answer.rows.push_back(std::move(row));
  }
  add_places(plan.front, answer);
  add_virtual_stages(plan.front, answer);
  if (!plan.front.empty() && question.run.precision == Precision::kFp32) add_precision(question.device, answer);
  if (!plan.front.empty()) add_whole_training(question, plan.front.front(), answer);
  if (plan.front.empty() && plan.complete) answer.notes = tried_notes(question, plan);
  add_host(question, plan, answer);
  if (!is_cuda(question.device)) {
    answer.notes.push_back(question.device.name +
                           " is no CUDA device: the frameworks, kernels and allocator of one are assumed");
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
        "without a predicted step (a card whose rates are not known, an optimizer on NVMe), a candidate is ordered by "
        "a closed form, work and traffic at the datasheet's rates: it ranks, it does not predict");
  }
  if (!plan.complete)
    answer.notes.emplace_back("stopped early: the best that was found by then, and others may be better");
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
