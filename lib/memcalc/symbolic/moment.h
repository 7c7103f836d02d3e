// Moment: where a run stands. Every request for memory and every kernel is stamped with it.
#pragma once

#include <utility>

#include "memcalc/symbolic/trace.h"

namespace memcalc {

struct Moment {
  Phase phase = Phase::kBuild;
  CudaStream stream = CudaStream::kDefault;  // the current stream
  bool recomputing = false;                  // inside of a checkpoint's second forward
  int step = -1;                             // of the run: 0, 1, 2; -1 while the model is built
  const Operator* node = nullptr;            // the autograd node or optimizer that calls operators; null in forward
};

/// with torch.cuda.stream(…)
class OnStream {
 public:
  OnStream(Moment& moment, CudaStream stream) : moment_(moment), before_(std::exchange(moment.stream, stream)) {}
  ~OnStream() { moment_.stream = before_; }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  Moment& moment_;
  CudaStream before_;
};

/// A checkpointed region runs for the second time.
class Recomputing {
 public:
  explicit Recomputing(Moment& moment) : moment_(moment), before_(std::exchange(moment.recomputing, true)) {}
  ~Recomputing() { moment_.recomputing = before_; }
  Recomputing(const Recomputing&) = delete;
  Recomputing& operator=(const Recomputing&) = delete;

 private:
  Moment& moment_;
  bool before_;
};

}  // namespace memcalc
