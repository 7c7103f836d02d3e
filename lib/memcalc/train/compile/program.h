// What torch.compile makes of a function, such as a model's or a layer's forward: it is traced once, its joint graph is
// cut in two, and each call of forward or backward asks for the memory that inductor's code would. docs/compile.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/region_compiler.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/compile/cuda_graphs.h"
#include "memcalc/train/compile/graph.h"
#include "memcalc/train/compile/schedule.h"

namespace memcalc::compile {

/// A tensor that the function returns to Python.
struct Result {
  Shape shape, strides;  // inductor keeps the strides that were traced
  DType dtype = DType::kFloat32;
  std::int32_t output = -1;    // its place among the graph's outputs; -1: it is undefined or an argument
  std::int32_t argument = -1;  // the place of the argument that it is, which Python hands on without the graph
};

struct Program {
  JointGraph graph;
  std::vector<NodeIndex> saved;
  Schedule forward, backward;
  std::size_t launches_of_later_pieces = 0;  // of backward, before that of the first graph that Dynamo makes
  KernelList forward_kernels, backward_kernels;
  std::vector<Result> read, kept;  // RegionResults
  std::int64_t pieces = 1;         // graphs that Dynamo makes of it: calls of the host
  bool compiles_again = false;     // in the second step, where a guard fails
};

/// Where autocast begins: around the compiled function, or in it, as accelerate wraps a model's forward. Derivatives
/// are traced under what surrounds the function; of a graph that breaks, autocast surrounds the pieces in any case.
enum class Autocast : std::uint8_t { kAround, kInside };

/// What the traced function returns: RegionResults, and what Python drops as soon as it has got it.
struct FunctionResults {
  KeptTensors read, kept, dropped;
};

/// What is traced; the first result that is read is what backward starts from.
using Function = std::function<FunctionResults(const KeptTensors& arguments)>;

/// Runs `function` once without leaving events behind: a program that is not cut yet (no schedules).
[[nodiscard]] Program trace(Tape& tape, Autocast autocast, const KeptTensors& arguments, const Function& function);
/// Partitions the graph and schedules both parts for a card.
void cut(Program& program, const DeviceSpec& device);
/// Whether two programs differ in nothing but their parameters.
[[nodiscard]] bool is_same_code(const Program& a, const Program& b);
/// Those that have a gradient, in the order of the graph's gradients.
[[nodiscard]] std::vector<TensorImpl*> trained_parameters(const Program& program);

/// One call. Results that are read have the compiled backward as their history, where anything needs a gradient. Pre:
/// `program` and `parameters` outlive the backward pass.
/// `graphs`: not null where the call is recorded and replayed; it outlives the backward pass, too.
[[nodiscard]] RegionResults call(Tape& tape, const Program& program, std::span<TensorImpl* const> parameters,
                                 const KeptTensors& arguments, CudaGraphs* graphs = nullptr);

}  // namespace memcalc::compile
