// KernelList: what a step computes, in order: the input of cost/ and of the FLOP counts.
#pragma once

#include <cstdint>

#include "memcalc/base/dtype.h"
#include "memcalc/base/kept_vector.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

enum class Collective : std::uint8_t { kNone, kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast, kSend };

/// One operator call of one optimizer step.
struct Kernel {
  const Operator* op = nullptr;
  const Operator* node = nullptr;  // the autograd node that issued it; null in forward
  OperatorClass operator_class = OperatorClass::kElementwise;
  Phase phase = Phase::kForward;
  bool recomputed = false;   // part of a checkpoint's second forward
  std::int64_t repeats = 1;  // calls like this one in a step: micro-batches that were not executed
  DType dtype = DType::kFloat32;
  double flops = 0;  // of one call; a multiply-add counts 2; contractions counted as torch.utils.flop_counter does
  double bytes = 0;  // read and written by an ideal kernel
  CudaStream stream = CudaStream::kDefault;  // on which it runs beside the others
  Collective collective = Collective::kNone;
  /// Collectives only: bytes as nccl-tests count them (the whole tensor: what is gathered, what is to be scattered; of
  /// a message what is sent), and the ranks that take part.
  double collective_bytes = 0;
  std::int64_t group_size = 1;
  std::int64_t m = 0, n = 0, k = 0, batch = 0;  // contractions only: C[batch, m, n] += A[batch, m, k] B[batch, k, n]
};

using KernelList = KeptVector<Kernel>;

}  // namespace memcalc
