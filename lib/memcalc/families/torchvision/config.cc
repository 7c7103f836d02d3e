// config.json of Classifiers of torchvision.models.
#include "memcalc/families/torchvision/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

/// Our own key for what has no config.json: the name of a function in torchvision.models.
Architecture torchvision(HfReader& config) {
  TorchvisionSpec spec;
  spec.architecture = config.json().required_string("architecture");
  spec.num_classes = config.json().optional_int("num_classes", kSizeRange).value_or(1000);
  spec.image_size = config.json().optional_int("image_size", kSizeRange).value_or(224);  // the weights' crop_size
  return spec;
}

}  // namespace

const Family kTorchvision = {
    .model_type = "torchvision",
    .kind = FamilyKind::kImages,
    .read = torchvision,
    .build = build_torchvision,
    .measured = kImageClassifier,
    .is_torchvision = true,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
