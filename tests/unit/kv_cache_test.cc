// models/kv_cache: how transformers' DynamicCache grows, is cut to a window, reordered and freed.
#include "memcalc/models/kv_cache.h"

#include <gtest/gtest.h>

#include <vector>

#include "memcalc/models/encoder_decoder.h"
#include "memcalc/spec/registry.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/tape.h"
#include "support/paths.h"

namespace memcalc {
namespace {

constexpr Operator kMade{"made"};
constexpr std::int64_t kBatch = 2, kHeads = 4, kDim = 8;
constexpr Bytes kTokenBytes = kBatch * kHeads * kDim * 2;  // one token's keys, bfloat16

class KvCache : public ::testing::Test {
 protected:
  KvCache() : tape_(device()) {}

  static const DeviceSpec& device() {
    static const DeviceSpec spec = SpecRegistry(test::specs_dir().string()).device("h100-sxm");
    return spec;
  }
  [[nodiscard]] Tensor states(std::int64_t tokens) {
    return tape_.empty({kBatch, kHeads, tokens, kDim}, DType::kBFloat16, kMade);
  }
  /// One forward pass of `layers` layers over `tokens` tokens; returns the keys that the last layer attends to.
  std::int64_t pass(KeyValueCache& cache, int layers, std::int64_t tokens, bool sliding = false) {
    cache.rewind();
    std::int64_t keys = 0;
    for (int i = 0; i < layers; ++i) {
      Tensor key = states(tokens), value = states(tokens);
      cache.update(key, value, sliding);
      keys = key.size(2);
    }
    return keys;
  }
  /// Bytes of the cache's category that are alive.
  [[nodiscard]] Bytes alive() const {
    std::vector<bool> live(tape_.memory.trace.blocks.size());
    for (const Event& event : tape_.memory.trace.events) {
      live[static_cast<std::size_t>(event.block)] = event.kind == EventKind::kAllocate;
    }
    Bytes sum = 0;
    for (std::size_t i = 0; i < live.size(); ++i) {
      if (live[i] && tape_.memory.trace.blocks[i].category == Category::kKeyValueCache)
        sum += tape_.memory.trace.blocks[i].requested;
    }
    return sum;
  }

  /// How often the host was recorded to do it.
  [[nodiscard]] std::int64_t times_of(HostWork what) const {
    std::int64_t count = 0;
    for (const Kernel& kernel : tape_.kernels.list()) {
      const auto* work = kernel.as<work::OfHost>();
      if (work != nullptr && work->what == what) count += work->times;
    }
    return count;
  }

  Tape tape_;
  NoGrad no_grad_{tape_.modes};
};

TEST_F(KvCache, GrowsByACopyInEveryPass) {
  KeyValueCache cache;
  EXPECT_EQ(cache.seen_tokens(), 0);
  EXPECT_EQ(pass(cache, 3, 10), 10);
  EXPECT_EQ(alive(), 3 * 2 * 10 * kTokenBytes) << "three layers, keys and values";
  EXPECT_EQ(pass(cache, 3, 1), 11);
  EXPECT_EQ(alive(), 3 * 2 * 11 * kTokenBytes) << "the copies of 10 tokens are gone";
  cache.rewind();
  EXPECT_EQ(cache.seen_tokens(), 11);
  const KeyValueCacheSize size = cache.size();
  EXPECT_EQ(size.sequences, kBatch);
  EXPECT_EQ(size.tokens, 11);
  EXPECT_EQ(size.layers, 3);
  EXPECT_EQ(size.bytes, 3 * 2 * 11 * kTokenBytes);
  EXPECT_EQ(size.bytes_per_token, 3 * 2 * kHeads * kDim * 2) << "3 layers x 2 x 4 heads x 8 x 2 bytes";
}

// What DynamicLayer.lazy_initialization takes on the host is told in calls and in training.
TEST_F(KvCache, TheFirstPassMakesItsLayers) {
  const auto made = [&] { return times_of(HostWork::kCacheLayer); };
  tape_.kernels.recording = true;
  KeyValueCache cache;
  pass(cache, 3, 10);
  EXPECT_EQ(made(), 3);
  pass(cache, 3, 1);
  EXPECT_EQ(made(), 3) << "a later token finds them";
  const Scoped<bool> training(tape_.modes.grad_enabled, true);
  KeyValueCache of_training;
  pass(of_training, 3, 10);
  EXPECT_EQ(made(), 6);
}

// configuration_utils.py, get_text_config(): where the forward pass makes its cache itself.
TEST_F(KvCache, AnEncoderDecodersOwnCacheCopiesItsConfiguration) {
  tape_.kernels.recording = true;
  ModelOutput output;
  EncoderDecoderCache of_generate;
  record_copied_configurations(tape_, nullptr, output, 2);
  record_copied_configurations(tape_, &of_generate, output, 2);
  EXPECT_EQ(times_of(HostWork::kCopiedConfiguration), 0);
  record_copied_configurations(tape_, &output.past_key_values, output, 2);
  EXPECT_EQ(times_of(HostWork::kCopiedConfiguration), 2);
}

// At most one layer's old keys live beside the new ones: torch.cat, then the old ones die, then the values.
TEST_F(KvCache, OneCopyAtATime) {
  KeyValueCache cache;
  pass(cache, 4, 100);
  const std::size_t first = tape_.memory.trace.events.size();
  Tensor key = states(1), value = states(1);
  cache.rewind();
  cache.update(key, value);
  std::vector<Bytes> blocks;
  for (std::size_t i = first + 2; i < tape_.memory.trace.events.size(); ++i) {
    const Event& event = tape_.memory.trace.events[i];
    const Bytes bytes = tape_.memory.trace.blocks[static_cast<std::size_t>(event.block)].requested;
    blocks.push_back(event.kind == EventKind::kAllocate ? bytes : -bytes);
  }
  const Bytes old = 100 * kTokenBytes, grown = 101 * kTokenBytes;
  EXPECT_EQ(blocks, (std::vector<Bytes>{grown, -old, grown, -old, -kTokenBytes, -kTokenBytes}));
}

// sliding_window = 8: seven tokens are kept, and the next pass attends to those and its own.
TEST_F(KvCache, WindowKeepsOneTokenLess) {
  KeyValueCache cache(8);
  EXPECT_EQ(pass(cache, 1, 20, true), 20) << "the prompt attends to itself";
  EXPECT_EQ(cache.size().bytes, 2 * 7 * kTokenBytes);
  EXPECT_EQ(alive(), 2 * 20 * kTokenBytes) << "a view of the prompt's copy keeps it whole";
  EXPECT_EQ(pass(cache, 1, 1, true), 8);
  EXPECT_EQ(alive(), 2 * 8 * kTokenBytes);
  EXPECT_EQ(pass(cache, 1, 1, true), 8);
  EXPECT_EQ(cache.size().tokens, 22);
  EXPECT_EQ(cache.size().windowed, 1);
}

TEST_F(KvCache, ReorderingCopiesEveryLayer) {
  KeyValueCache cache;
  pass(cache, 2, 5);
  const Tensor beam_idx = no_grad::arange(tape_, kBatch);
  const std::size_t first = tape_.memory.trace.blocks.size();
  cache.reorder(beam_idx);
  EXPECT_EQ(tape_.memory.trace.blocks.size() - first, 4U);
  EXPECT_EQ(alive(), 2 * 2 * 5 * kTokenBytes);
}

TEST_F(KvCache, SkippedTokensGrowTheNextPass) {
  for (const bool sliding : {false, true}) {
    KeyValueCache one_by_one(8), skipping(8);
    pass(one_by_one, 2, 3, sliding);
    pass(skipping, 2, 3, sliding);
    std::int64_t keys = 0;
    for (int i = 0; i < 10; ++i) keys = pass(one_by_one, 2, 1, sliding);
    skipping.skip(9);
    EXPECT_EQ(pass(skipping, 2, 1, sliding), keys);
    EXPECT_EQ(skipping.size().tokens, one_by_one.size().tokens);
    EXPECT_EQ(skipping.size().bytes, one_by_one.size().bytes);
  }
}

TEST_F(KvCache, CrossAttentionIsReadAfterTheFirstPass) {
  KeyValueCache cache;
  EXPECT_FALSE(cache.is_filled());
  pass(cache, 1, 6);
  cache.rewind();
  ASSERT_TRUE(cache.is_filled());
  Tensor key, value;
  const std::size_t events = tape_.memory.trace.events.size();
  cache.read(key, value);
  EXPECT_EQ(key.size(2), 6);
  EXPECT_EQ(tape_.memory.trace.events.size(), events) << "reading asks for nothing";
}

}  // namespace
}  // namespace memcalc
