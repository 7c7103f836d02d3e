// torch.compile of each layer, which torchtitan does and accelerate calls regional compilation, and where the run asks
// for it of the loss. Around a layer lies what a wrapper does with it (fully_shard), inside its checkpoint; the
// embedding, the last norm and the head are what they are in eager mode. And the graphs of a model whose graph breaks:
// a program says itself what they are (models/program_graphs.cc), of a model with LayerDrop they are the layers and the
// head with its loss. Covered by tests/unit/compile_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "memcalc/spec/training_spec.h"
#include "memcalc/symbolic/region_compiler.h"
#include "memcalc/train/compile/program.h"

namespace memcalc::compile {

class CompiledRegions : public RegionCompiler {
 public:
  /// Sets the tape's compiler for as long as it lives. Of a whole model it compiles no region that nobody names, but
  /// where it `breaks_at_layers` (Model::breaks_at_layers).
  CompiledRegions(Tape& tape, CompiledParts parts, bool breaks_at_layers);
  ~CompiledRegions() override;
  CompiledRegions(const CompiledRegions&) = delete;
  CompiledRegions& operator=(const CompiledRegions&) = delete;

  [[nodiscard]] bool compiles(std::int64_t region) const override {
    const bool breaks = parts_ == CompiledParts::kModel && breaks_at_layers_;
    if (region == kLoss) return parts_ == CompiledParts::kLayersAndLoss;
    return region == kHead ? breaks : breaks || parts_ != CompiledParts::kModel;
  }
  [[nodiscard]] std::optional<RegionResults> run(std::int64_t number, const KeptTensors& arguments,
                                                 const Region& region, bool is_own_code) override;

 private:
  struct Compiled {
    const Program* program = nullptr;  // null: the compiler has given up on it
    std::vector<TensorImpl*> parameters;
  };

  const Compiled& compile(std::int64_t number, const KeptTensors& arguments, const Region& region, bool is_own_code);

  Tape& tape_;
  CompiledParts parts_;
  bool breaks_at_layers_;
  std::map<std::int64_t, std::vector<std::unique_ptr<Program>>>
      programs_;                                           // by the function's code; equal calls share one
  std::map<std::int64_t, std::unique_ptr<Program>> ends_;  // kLoss, kHead
  std::map<std::int64_t, Compiled> compiled_;
};

}  // namespace memcalc::compile
