#include "memcalc/report/weights_comparison.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "memcalc/models/checkpoint_names.h"
#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

// A parameter of the model, and what of the weights goes into it.
struct Target {
  const ParameterShape* parameter = nullptr;
  std::int64_t tensors = 0;
  std::int64_t elements = 0;
  const WeightTensor* first = nullptr;
};

class Comparison {
 public:
  Comparison(const Weights& weights, std::string_view model_type, const std::vector<ParameterShape>& parameters)
      : weights_(weights), model_type_(model_type) {
    for (const ParameterShape& each : parameters) {
      index_.emplace(each.name, targets_.size());
      targets_.push_back({.parameter = &each});
    }
    // Weights of the base model alone lack its prefix, which all its parameters share ("bert.", "model.").
    if (!parameters.empty()) prefix_ = parameters.front().name.substr(0, parameters.front().name.find('.') + 1);
  }

  [[nodiscard]] WeightsComparison result() {
    WeightsComparison result{.path = weights_.path,
                             .files = static_cast<std::int64_t>(weights_.files.size()),
                             .tensors = static_cast<std::int64_t>(weights_.tensors.size()),
                             .parameters = weights_.parameters,
                             .bytes = weights_.bytes,
                             .types = totals_by_type(weights_)};
    std::vector<const WeightTensor*> left;
    for (const WeightTensor& tensor : weights_.tensors) {
      if (!place(tensor)) left.push_back(&tensor);
    }
    for (const WeightTensor* tensor : left) place_elsewhere(*tensor, result);
    for (const Target& target : targets_) judge(target, result);
    return result;
  }

 private:
  static void add(TensorGroup& group, std::int64_t elements, const std::string& name) {
    ++group.tensors;
    group.parameters += elements;
    if (group.names.size() < kNamedTensors) group.names.push_back(one_line(name, 200));
  }

  static void take(Target& target, const WeightTensor& tensor) {
    if (target.tensors++ == 0) target.first = &tensor;
    target.elements += tensor.elements;
  }

  [[nodiscard]] Target* find(const std::string& name) {
    const auto at = index_.find(name);
    return at == index_.end() ? nullptr : &targets_[at->second];
  }

  bool place(const WeightTensor& tensor) {
    const std::string name = parameter_name_of(model_type_, tensor.name);
    Target* target = find(name);
    if (target == nullptr) target = find(std::string(prefix_) + name);
    if (target == nullptr) return false;
    take(*target, tensor);
    return true;
  }

  // A tied tensor may stand for the parameter that it is tied to, or beside it.
  void place_elsewhere(const WeightTensor& tensor, WeightsComparison& result) {
    if (is_named_like_tied(tensor.name)) {
      Target* twin = nullptr;
      for (Target& target : targets_) {
        if (target.parameter->shape != tensor.shape) continue;
        if (target.tensors == 0) return take(target, tensor);
        twin = &target;
      }
      if (twin != nullptr) return add(result.copies, tensor.elements, tensor.name);
    }
    add(is_named_like_buffer(tensor.name) ? result.buffers : result.unexpected, tensor.elements, tensor.name);
  }

  static void judge(const Target& target, WeightsComparison& result) {
    const ParameterShape& parameter = *target.parameter;
    if (target.tensors == 0) return add(result.missing, parameter.elements, std::string(parameter.name));
    // Stacked tensors have shapes of their own: their elements must do.
    const bool same = target.tensors == 1 ? target.first->shape == parameter.shape || is_stacked(target)
                                          : target.elements == parameter.elements;
    if (same) return;
    add(result.reshaped, target.elements,
        target.first->name + " " + shape_text(target.first->shape) + ", in the model " + shape_text(parameter.shape));
    result.reshaped_difference += parameter.elements - target.elements;
  }

  // A layer with one expert.
  static bool is_stacked(const Target& target) {
    return target.first->name.find(".experts.") != std::string::npos && target.elements == target.parameter->elements;
  }

  const Weights& weights_;
  std::string_view model_type_;
  std::vector<Target> targets_;
  std::unordered_map<std::string, std::size_t> index_;
  std::string_view prefix_;
};

}  // namespace

WeightsComparison compare_weights(const Weights& weights, std::string_view model_type,
                                  const std::vector<ParameterShape>& parameters) {
  return Comparison(weights, model_type, parameters).result();
}

}  // namespace memcalc
