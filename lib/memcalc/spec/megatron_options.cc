#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/megatron_spec.h"
#include "memcalc/spec/names.h"

namespace memcalc {

namespace {

[[noreturn]] void refuse(std::string_view name, std::string_view found, std::string_view accepted) {
  throw Error(ErrorCode::kUsage, "--megatron " + std::string(name) + ": expected " + std::string(accepted) +
                                     ", found " +
                                     (found.empty() ? std::string("nothing") : "\"" + one_line(found) + "\""));
}

template <typename Number>
Number number(std::string_view name, std::string_view value, std::string_view accepted, Number least) {
  Number result{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc() || end != value.data() + value.size() || !(result >= least)) refuse(name, value, accepted);
  return result;
}

constexpr std::int64_t kMost = std::int64_t{1} << 20;

std::int64_t whole(std::string_view name, std::string_view value) {
  const auto result = number<std::int64_t>(name, value, "a whole number from 1", 1);
  if (result > kMost) refuse(name, value, "a whole number up to " + std::to_string(kMost));
  return result;
}

double probability(std::string_view name, std::string_view value) {
  const double result = number<double>(name, value, "a number from 0 to below 1", 0.0);
  if (result >= 1) refuse(name, value, "a number from 0 to below 1");
  return result;
}

/// The first of two names or the second.
bool one_of(std::string_view name, std::string_view value, std::string_view yes, std::string_view no) {
  if (value != yes && value != no) refuse(name, value, std::string(yes) + " or " + std::string(no));
  return value == yes;
}

void nothing(std::string_view name, std::string_view value) {
  if (!value.empty()) refuse(name, value, "no value");
}

/// A flag that a family has by itself: "=false" takes it away.
bool flag(std::string_view name, std::string_view value) {
  if (!value.empty() && value != "false") refuse(name, value, "no value, or false");
  return value.empty();
}

using Set = void (*)(MegatronOptions& options, std::string_view name, std::string_view value);

struct Argument {
  std::string_view name;
  Set set;
};

constexpr Argument kArguments[] = {
    {"account-for-embedding-in-pipeline-split",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       nothing(name, value);
       o.counts_embedding = true;
     }},
    {"account-for-loss-in-pipeline-split",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       nothing(name, value);
       o.counts_loss = true;
     }},
    // A kernel that adds 1 to its weights as it reads them.
    {"apply-layernorm-1p",
     [](MegatronOptions& /*o*/, std::string_view name, std::string_view value) { nothing(name, value); }},
    {"apply-query-key-layer-scaling",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       nothing(name, value);
       o.scales_by_layer = true;
     }},
    {"attention-backend",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       if (value == "fused" || value == "flash" || value == "auto") return;
       o.attention = one_of(name, value, "unfused", "fused") ? MegatronAttention::kUnfused : MegatronAttention::kFused;
     }},
    {"attention-dropout", [](MegatronOptions& o, std::string_view name,
                             std::string_view value) { o.attention_dropout = probability(name, value); }},
    {"cross-entropy-fusion-impl",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       o.loss = one_of(name, value, "te", "native") ? MegatronLoss::kTe : MegatronLoss::kFused;
     }},
    {"cross-entropy-loss-fusion",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       nothing(name, value);
       if (o.loss == MegatronLoss::kNative) o.loss = MegatronLoss::kFused;
     }},
    {"decoder-first-pipeline-num-layers", [](MegatronOptions& o, std::string_view name,
                                             std::string_view value) { o.first_stage_layers = whole(name, value); }},
    {"decoder-last-pipeline-num-layers", [](MegatronOptions& o, std::string_view name,
                                            std::string_view value) { o.last_stage_layers = whole(name, value); }},
    {"defer-embedding-wgrad-compute",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       nothing(name, value);
       o.defers_head_gradient = true;
     }},
    {"disable-bias-linear",
     [](MegatronOptions& o, std::string_view name, std::string_view value) { o.bias_linear = !flag(name, value); }},
    {"expert-imbalance",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       o.expert_imbalance = number<double>(name, value, "a number from 1", 1.0);
     }},
    {"expert-tensor-parallel-size",
     [](MegatronOptions& o, std::string_view name, std::string_view value) { o.expert_tensor = whole(name, value); }},
    {"hidden-dropout", [](MegatronOptions& o, std::string_view name,
                          std::string_view value) { o.hidden_dropout = probability(name, value); }},
    {"make-vocab-size-divisible-by", [](MegatronOptions& o, std::string_view name,
                                        std::string_view value) { o.vocabulary_multiple = whole(name, value); }},
    {"microbatch-group-size-per-virtual-pipeline-stage",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       o.micro_batch_group = whole(name, value);
     }},
    {"moe-expert-capacity-factor",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       o.expert_capacity = number<double>(name, value, "a number above 0", 1e-6);
     }},
    {"no-gradient-accumulation-fusion",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       nothing(name, value);
       o.fuses_weight_gradients = false;
     }},
    {"no-rope-fusion",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       nothing(name, value);
       o.fuses_rope = false;
     }},
    {"normalization", [](MegatronOptions& o, std::string_view name,
                         std::string_view value) { o.rms_norm = one_of(name, value, "RMSNorm", "LayerNorm"); }},
    {"overlap-grad-reduce",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       nothing(name, value);
       o.overlaps_gradient_reduce = true;
     }},
    {"position-embedding-type",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       o.rotary = one_of(name, value, "rope", "learned_absolute");
     }},
    {"recompute-method", [](MegatronOptions& o, std::string_view name,
                            std::string_view value) { o.recomputes_blocks = one_of(name, value, "block", "uniform"); }},
    {"recompute-num-layers", [](MegatronOptions& o, std::string_view name,
                                std::string_view value) { o.recompute_layers = whole(name, value); }},
    {"rotary-percent",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       o.rotary_percent = number<double>(name, value, "a number above 0, up to 1", 1e-6);
       if (o.rotary_percent > 1) refuse(name, value, "a number above 0, up to 1");
     }},
    {"squared-relu",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       nothing(name, value);
       o.squared_relu = true;
     }},
    {"swiglu", [](MegatronOptions& o, std::string_view name, std::string_view value) { o.swiglu = flag(name, value); }},
    {"transformer-impl",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       if (one_of(name, value, "local", "transformer_engine")) o.attention = MegatronAttention::kLocal;
     }},
    {"untie-embeddings-and-output-weights",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       nothing(name, value);
       o.shares_embeddings = false;
     }},
    {"wgrad-deferral-limit",
     [](MegatronOptions& o, std::string_view name, std::string_view value) {
       o.deferral_limit = number<std::int64_t>(name, value, "a whole number from 0", 0);
     }},
};

const Argument& find(std::string_view name) {
  std::vector<std::string> names;
  for (const Argument& each : kArguments) {
    if (each.name == name) return each;
    names.emplace_back(each.name);
  }
  throw Error(ErrorCode::kUsage, "--megatron: unknown argument \"" + one_line(name) + "\"" + did_you_mean(name, names));
}

}  // namespace

MegatronOptions parse_megatron_options(std::string_view list) {
  MegatronOptions options;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(item.size() + 1, list.size()));
    const std::size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1);
    find(name).set(options, name, value);
  }
  return options;
}

}  // namespace memcalc
