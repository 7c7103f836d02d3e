// Mamba-2: transformers models/mamba2/modeling_mamba2.py.
// MIRRORS(transformers, "models/mamba2/modeling_mamba2.py", "5.17.0")
#include "memcalc/families/mamba2/spec.h"
#include "memcalc/models/mamba2_mixer.h"
#include "memcalc/models/mamba_decoder.h"

namespace memcalc {

namespace {

struct Mamba2FamilyMixer : Mamba2Mixer {
  Mamba2FamilyMixer(ModuleBuilder& b, const Mamba2Spec& spec)
      : Mamba2Mixer(b, spec.mixer, spec.hidden_size, spec.hidden_act) {}
};

}  // namespace

std::unique_ptr<Model> build_mamba2(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<MambaDecoder<Mamba2FamilyMixer, true>>(architecture.as<Mamba2Spec>(), run, builder);
}

}  // namespace memcalc
