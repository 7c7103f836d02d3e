// Pegasus: transformers models/pegasus/modeling_pegasus.py.
// MIRRORS(transformers, "models/pegasus/modeling_pegasus.py", "5.17.0")
#include "memcalc/families/pegasus/spec.h"

#include "memcalc/families/bart/conditional_generation.h"

namespace memcalc {

std::unique_ptr<Model> build_pegasus(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return build_bart(architecture.as<BartSpec>(), run, builder,
                    {.positions = BartPositions::kSinusoid,
                     .norm_before = true,
                     .embedding_norm = false,
                     .last_norm = true,
                     .keeps_mask_of_ones = true});
}

}  // namespace memcalc
