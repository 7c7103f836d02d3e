// What factorisations request (ops/table_factorisations.cc, table_systems.cc, solver_workspace.cc): the requests of an
// H200, torch 2.11 (tests/measured/harness/operator_streams.py, seed 13021).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/solver_workspace.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;
using Requests = std::vector<Bytes>;

struct Factorisation {
  const char* name;
  std::vector<Shape> operands;
  std::size_t differentiated;  // which result
  Requests forward, backward;
};

/// What the node keeps dies behind its backward. Temporaries of one formula may die in another order: sizes, the most
/// that is held and what is left are compared.
struct Sum {
  Requests asked;
  Bytes most = 0, left = 0;

  explicit Sum(const Requests& requests) {
    for (const Bytes bytes : requests) {
      if (bytes > 0) asked.push_back(bytes);
      left += bytes;
      most = std::max(most, left);
    }
    std::sort(asked.begin(), asked.end());
  }
};

void expect_same(const Requests& mine, const Requests& torch, const std::string& what) {
  const Sum a(mine), b(torch);
  EXPECT_EQ(a.asked, b.asked) << what;
  EXPECT_EQ(a.most, b.most) << what;
  EXPECT_EQ(a.left, b.left) << what;
}

const std::vector<Factorisation>& factorisations() {
  static const std::vector<Factorisation> kAll{
      {"cholesky", {{28, 28}}, 0, {3136, 4, 160, -160, 1, 1, -1, -1, -4}, {3136,  3136,  -3136, 3136, 3136, 3136,
                                                                           -3136, -3136, -3136, 3136, 8,    8,
                                                                           -8,    -8,    -3136, 3136, 8,    8,
                                                                           -8,    -8,    -3136}},
      {"solve",
       {{33, 33}, {33, 5}},
       0,
       {660, 4356, 132, 4, 1280, -1280, 4, -4, 1, 1, -1, -1, -4},
       {660, 4, -4, 4356, 4356, -4356, -4356, -132}},
      {"inv",
       {{28, 28}},
       0,
       {3136, 4,  3136, 112,   768,  -768, 224,  224,  224,   3136, 8, 8,  -8, -8, 8,
        8,    -8, -8,   -3136, -224, -224, -224, -112, -3136, 1,    1, -1, -1, -4},
       {3136, 3136, 3136, -3136, -3136}},
      {"slogdet",
       {{40, 40}},
       1,
       {4, 4, 6400, 160, 4, 1280, -1280, 160, 40, 8, 320, -320, -40, -160, 160, 4, -4, -160, -8, 160, -160, -4},
       {6400, 6400, 320, 320, 320, 6400, 8, 8, -8, -8, 8, 8, -8, -8, -6400, -320, -320, -320, -6400, -6400, -160}},
      {"eigvalsh", {{28, 28}}, 0, {3136, 112, 4, 357804, -357804, 1, 1, -1, -1, -4}, {3136, 3136, -3136, -3136}},
      {"qr",
       {{28, 28}},
       0,
       {3136, 3136, 112, 4, 3145856, -3145856, -4, 4, 135296, -135296, -4, -112},
       {3136, 3136, -3136, 3136, 3136, 3136, -3136, -3136, -3136, 3136, -3136, 3136, 8, 8, -8, -8, -3136}},
      {"svdvals",
       {{12, 33}},
       0,
       {576, 1584, 48, 4, 1584, 3147648, -3147648, -1584, 1, 1, -1, -1, -4},
       {576, 1584, -576, -576, -1584}},
      // Seven matrices: a pointer to each, what is true of all is one number.
      {"slogdet",
       {{7, 40, 40}},
       1,
       {28,    28,   44800, 1120, 28, 56,  -56,   160, 280,  56,    2240,
        -2240, -280, -160,  1120, 28, -28, -1120, -56, 1120, -1120, -28},
       {44800, 44800, 320, 2240, -320,   320,   2240, 44800, 56,     56,     -56,  -56,
        56,    56,    -56, -56,  -44800, -2240, -320, -2240, -44800, -44800, -1120}},
  };
  return kAll;
}

TEST(Factorisations, RequestWhatTheCardWasAskedFor) {
  for (const Factorisation& each : factorisations()) {
    TapeBench bench;
    bench.warm_up();
    std::vector<Tensor> values;
    std::vector<BoundArgument> slots;
    for (const Shape& shape : each.operands) {
      slots.push_back({.kind = BoundArgument::Kind::kValue, .integer = static_cast<std::int64_t>(values.size())});
      values.push_back(bench.input(shape));
    }
    bench.start();
    std::vector<Tensor> results;
    {
      RecordedCall call(bench.tape, each.name, slots, values, {});
      find_operator(each.name)->run(call);
      results = call.results;
    }
    expect_same(bench.requests(), each.forward, std::string(each.name) + ", forward");
    bench.start();
    bench.backward(results.at(each.differentiated));
    expect_same(bench.requests(), each.backward, std::string(each.name) + ", backward");
  }
}

// tests/measured/harness/solver_workspaces.py: cusolverDn…_bufferSize on the same card.
TEST(Factorisations, AskCusolverForItsWorkspaces) {
  EXPECT_EQ(cusolver::lu_bytes(100), 2304);
  EXPECT_EQ(cusolver::cholesky_bytes(4096), 65664);
  EXPECT_EQ(cusolver::householder_bytes(1024), 6291584);
  EXPECT_EQ(cusolver::orthogonal_bytes(128, 100), 197760);
  EXPECT_EQ(cusolver::orthogonal_bytes(512, 128), 459776);
  EXPECT_EQ(cusolver::jacobi_bytes(512), 1124416);
  EXPECT_EQ(cusolver::divided_bytes(1024), 17429388);
  EXPECT_EQ(cusolver::stacked_bytes(24, 2), 685720);
  EXPECT_EQ(cusolver::singular_bytes(64, 100), 3171712);
}

}  // namespace
}  // namespace memcalc
