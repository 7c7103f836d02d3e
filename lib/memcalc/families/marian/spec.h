// Marian: transformers models/marian.
#pragma once

#include "memcalc/families/bart/spec.h"

namespace memcalc {

/// Marian (models/marian), the translators of OPUS-MT: BART without a norm of the embeddings, positions that are not
/// trained.
BuildFamily build_marian;

namespace family {
extern const Family kMarian;
}  // namespace family

}  // namespace memcalc
