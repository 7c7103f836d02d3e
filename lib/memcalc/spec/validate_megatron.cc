#include "memcalc/spec/validate_megatron.h"

#include <string>
#include <variant>

#include "memcalc/base/error.h"
#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kUsage, message); }

std::string text(std::int64_t value) { return std::to_string(value); }

struct Sizes {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t key_value_heads = 0;
  std::int64_t experts = 0;
};

Sizes sizes_of(const ModelSpec& model) {
  return std::visit(
      [](const auto& spec) {
        Sizes sizes;
        if constexpr (requires { spec.num_key_value_heads; }) {
          sizes = {spec.num_hidden_layers, spec.num_attention_heads, spec.num_key_value_heads, 0};
        } else if constexpr (requires { spec.n_layer; }) {
          sizes = {spec.n_layer, spec.n_head, spec.n_head, 0};
        }
        if constexpr (requires { spec.experts; }) sizes.experts = spec.experts.count;
        if constexpr (requires { spec.latent; }) sizes.key_value_heads = spec.num_attention_heads;
        return sizes;
      },
      model.architecture);
}

void check_run(const RunSpec& run) {
  const auto only = [](const std::string& what, const std::string& accepted) {
    refuse("framework megatron: " + what + " is not one of its; accepted: " + accepted);
  };
  if (run.task != Task::kCausalLm) only("task " + std::string(name_of(run.task)), "--task causal");
  if (run.precision != Precision::kBf16 && run.precision != Precision::kFp16 && run.precision != Precision::kFp32) {
    only("precision " + std::string(name_of(run.precision)), "bf16 (with float32 main parameters), fp16, fp32");
  }
  switch (run.optimizer) {
    case Optimizer::kAdamWForeach:
    case Optimizer::kAdamWFused:
    case Optimizer::kAdam: break;
    default: only("optimizer " + std::string(name_of(run.optimizer)), "adamw (TransformerEngine's FusedAdam)");
  }
  if (run.attention != Attention::kSdpa) {
    only("attn " + std::string(name_of(run.attention)), "--megatron attention-backend=unfused or fused");
  }
  if (run.checkpoint_every != 1) {
    only("checkpointing every-N", "--checkpointing full with --megatron recompute-method=block,recompute-num-layers=N");
  }
  const FineTuning& tuning = run.fine_tuning;
  if (tuning.lora || tuning.quantization != Quantization::kNone || !tuning.frozen.empty() || tuning.liger) {
    only("fine-tuning (LoRA, quantised or frozen parts, Liger)", "all parameters trained");
  }
  if (run.inference) refuse("framework megatron: inference is not modelled; accepted: training");
  if (run.padding) only("padding", "sequences of full length");
  if (run.use_cache) only("a KV cache", "training without one");
  if (run.compile) only("compile", "Megatron's own compiled parts, always");
  if (run.offload_activations || run.offload_optimizer) refuse("framework megatron: offload is not modelled");
}

void check_data_parallel(const Parallel& p) {
  switch (p.data_parallel) {
    case DataParallel::kNone:
    case DataParallel::kDdp:
    case DataParallel::kMegatronDist: break;
    default:
      refuse("framework megatron: parallel " + std::string(name_of(p.data_parallel)) +
             " is not modelled; accepted: megatron-dist (the distributed optimizer), ddp (Megatron's own)");
  }
  if (p.offload_states != OffloadTo::kNowhere || p.offload_parameters != OffloadTo::kNowhere) {
    refuse("framework megatron: offload of states is not modelled");
  }
}

/// Arguments that Megatron-core takes only beside others (model_parallel_config.py, dot_product_attention.py), or that
/// are modelled only so.
void check_options(const RunSpec& run) {
  const Parallel& p = run.parallel;
  const MegatronOptions& o = p.megatron;
  const std::string name = "--megatron ";
  if (o.defers_head_gradient && p.pipeline == 1) {
    refuse(name + "defer-embedding-wgrad-compute: only a pipeline has a phase to put it off to; give --pp");
  }
  if (o.defers_head_gradient && !o.fuses_weight_gradients) {
    refuse(name + "defer-embedding-wgrad-compute: cannot be used with no-gradient-accumulation-fusion");
  }
  if (o.deferral_limit > 0 && !o.defers_head_gradient) {
    refuse(name + "wgrad-deferral-limit: give defer-embedding-wgrad-compute");
  }
  if (o.scales_by_layer && o.attention != MegatronAttention::kLocal) {
    refuse(name + "apply-query-key-layer-scaling: modelled with transformer-impl=local");
  }
  if (o.squared_relu && o.swiglu.value_or(false)) refuse(name + "squared-relu: cannot be used with swiglu");
  if (!o.fuses_rope && p.context > 1) refuse(name + "no-rope-fusion beside --cp is not modelled");
  if ((o.counts_embedding || o.counts_loss) && (o.first_stage_layers > 0 || o.last_stage_layers > 0)) {
    refuse(name + "account-for-embedding-in-pipeline-split, account-for-loss-in-pipeline-split: cannot be used with " +
           "decoder-first-pipeline-num-layers or decoder-last-pipeline-num-layers");
  }
  const std::int64_t group = o.micro_batch_group;
  if (group == 0) return;
  if (p.virtual_stages == 1) {
    refuse(name + "microbatch-group-size-per-virtual-pipeline-stage: give --virtual-stages, 2 or more");
  }
  const std::int64_t micro_batches = p.micro_batches > 0 ? p.micro_batches : p.pipeline;
  const std::int64_t last = micro_batches % group;
  if (group < p.pipeline || group > micro_batches || (last > 0 && last < p.pipeline)) {
    refuse(name + "microbatch-group-size-per-virtual-pipeline-stage: expected " + text(p.pipeline) + " (pp) to " +
           text(micro_batches) + " (micro-batches), the last group no smaller than pp, found " + text(group));
  }
}

void check_pipeline(const Sizes& sizes, const Parallel& p) {
  if (p.schedule != PipelineSchedule::kOneForwardOneBackward && p.schedule != PipelineSchedule::kInterleaved) {
    refuse("schedule " + std::string(name_of(p.schedule)) + ": Megatron-core has 1f1b and interleaved");
  }
  const std::int64_t first = p.megatron.first_stage_layers, last = p.megatron.last_stage_layers;
  const std::int64_t even_stages = p.pipeline - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  const std::int64_t chunks = even_stages * p.virtual_stages;
  const std::int64_t counted = (p.megatron.counts_embedding ? 1 : 0) + (p.megatron.counts_loss ? 1 : 0);
  const std::int64_t layers = sizes.layers + counted - first - last;
  if ((first > 0 || last > 0) && (p.pipeline == 1 || p.virtual_stages > 1)) {
    refuse("layers of the first or last stage: modelled for several stages without virtual ones");
  }
  if (layers < 0 || (chunks > 0 && layers % chunks != 0) || (chunks == 0 && layers != 0)) {
    refuse("pp " + text(p.pipeline) + (p.virtual_stages > 1 ? " x " + text(p.virtual_stages) + " virtual stages" : "") +
           " does not divide the " + text(layers) + " layers" +
           (counted > 0 ? " (with embedding and loss, as counted)" : "") + " that are to be spread evenly");
  }
  if (p.virtual_stages == 1) {
    if (p.schedule == PipelineSchedule::kInterleaved) {
      refuse("schedule interleaved: give --virtual-stages, 2 or more");
    }
    return;
  }
  if (p.pipeline == 1) refuse("virtual stages: only a pipeline has them; give --pp");
  const std::int64_t micro_batches = p.micro_batches > 0 ? p.micro_batches : p.pipeline;
  if (p.megatron.micro_batch_group == 0 && micro_batches % p.pipeline != 0) {
    refuse("micro-batches " + text(micro_batches) + ": with virtual stages a multiple of pp, " + text(p.pipeline));
  }
}

void check_sequence(const Sizes& sizes, const RunSpec& run) {
  const Parallel& p = run.parallel;
  const std::int64_t pieces = p.context > 1 ? 2 * p.context : 1;
  const std::int64_t of_sequence = pieces * (p.sequence_parallel ? p.tensor : 1);
  if (run.sequence_length % of_sequence != 0) {
    refuse("sequence length " + text(run.sequence_length) + ": expected a multiple of " + text(of_sequence) +
           " (2 x cp for the causal mask's balance, times tp under sequence parallelism)");
  }
  if (p.context > 1 && p.context_type == ContextParallel::kUlysses &&
      sizes.key_value_heads / p.tensor % p.context != 0) {
    refuse("cp " + text(p.context) + " by ulysses: does not divide the " + text(sizes.key_value_heads / p.tensor) +
           " key/value heads of a tensor-parallel rank; accepted: ring, all-gather");
  }
}

void check_experts(const Sizes& sizes, const Parallel& p) {
  const std::int64_t expert_tensor = p.megatron.expert_tensor > 0 ? p.megatron.expert_tensor : p.tensor;
  if (sizes.experts == 0) {
    if (p.expert > 1) refuse("ep " + text(p.expert) + ": the model has no experts");
    return;
  }
  if (sizes.experts % p.expert != 0) {
    refuse("ep " + text(p.expert) + " does not divide the " + text(sizes.experts) + " experts");
  }
  if (p.tensor > 1 && !p.sequence_parallel) {
    refuse("tp " + text(p.tensor) + " with experts: Megatron-core asks for sequence parallelism; give --sp");
  }
  const std::int64_t ranks = expert_tensor * p.expert * p.pipeline;
  if (p.gpus % ranks != 0) {
    refuse("gpus " + text(p.gpus) + ": expert tensor " + text(expert_tensor) + " x ep " + text(p.expert) + " x pp " +
           text(p.pipeline) + " = " + text(ranks) + " does not divide it");
  }
}

}  // namespace

void check_megatron(const ModelSpec& model, const RunSpec& run) {
  const Sizes sizes = sizes_of(model);
  const Parallel& p = run.parallel;
  if (sizes.layers == 0) {
    refuse(model.model_type +
           " is not built by Megatron-core's GPT model; accepted: GPT-2, LLaMA, Mistral, Qwen2, "
           "Qwen3, Mixtral, Qwen3-MoE, DeepSeek-V2, DeepSeek-V3");
  }
  check_run(run);
  check_data_parallel(p);
  check_options(run);
  for (const auto& [count, what] :
       {std::pair{sizes.heads, "attention heads"}, std::pair{sizes.key_value_heads, "key/value heads"}}) {
    if (count % p.tensor != 0) {
      refuse("tp " + text(p.tensor) + " does not divide the " + text(count) + " " + what + " of " + model.name +
             ": a head cannot be split");
    }
  }
  check_pipeline(sizes, p);
  check_sequence(sizes, run);
  check_experts(sizes, p);
}

}  // namespace memcalc
