// Optimizers, gradient clipping and loss scaling.
#include "measured/operators/op_case.h"
#include "memcalc/models/module.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/train/clip_grad.h"
#include "memcalc/train/grad_scaler.h"
#include "memcalc/train/optimizer.h"

namespace memcalc::measured {

namespace {

using test::TapeBench;

constexpr Operator kGradient{"gradient"};

bool has_two_dtypes(const OpCase& each) { return each.text("dtype") == "mix"; }

std::vector<Parameter> parameters(TapeBench& bench, const OpCase& each) {
  std::vector<Shape> shapes;
  if (each.text("list") == "many") {
    shapes.assign(700, {128});
    shapes.resize(740, {256, 256});
  } else {
    shapes = each.shapes("shapes");
  }
  std::vector<Parameter> result;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const DType alternating = i % 2 == 0 ? DType::kBFloat16 : DType::kFloat32;
    const DType dtype = has_two_dtypes(each) ? alternating : each.dtype();
    result.push_back({"", bench.tape.parameter(shapes[i], dtype)});
  }
  return result;
}

void give_gradients(TapeBench& bench, const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    parameter.tensor.impl()->grad = bench.tape.empty(parameter.tensor.shape(), parameter.tensor.dtype(), kGradient);
  }
}

std::optional<Optimizer> kind_of(const OpCase& each) {
  std::string name = each.text("optimizer");
  if (const std::size_t groups = name.find("-2groups"); groups != std::string::npos) name.erase(groups, 8);
  // Without weight decay, or with Nesterov's momentum, the requests are the same.
  if (name == "adamw-foreach" || name == "adamw-nowd-foreach") return Optimizer::kAdamWForeach;
  if (name == "adam-foreach") return Optimizer::kAdam;
  if (name == "adamw-amsgrad") return Optimizer::kAdamWAmsgrad;
  if (name == "adamw-fused") return Optimizer::kAdamWFused;
  if (name == "adamw-for") return Optimizer::kAdamWForLoop;
  if (name == "sgd" || name == "sgd-fused") return Optimizer::kSgd;
  if (name == "sgd-wd") return Optimizer::kSgdWeightDecay;
  if (name == "sgdm" || name == "sgdm-nesterov") return Optimizer::kSgdMomentum;
  if (name == "sgdm-for" && !has_two_dtypes(each)) return Optimizer::kSgdMomentum;
  return std::nullopt;
}

std::vector<ParameterGroup> groups_of(const OpCase& each, const std::vector<Parameter>& parameters) {
  const bool two = each.text("optimizer").find("2groups") != std::string::npos;
  std::vector<ParameterGroup> groups(two ? 2 : 1);
  for (std::size_t i = 0; i < parameters.size(); ++i) groups[two ? i % 2 : 0].push_back(&parameters[i]);
  return groups;
}

Outcome run_optimizer(const OpCase& each) {
  const auto kind = kind_of(each);
  if (!kind) return {.skipped = "optimizer settings that memcalc does not offer"};
  TapeBench bench;
  const std::vector<Parameter> all = parameters(bench, each);
  give_gradients(bench, all);
  OptimizerSteps optimizer(bench.tape, RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = *kind}},
                           groups_of(each, all));
  Outcome outcome;
  for (const char* part : {"step1", "step2", "step3", "zero_grad"}) {
    bench.start();
    part == std::string("zero_grad") ? optimizer.zero_grad() : optimizer.step();
    outcome.difference += difference(part, *each.requests(part), bench.requests());
  }
  return outcome;
}

Outcome run_clipping(const OpCase& each) {
  const std::string kind = each.text("kind");
  if (kind != "clip" && kind != "clip-inf") return {.skipped = "get_total_norm alone, clipping without foreach"};
  TapeBench bench;
  const std::vector<Parameter> all = parameters(bench, each);
  give_gradients(bench, all);
  bench.start();
  Tensor norm = clip_grad_norm(bench.tape, all);
  Outcome outcome{.difference = difference("forward", *each.requests("forward"), bench.requests())};
  bench.start();
  norm.reset();
  outcome.difference += difference("after", *each.requests("after"), bench.requests());
  return outcome;
}

Outcome run_grad_scaler(const OpCase& each) {
  if (each.flag("inf_first")) return {.skipped = "a step that the loss scaler leaves out: depends on values"};
  TapeBench bench;
  const std::vector<Parameter> all = parameters(bench, each);
  OptimizerSteps optimizer(bench.tape, RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = *kind_of(each)}},
                           groups_of(each, all));
  GradScaler scaler(bench.tape, true, 0);
  Outcome outcome;
  const auto compare_part = [&](const std::string& part) {
    outcome.difference += difference(part, *each.requests(part), bench.requests());
    bench.start();
  };
  for (const char* step : {"0", "1", "2"}) {
    give_gradients(bench, all);
    const Tensor loss = bench.input({});
    bench.start();
    const Tensor scaled = scaler.scale(loss);
    compare_part(std::string("scale") + step);
    if (each.flag("clip")) {
      scaler.unscale(optimizer);
      compare_part(std::string("unscale") + step);
      clip_grad_norm(bench.tape, all);
      compare_part(std::string("clip") + step);
    }
    scaler.step(optimizer);
    compare_part(std::string("step") + step);
    scaler.update();
    compare_part(std::string("update") + step);
    optimizer.zero_grad();
  }
  return outcome;
}

}  // namespace

std::vector<Runner> training_runners() {
  return {{"optimizer", run_optimizer}, {"clip_grad_norm", run_clipping}, {"grad_scaler", run_grad_scaler}};
}

}  // namespace memcalc::measured
