// Classifiers of torchvision.models.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// A classifier of torchvision.models by its function's name; its layers are tables in models/*.cc.
struct TorchvisionSpec {
  std::string architecture;  // "resnet50"
  std::int64_t num_classes = 1000;
  std::int64_t image_size = 224;  // that its weights were trained with
};

BuildFamily build_torchvision;

namespace family {
extern const Family kTorchvision;
}  // namespace family

}  // namespace memcalc
