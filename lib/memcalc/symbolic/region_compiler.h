// RegionCompiler: what runs a part of a model, such as a layer, in the place of Python: torch.compile(layer). It has
// the part traced once, and from then on asks for what the compiled code would. train/compile/compiled_regions.h.
// Covered by tests/unit/compile_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "memcalc/symbolic/checkpoint.h"

namespace memcalc {

/// What a region returns to Python.
struct RegionResults {
  KeptTensors read;  // later operators read these, so that gradients come back for them; some may be undefined
  KeptTensors kept;  // these lie in the model's output, and nobody reads them: a cache's keys and values
};

class RegionCompiler {
 public:
  using Region = std::function<RegionResults(const KeptTensors&)>;

  /// The loss as a region; the head with its loss, where the model's graph breaks before both. Layers have their
  /// numbers.
  static constexpr std::int64_t kLoss = -1, kHead = -2;

  virtual ~RegionCompiler() = default;
  /// Whether this region is compiled; else it is to be run as it is.
  [[nodiscard]] virtual bool compiles(std::int64_t region) const = 0;
  /// region(arguments). The region must need nothing else that has a gradient, but parameters, and must leave no tensor
  /// behind that it has not returned. Nothing where the compiler gives up on it: then it is to be run as it is.
  /// `is_own_code`: no other region shares its code, as it reads its own number.
  [[nodiscard]] virtual std::optional<RegionResults> run(std::int64_t number, const KeptTensors& arguments,
                                                         const Region& region, bool is_own_code) = 0;
};

}  // namespace memcalc
