// RegionCompiler: what runs a part of a model, such as a layer, in the place of Python: torch.compile(layer). It has
// the part traced once, and from then on asks for what the compiled code would. train/compile/compiled_regions.h.
#pragma once

#include <cstdint>
#include <functional>

#include "memcalc/symbolic/checkpoint.h"

namespace memcalc {

class RegionCompiler {
 public:
  using Region = std::function<Tensor(const KeptTensors&)>;

  /// The loss as a region; layers have their numbers.
  static constexpr std::int64_t kLoss = -1;

  virtual ~RegionCompiler() = default;
  /// Whether this region is compiled; else it is to be run as it is.
  [[nodiscard]] virtual bool compiles(std::int64_t region) const = 0;
  /// region(arguments). The region must need nothing else that has a gradient, but parameters.
  [[nodiscard]] virtual Tensor run(std::int64_t number, const KeptTensors& arguments, const Region& region) = 0;
};

}  // namespace memcalc
