#include "memcalc/report/versions_used.h"

#include <fmt/core.h>

#include <array>
#include <string_view>

#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/software_used.h"

namespace memcalc {
namespace {

// Of which one version is known.
constexpr std::string_view kDeepSpeed = "0.19.8", kSentenceTransformers = "6.2.0", kTorchvision = "0.26.0";
constexpr std::string_view kMegatron = "0.14.0", kTransformerEngine = "2.11.0";
constexpr std::string_view kTorchao = "0.18.0", kVllm = "0.31.0", kUnsloth = "2026.10.9";
// What stands in brackets behind torch.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOfTorch = {
    {{"cuda", "CUDA"}, {"cudnn", "cuDNN"}, {"nccl", "NCCL"}}};

std::string short_text(const Version& version) { return fmt::format("{}.{}", version.major, version.minor); }

}  // namespace

std::vector<std::pair<std::string, std::string>> versions_used(const ModelSpec& model, const RunSpec& run) {
  std::vector<std::pair<std::string, std::string>> all;
  const auto add = [&](Software of) { all.emplace_back(name_of(of), text_of(run.profile.version(of))); };
  add(Software::kTorch);
  all.emplace_back("cuda", short_text(run.profile.cuda));
  all.emplace_back("cudnn", short_text(run.profile.cudnn));
  if (run.parallel.is_parallel()) all.emplace_back("nccl", text_of(run.profile.nccl));
  if (run.parallel.framework() == Framework::kMegatron) {
    all.emplace_back("megatron-core", kMegatron);
    all.emplace_back("transformer-engine", run.parallel.megatron().engine_1_2 ? "1.2" : kTransformerEngine);
    return all;
  }
  if (runs_transformers(model) || run.uses_trainer()) add(Software::kTransformers);
  if (is_of_torchvision(model)) all.emplace_back("torchvision", kTorchvision);
  if (run.uses_trainer()) add(Software::kAccelerate);
  if (run.fine_tuning.lora) add(Software::kPeft);
  if (run.uses_trl()) add(Software::kTrl);
  if (run.uses_sentence_transformers()) all.emplace_back("sentence-transformers", kSentenceTransformers);
  if (uses_bitsandbytes(run)) add(Software::kBitsandbytes);
  if (uses_torchao(run)) all.emplace_back("torchao", kTorchao);
  if (run.fine_tuning.liger) add(Software::kLigerKernel);
  if (run.fine_tuning.unsloth) all.emplace_back("unsloth", kUnsloth);
  if (run.uses_vllm()) all.emplace_back("vllm", kVllm);
  if (run.parallel.framework() == Framework::kDeepSpeed) all.emplace_back("deepspeed", kDeepSpeed);
  return all;
}

std::string versions_text(const std::vector<std::pair<std::string, std::string>>& versions) {
  std::string text, of_torch;
  for (const auto& [name, label] : kOfTorch) {
    for (const auto& [software, version] : versions) {
      if (software == name) of_torch += fmt::format("{}{} {}", of_torch.empty() ? "" : ", ", label, version);
    }
  }
  for (const auto& [software, version] : versions) {
    if (software == "cuda" || software == "cudnn" || software == "nccl") continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", software, version);
    if (software == "torch") text += fmt::format(" ({})", of_torch);
  }
  return text;
}

}  // namespace memcalc
