// How many GPUs a run has, and what they can be shared out by: of every framework.
// Covered by tests/unit/rules_sizes_test.cc.
#include "memcalc/families/gemma4/spec.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"

namespace memcalc {
namespace {

std::string product(const RuleQuestion& q) { return product_of(q.parallel); }

constexpr Rule kGpus[] = {
    {.id = "gpus-hold-whole-copies",
     .options = "--gpus --tp --cp --pp --ep",
     .message = "one copy of the model takes {} GPUs, and {--gpus} is no multiple of that",
     .accepted = "--gpus with a multiple of that",
     .broken =
         [](const RuleQuestion& q) {
           const std::int64_t ranks = model_ranks(q.parallel);
           return ranks < 1 || q.parallel.gpus % ranks != 0;
         },
     .detail = product},
    {.id = "nodes-hold-equally-many-gpus",
     .options = "--nodes --gpus",
     .message = "{--gpus} GPUs cannot be spread evenly over {--nodes} nodes",
     .accepted = "--nodes with a divisor of {--gpus}",
     .broken = [](const RuleQuestion& q) { return q.parallel.nodes < 1 || q.parallel.gpus % q.parallel.nodes != 0; }},
    {.id = "framework-has-mode",
     .options = "--framework --parallel",
     .message = "{--parallel} is {}'s, and the framework is {--framework}",
     .accepted = "--framework {}, or another --parallel",
     .broken =
         [](const RuleQuestion& q) {
           const Framework owner = framework_of(q.parallel.data_parallel);
           return owner != Framework::kTorch && owner != q.parallel.framework();
         },
     .detail = [](const RuleQuestion& q) { return std::string(name_of(framework_of(q.parallel.data_parallel))); }},
    {.id = "one-gpu-shares-nothing",
     .options = "--parallel --gpus",
     .message = "--parallel {--parallel} needs several GPUs, and there is one",
     .accepted = "--gpus 2 or more, or no --parallel",
     .broken =
         [](const RuleQuestion& q) {
           return q.parallel.gpus == 1 && is_torch(q) && q.parallel.data_parallel != DataParallel::kNone;
         }},
    {.id = "ranks-see-the-same-data",
     .options = "--parallel --gpus --tp --pp --ep",
     .message =
         "--parallel {--parallel} needs ranks that see different data, and one copy of the model takes all GPUs: {}",
     .accepted = "--gpus with a multiple of that, or no --parallel",
     .broken =
         [](const RuleQuestion& q) {
           return q.parallel.gpus > 1 && !is_megatron(q) && q.parallel.data_parallel != DataParallel::kNone &&
                  sharing_ranks(q.parallel) == 1;
         },
     .detail = product},
    {.id = "stage-layers-of-torch-pipelines",
     .options = "--stage-layers --pp --framework",
     .message = "--stage-layers needs a pipeline of torch's, and this run has none",
     .accepted = "--stage-layers with --pp; under Megatron --megatron decoder-first-pipeline-num-layers=N, "
                 "decoder-last-pipeline-num-layers=N",
     .broken =
         [](const RuleQuestion& q) {
           return !q.parallel.stage_layers.empty() && (q.parallel.pipeline == 1 || !is_torch(q));
         }},
};

/// DeepSeek's latent attention makes keys and values of every attention head, and Megatron-core counts them so.
std::int64_t key_value_heads(const RuleQuestion& q) {
  const bool latent = is_megatron(q) && has(q, &Family::has_latent_attention);
  return (latent ? q.sizes.heads : q.sizes.key_value_heads).value_or(0);
}

/// Gemma 4's global layers have a number of their own. 0: all layers are alike.
std::int64_t global_key_value_heads(const RuleQuestion& q) {
  const auto* spec = q.model.architecture.get_if<Gemma4Spec>();
  return spec == nullptr ? 0 : spec->global_key_value_heads;
}

constexpr Rule kTensorParallel[] = {
    {.id = "tp-has-heads",
     .options = "--tp --model",
     .message = "{model} has no attention heads to split over {--tp} ranks",
     .accepted = "no --tp",
     .broken = [](const RuleQuestion& q) { return !q.sizes.heads; }},
    {.id = "tp-splits-heads",
     .options = "--tp --model",
     .message = "the {heads} attention heads of {model} cannot be split evenly over {--tp} tensor-parallel ranks",
     .accepted = "--tp with a divisor of {heads}",
     .broken = [](const RuleQuestion& q) { return q.sizes.heads && *q.sizes.heads % q.parallel.tensor != 0; }},
    {.id = "tp-splits-key-value-heads",
     .options = "--tp --model",
     .message = "the {} key/value heads of {model} cannot be split evenly over {--tp} tensor-parallel ranks",
     .accepted = "--tp with a divisor of {}",
     .broken = [](const RuleQuestion& q) { return key_value_heads(q) % q.parallel.tensor != 0; },
     .detail = [](const RuleQuestion& q) { return std::to_string(key_value_heads(q)); }},
    {.id = "tp-splits-global-key-value-heads",
     .options = "--tp --model",
     .message = "the {} key/value heads of {model}'s global layers cannot be split evenly over {--tp} "
                "tensor-parallel ranks",
     .accepted = "--tp with a divisor of {}",
     .broken = [](const RuleQuestion& q) { return global_key_value_heads(q) % q.parallel.tensor != 0; },
     .detail = [](const RuleQuestion& q) { return std::to_string(global_key_value_heads(q)); }},
};

constexpr Rule kExpertParallel[] = {
    {.id = "ep-has-experts",
     .options = "--ep --model",
     .message = "{model} has no experts to split over {--ep} ranks",
     .accepted = "no --ep, or a model of the family mixtral, qwen3_moe, deepseek or gpt_oss",
     .broken = [](const RuleQuestion& q) { return !q.sizes.experts; }},
    {.id = "ep-splits-experts",
     .options = "--ep --model",
     .message = "the {experts} experts of {model} cannot be split evenly over {--ep} ranks",
     .accepted = "--ep with a divisor of {experts}",
     .broken = [](const RuleQuestion& q) { return q.sizes.experts && *q.sizes.experts % q.parallel.expert != 0; }},
};

constexpr RuleGroup kGroups[] = {
    {.title = "GPUs", .concerns = nullptr, .rules = kGpus},
    {.title = "Tensor parallelism",
     .concerns = [](const RuleQuestion& q) { return q.parallel.tensor > 1; },
     .rules = kTensorParallel},
    {.title = "Expert parallelism",
     .concerns = [](const RuleQuestion& q) { return q.parallel.expert > 1; },
     .rules = kExpertParallel},
};

}  // namespace

std::span<const RuleGroup> rules_of_sizes() { return kGroups; }

}  // namespace memcalc
