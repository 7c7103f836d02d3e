// Pegasus: transformers models/pegasus.
#pragma once

#include "memcalc/families/bart/spec.h"

namespace memcalc {

/// Pegasus (models/pegasus): mBART without a norm of the embeddings, positions that are not trained.
BuildFamily build_pegasus;

namespace family {
extern const Family kPegasus;
}  // namespace family

}  // namespace memcalc
