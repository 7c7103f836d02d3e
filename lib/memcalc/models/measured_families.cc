#include "memcalc/models/measured_families.h"

#include <algorithm>

#include "memcalc/families/torchvision/spec.h"
#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/model_kind.h"

namespace memcalc {

std::string measured_as(const ModelSpec& model) {
  const auto* torchvision = model.architecture.get_if<TorchvisionSpec>();
  if (torchvision == nullptr) return model.model_type;
  for (const char* family : {"convnext", "densenet", "efficientnet", "mobilenet", "swin", "vgg"}) {
    if (torchvision->architecture.starts_with(family)) return "torchvision " + std::string(family);
  }
  return "torchvision resnet";
}

bool is_measured(const ModelSpec& model, Task task) {
  if (model.model_type == kLitGptType) return true;  // by its authors: docs/published-litgpt.md
  if (is_program(model)) return false;
  if (task == Task::kCustom) return true;  // layers_test compares what layers ask for with recorded runs
  const Family* const family = family_of(model);
  return family != nullptr &&
         std::find(family->measured.begin(), family->measured.end(), task) != family->measured.end();
}

}  // namespace memcalc
