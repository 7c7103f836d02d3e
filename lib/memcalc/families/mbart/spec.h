// mBART: transformers models/mbart.
#pragma once

#include "memcalc/families/bart/spec.h"

namespace memcalc {

/// mBART (models/mbart): BART with a norm before each half of a layer and behind the last.
BuildFamily build_mbart;

namespace family {
extern const Family kMbart;
}  // namespace family

}  // namespace memcalc
