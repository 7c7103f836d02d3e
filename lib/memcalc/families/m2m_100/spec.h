// M2M-100 and NLLB: transformers models/m2m_100.
#pragma once

#include "memcalc/families/bart/spec.h"

namespace memcalc {

/// M2M-100 and NLLB-200 (models/m2m_100): Pegasus without a bias of the logits, positions that skip padding.
BuildFamily build_m2m_100;

namespace family {
extern const Family kM2M100;
}  // namespace family

}  // namespace memcalc
