// What the tensors of published checkpoints are called where transformers calls its parameters otherwise.
// Covered by tests/unit/weights_comparison_test.cc.
// MIRRORS(transformers, "conversion_mapping.py", "5.17.0")
#pragma once

#include <string>
#include <string_view>

namespace memcalc {

/// The name of the parameter that transformers 5.17 loads a tensor into, but for the prefix of the base model
/// (conversion_mapping.py). Tensors that it stacks into one parameter get the same name.
[[nodiscard]] std::string parameter_name_of(std::string_view model_type, std::string_view tensor);

/// What a checkpoint's tensor of this parameter is called, as far as it decides the order in which from_pretrained
/// reads them (it sorts the checkpoint's names): where whole modules are called otherwise.
[[nodiscard]] std::string sorted_name_of(std::string_view model_type, std::string_view parameter);

/// Whether a tensor is part of a model's state but no parameter: masks, positions and running statistics, which old
/// versions of the frameworks saved.
[[nodiscard]] bool is_named_like_buffer(std::string_view tensor);

/// Whether a tensor is named like one that is tied to the word embeddings, or to the bias of a head
/// (_tied_weights_keys of the families).
[[nodiscard]] bool is_named_like_tied(std::string_view tensor);

}  // namespace memcalc
