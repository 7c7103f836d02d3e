// Remedy: how a run that does not fit is changed so that it does, as a command to copy. plan/ladder.h finds them.
// Covered by tests/whole/ladder_test.cc and tests/whole/remedies_test.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/report/verdict.h"

namespace memcalc {

struct Remedy {
  std::vector<std::string> techniques;  // all that is needed of them: "checkpointing of every layer"
  std::string price;                    // what they cost, in words
  std::string command;                  // complete, for a shell: "memcalc --model gpt2 --bs 4 …"
  Bytes needed = 0;                     // of the card
  Bytes error = 0;                      // how far that may be off, either way
  Verdict verdict = Verdict::kFits;     // else: the least that was found, where nothing fits
  std::optional<double> step_seconds;   // where the card's rates are known
};

}  // namespace memcalc
