#include "memcalc/train/repeat.h"

#include <algorithm>
#include <span>
#include <vector>

#include "memcalc/base/kept_vector.h"
#include "memcalc/symbolic/ops/conv_workspace.h"

namespace memcalc {

namespace {

/// kOnce: the first step alone asks for it, to keep it for good.
enum class Fate : std::uint8_t { kTransient, kCarried, kOnce };

/// Takes out of the second step the large workspaces of convolutions that find no memory there. In the first one they
/// did, but then the optimizer's states were put where they had been. Without states they find the segments that they
/// left.
void pass_over_large_workspaces(Tape& tape, KeptVector<Event>& second, std::size_t count) {
  const Trace& trace = tape.memory.trace;
  Bytes largest = 0;
  bool has_states = false;
  for (const Block& block : trace.blocks) {
    if (block.category == Category::kWorkspaces) largest = std::max(largest, block.requested);
    has_states = has_states || block.category == Category::kOptimizerStates;
  }
  if (!has_states || !is_large_workspace(largest, tape.device)) return;
  const auto executed = [&](const Event& event) -> const Block& {
    const auto block = static_cast<std::size_t>(event.block);
    return trace.blocks[block < trace.blocks.size() ? block : block - count];
  };
  Bytes held = 0;
  const auto apply = [&](const Event& event) {
    if (!event.moves_block()) return;
    held += event.kind == EventKind::kAllocate ? executed(event).requested : -executed(event).requested;
  };
  for (const Event& event : trace.events) apply(event);
  BlockId passed_over = kNoBlock;  // a workspace is freed before there is another
  const auto lacks_memory = [&](const Event& event) {
    if (event.moves_block() && event.block == passed_over) return true;
    if (event.kind == EventKind::kAllocate) {
      const Block& block = executed(event);
      if (block.category == Category::kWorkspaces && is_large_workspace(block.requested, tape.device) &&
          !workspace_finds_memory(block.requested, held, largest, tape.device)) {
        passed_over = event.block;
        return true;
      }
    }
    apply(event);
    return false;
  };
  second.erase(std::remove_if(second.begin(), second.end(), lacks_memory), second.end());
}

}  // namespace

void repeat_step(Tape& tape, std::size_t first_event, std::size_t first_block, const CarriedVariables& carried,
                 int copies) {
  Trace& trace = tape.memory.trace;
  const auto begin = trace.events.begin() + static_cast<std::ptrdiff_t>(first_event);
  const std::span<const Event> step(&*begin, trace.events.size() - first_event);
  const std::size_t count = trace.blocks.size() - first_block;
  const auto& pairs = carried.pairs();
  const BlockId first_placeholder = pairs.empty() ? 0 : pairs.front().first;
  const auto placeholders = pairs.empty() ? 0U : static_cast<std::uint32_t>(pairs.back().first - first_placeholder + 1);
  const auto is_placeholder = [=](BlockId block) {
    return static_cast<std::uint32_t>(block - first_placeholder) < placeholders;
  };

  // What was allocated in the step and not freed stays for good, unless a variable carries it over.
  std::vector<Fate> fates(count, Fate::kOnce);
  const auto fate = [&](BlockId block) -> Fate& { return fates[static_cast<std::size_t>(block) - first_block]; };
  for (const Event& event : step) {
    if (event.kind == EventKind::kFree && static_cast<std::size_t>(event.block) >= first_block) {
      fate(event.block) = Fate::kTransient;
    }
  }
  // Variables that share a block (the gradients of an LSTM's weights) let it go with the last of them.
  std::vector<std::int32_t> owners(count);
  for (const auto& [placeholder, left] : pairs) {
    if (left == kNoBlock) continue;
    fate(left) = Fate::kCarried;
    ++owners[static_cast<std::size_t>(left) - first_block];
  }

  // The second step: without what is asked for once, with the frees of what the first one left.
  KeptVector<Event> second(step.size());
  std::size_t kept = 0;
  for (const Event& event : step) {
    BlockId block = event.block;
    if (is_placeholder(block)) {
      block = pairs[static_cast<std::size_t>(block - first_placeholder)].second;
      if (block == kNoBlock || --owners[static_cast<std::size_t>(block) - first_block] != 0) continue;
    } else if (static_cast<std::size_t>(block) < first_block) {
      continue;  // older than the step: only the first one can free it
    } else if (fate(block) == Fate::kOnce) {
      continue;
    } else {
      block += static_cast<BlockId>(count);
    }
    Event& later = second[kept++];
    later = event;
    later.block = block;
    ++later.step;
  }
  second.resize(kept);

  const auto placeholder_freed = [&](const Event& event) { return is_placeholder(event.block); };
  trace.events.erase(std::remove_if(begin, trace.events.end(), placeholder_freed), trace.events.end());
  pass_over_large_workspaces(tape, second, count);
  trace.events.reserve(trace.events.size() + second.size() * static_cast<std::size_t>(copies));
  const KeptVector<Block> blocks(trace.blocks.begin() + static_cast<std::ptrdiff_t>(first_block), trace.blocks.end());
  trace.blocks.reserve(trace.blocks.size() + count * static_cast<std::size_t>(copies));
  for (int copy = 0; copy < copies; ++copy) {
    trace.blocks.insert(trace.blocks.end(), blocks.begin(), blocks.end());
    trace.events.insert(trace.events.end(), second.begin(), second.end());
    for (Event& event : second) {
      ++event.step;
      event.block += static_cast<BlockId>(count);
    }
  }
}

}  // namespace memcalc
