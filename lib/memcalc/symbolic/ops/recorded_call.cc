#include "memcalc/symbolic/ops/recorded_call.h"

#include <fmt/core.h>

#include "memcalc/base/error.h"
#include "memcalc/symbolic/ops/as_strided.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

using Kind = BoundArgument::Kind;

void RecordedCall::refuse(std::string_view what) const {
  refused_ = true;
  throw Error(ErrorCode::kUnsupported, fmt::format("the program calls {} with {}, which is not modelled", name_, what));
}

const Tensor& RecordedCall::tensor(const BoundArgument& argument) const {
  const auto place = static_cast<std::size_t>(argument.integer);
  const Tensor* found = nullptr;
  if (argument.kind == Kind::kValue && place < values_.size()) found = &values_[place];
  if (argument.kind == Kind::kParameter && place < parameters_.places.size()) {
    found = &parameters_.tensors[static_cast<std::size_t>(parameters_.places[place])];
  }
  if (found == nullptr || !found->defined()) {
    throw Error(ErrorCode::kInput, fmt::format("the program calls {} with a tensor that does not exist", name_));
  }
  return *found;
}

const GivenResult& RecordedCall::given(std::size_t i) const {
  if (i < given_.size()) return given_[i];
  throw Error(ErrorCode::kInput, fmt::format("the program calls {} without the size of its result", name_));
}

std::vector<Tensor> RecordedCall::all_tensors() const {
  std::vector<Tensor> found;
  const auto look_at = [&](const auto& self, const BoundArgument& argument) -> void {
    if (is_tensor(argument)) found.push_back(tensor(argument));
    for (const BoundArgument& item : argument.items) self(self, item);
  };
  for (const BoundArgument& slot : slots_) look_at(look_at, slot);
  return found;
}

bool RecordedCall::on_host() const {
  bool any = false, all = true;
  const auto look_at = [&](const auto& self, const BoundArgument& argument) -> void {
    if (is_tensor(argument)) {
      any = true;
      all = all && argument.kind == Kind::kValue && on_host(tensor(argument));
    }
    for (const BoundArgument& item : argument.items) self(self, item);
  };
  for (const BoundArgument& slot : slots_) look_at(look_at, slot);
  return any && all;
}

const Tensor* RecordedCall::base_of(const Tensor& view) const {
  if (view.block() == kNoBlock) return nullptr;
  for (const Tensor& value : values_) {
    if (!value.defined() || value.block() != view.block()) continue;
    return value.impl() == view.impl() ? nullptr : &value;
  }
  return nullptr;
}

void RecordedCall::replace(const Tensor& old, const Tensor& now) {
  const TensorImpl* const impl = old.impl();  // `old` may be one of the values
  for (Tensor& value : values_) {
    if (value.defined() && value.impl() == impl) value = now;
  }
}

Tensor RecordedCall::change_view_of(const Tensor& x, const Tensor& view, const Tensor& source, InPlace change,
                                    std::span<const Tensor> kept) {
  Tensor base = viewed_by(x);
  if (base.defined()) {  // the value that is the base, where there still is one
    for (const Tensor& value : values_) {
      if (!value.defined() || value.block() != x.block()) continue;
      const bool same = value.impl()->grad_fn == base.impl()->grad_fn &&
                        value.impl()->output_index == base.impl()->output_index && value.shape() == base.shape();
      if (same) {
        base = value;
        break;
      }
    }
  } else if (!x.requires_grad() && x.impl()->is_view) {  // no history that leads to the base
    const Tensor* const found = base_of(x);
    base = found != nullptr ? *found : tape.detach(x);  // a base that no value holds is taken to be as large as `x`
  }
  if (!base.defined()) return {};
  const Tensor changed = x;  // `x` may be one of the values
  const bool was_followed = base.requires_grad();
  const Tensor now = memcalc::change_view(base, view, source, change, kept);
  replace(base, now);
  std::size_t place = 0;
  while (place < values_.size() && values_[place].impl() != changed.impl()) ++place;
  renew_views(now, was_followed);
  if (place < values_.size() && values_[place].impl() != changed.impl()) return values_[place];
  return as_strided(now, changed.shape(), changed.strides());
}

void RecordedCall::renew_views(const Tensor& base, bool was_followed) {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const Tensor value = values_[i];
    if (!value.defined() || value.block() != base.block() || value.impl() == base.impl()) continue;
    if (!value.impl()->is_view || value.dtype() != base.dtype()) continue;
    if (was_followed && !value.requires_grad()) continue;
    replace(value, as_strided(base, value.shape(), value.strides()));
  }
}

const Tensor& RecordedCall::tensor_or_none(int i) const {
  static const Tensor kNone;
  return has(i) ? tensor(i) : kNone;
}

std::vector<Tensor> RecordedCall::tensors(int i) const {
  if (slot(i).kind != Kind::kList) refuse("no list of tensors");
  std::vector<Tensor> found;
  for (const BoundArgument& each : slot(i).items) found.push_back(tensor(each));
  return found;
}

std::int64_t RecordedCall::integer(const BoundArgument& argument) const {
  if (argument.kind != Kind::kInteger && argument.kind != Kind::kBool) refuse("an argument that is no whole number");
  return argument.integer;
}

double RecordedCall::number_or(int i, double otherwise) const {
  if (!has(i)) return otherwise;
  if (!is_number(i)) refuse("an argument that is no number");
  return slot(i).kind == Kind::kNumber ? slot(i).number : static_cast<double>(slot(i).integer);
}

bool RecordedCall::boolean_or(int i, bool otherwise) const { return has(i) ? integer(i) != 0 : otherwise; }

std::string_view RecordedCall::text_or(int i, std::string_view otherwise) const {
  return slot(i).kind == Kind::kText ? std::string_view(slot(i).text) : otherwise;
}

std::optional<DType> RecordedCall::dtype(int i) const {
  if (!has(i)) return std::nullopt;
  if (slot(i).kind != Kind::kDType) refuse("an argument that is no data type");
  return static_cast<DType>(slot(i).integer);
}

std::vector<std::int64_t> RecordedCall::integers(int i) const {
  if (slot(i).kind != Kind::kList) return {integer(i)};
  std::vector<std::int64_t> numbers;
  for (const BoundArgument& each : slot(i).items) numbers.push_back(integer(each));
  return numbers;
}

Shape RecordedCall::shape(int i) const {
  Shape shape;
  for (const std::int64_t size : integers(i)) {
    if (shape.rank == kMaxDims) refuse(fmt::format("more than {} dimensions", kMaxDims));
    shape.dims[static_cast<std::size_t>(shape.rank++)] = size;
  }
  return shape;
}

int RecordedCall::dimension(int i, int rank, int otherwise) const {
  std::int64_t dim = integer_or(i, otherwise);
  if (dim < 0) dim += rank;
  if (dim < 0 || dim >= std::max(rank, 1)) refuse(fmt::format("dimension {} of {}", dim, rank));
  return static_cast<int>(dim);
}

}  // namespace memcalc
