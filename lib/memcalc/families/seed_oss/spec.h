// Seed-OSS: transformers models/seed_oss.
#pragma once

#include "memcalc/families/llama/spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// ByteDance's Seed-OSS (models/seed_oss): LLaMA with dropout behind each half.
struct SeedOssSpec : LlamaSpec {
  bool attention_out_bias = false;
  double residual_dropout = 0;
};

BuildFamily build_seed_oss;

namespace family {
extern const Family kSeedOss;
}  // namespace family

}  // namespace memcalc
