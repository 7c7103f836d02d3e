// MIRRORS(transformers, "integrations/deepspeed.py", "5.17.0")
#include "memcalc/spec/parallel.h"

#include <fmt/core.h>

#include <algorithm>

#include "memcalc/base/bytes.h"
#include "memcalc/base/error.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/run_options.h"

namespace memcalc {
namespace {

/// GPUs that hold several copies of the model; `none` was asked for, so that nothing would keep the copies alike. This
/// looks at what was given, which a resolved run does not tell, and is therefore no row of rules_sizes.cc.
void refuse_copies_that_share_nothing(const Parallel& p, std::int64_t ranks) {
  if (p.framework() == Framework::kDeepSpeed) {
    throw Error(ErrorCode::kUsage,
                "--parallel none: DeepSpeed without ZeRO (its stage 0) is not modelled; accepted: --parallel ds-zero1, "
                "ds-zero2 or ds-zero3",
                "--parallel", "parallel-none-of-deepspeed");
  }
  if (p.gpus <= ranks || p.gpus % ranks != 0) return;
  const bool megatron = p.framework() == Framework::kMegatron;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("--parallel none: {} GPUs hold {} copies of the model, which drift apart where nothing averages "
                  "their gradients; accepted: --parallel {}, or --gpus {}",
                  p.gpus, p.gpus / ranks, megatron ? "ddp (Megatron's own), megatron-dist" : "ddp, zero1, fsdp1, fsdp2",
                  ranks),
      "--parallel", "parallel-none-with-copies");
}

/// Of what was asked of each framework, that of the one whose modules run. What was asked of another one is refused
/// here or by its rows (check_effect): a resolved run does not have it.
Layout layout_of(const RunOptions& options) {
  switch (framework_asked(options)) {
    case Framework::kDeepSpeed: return options.deepspeed;
    case Framework::kMegatron: return options.megatron;
    case Framework::kTorch: break;
  }
  if (options.deepspeed != DeepSpeedZero{} || options.deepspeed_sizes != DeepSpeedSizes{}) {
    throw Error(ErrorCode::kUsage,
                "--deepspeed configures DeepSpeed, and the framework is torch; accepted: --parallel ds-zero1, ds-zero2 "
                "or ds-zero3",
                "--deepspeed", "deepspeed-options-of-deepspeed");
  }
  return options.torch;
}

}  // namespace

Framework framework_of(DataParallel mode) {
  switch (mode) {
    case DataParallel::kDsZero1:
    case DataParallel::kDsZero2:
    case DataParallel::kDsZero3: return Framework::kDeepSpeed;
    case DataParallel::kMegatronDist: return Framework::kMegatron;
    default: return Framework::kTorch;
  }
}

std::int64_t model_ranks(const Parallel& p) {
  const std::int64_t experts = p.framework() == Framework::kTorch ? p.expert : 1;
  return checked_multiply(checked_multiply(checked_multiply(p.tensor, p.context), p.pipeline), experts);
}

std::string product_of(const Parallel& p) {
  std::string text;
  const auto add = [&](const char* name, std::int64_t size) {
    if (size > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name, size);
  };
  add("tp", p.tensor);
  add("cp", p.context);
  add("pp", p.pipeline);
  if (p.framework() == Framework::kTorch) add("ep", p.expert);
  return text + " = " + std::to_string(model_ranks(p));
}

// At least 1 below: sizes below it are refused, but rules may be looked at in any order.
std::int64_t data_parallel_size(const Parallel& p) { return p.gpus / std::max<std::int64_t>(model_ranks(p), 1); }

std::int64_t sharing_ranks(const Parallel& p) {
  return data_parallel_size(p) * (p.framework() == Framework::kMegatron ? 1 : p.context);
}

std::int64_t micro_batches_of(const Parallel& p) { return p.micro_batches > 0 ? p.micro_batches : p.pipeline; }

Framework framework_asked(const RunOptions& options) {
  return options.framework.value_or(framework_of(options.parallel.data_parallel));
}

namespace {

/// config.hidden_size, under the name that the family gives it; nothing where the configuration has none.
std::optional<std::int64_t> hidden_size_of(const ModelSpec& model) {
  if (const auto* recorded = model.architecture.get_if<ProgramSpec>()) return recorded->program->hidden_size;
  return model.architecture.dimensions().hidden_size;
}

}  // namespace

// transformers/integrations/deepspeed.py, trainer_config_finalize.
void resolve_zero_sizes(const ModelSpec& model, const DeepSpeedSizes& asked, bool in_trainer, Parallel& parallel,
                        std::vector<std::string>& assumptions) {
  auto* zero = std::get_if<DeepSpeedZero>(&parallel.layout);
  if (zero == nullptr) return;
  if (const std::optional<std::int64_t> width = hidden_size_of(model); in_trainer && width) {
    const std::int64_t square = checked_multiply(*width, *width);
    zero->reduce_bucket_size = square;
    zero->prefetch_bucket_size = static_cast<std::int64_t>(0.9 * static_cast<double>(square));
    zero->param_persistence_threshold = 10 * *width;
    const bool all_given = asked.reduce_bucket_size && asked.prefetch_bucket_size && asked.param_persistence_threshold;
    if (!all_given) {
      assumptions.push_back(fmt::format(
          "DeepSpeed's bucket sizes are \"auto\", which the Trainer makes of the model's width {} (--deepspeed)",
          *width));
    }
  } else if (in_trainer && is_program(model)) {
    assumptions.push_back(
        "the program does not say the model's width, of which the Trainer makes DeepSpeed's \"auto\" bucket sizes: "
        "DeepSpeed's own are taken (--deepspeed)");
  }
  zero->reduce_bucket_size = asked.reduce_bucket_size.value_or(zero->reduce_bucket_size);
  zero->prefetch_bucket_size = asked.prefetch_bucket_size.value_or(zero->prefetch_bucket_size);
  zero->param_persistence_threshold = asked.param_persistence_threshold.value_or(zero->param_persistence_threshold);
  zero->prefetch_bucket_size_of_reference =
      asked.prefetch_bucket_size.value_or(zero->prefetch_bucket_size_of_reference);
  zero->param_persistence_threshold_of_reference =
      asked.param_persistence_threshold.value_or(zero->param_persistence_threshold_of_reference);
}

Parallel resolve_parallel(const RunOptions& options, std::vector<std::string>& assumptions) {
  Parallel p = options.parallel;
  p.layout = layout_of(options);
  if (p.schedule == PipelineSchedule::kZeroBubbleV && p.virtual_stages == 1) p.virtual_stages = 2;
  const std::int64_t ranks = std::max<std::int64_t>(model_ranks(p), 1);
  p.gpus = options.gpus.value_or(ranks);
  if (p.gpus == 1 && p.framework() == Framework::kTorch) p.layout = OneGpu{};
  if (!options.gpus && ranks > 1) assumptions.push_back(fmt::format("gpus {}: {} (--gpus)", ranks, product_of(p)));
  if (p.data_parallel == DataParallel::kNone) {
    if (options.data_parallel_given) refuse_copies_that_share_nothing(p, ranks);
    if (p.framework() == Framework::kDeepSpeed) {
      p.data_parallel = DataParallel::kDsZero2;
      assumptions.emplace_back("DeepSpeed's ZeRO stage 2 (--parallel)");
    } else if (p.gpus > ranks && p.gpus % ranks == 0) {
      p.data_parallel = DataParallel::kDdp;
      assumptions.push_back(
          fmt::format("{} data-parallel ranks hold a whole copy each: {}DistributedDataParallel "
                      "(--parallel)",
                      p.gpus / ranks, p.framework() == Framework::kMegatron ? "Megatron's own " : ""));
    }
  }
  if (p.data_parallel == DataParallel::kFsdp2 && p.offload_parameters == OffloadTo::kHost &&
      p.offload_states == OffloadTo::kNowhere && p.gpus > 1) {
    p.offload_states = OffloadTo::kHost;
    assumptions.emplace_back("FSDP2's CPUOffloadPolicy keeps gradients and optimizer states on the host, too");
  }
  return p;
}

}  // namespace memcalc
