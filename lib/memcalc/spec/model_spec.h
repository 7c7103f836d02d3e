// ModelSpec: a model's architecture as plain values, and where they come from. The architecture is the struct of its
// family, so that a family has no fields it does not use; key names are those of the family's Hugging Face config.json.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/architecture.h"
#include "memcalc/spec/architecture_changes.h"
#include "memcalc/spec/custom_spec.h"
#include "memcalc/spec/fine_tuning.h"
#include "memcalc/spec/weights.h"

namespace memcalc {

struct Program;

/// A module's recorded forward pass (spec/program.h).
struct ProgramSpec {
  std::shared_ptr<const Program> program;
};

struct ModelSpec {
  std::string name;       // registry name, or the path it was read from
  std::string reference;  // what was asked for: a registry's name, a path (--model); empty: nothing that has a name
  std::string family;     // a family by itself (--arch)
  ArchitectureChanges changes;  // sizes that were asked for beside it
  std::string model_type;       // of transformers: "bert", "gpt2", "llama", …; ours: "torchvision", "layers"
  Architecture architecture;
  bool use_cache = true;                  // config.use_cache, which a forward pass goes by
  bool generation_cache = true;           // use_cache of generation_config.json, where it lies beside; else that
  std::optional<DType> checkpoint_dtype;  // torch_dtype / dtype of config.json; else that of the weights
  Quantization checkpoint_quantization = Quantization::kNone;  // quantization_config of config.json: mxfp4, fp8
  std::optional<std::int64_t> published_parameters;  // of the base checkpoint, as its authors or the hub state it
  std::string source;                                // where the values come from
  std::string date;                                  // when they were read, ISO 8601
  std::vector<std::string> assumptions;              // every value taken from transformers' defaults, one line each
  std::shared_ptr<const Weights> weights;            // on disk beside the config.json; null: none were given
};

}  // namespace memcalc
