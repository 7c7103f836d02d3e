// Modes: what surrounds the calls of operators and changes what they do, each as the framework has it: a context that
// Python enters and leaves, or how a wrapper has split what the operators see. Covered by tests/unit/modes_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "memcalc/spec/float8.h"
#include "memcalc/symbolic/autocast.h"
#include "memcalc/symbolic/node.h"

namespace memcalc {

class GraphCapture;
class LayerHooks;
class ModuleHooks;
class RegionCompiler;

/// torch.distributed.tensor.experimental.context_parallel: these ranks share each sequence.
struct ContextRanks {
  std::int64_t ranks = 1;
  std::int64_t rank = 0;  // this one
  bool rotates = false;   // keys and values are passed on, rank by rank; else attention gathers them
};

/// The same by Ulysses: attention exchanges heads for positions.
struct UlyssesRanks {
  std::int64_t ranks = 1;
};

/// Tensor parallelism whose plan splits the sequence between the layers' products.
struct SequenceSplit {
  std::int64_t ranks = 1;
  bool loss_parallel = false;  // the logits stay split by vocabulary
};

/// What Unsloth's functions have made once and keep (symbolic/ops/unsloth.h), and how far its checkpoints are.
struct UnslothBuffers {
  Tensor cos, sin;               // of every position that the model has
  Tensor unpacked;               // a weight of 4 bits, unpacked for a product of forward
  std::array<Tensor, 2> inputs;  // of checkpointed layers, back from the host: two by turns
  std::int64_t layers = 0;       // that the first forward pass has checkpointed
  std::int64_t layer = 0;        // this one of the pass
  std::int64_t turn = 0;         // of the inputs' buffers
  bool first_pass = true;        // until its backward begins
  bool begins_pass = true;       // no layer of this pass was checkpointed yet
  bool takes_turns = false;      // from the second pass on
};

struct Modes {
  // --- of PyTorch
  bool grad_enabled = true;
  bool training = true;  // model.train(); else model.eval(): no dropout, fixed statistics of batches
  Autocast autocast;
  FrameHandle checkpoint;      // the region whose saved tensors are numbered instead of kept
  bool offload_saved = false;  // torch.autograd.graph.save_on_cpu: what autograd saves goes to host memory

  // --- of torch.compile
  GraphCapture* capture = nullptr;     // writes down the graph; meanwhile nothing is an event of the trace
  RegionCompiler* compiler = nullptr;  // of layers, and of the loss
  Float8 float8 = Float8::kNone;       // of the products that are captured

  // --- of what wraps the model
  bool adapters_disabled = false;       // with peft_model.disable_adapter()
  LayerHooks* layer_hooks = nullptr;    // what it does around each layer
  ModuleHooks* module_hooks = nullptr;  // and around each module that holds parameters
  std::optional<ContextRanks> context;
  std::optional<UlyssesRanks> ulysses;
  std::optional<SequenceSplit> sequence_split;
  bool on_dtensors = false;  // nodes that are recorded are of DTensors (Node::sums_anew)

  // --- of the model
  bool head_in_float32 = false;          // lm_head's input is cast first (TRL's cast_lm_head_to_fp32)
  bool cut_cross_entropy = false;        // a head's logits and loss are one function (ops/cut_cross_entropy.h)
  std::optional<DType> embedding_dtype;  // and what the embedding that shares its weight gives is cast back

  // --- of the pass or the process
  std::vector<Tensor>* router_logits = nullptr;  // where routers' logits are kept: output_router_logits=True
  std::int64_t checkpointable_layers = 0;        // that have run in this forward pass
  bool has_dynamic_map = false;                  // bitsandbytes has put its map of 8-bit codes on the card
  bool has_dropout_state = false;                // cuDNN's recurrent layers have made their random numbers' state
  UnslothBuffers unsloth;
};

/// Gives a mode another value until the scope ends.
template <typename T>
class Scoped {
 public:
  Scoped(T& mode, std::type_identity_t<T> value) : mode_(mode), before_(std::exchange(mode, std::move(value))) {}
  ~Scoped() { mode_ = std::move(before_); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& mode_;
  T before_;
};

/// with torch.no_grad()
class NoGrad : public Scoped<bool> {
 public:
  explicit NoGrad(Modes& modes) : Scoped(modes.grad_enabled, false) {}
};

/// with torch.enable_grad()
class EnableGrad : public Scoped<bool> {
 public:
  explicit EnableGrad(Modes& modes) : Scoped(modes.grad_enabled, true) {}
};

}  // namespace memcalc
