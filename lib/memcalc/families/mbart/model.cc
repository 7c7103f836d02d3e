// mBART: transformers models/mbart/modeling_mbart.py.
// MIRRORS(transformers, "models/mbart/modeling_mbart.py", "5.17.0")
#include "memcalc/families/mbart/spec.h"

#include "memcalc/families/bart/conditional_generation.h"

namespace memcalc {

std::unique_ptr<Model> build_mbart(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return build_bart(architecture.as<BartSpec>(), run, builder,
                    {.norm_before = true,
                     .last_norm = true,
                     .keeps_mask_of_ones = true,
                     .overwrites_position_ids = true,
                     .wraps_labels = true});
}

}  // namespace memcalc
