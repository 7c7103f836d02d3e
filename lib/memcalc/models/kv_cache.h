// The keys and values that attention layers keep between forward passes: transformers/cache_utils.py, DynamicCache and
// EncoderDecoderCache. Covered by tests/unit/kv_cache_test.cc.
// MIRRORS(transformers, "cache_utils.py", "5.17.0")
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "memcalc/symbolic/kv_cache_size.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// DynamicCache: a layer's keys and values [B, heads, tokens, D] grow by a copy at every forward pass; those of a
/// sliding layer are cut to the window, whose copy they stay a part of. Layers call in their order.
class KeyValueCache {
 public:
  KeyValueCache() = default;
  explicit KeyValueCache(std::optional<std::int64_t> sliding_window) : sliding_window_(sliding_window) {}
  KeyValueCache(KeyValueCache&&) = default;
  KeyValueCache& operator=(KeyValueCache&& other) noexcept {
    clear();
    layers_ = std::move(other.layers_);
    next_ = other.next_;
    sliding_window_ = other.sliding_window_;
    skipped_ = other.skipped_;
    return *this;
  }
  ~KeyValueCache() { clear(); }

  /// A forward pass begins: the first layer is the next to call.
  void rewind() { next_ = 0; }
  /// get_seq_length() of the next layer: tokens of earlier forward passes.
  [[nodiscard]] std::int64_t seen_tokens() const { return is_filled() ? layers_[next_].tokens + skipped_ : 0; }
  /// Cache.update of the next layer: both become the whole of what is kept.
  void update(Tensor& key, Tensor& value, bool sliding = false);

  /// Cross attention: the encoder's keys and values do not change, so a later forward pass reads them (is_updated).
  [[nodiscard]] bool is_filled() const { return next_ < layers_.size(); }
  void read(Tensor& key, Tensor& value);

  /// reorder_cache: every layer's keys and values become copies of the chosen beams, [B * beams] int64.
  void reorder(const Tensor& beam_idx);
  /// Stands for forward passes of one token each that are not executed: the next update of every layer grows by so
  /// many tokens more (train/generate.h says when).
  void skip(std::int64_t tokens) { skipped_ = tokens; }
  /// The list of layers dies from its end.
  void clear();

  // A layer that is compiled is traced on a cache of its own, and what its graph returns is added to the model's.
  /// All of it, which leaves an empty cache of the same kind.
  [[nodiscard]] KeyValueCache take();
  /// The first layer's, which leaves the cache. Of a sliding layer they are the window's.
  void take_layer(Tensor& values, Tensor& keys);
  /// A further layer of one forward pass. A sliding one has no tensor of its window's length here, 8 bytes.
  void add_layer(Tensor values, Tensor keys);

  /// Every tensor, layer by layer.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const Layer& layer : layers_) {
      for (const Tensor* tensor : {&layer.window, &layer.values, &layer.keys}) {
        if (tensor->defined()) visit(*tensor);
      }
    }
  }
  /// The same of what `copy` makes of each tensor.
  template <typename Copy>
  [[nodiscard]] KeyValueCache copied(Copy copy) const {
    KeyValueCache result(sliding_window_);
    for (const Layer& each : layers_) {
      Layer& layer = result.layers_.emplace_back();
      layer.window = copy(each.window);
      layer.values = copy(each.values);
      layer.keys = copy(each.keys);
      layer.tokens = each.tokens;
    }
    return result;
  }

  [[nodiscard]] std::size_t layers() const { return layers_.size(); }
  /// The elements that are kept; the storage that a window is a part of may be larger.
  [[nodiscard]] KeyValueCacheSize size() const;

 private:
  struct Layer {
    Tensor keys, values;
    Tensor window;  // DynamicSlidingWindowLayer: the window's length as a tensor on the card
    std::int64_t tokens = 0;
  };

  void start(Layer& layer, const Tensor& key, const Tensor& value, bool sliding) const;
  void grow(Layer& layer, const Tensor& key, const Tensor& value, bool sliding, Tensor& keys, Tensor& values) const;
  [[nodiscard]] Tensor last_window(const Tensor& states) const;

  std::vector<Layer> layers_;
  std::size_t next_ = 0;
  std::optional<std::int64_t> sliding_window_;
  std::int64_t skipped_ = 0;
};

/// EncoderDecoderCache. A decoder by itself has the first alone.
struct EncoderDecoderCache {
  KeyValueCache self_attention, cross_attention;

  void rewind() {
    self_attention.rewind();
    cross_attention.rewind();
  }
  void clear() {
    self_attention.clear();
    cross_attention.clear();
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    cross_attention.for_each(visit);
    self_attention.for_each(visit);
  }
  [[nodiscard]] KeyValueCacheSize size() const {
    KeyValueCacheSize size = self_attention.size();
    size.encoder_bytes = cross_attention.size().bytes;
    return size;
  }
};

}  // namespace memcalc
