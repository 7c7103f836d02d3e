#include "memcalc/models/measured_families.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "memcalc/spec/lit_config.h"

namespace memcalc {

namespace {

struct MeasuredTask {
  std::string_view family;
  Task task;
};

constexpr Task kSeqcls = Task::kSequenceClassification, kMlm = Task::kMaskedLm, kCausal = Task::kCausalLm;
constexpr Task kSeq2Seq = Task::kSeq2Seq, kImage = Task::kImageClassification, kTokcls = Task::kTokenClassification;
constexpr Task kSpeech = Task::kSpeech, kContrastive = Task::kContrastive;

// clang-format off
constexpr MeasuredTask kMeasured[] = {
    {"bart", kSeq2Seq},
    {"bert", kSeqcls}, {"bert", kMlm}, {"bert", kTokcls},
    {"clip", kContrastive},
    {"deepseek_v2", kCausal}, {"deepseek_v2", kSeqcls},
    {"deepseek_v3", kCausal}, {"deepseek_v3", kSeqcls},
    {"deit", kImage},
    {"distilbert", kSeqcls}, {"distilbert", kMlm}, {"distilbert", kTokcls},
    {"electra", kSeqcls}, {"electra", kMlm}, {"electra", kTokcls},
    {"gemma", kCausal}, {"gemma", kSeqcls},
    {"gemma2", kCausal}, {"gemma2", kSeqcls},
    {"gemma3_text", kCausal}, {"gemma3_text", kSeqcls},
    {"gpt2", kCausal}, {"gpt2", kSeqcls},
    {"gpt_neox", kCausal}, {"gpt_neox", kSeqcls},
    {"gpt_oss", kCausal},
    {"llama", kCausal}, {"llama", kSeqcls},
    {"mistral", kCausal}, {"mistral", kSeqcls},
    {"mixtral", kCausal}, {"mixtral", kSeqcls},
    {"mt5", kSeq2Seq},
    {"olmo2", kCausal}, {"olmo2", kSeqcls},
    {"opt", kCausal}, {"opt", kSeqcls},
    {"phi", kCausal}, {"phi", kSeqcls},
    {"phi3", kCausal}, {"phi3", kSeqcls},
    {"qwen2", kCausal}, {"qwen2", kSeqcls},
    {"qwen3", kCausal}, {"qwen3", kSeqcls},
    {"qwen3_moe", kCausal}, {"qwen3_moe", kSeqcls},
    {"roberta", kSeqcls}, {"roberta", kMlm}, {"roberta", kTokcls},
    {"t5", kSeq2Seq},
    {"torchvision convnext", kImage},
    {"torchvision densenet", kImage},
    {"torchvision efficientnet", kImage},
    {"torchvision mobilenet", kImage},
    {"torchvision resnet", kImage},
    {"torchvision swin", kImage},
    {"torchvision vgg", kImage},
    {"vit", kImage},
    {"whisper", kSpeech},
};
// clang-format on

}  // namespace

std::string family_of(const ModelSpec& model) {
  const auto* torchvision = std::get_if<TorchvisionSpec>(&model.architecture);
  if (torchvision == nullptr) return model.model_type;
  for (const char* family : {"convnext", "densenet", "efficientnet", "mobilenet", "swin", "vgg"}) {
    if (torchvision->architecture.starts_with(family)) return "torchvision " + std::string(family);
  }
  return "torchvision resnet";
}

bool is_measured(const ModelSpec& model, Task task) {
  if (model.model_type == kLitGptType) return true;  // by its authors: docs/published-litgpt.md
  if (std::holds_alternative<ProgramSpec>(model.architecture)) return false;
  if (task == Task::kCustom) return true;  // layers_test compares what layers ask for with recorded runs
  const std::string family = family_of(model);
  return std::any_of(std::begin(kMeasured), std::end(kMeasured),
                     [&](const MeasuredTask& each) { return each.family == family && each.task == task; });
}

}  // namespace memcalc
