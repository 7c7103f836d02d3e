#include "memcalc/plan/technique.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "memcalc/families/torchvision/spec.h"
#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/rules.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

using Q = TechniqueQuestion;

bool is_torch(const RunSpec& run) { return run.parallel.framework() == Framework::kTorch; }
bool trains_in_torch(const RunSpec& run) { return run.trains() && is_torch(run); }
bool is_quantized(const RunSpec& run) { return run.fine_tuning.quantization != Quantization::kNone; }
bool holds_float32(const RunSpec& run) { return weights_dtype_of(run) == DType::kFloat32; }

DType half_of(const DeviceSpec& device) { return takes_bfloat16(device) ? DType::kBFloat16 : DType::kFloat16; }
Precision autocast_to(DType type) { return type == DType::kBFloat16 ? Precision::kAmpBf16 : Precision::kAmpFp16; }
Precision pure(DType type) { return type == DType::kBFloat16 ? Precision::kBf16 : Precision::kFp16; }

/// Triton, which Liger's kernels are written in, compiles for compute capability 7.0 on.
bool runs_triton(const DeviceSpec& device) {
  return !is_cuda(device) || architecture_of(device) >= CudaArchitecture::kVolta;
}
/// The Marlin kernel for packed weights wants Ampere's asynchronous copies.
bool runs_marlin(const DeviceSpec& device) { return architecture_of(device) >= CudaArchitecture::kAmpere; }

/// Cards that another one can stand beside: no slice of a card, no laptop's.
bool has_neighbours(const DeviceSpec& device) {
  return device.name.find("-mig-") == std::string::npos && device.name.find("laptop") == std::string::npos;
}

/// The loss is the trainer's own: the same model in a plain loop would be another job.
bool is_own_job(const RunSpec& run) { return run.uses_trl() || run.uses_sentence_transformers(); }

void set_precision(RunSpec& run, Precision precision) {
  run.precision = precision;
  if (run.trains() && precision != Precision::kAmpFp16) run.training().skipped_steps = 0;  // of a loss scaler
}

// --- a card without bfloat16

void use_float16(std::optional<DType>& type) {
  if (type == DType::kBFloat16) type = DType::kFloat16;
}

bool replace_bfloat16(RunSpec& run, const Q& q, int /*grade*/) {
  if (takes_bfloat16(q.device)) return false;
  const RunSpec before = run;
  const bool held = weights_dtype_of(run) == DType::kBFloat16;
  if (run.precision == Precision::kAmpBf16) run.precision = Precision::kAmpFp16;
  if (auto* mesh = std::get_if<TorchMesh>(&run.parallel.layout)) {
    use_float16(mesh->fsdp_param_dtype);
    use_float16(mesh->fsdp_reduce_dtype);
  }
  if (!trains_in_torch(run)) {  // DeepSpeed and Megatron keep float32 weights beside those
    if (run.precision == Precision::kBf16) run.precision = Precision::kFp16;
    use_float16(run.weights_dtype);
    if (Inference* inference = run.inference()) use_float16(inference->key_value_cache_dtype);
  } else if (held) {
    // A loss scaler refuses gradients in float16: only frozen weights are held so.
    const bool frozen = run.fine_tuning.lora && !run.fine_tuning.lora->in_base_dtype;
    run.precision = Precision::kAmpFp16;
    run.weights_dtype = frozen ? std::optional(DType::kFloat16) : std::nullopt;
  }
  return run.precision != before.precision || run.weights_dtype != before.weights_dtype ||
         run.parallel.gathered_dtype() != before.parallel.gathered_dtype();
}

// --- the same mathematics

/// What is left of a batch after so many divisions by its smallest prime factor: a half, where it is even. 0: there was
/// nothing left to divide.
std::int64_t divided(std::int64_t batch, int times) {
  for (; times > 0; --times) {
    if (batch == 1) return 0;
    std::int64_t factor = 2;
    while (factor * factor <= batch && batch % factor != 0) ++factor;
    batch /= factor * factor > batch ? batch : factor;
  }
  return batch;
}

/// The samples of an optimizer step stay: what a micro-batch loses, accumulation or the pipeline gets.
bool divide_batch(RunSpec& run, const Q& /*question*/, int grade) {
  if (!run.trains()) {
    run.batch_size >>= std::min(grade, 62);
    return run.batch_size > 0;
  }
  const std::int64_t left = divided(run.batch_size, grade);
  if (left == 0) return false;
  const std::int64_t times = run.batch_size / left;
  run.batch_size = left;
  if (run.parallel.pipeline > 1) {
    run.parallel.micro_batches = times * std::max(run.parallel.micro_batches, run.parallel.pipeline);
  } else {
    run.training().accumulation_steps *= times;
  }
  return true;
}

std::string batch_of(const RunSpec& run) {
  if (!run.trains()) return fmt::format("batches of {}", run.batch_size);
  return fmt::format("micro-batches of {}, {} a step", run.batch_size,
                     std::max(run.accumulation_steps(), run.parallel.micro_batches));
}

std::string price_of_batch(const RunSpec& run, const Q& q) {
  if (!run.trains()) return "one batch after the other";
  if (has_batch_norm(q.model)) {
    return fmt::format("batch norm takes its statistics of {} samples, not {}", run.batch_size, q.asked.batch_size);
  }
  if (is_contrastive(q.model)) {
    return fmt::format("each image is compared with {} captions, not {}", run.batch_size, q.asked.batch_size);
  }
  return "the same gradients, less work at once";
}

bool fuse_loss(RunSpec& run, const Q& q, int /*grade*/) {
  if (!run.trains() || run.fine_tuning.liger || !runs_triton(q.device)) return false;
  run.fine_tuning.liger = true;
  return true;
}

/// cut_cross_entropy's kernels take a head in 16 bits; where Liger's loss is, there are no logits to save.
bool cut_loss(RunSpec& run, const Q& q, int /*grade*/) {
  FineTuning& tuning = run.fine_tuning;
  if (!run.trains() || tuning.liger || tuning.cut_cross_entropy || !takes_bfloat16(q.device)) return false;
  tuning.cut_cross_entropy = is_half(weights_dtype_of(run));
  return tuning.cut_cross_entropy;
}

/// Without a length of its own vLLM must be able to hold the model's whole context.
bool shorten_vllm(RunSpec& run, const Q& q, int /*grade*/) {
  if (!run.shares_card_with_vllm() || run.training().vllm.max_length > 0) return false;
  if (context_of_vllm(q.model) <= run.sequence_length) return false;
  run.training().vllm.max_length = run.sequence_length;
  return true;
}

bool put_vllm_to_sleep(RunSpec& run, const Q& /*question*/, int /*grade*/) {
  if (!run.shares_card_with_vllm() || run.training().vllm.sleeps) return false;
  run.training().vllm.sleeps = true;
  return true;
}

/// By halves, in steps of 0.01.
bool divide_share(RunSpec& run, const Q& /*question*/, int grade) {
  if (!run.shares_card_with_vllm()) return false;
  double& share = run.training().vllm.utilization;
  for (int i = 0; i < grade; ++i) {
    const double half = std::ceil(share * 50 - 1e-6) / 100;
    if (half >= share) return false;
    share = half;
  }
  return true;
}

std::string share_of(const RunSpec& run) {
  return fmt::format("{} of the card for vLLM", run.training().vllm.utilization);
}

/// Autocast computes in 16 bits anyway, and a frozen weight is never updated.
bool store_frozen_in_half(RunSpec& run, const Q& /*question*/, int /*grade*/) {
  const bool frozen = run.trains() && run.fine_tuning.lora && !run.fine_tuning.lora->in_base_dtype;
  if (!frozen || is_quantized(run) || !is_torch(run) || !is_autocast(run.precision) || !holds_float32(run)) {
    return false;
  }
  run.weights_dtype = run.precision == Precision::kAmpBf16 ? DType::kBFloat16 : DType::kFloat16;
  return true;
}

bool checkpoint(RunSpec& run, Checkpointing how) {
  if (!run.trains()) return false;
  Training& training = run.training();
  const bool all = training.checkpointing == Checkpointing::kFull && training.checkpoint_every == 1;
  if (all || (how == Checkpointing::kSelective && training.checkpointing != Checkpointing::kNone)) return false;
  training.checkpointing = how;
  training.checkpoint_every = 1;
  run.use_cache = false;  // transformers switches it off
  return true;
}

std::string weights_of(const RunSpec& run) {
  return weights_dtype_of(run) == DType::kBFloat16 ? "bfloat16" : "float16";
}

// --- numbers are rounded

/// prepare_model_for_kbit_training leaves norms in float32, so their outputs and, without autocast, the attention are,
/// too.
bool mix_precision(RunSpec& run, const Q& q, int /*grade*/) {
  const bool in_float32 = holds_float32(run) || run.fine_tuning.prepares_for_kbit;
  if (!trains_in_torch(run) || !in_float32 || is_autocast(run.precision)) return false;
  run.precision = autocast_to(half_of(q.device));
  return true;
}

std::string autocast_of(const RunSpec& run) { return run.precision == Precision::kAmpBf16 ? "bfloat16" : "float16"; }

bool store_weights_in_half(RunSpec& run, const Q& q, int /*grade*/) {
  if (!is_torch(run) || !holds_float32(run) || run.parallel.gathered_dtype()) return false;
  const DType type = half_of(q.device);
  if (!run.trains()) {
    set_precision(run, pure(type));
    run.weights_dtype.reset();
    run.inference()->key_value_cache_dtype.reset();  // as the activations
    return true;
  }
  const bool frozen = run.fine_tuning.lora && !run.fine_tuning.lora->in_base_dtype;
  if (type == DType::kFloat16 && !frozen) return false;  // a loss scaler refuses gradients in float16
  set_precision(run, autocast_to(type));
  run.weights_dtype = type;
  return true;
}

std::string price_of_half(const RunSpec& run, const Q& q) {
  const bool stored = q.model.checkpoint_dtype == weights_dtype_of(run);
  if (!run.trains()) return stored ? "none: so they are stored; faster" : "weights and KV cache are rounded; faster";
  if (run.fine_tuning.lora) return stored ? "none: so they are stored" : "frozen weights are rounded";
  return fmt::format("updates are rounded to {}", weights_of(run));
}

bool is_adamw(Optimizer optimizer) {
  return optimizer == Optimizer::kAdamWForeach || optimizer == Optimizer::kAdamWFused ||
         optimizer == Optimizer::kAdamWForLoop || optimizer == Optimizer::kAdam || optimizer == Optimizer::kAdamWBnb;
}

bool round_states(RunSpec& run, const Q& /*question*/, int /*grade*/) {
  if (!run.trains() || !is_adamw(run.training().optimizer)) return false;
  run.training().optimizer = Optimizer::kAdamW8bit;
  return true;
}

bool pack_weights(RunSpec& run, const Q& q, Quantization kind) {
  if (run.trains() || q.asked.fine_tuning.quantization != Quantization::kNone) return false;
  if (is_prequantized(kind) && !runs_marlin(q.device)) return false;
  (void)store_weights_in_half(run, q, 1);  // what is not packed
  run.fine_tuning.quantization = kind;
  return true;
}

// --- less is trained, or read

constexpr std::int64_t kRank = 16;

bool adapt(RunSpec& run, const Q& q) {
  if (!trains_in_torch(run) || run.fine_tuning.lora || is_quantized(run)) return false;
  const bool litgpt = q.model.model_type == kLitGptType;
  const bool classifies = has_classifier(run.task);
  run.fine_tuning.lora = Lora{.rank = kRank, .targets = {}, .in_base_dtype = litgpt, .trains_head = classifies};
  run.fine_tuning.frozen.clear();  // the whole base is
  if (litgpt) return true;         // of one precision throughout
  const DType type = run.precision == Precision::kAmpFp16 ? DType::kFloat16 : half_of(q.device);
  set_precision(run, autocast_to(type));
  run.weights_dtype = type;
  return true;
}

bool adapt_packed(RunSpec& run, const Q& q) {
  if (!trains_in_torch(run) || is_quantized(run)) return false;
  if (!run.fine_tuning.lora && !adapt(run, q)) return false;
  run.fine_tuning.quantization = Quantization::kNf4Double;
  run.fine_tuning.prepares_for_kbit = q.model.model_type != kLitGptType;
  return true;
}

/// sd-scripts' --fp8_base. Without checkpoints the copies that autocast makes lie there until backward.
bool cast_denoiser(RunSpec& run, const Q& q, int /*grade*/) {
  if (!is_denoiser(q.model) || !run.fine_tuning.lora || is_quantized(run) || !is_autocast(run.precision)) return false;
  if (run.training().checkpointing != Checkpointing::kFull) return false;
  run.fine_tuning.quantization = Quantization::kFp8Cast;
  return true;
}

/// Two more with each grade, as far as the trainers swap.
bool swap_blocks(RunSpec& run, const Q& q, int grade) {
  if (!is_denoiser(q.model) || !run.fine_tuning.lora || q.asked.fine_tuning.blocks_to_swap > 0) return false;
  run.fine_tuning.blocks_to_swap = 2 * std::int64_t{grade};
  return true;
}

constexpr std::int64_t kShortestContext = 128;

bool shorten(RunSpec& run, const Q& q, int grade) {
  if (run.trains() || is_vision(q.model) || is_contrastive(q.model) || is_custom(q.model) || is_speech(q.model)) {
    return false;
  }
  run.sequence_length >>= std::min(grade, 62);
  return run.sequence_length >= kShortestContext;
}

// --- the host

bool offload_activations(RunSpec& run, const Q& /*question*/, int /*grade*/) {
  if (!run.trains() || run.training().offload_activations) return false;
  run.training().offload_activations = true;
  return true;
}

/// The optimizer of the question where it is one of torch's, which others than bitsandbytes take.
Optimizer torch_optimizer(const RunSpec& run, const Q& q) {
  const Optimizer asked = q.asked.training().optimizer;
  const Optimizer now = run.training().optimizer;
  if (now < Optimizer::kAdamWBnb) return now;
  return asked < Optimizer::kAdamWBnb ? asked : Optimizer::kAdamWFused;
}

bool page_states(RunSpec& run, const Q& /*question*/, int /*grade*/) {
  if (!trains_in_torch(run) || run.parallel.is_parallel()) return false;
  Optimizer& optimizer = run.training().optimizer;
  if (!is_adamw(optimizer) && optimizer != Optimizer::kAdamW8bit) return false;
  optimizer = Optimizer::kPagedAdamW8bit;
  return true;
}

/// torchao takes gradients as backward makes them: nothing is left to be clipped, and a micro-batch's would replace
/// those of the one before.
bool offload_optimizer(RunSpec& run, const Q& q, int /*grade*/) {
  if (!trains_in_torch(run) || run.training().offload_optimizer) return false;
  Training& training = run.training();
  training.optimizer = torch_optimizer(run, q);
  training.offload_optimizer = true;
  training.offload_gradients = training.accumulation_steps == 1;
  training.max_grad_norm.reset();
  return true;
}

std::string price_of_offloaded_optimizer(const RunSpec& /*run*/, const Q& q) {
  return q.asked.training().max_grad_norm ? "the host's step; gradients are not clipped" : "the host's step";
}

bool offload_by_deepspeed(RunSpec& run, const Q& q, int /*grade*/) {
  if (!trains_in_torch(run) || run.parallel.is_parallel() || is_quantized(run)) return false;
  Training& training = run.training();
  training.optimizer = torch_optimizer(run, q);
  const bool keeps_loop = is_own_job(run);
  if (!keeps_loop) training.loop = Loop::kBare;  // DeepSpeed's own
  if (!keeps_loop && is_autocast(run.precision)) {
    set_precision(run, pure(run.precision == Precision::kAmpBf16 ? DType::kBFloat16 : DType::kFloat16));
    run.weights_dtype.reset();
  }
  Parallel& parallel = run.parallel;
  parallel.layout = DeepSpeedZero{};
  parallel.data_parallel = DataParallel::kDsZero3;
  parallel.offload_states = OffloadTo::kHost;
  parallel.offload_parameters = OffloadTo::kHost;
  return true;
}

bool offload_weights(RunSpec& run, const Q& q, int /*grade*/) {
  if (run.trains() || run.parallel.offload_parameters != OffloadTo::kNowhere) return false;
  run.fine_tuning.quantization = q.asked.fine_tuning.quantization;  // accelerate's hooks move unpacked weights
  run.parallel.offload_parameters = OffloadTo::kHost;
  return true;
}

// --- more cards

constexpr std::int64_t kCardsOfAHost = 8;
constexpr std::int64_t kMostCards = 64;

bool shards(DataParallel mode) {
  return mode != DataParallel::kNone && mode != DataParallel::kDdp && mode != DataParallel::kDp;
}

/// The samples of an optimizer step stay where they can be shared out.
void share_batch(RunSpec& run, std::int64_t times) {
  Training& training = run.training();
  for (; times > 1; times /= 2) {
    if (training.accumulation_steps % 2 == 0) {
      training.accumulation_steps /= 2;
    } else if (run.batch_size % 2 == 0) {
      run.batch_size /= 2;
    }
  }
}

/// By doubles; replicas shard first among the cards that there are.
bool add_cards(RunSpec& run, const Q& q, int grade) {
  if (!run.trains() || !has_neighbours(q.device) || run.fine_tuning.quantization != Quantization::kNone) return false;
  Parallel& parallel = run.parallel;
  const bool splits = parallel.tensor * parallel.context * parallel.pipeline * parallel.expert > 1;
  const bool sharded = shards(parallel.data_parallel);
  const std::optional<DType> held = run.weights_dtype;
  if (!sharded && (splits || !is_torch(run))) return false;
  const int doubles = !sharded && parallel.gpus > 1 ? grade - 1 : grade;
  const std::int64_t most = q.device.link_bytes_per_second > 0 ? kMostCards : kCardsOfAHost;
  if (doubles > 6 || (parallel.gpus << doubles) > std::max(most, q.asked.parallel.gpus)) return false;
  parallel.gpus <<= doubles;
  parallel.nodes = std::max(parallel.nodes, (parallel.gpus + kCardsOfAHost - 1) / kCardsOfAHost);
  share_batch(run, std::int64_t{1} << doubles);
  if (sharded) return true;
  if (std::holds_alternative<OneGpu>(parallel.layout)) parallel.layout = TorchMesh{};
  parallel.data_parallel = DataParallel::kFsdp2;
  TorchMesh& mesh = parallel.torch();
  mesh.ddp_bucket_view = mesh.ddp_static_graph = false;  // DDP's own
  run.training().optimizer = torch_optimizer(run, q);    // bitsandbytes' take no sharded parameters
  // accelerate makes parameters float32 there, whatever they were loaded in (loaded_dtype.cc).
  if (run.uses_trainer() && is_autocast(run.precision)) run.weights_dtype.reset();
  if (run.uses_trainer() && broken_rule(q.model, run) != nullptr) {
    if (is_own_job(run)) return false;
    run.training().loop = Loop::kBare;
    run.weights_dtype = held;
  }
  return true;
}

std::int64_t samples_of(const RunSpec& run) {
  const Parallel& p = run.parallel;
  return run.batch_size * std::max(run.accumulation_steps(), p.micro_batches) * p.gpus;
}

std::string price_of_cards(const RunSpec& run, const Q& q) {
  std::string price = "weights are gathered layer by layer";
  if (q.asked.uses_trainer() && !run.uses_trainer()) price += "; in a plain loop";
  const std::int64_t samples = samples_of(run);
  if (samples != samples_of(q.asked)) price += fmt::format("; {} samples a step, not {}", samples, samples_of(q.asked));
  return price;
}

std::string cards_of(const RunSpec& run) {
  return fmt::format("sharding over {} GPUs ({})", run.parallel.gpus, name_of(run.parallel.data_parallel));
}

bool offload_shards(RunSpec& run, const Q& /*question*/, int /*grade*/) {
  Parallel& parallel = run.parallel;
  if (parallel.data_parallel != DataParallel::kFsdp2 || parallel.offload_parameters != OffloadTo::kNowhere)
    return false;
  parallel.offload_parameters = parallel.offload_states = OffloadTo::kHost;  // all or nothing
  return true;
}

/// Over the cards that there are. FSDP2 shards 4-bit weights of a floating type, not bytes; each card would hold them
/// whole for a while, were they not packed on the host.
bool offload_packed_shards(RunSpec& run, const Q& q, int /*grade*/) {
  const Quantization kind = run.fine_tuning.quantization;
  const bool is_nf4 = kind == Quantization::kNf4 || kind == Quantization::kNf4Double;
  Parallel& parallel = run.parallel;
  if (!is_nf4 || !run.uses_trainer() || !std::holds_alternative<TorchMesh>(parallel.layout)) return false;
  if (run.precision != Precision::kAmpBf16 || parallel.offload_parameters != OffloadTo::kNowhere) return false;
  parallel.data_parallel = DataParallel::kFsdp2;
  parallel.torch().ddp_bucket_view = parallel.torch().ddp_static_graph = false;  // DDP's own
  parallel.offload_parameters = parallel.offload_states = OffloadTo::kHost;
  run.fine_tuning.quant_storage = DType::kBFloat16;
  run.training().optimizer = torch_optimizer(run, q);
  return true;
}

using T = RunSpec;
constexpr Technique kTechniques[] = {
    {.name = "float16 in the place of bfloat16",
     .price = "the card has no bfloat16; float16 ends at 65,504",
     .apply = replace_bfloat16,
     .required = true},
    {.name = "frozen weights in {}",
     .price = "none: autocast computes in it anyway",
     .apply = store_frozen_in_half,
     .figure = weights_of},
    {.name = "vLLM's longest sequence as long as --seq",
     .price = "none: none is longer",
     .apply = shorten_vllm,
     .required = true},  // else it may not start with any share
    {.name = "{}", .price = "fewer sequences at a time", .apply = divide_share, .figure = share_of, .graded = true},
    {.name = "vLLM sleeps while the model trains",
     .price = "its weights are mapped and sent anew in each step",
     .apply = put_vllm_to_sleep},
    {.name = "fused loss and kernels (Liger)", .price = "none: faster", .apply = fuse_loss},
    {.name = "loss without logits (cut cross entropy)",
     .price = "the head's product again in backward",
     .apply = cut_loss},
    {.name = "{}", .price = "", .apply = divide_batch, .figure = batch_of, .beside = price_of_batch, .graded = true},
    {.name = "selective checkpointing",
     .price = "some of forward again, in backward",
     .apply = [](T& run, const Q&, int) { return checkpoint(run, Checkpointing::kSelective); }},
    {.name = "checkpointing of every layer",
     .price = "forward again in backward: up to a third more time",
     .apply = [](T& run, const Q&, int) { return checkpoint(run, Checkpointing::kFull); }},

    {.name = "mixed precision (autocast, {})",
     .price = "products in 16 bits; faster on tensor cores",
     .loss = Loss::kDigits,
     .apply = mix_precision,
     .figure = autocast_of},
    {.name = "weights in {}",
     .price = "",
     .loss = Loss::kDigits,
     .apply = store_weights_in_half,
     .figure = weights_of,
     .beside = price_of_half},
    {.name = "8-bit optimizer (bitsandbytes)",
     .price = "states are rounded to 8 bits",
     .loss = Loss::kDigits,
     .apply = round_states},
    {.name = "the frozen network in float8",
     .price = "weights are rounded to 8 bits",
     .loss = Loss::kDigits,
     .apply = cast_denoiser},
    {.name = "weights in 8 bits (bitsandbytes)",
     .price = "weights are rounded; slower products",
     .loss = Loss::kDigits,
     .apply = [](T& run, const Q& q, int) { return pack_weights(run, q, Quantization::kInt8); }},
    {.name = "weights in 4 bits (NF4)",
     .price = "weights are rounded to 4 bits",
     .loss = Loss::kDigits,
     .apply = [](T& run, const Q& q, int) { return pack_weights(run, q, Quantization::kNf4Double); }},
    {.name = "weights in 4 bits (AWQ)",
     .price = "needs a checkpoint that was quantised so",
     .loss = Loss::kDigits,
     .apply = [](T& run, const Q& q, int) { return pack_weights(run, q, Quantization::kAwq4); }},

    {.name = "a prompt of {} tokens",
     .price = "less is read",
     .loss = Loss::kScope,
     .apply = shorten,
     .figure = [](const T& run) { return fmt::format("{}", run.sequence_length); },
     .graded = true},
    {.name = "LoRA, rank 16",
     .price = "only adapters are trained",
     .loss = Loss::kScope,
     .apply = [](T& run, const Q& q, int) { return adapt(run, q); },
     .to = Branch::kLora},
    {.name = "QLoRA: frozen weights in 4 bits",
     .price = "only adapters are trained, on rounded weights; slower products",
     .loss = Loss::kScope,
     .apply = [](T& run, const Q& q, int) { return adapt_packed(run, q); },
     .to = Branch::kQlora},

    {.name = "{} blocks wait on the host",
     .price = "their weights over PCIe, twice each way in a step",
     .loss = Loss::kHost,
     .apply = swap_blocks,
     .figure = [](const T& run) { return fmt::format("{}", run.fine_tuning.blocks_to_swap); },
     .graded = true},
    {.name = "activations on the host",
     .price = "copies over PCIe",
     .loss = Loss::kHost,
     .apply = offload_activations,
     .from = Branch::kHost,
     .to = Branch::kHost},
    {.name = "QLoRA's activations on the host",
     .price = "copies over PCIe",
     .loss = Loss::kHost,
     .apply = offload_activations,
     .from = Branch::kQlora,
     .to = Branch::kQlora},
    {.name = "8-bit states paged to the host",
     .price = "states are rounded; copies over PCIe where the card is full",
     .loss = Loss::kHost,
     .apply = page_states,
     .from = Branch::kHost,
     .to = Branch::kHost},
    {.name = "optimizer on the host (torchao)",
     .price = "gradients and weights over PCIe",
     .loss = Loss::kHost,
     .apply = offload_optimizer,
     .beside = price_of_offloaded_optimizer,
     .from = Branch::kHost,
     .to = Branch::kHost},
    {.name = "ZeRO-3 on the host (DeepSpeed)",
     .price = "all weights over PCIe, twice in a micro-batch; the host's step",
     .loss = Loss::kHost,
     .apply = offload_by_deepspeed,
     .to = Branch::kHost},
    {.name = "weights on the host (accelerate)",
     .price = "all weights over PCIe in each call",
     .loss = Loss::kHost,
     .apply = offload_weights,
     .to = Branch::kHost},

    {.name = "{}",
     .price = "",
     .loss = Loss::kCards,
     .apply = add_cards,
     .figure = cards_of,
     .beside = price_of_cards,
     .to = Branch::kShards,
     .graded = true},
    {.name = "{} beside LoRA",
     .price = "",
     .loss = Loss::kCards,
     .apply = add_cards,
     .figure = cards_of,
     .beside = price_of_cards,
     .from = Branch::kLora,
     .to = Branch::kLora,
     .graded = true},
    {.name = "shards on the host (FSDP2)",
     .price = "all weights and gradients over PCIe; the host's step",
     .loss = Loss::kCards,
     .apply = offload_shards,
     .from = Branch::kShards,
     .to = Branch::kShards},
    {.name = "4-bit shards on the host (FSDP2)",
     .price = "all weights over PCIe; the host's step",
     .loss = Loss::kCards,
     .apply = offload_packed_shards,
     .to = Branch::kShards},
    {.name = "QLoRA's shards on the host (FSDP2)",
     .price = "all weights over PCIe; the host's step",
     .loss = Loss::kCards,
     .apply = offload_packed_shards,
     .from = Branch::kQlora,
     .to = Branch::kQlora},
};

}  // namespace

std::span<const Technique> techniques() { return kTechniques; }

bool takes_bfloat16(const DeviceSpec& device) {
  return architecture_of(device) >= CudaArchitecture::kAmpere || (!is_cuda(device) && device.bf16_flops_per_second > 0);
}

bool has_batch_norm(const ModelSpec& model) {
  if (const auto* custom = model.architecture.get_if<CustomSpec>()) {
    bool found = false;
    custom::for_each_layer(custom->layers, [&](const custom::Layer& layer) {
      const auto* norm = std::get_if<custom::NormLayer>(&layer.kind);
      found = found || (norm != nullptr && norm->kind == custom::NormKind::kBatch);
    });
    return found;
  }
  const auto* vision = model.architecture.get_if<TorchvisionSpec>();
  if (vision == nullptr) return false;
  const std::string_view name = vision->architecture;
  if (name.starts_with("vgg")) return name.ends_with("_bn");
  return !name.starts_with("convnext") && !name.starts_with("swin");
}

}  // namespace memcalc
