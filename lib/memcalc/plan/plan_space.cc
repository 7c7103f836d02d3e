// MIRRORS(transformers, "training_args.py", "5.17.0")
#include "memcalc/plan/plan_space.h"

#include <algorithm>
#include <span>
#include <variant>

#include "memcalc/plan/smallest.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/rules.h"

namespace memcalc {
namespace {

constexpr std::int32_t kMostTensor = 16;
constexpr std::int32_t kMostContext = 16;
constexpr std::int32_t kMostPipeline = 24;
constexpr std::int32_t kMostMicroBatch = 256;

std::vector<std::int32_t> powers_up_to(std::int64_t limit) {
  std::vector<std::int32_t> powers;
  for (std::int32_t each = 1; each <= limit; each *= 2) powers.push_back(each);
  return powers;
}

/// Divisors of `whole`: stages need no power of two (144 GPUs in hosts of 8 make 18).
std::vector<std::int32_t> divisors_up_to(std::int64_t limit, std::int64_t whole) {
  std::vector<std::int32_t> divisors;
  for (std::int32_t each = 1; each <= limit; ++each) {
    if (whole % each == 0) divisors.push_back(each);
  }
  return divisors;
}

/// What ranks that see different data share, and what of it lives on the host. FSDP1 is not searched: FSDP2 shards the
/// same.
struct Sharding {
  DataParallel mode;
  Framework framework;
  bool reshard = true;
  bool offloads_states = false;
  bool offloads_parameters = false;
};
constexpr Framework kTorch = Framework::kTorch, kDeepSpeed = Framework::kDeepSpeed, kMegatron = Framework::kMegatron;
constexpr Sharding kShardings[] = {{DataParallel::kDdp, kTorch},
                                   {DataParallel::kZero1, kTorch},
                                   {DataParallel::kFsdp2, kTorch},
                                   {DataParallel::kFsdp2, kTorch, false},
                                   {DataParallel::kFsdp2, kTorch, true, true, true},  // CPUOffloadPolicy moves both
                                   {DataParallel::kDsZero1, kDeepSpeed},
                                   {DataParallel::kDsZero1, kDeepSpeed, true, true},
                                   {DataParallel::kDsZero2, kDeepSpeed},
                                   {DataParallel::kDsZero2, kDeepSpeed, true, true},
                                   {DataParallel::kDsZero3, kDeepSpeed},
                                   {DataParallel::kDsZero3, kDeepSpeed, true, true},
                                   {DataParallel::kDsZero3, kDeepSpeed, true, true, true},
                                   {DataParallel::kMegatronDist, kMegatron},
                                   {DataParallel::kDdp, kMegatron}};
constexpr Sharding kNoReplicas[] = {{DataParallel::kNone, kTorch}, {DataParallel::kNone, kMegatron}};
// Ranks that share the sequences of one replica share parameters, too.
constexpr Sharding kContextRanks[] = {{DataParallel::kNone, kTorch},
                                      {DataParallel::kFsdp2, kTorch},
                                      {DataParallel::kFsdp2, kTorch, false},
                                      {DataParallel::kNone, kMegatron},
                                      {DataParallel::kMegatronDist, kMegatron}};
// DeepSpeed on one GPU: nothing is shared, but its states may live on the host.
constexpr Sharding kOneGpu[] = {{DataParallel::kNone, kTorch},
                                {DataParallel::kDsZero2, kDeepSpeed},
                                {DataParallel::kDsZero2, kDeepSpeed, true, true},
                                {DataParallel::kDsZero3, kDeepSpeed, true, true, true},
                                {DataParallel::kNone, kMegatron}};

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

std::int64_t experts_of(const ModelSpec& model) {
  return std::max<std::int64_t>(1, model.architecture.dimensions().experts.value_or(1));
}

Way way_of(const PlanQuestion& question, const Sharding& sharding) {
  if (sharding.framework == Framework::kMegatron) return Way::kMegatron;
  if (sharding.framework == Framework::kDeepSpeed) return Way::kDeepSpeed;
  // The Trainer's bf16=True is autocast and accelerate's own policy together, which the run as asked says.
  const bool mixes = sharding.mode == DataParallel::kFsdp2 && question.run.precision == Precision::kAmpBf16 &&
                     !question.run.uses_trainer();
  return mixes ? Way::kFsdpMixed : Way::kAsAsked;
}

std::span<const Sharding> shardings_of(const PlanQuestion& question, const Choice& layout) {
  if (replicas_of(question, layout) > 1) return kShardings;
  if (question.gpus == 1) return kOneGpu;
  return layout.context > 1 ? std::span<const Sharding>(kContextRanks) : kNoReplicas;
}

/// Sizes of a layout and its pipeline's schedule.
std::vector<Choice> layouts_of(const PlanQuestion& question) {
  std::vector<Choice> layouts;
  const auto sizes = [&](std::int64_t most) { return powers_up_to(std::min(most, question.gpus)); };
  const std::vector<std::int32_t> stages =
      divisors_up_to(std::min<std::int64_t>(kMostPipeline, question.gpus), question.gpus);
  for (const std::int32_t tensor : sizes(kMostTensor)) {
    for (const std::int32_t context : sizes(kMostContext)) {
      for (const std::int32_t pipeline : stages) {
        if (question.gpus % (std::int64_t{tensor} * context * pipeline) != 0) continue;
        for (const std::int32_t expert : sizes(experts_of(question.model))) {
          for (const Timing& timing : kTimings) {
            if (pipeline == 1 && &timing != kTimings) continue;  // no schedule without stages
            Choice& layout = layouts.emplace_back();
            layout.tensor = tensor;
            layout.context = context;
            layout.pipeline = pipeline;
            layout.expert = expert;
            layout.virtual_stages = timing.virtual_stages;
            layout.schedule = timing.schedule;
          }
        }
      }
    }
  }
  return layouts;
}

/// Autocast's precision as a framework names it that has none.
Precision without_autocast(Precision precision) {
  switch (precision) {
    case Precision::kAmpBf16: return Precision::kBf16;
    case Precision::kAmpFp16: return Precision::kFp16;
    case Precision::kTf32: return Precision::kFp32;
    default: return precision;
  }
}

/// Megatron spreads layers evenly or not at all; where they do not divide, the embedding and the loss take a layer's
/// place (Llama-3.1-405B's 126 layers were made for that: "The Llama 3 Herd of Models", 3.3.2), or the first and last
/// stage are told their numbers. Torch's pipelines spread a remainder by themselves.
void spread_layers(std::int64_t layers, Parallel& p) {
  const std::int64_t chunks = p.pipeline * p.virtual_stages;
  if (chunks == 1 || layers % chunks == 0 || layers < chunks) return;
  MegatronLayout& megatron = std::get<MegatronLayout>(p.layout);
  megatron.counts_loss = (layers + 1) % chunks == 0 || (layers + 2) % chunks == 0;
  megatron.counts_embedding = (layers + 2) % chunks == 0;
  if (megatron.counts_loss || p.virtual_stages > 1) return;
  const std::int64_t each = layers / chunks + 1;
  const std::int64_t ends = layers - each * (chunks - 2);
  if (ends < 2) return;                          // the rules say that they cannot be spread
  megatron.first_stage_layers = (ends + 1) / 2;  // the last stage has the logits
  megatron.last_stage_layers = ends / 2;
}

/// FSDP2 shards 4-bit weights of a floating type and leaves bytes whole on each card: what a plan is for is the former.
void store_packed_to_be_sharded(RunSpec& run) {
  FineTuning& tuning = run.fine_tuning;
  const bool is_nf4 = tuning.quantization == Quantization::kNf4 || tuning.quantization == Quantization::kNf4Double;
  const bool shards = run.parallel.data_parallel == DataParallel::kFsdp2 && run.parallel.gpus > 1;
  tuning.quant_storage.reset();
  if (is_nf4 && shards && run.precision == Precision::kAmpBf16) tuning.quant_storage = DType::kBFloat16;
}

void set_way(RunSpec& run, Way way) {
  // TRL's trainers tell DeepSpeed's engine by bf16=True, and load the model as without it.
  const bool keeps_types = way == Way::kDeepSpeed && run.uses_trl();
  if (way == Way::kMegatron || way == Way::kDeepSpeed) {
    if (!keeps_types) run.precision = without_autocast(run.precision);
    if (way == Way::kMegatron) {
      run.parallel.layout = MegatronLayout{};
    } else {
      run.parallel.layout = DeepSpeedZero{};
    }
  }
  if (way != Way::kAsAsked && !keeps_types) run.weights_dtype.reset();  // each of the others has its own
  if (way == Way::kFsdpMixed) {
    // torchtitan's mixed precision: float32 shards, gathered in bfloat16, reduced in float32; no autocast.
    run.precision = Precision::kFp32;
    run.parallel.torch().fsdp_param_dtype = DType::kBFloat16;
    run.parallel.torch().fsdp_reduce_dtype = DType::kFloat32;
  }
}

}  // namespace

std::vector<Choice> choices_of(const PlanQuestion& question) {
  std::vector<Choice> choices;
  const std::vector<std::int32_t> micro_batches =
      powers_up_to(std::min<std::int64_t>(kMostMicroBatch, question.global_batch));
  for (const Choice& layout : layouts_of(question)) {
    for (const Sharding& sharding : shardings_of(question, layout)) {
      const std::vector<Framework>& wanted = question.frameworks;
      if (std::find(wanted.begin(), wanted.end(), sharding.framework) == wanted.end()) continue;
      // ZeRO shares among data-parallel ranks alone.
      if (sharding.framework == Framework::kDeepSpeed && replicas_of(question, layout) < question.gpus) continue;
      // Under torch all ranks of expert parallelism see the same tokens, so they are no replicas; DeepSpeed has none.
      if (sharding.framework != Framework::kMegatron && layout.expert > 1) continue;
      // Each micro-batch copies them to the card: ranks that share sequences would copy them more often.
      if (sharding.offloads_parameters && layout.context > 1) continue;
      Choice choice = layout;
      choice.data_parallel = sharding.mode;
      choice.way = way_of(question, sharding);
      choice.reshard = sharding.reshard;
      choice.offload_states = sharding.offloads_states;
      choice.offload_parameters = sharding.offloads_parameters;
      for (const Saving& saving : kSavings) {
        choice.checkpointing = saving.how;
        choice.checkpoint_every = saving.every;
        for (const std::int32_t micro_batch : micro_batches) {
          choice.micro_batch = micro_batch;
          for (const bool offload : {false, true}) {
            choice.offload_activations = offload;
            choices.push_back(choice);
          }
        }
      }
    }
  }
  return choices;
}

std::int64_t replicas_of(const PlanQuestion& question, const Choice& c) {
  return question.gpus / (std::int64_t{c.tensor} * c.context * c.pipeline);
}

std::int64_t micro_batches_of(const PlanQuestion& question, const Choice& c) {
  const std::int64_t at_once = replicas_of(question, c) * c.micro_batch;
  return at_once > 0 && question.global_batch % at_once == 0 ? question.global_batch / at_once : 0;
}

namespace {

/// Some programs take the batch that they were recorded with and no other, or multiples of one.
bool takes_batch(const ModelSpec& model, std::int64_t batch) {
  const auto* spec = model.architecture.get_if<ProgramSpec>();
  if (spec == nullptr) return true;
  return std::all_of(spec->program->symbols.begin(), spec->program->symbols.end(), [&](const ProgramSymbol& each) {
    if (each.name != "batch") return true;
    return each.fixed.empty() ? batch % each.multiple == 0 : batch == each.recorded;
  });
}

}  // namespace

const char* contradiction_in(const PlanQuestion& question, const Choice& c) {
  if (!takes_batch(question.model, c.micro_batch)) return "a micro-batch that the program was not recorded for";
  if (c.tensor > question.gpus / question.nodes) return "tensor parallel beyond one host";
  // Its layers begin with their norms, and T5's have biases and learned positions: not a way to train this model.
  if (c.way == Way::kMegatron && megatron_task(question.model) != Task::kCausalLm)
    return "Megatron's BERT and T5 are other models than transformers'";
  if (micro_batches_of(question, c) == 0) return "the global batch is no multiple of micro-batch x replicas";
  if (c.pipeline > 1 && micro_batches_of(question, c) < c.pipeline) return "fewer micro-batches than stages";
  // Torch runs these, but the closed form knows neither the whole gradients of sharded stages nor what a backward in
  // two halves keeps, and would have them simulated before what is better.
  if (c.pipeline == 1 || c.way == Way::kMegatron) return nullptr;
  if (c.context > 1) return "context parallelism in a pipeline is not searched under torch";
  const bool alone = c.data_parallel == DataParallel::kNone;
  if (c.virtual_stages > 1 && !alone) return "virtual stages beside data-parallel ranks are not searched under torch";
  if (c.schedule == PipelineSchedule::kZeroBubble &&
      (!alone || c.tensor > 1 || c.checkpointing != Checkpointing::kNone)) {
    return "zero bubble beside anything else is not searched under torch";
  }
  return nullptr;
}

const char* unsaid_in_settings(const PlanQuestion& question, const Choice& c) {
  if (question.emit != Emit::kTrainer && !question.run.uses_trainer()) return nullptr;
  // transformers 5.17, training_args.py: gradient_checkpointing is of every layer, and fsdp_config's form likewise.
  if (c.checkpointing == Checkpointing::kSelective) return "TrainingArguments has no selective checkpointing";
  if (c.checkpoint_every > 1) return "TrainingArguments checkpoints every layer or none";
  if (c.offload_activations) return "TrainingArguments does not send activations to the host";
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
  if (p.gpus > 1) p.layout = TorchMesh{.reshard_after_forward = c.reshard};  // unless its way says otherwise
  if (c.offload_states) p.offload_states = OffloadTo::kHost;
  if (c.offload_parameters) p.offload_parameters = OffloadTo::kHost;
  set_way(run, c.way);
  store_packed_to_be_sharded(run);
  p.sequence_parallel = c.way == Way::kMegatron && c.tensor > 1;
  if (c.way == Way::kMegatron) spread_layers(shared_sizes(question.model).layers.value_or(0), p);
  run.batch_size = c.micro_batch;
  run.training().checkpointing = c.checkpointing;
  run.training().checkpoint_every = c.checkpoint_every;
  run.training().offload_activations = c.offload_activations;
  if (c.checkpointing != Checkpointing::kNone) run.use_cache = false;  // as transformers does
  const std::int64_t micro_batches = std::max<std::int64_t>(1, micro_batches_of(question, c));
  if (c.pipeline > 1) {
    p.micro_batches = micro_batches;
  } else {
    run.training().accumulation_steps = micro_batches;
  }
  return run;
}

Candidate candidate_of(const PlanQuestion& question, const Choice& choice) {
  return {question.model, run_of(question, choice), question.device, true};
}

RunSpec run_of(const PlanQuestion& question, Way way, bool activations) {
  RunSpec run = question.run;
  run.parallel = Parallel{};
  run.training().accumulation_steps = 1;
  if (way == Way::kFsdpMixed) {  // what is gathered and computed is bfloat16, what is held float32
    run.weights_dtype.reset();
    run.precision = activations ? Precision::kBf16 : Precision::kFp32;
  } else {
    set_way(run, way);
    if (way == Way::kDeepSpeed) run.parallel.data_parallel = DataParallel::kDsZero2;
  }
  run.batch_size = smallest_batch(question.model, run);
  return run;
}

}  // namespace memcalc
