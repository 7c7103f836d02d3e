#include "memcalc/symbolic/autocast.h"

#include <cstdint>

namespace memcalc {

const Tensor* Autocast::find(const TensorImpl& weight) const {
  return weight.cached_cast < 0 ? nullptr : &cache_[static_cast<std::size_t>(weight.cached_cast)].second;
}

void Autocast::add(TensorImpl& weight, const Tensor& copy) {
  weight.cached_cast = static_cast<std::int32_t>(cache_.size());
  cache_.emplace_back(&weight, copy);
}

void Autocast::clear_cache() {
  for (auto& [weight, copy] : cache_) {
    weight->cached_cast = -1;
    copy.reset();
  }
  cache_.clear();
}

Autocast::Cache Autocast::take_cache() {
  for (auto& [weight, copy] : cache_) weight->cached_cast = -1;
  return std::exchange(cache_, {});
}

void Autocast::give_back(Cache cache) {
  clear_cache();
  for (auto& [weight, copy] : cache) add(*weight, copy);
}

}  // namespace memcalc
