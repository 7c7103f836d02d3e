// Rows of the operator table that are losses. Sources: aten/src/ATen/native/Loss.cpp, LossNLL.cpp, cuda/Loss.cu and
// tools/autograd/derivatives.yaml of torch 2.11; requests as its host code makes them.
// MIRRORS(torch, "native/Loss.cpp", "2.11.0")
// MIRRORS(torch, "LossNLL.cpp", "2.11.0")
#include <algorithm>
#include <array>

#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/logarithm.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/vectors.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/recorded_input.h"

namespace memcalc {
namespace {

Tensor pw(const Operator& op, std::initializer_list<const Tensor*> inputs) { return pointwise(op, inputs, 1); }

unsigned all_dims(const Tensor& x) { return (1U << x.rank()) - 1; }

/// Loss.cpp, apply_loss_reduction.
Tensor reduced_loss(const Tensor& losses, std::string_view reduction) {
  if (reduction == "none") return losses;
  return reduction == "sum" ? sum(losses, all_dims(losses), false) : mean(losses, all_dims(losses), false);
}

/// The same without autograd: inside of an operator.
Tensor reduced_values(const Operator& op, const Tensor& losses, std::string_view reduction) {
  return reduction == "none" ? losses : reduced(op, losses, all_dims(losses), false);
}

/// A loss that is one number on the storage of all: its operator wrote them first, then resized its result.
Tensor number_on(Tensor losses) { return losses.tape().become_view(losses, {}, {}); }

/// Operands as autocast hands them to a loss: the dispatcher's last argument first.
std::array<Tensor, 2> cast(const AtenOperator& op, const RecordedCall& call) {
  const Tensor target = autocast(op, call.tensor(1));
  return {autocast(op, call.tensor(0)), target};
}

// --- of log probabilities --------------------------------------------------------------------------------------------

void nll_backward(BackwardCall& call) {  // saved: self, target, weight where there is one, total_weight
  const Tensor& self = call.saved(0);
  call.set(0, filled(call.tape, self.shape(), self.dtype(), aten::kNllLossBackward));
}

Tensor nll(const Tensor& log_probabilities, const Tensor& labels, const Tensor& given_weight,
           std::string_view reduction) {
  const Tensor weight = given_weight.defined() ? autocast(aten::kNllLossForward, given_weight) : Tensor{};
  Tensor self = autocast(aten::kNllLossForward, log_probabilities), target = labels;
  if (self.rank() == 3 || self.rank() > 4) {  // Loss.cpp, nll_loss_nd_symint: seen as images
    self = contiguous(self);
    target = contiguous(target);
  }
  const bool is_number = reduction != "none" && self.rank() <= 2;
  const AtenOperator& op = is_number         ? aten::kNllLossForward
                           : self.rank() > 2 ? aten::kNllLoss2dForward
                                             : aten::kNllLossNone;
  Node* node = record(op, nll_backward, {&self}, {&self, &target, weight.defined() ? &weight : nullptr});
  const Shape shape = reduction == "none" ? target.shape() : Shape{};
  const auto made = [&](const Shape& of) { return self.tape().empty(of, self.dtype(), op); };
  Tensor loss, total_weight;
  if (self.rank() <= 2) loss = made(shape);
  total_weight = made({});
  if (self.rank() > 2) loss = made(shape);  // cuda/NLLLoss2d.cu resizes its output after the total
  self.tape().kernels.add(op, OperatorClass::kElementwise, self.dtype(), static_cast<double>(target.elements()),
                          static_cast<double>(target.bytes() + loss.bytes()));
  loss = finish(node, std::move(loss));
  if (node != nullptr) self.tape().autograd.save(*node, total_weight);
  return loss;
}

void nll_row(RecordedCall& call) {  // input target weight size_average ignore_index reduce reduction
  call.returns(nll(call.tensor(0), call.tensor(1), call.tensor_or_none(2), call.text_or(6, "mean")));
}

/// cross_entropy_loss_prob_target: targets are probabilities.
Tensor cross_entropy_of_probabilities(const Tensor& log_probabilities, const Tensor& target,
                                      std::string_view reduction) {
  const Tensor product = multiply(log_probabilities, target);
  if (reduction == "none") return negate(sum(product, 0b10, false));
  const Tensor total = sum(product, all_dims(product), false);
  Tensor negative = negate(total);
  if (reduction == "sum") return negative;
  return divide_scalar(negative);
}

/// cross_entropy_loss_label_smoothing without a weight.
Tensor smoothed(const Tensor& log_probabilities, const Tensor& target, std::string_view reduction) {
  const Tensor of_labels = nll(log_probabilities, target, {}, reduction);
  Tensor smooth = negate(sum(log_probabilities, 0b10, false));
  const Tensor ignored = pointwise(aten::kEq, {&target}, 1, DType::kBool);
  smooth = masked_fill_in_place(smooth, ignored);
  Tensor of_all = smooth;
  if (reduction == "sum") of_all = sum(smooth, all_dims(smooth), false);
  if (reduction == "mean") {
    const Tensor kept = pw(aten::kBitwiseNot, {&ignored});
    const Tensor count = sum(kept, all_dims(kept), false, DType::kInt64);
    const Tensor total = sum(smooth, all_dims(smooth), false);
    of_all = divide(total, count);
  }
  const Tensor second = multiply_scalar(of_all), first = multiply_scalar(of_labels);
  return add(first, second);
}

void cross_entropy_row(RecordedCall& call) {
  // input target weight size_average ignore_index reduce reduction label_smoothing
  const Tensor &logits = call.tensor(0), &target = call.tensor(1);
  const std::string_view reduction = call.text_or(6, "mean");
  const bool smooths = call.number_or(7, 0) != 0, weighs = call.has(2), probable = is_floating(target.dtype());
  if (!smooths && !weighs && !probable && reduction != "none") {
    const LossReduction reduced = reduction == "sum" ? LossReduction::kSum : LossReduction::kMean;
    return call.returns(cross_entropy(logits, target, reduced));
  }
  if (weighs && (smooths || probable)) call.refuse("a weight for each class");
  if (smooths && probable) call.refuse("probabilities that are smoothed");
  if (logits.rank() < 2) call.refuse("one sample");
  const Tensor log_probabilities = log_softmax(logits);
  if (probable) return call.returns(cross_entropy_of_probabilities(log_probabilities, target, reduction));
  if (smooths) return call.returns(smoothed(log_probabilities, target, reduction));
  call.returns(nll(log_probabilities, target, call.tensor_or_none(2), reduction));
}

// --- of two tensors --------------------------------------------------------------------------------------------------

template <const AtenOperator& kernel>
void both_backward(BackwardCall& call) {  // one kernel for each side
  for (int i = 0; i < 2; ++i) {
    if (call.needs(i)) call.set(i, pointwise(kernel, {&call.saved(0), &call.saved(1)}, 2));
  }
}

/// mse_loss and smooth_l1_loss are structured: their result is made as large as the losses, then resized to a number.
/// huber_loss makes a number beside them.
template <const AtenOperator& op, const AtenOperator& kernel, int slot, bool is_structured>
void loss_row(RecordedCall& call) {
  const auto [x, target] = cast(op, call);
  const std::string_view reduction = call.text_or(slot, "mean");
  Node* node = record(op, both_backward<kernel>, {&x, &target}, {&x, &target});
  Tensor losses = pointwise(op, {&x, &target}, 2);
  if (reduction == "none") return call.returns(finish(node, std::move(losses)));
  if (!is_structured) return call.returns(finish(node, reduced_values(op, losses, reduction)));
  const Tensor values = pointwise(op, {&x, &target}, 2);
  reduction_scratch(values, all_dims(values), 4, op);
  call.returns(finish(node, number_on(std::move(losses))));
}

/// (input - target).abs(), and its mean or sum.
void l1_row(RecordedCall& call) {  // input target size_average reduce reduction
  const auto [x, target] = cast(aten::kL1Loss, call);
  const Tensor difference = subtract(x, target);
  Node* node = record(aten::kAbs,
                      [](BackwardCall& back) {
                        const Tensor sign = pw(aten::kSgn, {&back.saved(0)});
                        back.set(0, pw(aten::kMul, {&back.gradient(), &sign}));
                      },
                      {&difference}, {&difference});
  const Tensor losses = finish(node, pw(aten::kAbs, {&difference}));
  call.returns(reduced_loss(losses, call.text_or(4, "mean")));
}

/// xlogy(target, target) is differentiated by both: the second part comes once the first one's values are gone, and is
/// smaller.
void xlogy_of_target_backward(BackwardCall& call) {  // saved: target
  const Tensor& target = call.saved(0);
  Tensor first;
  {
    const Tensor value = pw(aten::kXlogy, {&call.gradient(), &target});
    const Tensor zero = pointwise(aten::kEq, {&target}, 1, DType::kBool);
    const Tensor below = pointwise(aten::kLe, {&target}, 1, DType::kBool);
    const Tensor both = pointwise(aten::kBitwiseAnd, {&zero, &below}, 1, DType::kBool);
    first = pw(aten::kMaskedFill, {&value, &both});
  }
  call.set(0, std::move(first));
}

/// xlogy(target, target) - target * input; of log targets exp(target) * (target - input). "batchmean" divides a sum.
void kl_div_row(RecordedCall& call) {  // input target size_average reduce reduction log_target
  const auto [x, target] = cast(aten::kKlDiv, call);
  const std::string_view reduction = call.text_or(4, "mean");
  Tensor losses;
  if (call.boolean_or(5, false)) {
    const Tensor difference = subtract(target, x), powers = exponential(target);
    losses = multiply(powers, difference);
  } else {
    Node* node = record(aten::kXlogy, xlogy_of_target_backward, {&target}, {&target});
    const Tensor entropy = finish(node, pw(aten::kXlogy, {&target, &target})), product = multiply(target, x);
    losses = subtract(entropy, product);
  }
  if (reduction != "batchmean") return call.returns(reduced_loss(losses, reduction));
  const Tensor total = reduced_loss(losses, "sum");
  losses.reset();
  call.returns(divide_scalar(total));
}

// --- of probabilities ------------------------------------------------------------------------------------------------

/// FunctionsManual.cpp: sigmoid(input).sub_(target).mul_(grad); with pos_weight
/// at::add(t, 1).sub_(target).mul_(input.sigmoid()).sub_(t) where t = pos_weight * target.
void logits_backward(BackwardCall& call) {  // saved: input, target, then pos_weight
  if (call.node.saved_count < 3) return call.set(0, pointwise(aten::kSigmoid, {&call.saved(0)}, 4));
  const Tensor weighted = pw(aten::kMul, {&call.saved(2), &call.saved(1)});
  Tensor result = pw(aten::kAdd, {&weighted});
  { const Tensor sigmoid = pointwise(aten::kSigmoid, {&call.saved(0)}, 4); }
  call.set(0, std::move(result));
}

/// The gradient is multiplied by the weight in place.
void weighted_logits_backward(BackwardCall& call) { call.set(0, pointwise(aten::kSigmoid, {&call.saved(0)}, 5)); }

void logits_row(RecordedCall& call) {  // input target weight size_average reduce reduction pos_weight
  const AtenOperator& op = aten::kBinaryCrossEntropyWithLogits;
  const Tensor weight = call.has(2) ? autocast(op, call.tensor(2)) : Tensor{};
  const Tensor pos_weight = call.has(6) ? autocast(op, call.tensor(6)) : Tensor{};
  if (weight.defined() && pos_weight.defined()) call.refuse("a weight for each sample beside pos_weight");
  const auto [x, target] = cast(op, call);
  if (is_followed(target) || (weight.defined() && is_followed(weight))) call.refuse("targets that are differentiated");
  Node* node = weight.defined()
                   ? record(op, weighted_logits_backward, {&x}, {&x, &target, &weight})
                   : record(op, logits_backward, {&x}, {&x, &target, pos_weight.defined() ? &pos_weight : nullptr});
  const Tensor log_sigmoid = pointwise(aten::kLogSigmoidForward, {&x}, 4);
  if (pos_weight.defined()) {
    const Tensor less = pw(aten::kSub, {&pos_weight}), factor = pw(aten::kMul, {&less, &target});
  }
  const Tensor losses = pointwise(aten::kSub, {&target}, weight.defined() ? 4 : 3);  // and mul_(weight)
  call.returns(finish(node, reduced_values(aten::kMean, losses, call.text_or(5, "mean"))));
}

/// cuda/Loss.cu: the mean is made beside the losses and copied into their storage.
void probabilities_row(RecordedCall& call) {  // input target weight size_average reduce reduction
  const AtenOperator& op = aten::kBinaryCrossEntropy;
  const Tensor &x = call.tensor(0), &target = call.tensor(1), &weight = call.tensor_or_none(2);
  if (is_followed(target)) call.refuse("targets that are differentiated");
  Node* node =
      record(op, [](BackwardCall& back) { back.set(0, moved_like(back.saved(0), aten::kBinaryCrossEntropyBackward)); },
             {&x}, {&x, &target, weight.defined() ? &weight : nullptr});
  Tensor losses = pointwise(op, {&x, &target}, 6);
  const std::string_view reduction = call.text_or(5, "mean");
  if (reduction == "none") return call.returns(finish(node, std::move(losses)));
  { const Tensor number = reduced_values(op, losses, reduction); }
  call.returns(finish(node, number_on(std::move(losses))));
}

void soft_margin_backward(BackwardCall& call) {  // saved: self, target
  Tensor exponential;
  {
    const Tensor negative = pw(aten::kNeg, {&call.saved(1)}), product = pw(aten::kMul, {&negative, &call.saved(0)});
    exponential = pw(aten::kExp, {&product});
  }
  call.set(0, pw(aten::kMul, {&call.saved(1), &exponential}));
}

/// Python's function hands a number on: 0, 1 and 2 are none, mean and sum.
void soft_margin_row(RecordedCall& call) {  // input target reduction
  const auto [x, target] = cast(aten::kSoftMarginLoss, call);
  Node* node = record(aten::kSoftMarginLoss, soft_margin_backward, {&x}, {&x, &target});
  Tensor losses = pointwise(aten::kSoftMarginLoss, {&x, &target}, 4);
  const std::int64_t reduction = call.integer_or(2, 1);
  if (reduction == 0) return call.returns(finish(node, std::move(losses)));
  { const Tensor number = reduced_values(aten::kSoftMarginLoss, losses, reduction == 2 ? "sum" : "mean"); }
  call.returns(finish(node, number_on(std::move(losses))));
}

/// Distance.cpp, cosine_similarity: both are divided by their norms first, which are cloned and then bounded below.
void cosine_similarity_row(RecordedCall& call) {  // x1 x2 dim eps
  const auto [a, b] = cast(aten::kCosineSimilarity, call);
  const Shape shape = broadcast_shapes(a.shape(), b.shape());
  const Tensor x = a.shape() == shape ? a : expand(a, shape), y = b.shape() == shape ? b : expand(b, shape);
  const int dim = call.dimension(2, shape.rank, 1);
  const auto bounded = [&](const Tensor& of) { return vector_norm(of, 1U << dim, true); };
  const Tensor norm_x = bounded(x), norm_y = bounded(y);
  const Tensor divisor_x = clone(norm_x), divisor_y = clone(norm_y);
  const Tensor least = x.tape().empty({}, x.dtype(), aten::kScalarTensor);
  const auto divided = [](const Tensor& of, const Tensor& by) {
    return by.requires_grad() ? divide_both(of, by) : divide(of, by);
  };
  const Tensor unit_y = divided(y, divisor_y), unit_x = divided(x, divisor_x);
  const Tensor product = multiply(unit_x, unit_y);
  call.returns(sum_over(product, dim, false));
}

/// cuda/DistanceKernel.cu, cdist_backward_kernel_impl: for each row of the other a gradient, which are then summed.
Tensor cdist_gradient(const Tensor& of, const Tensor& other) {
  const Operator& op = aten::kCdistBackward;
  Shape each = of.shape();
  std::copy_backward(each.dims.begin() + each.rank - 2, each.dims.begin() + each.rank,
                     each.dims.begin() + each.rank + 1);
  each.dims[static_cast<std::size_t>(each.rank++ - 2)] = other.size(-2);
  Tensor result = of.tape().empty(of.shape(), of.dtype(), op);
  const Tensor all = filled(of.tape(), each, of.dtype(), op);
  of.tape().kernels.add(op, OperatorClass::kElementwise, of.dtype(), static_cast<double>(all.elements()),
                        static_cast<double>(all.bytes() + result.bytes()));
  return result;
}

void cdist_backward(BackwardCall& call) {  // saved: x1, x2, result
  const Tensor &x1 = call.saved(0), &x2 = call.saved(1);
  if (call.needs(0)) {
    const Tensor gradient = contiguous(call.gradient());
    call.set(0, cdist_gradient(x1, x2));
  }
  if (call.needs(1)) {
    const Tensor gradient = contiguous(transpose(call.gradient(), -2, -1)),
                 distances = contiguous(transpose(call.saved(2), -2, -1));
    call.set(1, cdist_gradient(x2, x1));
  }
}

/// FunctionsManual.cpp, _euclidean_dist_backward: temporaries live to the end of both gradients.
void euclidean_backward(BackwardCall& call) {  // saved: x1, x2, result
  const NoGrad no_grad(call.tape.modes);
  const Tensor &x1 = call.saved(0), &x2 = call.saved(1), &distances = call.saved(2);
  const unsigned last = 1U << (x1.rank() - 1), before = last >> 1U;
  const Tensor ratio = pw(aten::kDiv, {&call.gradient(), &distances});
  { const Tensor zero = pointwise(aten::kEq, {&distances}, 1, DType::kBool); }  // masked_fill_ in place
  const Tensor along = matmul(ratio, x2), rows = reduced(aten::kSum, ratio, last, true),
               scaled = pw(aten::kMul, {&x1, &rows});
  Tensor first = pw(aten::kSub, {&scaled, &along});
  const Tensor across = matmul(transpose(ratio, -2, -1), x1), columns = reduced(aten::kSum, ratio, before, false);
  const Tensor stood = unsqueeze(columns, -1), other = pw(aten::kMul, {&x2, &stood});
  Tensor second = pw(aten::kSub, {&other, &across});
  call.set(0, std::move(first));
  call.set(1, std::move(second));
}

/// Distance.cpp, _euclidean_dist: the rows' squares are columns beside x1 and x2, so that a product of matrices is the
/// squared distances, which become their roots in place.
Tensor euclidean_distances(const Tensor& x1, const Tensor& x2) {
  Tape& tape = x1.tape();
  Node* node = record(aten::kEuclideanDist, euclidean_backward, {&x1, &x2}, {&x1, &x2});
  const NoGrad no_grad(tape.modes);
  const WithoutAutocast without_autocast(tape.modes.autocast);
  const int last = x1.rank() - 1;
  const auto squares = [&](const Tensor& of) {
    const Tensor squared = pw(aten::kPow, {&of});
    return reduced(aten::kSum, squared, 1U << last, true);
  };
  Tensor norm1 = squares(x1), ones1 = filled(tape, norm1.shape(), norm1.dtype(), aten::kOnesLike);
  Tensor norm2 = squares(x2), ones2 = filled(tape, norm2.shape(), norm2.dtype(), aten::kOnesLike);
  Tensor distances;
  {
    Tensor left;
    {
      const Tensor scaled = pw(aten::kMul, {&x1});
      left = cat3(scaled, norm1, ones1, last);
      norm1.reset();
      ones1.reset();
    }
    const Tensor right = cat3(x2, ones2, norm2, last);
    ones2.reset();
    norm2.reset();
    distances = matmul(left, transpose(right, -2, -1));
  }
  return finish(node, std::move(distances), true);
}

/// cuda/DistanceKernel.cu, pdist_backward_kernel_impl: for each row but one the gradients of all, which are then
/// summed.
void pdist_backward(BackwardCall& call) {  // saved: self, result
  const Tensor& self = call.saved(0);
  Tensor result = filled(call.tape, self.shape(), self.dtype(), aten::kPdist);
  const std::int64_t rows = self.size(0);
  {
    const Tensor all =
        filled(call.tape, {std::max<std::int64_t>(rows - 1, 0), rows, self.size(1)}, self.dtype(), aten::kPdist);
  }
  call.set(0, std::move(result));
}

void pdist_row(RecordedCall& call) {  // input p
  const Tensor x = contiguous(autocast(aten::kPdist, call.tensor(0)));
  Node* node = record(aten::kPdist, pdist_backward, {&x}, {&x});
  const std::int64_t rows = x.size(0);
  call.returns(finish(node, filled(call.tape, {rows * (rows - 1) / 2}, x.dtype(), aten::kPdist), true));
}

/// Distance.cpp, cdist: each row of x1 from each of x2. Of many rows p = 2 is a product of matrices.
void cdist_row(RecordedCall& call) {  // x1 x2 p compute_mode
  const auto [x1, x2] = cast(aten::kCdist, call);
  if (x1.rank() < 2 || x1.rank() > 3 || x2.rank() != x1.rank()) call.refuse("another number of dimensions than 2 or 3");
  if (x1.rank() == 3 && x1.size(0) != x2.size(0)) call.refuse("batches that are broadcast");
  const std::string_view mode = call.text_or(3, "use_mm_for_euclid_dist_if_necessary");
  constexpr std::int64_t kFew = 25;
  const bool are_many = x1.size(-2) > kFew || x2.size(-2) > kFew;
  if (call.number_or(2, 2) == 2 &&
      (mode == "use_mm_for_euclid_dist" || (are_many && mode != "donot_use_mm_for_euclid_dist"))) {
    const Tensor left = contiguous(x1), right = contiguous(x2);  // what is one matrix is taken as it lies
    const bool is_one = x1.rank() == 2 || x1.size(0) == 1;
    return call.returns(is_one ? euclidean_distances(x1, x2) : euclidean_distances(left, right));
  }
  Node* node = record(aten::kCdist, cdist_backward, {&x1, &x2}, {&x1, &x2});
  const Tensor left = contiguous(x1), right = contiguous(x2);
  Shape shape = x1.shape();
  shape.dims[static_cast<std::size_t>(shape.rank - 1)] = x2.size(-2);
  Tensor result = x1.tape().empty(shape, x1.dtype(), aten::kCdist);
  x1.tape().kernels.add(aten::kCdist, OperatorClass::kElementwise, x1.dtype(),
                        3.0 * static_cast<double>(result.elements() * x1.size(-1)),
                        static_cast<double>(x1.bytes() + x2.bytes() + result.bytes()));
  call.returns(finish(node, std::move(result), true));
}

// --- of pairs: composites of Loss.cpp and Distance.cpp; operands' temporaries live to the end of a statement

/// Python's functions hand a number on: 0, 1 and 2 are none, mean and sum.
std::string_view numbered_reduction(const RecordedCall& call, int slot) {
  constexpr std::array<std::string_view, 3> kNames{"none", "mean", "sum"};
  return kNames[static_cast<std::size_t>(std::clamp<std::int64_t>(call.integer_or(slot, 1), 0, 2))];
}

/// Operands of three, the last one cast first.
std::array<Tensor, 3> cast_three(const AtenOperator& op, const RecordedCall& call) {
  const Tensor third = autocast(op, call.tensor(2)), second = autocast(op, call.tensor(1));
  return {autocast(op, call.tensor(0)), second, third};
}

/// (-target * (input1 - input2) + margin), bounded below.
void margin_ranking_row(RecordedCall& call) {  // input1 input2 target margin reduction
  const auto [x1, x2, target] = cast_three(aten::kMarginRankingLoss, call);
  Tensor margins;
  {
    const Tensor turned = negate(target), difference = subtract(x1, x2), product = multiply(turned, difference);
    margins = add_scalar(product);
  }
  const Tensor losses = clamp_above(margins);
  margins.reset();
  call.returns(reduced_loss(losses, numbered_reduction(call, 4)));
}

/// norm(x1 - x2 + eps, p) of the last dimension.
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, bool keep_dims) {
  const Tensor difference = subtract(x1, x2), shifted = add_scalar(difference);
  const unsigned last = 1U << (shifted.rank() - 1);
  return p == 1 ? one_norm(shifted, last, keep_dims) : vector_norm(shifted, last, keep_dims);
}

/// Which norm a distance is: p.
double norm_of(RecordedCall& call, int slot) {
  const double p = call.number_or(slot, 2);
  if (p != 1 && p != 2) call.refuse("another p than 1 or 2");
  return p;
}

void pairwise_distance_row(RecordedCall& call) {  // x1 x2 p eps keepdim
  const double p = norm_of(call, 2);
  call.returns(pairwise_distance(call.tensor(0), call.tensor(1), p, call.boolean_or(4, false)));
}

/// margin + positive - negative, bounded below; a swap takes the nearer one of two negatives.
void triplet_row(RecordedCall& call) {  // anchor positive negative margin p eps swap reduction
  const auto [anchor, positive, negative] = cast_three(aten::kTripletMarginLoss, call);
  const double p = norm_of(call, 4);
  const Tensor to_positive = pairwise_distance(anchor, positive, p, false);
  Tensor to_negative = pairwise_distance(anchor, negative, p, false);
  if (call.boolean_or(6, false)) {
    const Tensor between = pairwise_distance(positive, negative, p, false);
    to_negative = extremum(aten::kMinimum, to_negative, between);
  }
  Tensor losses, differences;
  {
    const Tensor shifted = add_scalar(to_positive);
    differences = subtract(shifted, to_negative);
    losses = clamp_above(differences);
  }
  differences.reset();
  call.returns(reduced_loss(losses, numbered_reduction(call, 7)));
}

/// What counts where the target is 1, and where it is -1; both live until their sum is reduced.
Tensor reduced_of_both_signs(const Tensor& target, const Tensor& negative, const Tensor& positive, const Tensor& zeros,
                             bool negative_first, std::string_view reduction) {
  const auto chosen = [&](const Tensor& of) {
    const Tensor where_so = pointwise(aten::kEq, {&target}, 1, DType::kBool);
    return where(where_so, of, zeros);
  };
  const Tensor first = chosen(negative_first ? negative : positive),
               second = chosen(negative_first ? positive : negative);
  return reduced_loss(add(first, second), reduction);
}

void hinge_embedding_row(RecordedCall& call) {  // input target margin reduction
  const auto [x, target] = cast(aten::kHingeEmbeddingLoss, call);
  const Tensor zeros = filled(x.tape(), x.shape(), x.dtype(), aten::kZerosLike);
  const Tensor margins = negate(x), bounded = clamp_above(margins);
  call.returns(reduced_of_both_signs(target, bounded, x, zeros, true, numbered_reduction(call, 3)));
}

/// The products' sums over the last dimension; 1 - cos, and cos - margin.
void cosine_embedding_row(RecordedCall& call) {  // input1 input2 target margin size_average reduce reduction
  const auto [x1, x2, target] = cast_three(aten::kCosineEmbeddingLoss, call);
  const auto summed = [](const Tensor& a, const Tensor& b) {
    const Tensor product = multiply(a, b);
    return sum_over(product, product.rank() - 1, false);
  };
  const auto squared = [&](const Tensor& of) {
    const Tensor square = multiply(of, of), total = sum_over(square, square.rank() - 1, false);
    return add_scalar(total);
  };
  const Tensor dots = summed(x1, x2), squares1 = squared(x1), squares2 = squared(x2);
  Tensor product = multiply(squares1, squares2);
  Node* node = record(aten::kSqrt,
                      [](BackwardCall& back) {
                        const Tensor twice = pw(aten::kMul, {&back.saved(0)});
                        back.set(0, pw(aten::kDiv, {&back.gradient(), &twice}));
                      },
                      {&product}, {});
  Tensor roots = product.tape().become_view(product, product.shape(), product.strides());  // sqrt_
  roots = finish(node, std::move(roots), true);
  const Tensor cosines = divide_both(dots, roots);
  const Tensor zeros = filled(x1.tape(), cosines.shape(), cosines.dtype(), aten::kZerosLike);
  const Tensor positive = negate(cosines), shifted = subtract_scalar(cosines), negative = clamp_above(shifted);
  call.returns(reduced_of_both_signs(target, negative, positive, zeros, false, call.text_or(6, "mean")));
}

/// exp(input) - target * input, or input - target * log(input + eps); Stirling's term needs no gradient.
void poisson_row(RecordedCall& call) {  // input target log_input full size_average eps reduce reduction
  const auto [x, target] = cast(aten::kPoissonNllLoss, call);
  if (is_followed(target)) call.refuse("targets that are differentiated");
  Tensor losses;
  if (call.boolean_or(2, true)) {
    const Tensor product = multiply(target, x), powers = exponential(x);
    losses = subtract(powers, product);
  } else {
    const Tensor shifted = add_scalar(x), logarithms = logarithm(shifted), product = multiply(target, logarithms);
    losses = subtract(x, product);
  }
  if (call.boolean_or(3, false)) {
    Tensor term;
    {
      const Tensor scaled = pw(aten::kMul, {&target}), root = pw(aten::kLog, {&scaled}), half = pw(aten::kMul, {&root});
      const Tensor own = pw(aten::kLog, {&target}), product = pw(aten::kMul, {&target, &own}),
                   less = pw(aten::kSub, {&product, &target});
      term = pw(aten::kAdd, {&less, &half});
    }
    const Tensor small = pointwise(aten::kLe, {&target}, 1, DType::kBool),
                 kept = pw(aten::kMaskedFill, {&term, &small});
  }
  call.returns(reduced_loss(losses, call.text_or(7, "mean")));
}

constexpr OperatorRow kRows[] = {
    {"cross_entropy", "input target weight size_average ignore_index reduce reduction label_smoothing",
     cross_entropy_row},
    {"nll_loss", "input target weight size_average ignore_index reduce reduction", nll_row},
    {"mse_loss", "input target size_average reduce reduction weight",
     loss_row<aten::kMseLoss, aten::kMseLossBackward, 4, true>},
    {"smooth_l1_loss", "input target size_average reduce reduction beta",
     loss_row<aten::kSmoothL1Loss, aten::kSmoothL1LossBackward, 4, true>},
    {"huber_loss", "input target reduction delta weight",
     loss_row<aten::kHuberLoss, aten::kHuberLossBackward, 2, false>},
    {"l1_loss", "input target size_average reduce reduction weight", l1_row},
    {"kl_div", "input target size_average reduce reduction log_target", kl_div_row},
    {"binary_cross_entropy_with_logits", "input target weight size_average reduce reduction pos_weight", logits_row},
    {"binary_cross_entropy", "input target weight size_average reduce reduction", probabilities_row},
    {"soft_margin_loss", "input target reduction", soft_margin_row},
    {"cosine_similarity", "x1 x2 dim eps", cosine_similarity_row},
    {"pdist", "input p", pdist_row},
    {"cdist", "x1 x2 p compute_mode", cdist_row},
    {"margin_ranking_loss", "input1 input2 target margin reduction", margin_ranking_row},
    {"pairwise_distance", "x1 x2 p eps keepdim", pairwise_distance_row},
    {"triplet_margin_loss", "anchor positive negative margin p eps swap reduction", triplet_row},
    {"hinge_embedding_loss", "input target margin reduction", hinge_embedding_row},
    {"cosine_embedding_loss", "input1 input2 target margin size_average reduce reduction", cosine_embedding_row},
    {"poisson_nll_loss", "input target log_input full size_average eps reduce reduction", poisson_row},
};

}  // namespace

std::span<const OperatorRow> loss_rows() { return kRows; }

}  // namespace memcalc
