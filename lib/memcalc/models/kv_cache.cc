#include "memcalc/models/kv_cache.h"

#include <algorithm>

#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr int kTokens = 2;  // the dimension of [B, heads, tokens, D]
constexpr int kRank = 4;

/// torch.cat([kept, added], dim=-2), `skipped` tokens longer.
Tensor appended(const Tensor& kept, const Tensor& added, std::int64_t skipped) {
  if (skipped == 0) return cat(kept, added, kTokens);
  Shape grown = added.shape();
  grown[kTokens] += skipped;
  return cat(kept, expand(slice(added, kTokens, 0, 1), grown), kTokens);
}

/// In training, what the cache holds is an activation as far as autograd saves it.
void own(const Tensor& states) {
  Tape& tape = states.tape();
  if (!tape.modes.grad_enabled) tape.memory.set_category(states.block(), Category::kKeyValueCache);
}

}  // namespace

void KeyValueCache::update(Tensor& key, Tensor& value, bool sliding) {
  if (!is_filled()) layers_.emplace_back();
  Layer& layer = layers_[next_++];
  Tensor keys, values;
  if (layer.tokens == 0) {
    start(layer, key, value, sliding);
    keys = layer.keys;
    values = layer.values;
  } else {
    grow(layer, key, value, sliding, keys, values);
    layer.tokens += skipped_;
  }
  layer.tokens += key.size(kTokens);
  if (sliding) {
    layer.keys = last_window(keys);
    layer.values = last_window(values);
  }
  key = std::move(keys);
  value = std::move(values);
}

void KeyValueCache::start(Layer& layer, const Tensor& key, const Tensor& value, bool sliding) const {
  if (sliding) layer.window = no_grad::from_list(key.tape(), {});  // lazy_initialization
  record_host_work(key.tape(), HostWork::kCacheLayer);
  // The empty cache tensors have the first key's dtype, and cat promotes to it.
  layer.keys = cat_with_empty(key, key.dtype());
  layer.values = cat_with_empty(value, key.dtype());
  for (const Tensor* states : {&layer.keys, &layer.values}) own(*states);
}

void KeyValueCache::grow(Layer& layer, const Tensor& key, const Tensor& value, bool sliding, Tensor& keys,
                         Tensor& values) const {
  std::int64_t skipped = skipped_;
  if (sliding && sliding_window_) {  // a window that is full grows by no token that was skipped
    skipped = std::min(skipped, std::max<std::int64_t>(*sliding_window_ - 1 - layer.keys.size(kTokens), 0));
  }
  keys = appended(layer.keys, key, skipped);
  if (!sliding) layer.keys = keys;
  values = appended(layer.values, value, skipped);
  if (!sliding) layer.values = values;
  for (const Tensor* states : {&keys, &values}) own(*states);
}

/// states[:, :, -window + 1:, :]
Tensor KeyValueCache::last_window(const Tensor& states) const {
  const std::int64_t tokens = states.size(kTokens);
  if (!sliding_window_ || *sliding_window_ <= 1 || tokens < *sliding_window_) return states;
  return slice(states, kTokens, tokens - (*sliding_window_ - 1), *sliding_window_ - 1);
}

void KeyValueCache::read(Tensor& key, Tensor& value) {
  const Layer& layer = layers_[next_++];
  key = layer.keys;
  value = layer.values;
}

void KeyValueCache::reorder(const Tensor& beam_idx) {
  for (Layer& layer : layers_) {
    for (Tensor* states : {&layer.keys, &layer.values}) {
      *states = no_grad::index_select(*states, 0, beam_idx);
      own(*states);
    }
  }
}

KeyValueCache KeyValueCache::take() {
  KeyValueCache all(sliding_window_);
  all.next_ = std::exchange(next_, 0);
  all.skipped_ = skipped_;
  std::swap(all.layers_, layers_);
  return all;
}

void KeyValueCache::take_layer(Tensor& values, Tensor& keys) {
  values = std::move(layers_.front().values);
  keys = std::move(layers_.front().keys);
  layers_.erase(layers_.begin());
}

void KeyValueCache::add_layer(Tensor values, Tensor keys) {
  Layer& layer = layers_.emplace_back();
  layer.tokens = keys.size(kTokens);
  layer.values = std::move(values);
  layer.keys = std::move(keys);
  next_ = layers_.size();
}

void KeyValueCache::clear() {
  while (!layers_.empty()) {
    Layer& layer = layers_.back();
    drop(layer.keys, layer.values, layer.window);
    layers_.pop_back();
  }
}

KeyValueCacheSize KeyValueCache::size() const {
  KeyValueCacheSize size{.layers = static_cast<std::int64_t>(layers_.size())};
  for (const Layer& layer : layers_) {
    const Bytes bytes = checked_add(layer.keys.bytes(), layer.values.defined() ? layer.values.bytes() : 0);
    if (layer.keys.rank() != kRank) {  // states of linear attention (linear_states.h), which do not grow
      size.sequences = layer.keys.size(0);
      size.bytes = checked_add(size.bytes, bytes);
      continue;
    }
    const std::int64_t kept = layer.keys.size(kTokens);
    size.sequences = layer.keys.size(0);
    size.tokens = std::max(size.tokens, layer.tokens);
    size.windowed += layer.window.defined() ? 1 : 0;
    size.bytes = checked_add(size.bytes, bytes);
    if (kept > 0) size.bytes_per_token += bytes / (size.sequences * kept);
  }
  return size;
}

}  // namespace memcalc
