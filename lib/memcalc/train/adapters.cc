// peft 0.21: tuners/tuners_utils.py (inject_adapter, cast_adapter_dtype), tuners/lora/layer.py (update_layer),
// utils/other.py (ModulesToSaveWrapper).
// MIRRORS(peft, "tuners/lora/layer.py", "0.21.2")
// MIRRORS(peft, "tuners/tuners_utils.py", "0.21.2")
// MIRRORS(peft, "utils/other.py", "0.21.2")
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/models/own_adapters.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/train/fine_tuning.h"
#include "memcalc/train/linear_names.h"

namespace memcalc {

namespace {

bool ends_with_module(std::string_view name, std::string_view target) {
  if (name == target) return true;
  return name.ends_with(target) && name[name.size() - target.size() - 1] == '.';
}

/// The classifiers that PeftModelForSequenceClassification and ...TokenClassification train in full.
bool is_classifier(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('.'));
  return first == "classifier" || first == "score";
}

bool is_target(const Lora& lora, std::string_view name) {
  if (lora.targets.empty()) return !is_output_embedding(name);  // _maybe_include_all_linear_layers
  for (const std::string& target : lora.targets) {
    if (ends_with_module(name, target)) return true;
  }
  return false;
}

std::string known_targets(const Model& model) {
  std::vector<std::string> ends;
  std::string text;
  for (const auto& layer : model.linear_layers) {
    const std::string end = layer->name.substr(layer->name.rfind('.') + 1);
    if (std::find(ends.begin(), ends.end(), end) != ends.end()) continue;
    ends.push_back(end);
    text += (text.empty() ? "" : ", ") + end;
  }
  return text;
}

void check_targets(const Lora& lora, const Model& model) {
  if (model.linear_layers.empty()) throw refusal(rules::kLoraLayers);
  for (const std::string& target : lora.targets) {
    bool found = false;
    for (const auto& layer : model.linear_layers) found = found || ends_with_module(layer->name, target);
    if (!found) throw refusal(rules::kLoraTarget, {one_line(target), known_targets(model)});
  }
}

/// ModulesToSaveWrapper.update: the classifier is copied; the copy trains, the original stays. Which of the two blocks
/// is which makes no difference to memory, so the tensors that the forward uses train.
void train_classifier(Tape& tape, std::vector<Parameter>& parameters) {
  const auto belongs = [](const Parameter& parameter) { return is_classifier(parameter.name); };
  const auto first = std::find_if(parameters.begin(), parameters.end(), belongs);
  const auto last = std::find_if_not(first, parameters.end(), belongs);
  std::vector<Parameter> originals;
  for (auto parameter = first; parameter != last; ++parameter) {
    originals.push_back(
        {parameter->name + " (original)",
         tape.empty(parameter->tensor.shape(), parameter->tensor.dtype(), aten::kClone, Category::kWeights),
         parameter->decays});
    tape.autograd.set_trainable(parameter->tensor, true);
  }
  parameters.insert(first, originals.begin(), originals.end());
}

}  // namespace

void add_adapters(Tape& tape, Model& model, const RunSpec& run) {
  const Lora& lora = *run.fine_tuning.lora;
  if (const auto* own = dynamic_cast<const OwnAdapters*>(&model)) {  // mark_only_lora_as_trainable
    for (const Parameter& each : model.parameters) tape.autograd.set_trainable(each.tensor, own->is_adapter(each.name));
    return;
  }
  check_targets(lora, model);
  for (const Parameter& parameter : model.parameters) tape.autograd.set_trainable(parameter.tensor, false);
  const bool trains_head =
      lora.trains_head && (run.task == Task::kSequenceClassification || run.task == Task::kTokenClassification);
  std::vector<FineTunedLinear*> adapted;
  for (const auto& layer : model.linear_layers) {
    if (!is_target(lora, layer->name) || (trains_head && is_classifier(layer->name))) continue;
    // _move_adapter_to_device_of_base_layer: the base weight's dtype, or that in which a packed one computes.
    const Quantization kind = layer->quantized.kind;
    const DType dtype = kind == Quantization::kNone   ? weights_dtype_of(run)
                        : kind == Quantization::kInt8 ? DType::kFloat32
                                                      : layer->quantized.dtype;
    layer->lora_a = tape.parameter({lora.rank, layer->in_features}, dtype);
    layer->lora_b = tape.parameter({layer->out_features, lora.rank}, dtype);
    layer->lora_dropout = lora.dropout;
    adapted.push_back(layer.get());
  }
  for (const FineTunedLinear* layer : adapted) {  // cast_adapter_dtype: 16-bit adapters become float32
    if (lora.in_base_dtype || !is_half(layer->lora_a.dtype())) continue;
    tape.convert(layer->lora_a, DType::kFloat32, aten::kToCopy);
    tape.convert(layer->lora_b, DType::kFloat32, aten::kToCopy);
  }
  // parameters() walks the modules: an adapter follows its layer's own parameters.
  std::vector<Parameter> parameters;
  auto next = adapted.begin();
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    parameters.push_back(std::move(model.parameters[i]));
    for (; next != adapted.end() && (*next)->last_parameter == i; ++next) {
      parameters.push_back({(*next)->name + ".lora_A.default.weight", (*next)->lora_a, true});
      parameters.push_back({(*next)->name + ".lora_B.default.weight", (*next)->lora_b, true});
    }
  }
  model.parameters = std::move(parameters);
  if (trains_head) train_classifier(tape, model.parameters);
}

}  // namespace memcalc
