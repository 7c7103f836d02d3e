#include "memcalc/plan/plan_space.h"

#include <algorithm>
#include <utility>

namespace memcalc {
namespace {

constexpr std::int32_t kMostTensor = 16;
constexpr std::int32_t kMostContext = 16;
constexpr std::int32_t kMostPipeline = 16;
constexpr std::int32_t kMostMicroBatch = 256;

std::vector<std::int32_t> powers_up_to(std::int64_t limit) {
  std::vector<std::int32_t> powers;
  for (std::int32_t each = 1; each <= limit; each *= 2) powers.push_back(each);
  return powers;
}

struct Way {
  DataParallel mode;
  bool reshard;
};
constexpr Way kWays[] = {{DataParallel::kNone, true},    {DataParallel::kDdp, true},
                         {DataParallel::kZero1, true},   {DataParallel::kFsdp2, true},
                         {DataParallel::kFsdp2, false},  {DataParallel::kFsdp1, true},
                         {DataParallel::kDsZero1, true}, {DataParallel::kDsZero2, true},
                         {DataParallel::kDsZero3, true}, {DataParallel::kMegatronDist, true}};

struct Saving {
  Checkpointing how;
  std::int32_t every;
};
constexpr Saving kSavings[] = {{Checkpointing::kNone, 1},
                               {Checkpointing::kSelective, 1},
                               {Checkpointing::kFull, 4},
                               {Checkpointing::kFull, 2},
                               {Checkpointing::kFull, 1}};

struct Timing {
  PipelineSchedule schedule;
  std::int32_t virtual_stages;
};
constexpr Timing kTimings[] = {{PipelineSchedule::kOneForwardOneBackward, 1},
                               {PipelineSchedule::kGpipe, 1},
                               {PipelineSchedule::kInterleaved, 2},
                               {PipelineSchedule::kInterleaved, 4},
                               {PipelineSchedule::kZeroBubble, 1}};

bool is_deepspeed(DataParallel mode) {
  return mode == DataParallel::kDsZero1 || mode == DataParallel::kDsZero2 || mode == DataParallel::kDsZero3;
}

/// Ranks that see different data.
std::int64_t replicas_of(const PlanQuestion& question, const Choice& c) {
  return question.gpus / (std::int64_t{c.tensor} * c.context * c.pipeline);
}

std::int64_t experts_of(const ModelSpec& model) {
  return std::visit(
      [](const auto& spec) -> std::int64_t {
        if constexpr (requires { spec.num_local_experts; }) {
          return spec.num_local_experts;
        } else if constexpr (requires { spec.num_experts; }) {
          return spec.num_experts;
        } else {
          return 1;
        }
      },
      model.architecture);
}

/// What of weights, gradients and states one rank holds.
struct Shares {
  double weights = 1, gradients = 1, states = 1;
};

Shares shares_of(DataParallel mode, double replicas) {
  const double part = 1 / replicas;
  switch (mode) {
    case DataParallel::kZero1:
    case DataParallel::kDsZero1:
    case DataParallel::kMegatronDist: return {1, 1, part};
    case DataParallel::kDsZero2: return {1, part, part};
    case DataParallel::kFsdp1:
    case DataParallel::kFsdp2:
    case DataParallel::kDsZero3: return {part, part, part};
    case DataParallel::kNone:
    case DataParallel::kDdp:
    case DataParallel::kDp: break;
  }
  return {};
}

}  // namespace

std::vector<Choice> choices_of(const PlanQuestion& question) {
  std::vector<Choice> choices;
  const std::int64_t experts = experts_of(question.model);
  for (const std::int32_t tensor : powers_up_to(std::min<std::int64_t>(kMostTensor, question.gpus))) {
    for (const std::int32_t context : powers_up_to(std::min<std::int64_t>(kMostContext, question.gpus))) {
      for (const std::int32_t pipeline : powers_up_to(std::min<std::int64_t>(kMostPipeline, question.gpus))) {
        for (const std::int32_t expert : powers_up_to(std::min(experts, question.gpus))) {
          for (const Timing& timing : kTimings) {
            if (pipeline == 1 && &timing != kTimings) continue;  // no schedule without stages
            for (const Way& way : kWays) {
              for (const Saving& saving : kSavings) {
                for (const std::int32_t micro_batch :
                     powers_up_to(std::min<std::int64_t>(kMostMicroBatch, question.global_batch))) {
                  for (int offload = 0; offload < 4; ++offload) {
                    choices.push_back({tensor, context, pipeline, expert, micro_batch, timing.virtual_stages,
                                       saving.every, way.mode, timing.schedule, saving.how, way.reshard,
                                       (offload & 1) != 0, (offload & 2) != 0});
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return choices;
}

std::int64_t micro_batches_of(const PlanQuestion& question, const Choice& c) {
  const std::int64_t at_once = replicas_of(question, c) * c.micro_batch;
  return at_once > 0 && question.global_batch % at_once == 0 ? question.global_batch / at_once : 0;
}

const char* contradiction_in(const PlanQuestion& question, const Choice& c) {
  const std::int64_t ranks = std::int64_t{c.tensor} * c.context * c.pipeline;
  if (question.gpus % ranks != 0) return "tp x cp x pp does not divide the GPUs";
  if (c.tensor > question.gpus / question.nodes) return "tensor parallel beyond one host";
  const std::int64_t replicas = replicas_of(question, c);
  if (replicas == 1 && c.data_parallel != DataParallel::kNone)
    return "nothing to shard: no two ranks see different data";
  if (replicas > 1 && c.data_parallel == DataParallel::kNone) return "replicas that nothing keeps alike";
  if (micro_batches_of(question, c) == 0) return "the global batch is no multiple of micro-batch x replicas";
  if (c.pipeline > 1 && micro_batches_of(question, c) < c.pipeline) return "fewer micro-batches than stages";
  if (c.offload_states && !is_deepspeed(c.data_parallel)) return "states on the host are DeepSpeed's";
  return nullptr;
}

RunSpec run_of(const PlanQuestion& question, const Choice& c) {
  RunSpec run = question.run;
  Parallel& p = run.parallel;
  p = Parallel{};
  p.gpus = question.gpus;
  p.nodes = question.nodes;
  p.data_parallel = c.data_parallel;
  p.tensor = c.tensor;
  p.context = c.context;
  p.expert = c.expert;
  p.pipeline = c.pipeline;
  p.schedule = c.schedule;
  p.virtual_stages = c.virtual_stages;
  p.reshard_after_forward = c.reshard;
  if (c.offload_states) p.offload_states = OffloadTo::kHost;
  if (is_deepspeed(c.data_parallel)) p.framework = Framework::kDeepSpeed;
  if (c.data_parallel == DataParallel::kMegatronDist) p.framework = Framework::kMegatron;
  if (c.data_parallel == DataParallel::kFsdp2 && question.run.precision == Precision::kAmpBf16) {
    // torchtitan's mixed precision: float32 shards, gathered in bfloat16, reduced in float32; no autocast.
    run.precision = Precision::kFp32;
    p.fsdp_param_dtype = DType::kBFloat16;
    p.fsdp_reduce_dtype = DType::kFloat32;
  }
  run.batch_size = c.micro_batch;
  run.checkpointing = c.checkpointing;
  run.checkpoint_every = c.checkpoint_every;
  run.offload_activations = c.offload_activations;
  const std::int64_t micro_batches = std::max<std::int64_t>(1, micro_batches_of(question, c));
  if (c.pipeline > 1) {
    p.micro_batches = micro_batches;
  } else {
    run.accumulation_steps = micro_batches;
  }
  return run;
}

ClosedForm closed_form_of(const PlanQuestion& question) {
  ClosedForm form;
  RunSpec run = question.run;
  run.parallel = Parallel{};
  run.accumulation_steps = 1;
  for (std::size_t i = 0; i < form.activation_bytes.size(); ++i) {
    run.checkpointing = static_cast<Checkpointing>(i);
    std::array<Bytes, 2> forward{};  // peaks with one and with two sequences
    for (const std::int64_t batch : {1, 2}) {
      run.batch_size = batch;
      const Report report = estimate(question.model, run, question.device);
      forward[static_cast<std::size_t>(batch - 1)] =
          report.memory.phase_peaks[static_cast<std::size_t>(Phase::kForward)];
      if (i > 0 || batch > 1) continue;
      for (const AccountingRow& row : report.accounting.profile) {
        if (row.name == "weights") form.weight_bytes = static_cast<double>(row.total_bytes);
        if (row.name == "gradients") form.gradient_bytes = static_cast<double>(row.total_bytes);
        if (row.name == "optimizer states") form.state_bytes = static_cast<double>(row.total_bytes);
      }
      for (const FlopRow& row : report.flops) {
        if (row.operator_class == OperatorClass::kOptimizer) continue;
        form.forward_backward_flops += row.forward + row.backward;
        form.forward_flops += row.forward;
      }
    }
    form.activation_bytes[i] = static_cast<double>(std::max<Bytes>(0, forward[1] - forward[0]));
  }
  return form;
}

double least_bytes(const ClosedForm& form, const PlanQuestion& question, const Choice& c) {
  const Shares shares = shares_of(c.data_parallel, static_cast<double>(replicas_of(question, c)));
  const double parts = static_cast<double>(c.tensor) * c.pipeline * c.expert;
  const double states = c.offload_states ? 0 : form.state_bytes * shares.states;
  const double fixed = (form.weight_bytes * shares.weights + states) / parts;
  const double gradients = form.gradient_bytes * shares.gradients / parts;
  double activations = 0;
  if (!c.offload_activations && c.checkpoint_every == 1) {
    activations = form.activation_bytes[static_cast<std::size_t>(c.checkpointing)] * c.micro_batch /
                  (static_cast<double>(c.tensor) * c.context * c.pipeline);
  }
  // When the optimizer steps, gradients are there; when forward ends, activations are.
  return fixed + std::max(gradients, activations);
}

double ranking_seconds(const ClosedForm& form, const PlanQuestion& question, const Choice& c) {
  const double batch = static_cast<double>(question.global_batch);
  const auto micro_batches = static_cast<double>(std::max<std::int64_t>(1, micro_batches_of(question, c)));
  const double replicas = static_cast<double>(replicas_of(question, c));
  double flops = form.forward_backward_flops;
  if (c.checkpointing == Checkpointing::kFull) flops += form.forward_flops / c.checkpoint_every;
  if (c.checkpointing == Checkpointing::kSelective) flops += form.forward_flops / 2;  // every second product
  const bool half = question.run.precision != Precision::kFp32 && question.run.precision != Precision::kTf32;
  const double peak = half ? question.device.bf16_flops_per_second : question.device.tf32_flops_per_second;
  double seconds = flops * batch / (static_cast<double>(question.gpus) * std::max(peak, 1.0));
  // Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2.2: (p - 1) / (v m).
  if (c.schedule != PipelineSchedule::kZeroBubble) {
    seconds *= 1 + (c.pipeline - 1) / (static_cast<double>(c.virtual_stages) * micro_batches);
  }
  // Traffic of a rank: rings move (n - 1) / n of the whole, a reduction with its gather twice that.
  const double ring = (replicas - 1) / replicas;
  const double held = form.weight_bytes / (static_cast<double>(c.tensor) * c.pipeline);
  double traffic = 0;
  if (c.data_parallel == DataParallel::kFsdp1 || c.data_parallel == DataParallel::kFsdp2 ||
      c.data_parallel == DataParallel::kDsZero3) {
    traffic = (c.reshard ? 3 : 2) * held * ring * micro_batches;
  } else if (replicas > 1) {
    traffic = 2 * held * ring;
  }
  const double activations = form.activation_bytes[1] * c.micro_batch * micro_batches / c.pipeline / c.context;
  if (c.tensor > 1) traffic += activations * (c.tensor - 1) / c.tensor;
  if (c.context > 1) traffic += activations * (c.context - 1) / c.context;
  constexpr double kHostOverLink = 8;  // PCIe is about so much slower than NVLink
  if (c.offload_activations) {
    traffic += kHostOverLink * 2 * form.activation_bytes[static_cast<std::size_t>(c.checkpointing)] * c.micro_batch *
               micro_batches / (static_cast<double>(c.tensor) * c.context * c.pipeline);
  }
  if (c.offload_states) traffic += kHostOverLink * 2 * form.gradient_bytes / replicas;
  return seconds + traffic / std::max(question.link_bytes_per_second, 1.0);
}

}  // namespace memcalc
