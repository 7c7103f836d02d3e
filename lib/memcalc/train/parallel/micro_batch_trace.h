// Micro-batches of a pipeline ask for the same memory: a few are executed, the others are copied from them, in the
// order of the schedule. So work does not grow with the number of micro-batches in flight.
// Covered by tests/unit/micro_batch_trace_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memcalc/symbolic/tape.h"
#include "memcalc/train/parallel/pipeline_schedule.h"

namespace memcalc {

class MicroBatchTrace {
 public:
  /// How many micro-batches of each chunk are executed: the first may ask for what stays for good, the second drops
  /// what the first left in variables, the third stands for all that follow.
  static constexpr std::int32_t kExecuted = 3;

  /// From here on, until stitch(), the tape's events belong to segments.
  MicroBatchTrace(Tape& tape, const Pipeline& pipeline, std::int32_t most_executed = kExecuted);

  /// Executes `run` as one step of the schedule. Micro-batches 0 to executed() - 1, forwards before backwards.
  template <typename Run>
  void record(const PipelineStep& step, Run run) {
    const std::size_t begin = tape_.memory.trace.events.size();
    run();
    keep(segment(step.action, step.chunk, step.micro_batch), begin);
  }
  /// What follows the last step: variables of the loop die.
  template <typename Run>
  void record_end(Run run) {
    const std::size_t begin = tape_.memory.trace.events.size();
    run();
    keep(end_, begin);
  }
  [[nodiscard]] std::int32_t executed() const { return executed_; }

  /// Replaces the recorded events by those of `steps`, micro-batches beyond the executed ones as copies.
  void stitch(std::span<const PipelineStep> steps);

 private:
  /// Who allocated the block of an event: a segment of this micro-batch or of one before it; else the block itself. One
  /// that is further back than kExecuted is no neighbour of every micro-batch but that one, and stays it.
  struct Origin {
    std::int32_t place = -1;  // of the segment, among those of a micro-batch
    std::int32_t back = 0;    // micro-batches
    BlockId offset = 0;       // from the segment's first block
  };
  struct Segment {
    std::vector<Event> events;
    std::vector<Origin> origins;     // of the template only
    BlockId first_block = kNoBlock;  // those that it allocates are consecutive
    BlockId block_count = 0;
  };
  static constexpr std::size_t kActions = 4;

  void keep(Segment& kept, std::size_t first_event);
  void find_origins(Segment& segment) const;
  void append_copy(const Segment& source, std::int32_t micro_batch);
  [[nodiscard]] std::size_t place(PipelineAction action, std::int32_t chunk) const {
    return static_cast<std::size_t>(chunk) * kActions + static_cast<std::size_t>(action);
  }
  [[nodiscard]] Segment& segment(PipelineAction action, std::int32_t chunk, std::int32_t executed) {
    return segments_[static_cast<std::size_t>(executed) * places_ + place(action, chunk)];
  }
  [[nodiscard]] BlockId& base(std::size_t place, std::int32_t micro_batch) {
    return bases_[static_cast<std::size_t>(micro_batch) * places_ + place];
  }

  Tape& tape_;
  std::int32_t executed_;
  std::int32_t micro_batches_;
  std::size_t first_event_;
  std::size_t places_;             // segments of a micro-batch
  std::vector<Segment> segments_;  // [executed][chunk][action]
  Segment end_;
  std::vector<BlockId> bases_;  // [micro-batch][chunk][action]: first block
};

}  // namespace memcalc
