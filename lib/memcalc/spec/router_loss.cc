#include "memcalc/spec/router_loss.h"

#include "memcalc/spec/family.h"

namespace memcalc {

bool returns_router_logits(const ModelSpec& model) {
  const Family* const family = family_of(model);
  return family != nullptr && family->has_router_loss;
}

}  // namespace memcalc
