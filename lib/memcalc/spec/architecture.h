// Architecture: the sizes of one model, as the struct of its family (families/NAME/spec.h), of a user's layers or of a
// recorded program. It holds any such struct, so that a family is added without a list of types.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace memcalc {

/// What rules, the planner and reports ask of any architecture; absent where it has no such size.
struct Dimensions {
  std::optional<std::int64_t> hidden_size;
  std::optional<std::int64_t> intermediate_size;
  std::optional<std::int64_t> heads;
  std::optional<std::int64_t> key_value_heads;
  std::optional<std::int64_t> layers;  // of one stack
  std::optional<std::int64_t> vocabulary;
  std::optional<std::int64_t> experts;          // of a layer that is a mixture
  std::optional<std::int64_t> position_limit;   // the longest sequence that a table of positions holds
  std::optional<std::int64_t> trained_context;  // the longest sequence that it was trained with
  std::optional<std::int64_t> default_length;  // at most, where none is asked for and a longer one takes long to answer
  std::optional<std::int64_t> image_size;      // pixels a side that it was trained with
  std::optional<std::int64_t> cached_numbers;  // that a layer keeps of a token in generation
  std::optional<std::int64_t> sliding_window;
  std::int64_t first_dense_layers = 0;                // of a mixture
  const std::vector<bool>* sliding_layers = nullptr;  // null or empty: all layers are alike
  const std::vector<bool>* dense_layers = nullptr;    // likewise
};

class Architecture {
 public:
  Architecture() = default;
  template <typename Spec>
  requires(!std::is_same_v<std::remove_cvref_t<Spec>, Architecture>)
      Architecture(Spec&& spec)  // NOLINT(google-explicit-constructor,bugprone-forwarding-reference-overload)
      : held_(std::make_shared<Held<std::remove_cvref_t<Spec>>>(std::forward<Spec>(spec))) {}

  /// The struct itself, where it is of exactly this type; else null.
  template <typename Spec>
  [[nodiscard]] const Spec* get_if() const {
    return held_ != nullptr && held_->type() == &kType<Spec> ? &static_cast<const Held<Spec>&>(*held_).spec : nullptr;
  }
  template <typename Spec>
  [[nodiscard]] bool is() const {
    return get_if<Spec>() != nullptr;
  }
  /// It is known to be of this type.
  template <typename Spec>
  [[nodiscard]] const Spec& as() const {
    return static_cast<const Held<Spec>&>(*held_).spec;
  }
  /// The same to be changed; copies of this object keep what they have.
  template <typename Spec>
  [[nodiscard]] Spec& change() {
    return static_cast<Held<Spec>&>(own()).spec;
  }

  [[nodiscard]] Dimensions dimensions() const { return held_ != nullptr ? held_->dimensions() : Dimensions{}; }
  /// So many layers, of an encoder and a decoder each.
  void set_layers(std::int64_t layers) { own().set_layers(layers); }
  /// So many labels, where it may classify.
  void set_labels(std::int64_t labels) { own().set_labels(labels); }
  /// The head gets a weight of its own.
  void untie() { own().untie(); }

 private:
  template <typename Spec>
  static constexpr char kType = 0;

  struct Any {
    Any() = default;
    Any(const Any&) = default;
    Any& operator=(const Any&) = delete;
    virtual ~Any() = default;
    [[nodiscard]] virtual const char* type() const = 0;
    [[nodiscard]] virtual std::shared_ptr<Any> copy() const = 0;
    [[nodiscard]] virtual Dimensions dimensions() const = 0;
    virtual void set_layers(std::int64_t layers) = 0;
    virtual void set_labels(std::int64_t labels) = 0;
    virtual void untie() = 0;
  };

  template <typename Spec>
  struct Held final : Any {
    Spec spec;

    explicit Held(const Spec& spec) : spec(spec) {}
    explicit Held(Spec&& spec) : spec(std::move(spec)) {}
    [[nodiscard]] const char* type() const override { return &kType<Spec>; }
    [[nodiscard]] std::shared_ptr<Any> copy() const override { return std::make_shared<Held>(*this); }
    [[nodiscard]] Dimensions dimensions() const override;
    void set_layers(std::int64_t layers) override;
    void set_labels([[maybe_unused]] std::int64_t labels) override {
      if constexpr (requires { spec.num_labels; }) spec.num_labels = labels;
    }
    void untie() override {
      if constexpr (requires { spec.tie_word_embeddings; }) spec.tie_word_embeddings = false;
    }
  };

  [[nodiscard]] Any& own() {
    if (held_.use_count() > 1) held_ = held_->copy();
    return *held_;
  }

  std::shared_ptr<Any> held_;
};

// By the names that the families' config.json files give their sizes.
template <typename Spec>
Dimensions Architecture::Held<Spec>::dimensions() const {
  Dimensions d;
  if constexpr (requires { spec.hidden_size; })
    d.hidden_size = spec.hidden_size;
  else if constexpr (requires { spec.d_model; })
    d.hidden_size = spec.d_model;
  else if constexpr (requires { spec.n_embd; })
    d.hidden_size = spec.n_embd;
  else if constexpr (requires { spec.dim; })
    d.hidden_size = spec.dim;

  if constexpr (requires { spec.intermediate_size; })
    d.intermediate_size = spec.intermediate_size;
  else if constexpr (requires { spec.ffn_dim; })
    d.intermediate_size = spec.ffn_dim;
  else if constexpr (requires { spec.n_inner; })
    d.intermediate_size = spec.n_inner;

  if constexpr (requires { spec.num_attention_heads; })
    d.heads = spec.num_attention_heads;
  else if constexpr (requires { spec.n_head; })
    d.heads = spec.n_head;
  else if constexpr (requires { spec.num_heads, spec.d_kv; })  // T5
    d.heads = spec.num_heads;
  d.key_value_heads = d.heads;
  if constexpr (requires { spec.num_key_value_heads; }) d.key_value_heads = spec.num_key_value_heads;

  if constexpr (requires { spec.num_hidden_layers; })
    d.layers = spec.num_hidden_layers;
  else if constexpr (requires { spec.n_layer; })
    d.layers = spec.n_layer;

  if constexpr (requires { spec.vocab_size; }) d.vocabulary = spec.vocab_size;
  if constexpr (requires { spec.experts.count; }) d.experts = spec.experts.count;
  if constexpr (requires { spec.first_k_dense_replace; }) d.first_dense_layers = spec.first_k_dense_replace;
  if constexpr (requires { spec.dense_layers; }) d.dense_layers = &spec.dense_layers;
  if constexpr (requires { spec.sliding_layers; }) d.sliding_layers = &spec.sliding_layers;
  if constexpr (requires { spec.sliding_window; }) d.sliding_window = spec.sliding_window;
  if constexpr (requires { spec.image_size; }) d.image_size = spec.image_size;
  if constexpr (requires { spec.cached_numbers(); }) d.cached_numbers = spec.cached_numbers();

  if constexpr (requires { spec.position_limit(); }) d.position_limit = spec.position_limit();
  if constexpr (requires { spec.trained_context(); })
    d.trained_context = spec.trained_context();
  else if constexpr (requires { spec.max_position_embeddings; })
    d.trained_context = spec.max_position_embeddings;
  if (d.position_limit) d.trained_context = d.position_limit;
  if constexpr (requires { spec.default_length(); }) d.default_length = spec.default_length();
  return d;
}

template <typename Spec>
void Architecture::Held<Spec>::set_layers([[maybe_unused]] std::int64_t layers) {
  if constexpr (requires { spec.n_layer; }) {
    spec.n_layer = layers;
  } else if constexpr (requires { spec.n_layers; }) {
    spec.n_layers = layers;
  } else if constexpr (requires { spec.encoder_layers; }) {
    spec.encoder_layers = spec.decoder_layers = layers;
  } else if constexpr (requires { spec.text.num_hidden_layers; }) {
    spec.text.num_hidden_layers = spec.vision.num_hidden_layers = layers;
  } else if constexpr (requires { spec.num_hidden_layers; }) {
    spec.num_hidden_layers = layers;
  } else if constexpr (requires { spec.num_decoder_layers; }) {
    spec.num_layers = spec.num_decoder_layers = layers;
  }
  if constexpr (requires { spec.sliding_layers; }) {  // the pattern starts at layer 0
    if (!spec.sliding_layers.empty()) spec.sliding_layers.resize(static_cast<std::size_t>(layers));
  }
}

}  // namespace memcalc
