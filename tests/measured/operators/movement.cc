// Views, copies and concatenations.
#include "measured/operators/op_case.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc::measured {

namespace {

using test::TapeBench;

struct Sizes {
  std::int64_t batch, sequence, width;
};

Sizes sizes_of(const OpCase& each) { return {each.integer("B"), each.integer("S"), each.integer("h")}; }

Operation copy(TapeBench& bench, const OpCase& each) {
  const Tensor x = bench.input({each.integer("n")}, each.dtype());
  return {.forward = [x] { return clone(x); }};
}

Operation cat_last(TapeBench& bench, const OpCase& each) {
  const Sizes s = sizes_of(each);
  const Tensor a = bench.input({s.batch, 4, s.sequence, s.width}, each.dtype());
  const Tensor b = bench.input({s.batch, 4, s.sequence, s.width}, each.dtype());
  return {.forward = [=] { return cat(a, b, -1); }};
}

Operation cat_halves(TapeBench& bench, const OpCase& each) {  // rotate_half
  const Sizes s = sizes_of(each);
  const Tensor a = bench.input({s.batch, s.sequence, 4, s.width}, each.dtype());
  return {.forward = [=] {
    const std::int64_t half = s.width / 2;
    Tensor second = negate(slice(transpose(a, 1, 2), -1, half, half));  // C++ evaluates arguments last to first
    return cat(std::move(second), slice(transpose(a, 1, 2), -1, 0, half), -1);
  }};
}

Operation first_token(TapeBench& bench, const OpCase& each) {
  const Sizes s = sizes_of(each);
  const Tensor x = bench.input({s.batch, s.sequence, s.width}, each.dtype());
  return {.forward = [x] { return select(x, 1); }};
}

Operation last_columns(TapeBench& bench, const OpCase& each) {
  const Sizes s = sizes_of(each);
  const Tensor x = bench.input({s.batch, s.sequence, s.width}, each.dtype());
  return {.forward = [=] { return clone(slice(x, 2, s.width / 2, s.width / 2)); }};
}

Operation split_in_three(TapeBench& bench, const OpCase& each) {  // sum(t * 1.0 for t in x.split(h, 2))
  const Sizes s = sizes_of(each);
  const Tensor x = bench.input({s.batch, s.sequence, 3 * s.width}, each.dtype());
  return {.forward = [x] {
    const std::vector<Tensor> parts = split(x, 2, 3);
    Tensor sum = add_scalar(multiply_scalar(parts[0]));  // sum() starts at 0
    for (std::size_t i = 1; i < 3; ++i) sum = add(sum, multiply_scalar(parts[i]));
    return sum;
  }};
}

Operation repeat_key_heads(TapeBench& bench, const OpCase& each) {  // repeat_kv of transformers
  const Sizes s = sizes_of(each);
  const Tensor x = bench.input({s.batch, s.sequence, 4, s.width}, each.dtype());
  return {.forward = [=] {
    const Tensor expanded = expand(unsqueeze(transpose(x, 1, 2), 2), {s.batch, 4, 3, s.sequence, s.width});
    return reshape(expanded, {s.batch, 12, s.sequence, s.width});
  }};
}

Operation contiguous_heads(TapeBench& bench, const OpCase& each) {
  const Sizes s = sizes_of(each);
  const Tensor x = bench.input({s.batch, s.sequence, 4, s.width}, each.dtype());
  return {.forward = [x] { return contiguous(transpose(x, 1, 2)); }};
}

}  // namespace

std::vector<Runner> movement_runners() {
  return {
      ordinary("clone", copy),
      ordinary("cat_last", cat_last),
      ordinary("cat_half", cat_halves),
      ordinary("select_first_token", first_token),
      ordinary("slice_last", last_columns),
      ordinary("split3", split_in_three),
      ordinary("repeat_kv", repeat_key_heads),
      ordinary("contiguous_t", contiguous_heads),
  };
}

std::vector<Runner> other_runners() {
  std::vector<Runner> runners;
  const auto skip = [&](const std::string& reason, std::initializer_list<const char*> ops) {
    for (const char* op : ops) runners.push_back(skipped(op, reason));
  };
  skip("no measurement: a mark of the harness", {"device", "end", "budget"});
  skip("element-wise operators that no model here uses", {"sqrt", "where_scalar"});
  skip("a division by a tensor that needs a gradient", {"div"});
  skip("reductions that no model here uses",
       {"abs_max", "isinf", "isnan_any", "eq_all", "sum_-1", "sum_0", "cumsum_int32"});
  skip("written out in the loops and models, which the histories check",
       {"isnan_or_isinf", "roberta_position_ids", "where_scalar_t", "full_scalar", "tensor_from_cpu", "pad_labels",
        "pad_shift_contig", "detach_cpu_float"});
  skip("integer operators that no model here uses",
       {"to_bool", "ne_long", "eq_argmax", "last_token", "diff", "one_hot", "randint_like", "isin", "item"});
  skip("sorting, selecting and indexing by values",
       {"sort", "unique", "nonzero", "bool_index", "index_select0", "index_batch_last"});
  return runners;
}

}  // namespace memcalc::measured
