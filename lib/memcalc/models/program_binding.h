// What of a recorded program (spec/program.h) is known once a run's sizes and types are: its calls with their arguments
// in the places of the operators' signatures. models/program.cc runs them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/spec/program.h"
#include "memcalc/symbolic/ops/operator_table.h"

namespace memcalc {

/// What of a run decides the numbers and types in a program.
struct Binding {
  SymbolValues sizes;
  DType weights = DType::kFloat32;
  DType compute = DType::kFloat32;
  DType inputs = DType::kFloat32;  // of those in the weights' type; another than that in a packed denoiser alone

  [[nodiscard]] DType dtype(std::string_view name) const;
  [[nodiscard]] std::int64_t size(const ProgramArgument& size) const {
    return size.kind == ProgramArgument::Kind::kSymbolic ? sizes.evaluate(size.text) : size.integer;
  }
  /// Of the tensor `name`, for messages.
  [[nodiscard]] Shape shape(const std::vector<ProgramArgument>& sizes, std::string_view name) const;
  [[nodiscard]] BoundArgument bound(const ProgramArgument& argument) const;
};

/// BoundArgument::text of a list whose tensors are the parts of its first item along its second.
inline constexpr const char* kUnbound = "unbind";

struct BoundCall {
  const OperatorRow* row = nullptr;  // null: what the table does not have, or not with these arguments, named `opaque`
  std::string_view opaque;
  std::vector<BoundArgument> slots;
  const std::vector<std::int32_t>* results = nullptr;
  std::vector<GivenResult> given;
  bool differs_by_run = false;  // in a loop: slots have numbers of its run
  bool unbinds = false;         // a slot is a kUnbound list
};

struct BoundLayers {
  const ProgramLayers* layers = nullptr;
  std::vector<BoundArgument> arguments;  // tensors, by position and then by keyword
  std::size_t positional = 0;            // of these
  std::vector<bool> shifts;              // of each result: whether each layer has one of its own
  std::int32_t own_results = 0;          // that shift
  std::size_t number = 0;                // among those of its function
};

struct BoundCustom {
  const ProgramCustom* custom = nullptr;
  std::vector<BoundArgument> arguments, inputs;
  std::size_t number = 0;  // among those of its function
};

struct BoundCheckpoint {
  const ProgramCheckpoint* region = nullptr;
  std::vector<BoundArgument> arguments;  // tensors, by position and then by keyword
  std::size_t positional = 0;            // of these
  std::size_t number = 0;                // among those of its function
};

/// A module begins.
struct BoundModule {
  const ProgramModule* module = nullptr;
  std::size_t end = 0;                  // the place of its end in the body
  std::int32_t input = -1;              // a value of the outside that its calls take first; -1: none is
  std::int32_t output = -1;             // the last value that it makes; -1: none is
  std::vector<std::int32_t> also_dead;  // values of the outside that die in it
  int leaf = -1;                        // the LeafModule whose call is its only one but for views; -1: none
  std::size_t number = 0;               // among those of its function
};
struct BoundModuleEnd {};

/// A graph of torch.compile begins, with what relate_graphs() finds of it.
struct BoundGraph {
  std::size_t end = 0;                // the place of its end in the body
  std::size_t number = 0;             // among those of its function
  std::vector<std::int32_t> inputs;   // values of the outside that it reads
  std::vector<std::int32_t> outputs;  // values that it makes and something reads behind it, the last one first
  std::vector<std::int32_t> dead;     // values of the outside that die in it
};
struct BoundGraphEnd {};

struct BoundLoop;

using BoundInstruction =
    std::variant<BoundCall, const ProgramDrop*, BoundLayers, const ProgramRegion*, BoundModule, BoundModuleEnd,
                 std::unique_ptr<BoundLoop>, BoundCustom, BoundCheckpoint, BoundGraph, BoundGraphEnd>;

struct BoundLoop {
  std::int64_t count = 0;
  const ProgramLoop* loop = nullptr;
  std::vector<BoundInstruction> body;
};

/// Throws Error(kUnsupported) for operators that the table does not have. `program`: its name. `is_main`: the body of
/// the forward pass itself, whose calls outside of norms and attention have the type of its inputs.
[[nodiscard]] std::vector<BoundInstruction> bound_body(const ProgramInstructions& body, const Binding& binding,
                                                       const std::string& program, bool is_main);

/// Finds what graphs in the body of a function read and make; its results are `results`. Throws Error(kInput) where one
/// does not end, and Error(kUnsupported) where one ends in a module or region that has begun in it.
void relate_graphs(std::vector<BoundInstruction>& body, const std::vector<std::int32_t>& results,
                   const std::string& program);

/// Whether the body is one graph, but for deaths around it.
[[nodiscard]] bool is_one_graph(const std::vector<BoundInstruction>& body);

/// The values among an argument and its items, in order.
void collect_values(const BoundArgument& argument, std::vector<std::int32_t>& values);

/// The slots as they are in run `run` of the loop around them.
[[nodiscard]] std::vector<BoundArgument> slots_in(std::int64_t run, const std::vector<BoundArgument>& slots);

}  // namespace memcalc
