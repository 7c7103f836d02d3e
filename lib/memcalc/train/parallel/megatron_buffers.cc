#include "memcalc/train/parallel/megatron_buffers.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "memcalc/symbolic/aten.h"

namespace memcalc {

namespace {

constexpr Operator kParameterBuffer{"megatron::param_data"}, kGradientBuffer{"megatron::grad_data"};
constexpr Operator kReduce{"c10d::_reduce_scatter_base_"}, kGather{"c10d::_allgather_base_"};
constexpr Operator kStep{"transformer_engine::multi_tensor_adam"},
    kShardNorm{"transformer_engine::multi_tensor_l2norm"}, kShardScale{"transformer_engine::multi_tensor_scale"};

constexpr std::int64_t kParameterAlignment = 64;  // elements: 128 bytes
constexpr std::int64_t kBucketAlignment = 128;

/// emerging_optimizers.py, _is_nonlinear_or_embedding, is not so.
bool is_muons(const Parameter& parameter) {
  const std::string& name = parameter.name;
  return parameter.tensor.rank() == 2 && name.find("word_embeddings") == std::string::npos &&
         name.find("output_layer") == std::string::npos;
}

/// main_grad: bfloat16 gradients are summed in float32 (arguments.py: accumulate_allreduce_grads_in_fp32).
DType main_gradient_dtype(DType of_parameters) {
  return of_parameters == DType::kBFloat16 ? DType::kFloat32 : of_parameters;
}

bool is_expert(const Parameter& parameter) { return parameter.name.find(".experts.") != std::string::npos; }

}  // namespace

BufferLayout lay_out_buffer(std::span<const std::int64_t> elements, std::int64_t group, bool distributed_optimizer,
                            std::int64_t bucket_elements) {
  BufferLayout layout;
  layout.parameters.resize(elements.size());
  const std::int64_t divisor = distributed_optimizer ? std::lcm(group, kBucketAlignment) : 1;
  std::int64_t end = 0, bucket_begin = 0;
  for (std::size_t i = elements.size(); i-- > 0;) {
    const std::int64_t begin = distributed_optimizer ? round_up(end, kParameterAlignment) : end;
    end = checked_add(begin, elements[i]);
    layout.parameters[i] = {begin, end};
    if (end - bucket_begin >= bucket_elements || i == 0) {
      end = round_up(end, divisor);
      layout.buckets.push_back({bucket_begin, end});
      bucket_begin = end;
    }
  }
  layout.elements = end;
  return layout;
}

std::int64_t elements_of_rank(const BufferLayout& layout, const BufferRange& parameter, std::int64_t group,
                              std::int64_t rank) {
  std::int64_t held = 0;
  for (const BufferRange& bucket : layout.buckets) {
    const std::int64_t piece = (bucket.end - bucket.begin) / group;
    const std::int64_t begin = std::max(parameter.begin, bucket.begin + rank * piece);
    const std::int64_t end = std::min(parameter.end, bucket.begin + (rank + 1) * piece);
    held += std::max<std::int64_t>(end - begin, 0);
  }
  return held;
}

std::int64_t replicas(const MegatronConfig& config, bool expert) {
  const Parallel& p = config.parallel;
  return expert ? p.gpus / (config.expert_tensor * p.expert * p.pipeline) : p.gpus / (p.tensor * p.pipeline);
}

MegatronOptimizer::MegatronOptimizer(Tape& tape, const MegatronConfig& config, DType dtype, bool muon)
    : tape_(tape),
      config_(config),
      dtype_(dtype),
      distributed_(config.parallel.data_parallel == DataParallel::kMegatronDist),
      muon_(muon) {}

void MegatronOptimizer::wrap(std::span<const Parameter> parameters) {
  const DType gradient_dtype = main_gradient_dtype(dtype_);
  for (const bool expert : {false, true}) {
    std::vector<const Parameter*> group;
    std::vector<std::int64_t> elements;
    for (const Parameter& each : parameters) {
      if (is_expert(each) != expert) continue;
      group.push_back(&each);
      elements.push_back(each.tensor.elements());
    }
    if (group.empty()) continue;
    const std::int64_t ranks = replicas(config_, expert);
    const std::int64_t bucket = config_.options.overlaps_gradient_reduce
                                    ? std::max<std::int64_t>(40'000'000, 1'000'000 * ranks)
                                    : std::numeric_limits<std::int64_t>::max();
    const BufferLayout layout = lay_out_buffer(elements, ranks, distributed_, bucket);
    Tensor values;
    if (distributed_) values = tape_.empty({layout.elements}, dtype_, kParameterBuffer, Category::kWeights);
    buffers_.push_back(tape_.empty({layout.elements}, gradient_dtype, kGradientBuffer, Category::kGradients));
    gradients_ += buffers_.back().bytes();
    reduced_.push_back({buffers_.back().bytes(), values.defined() ? values.bytes() : 0, ranks, expert});
    if (values.defined()) weights_ += values.bytes();
    for (std::size_t i = group.size(); i-- > 0;) {
      if (!distributed_) weights_ += group[i]->tensor.bytes();
      const Tensor& parameter = group[i]->tensor;
      if (distributed_) {  // param.data = a part of the buffer; the old storage dies
        Tensor part = tape_.alias(values, parameter.shape(), parameter.strides(), false);
        std::swap(parameter.impl()->block, part.impl()->block);
      }
      const std::int64_t held =
          distributed_ ? elements_of_rank(layout, layout.parameters[i], ranks, 0) : parameter.elements();
      if (held > 0) shards_.push_back({.elements = held, .has_square = !(muon_ && is_muons(*group[i]))});
    }
    if (values.defined()) buffers_.push_back(std::move(values));
  }
}

void MegatronOptimizer::construct() {
  if (dtype_ == DType::kFloat32) return;  // the parameters, or views of them, are what Adam updates
  for (Shard& shard : shards_) {
    const Tensor copy = tape_.empty({shard.elements}, dtype_, aten::kClone);
    shard.main = tape_.empty({shard.elements}, DType::kFloat32, aten::kToCopy, Category::kOptimizerStates);
  }
}

void MegatronOptimizer::step() {
  // main_param.grad = main_grad.float(): a copy only where gradients are not float32.
  std::vector<Tensor> gradients;
  if (dtype_ == DType::kFloat16) {
    for (const Shard& shard : shards_)
      gradients.push_back(tape_.empty({shard.elements}, DType::kFloat32, aten::kToCopy));
  }
  // With experts there are two optimizers, the dense parameters' and the experts', and each gathers all buffers of its
  // model chunks when it has stepped (optimizer.py, ChainedOptimizer; distrib_optimizer.py, step_with_ready_grads).
  const int gathers =
      std::any_of(reduced_.begin(), reduced_.end(), [](const Reduced& each) { return each.experts; }) ? 2 : 1;
  for (const Reduced& each : reduced_) {
    pass_over_buffer(each);
    if (each.ranks == 1) continue;
    const Collective kind = distributed_ ? Collective::kReduceScatter : Collective::kAllReduce;
    // Data-parallel ranks are the slowest to change within a stage (parallel_state.py: tp-cp-ep-dp-pp).
    const std::int64_t apart = config_.parallel.gpus / config_.parallel.pipeline / each.ranks;
    const auto between_replicas = [&](const Operator& op, Collective collective, Bytes bytes) {
      tape_.kernels.collective(op, collective, dtype_, bytes, each.ranks, apart);
    };
    between_replicas(kReduce, kind, each.gradients);
    for (int i = 0; distributed_ && i < gathers; ++i) between_replicas(kGather, Collective::kAllGather, each.values);
  }
  double elements = 0;
  for (Shard& shard : shards_) {
    elements += static_cast<double>(shard.elements);
    if (shard.exp_avg.defined()) continue;
    shard.exp_avg = tape_.empty({shard.elements}, DType::kFloat32, aten::kZerosLike, Category::kOptimizerStates);
    if (!shard.has_square) continue;
    shard.exp_avg_sq = tape_.empty({shard.elements}, DType::kFloat32, aten::kZerosLike, Category::kOptimizerStates);
  }
  pass_over_share(elements);
}

void MegatronOptimizer::pass_over_buffer(const Reduced& buffer) {
  const DType dtype = main_gradient_dtype(dtype_);
  const auto bytes = static_cast<double>(buffer.gradients);
  const double elements = bytes / static_cast<double>(size_of(dtype));
  const auto pass = [&](const Operator& op, double operations, double moved) {
    tape_.kernels.add(op, OperatorClass::kOptimizer, dtype, operations * elements, moved, KernelKind::kVectorized,
                      elements);
  };
  pass(aten::kZero, 0, bytes);  // zero_grad_buffer(), when a step begins
  pass(aten::kNorm, 2, bytes);  // check_grads(): check_for_nan_in_loss_and_grad is the default
  // *= gradient_scaling_factor: one over the data-parallel ranks, of experts, too, which fewer hold
  // (distributed_data_parallel.py).
  if (replicas(config_, false) > 1) pass(aten::kMul, 1, 2 * bytes);
}

void MegatronOptimizer::pass_over_share(double elements) {
  const auto pass = [&](const Operator& op, double operations, double moved) {
    tape_.kernels.add(op, OperatorClass::kOptimizer, DType::kFloat32, operations * elements, moved * elements,
                      KernelKind::kMultiTensor, elements);
  };
  if (dtype_ == DType::kFloat16) {
    pass(aten::kToCopy, 0, 6);
    pass(aten::kAmpForeachNonFiniteCheckAndUnscale, 1, 8);
  }
  pass(kShardNorm, 2, 4);
  tape_.kernels.synchronize(kShardNorm);  // get_grad_norm_fp32(): total_norm.item()
  pass(kShardScale, 1, 8);                // --clip-grad 1.0 is the default; only where the norm is larger
  pass(kStep, 14, 28);
  if (dtype_ != DType::kFloat32) pass(aten::kCopy, 0, 6);  // _copy_main_params_to_model_params()
}

std::vector<HeldRow> MegatronOptimizer::held() const {
  Bytes states = 0;
  const Bytes of_main = dtype_ == DType::kFloat32 ? 0 : 4;
  for (const Shard& shard : shards_) {
    states = checked_add(states, checked_multiply(of_main + (shard.has_square ? 8 : 4), shard.elements));
  }
  const std::string gradient(name_of(main_gradient_dtype(dtype_)));
  return {{"weights", weights_,
           "each parameter in " + std::string(name_of(dtype_)) +
               (distributed_ ? ", in one buffer padded for the data-parallel ranks" : "")},
          {"gradients", gradients_, "main_grad in " + gradient + ", one contiguous buffer for the whole run"},
          {"optimizer states", states,
           std::string(dtype_ == DType::kFloat32 ? "two float32 moments" : "a float32 main parameter and two moments") +
               (muon_ ? ", of matrices one" : "") + (distributed_ ? ", of this data-parallel rank's share" : "")}};
}

}  // namespace memcalc
