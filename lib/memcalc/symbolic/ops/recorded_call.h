// RecordedCall: what an operator sees of a call that was recorded by its name and arguments (spec/program.h). Arguments
// stand in the places of the operator's signature, whether they were passed by position or by keyword.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/symbolic/ops/copy_slices.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// An argument once the sizes and the precision of the run are known. A tensor is a value of the function that runs
/// or a parameter of its module.
struct BoundArgument {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,
    kInteger,
    kNumber,
    kText,
    kDType,
    kValue,
    kParameter,
    kSlice,
    kEllipsis,
    kList
  };
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;  // also: 0 or 1, a DType, the number of a value or parameter
  std::int64_t step = 0;     // in a loop: larger by as much in each of its runs
  double number = 0;         // also of kInteger
  std::string text{};
  std::vector<BoundArgument> items{};
};

/// A result whose size depends on values, as it was recorded.
struct GivenResult {
  Shape shape;
  DType dtype = DType::kFloat32;
};

/// The parameters of a function: which of its program's tensors they are.
struct RecordedParameters {
  std::span<const Tensor> tensors;
  std::span<const std::int32_t> places;
};

class RecordedCall {
 public:
  RecordedCall(Tape& tape, std::string_view name, std::span<const BoundArgument> slots, std::span<Tensor> values,
               RecordedParameters parameters, std::span<const GivenResult> given = {})
      : tape(tape), name_(name), slots_(slots), values_(values), parameters_(parameters), given_(given) {}

  [[nodiscard]] std::string_view name() const { return name_; }
  /// None where the signature has fewer.
  [[nodiscard]] const BoundArgument& slot(int i) const {
    static const BoundArgument kNone;
    return static_cast<std::size_t>(i) < slots_.size() ? slots_[static_cast<std::size_t>(i)] : kNone;
  }
  [[nodiscard]] bool has(int i) const { return slot(i).kind != BoundArgument::Kind::kNone; }
  [[nodiscard]] bool is_tensor(int i) const { return is_tensor(slot(i)); }
  [[nodiscard]] static bool is_tensor(const BoundArgument& argument) {
    return argument.kind == BoundArgument::Kind::kValue || argument.kind == BoundArgument::Kind::kParameter;
  }
  [[nodiscard]] bool is_number(int i) const {
    return slot(i).kind == BoundArgument::Kind::kInteger || slot(i).kind == BoundArgument::Kind::kNumber ||
           slot(i).kind == BoundArgument::Kind::kBool;
  }

  /// Throws Error(kInput) where the argument is another one.
  [[nodiscard]] const Tensor& tensor(int i) const { return tensor(slot(i)); }
  [[nodiscard]] const Tensor& tensor(const BoundArgument& argument) const;
  /// Undefined where it is None.
  [[nodiscard]] const Tensor& tensor_or_none(int i) const;
  [[nodiscard]] std::vector<Tensor> tensors(int i) const;
  [[nodiscard]] std::int64_t integer(int i) const { return integer(slot(i)); }
  [[nodiscard]] std::int64_t integer(const BoundArgument& argument) const;
  [[nodiscard]] std::int64_t integer_or(int i, std::int64_t otherwise) const { return has(i) ? integer(i) : otherwise; }
  [[nodiscard]] double number_or(int i, double otherwise) const;
  [[nodiscard]] bool boolean_or(int i, bool otherwise) const;
  [[nodiscard]] std::string_view text_or(int i, std::string_view otherwise) const;
  [[nodiscard]] std::optional<DType> dtype(int i) const;
  /// A list of numbers, or one number.
  [[nodiscard]] std::vector<std::int64_t> integers(int i) const;
  [[nodiscard]] Shape shape(int i) const;
  /// A dimension from 0 on, of a tensor of that rank.
  [[nodiscard]] int dimension(int i, int rank, int otherwise) const;

  /// Of an operator whose results' sizes depend on values. Throws Error(kInput) where it was recorded without.
  [[nodiscard]] const GivenResult& given(std::size_t i = 0) const;
  [[nodiscard]] std::size_t given_count() const { return given_.size(); }
  /// In all arguments, in order.
  [[nodiscard]] std::vector<Tensor> all_tensors() const;
  /// Whether its tensors are values on the host (their storage is none of the card's): then so is the result.
  [[nodiscard]] bool on_host() const;
  [[nodiscard]] static bool on_host(const Tensor& tensor) {
    return tensor.block() == kNoBlock && tensor.elements() > 0;
  }
  /// The value of which `view` shows a part: the first one made on its storage; null where that is `view` itself.
  [[nodiscard]] const Tensor* base_of(const Tensor& view) const;
  /// Values that are the tensor `old` are `now` from here on: an operator has changed it in place.
  void replace(const Tensor& old, const Tensor& now);
  /// `view`, which is `x` or made of it, is changed in place (CopySlices), with `source` where there is one: this
  /// becomes part of the history of the tensor that `x` is a view of. `x` as it is from then on; undefined where it is
  /// no view: nothing is done then.
  [[nodiscard]] Tensor change_view_of(const Tensor& x, const Tensor& view, const Tensor& source, InPlace change,
                                      std::span<const Tensor> kept = {});
  /// Autograd makes the views of `base`, which was changed in place, anew (AsStridedBackward0). `was_followed`: `base`
  /// was differentiated before, so that what is not is detached from it.
  void renew_views(const Tensor& base, bool was_followed);

  void returns(Tensor result) { results.push_back(std::move(result)); }
  /// This operator is known, this way of calling it is not.
  [[noreturn]] void refuse(std::string_view what) const;
  /// It has said so. (What PyTorch itself refuses is another error.)
  [[nodiscard]] bool was_refused() const { return refused_; }

  Tape& tape;
  std::vector<Tensor> results;

 private:
  std::string_view name_;
  std::span<const BoundArgument> slots_;
  std::span<Tensor> values_;
  RecordedParameters parameters_;
  std::span<const GivenResult> given_;
  mutable bool refused_ = false;
};

}  // namespace memcalc
