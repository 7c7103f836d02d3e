// A model file with `layers` in, a CustomSpec out. Read strictly, as our other files are: an unknown key is refused.
// Whether the shapes of the layers fit each other is checked too (custom_shapes.h), for the input that the file names.
// Covered by tests/unit/spec_custom_test.cc; what a user may write is in docs/specs.md and specs/schema.
#pragma once

#include <span>
#include <string_view>

#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/model_spec.h"

namespace memcalc::custom {

/// Whether an object describes a model by its layers, rather than by a config of transformers.
[[nodiscard]] bool is_layers_file(const JsonObject& json);

/// Throws Error(kInput) with the JSON pointer of what is wrong.
[[nodiscard]] ModelSpec read_layers_file(const JsonObject& json);

/// The values of a layer's `type`, in alphabetical order.
[[nodiscard]] std::span<const std::string_view> layer_types();

}  // namespace memcalc::custom
