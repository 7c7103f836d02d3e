// MIRRORS(torch, "distributed/pipelining/stage.py", "2.11.0")
#include "memcalc/plan/closed_form.h"

#include <algorithm>
#include <variant>

#include "memcalc/plan/smallest.h"
#include "memcalc/plan/technique.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/program.h"

namespace memcalc {
namespace {

constexpr std::array<std::int64_t, 2> kBatches = {1, 2};  // times the smallest that is answered
constexpr std::size_t kSavingCount = 3;                   // of Checkpointing
constexpr double kHidden = 40;      // about the layers of a large model: what is there of one of them at a time
constexpr double kHostRate = 25e9;  // bytes a second, where the card's is not known: PCIe 4.0 with 16 lanes

/// What of weights, gradients and states a rank holds that holds most, at least.
struct Shares {
  double weights = 1, gradients = 1, states = 1;
};

Shares shares_of(const PlanQuestion& question, const Choice& c) {
  // What is not shared among data-parallel ranks is split by layers, by columns and by experts. What is shared is split
  // among all GPUs at most: ranks that share sequences or experts share it, too.
  const double split = 1 / (static_cast<double>(c.tensor) * c.pipeline * c.expert);
  const double part = 1 / static_cast<double>(question.gpus);
  switch (c.data_parallel) {
    case DataParallel::kZero1:
    case DataParallel::kDsZero1:
    case DataParallel::kMegatronDist: return {split, split, part};
    case DataParallel::kDsZero2: return {split, part, part};
    case DataParallel::kFsdp1:
    case DataParallel::kFsdp2:
    case DataParallel::kDsZero3: return {part, part, part};
    case DataParallel::kNone:
    case DataParallel::kDdp:
    case DataParallel::kDp: break;
  }
  return {split, split, split};
}

std::int64_t vocabulary_of(const ModelSpec& model) { return model.architecture.dimensions().vocabulary.value_or(0); }

/// The last stage of torch's pipelines keeps the logits of every micro-batch until the step is over
/// (torch/distributed/pipelining/stage.py, output_chunks), in 16 bits at least.
double kept_logits(const PlanQuestion& question, const Choice& c) {
  if (c.pipeline == 1 || c.way == Way::kMegatron) return 0;
  return 2.0 * static_cast<double>(question.run.sequence_length * vocabulary_of(question.model)) * c.micro_batch *
         static_cast<double>(micro_batches_of(question, c)) / (static_cast<double>(c.tensor) * c.context);
}

bool gathers_weights(const Choice& c) {
  return c.data_parallel == DataParallel::kFsdp1 || c.data_parallel == DataParallel::kFsdp2 ||
         c.data_parallel == DataParallel::kDsZero3;
}

void add_accounting(const Report& report, ClosedForm& form) {
  for (const AccountingRow& row : report.accounting.profile) {
    if (row.name == "weights") form.weight_bytes = static_cast<double>(row.total_bytes);
    if (row.name == "gradients") form.gradient_bytes = static_cast<double>(row.total_bytes);
    if (row.name == "optimizer states") form.state_bytes = static_cast<double>(row.total_bytes);
  }
  const auto sequences = static_cast<double>(report.run.batch_size);
  for (const FlopRow& row : report.flops) {
    if (row.operator_class == OperatorClass::kOptimizer) continue;
    form.forward_backward_flops += (row.forward + row.backward) / sequences;
    form.forward_flops += row.forward / sequences;
  }
}

/// Where two sequences take no longer than one, the card waits for the host.
double launch_seconds_of(const std::optional<Report>& one, const std::optional<Report>& two) {
  if (!one || !two || !one->time || !two->time) return 0;
  const auto busy = [](const Report& report) {
    return report.time->step.forward_seconds + report.time->step.backward_seconds;
  };
  return std::max(0.0, 2 * busy(*one) - busy(*two));
}

double forward_peak(const Report& report) {
  return static_cast<double>(report.memory.phase_peaks[static_cast<std::size_t>(Phase::kForward)]);
}

/// Whether a sample alone may be one too few for a batch norm, which no rule but the model itself can say.
bool may_norm_one_value(const ModelSpec& model) {
  return has_batch_norm(model) || model.architecture.get_if<ProgramSpec>() != nullptr;
}

}  // namespace

ClosedForms closed_forms_of(const PlanQuestion& question, std::span<const Choice> choices,
                            const SearchControl& control) {
  std::array<bool, kWayCount> asked{true};  // the first is the run as asked
  for (const Choice& each : choices) asked[static_cast<std::size_t>(each.way)] = true;
  // By way: the accounting, and peaks of forward with one and with two sequences by checkpointing.
  constexpr std::size_t kEach = 1 + kSavingCount * kBatches.size();
  std::vector<std::optional<Report>> reports(kWayCount * kEach);
  ClosedForms forms;
  const DeviceSpec device = on_one_host(question.device);
  const DeviceSpec untimed = without_rates(device);
  const SearchControl quiet{.threads = control.threads, .progress = {}, .stop = control.stop};
  std::int64_t smallest = 1;  // times what the rules take
  const auto ask = [&](std::size_t i) {
    const std::size_t place = i % kEach;
    const Way way = static_cast<Way>(i / kEach);
    // The accounting is that of one sequence without checkpointing, but where other types are held than computed with.
    if (!asked[i / kEach] || (place == 1 && way != Way::kFsdpMixed)) return;
    RunSpec run = run_of(question, way, place > 0);
    run.training().checkpointing =
        place == 0 ? Checkpointing::kNone : static_cast<Checkpointing>((place - 1) / kBatches.size());
    run.training().checkpoint_every = 1;
    if (run.checkpointing() != Checkpointing::kNone) run.use_cache = false;
    run.batch_size *= smallest;
    if (place > 0) run.batch_size *= kBatches[(place - 1) % kBatches.size()];
    try {
      const bool is_timed = run.checkpointing() == Checkpointing::kNone;  // launch_seconds_of()
      reports[i] = estimate(question.model, run, is_timed ? device : untimed);
    } catch (const Error& error) {
      const bool refused = error.code() == ErrorCode::kUsage || error.code() == ErrorCode::kUnsupported;
      if (i == 0 || !refused) throw;  // the first is the run as asked
      if (place == 0) forms.refusals[i / kEach] = refusal_of(error).rule;
    }
  };
  std::size_t answered = 0;
  if (may_norm_one_value(question.model)) {
    try {
      ask(0);
      answered = 1;
    } catch (const Error& error) {
      if (!wants_more_samples(error)) throw;
      smallest = 2;
    }
  }
  (void)for_each_index(reports.size() - answered, quiet, [&](std::size_t i) { ask(i + answered); });
  for (std::size_t way = 0; way < kWayCount; ++way) {
    auto* of_way = &reports[way * kEach];
    if (!of_way[0]) continue;
    if (static_cast<Way>(way) != Way::kFsdpMixed) of_way[1] = of_way[0];
    ClosedForm form;
    add_accounting(*of_way[0], form);
    form.launch_seconds = launch_seconds_of(of_way[1], of_way[2]);  // without checkpointing
    for (std::size_t saving = 0; saving < kSavingCount; ++saving) {
      const auto& one = of_way[1 + saving * kBatches.size()];
      const auto& two = of_way[2 + saving * kBatches.size()];
      if (!one || !two) continue;
      const auto more = static_cast<double>(two->run.batch_size - one->run.batch_size);
      form.activation_bytes[saving] = std::max(0.0, forward_peak(*two) - forward_peak(*one)) / more;
    }
    forms.by_way[way] = form;
  }
  return forms;
}

/// Of a sequence; every second or fourth layer keeps its input alone.
double activation_bytes(const ClosedForm& form, const Choice& c) {
  const double of_all = form.activation_bytes[static_cast<std::size_t>(c.checkpointing)];
  if (c.checkpoint_every == 1) return of_all;
  const double of_none = form.activation_bytes[static_cast<std::size_t>(Checkpointing::kNone)];
  return of_none + (of_all - of_none) / c.checkpoint_every;
}

double least_bytes(const ClosedForm& form, const PlanQuestion& question, const Choice& c) {
  const Shares shares = shares_of(question, c);
  const double states = c.offload_states ? 0 : form.state_bytes * shares.states;
  const double weights = c.offload_parameters ? 0 : form.weight_bytes * shares.weights;
  const double gradients = c.offload_parameters ? 0 : form.gradient_bytes * shares.gradients;
  double activations = 0;
  if (!c.offload_activations && c.checkpoint_every == 1) {
    activations = form.activation_bytes[static_cast<std::size_t>(c.checkpointing)] * c.micro_batch /
                  (static_cast<double>(c.tensor) * c.context * c.pipeline);
  }
  // When the optimizer steps, gradients are there; when forward ends, activations are, and the gradients of the
  // micro-batches before.
  const bool accumulates = micro_batches_of(question, c) > 1 && c.pipeline == 1 && !c.offload_states;
  const double moving = accumulates ? gradients + activations : std::max(gradients, activations);
  return std::max(weights + states + moving, kept_logits(question, c));
}

double likely_bytes(const ClosedForm& form, const PlanQuestion& question, const Choice& c) {
  const double least = least_bytes(form, question, c);
  const double split = static_cast<double>(c.tensor) * c.context;
  // 1F1B's first stage has as many micro-batches in flight as there are stages, of a part of the layers each.
  double in_flight = 1;
  if (c.pipeline > 1 && c.schedule == PipelineSchedule::kGpipe) {
    in_flight = static_cast<double>(micro_batches_of(question, c)) / c.pipeline;
  }
  double activations = activation_bytes(form, c) * c.micro_batch / split * in_flight;
  if (c.offload_activations) activations /= kHidden;
  double gathered = 0;  // two blocks at a time, or all
  if (gathers_weights(c)) {
    const double whole =
        form.weight_bytes / (static_cast<double>(c.tensor) * c.pipeline * (c.way == Way::kFsdpMixed ? 2 : 1));
    gathered = c.reshard ? 3 * whole / kHidden : whole;
  }
  double gradients = 0;
  if (c.offload_parameters) gradients = 3 * form.gradient_bytes / kHidden;
  return least + activations + gathered + gradients + kept_logits(question, c);
}

double ranking_seconds(const ClosedForm& form, const PlanQuestion& question, const Choice& c) {
  const double batch = static_cast<double>(question.global_batch);
  const auto micro_batches = static_cast<double>(std::max<std::int64_t>(1, micro_batches_of(question, c)));
  const double replicas = static_cast<double>(replicas_of(question, c));
  double flops = form.forward_backward_flops;
  if (c.checkpointing == Checkpointing::kFull) flops += form.forward_flops / c.checkpoint_every;
  // torchtitan's selective form computes every second product again, Megatron's the attention's core.
  if (c.checkpointing == Checkpointing::kSelective && c.way != Way::kMegatron) flops += form.forward_flops / 2;
  const bool half = question.run.precision != Precision::kFp32 && question.run.precision != Precision::kTf32;
  const double peak = half ? question.device.bf16_flops_per_second : question.device.tf32_flops_per_second;
  double seconds = flops * batch / (static_cast<double>(question.gpus) * std::max(peak, 1.0));
  seconds += form.launch_seconds * micro_batches / c.pipeline;
  // Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2.2: (p - 1) / (v m).
  if (c.schedule != PipelineSchedule::kZeroBubble) {
    seconds *= 1 + (c.pipeline - 1) / (static_cast<double>(c.virtual_stages) * micro_batches);
  }
  // Traffic of a rank: rings move (n - 1) / n of the whole, a reduction with its gather twice that. Data parallel
  // traffic runs beside the computation, the tensor-parallel one between its parts.
  const double ring = (replicas - 1) / replicas;
  const double held = form.weight_bytes / (static_cast<double>(c.tensor) * c.pipeline);
  const double sent = c.way == Way::kFsdpMixed ? 0.5 : 1;  // of a gathered parameter: bfloat16 of float32
  double data_traffic = 0;
  if (gathers_weights(c)) {
    data_traffic = ((c.reshard ? 2 : 1) * sent + 1) * held * ring * micro_batches;
  } else if (replicas > 1) {
    data_traffic = 2 * held * ring;
  }
  const double link = std::max(question.link_bytes_per_second, 1.0);
  // A ring crosses from host to host once, and all cards of a host have a ring each.
  const double in_host = static_cast<double>(question.gpus) / static_cast<double>(question.nodes);
  const double network = question.nodes > 1 ? std::clamp(question.network_bytes_per_second * in_host, 1.0, link) : link;
  const double stored = form.activation_bytes[static_cast<std::size_t>(Checkpointing::kFull)] * c.micro_batch *
                        micro_batches / c.pipeline / c.context;  // about a layer's input, of all layers
  double traffic = 0;
  if (c.tensor > 1) traffic += 8 * stored * (c.tensor - 1) / c.tensor;  // two gathers and two reductions each way
  if (c.context > 1) traffic += 2 * stored * (c.context - 1) / c.context;
  // The copies run beside the computation, and take longer.
  const double pcie = question.device.pcie_bytes_per_second > 0 ? question.device.pcie_bytes_per_second : kHostRate;
  double hosted = 0;
  if (c.offload_activations) {
    hosted += 2 * activation_bytes(form, c) * c.micro_batch * micro_batches /
              (static_cast<double>(c.tensor) * c.context * c.pipeline);
  }
  if (c.offload_states) hosted += 2 * std::max(form.gradient_bytes, form.weight_bytes) / replicas;
  if (c.offload_parameters) hosted += 2 * form.weight_bytes / replicas * micro_batches;
  return std::max({seconds, data_traffic / network, hosted / pcie}) + traffic / link;
}

}  // namespace memcalc
