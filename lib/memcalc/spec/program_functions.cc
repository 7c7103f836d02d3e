// The functions of a program: reading each as it is asked for, and how those that a forward pass reaches fit together.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/program.h"

namespace memcalc {
namespace {

using Argument = ProgramArgument;

bool is_tensor(const Argument& argument) {
  return argument.kind == Argument::Kind::kValue || argument.kind == Argument::Kind::kParameter;
}

std::int64_t tensors_in(const std::vector<Argument>& positional, const ProgramKeywords& keywords) {
  const std::int64_t given = std::count_if(positional.begin(), positional.end(), is_tensor);
  return given +
         std::count_if(keywords.begin(), keywords.end(), [](const auto& each) { return is_tensor(each.second); });
}

/// Looks at the functions that a forward pass reaches, each once.
class Checks {
 public:
  explicit Checks(const Program& program) : program_(program), state_(program.functions.size()) {}

  void look_at(std::int32_t function) {
    const ProgramFunction& body = program_.functions.at(function);
    State& state = state_[static_cast<std::size_t>(function)];
    if (state == State::kUnderWay) throw damaged(fmt::format("function {} calls itself", function));
    if (state == State::kDone) return;
    state = State::kUnderWay;
    for_each_instruction(body.body, [&](const ProgramInstruction& each) {
      if (const auto* layers = std::get_if<ProgramLayers>(&each)) look_at_layers(*layers);
      if (const auto* region = std::get_if<ProgramCheckpoint>(&each)) look_at_region(*region);
      if (const auto* custom = std::get_if<ProgramCustom>(&each)) look_at_custom(*custom);
    });
    state = State::kDone;
  }

  [[nodiscard]] Error damaged(const std::string& message) const {
    return {ErrorCode::kInput, fmt::format("{}: {}", program_.name, message)};
  }

 private:
  enum class State : std::uint8_t { kNotSeen, kUnderWay, kDone };

  const ProgramFunction& called(std::int32_t function) {
    look_at(function);
    return program_.functions.at(function);
  }

  /// A layer gets as many tensors as its function takes.
  void look_at_layers(const ProgramLayers& layers) {
    const ProgramFunction& function = called(layers.function);
    const bool first = !layers.positional.empty() && is_tensor(layers.positional.front());
    if (tensors_in(layers.positional, layers.keywords) != function.inputs + std::ssize(function.keywords) ||
        layers.results.empty() || function.results.empty() || (!first && layers.count > 1) ||
        layers.results.size() > function.results.size()) {
      throw damaged(fmt::format("layer {} does not fit the function that it calls", layers.path));
    }
  }

  void look_at_region(const ProgramCheckpoint& region) {
    const ProgramFunction& function = called(region.function);
    const std::int64_t given = tensors_in(region.positional, region.keywords);
    if (given == 0 || given != function.inputs + std::ssize(function.keywords) || region.results.empty() ||
        region.results.size() > function.results.size()) {
      throw damaged("a region of checkpointing does not fit the function that it calls");
    }
  }

  void look_at_custom(const ProgramCustom& custom) {
    const ProgramFunction& function = called(custom.function);
    const std::int64_t given = tensors_in(custom.arguments, {});
    if (given != std::ssize(custom.arguments) || given != function.inputs + std::ssize(function.keywords) ||
        custom.results.size() > function.results.size()) {
      throw damaged(fmt::format("custom function {} does not fit the function that it calls", custom.name));
    }
    if (custom.backward >= 0) look_at_backward(custom, function, called(custom.backward));
  }

  /// A custom function's backward gets the gradients of its results, and then what was saved.
  void look_at_backward(const ProgramCustom& custom, const ProgramFunction& forward,
                        const ProgramFunction& backward) const {
    std::int64_t tensors = 0;
    bool fits = custom.inputs.size() == backward.results.size() &&
                custom.results.size() == custom.differentiable.size() &&
                (custom.needs.empty() || custom.needs.size() == custom.inputs.size()) &&
                backward.inputs == std::ssize(custom.results);
    for (const std::vector<Argument>* items : {&custom.saved, &custom.attributes}) {
      for (const Argument& item : *items) {
        if (item.kind == Argument::Kind::kParameter) continue;
        ++tensors;
        fits = fits && item.kind == Argument::Kind::kInteger && item.integer >= 0 &&
               item.integer < std::ssize(forward.results);
      }
    }
    for (const Argument& input : custom.inputs) {
      const bool is_argument = std::any_of(custom.arguments.begin(), custom.arguments.end(), [&](const Argument& each) {
        return each.kind == input.kind && each.integer == input.integer;
      });
      fits = fits && (input.kind == Argument::Kind::kParameter || is_argument);
    }
    if (!fits || tensors < std::ssize(backward.keywords)) {
      throw damaged(fmt::format("the backward of custom function {} does not fit it", custom.name));
    }
  }

  const Program& program_;
  std::vector<State> state_;  // of each function
};

}  // namespace

ProgramFunctions& ProgramFunctions::operator=(const ProgramFunctions& other) {
  if (this == &other) return *this;
  const std::scoped_lock lock(mutex_, other.mutex_);
  read_ = other.read_;
  functions_.clear();
  for (const auto& each : other.functions_) {
    functions_.push_back(each ? std::make_unique<ProgramFunction>(*each) : nullptr);
  }
  return *this;
}

ProgramFunction& ProgramFunctions::function(std::int64_t i) const {
  if (i < 0 || i >= std::ssize(functions_)) {
    throw Error(ErrorCode::kInput, fmt::format("a program has no function {}, which it calls", i));
  }
  const std::lock_guard lock(mutex_);
  std::unique_ptr<ProgramFunction>& found = functions_[static_cast<std::size_t>(i)];
  if (!found) found = std::make_unique<ProgramFunction>(read_(static_cast<std::size_t>(i)));
  return *found;
}

void check_forward(const Program& program, std::int32_t function) {
  Checks checks(program);
  checks.look_at(function);
  const std::int32_t values = program.functions.at(function).values;
  for (const ProgramForward& forward : program.forwards) {
    if (forward.function != function) continue;
    for (const std::vector<std::int32_t>* outputs : {&forward.loss, &forward.outputs}) {
      for (const std::int32_t output : *outputs) {
        if (output >= values) throw checks.damaged(fmt::format("there is no value {}", output));
      }
    }
  }
}

}  // namespace memcalc
