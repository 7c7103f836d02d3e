// The most that memcalc takes in: beyond these a run or a file is refused in one line, because the answer would take
// longer or more memory than anybody expects. docs/reliability.md has the time and the memory at these limits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memcalc {

/// Layers are simulated one by one. The deepest transformer that was trained has 1,000 (DeepNet, arXiv:2203.00555).
inline constexpr std::int64_t kMostLayers = 2'000;
/// Of a file that lists its layers, each copy of a repeated block and each container counted: these are linear layers,
/// norms and activations, of which a transformer's layer has 10 to 20.
inline constexpr std::int64_t kMostCustomLayers = 10'000;

/// 2^17: the largest clusters of one job have about 100,000 GPUs.
inline constexpr std::int64_t kMostGpus = std::int64_t{1} << 17U;

// Files, bytes.
inline constexpr std::int64_t kMostJsonBytes = std::int64_t{64} << 20U;
inline constexpr std::int64_t kMostLogBytes = std::int64_t{64} << 20U;     // logs, measured rows, timings: a few MiB
inline constexpr std::int64_t kMostTraceBytes = std::int64_t{512} << 20U;  // torch.profiler's: hundreds of MiB
inline constexpr std::size_t kMostJsonDepth = 64;
inline constexpr std::size_t kMostJsonValues = 1'000'000;  // a value costs about 130 bytes of memory

}  // namespace memcalc
