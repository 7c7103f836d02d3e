// MIRRORS(torch, "_inductor/cudagraph_trees.py", "2.11.0")
#include "memcalc/train/compile/cuda_graphs.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/cuda_graph_streams.h"

namespace memcalc::compile {

namespace {

constexpr Operator kCublasWorkspace{"cublas_workspace"}, kCublasLtWorkspace{"cublaslt_workspace"};
constexpr Operator kGeneratorState{"CUDAGeneratorState"};

}  // namespace

CudaGraphs::CudaGraphs(Tape& tape) : tape_(tape), workspaces_(cublas_workspaces(tape.device, tape.behaviors)) {}

/// CUDAGraphTreeManager.__init__ records an empty graph, which keeps the pool alive. The first graph that registers
/// with the generator makes room for a seed and an offset, on the stream but not in the pool.
void CudaGraphs::make_tree() {
  if (std::exchange(has_tree_, true)) return;
  tape_.memory.empty_cache();  // torch.cuda.graph.__enter__
  const OnStream stream(tape_.moment, kGraphStream);
  for (int i = 0; i < 2; ++i) for_good_.push_back(tape_.empty({1}, DType::kInt64, kGeneratorState));
}

void CudaGraphs::clear_workspaces() {
  cublas_.reset();
  cublaslt_.reset();
}

void CudaGraphs::use_cublas(bool with_lt) {
  const auto take = [this](Tensor& workspace, Bytes bytes, const Operator& op) {
    if (!workspace.defined() && bytes > 0) workspace = tape_.empty({bytes}, DType::kUInt8, op, Category::kWorkspaces);
  };
  take(cublas_, workspaces_.cublas, kCublasWorkspace);
  if (with_lt) take(cublaslt_, workspaces_.cublaslt, kCublasLtWorkspace);
}

Tensor CudaGraphs::copy(Bytes bytes) {
  const OnStream stream(tape_.moment, kGraphPoolStream);
  return tape_.empty({bytes}, DType::kUInt8, aten::kCopy);
}

void CudaGraphs::copy_input(Bytes bytes, bool by_backward) {
  (by_backward ? read_by_backward_ : read_by_forward_).push_back(copy(bytes));
}

CudaGraphs::Call::Call(CudaGraphs& graphs, Part part)
    : graphs_(graphs),
      part_(part),
      stream_(graphs.tape_.moment, kGraphPoolStream),
      replay_(graphs.tape_.memory, graphs.runs_[static_cast<std::size_t>(part)] >= 2) {
  int& runs = graphs.runs_[static_cast<std::size_t>(part)];
  if (runs == 0) graphs.make_tree();
  if (runs == 1) graphs.tape_.memory.empty_cache();  // torch.cuda.graph.__enter__
  if (runs < 2) ++runs;
  graphs.read_by_forward_.clear();
}

CudaGraphs::Call::~Call() {
  if (part_ == Part::kBackward) graphs_.read_by_backward_.clear();
  graphs_.clear_workspaces();
}

}  // namespace memcalc::compile
