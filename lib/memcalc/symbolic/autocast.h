// Autocast: the state of torch.autocast: the 16-bit type of the region that is open, and the cache of weights.
// Covered by tests/unit/modes_test.cc.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "memcalc/base/dtype.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

class Autocast {
 public:
  /// A leaf and its 16-bit copy each.
  using Cache = std::vector<std::pair<TensorImpl*, Tensor>>;

  [[nodiscard]] bool is_on() const { return dtype.has_value(); }

  /// The copy of a leaf; null where it has none.
  [[nodiscard]] const Tensor* find(const TensorImpl& weight) const;
  void add(TensorImpl& weight, const Tensor& copy);
  void clear_cache();
  /// Leaves the cache empty until it is given back.
  [[nodiscard]] Cache take_cache();
  void give_back(Cache cache);

  std::optional<DType> dtype;  // set inside of a region

 private:
  Cache cache_;  // there is one, whichever regions are open; TensorImpl::cached_cast is a leaf's place in it
};

/// with torch.autocast("cuda", dtype), or enabled=False where there is none. Its end empties the cache.
class Autocasting {
 public:
  Autocasting(Autocast& autocast, std::optional<DType> dtype)
      : autocast_(autocast), before_(std::exchange(autocast.dtype, dtype)) {}
  ~Autocasting() {
    autocast_.dtype = before_;
    autocast_.clear_cache();
  }
  Autocasting(const Autocasting&) = delete;
  Autocasting& operator=(const Autocasting&) = delete;

 private:
  Autocast& autocast_;
  std::optional<DType> before_;
};

/// Inside of a region, what runs without it: the cache stays.
class WithoutAutocast {
 public:
  explicit WithoutAutocast(Autocast& autocast)
      : autocast_(autocast), before_(std::exchange(autocast.dtype, std::nullopt)) {}
  ~WithoutAutocast() { autocast_.dtype = before_; }
  WithoutAutocast(const WithoutAutocast&) = delete;
  WithoutAutocast& operator=(const WithoutAutocast&) = delete;

 private:
  Autocast& autocast_;
  std::optional<DType> before_;
};

}  // namespace memcalc
