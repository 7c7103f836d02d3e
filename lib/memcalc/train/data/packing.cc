#include "memcalc/train/data/packing.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "memcalc/base/error.h"

namespace memcalc {
namespace {

/// _pack_bfd, behind what it does to samples that are too long. Of the rows with the least space that is enough, the
/// one that has waited longest is taken.
void pack_best_fit(PackedRows& rows, std::vector<std::int32_t> sequences, std::int32_t most_tokens) {
  std::stable_sort(sequences.begin(), sequences.end(), std::greater<>());
  std::vector<std::vector<std::int32_t>> bins;
  std::map<std::int32_t, std::deque<std::size_t>> by_space;  // none of these is full or empty
  for (const std::int32_t tokens : sequences) {
    std::int32_t space = most_tokens;
    std::size_t bin = bins.size();
    if (const auto found = by_space.lower_bound(tokens); found != by_space.end()) {
      space = found->first;
      bin = found->second.front();
      found->second.pop_front();
      if (found->second.empty()) by_space.erase(found);
    } else {
      bins.emplace_back();
    }
    bins[bin].push_back(tokens);
    if (space > tokens) by_space[space - tokens].push_back(bin);
  }
  for (const auto& bin : bins) {
    rows.sequences.insert(rows.sequences.end(), bin.begin(), bin.end());
    rows.ends.push_back(rows.sequences.size());
  }
}

std::vector<std::int32_t> split(std::span<const std::int32_t> lengths, std::int32_t most_tokens) {
  std::vector<std::int32_t> pieces;
  for (std::int32_t left : lengths) {
    for (; left > most_tokens; left -= most_tokens) pieces.push_back(most_tokens);
    pieces.push_back(left);
  }
  return pieces;
}

/// _pack_wrapped
void pack_wrapped(PackedRows& rows, std::span<const std::int32_t> lengths, std::int32_t most_tokens) {
  std::int64_t left = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  for (; left > 0; left -= most_tokens) {
    rows.sequences.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(left, most_tokens)));
    rows.ends.push_back(rows.sequences.size());
  }
}

std::int32_t row_size(std::int64_t most_tokens) {
  if (most_tokens < 1) throw Error(ErrorCode::kInternal, "packing: rows of no tokens");
  return static_cast<std::int32_t>(std::min<std::int64_t>(most_tokens, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace

PackedRows packed(std::span<const std::int32_t> lengths, std::int64_t most_tokens, PackingStrategy strategy) {
  const std::int32_t size = row_size(most_tokens);
  PackedRows rows;
  for (std::size_t begin = 0; begin < lengths.size(); begin += kPackedTogether) {
    const auto together = lengths.subspan(begin, std::min(kPackedTogether, lengths.size() - begin));
    switch (strategy) {
      case PackingStrategy::kBfd: pack_best_fit(rows, truncated(together, size), size); break;
      case PackingStrategy::kBfdSplit: pack_best_fit(rows, split(together, size), size); break;
      case PackingStrategy::kWrapped: pack_wrapped(rows, together, size); break;
    }
  }
  return rows;
}

std::vector<std::int32_t> row_lengths(const PackedRows& rows) {
  std::vector<std::int32_t> lengths;
  lengths.reserve(rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    lengths.push_back(std::accumulate(rows[row].begin(), rows[row].end(), 0));
  }
  return lengths;
}

std::vector<std::int32_t> truncated(std::span<const std::int32_t> lengths, std::int64_t most_tokens) {
  const std::int32_t size = row_size(most_tokens);
  std::vector<std::int32_t> result(lengths.begin(), lengths.end());
  for (std::int32_t& tokens : result) tokens = std::min(tokens, size);
  return result;
}

}  // namespace memcalc
