// What the rows of the operator table request that families do not call: ops/table_functions.cc, table_losses.cc,
// table_scans.cc, table_products.cc, table_shapes.cc, table_places.cc, table_spectra.cc. Numbers of torch 2.11: its
// host code run on a CUDA runtime that computes nothing, as torch.autograd.grad calls it. Temporaries of one formula
// may come and go in another order: the sizes, the most that is held and what is left are compared.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "memcalc/symbolic/ops/operator_table.h"
#include "support/error_text.h"
#include "support/request_sum.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using Kind = BoundArgument::Kind;
using test::expect_same;
using test::Requests;
using test::RequestSum;
using test::TapeBench;

constexpr DType kFloat = DType::kFloat32;
constexpr DType kPlace = DType::kInt64;

BoundArgument v(int place) { return {.kind = Kind::kValue, .integer = place}; }
BoundArgument n(std::int64_t number) {
  return {.kind = Kind::kInteger, .integer = number, .number = static_cast<double>(number)};
}
BoundArgument real(double number) { return {.kind = Kind::kNumber, .number = number}; }
BoundArgument text(const char* value) { return {.kind = Kind::kText, .text = value}; }
BoundArgument list(std::vector<BoundArgument> items) { return {.kind = Kind::kList, .items = std::move(items)}; }
BoundArgument yes() { return {.kind = Kind::kBool, .integer = 1}; }
BoundArgument none() { return {}; }

struct Operand {
  Shape shape;
  DType dtype = kFloat;
  bool needs_gradient = true;
};

struct Row {
  const char* name;
  std::vector<Operand> operands;
  std::vector<BoundArgument> slots;
  Requests forward, backward;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows{
      // of two dimensions: as a step of a Fourier neural operator on an H200 asked for it
      {"rfft2", {{{4, 8, 8}, kFloat}}, {v(0)}, {1280}, {2048, 2048, -2048}},
      {"irfft2", {{{4, 8, 5}, DType::kComplex64}}, {v(0)}, {1024, 1280, -1280}, {1280}},
      // of one in the middle: batch dimensions that are no view of one are copied
      {"rfft", {{{4, 8, 8}, kFloat}}, {v(0), none(), n(1)}, {1280, 1024, -1024}, {2048, 2048, 2048, -2048, -2048}},
      {"irfft", {{{4, 5, 8}, DType::kComplex64}}, {v(0), n(8), n(1)}, {1024, 1280, 1280, -1280, -1280}, {1280}},
      {"fft2", {{{4, 8, 8}, kFloat}}, {v(0)}, {2048}, {2048}},
      {"fft2", {{{2, 100, 96}, kFloat}}, {v(0)}, {153600, 153600, -153600}, {153600}},
      {"irfft",
       {{{3, 64, 128}, DType::kComplex64}},
       {v(0)},
       {195072, 196608, 195072, -195072, -196608},
       {196608, 195072, -195072}},
      // as operator_streams.py measured them on an H200 (tests/measured/operator_streams_h200.jsonl.gz)
      {"embedding_bag",
       {{{50, 10}, kPlace, false}, {{2000, 256}, kFloat}},
       {v(0), v(1), none(), none(), real(2), n(0), text("sum")},
       {400, 400, 4000, 51200},
       {4000,  4000,  4000,  1,    -1,    -4000, 2048000, 4000, 8,      4000,    1279,
        -1279, -4000, 4000,  4000, 1279,  -1279, 8,       4400, 563200, -563200, -4400,
        -8,    -4000, -4000, -8,   -4000, -4000, -4000,   -400, -4000,  -400}},
      {"norm", {{{8, 16}, kFloat}}, {v(0), n(1), n(-1)}, {32}, {512, 512, -512}},
      {"batch_norm",  // in eval() within a model that trains
       {{{2, 8, 8, 8}, kFloat}, {{8}, kFloat, false}, {{8}, kFloat, false}, {{8}, kFloat}, {{8}, kFloat}},
       {v(0), v(1), v(2), v(3), v(4), n(0)},
       {4096},
       {4096, 32, 32}},
      {"batch_norm",  // no bias, so not by cuDNN
       {{{2, 8, 8, 8}, kFloat}, {{8}, kFloat}},
       {v(0), none(), none(), v(1), none(), n(1)},
       {4096, 32, 32},
       {4096, 32, -32, -32}},
      {"stft",
       {{{64, 250}, kFloat}, {{128}, kFloat, false}},
       {v(0), n(128), n(32), none(), v(1), n(1), text("reflect"), n(0), n(1), n(1)},
       {96768, 262144, 266240, -96768},
       {524288, 524288, -524288, -262144, 262144, -524288, 96768, 193536, 524288, -524288, -193536, -262144, 64000,
        -96768}},
      {"take_along_dim", {{{8, 4}, kFloat}, {{5, 1}, kPlace, false}}, {v(0), v(1), n(0)}, {160, 80}, {128, -160}},
      {"max_unpool2d", {{{2, 4, 4, 4}, kFloat}, {{2, 4, 4, 4}, kPlace, false}}, {v(0), v(1), n(2)}, {2048}, {512}},
      {"log2", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512, 512, -512}},
      {"log10", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512, 512, -512}},
      {"sinh", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512, 512, -512}},
      {"cosh", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512, 512, -512}},
      {"tan", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512, 512, 512, -512, -512}},
      {"asin", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512, 512, 512, 512, 512, -512, -512, -512, -512}},
      {"acos", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512, 512, 512, 512, 512, 512, -512, -512, -512, -512, -512}},
      {"atan", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512, 512, 512, -512, -512}},
      {"trunc", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512}},
      {"floor", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512}},
      {"nan_to_num", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512, 128, 128, 128, -128, -128, -512, 512, -128}},
      {"div", {{{8, 16}, DType::kBFloat16}, {{8, 1}, kFloat, false}}, {v(0), v(1)}, {512}, {512, 256, -512}},
      {"frac", {{{8, 16}, kFloat}}, {v(0)}, {512}, {}},
      {"cos", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512, 512, 512, -512, -512}},
      {"logit", {{{8, 16}, kFloat}}, {v(0), real(0.1)}, {512}, {512}},
      {"softshrink", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512}},
      {"hardshrink", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512}},
      {"threshold", {{{8, 16}, kFloat}}, {v(0), real(0.1), real(0)}, {512}, {512}},
      {"selu", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512}},
      {"celu", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512}},
      {"glu", {{{8, 16}, kFloat}}, {v(0), n(1)}, {256}, {512}},
      {"prelu", {{{2, 4, 4, 4}, kFloat}, {{4}, kFloat}}, {v(0), v(1)}, {512}, {512, 512, 16, -512}},
      {"rrelu", {{{8, 16}, kFloat}}, {v(0), real(0.1), real(0.3), n(1)}, {512, 512}, {512, -512}},
      {"dropout2d", {{{2, 4, 4, 4}, kFloat}}, {v(0), real(0.1), n(1)}, {32, 512}, {512, -32}},
      {"alpha_dropout", {{{8, 16}, kFloat}}, {v(0), real(0.1), n(1)}, {512, 512, 512, -512}, {512, -512}},
      {"atan2",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat}},
       {v(0), v(1)},
       {512},
       {512, 512, 512, -512, -512, 512, 128, -128, 512, 512, 512, 512, 512, -512, -512, -512, -512, -512}},
      {"xlogy",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat}},
       {v(0), v(1)},
       {512},
       {512, 512, -512, 512, 128, 128, 128, 512, -128, -128, -128, -512}},
      {"logaddexp",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat}},
       {v(0), v(1)},
       {512},
       {512, 512, 512, 512, -512, -512, -512, 512, 512, 512, 512, -512, -512, -512}},
      {"hypot", {{{8, 16}, kFloat}, {{8, 16}, kFloat}}, {v(0), v(1)}, {512}, {512, 512, -512, 512, 512, -512}},
      {"copysign", {{{8, 16}, kFloat}, {{8, 16}, kFloat, false}}, {v(0), v(1)}, {512}, {512, 128, -128, 512, -512}},
      {"fmod", {{{8, 16}, kFloat}}, {v(0), real(2)}, {512}, {}},
      {"remainder", {{{8, 16}, kFloat}, {{8, 16}, kFloat}}, {v(0), v(1)}, {512}, {512, 512, 512, -512, -512}},
      {"addcdiv",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat}, {{8, 16}, kFloat}},
       {v(0), v(1), v(2)},
       {512},
       {512, 512, -512, 512, 512, 512, 512, 512, -512, -512, -512, -512}},
      {"lerp",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat}, {{8, 16}, kFloat}},
       {v(0), v(1), v(2)},
       {512},
       {512, 512, 512, -512, 512, 512, -512}},
      {"clamp",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat}},
       {v(0), v(1)},
       {512},
       {4, 128, 512, -128, -4, 4, 128, 512, -128, -4}},
      {"pow", {{{8, 16}, kFloat}}, {real(2), v(0)}, {512, 8, -8}, {512, 512, -512}},
      {"max",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat}},
       {v(0), v(1)},
       {512},
       {512, 128, 512, 128, -128, -128, -512, 512, 128, 512, 128, -128, -128, -512}},
      {"nll_loss", {{{8, 16}, kFloat}, {{8}, kPlace, false}}, {v(0), v(1)}, {4, 4}, {512, -4}},
      {"cross_entropy",
       {{{8, 16}, kFloat}, {{8}, kPlace, false}},
       {v(0), v(1), none(), none(), none(), none(), text("none")},
       {512, 32, 4},
       {512, -4, 512, -512, -512}},
      {"cross_entropy",
       {{{8, 16}, kFloat}, {{8}, kPlace, false}},
       {v(0), v(1), none(), none(), none(), none(), text("mean"), real(0.1)},
       {512, 4, 4, 32, 32, -32, 8, 8, 8, 64, -64, 4, 4, -4, -8, 4, 4, 4, -4, -4, -4, -32, -4},
       {4, 4, 4, -4, -8, 32, -4, -8, 32, -32, 512, -4, -4, 512, -32, -512, 512, -512, -512}},
      {"cross_entropy",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat, false}},
       {v(0), v(1)},
       {512, 512, 4, 4, 4, -4, -4, -512},
       {4, 4, -4, 512, -4, 512, -512, -512}},
      {"mse_loss", {{{8, 16}, kFloat}, {{8, 16}, kFloat, false}}, {v(0), v(1)}, {512, 512, -512}, {512}},
      {"smooth_l1_loss", {{{8, 16}, kFloat}, {{8, 16}, kFloat, false}}, {v(0), v(1)}, {512, 512, -512}, {512}},
      {"huber_loss", {{{8, 16}, kFloat}, {{8, 16}, kFloat, false}}, {v(0), v(1)}, {512, 4, -512}, {512}},
      {"l1_loss",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat, false}},
       {v(0), v(1)},
       {512, 512, 4, -512},
       {512, 512, 512, -512, -512, -512}},
      {"kl_div",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat, false}},
       {v(0), v(1), none(), none(), text("batchmean")},
       {512, 512, 512, -512, -512, 4, -512, 4, -4},
       {4, 512, -4, 512, -512}},
      {"binary_cross_entropy_with_logits",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat, false}},
       {v(0), v(1)},
       {512, 512, 4, -512, -512},
       {512}},
      {"binary_cross_entropy_with_logits",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat, false}, {{8, 16}, kFloat, false}},
       {v(0), v(1), v(2), none(), none(), text("none")},
       {512, 512, -512},
       {512}},
      {"binary_cross_entropy", {{{8, 16}, kFloat}, {{8, 16}, kFloat, false}}, {v(0), v(1)}, {512, 4, -4}, {512}},
      {"soft_margin_loss",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat, false}},
       {v(0), v(1)},
       {512, 4, -4},
       {512, 512, 512, -512, -512, 512, -512}},
      {"cosine_similarity",
       {{{8, 16}, kFloat}, {{8, 16}, kFloat}},
       {v(0), v(1)},
       {32, 32, 32, 32, 4, 512, 512, 512, 32, -512, -4},
       {512, 512, -512, -512, 512, 512,  512,  512,  -512, -512, -512, 512,  32,  -512, -512,
        -32, 512, 512,  512,  512, -512, -512, -512, 512,  32,   -512, -512, -32, 512,  8,
        512, -8,  -512, -32,  -32, -512, 512,  8,    512,  -8,   -512, -32,  -32, -512}},
      {"cdist",
       {{{8, 16}, kFloat}, {{4, 16}, kFloat}},
       {v(0), v(1), real(1)},
       {128},
       {512, 2048, -2048, 128, 128, 256, 2048, -2048, -128, -128}},
      {"cdist",  // of many rows, as a product of matrices
       {{{32, 16}, kFloat}, {{28, 16}, kFloat}},
       {v(0), v(1), real(2)},
       {2048, 128, -2048, 128, 1792, 112, -1792, 112, 2048, 2304, -128, -128, -2048, 2016, -112, -112, 3584, -2016,
        -2304},
       {3584, 896, -896, 2048, 128, 2048, 2048, 1792, 112, 1792, 1792, -1792, -112, -1792, -2048, -128, -2048, -3584}},
      {"cumprod",
       {{{8, 16}, kFloat}},
       {v(0), n(1)},
       {512},
       {512, 128, 1, -1, 512, 512, 512, -512, -512, 512, -512, -128, -512}},
      {"cummax", {{{8, 16}, kFloat}}, {v(0), n(1)}, {512, 1024}, {512, -1024}},
      {"logcumsumexp", {{{8, 16}, kFloat}}, {v(0), n(1)}, {512}, {4,   512,  512,  -512, 128,  512,  -128, 128,
                                                                  512, -128, 512,  512,  512,  512,  -512, -512,
                                                                  512, 512,  -512, -512, -512, 512,  512,  512,
                                                                  512, -512, -512, 512,  512,  -512, -512, -512,
                                                                  512, -512, -512, -512, -512, -512, -4}},
      {"sort", {{{8, 16}, kFloat}}, {v(0), n(1)}, {512, 1024, 128, -128}, {512, -1024}},
      {"sort",  // rows of more than 4,096, fewer than 128, on an H200
       {{{8, 8064}, kFloat}},
       {v(0), n(1)},
       {258048, 516096, 516096, 516096, 258048, 795135, -795135, -258048, 14847, -14847, -516096, -516096},
       {258048, -516096}},
      {"topk", {{{8, 16}, kFloat}}, {v(0), n(2), n(0)}, {128, 256}, {512, -256}},
      {"kthvalue", {{{8, 16}, kFloat}}, {v(0), n(2), n(1)}, {32, 64}, {512, -64}},
      {"median", {{{8, 16}, kFloat}}, {v(0), n(1)}, {32, 64}, {512, -64}},
      {"max", {{{8, 16}, kFloat}}, {v(0)}, {4}, {128, 1, 128, 8, 1024, -1024, 4, 512, -4, -8, -128, -1, -128}},
      {"std_mean",
       {{{8, 16}, kFloat}},
       {v(0), n(1)},
       {32, 32, -32},
       {32, 32, 8, -8, -32, 32, 512, 32, 512, -32, -512, -32, -32}},
      {"var_mean", {{{8, 16}, kFloat}}, {v(0), n(1)}, {32, 32, -32}, {32, 512, 32, 512, -32, -512, -32}},
      {"baddbmm",
       {{{4, 8, 8}, kFloat}, {{4, 8, 8}, kFloat}, {{4, 8, 8}, kFloat}},
       {v(0), v(1), v(2)},
       {1024},
       {1024, 1024}},
      {"mv", {{{8, 16}, kFloat}, {{16}, kFloat}}, {v(0), v(1)}, {32}, {512, 64}},
      {"dot", {{{16}, kFloat}, {{16}, kFloat}}, {v(0), v(1)}, {4}, {64, 64}},
      {"outer", {{{16}, kFloat}, {{16}, kFloat}}, {v(0), v(1)}, {1024}, {1024, 1024, 64, -1024, 64, -1024}},
      {"addr", {{{16, 16}, kFloat}, {{16}, kFloat}, {{16}, kFloat}}, {v(0), v(1), v(2)}, {1024}, {64, 64}},
      {"addmv", {{{8}, kFloat}, {{8, 16}, kFloat}, {{16}, kFloat}}, {v(0), v(1), v(2)}, {32}, {512, 64}},
      {"diagonal", {{{4, 8, 8}, kFloat}}, {v(0), n(0), n(1), n(2)}, {}, {1024}},
      {"diag_embed", {{{8, 16}, kFloat}}, {v(0)}, {8192}, {}},
      {"diag", {{{8, 16}, kFloat}}, {v(0)}, {32}, {512}},
      {"tril", {{{4, 8, 8}, kFloat}}, {v(0)}, {1024}, {1024}},
      {"hstack", {{{8, 16}, kFloat}, {{8, 16}, kFloat}}, {list({v(0), v(1)})}, {1024}, {}},
      {"rot90", {{{8, 16}, kFloat}}, {v(0)}, {512}, {512}},
      {"pad", {{{2, 4, 4, 4}, kFloat}}, {v(0), list({n(1), n(1), n(1), n(1)}), text("reflect")}, {1152}, {512}},
      {"index_put",
       {{{8, 16}, kFloat}, {{8}, kPlace, false}, {{8, 16}, kFloat}},
       {v(0), list({v(1)}), v(2)},
       {512},
       {512, 512, -512, 512}},
      {"index_fill", {{{8, 16}, kFloat}, {{8}, kPlace, false}}, {v(0), n(0), v(1), real(0)}, {512}, {512}},
      {"index_copy",
       {{{8, 16}, kFloat}, {{8}, kPlace, false}, {{8, 16}, kFloat}},
       {v(0), n(0), v(1), v(2)},
       {512},
       {512, 512}},
      {"index_add",
       {{{8, 16}, kFloat}, {{8}, kPlace, false}, {{8, 16}, kFloat}},
       {v(0), n(0), v(1), v(2), n(2)},
       {512},
       {512, 512, -512}},
      {"scatter_reduce",
       {{{8, 16}, kFloat}, {{8, 16}, kPlace, false}, {{8, 16}, kFloat}},
       {v(0), n(0), v(1), v(2), text("amax")},
       {512},
       {512,  128, 512, -128, 128,  512,  -128, 512,  512,  128,  512,
        -128, 512, 128, 512,  -128, -512, -512, -512, -512, -512, -512}},
      {"scatter_reduce",
       {{{8, 16}, kFloat}, {{8, 16}, kPlace, false}, {{8, 16}, kFloat}},
       {v(0), n(0), v(1), v(2), text("mean")},
       {512, 512, 512, 128, -128, -512, -512},
       {512, 512, 512, -512, -512, 128, -128, 512, 512, 512, 512, -512, -512, -512}},
      {"select_scatter", {{{8, 16}, kFloat}, {{8}, kFloat}}, {v(0), v(1), n(1), n(1)}, {512}, {32, 512, -32}},
      {"grid_sample", {{{2, 4, 4, 4}, kFloat}, {{2, 4, 4, 2}, kFloat}}, {v(0), v(1)}, {512}, {512, 256}},
      {"complex", {{{8, 16}, kFloat}, {{8, 16}, kFloat}}, {v(0), v(1)}, {1024}, {}},
      // of pairs: torch 2.11's host code on the CPU, without the scalars that stay there; cdist's differences as an
      // H200
      // asked for them (operator_streams_h200.jsonl.gz: cdist_exact, cdist_three)
      {"margin_ranking_loss",
       {{{10, 16}, kFloat}, {{10, 16}, kFloat}, {{10, 16}, kFloat, false}},
       {v(0), v(1), v(2), n(0), n(0)},
       {640, 640, 640, 640, -640, -640, 640},
       {4, 160, 640, -160, -4, -640, 640, -640, -640, 640}},
      {"margin_ranking_loss",
       {{{10, 16}, kFloat}, {{10, 16}, kFloat}, {{10, 16}, kFloat, false}},
       {v(0), v(1), v(2)},
       {640, 640, 640, 640, -640, -640, 640, 4, -640},
       {640, 4, 160, 640, -160, -4, -640, -640, 640, -640, -640, 640}},
      {"pairwise_distance",
       {{{10, 16}, kFloat}, {{10, 16}, kFloat}},
       {v(0), v(1)},
       {640, 640, 40, -640},
       {640, 10, 640, -10, -640, -640, 640}},
      {"pairwise_distance",
       {{{10, 16}, kFloat}, {{10, 16}, kFloat}},
       {v(0), v(1), n(1), real(1e-6), yes()},
       {640, 640, 40, -640},
       {640, 640, -640, -640, 640}},
      {"triplet_margin_loss",
       {{{10, 16}, kFloat}, {{10, 16}, kFloat}, {{10, 16}, kFloat}},
       {v(0), v(1), v(2)},
       {640, 640, 40, -640, 640, 640, 40, -640, 40, 40, 40, -40, 4, -40},
       {40,  4,    10,  40,  -10, -4, -40, -40, 40,   640, 10,   640, -10, -640,
        -40, -640, -40, 640, 640, 10, 640, -10, -640, -40, -640, -40, 640, -640}},
      {"triplet_margin_loss",
       {{{10, 16}, kFloat}, {{10, 16}, kFloat}, {{10, 16}, kFloat}},
       {v(0), v(1), v(2), n(1), n(1), real(1e-6), yes(), n(2)},
       {640, 640, 40, -640, 640, 640, 40, -640, 640, 640, 40, -640, 40, 40, 40, 40, -40, 4, -40, -40},
       {4,   10,   40,  -10, -4,   -40, 40,  40,   10,   40,   10,   -10, -10,  -40, 40,  10,
        40,  10,   -10, -10, -40,  -40, 640, 640,  -640, -40,  -640, -40, 640,  640, 640, -640,
        -40, -640, -40, 640, -640, 640, 640, -640, -40,  -640, -40,  640, -640, -640}},
      {"hinge_embedding_loss",
       {{{10, 16}, kFloat}, {{10, 16}, kFloat, false}},
       {v(0), v(1)},
       {640, 640, 640, 160, 640, 160, 640, 640, 4, -640, -640, -640, -640, -640},
       {640, 4, 640, -4, -160, 4, 640, -4, -640, -160, 4, 160, 640, -160, -4, -640, -640, 640, -640, -640}},
      {"cosine_embedding_loss",
       {{{10, 16}, kFloat}, {{10, 16}, kFloat}, {{10}, kFloat, false}},
       {v(0), v(1), v(2), real(0.2)},
       {640, 40, -640, 640, 40, 40, -40, -640, 640, 40,  40,  -40, -640, 40,  40,  40,
        40,  40, 40,   10,  40, 10, 40,  40,   4,   -40, -40, -40, -40,  -40, -40, -40},
       {40,  4,   40,  -4,  -10, 4,   40,  -4,   -40, -10, 4,   10,   40,  -10, -4,  -40,  -40, 40,
        -40, -40, 40,  40,  40,  40,  -40, -40,  -40, 40,  -40, -40,  40,  40,  -40, -40,  -40, 40,
        40,  -40, -40, -40, 640, 640, -40, -640, 640, 640, -40, -640, 640, 640, -40, -640, -640}},
      {"poisson_nll_loss",
       {{{10, 16}, kFloat}, {{10, 16}, kFloat, false}},
       {v(0), v(1)},
       {640, 640, 640, -640, 4, -640},
       {640, 640, 640, -640, -640, 640, -640, -640}},
      {"poisson_nll_loss",
       {{{10, 16}, kFloat}, {{10, 16}, kFloat, false}},
       {v(0), v(1), n(0), n(1)},
       {640,  640,  640,  640,  -640, -640, 640, 640, 640,  640,  640,  640, 640,
        -640, -640, -640, -640, -640, -640, 160, 640, -640, -160, -640, 4,   -640},
       {640, 640, 640, -640, 640, -640, -640, -640}},
      {"cdist",
       {{{10, 16}, kFloat}, {{10, 16}, kFloat}},
       {v(0), v(1), n(2), text("use_mm_for_euclid_dist")},
       {640, 40, -640, 40, 640, 40, -640, 40, 640, 720, -40, -40, -640, 720, -40, -40, 400, -720, -720},
       {400, 100, -100, 640, 40, 640, 640, 640, 40, 640, 640, -640, -40, -640, -640, -40, -640, -400}},
      {"cdist",
       {{{128, 256}, kFloat}, {{128, 256}, kFloat}},
       {v(0), v(1), n(2), text("donot_use_mm_for_euclid_dist")},
       {65536},
       {131072, 16777216, -16777216, 65536, 65536, 131072, 16777216, -16777216, -65536, -65536}},
      {"cdist",
       {{{250, 96}, kFloat}, {{30, 96}, kFloat}},
       {v(0), v(1), n(3)},
       {30000},
       {96000, 2880000, -2880000, 30000, 30000, 11520, 2880000, -2880000, -30000, -30000}},
      // of seed 11021 (operator_streams_h200.jsonl.gz: prod, nansum, norm_three_all, norm_minus, median_all, pdist,
      // trace)
      {"prod",
       {{{4, 128, 256}, kFloat}},
       {v(0), n(-1)},
       {2048},
       {131072, 4096, 1048576, -1048576, 8, -8, 524288, 524288, -524288, -4096, -131072}},
      {"nansum", {{{2, 50, 256}, kFloat}}, {v(0), n(1)}, {2048}, {25600, 25600, 102400, -25600, -25600}},
      {"norm", {{{50, 96}, kFloat}}, {v(0), n(3)}, {4}, {19200, 19200, -19200, 4, 4, -4, 1, -1, 19200, -4, -19200}},
      {"norm",
       {{{128, 96}, kFloat}},
       {v(0), n(-1), n(1)},
       {512},
       {49152, 12288, 49152, 49152, -49152, -12288, -49152, 512, 49152, 49152, -49152, -512, -49152}},
      {"norm",
       {{{50, 96}, kFloat}},
       {v(0), none(), none(), none(), none(), none(), n(3)},
       {4},
       {19200, 19200, -19200, 4, 4, -4, 1, -1, 19200, -4, -19200}},
      {"median",
       {{{2, 50, 256}, kFloat}},
       {v(0)},
       {102400, 204800, 204800, 321023, -321023, -204800, -204800, 1, 4, -1, -102400},
       {25600, 1, 25600, 8, 204800, -204800, 4, 102400, -4, -8, -25600, -1, -25600}},
      {"pdist", {{{128, 128}, kFloat}}, {v(0)}, {32512}, {65536, 8323072, -8323072}},
      {"trace", {{{40, 40}, kFloat}}, {v(0)}, {4}, {6400, 320, -320}},
      // the windows of istft: their gradient is a view
      {"unfold_backward", {{{4, 21, 64}, kFloat}}, {v(0), list({n(4), n(384)}), n(1), n(64), n(16)}, {6144}, {}},
  };
  return kRows;
}

TEST(OperatorRows, RequestWhatTorchRequests) {
  for (const Row& row : rows()) {
    TapeBench bench;
    bench.warm_up();
    std::vector<Tensor> values;
    for (const Operand& each : row.operands) {
      values.push_back(bench.input(each.shape, each.dtype, each.needs_gradient));
    }
    bench.start();
    Tensor result;
    {
      RecordedCall call(bench.tape, row.name, row.slots, values, {});
      find_operator(row.name)->run(call);
      ASSERT_FALSE(call.results.empty()) << row.name;
      result = call.results.front();
    }
    expect_same(bench.requests(), row.forward, std::string(row.name) + ", forward");
    ASSERT_TRUE(result.requires_grad()) << row.name;
    bench.start();
    bench.backward(result);
    expect_same(bench.requests(), row.backward, std::string(row.name) + ", backward");
  }
}

/// On autocast's list float32 whether the exponent is followed or not; the number becomes a scalar on the card
/// (native/Pow.cpp). SAM 2's positions ask for these.
TEST(OperatorRows, RaiseANumberInFloat32UnderAutocast) {
  TapeBench bench;
  std::vector<Tensor> values{bench.input({128}, DType::kBFloat16, false), bench.input({128}, DType::kBFloat16, false)};
  const Autocasting region(bench.tape.modes.autocast, DType::kBFloat16);
  for (const bool number : {true, false}) {
    std::vector<BoundArgument> slots{number ? n(10'000) : v(0), v(1)};
    bench.start();
    RecordedCall call(bench.tape, "pow", slots, values, {});
    find_operator("pow")->run(call);
    EXPECT_EQ(call.results.front().dtype(), kFloat);
    const Requests both = bench.requests();
    EXPECT_EQ(RequestSum(both).asked, number ? (Requests{8, 512, 512}) : (Requests{512, 512, 512}));
    EXPECT_EQ(RequestSum(both).left, 512);
  }
}

/// Scores of a sequence are seen as an image, and labels that are a slice copied for that (native/Loss.cpp).
TEST(OperatorRows, CopyLabelsOfASequenceThatAreASlice) {
  TapeBench bench;
  std::vector<Tensor> values{bench.input({2, 5, 4}), bench.strided_input({2, 4}, {5, 1}, kPlace, false)};
  const std::vector<BoundArgument> slots{v(0), v(1)};
  bench.start();
  RecordedCall call(bench.tape, "nll_loss", slots, values, {});
  find_operator("nll_loss")->run(call);
  EXPECT_EQ(RequestSum(bench.requests()).asked, (Requests{4, 4, 64}));
}

/// A function that nobody knows: complex numbers are differentiated, whole numbers not.
TEST(OperatorRows, GiveUnknownComplexNumbersAGradient) {
  for (const DType dtype : {DType::kComplex64, kPlace}) {
    TapeBench bench;
    std::vector<Tensor> values{bench.input({8, 16})};
    const std::vector<GivenResult> given{{{8, 9}, dtype}};
    const std::vector<BoundArgument> slots{v(0)};
    RecordedCall call(bench.tape, "stft", slots, values, {}, given);
    opaque_row(call);
    EXPECT_EQ(call.results.front().requires_grad(), dtype == DType::kComplex64);
  }
}

/// A file may say what PyTorch refuses to run.
TEST(OperatorRows, RefuseTransformsThatThereAreNot) {
  TapeBench bench;
  std::vector<Tensor> values{bench.input({4, 8, 8}), bench.input({64}), bench.input({4, 1}, DType::kComplex64)};
  const auto expect_refused = [&](const char* name, const std::vector<BoundArgument>& slots, const char* words) {
    const std::string said = error_text([&] {
      RecordedCall call(bench.tape, name, slots, values, {});
      find_operator(name)->run(call);
    });
    EXPECT_NE(said.find(words), std::string::npos) << name << ": " << said;
  };
  expect_refused("rfft", {v(0), none(), n(3)}, "a dimension that its input lacks");
  expect_refused("rfft2", {v(1)}, "a dimension that its input lacks");
  expect_refused("fft2", {v(0), none(), list({n(1), n(-2)})}, "a dimension twice");
  expect_refused("rfft2", {v(0), list({n(4)})}, "lengths of other dimensions");
  expect_refused("irfft", {v(2)}, "a length below 1");
  expect_refused("stft", {v(1), n(16), n(0)}, "a frame, a hop or a window of such a length");
  expect_refused("stft", {v(1), n(128), n(32), none(), none(), n(0)}, "a signal that is shorter than a frame");
}

TEST(OperatorRows, RefuseTablesWithSparseGradients) {
  TapeBench bench;
  std::vector<Tensor> values{bench.input({4}, kPlace, false), bench.input({16, 8})};
  const auto said = [&](const char* name, const std::vector<BoundArgument>& slots) {
    return error_text([&] {
      RecordedCall call(bench.tape, name, slots, values, {});
      find_operator(name)->run(call);
    });
  };
  EXPECT_NE(said("embedding", {v(0), v(1), none(), none(), n(2), none(), yes()}).find("sparse=False"),
            std::string::npos);
  EXPECT_EQ(said("embedding", {v(0), v(1)}), "");
  EXPECT_NE(said("embedding_bag", {v(0), v(1), none(), none(), none(), none(), none(), yes()}).find("sparse=False"),
            std::string::npos);
}

TEST(OperatorRows, NameTheirOwnOperators) {
  TapeBench bench;
  std::vector<Tensor> values{bench.input({4, 8})};
  const std::vector<BoundArgument> slots{v(0), n(1)};
  RecordedCall call(bench.tape, "amin", slots, values, {});
  bench.start();
  find_operator("amin")->run(call);
  EXPECT_NE(bench.events().find("amin"), std::string::npos) << bench.events();
}

/// As DETR's layers ask before they clamp what float16 cannot hold (native/TensorCompare.cpp).
TEST(OperatorRows, AskForNumbersByTheirMagnitude) {
  TapeBench bench;
  std::vector<Tensor> values{bench.input({8, 16}, kFloat, false), bench.input({8, 16}, kPlace, false)};
  const auto expect_requests = [&](const char* name, int place, const Requests& requests) {
    std::vector<BoundArgument> slots{v(place)};
    bench.start();
    RecordedCall call(bench.tape, name, slots, values, {});
    find_operator(name)->run(call);
    EXPECT_EQ(call.results.front().dtype(), DType::kBool);
    expect_same(bench.requests(), requests, name);
  };
  expect_requests("isfinite", 0, {512, 128, 128, 128, -128, -128, -512});
  expect_requests("isinf", 0, {512, 128, -512});
  expect_requests("isfinite", 1, {128});
}

TEST(OperatorRows, MakeTensorsOfOthers) {
  TapeBench bench;
  std::vector<Tensor> values{bench.input({8}, kPlace, false), bench.input({8, 16}, kFloat, false)};
  const auto run = [&](const char* name, const std::vector<BoundArgument>& slots,
                       const std::vector<GivenResult>& given = {}) {
    bench.start();
    RecordedCall call(bench.tape, name, slots, values, {}, given);
    find_operator(name)->run(call);
    return call.results.front();
  };
  const Tensor drawn = run("randint_like", {v(0), n(0), n(7)});
  EXPECT_EQ(bench.requests(), (Requests{64}));
  EXPECT_EQ(drawn.dtype(), kPlace);
  const Tensor changed = run("uniform_", {v(1)});
  EXPECT_TRUE(bench.requests().empty());
  const Tensor tiled = run("tile", {v(1), n(3)});
  EXPECT_EQ(tiled.shape(), (Shape{8, 48})) << "repeats of fewer dimensions are of the last ones";
  EXPECT_EQ(bench.requests(), (Requests{1536}));
  const Tensor array = run("as_tensor", {none()}, {{{5}, kPlace}});  // numpy's: it stays on the host
  EXPECT_TRUE(bench.requests().empty());
  EXPECT_TRUE(RecordedCall::on_host(array));
  const Tensor brought = run("as_tensor", {list({n(1), n(2)}), none(), text("cuda")});
  EXPECT_EQ(bench.requests(), (Requests{16}));
  EXPECT_EQ(brought.shape(), (Shape{2}));
}

// Eight numbers, of which three are distinct: they are sorted and counted in storages for all of them.
TEST(OperatorRows, FindTheDistinctValues) {
  TapeBench bench;
  std::vector<Tensor> values{bench.input({8}, kPlace, false)};
  const std::vector<BoundArgument> slots{v(0), none(), none(), {.kind = Kind::kBool, .integer = 1}, none()};
  const std::vector<GivenResult> given{{{3}, kPlace}, {{3}, kPlace}};
  RecordedCall call(bench.tape, "unique", slots, values, {}, given);
  bench.start();
  find_operator("unique")->run(call);
  EXPECT_EQ(bench.requests(), (Requests{64, 1, -1, 64, 8, 64, 1279, -1279, -8, -64}));
  ASSERT_EQ(call.results.size(), 2U);
  EXPECT_EQ(call.results.back().shape(), (Shape{3}));
}

// By torchvision's sources: boxes [100, 4] in the order of their scores, a mask of two words each; of 7 that are kept
// the places come from the host. RoIAlign keeps the boxes and makes zeros of its input's shape.
TEST(OperatorRows, DetectRegions) {
  TapeBench bench;
  std::vector<Tensor> values{bench.input({100, 4}, kFloat, false), bench.input({100}, kFloat, false),
                             bench.input({2, 4, 8, 8}), bench.input({3, 5}, kFloat, false)};
  const std::vector<BoundArgument> boxes{v(0), v(1), real(0.7)};
  const std::vector<GivenResult> given{{{7}, kPlace}};
  RecordedCall nms(bench.tape, "nms", boxes, values, {}, given);
  bench.start();
  find_operator("nms")->run(nms);
  EXPECT_EQ(nms.results.front().shape(), (Shape{7}));
  expect_same(bench.requests(), {400, 800, 1, -1, 1600, 1600, 56, 56, -56, -1600, -1600, -800, -400}, "nms");
  const std::vector<BoundArgument> regions{v(2), v(3), real(0.25), n(2), n(2), n(2), {.kind = Kind::kBool}};
  RecordedCall align(bench.tape, "roi_align", regions, values, {});
  bench.start();
  find_operator("roi_align")->run(align);
  EXPECT_EQ(align.results.front().shape(), (Shape{3, 4, 2, 2}));
  EXPECT_EQ(bench.requests(), (Requests{192}));
  EXPECT_TRUE(align.results.front().requires_grad());
}

// cuda/RNN.cu: the products of both, a workspace five times as wide as the state, the next state.
TEST(OperatorRows, AGruCellKeepsItsGates) {
  TapeBench bench;
  std::vector<Tensor> values{bench.input({10, 8}), bench.input({10, 4}, kFloat, false),
                             bench.input({12, 8}), bench.input({12, 4}),
                             bench.input({12}),    bench.input({12})};
  const std::vector<BoundArgument> slots{v(0), v(1), v(2), v(3), v(4), v(5)};
  RecordedCall call(bench.tape, "gru_cell", slots, values, {});
  bench.start();
  find_operator("gru_cell")->run(call);
  EXPECT_EQ(call.results.front().shape(), (Shape{10, 4}));
  const Requests requests = bench.requests();
  const Bytes gates = 10 * 12 * 4, workspace = 10 * 5 * 4 * 4, next = 10 * 4 * 4;
  std::vector<Bytes> large;
  for (const Bytes bytes : requests) {
    if (bytes == gates || bytes == workspace || bytes == next) large.push_back(bytes);
  }
  EXPECT_EQ(large, (std::vector<Bytes>{gates, gates, workspace, next}));
}

// torchvision's csrc/ops/cuda/deform_conv2d_kernel.cu: the result's zeros twice, the windows' columns, the sum with
// bias.
TEST(OperatorRows, ADeformableConvolutionMakesColumns) {
  TapeBench bench;
  std::vector<Tensor> values{bench.input({2, 4, 8, 8}), bench.input({6, 4, 3, 3}), bench.input({2, 18, 8, 8}),
                             bench.input({2, 1}, kFloat, false), bench.input({6})};
  const std::vector<BoundArgument> slots{v(0), v(1), v(2), v(3), v(4), n(1), n(1),
                                         n(1), n(1), n(1), n(1), n(1), n(1), {.kind = Kind::kBool}};
  RecordedCall call(bench.tape, "deform_conv2d", slots, values, {});
  bench.start();
  find_operator("deform_conv2d")->run(call);
  EXPECT_EQ(call.results.front().shape(), (Shape{2, 6, 8, 8}));
  const Bytes result = 2 * 6 * 64 * 4, columns = 4 * 9 * 2 * 64 * 4;
  std::vector<Bytes> made;
  for (const Bytes bytes : bench.requests()) {
    if (bytes == result || bytes == columns) made.push_back(bytes);
  }
  EXPECT_EQ(made, (std::vector<Bytes>{result, result, columns, result}));
}

TEST(OperatorRows, AreOpaqueWithArgumentsThatTheyDoNotModel) {
  TapeBench bench;
  std::vector<Tensor> values{bench.input({8, 4, 4})};
  const std::vector<BoundArgument> slots{text("bii->bi"), list({v(0)})};
  const std::vector<GivenResult> given{{{8, 4}, kFloat}};
  RecordedCall known(bench.tape, "einsum", slots, values, {}, given);
  bench.start();
  find_operator("einsum")->run(known);
  ASSERT_EQ(known.results.size(), 1U);
  EXPECT_EQ(known.results.front().shape(), (Shape{8, 4}));
  EXPECT_TRUE(known.results.front().requires_grad());
  EXPECT_EQ(bench.requests(), (Requests{8 * 4 * 4}));
  RecordedCall unknown(bench.tape, "einsum", slots, values, {});
  EXPECT_THROW(find_operator("einsum")->run(unknown), Error) << "recorded without the size of its result";
}

}  // namespace
}  // namespace memcalc
