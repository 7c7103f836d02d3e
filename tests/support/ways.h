// The ways in which a family is compared with its recorded program.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc::test {

struct Way {
  const char* name;
  Precision precision;
  DType weights;
};

inline constexpr Way kWays[] = {{"float32", Precision::kFp32, DType::kFloat32},
                                {"bfloat16", Precision::kBf16, DType::kBFloat16},
                                {"autocast", Precision::kAmpBf16, DType::kFloat32}};

/// Asks for each precision, with and without checkpointing and LoRA, in a plain loop.
inline void in_every_way(const std::function<void(const RunOptions&)>& ask) {
  for (const Way& way : kWays) {
    for (const Checkpointing checkpointing : {Checkpointing::kNone, Checkpointing::kFull}) {
      for (const bool lora : {false, true}) {
        SCOPED_TRACE(std::string(way.name) + (checkpointing == Checkpointing::kFull ? ", checkpointing" : "") +
                     (lora ? ", LoRA" : ""));
        RunOptions options{.precision = way.precision,
                           .weights_dtype = way.weights,
                           .loop = Loop::kBare,
                           .checkpointing = checkpointing};
        if (lora) options.lora_rank = 4;
        ask(options);
      }
    }
  }
}

}  // namespace memcalc::test
