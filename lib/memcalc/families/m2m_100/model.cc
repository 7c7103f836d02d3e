// M2M-100 and NLLB: transformers models/m2m_100/modeling_m2m_100.py.
// MIRRORS(transformers, "models/m2m_100/modeling_m2m_100.py", "5.17.0")
#include "memcalc/families/m2m_100/spec.h"

#include "memcalc/families/bart/conditional_generation.h"

namespace memcalc {

std::unique_ptr<Model> build_m2m_100(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return build_bart(architecture.as<BartSpec>(), run, builder,
                    {.positions = BartPositions::kOfTokens,
                     .norm_before = true,
                     .embedding_norm = false,
                     .last_norm = true,
                     .logits_bias = false,
                     .caches_with_labels = true});
}

}  // namespace memcalc
