// How Unsloth's FastLanguageModel runs the layers of a decoder (unsloth 2026.10.9). Covered by
// tests/unit/unsloth_test.cc.
#pragma once

#include "memcalc/models/model.h"
#include "memcalc/symbolic/ops/unsloth.h"

namespace memcalc {

/// A layer that has an adapter and no bias.
[[nodiscard]] UnslothProduct unsloth_product(const Linear& layer);

/// What loader and script take of the model's positions: rows of the tables of cos and sin.
[[nodiscard]] std::int64_t unsloth_position_rows(std::int64_t max_position_embeddings, std::int64_t sequence);

}  // namespace memcalc
