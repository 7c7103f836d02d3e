// Marian: transformers models/marian/modeling_marian.py.
// MIRRORS(transformers, "models/marian/modeling_marian.py", "5.17.0")
#include "memcalc/families/marian/spec.h"

#include "memcalc/families/bart/conditional_generation.h"

namespace memcalc {

std::unique_ptr<Model> build_marian(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return build_bart(architecture.as<BartSpec>(), run, builder,
                    {.positions = BartPositions::kSinusoid,
                     .embedding_norm = false,
                     .keeps_mask_of_ones = true,
                     .overwrites_position_ids = true});
}

}  // namespace memcalc
