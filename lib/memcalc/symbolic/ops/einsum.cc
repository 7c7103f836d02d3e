// MIRRORS(torch, "Linear.cpp", "2.11.0")
#include "memcalc/symbolic/ops/einsum.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// "bij,bjk->bik": the letters of each operand and of the result. An ellipsis becomes letters of its own.
struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

constexpr char kFirstOfEllipsis = '0';

Equation parsed(std::string_view text, std::span<const Tensor> tensors) {
  std::string plain;
  std::copy_if(text.begin(), text.end(), std::back_inserter(plain), [](char c) { return c != ' '; });
  const std::size_t arrow = plain.find("->");
  Equation equation;
  std::string left = plain.substr(0, arrow);
  for (std::size_t start = 0; start <= left.size();) {
    const std::size_t comma = std::min(left.find(',', start), left.size());
    equation.operands.push_back(left.substr(start, comma - start));
    start = comma + 1;
  }
  if (equation.operands.size() != tensors.size()) return {};
  std::size_t widest = 0;
  std::vector<std::size_t> hidden(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (equation.operands[i].find("...") == std::string::npos) continue;
    const auto rank = static_cast<std::size_t>(tensors[i].rank());
    if (rank + 3 < equation.operands[i].size()) return {};
    hidden[i] = rank + 3 - equation.operands[i].size();
    widest = std::max(widest, hidden[i]);
  }
  const auto letters = [&](std::size_t count) {  // the last ones, as broadcasting aligns them
    std::string found;
    for (std::size_t i = widest - count; i < widest; ++i) found += static_cast<char>(kFirstOfEllipsis + i);
    return found;
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t dots = equation.operands[i].find("...");
    if (dots != std::string::npos) equation.operands[i].replace(dots, 3, letters(hidden[i]));
    if (equation.operands[i].size() != static_cast<std::size_t>(tensors[i].rank())) return {};
  }
  if (arrow != std::string::npos) {
    equation.result = plain.substr(arrow + 2);
    const std::size_t dots = equation.result.find("...");
    if (dots != std::string::npos) equation.result.replace(dots, 3, letters(widest));
  } else {  // the ellipsis, then letters that appear once, in order of the alphabet
    std::string all;
    for (const std::string& each : equation.operands) all += each;
    std::sort(all.begin(), all.end());
    equation.result = letters(widest);
    for (const char c : all) {
      const bool once = std::count(all.begin(), all.end(), c) == 1;
      if (once && equation.result.find(c) == std::string::npos) equation.result += c;
    }
  }
  return equation;
}

/// `x` with its dimensions in the order of `order`, of size 1 where it has none.
Tensor arranged(Tensor x, const std::string& letters, const std::string& order) {
  std::vector<int> places;
  std::string missing;
  for (const char c : order) {
    if (letters.find(c) == std::string::npos) missing += c;
  }
  const std::string all = letters + missing;
  for (std::size_t i = 0; i < missing.size(); ++i) x = unsqueeze(std::move(x), x.rank());
  for (const char c : order) places.push_back(static_cast<int>(all.find(c)));
  return permute(std::move(x), places);
}

/// sumproduct_pair: batch dimensions, those of the left, those that are summed, those of the right; then at::bmm.
/// `result` dimensions come first, the others are summed. Where both have one element in each of these, nothing is
/// summed and einsum multiplies (Linear.cpp).
Tensor product_of(Tensor left, Tensor right, int result) {
  std::vector<int> batch, of_left, summed, of_right;
  std::int64_t batch_size = 1, left_size = 1, sum_size = 1, right_size = 1;
  bool contracts = false;
  for (int i = result; i < left.rank(); ++i) contracts = contracts || (left.size(i) != 1 && right.size(i) != 1);
  for (int i = 0; i < left.rank(); ++i) {
    const bool in_left = left.size(i) != 1, in_right = right.size(i) != 1;
    if (i >= result) {
      summed.push_back(i);
      if (in_left && in_right) {
        sum_size *= left.size(i);
      } else if (in_left) {
        left = sum(left, 1U << i, true);
      } else if (in_right) {
        right = sum(right, 1U << i, true);
      }
    } else if (in_left && in_right) {
      batch.push_back(i);
      batch_size *= left.size(i);
    } else if (in_left) {
      of_left.push_back(i);
      left_size *= left.size(i);
    } else {
      of_right.push_back(i);
      right_size *= right.size(i);
    }
  }
  if (!contracts) {
    Shape shape;
    const Tensor product = multiply(left, right);
    for (int i = 0; i < result; ++i) shape.dims[static_cast<std::size_t>(shape.rank++)] = product.size(i);
    return view(product, shape);
  }
  const auto joined = [](std::initializer_list<const std::vector<int>*> parts) {
    std::vector<int> all;
    for (const std::vector<int>* part : parts) all.insert(all.end(), part->begin(), part->end());
    return all;
  };
  Shape out;
  const auto add = [&out](std::int64_t size) { out.dims[static_cast<std::size_t>(out.rank++)] = size; };
  for (const int i : batch) add(left.size(i));
  for (const int i : of_left) add(left.size(i));
  for (std::size_t i = 0; i < summed.size(); ++i) add(1);
  for (const int i : of_right) add(right.size(i));
  const std::vector<int> made = joined({&batch, &of_left, &summed, &of_right});
  std::vector<int> back(made.size());
  for (std::size_t i = 0; i < made.size(); ++i) back[static_cast<std::size_t>(made[i])] = static_cast<int>(i);
  left = reshape(permute(std::move(left), made), {batch_size, left_size, sum_size});
  right = reshape(permute(std::move(right), joined({&batch, &summed, &of_right, &of_left})),
                  {batch_size, sum_size, right_size});
  Tensor product = permute(view(batched_product(left, right), out), back);
  for (int i = product.rank() - 1; i >= result; --i) product = squeeze(std::move(product), i);
  return product;
}

}  // namespace

Tensor einsum(std::string_view text, std::span<const Tensor> tensors) {
  const Equation equation = parsed(text, tensors);
  if (tensors.empty() || tensors.size() > 2 || equation.operands.size() != tensors.size()) return {};
  std::string order = equation.result;
  for (const std::string& letters : equation.operands) {
    for (const char c : letters) {
      if (std::count(letters.begin(), letters.end(), c) > 1) return {};
      if (order.find(c) == std::string::npos) order += c;
    }
  }
  std::sort(order.begin() + static_cast<std::ptrdiff_t>(equation.result.size()),
            order.end());  // Linear.cpp: perm_index
  if (order.size() > static_cast<std::size_t>(kMaxDims)) return {};
  const int result = static_cast<int>(equation.result.size());
  std::vector<Tensor> operands;
  for (const Tensor& each : tensors) operands.push_back(autocast(aten::kEinsum, each));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    operands[i] = arranged(std::move(operands[i]), equation.operands[i], order);
  }
  const WithoutAutocast without(tensors[0].tape().modes.autocast);  // the outermost call decides
  const int rank = static_cast<int>(order.size());
  if (operands.size() == 1) {
    unsigned summed = 0;
    for (int i = result; i < rank; ++i) summed |= 1U << i;
    return summed == 0 ? operands[0] : sum(operands[0], summed, false);
  }
  if (result == rank) return multiply(operands[0], operands[1]);
  return product_of(std::move(operands[0]), std::move(operands[1]), result);
}

}  // namespace memcalc
