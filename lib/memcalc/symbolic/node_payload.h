// NodePayload: what a node's backward needs to know beside tensors. Each operator stores a struct of its own type, and
// its backward asks for that type. Covered by tests/unit/node_payload_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "memcalc/base/dtype.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

class NodePayload {
 public:
  /// Bytes that a node has for its payload: a Shape, and five numbers beside it. What is larger is allocated.
  static constexpr std::size_t kSize = 112;
  template <typename T>
  static constexpr bool kFits = sizeof(T) <= kSize && alignof(T) <= alignof(std::int64_t);

  NodePayload() = default;
  NodePayload(const NodePayload&) = delete;
  NodePayload& operator=(const NodePayload&) = delete;
  ~NodePayload() { reset(); }

  /// Takes the place of what was stored.
  template <typename T>
  T& set(T value) {
    reset();
    if constexpr (kFits<T>) {
      ::new (static_cast<void*>(storage_)) T(std::move(value));
    } else {
      ::new (static_cast<void*>(storage_)) Held<T>(std::make_unique<T>(std::move(value)));
    }
    type_ = &kType<T>;
    return *stored<T>();
  }
  /// Throws Error(kInternal) where another type is stored, or nothing.
  template <typename T>
  [[nodiscard]] const T& get() const {
    if (type_ != &kType<T>) throw_other_type();
    return *stored<T>();
  }
  template <typename T>
  [[nodiscard]] T& get() {
    return const_cast<T&>(std::as_const(*this).get<T>());
  }
  /// Null where another type is stored, or nothing.
  template <typename T>
  [[nodiscard]] const T* get_if() const {
    return type_ == &kType<T> ? stored<T>() : nullptr;
  }
  void reset() {
    const Type* former = std::exchange(type_, nullptr);
    if (former != nullptr && former->destroy != nullptr) former->destroy(storage_);
  }

 private:
  /// Its address stands for a type.
  struct Type {
    void (*destroy)(void* storage);  // null: nothing to do
  };
  template <typename T>
  using Held = std::conditional_t<kFits<T>, T, std::unique_ptr<T>>;

  template <typename T>
  static void destroy(void* storage) {
    std::destroy_at(static_cast<Held<T>*>(storage));
  }
  template <typename T>
  static constexpr Type kType{std::is_trivially_destructible_v<Held<T>> ? nullptr : &NodePayload::destroy<T>};

  template <typename T>
  [[nodiscard]] T* stored() {
    auto* held = std::launder(reinterpret_cast<Held<T>*>(storage_));
    if constexpr (kFits<T>) {
      return held;
    } else {
      return held->get();
    }
  }
  template <typename T>
  [[nodiscard]] const T* stored() const {
    return const_cast<NodePayload*>(this)->stored<T>();
  }
  [[noreturn]] static void throw_other_type();

  const Type* type_ = nullptr;
  alignas(std::int64_t) std::byte storage_[kSize];
};

// --- payloads that several operators have

/// Sizes of the input that the gradient is for.
struct InputShape {
  Shape shape;
};

/// Of the input that the gradient is for.
struct InputDType {
  DType dtype = DType::kFloat32;
};

/// How many ranks a collective is among.
struct RankCount {
  std::int64_t ranks = 1;
};

}  // namespace memcalc
