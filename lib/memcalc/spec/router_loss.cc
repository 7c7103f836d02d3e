#include "memcalc/spec/router_loss.h"

#include "memcalc/spec/family.h"
#include "memcalc/spec/model_kind.h"

namespace memcalc {

bool returns_router_logits(const ModelSpec& model) {
  const Family* const family = family_of(model);
  return family != nullptr && family->has_router_loss &&
         has_experts(model);  // families of images have dense texts, too
}

}  // namespace memcalc
