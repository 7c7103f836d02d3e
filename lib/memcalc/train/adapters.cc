// peft 0.21: tuners/tuners_utils.py (inject_adapter, _inject_parameters, cast_adapter_dtype), tuners/lora/layer.py
// (update_layer), utils/transformers_weight_conversion.py, utils/other.py (ModulesToSaveWrapper).
// MIRRORS(peft, "tuners/lora/layer.py", "0.21.2")
// MIRRORS(peft, "tuners/tuners_utils.py", "0.21.2")
// MIRRORS(peft, "utils/other.py", "0.21.2")
// MIRRORS(peft, "utils/transformers_weight_conversion.py", "0.21.2")
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/models/dora.h"
#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/models/own_adapters.h"
#include "memcalc/models/packed_experts.h"
#include "memcalc/spec/behaviors.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/peft_targets.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/train/fine_tuning.h"
#include "memcalc/train/linear_names.h"

namespace memcalc {

namespace {

/// The heads that PeftModelForSequenceClassification, ...TokenClassification and ...QuestionAnswering train in full.
bool is_classifier(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('.'));
  return first == "classifier" || first == "score" || first == "qa_outputs";
}

void add_new(std::vector<std::string>& names, std::string_view name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

/// The last parts of the linear layers' names, each once.
std::vector<std::string> ends_of(const Model& model) {
  std::vector<std::string> ends;
  for (const auto& layer : model.linear_layers) add_new(ends, last_part(layer->name));
  return ends;
}

/// The name of a layer in the model of images and text whose text model this is; empty: it has none there.
std::string name_in_whole(std::string_view prefix, std::string_view name) {
  constexpr std::string_view kModel = "model.";
  if (!name.starts_with(kModel)) return {};
  return std::string(prefix).append(name.substr(kModel.size()));
}

/// What LoraConfig targets, as peft has converted it for the model.
struct Targets {
  bool every_linear = false;              // no modules were named
  bool leaves_head = true;                // of which get_output_embeddings() is left alone, where the class has it
  std::optional<NamePattern> pattern{};   // of their whole names
  std::string_view in_whole{};            // where the pattern has them in a model of images and text
  std::vector<std::string> modules{};     // of nn.Linear
  std::vector<std::string> parameters{};  // of other modules
  std::vector<std::string> fused{};       // of these, those that were two modules: their adapters have both ranks

  [[nodiscard]] bool has(const FineTunedLinear& layer) const {
    if (pattern) return pattern->matches(in_whole.empty() ? layer.name : name_in_whole(in_whole, layer.name));
    return (every_linear && !(leaves_head && is_output_embedding(layer.name))) || any_of(modules, layer.name);
  }
  [[nodiscard]] bool has(const Parameter& parameter) const { return any_of(parameters, parameter.name); }
  [[nodiscard]] std::int64_t rank(const Lora& lora, const Parameter& parameter) const {
    return any_of(fused, parameter.name) ? checked_multiply(2, lora.rank) : lora.rank;
  }

  [[nodiscard]] static bool any_of(const std::vector<std::string>& targets, std::string_view name) {
    return std::any_of(targets.begin(), targets.end(),
                       [&](const std::string& target) { return ends_in_target(name, target); });
  }
};

/// The module's own parameters that peft can wrap. It takes matrices, and one for each expert.
template <typename Visit>
void for_each_wrappable(const Model& model, const WrappedModule& module, const Visit& visit) {
  for (std::size_t i = module.first_parameter; i <= module.last_parameter; ++i) {
    const Parameter& parameter = model.parameters[i];
    const bool is_own = parameter.name.find('.', module.name.size() + 1) == std::string::npos;
    const bool is_bias = parameter.name.ends_with("bias");
    if (is_own && !is_bias && (parameter.tensor.rank() == 2 || parameter.tensor.rank() == 3)) visit(parameter);
  }
}

bool has_parameter(const Model& model, std::string_view target) {
  bool found = false;
  for (const auto& module : model.experts) {
    for_each_wrappable(model, *module,
                       [&](const Parameter& each) { found = found || ends_in_target(each.name, target); });
  }
  return found;
}

/// _convert_peft_config_moe: names of transformers 4's modules become those of transformers 5's parameters, also where
/// other modules have them, which then get no adapters: shared experts, dense layers. Moves them from `named`.
void convert(std::vector<std::string>& named, const ConvertedTargets& renamed, Targets& targets) {
  const std::vector<std::string> all = std::exchange(named, {});
  for (const std::string& target : all) {
    const std::string_view parameter = renamed.parameter_of(target);
    if (parameter.empty()) {
      named.push_back(target);
      continue;
    }
    add_new(targets.parameters, parameter);
    if (renamed.is_fused(parameter)) add_new(targets.fused, parameter);
    for (const RenamedTarget& each : renamed.renamed) {
      const bool is_named = std::any_of(all.begin(), all.end(),
                                        [&](const std::string& other) { return ends_in_target(other, each.module); });
      if (each.parameter == parameter && !is_named) {
        throw refusal(rules::kLoraFused, {one_line(target), each.module, parameter});
      }
    }
  }
}

/// axolotl's loaders/adapter.py, find_all_linear_names: a list of the modules' names, of which routers and experts of
/// transformers 5 are none. (peft's all-linear has these, too.)
constexpr std::string_view kLinearNames = "linear";

/// Names of layers that lists of targets have whether the model has them or not: none is another's slip.
bool is_usual(const std::string& target) {
  constexpr std::string_view kUsual[] = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  return std::find(std::begin(kUsual), std::end(kUsual), target) != std::end(kUsual);
}

/// inject_adapter: a name that no module has is passed over where another one has modules. Here a name that is
/// one letter off is refused.
void pass_over(const std::vector<std::string>& unknown, const Targets& targets, Model& model) {
  const std::vector<std::string> known = ends_of(model);
  const bool has_others = !targets.modules.empty() || !targets.parameters.empty();
  for (const std::string& target : unknown) {
    const auto is_near = [&](const std::string& each) { return edit_distance(target, each) == 1; };
    const bool is_slip = !is_usual(target) && std::any_of(known.begin(), known.end(), is_near);
    if (!has_others || is_slip) {
      throw refusal(rules::kLoraTarget, {one_line(target), join(known)});
    }
    model.assumptions.push_back("no layer's name ends in the LoRA target '" + one_line(target) +
                                "': peft passes over it");
  }
}

/// Files of models of images and text name the layers of the text model as they are called in there.
void find_layers(const Lora& lora, Model& model, Targets& targets) {
  constexpr std::string_view kPlaces[] = {"", "model.language_model.", "language_model.model."};
  for (const std::string_view place : kPlaces) {
    targets.in_whole = place;
    const auto matches = [&](const auto& layer) { return targets.has(*layer); };
    if (std::none_of(model.linear_layers.begin(), model.linear_layers.end(), matches)) continue;
    if (place.empty()) return;
    model.assumptions.push_back(
        "the LoRA targets are the text model's layers, which the pattern names as a model of images and text does (" +
        std::string(place) + ")");
    return;
  }
  throw refusal(rules::kLoraTarget, {one_line(lora.targets.front()), model.linear_layers.front()->name});
}

/// Names that end no linear layer's are LoraConfig's target_parameters.
Targets targets_of(const Lora& lora, Model& model, ConvertedNames converted) {
  if (model.linear_layers.empty()) throw refusal(rules::kLoraLayers);
  std::vector<std::string> named = lora.targets;
  const bool every_linear = std::erase(named, kAllLinear) > 0 || lora.targets.empty();
  if (std::erase(named, kLinearNames) > 0) {
    for (const auto& layer : model.linear_layers) {
      if (!is_output_embedding(layer->name)) add_new(named, last_part(layer->name));
    }
  }
  Targets targets;
  if (targets.pattern = pattern_of(lora.targets); targets.pattern) {
    find_layers(lora, model, targets);
    return targets;
  }
  const bool converts = converted != ConvertedNames::kNone && !model.experts.empty();
  const ConvertedTargets* renamed = converts ? model.experts.front()->converted : nullptr;
  if (renamed != nullptr && has_parameter(model, renamed->renamed.back().parameter)) {
    if (every_linear) {
      // set("all-linear") is a set of letters.
      if (converted == ConvertedNames::kListed) throw refusal(rules::kLoraAllLinear);
      for (const auto& layer : model.linear_layers) {
        if (!is_output_embedding(layer->name)) add_new(named, last_part(layer->name));
      }
      for (const RenamedTarget& each : renamed->renamed) add_new(named, each.module);
    }
    convert(named, *renamed, targets);
  } else {
    targets.every_linear = every_linear;
  }
  std::vector<std::string> unknown;
  for (const std::string& target : named) {
    const bool is_layer = std::any_of(model.linear_layers.begin(), model.linear_layers.end(),
                                      [&](const auto& layer) { return ends_in_target(layer->name, target); });
    if (!is_layer && !has_parameter(model, target)) {
      unknown.push_back(target);
    } else {
      (is_layer ? targets.modules : targets.parameters).push_back(target);
    }
  }
  pass_over(unknown, targets, model);
  return targets;
}

/// An adapter that was made, and the place of the parameter that it follows.
struct Adapter {
  std::size_t after = 0;
  std::string name;  // of the module that holds it
  Tensor* lora_a = nullptr;
  Tensor* lora_b = nullptr;
  Tensor* lengths = nullptr;  // with DoRA
};

void make(Tape& tape, Adapter& adapter, std::int64_t rank, std::int64_t in, std::int64_t out, DType dtype) {
  *adapter.lora_a = tape.parameter({rank, in}, dtype);
  *adapter.lora_b = tape.parameter({out, rank}, dtype);
}

/// _inject_parameters: a wrapper around the other for each parameter, as the module has them.
void wrap_parameters(Tape& tape, const Model& model, const RunSpec& run, const Targets& targets,
                     std::vector<Adapter>& adapters) {
  const Lora& lora = *run.fine_tuning.lora;
  for (const auto& module : model.experts) {
    std::vector<std::int64_t> ranks;
    for_each_wrappable(model, *module, [&](const Parameter& each) {
      if (!targets.has(each)) return;
      if (!module->packed.empty() && each.tensor.rank() == 3) throw refusal(rules::kLoraParameterPacked, {each.name});
      if (lora.dropout > 0) throw refusal(rules::kLoraParameterDropout, {each.name});
      if (run.compiles()) throw refusal(rules::kLoraParameterCompiled, {each.name});
      if (lora.dora) throw refusal(rules::kLoraParameterDora, {each.name});
      const DataParallel mode = run.parallel.data_parallel;
      if (mode == DataParallel::kDsZero3 || mode == DataParallel::kFsdp1) {
        throw refusal(rules::kLoraParameterGathered, {each.name});
      }
      const bool as_made = tape.behaviors.expert_adapters == ExpertAdapters::kAsMade && each.tensor.rank() == 3;
      module->wrappers.push_back({.parameter = each.tensor, .is_transposed = module->is_transposed || as_made});
      ranks.push_back(targets.rank(lora, each));
    });
    std::string name = module->name;
    for (std::size_t i = 1; i < module->wrappers.size(); ++i) name += ".base_layer";
    for (std::size_t i = 0; i < module->wrappers.size(); ++i) {
      ParamWrapper& wrapper = module->wrappers[i];
      Adapter adapter{module->last_parameter, name, &wrapper.lora_a, &wrapper.lora_b};
      make(tape, adapter, checked_multiply(ranks[i], wrapper.experts()), wrapper.in_features(), wrapper.out_features(),
           wrapper.parameter.dtype());
      adapters.push_back(std::move(adapter));
      if (i + 1 < module->wrappers.size()) name.resize(name.rfind('.'));
    }
  }
}

/// ModulesToSaveWrapper.update: a module is copied; the copy trains, the original stays. Which of the two blocks is
/// which makes no difference to memory, so the tensors that the forward uses train. `belongs`: a parameter to it.
template <typename Belongs>
void train_in_full(Tape& tape, std::vector<Parameter>& parameters, const Belongs& belongs) {
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

/// _set_trainable: every module whose name ends in `saved`. Throws where there is none, or where its matrix is another
/// module's, too: the copies of tied embeddings are no longer tied.
void train_saved(Tape& tape, Model& model, const std::string& saved) {
  const auto module_of = [](const Parameter& each) {
    return std::string_view(each.name).substr(0, each.name.rfind('.'));
  };
  const auto has_head = [](const Parameter& each) { return each.name == "lm_head.weight"; };
  std::vector<std::string> modules;
  for (const Parameter& each : model.parameters) {
    if (ends_in_target(module_of(each), saved)) add_new(modules, module_of(each));
  }
  const bool is_embedding = saved == "lm_head" || saved.ends_with("embed_tokens") || saved.ends_with("wte");
  const bool is_tied = std::none_of(model.parameters.begin(), model.parameters.end(), has_head);
  if (modules.empty() || (is_embedding && is_tied)) throw refusal(rules::kLoraSaved, {one_line(saved)});
  for (const std::string& module : modules) {
    train_in_full(tape, model.parameters, [&](const Parameter& each) { return module_of(each) == module; });
  }
}

}  // namespace

void add_adapters(Tape& tape, Model& model, const RunSpec& run) {
  const Lora& lora = *run.fine_tuning.lora;
  if (const auto* own = dynamic_cast<const OwnAdapters*>(&model)) {  // mark_only_lora_as_trainable
    for (const Parameter& each : model.parameters) tape.autograd.set_trainable(each.tensor, own->is_adapter(each.name));
    return;
  }
  Targets targets = targets_of(lora, model, tape.behaviors.converted_names);
  targets.leaves_head = run.task != Task::kCustom;  // modules of other libraries (diffusers' proj_out) have none
  for (const Parameter& parameter : model.parameters) tape.autograd.set_trainable(parameter.tensor, false);
  const bool trains_head = lora.trains_head && has_classifier(run.task);
  std::vector<Adapter> adapters;
  for (const auto& layer : model.linear_layers) {
    if (!targets.has(*layer) || (trains_head && is_classifier(layer->name))) continue;
    // _move_adapter_to_device_of_base_layer: the base weight's dtype, or that in which a packed one computes.
    const Quantization kind = layer->quantized.kind;
    const DType dtype = kind == Quantization::kNone   ? weights_dtype_of(run)
                        : kind == Quantization::kInt8 ? DType::kFloat32
                                                      : layer->quantized.dtype;
    Adapter adapter{layer->last_parameter, layer->name, &layer->lora_a, &layer->lora_b};
    make(tape, adapter, lora.rank, layer->in_features, layer->out_features, dtype);
    layer->lora_dropout = lora.dropout;
    if (lora.dora) {
      layer->base_weight = model.parameters[layer->first_parameter].tensor;
      layer->lengths = lengths_of_rows(tape, *layer);
      adapter.lengths = &layer->lengths;
    }
    adapters.push_back(std::move(adapter));
  }
  wrap_parameters(tape, model, run, targets, adapters);
  // In the order of the modules.
  std::stable_sort(adapters.begin(), adapters.end(),
                   [](const Adapter& a, const Adapter& b) { return a.after < b.after; });
  for (const Adapter& adapter : adapters) {  // cast_adapter_dtype: 16-bit adapters become float32
    if (lora.in_base_dtype || !is_half(adapter.lora_a->dtype())) continue;
    tape.convert(*adapter.lora_a, DType::kFloat32, aten::kToCopy);
    tape.convert(*adapter.lora_b, DType::kFloat32, aten::kToCopy);
    if (adapter.lengths != nullptr) tape.convert(*adapter.lengths, DType::kFloat32, aten::kToCopy);
  }
  const bool lengths_too = run.profile.behaviors.casts_lengths;
  for (const Adapter& adapter : adapters) {
    if (!lora.in_bf16) break;
    tape.convert(*adapter.lora_a, DType::kBFloat16, aten::kToCopy);
    tape.convert(*adapter.lora_b, DType::kBFloat16, aten::kToCopy);
    if (adapter.lengths != nullptr && lengths_too) tape.convert(*adapter.lengths, DType::kBFloat16, aten::kToCopy);
  }
  // parameters() walks the modules: an adapter follows its module's own parameters.
  std::vector<Parameter> parameters;
  auto next = adapters.begin();
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    parameters.push_back(std::move(model.parameters[i]));
    for (; next != adapters.end() && next->after == i; ++next) {
      parameters.push_back({next->name + ".lora_A.default.weight", *next->lora_a, true});
      parameters.push_back({next->name + ".lora_B.default.weight", *next->lora_b, true});
      if (next->lengths == nullptr) continue;
      parameters.push_back({next->name + ".lora_magnitude_vector.default.weight", *next->lengths, true});
    }
  }
  model.parameters = std::move(parameters);
  if (trains_head) {
    train_in_full(tape, model.parameters, [](const Parameter& each) { return is_classifier(each.name); });
  }
  for (const std::string& each : lora.saved) train_saved(tape, model, each);
}

}  // namespace memcalc
