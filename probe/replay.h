// memcalc-probe run: a predicted step on the real card.
#pragma once

#include <string>

namespace memcalc::probe {

/// Takes a file of `memcalc trace --format replay`: allocates and frees what it says through PyTorch's rules on
/// cudaMalloc, runs its products and memory-bound kernels at their shapes, and prints what was predicted beside what
/// was measured. Returns the exit status.
int run_replay(const std::string& path);

}  // namespace memcalc::probe
