#include "memcalc/train/parallel/micro_batch_trace.h"

#include <algorithm>

namespace memcalc {

MicroBatchTrace::MicroBatchTrace(Tape& tape, const Pipeline& pipeline, std::int32_t most_executed)
    : tape_(tape),
      executed_(static_cast<std::int32_t>(std::min<std::int64_t>(pipeline.micro_batches, most_executed))),
      micro_batches_(static_cast<std::int32_t>(pipeline.micro_batches)),
      first_event_(tape.memory.trace.events.size()),
      places_(static_cast<std::size_t>(pipeline.chunks) * kActions),
      segments_(places_ * static_cast<std::size_t>(executed_)),
      bases_(places_ * static_cast<std::size_t>(pipeline.micro_batches), kNoBlock) {}

void MicroBatchTrace::keep(Segment& kept, std::size_t first_event) {
  const auto& events = tape_.memory.trace.events;
  kept.events.assign(events.begin() + static_cast<std::ptrdiff_t>(first_event), events.end());
  for (const Event& event : kept.events) {
    if (event.kind != EventKind::kAllocate) continue;
    if (kept.block_count == 0) kept.first_block = event.block;
    ++kept.block_count;
  }
}

void MicroBatchTrace::find_origins(Segment& copied) const {
  const std::int32_t last = executed_ - 1;
  copied.origins.assign(copied.events.size(), Origin{});
  for (std::size_t i = 0; i < copied.events.size(); ++i) {
    const BlockId block = copied.events[i].block;
    for (std::int32_t back = 0; back < executed_; ++back) {
      for (std::size_t each = 0; each < places_; ++each) {
        const Segment& maker = segments_[static_cast<std::size_t>(last - back) * places_ + each];
        if (maker.block_count == 0 || block < maker.first_block) continue;
        if (block >= maker.first_block + maker.block_count) continue;
        copied.origins[i] = {static_cast<std::int32_t>(each), back, block - maker.first_block};
      }
    }
  }
}

void MicroBatchTrace::append_copy(const Segment& source, std::int32_t micro_batch) {
  for (std::size_t i = 0; i < source.events.size(); ++i) {
    Event event = source.events[i];
    const Origin& origin = source.origins[i];
    if (origin.place >= 0 && origin.back < kExecuted) {
      const BlockId first = base(static_cast<std::size_t>(origin.place), micro_batch - origin.back);
      if (first != kNoBlock) event.block = first + origin.offset;
    }
    tape_.memory.trace.events.push_back(event);
  }
}

void MicroBatchTrace::stitch(std::span<const PipelineStep> steps) {
  Trace& trace = tape_.memory.trace;
  trace.events.resize(first_event_);
  const std::int32_t last = executed_ - 1;
  for (std::size_t each = 0; each < places_; ++each) {
    find_origins(segments_[static_cast<std::size_t>(last) * places_ + each]);
    for (std::int32_t m = 0; m < executed_; ++m) {
      base(each, m) = segments_[static_cast<std::size_t>(m) * places_ + each].first_block;
    }
  }
  find_origins(end_);
  for (const PipelineStep& each : steps) {
    const Segment& source = segment(each.action, each.chunk, std::min(each.micro_batch, last));
    if (each.micro_batch < executed_) {
      trace.events.insert(trace.events.end(), source.events.begin(), source.events.end());
      continue;
    }
    base(place(each.action, each.chunk), each.micro_batch) = static_cast<BlockId>(trace.blocks.size());
    for (BlockId i = 0; i < source.block_count; ++i) {
      const Block block = trace.blocks[static_cast<std::size_t>(source.first_block + i)];
      trace.blocks.push_back(block);
    }
    append_copy(source, each.micro_batch);
  }
  append_copy(end_, micro_batches_ - 1);
}

}  // namespace memcalc
