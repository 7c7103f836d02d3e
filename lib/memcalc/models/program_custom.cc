// Custom autograd.Functions of a program (torch/csrc/autograd/python_function.cpp): the forward runs without gradients,
// what ctx holds stays with the node, and the recorded calls of backward are made where the node's turn is.
// MIRRORS(torch, "torch/csrc/autograd/python_function.cpp", "2.11.0")
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "memcalc/models/program_model.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/autograd.h"

namespace memcalc {

/// What the node of one call knows.
struct CustomPass {
  const ProgramModel* model = nullptr;
  const BoundCustom* call = nullptr;
  const PlacedFunction* backward = nullptr;
  std::vector<Tensor> attributes;       // of ctx: they live as long as the node
  std::vector<OutputMetadata> results;  // for zeros in place of gradients that do not arrive
};

namespace {

constexpr Operator kCustomBackward{"CustomFunctionBackward"};

using Kind = ProgramArgument::Kind;

/// The place of `saved.3` among what ctx holds.
std::size_t place_of(const std::string& keyword) {
  const std::size_t dot = keyword.rfind('.');
  std::size_t place = 0;
  if (dot != std::string::npos) (void)std::from_chars(keyword.data() + dot + 1, keyword.data() + keyword.size(), place);
  return place;
}

}  // namespace

void ProgramModel::check_backward(const BoundCustom& call, const std::vector<const Tensor*>& inputs,
                                  bool differentiated) const {
  const ProgramCustom& custom = *call.custom;
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: the custom function {} {}", program_->name, custom.name, why));
  };
  if (!differentiated) return;
  if (custom.backward < 0) refuse("is differentiated, and was recorded without its backward");
  if (inputs.size() > kMaxEdges) refuse(fmt::format("has more than {} gradients", kMaxEdges));
  if (custom.saved.size() > kMaxSaved) refuse(fmt::format("saves more than {} tensors", kMaxSaved));
  for (std::size_t i = 0; i < custom.needs.size(); ++i) {
    if (custom.needs[i] != inputs[i]->requires_grad())
      refuse("asks which inputs need a gradient, and was recorded with others that do");
  }
}

void ProgramModel::run_custom(const PlacedFunction& caller, const BoundCustom& call,
                              std::vector<Tensor>& values) const {
  const ProgramCustom& custom = *call.custom;
  const PlacedFunction& called = caller.customs[call.number];
  std::vector<const Tensor*> inputs;
  bool differentiated = false;
  for (const std::vector<BoundArgument>* arguments : {&call.inputs, &call.arguments}) {
    for (const BoundArgument& argument : *arguments) {
      const Tensor& tensor = given(caller, argument, values);
      if (!tensor.defined())
        throw Error(ErrorCode::kInput, program_->name + ": a function is given a tensor that died");
      if (arguments == &call.inputs) inputs.push_back(&tensor);
      differentiated = differentiated || (tape_.modes.grad_enabled && tensor.requires_grad());
    }
  }
  check_backward(call, inputs, differentiated);
  // The node is older than what forward does, and saves when forward is done.
  Node* node = custom.backward < 0 ? nullptr
                                   : tape_.autograd.record(kCustomBackward, custom_backward, inputs.data(),
                                                           static_cast<int>(inputs.size()));
  const BoundFunction& bound_called = bound(called);
  const ProgramFunction& function = *bound_called.function;
  Variables variables(bound_called);
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    variables.values()[i] = given(caller, call.arguments[i], values);
  }
  {
    const NoGrad no_grad(tape_.modes);
    run_body(called, bound_called.body, variables.values());
  }
  const auto result = [&](std::size_t i) -> Tensor& {
    return variables.values()[static_cast<std::size_t>(function.results[i])];
  };
  CustomPass pass;
  for (std::size_t i = 0; i < custom.results.size(); ++i) {
    if (!result(i).defined()) throw Error(ErrorCode::kInput, program_->name + ": a result of a function has died");
    if (node == nullptr) continue;
    pass.results.push_back({result(i).shape(), result(i).dtype()});
    if (custom.differentiable[i]) tape_.autograd.set_history(node, result(i));
  }
  if (node != nullptr) {
    const auto held = [&](const ProgramArgument& item) -> const Tensor& {
      const auto place = static_cast<std::size_t>(item.integer);
      return item.kind == Kind::kParameter ? parameter(caller, place) : result(place);
    };
    for (const ProgramArgument& item : custom.saved) tape_.autograd.save(*node, held(item));
    for (const ProgramArgument& item : custom.attributes) {
      pass.attributes.push_back(tape_.detach(held(item)));
      tape_.memory.mark_saved(held(item).block());
    }
    pass.model = this;
    pass.call = &call;
    pass.backward = &caller.backwards[call.number];
    node->payload.set(std::move(pass));
  }
  for (std::size_t i = 0; i < custom.results.size(); ++i) {
    values[static_cast<std::size_t>(custom.results[i])] = variables.take(function.results[i]);
  }
}

void ProgramModel::custom_backward(BackwardCall& call) {
  const auto& pass = call.payload<CustomPass>();
  pass.model->run_backward(pass, call);
}

void ProgramModel::run_backward(const CustomPass& pass, BackwardCall& call) const {
  const ProgramCustom& custom = *pass.call->custom;
  const BoundFunction& backward = bound(*pass.backward);
  const ProgramFunction& function = *backward.function;
  Variables variables(backward);
  const auto value = [&](std::size_t i) -> Tensor& { return variables.values()[i]; };
  int output = 0;
  for (std::size_t i = 0; i < pass.results.size(); ++i) {
    if (custom.differentiable[i]) value(i) = call.gradient(output++);
    if (value(i).defined()) continue;
    if (!custom.materializes) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: a gradient of the custom function {} does not arrive, which its backward was not "
                              "recorded with",
                              program_->name, custom.name));
    }
    value(i) = tape_.empty(pass.results[i].shape, pass.results[i].dtype, aten::kZeros);
  }
  for (std::size_t i = 0; i < function.keywords.size(); ++i) {
    const std::size_t place = place_of(function.keywords[i]);
    const std::size_t saved = custom.saved.size();
    if (place >= saved + pass.attributes.size()) throw Error(ErrorCode::kInput, program_->name + ": nothing was saved");
    value(static_cast<std::size_t>(function.inputs) + i) =
        place < saved ? call.saved(static_cast<int>(place)) : pass.attributes[place - saved];
  }
  const NoGrad no_grad(tape_.modes);
  run_body(*pass.backward, backward.body, variables.values());
  for (std::size_t i = 0; i < function.results.size(); ++i) {  // one tensor may be the gradient of several
    call.set(static_cast<int>(i), value(static_cast<std::size_t>(function.results[i])));
  }
}

}  // namespace memcalc
