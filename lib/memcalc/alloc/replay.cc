#include "memcalc/alloc/replay.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "memcalc/alloc/caching_allocator.h"
#include "memcalc/alloc/exact_allocator.h"
#include "memcalc/alloc/expandable_allocator.h"
#include "memcalc/alloc/segment_placement.h"
#include "memcalc/base/error.h"
#include "memcalc/base/kept_vector.h"

namespace memcalc {
namespace {

// What a block of the trace has become. A live one has its handle here.
constexpr std::uint32_t kNotYet = 0xffffffff;
constexpr std::uint32_t kFreed = 0xfffffffe;

[[nodiscard]] Error broken_trace(std::size_t event, const std::string& what) {
  return {ErrorCode::kInternal, "event " + std::to_string(event) + " of the trace " + what};
}

template <typename Allocator>
class Replayer {
 public:
  Replayer(const Trace& trace, Allocator allocator, const ReplayOptions& options)
      : trace_(trace),
        allocator_(std::move(allocator)),
        handles_(trace.blocks.size(), kNotYet),
        record_timeline_(options.record_timeline),
        mark_steps_(options.mark_steps),
        peaks_of_steps_alone_(options.peaks_of_steps_alone),
        reserves_from_construction_(options.reserves_from_construction),
        peaks_from_(options.peaks_from) {}

  [[nodiscard]] ReplayResult run() {
    if (record_timeline_) {
      result_.timeline.reserve(trace_.events.size());
      replay_events<true>();
    } else {
      replay_events<false>();
    }
    result_.slack_at_peak = result_.peak_allocated;
    for (const Bytes bytes : result_.categories_at_peak) result_.slack_at_peak -= bytes;
    result_.allocated_at_end = allocator_.allocated();
    result_.reserved_at_end = allocator_.reserved();
    if constexpr (std::is_same_v<Allocator, CachingAllocator>) {
      result_.retries = allocator_.retries();
      result_.out_of_memory = allocator_.out_of_memory();
    }
    return std::move(result_);
  }

 private:
  template <bool kRecordTimeline>
  void replay_events() {
    const std::size_t count = trace_.events.size();
    const Event* const events = trace_.events.data();
    for (std::size_t i = 0; i < count;) {
      // What is allocated when a phase begins counts for its peak, as in torch.cuda.reset_peak_memory_stats.
      const Phase phase = events[i].phase;
      phase_peak_ = allocator_.allocated();
      phase_reserved_ = allocator_.reserved();
      if (i <= peaks_from_) reset_peaks(i);
      for (; i < count && events[i].phase == phase; ++i) {
        Bytes block_bytes = 0;
        if (events[i].kind == EventKind::kAllocate) {
          block_bytes = allocate(i);
        } else if (events[i].kind == EventKind::kFree) {
          block_bytes = free(i);
        } else if (events[i].kind == EventKind::kReturn) {
          finish(i);
        } else {
          reserved_before_emptied_ = allocator_.reserved();
          allocator_.empty_cache();
          exact_.empty_cache();
        }
        if constexpr (kRecordTimeline) {
          result_.timeline.push_back(
              {.allocated = allocator_.allocated(), .reserved = allocator_.reserved(), .block_bytes = block_bytes});
        }
      }
      Bytes& peak = result_.phase_peaks[static_cast<std::size_t>(phase)];
      peak = std::max(peak, phase_peak_);
      Bytes& reserved = result_.phase_reserved[static_cast<std::size_t>(phase)];
      reserved = std::max(reserved, phase_reserved_);
      if (peaks_of_steps_alone_ && phase == Phase::kBuild) forget_peaks();
      if (mark_steps_ && phase != Phase::kEvaluation) mark_step(events[i - 1].step);
    }
  }

  // No phase is in two steps.
  void mark_step(int step) {
    if (step < 0) return;
    if (static_cast<std::size_t>(step) >= result_.steps.size()) result_.steps.emplace_back();
    StepMark& mark = result_.steps.back();
    mark.peak_allocated = std::max(mark.peak_allocated, phase_peak_);
    mark.reserved = allocator_.reserved();
    if constexpr (std::is_same_v<Allocator, CachingAllocator>) mark.retries = allocator_.retries();
  }

  void forget_peaks() {
    result_.peak_allocated = result_.exact_peak = 0;
    result_.peak_reserved = allocator_.reserved();
    if (reserves_from_construction_) result_.peak_reserved = std::max(result_.peak_reserved, reserved_before_emptied_);
    result_.segments_at_peak = allocator_.segments();
  }

  // A call begins with a phase, so that this need not be asked at every event.
  void reset_peaks(std::size_t i) {
    result_.peak_allocated = allocator_.allocated();
    result_.peak_reserved = result_.reserved_at_peak = allocator_.reserved();
    result_.segments_at_peak = allocator_.segments();
    result_.exact_peak = exact_.allocated();
    result_.peak_event = result_.exact_peak_event = i;
    result_.categories_at_peak = categories_;
    // What a call reached before the one that counts is no peak of a phase, either; construction is of neither.
    std::fill(result_.phase_peaks.begin() + 1, result_.phase_peaks.end(), Bytes{0});
    std::fill(result_.phase_reserved.begin() + 1, result_.phase_reserved.end(), Bytes{0});
  }

  Bytes allocate(std::size_t i) {
    const std::size_t block = block_of(i);
    if (handles_[block] != kNotYet) [[unlikely]]
      throw broken_trace(i, "allocates a block a second time");
    const auto& [requested, category, stream, waits_for_streams] = trace_.blocks[block];
    const typename Allocator::Handle handle = allocator_.allocate(requested, static_cast<std::size_t>(stream));
    handles_[block] = handle;
    (void)exact_.allocate(requested);
    // No sum here can overflow: each is at most what the caching allocator has allocated.
    categories_[static_cast<std::size_t>(category)] += requested;
    if (exact_.allocated() > result_.exact_peak) {
      result_.exact_peak = exact_.allocated();
      result_.exact_peak_event = i;
    }
    if (allocator_.allocated() > phase_peak_) {
      phase_peak_ = allocator_.allocated();
      if (phase_peak_ > result_.peak_allocated) {
        result_.peak_allocated = phase_peak_;
        result_.peak_event = i;
        result_.reserved_at_peak = allocator_.reserved();
        result_.categories_at_peak = categories_;
      }
    }
    if (allocator_.reserved() > phase_reserved_) phase_reserved_ = allocator_.reserved();
    if (allocator_.reserved() > result_.peak_reserved) {
      result_.peak_reserved = allocator_.reserved();
      result_.segments_at_peak = allocator_.segments();
    }
    return allocator_.size_of(handle);
  }

  Bytes free(std::size_t i) {
    const std::size_t block = block_of(i);
    const std::uint32_t handle = handles_[block];
    if (handle >= kFreed) [[unlikely]] {
      throw broken_trace(i, handle == kFreed ? "frees a block a second time" : "frees a block before its allocation");
    }
    const Bytes bytes = allocator_.size_of(handle);
    const auto& [requested, category, stream, waits_for_streams] = trace_.blocks[block];
    if (waits_for_streams) [[unlikely]] {
      allocator_.free_later(handle);
      waiting_.emplace_back(block, handle);
    } else {
      allocator_.free(handle);
    }
    exact_.free(requested);
    categories_[static_cast<std::size_t>(category)] -= requested;
    handles_[block] = kFreed;
    return bytes;
  }

  void finish(std::size_t i) {
    const std::size_t block = block_of(i);
    const auto found =
        std::find_if(waiting_.begin(), waiting_.end(), [block](const auto& each) { return each.first == block; });
    if (found == waiting_.end()) throw broken_trace(i, "returns a block that waits for no stream");
    allocator_.finish(found->second);
    waiting_.erase(found);
  }

  [[nodiscard]] std::size_t block_of(std::size_t i) const {
    const auto block = static_cast<std::size_t>(trace_.events[i].block);  // -1 becomes too large as well
    if (block >= handles_.size()) throw broken_trace(i, "names a block that the trace does not have");
    return block;
  }

  const Trace& trace_;
  Allocator allocator_;
  ExactAllocator exact_;
  KeptVector<std::uint32_t> handles_;                                        // by block of the trace
  std::vector<std::pair<std::size_t, typename Allocator::Handle>> waiting_;  // freed blocks that other streams use
  bool record_timeline_, mark_steps_;
  bool peaks_of_steps_alone_, reserves_from_construction_;
  Bytes reserved_before_emptied_ = 0;  // when the cache was emptied last
  std::size_t peaks_from_;
  std::array<Bytes, kCategoryCount> categories_{};  // requested bytes of the live blocks
  Bytes phase_peak_ = 0, phase_reserved_ = 0;       // of the phase that is being replayed
  ReplayResult result_;
};

}  // namespace

ReplayResult replay(const Trace& trace, const ReplayOptions& options) {
  if (options.expandable_segments) return Replayer(trace, ExpandableAllocator(), options).run();
  SegmentPlacer placer;
  if (options.placement != nullptr) placer = SegmentPlacer(*options.placement);
  const Bytes capacity = options.capacity.value_or(std::numeric_limits<Bytes>::max());
  const std::size_t private_stream =
      options.private_stream ? static_cast<std::size_t>(*options.private_stream) : CachingAllocator::kNoStream;
  return Replayer(trace, CachingAllocator(std::move(placer), capacity, private_stream), options).run();
}

}  // namespace memcalc
