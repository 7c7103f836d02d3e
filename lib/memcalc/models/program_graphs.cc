// A program whose graph breaks under torch.compile: what each of its graphs reads and makes, and how one is called.
// MIRRORS(torch, "_dynamo/symbolic_convert.py", "2.11.0")
#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "memcalc/models/program_graphs.h"
#include "memcalc/models/program_model.h"
#include "memcalc/symbolic/graph_number.h"
#include "memcalc/symbolic/region_compiler.h"

namespace memcalc {
namespace {

using Body = std::vector<BoundInstruction>;
using Numbers = std::set<std::int32_t>;

/// The values that instructions read and make.
struct Effects {
  Numbers reads, makes;

  void read(const std::vector<BoundArgument>& arguments) {
    std::vector<std::int32_t> found;
    for (const BoundArgument& each : arguments) collect_values(each, found);
    reads.insert(found.begin(), found.end());
  }
  void make(const std::vector<std::int32_t>& results) { makes.insert(results.begin(), results.end()); }
};

Effects effects_of(const Body& body);

Effects effects_of(const BoundInstruction& each) {
  Effects effects;
  if (const auto* call = std::get_if<BoundCall>(&each)) {
    effects.read(call->slots);
    effects.make(*call->results);
  } else if (const auto* layers = std::get_if<BoundLayers>(&each)) {
    effects.read(layers->arguments);
    for (std::size_t i = 0; i < layers->layers->results.size(); ++i) {
      const std::int64_t count = layers->shifts[i] ? layers->layers->count : 1;
      for (std::int32_t layer = 0; layer < count; ++layer) {
        effects.makes.insert(layers->layers->results[i] + layer * layers->own_results);
      }
    }
  } else if (const auto* custom = std::get_if<BoundCustom>(&each)) {
    effects.read(custom->arguments);
    effects.make(custom->custom->results);
  } else if (const auto* region = std::get_if<BoundCheckpoint>(&each)) {
    effects.read(region->arguments);
    effects.make(region->region->results);
  } else if (const auto* loop = std::get_if<std::unique_ptr<BoundLoop>>(&each)) {
    const Effects inner = effects_of((*loop)->body);
    effects.makes = inner.makes;
    std::set_difference(inner.reads.begin(), inner.reads.end(), inner.makes.begin(), inner.makes.end(),
                        std::inserter(effects.reads, effects.reads.end()));
    for (const auto& [from, to] : (*loop)->loop->carries) effects.reads.insert(to);
  }
  return effects;
}

Effects effects_of(const Body& body) {
  Effects all;
  for (const BoundInstruction& each : body) {
    Effects effects = effects_of(each);
    all.reads.merge(effects.reads);
    all.makes.merge(effects.makes);
  }
  return all;
}

/// +1 where something begins that must end in the same graph, -1 where it ends.
int depth_of(const BoundInstruction& each) {
  if (std::holds_alternative<BoundModule>(each)) return 1;
  if (std::holds_alternative<BoundModuleEnd>(each)) return -1;
  const auto* region = std::get_if<const ProgramRegion*>(&each);
  return region == nullptr ? 0 : (*region)->begins ? 1 : -1;
}

/// The graphs of one body.
class GraphsOfBody {
 public:
  GraphsOfBody(Body& body, const std::string& program) : body_(body), program_(program) {}

  /// `read`: what is read behind the body.
  void relate(Numbers read) {
    std::size_t end = body_.size();  // of the graph that is open, seen from its end
    Numbers read_behind;
    for (std::size_t i = body_.size(); i-- > 0;) {
      BoundInstruction& each = body_[i];
      if (std::holds_alternative<BoundGraphEnd>(each)) {
        if (end != body_.size()) throw broken("a graph ends that has not begun");
        end = i;
        read_behind = read;
      } else if (auto* graph = std::get_if<BoundGraph>(&each)) {
        if (end == body_.size()) throw broken("a graph begins and does not end");
        graph->end = end;
        relate(*graph, i, read_behind);
        end = body_.size();
      } else if (auto* loop = std::get_if<std::unique_ptr<BoundLoop>>(&each)) {
        Numbers of_loop = read;
        Effects inner = effects_of((*loop)->body);
        of_loop.merge(inner.reads);
        for (const auto& [from, to] : (*loop)->loop->carries) of_loop.insert(from);
        GraphsOfBody((*loop)->body, program_).relate(std::move(of_loop));
      }
      Effects effects = effects_of(each);
      read.merge(effects.reads);
    }
    if (end != body_.size()) throw broken("a graph ends that has not begun");
  }

 private:
  void relate(BoundGraph& graph, std::size_t begin, const Numbers& read_behind) const {
    Numbers made, inputs, dead;
    std::vector<std::int32_t> order;
    int depth = 0;
    for (std::size_t i = begin + 1; i < graph.end; ++i) {
      const BoundInstruction& each = body_[i];
      depth += depth_of(each);
      if (depth < 0) break;
      if (const auto* drop = std::get_if<const ProgramDrop*>(&each)) {
        for (const std::int32_t value : (*drop)->values) {
          if (made.count(value) == 0) dead.insert(value);
        }
      }
      const Effects effects = effects_of(each);
      for (const std::int32_t value : effects.reads) {
        if (made.count(value) == 0) inputs.insert(value);
      }
      for (const std::int32_t value : effects.makes) {
        if (made.insert(value).second && read_behind.count(value) > 0) order.push_back(value);
      }
    }
    if (depth != 0) {
      throw Error(ErrorCode::kUnsupported,
                  program_ +
                      ": torch.compile breaks its graph within a region of autocast or of no_grad(), and "
                      "pieces of a region are not modelled; accepted: no --compile");
    }
    graph.inputs.assign(inputs.begin(), inputs.end());
    graph.outputs.assign(order.rbegin(), order.rend());
    graph.dead.assign(dead.begin(), dead.end());
  }

  [[nodiscard]] Error broken(const char* how) const { return {ErrorCode::kInput, program_ + ": " + how}; }

  Body& body_;
  const std::string& program_;
};

}  // namespace

void relate_graphs(Body& body, const std::vector<std::int32_t>& results, const std::string& program) {
  GraphsOfBody(body, program).relate({results.begin(), results.end()});
}

bool is_one_graph(const Body& body) {
  const auto is_death = [](const BoundInstruction& each) { return std::holds_alternative<const ProgramDrop*>(each); };
  const auto first = std::find_if_not(body.begin(), body.end(), is_death);
  const auto* graph = first == body.end() ? nullptr : std::get_if<BoundGraph>(&*first);
  if (graph == nullptr) return false;
  return std::all_of(body.begin() + static_cast<std::ptrdiff_t>(graph->end) + 1, body.end(), is_death);
}

bool breaks_graph(const Model& model) {
  const auto* program = dynamic_cast<const ProgramModel*>(&model);
  return model.breaks_at_layers || (program != nullptr && program->breaks_graph());
}

bool ProgramModel::is_in_graphs() const {
  const Modes& modes = tape_.modes;
  return breaks_graph_ && modes.training && modes.compiler != nullptr && modes.capture == nullptr;
}

/// Calls of one function of Python share their programs: of each graph those of all layers.
std::int64_t ProgramModel::next_graph(const PlacedFunction& function, std::size_t graph) const {
  constexpr std::int64_t kMostGraphs = 1 << 20;  // of one function
  return graph_number(1 + function.function * kMostGraphs + static_cast<std::int64_t>(graph), ++graphs_run_);
}

void ProgramModel::run_graph(const PlacedFunction& function, const std::vector<BoundInstruction>& body,
                             std::size_t begin, std::vector<Tensor>& values, std::int64_t in_run) const {
  const BoundGraph& graph = std::get<BoundGraph>(body[begin]);
  const auto value = [&](std::int32_t number) -> Tensor& { return values[static_cast<std::size_t>(number)]; };
  const std::int64_t number = next_graph(function, graph.number);
  if (!graph.outputs.empty()) {  // else nothing is left of it to compile
    KeptTensors arguments;
    for (const std::int32_t input : graph.inputs) arguments.push_back(value(input));
    const auto traced = [&](const KeptTensors& given) {
      forget_graph_values();
      std::vector<Tensor> own(values.size());
      for (std::size_t i = 0; i < given.size(); ++i) own[static_cast<std::size_t>(graph.inputs[i])] = given[i];
      run_part(function, body, begin + 1, graph.end, own, in_run);
      RegionResults results;
      for (const std::int32_t output : graph.outputs) {
        results.read.push_back(std::move(own[static_cast<std::size_t>(output)]));
      }
      return results;
    };
    std::optional<RegionResults> results = tape_.modes.compiler->run(number, arguments, traced, false);
    if (!results) {  // as it is: of this function there are too many programs
      run_part(function, body, begin + 1, graph.end, values, in_run);
      return;
    }
    for (std::size_t i = 0; i < graph.outputs.size(); ++i) value(graph.outputs[i]) = std::move(results->read[i]);
  }
  // What the function that was compiled is given, its caller holds until it returns.
  for (const std::int32_t dead : graph.dead) value(dead).reset();
}

Tensor ProgramModel::run_layer_graph(const PlacedFunction& called, const KeptTensors& given,
                                     std::vector<Tensor>* others) const {
  const std::int64_t index = tape_.modes.checkpointable_layers++;
  const auto layer = [&](const KeptTensors& kept) { return run_layer(called, kept, others); };
  const auto traced = [&](const KeptTensors& arguments) {
    forget_graph_values();
    RegionResults results;
    results.read.push_back(traced_layer(run_, index, arguments, layer));
    for (std::size_t i = 0; others != nullptr && i < others->size(); ++i) {
      results.read.push_back(std::move((*others)[i]));
    }
    return results;
  };
  std::optional<RegionResults> results = tape_.modes.compiler->run(next_graph(called, 0), given, traced, false);
  if (!results) return checkpointed_layer(run_, index, given, {}, layer);
  for (std::size_t i = 1; i < results->read.size(); ++i) (*others)[i - 1] = std::move(results->read[i]);
  return std::move(results->read.front());
}

}  // namespace memcalc
