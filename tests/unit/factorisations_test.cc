// What factorisations request (ops/table_factorisations.cc, table_systems.cc, solver_workspace.cc): the requests of an
// H200, torch 2.11 (tests/measured/harness/operator_streams.py, seed 13021).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/json_reader.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/solver_workspace.h"
#include "support/paths.h"
#include "support/recorded_file.h"
#include "support/request_sum.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::expect_same;
using test::Requests;
using test::RequestSum;
using test::TapeBench;

struct Factorisation {
  const char* name;
  std::vector<Shape> operands;
  std::size_t differentiated;  // which result
  Requests forward, backward;
};

// What the node keeps dies behind its backward.
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

/// Runs a row of the table over operands of float32; `what` sees its results.
template <typename See>
void run_row(TapeBench& bench, const char* name, const std::vector<Shape>& operands, bool differentiated,
             const See& what, DType dtype = DType::kFloat32) {
  std::vector<Tensor> values;
  std::vector<BoundArgument> slots;
  for (const Shape& shape : operands) {
    slots.push_back({.kind = BoundArgument::Kind::kValue, .integer = static_cast<std::int64_t>(values.size())});
    values.push_back(bench.input(shape, dtype, differentiated));
  }
  if (std::string_view(name) == "svd") slots.push_back({.kind = BoundArgument::Kind::kBool});  // full_matrices
  bench.start();
  std::vector<Tensor> results;
  {
    RecordedCall call(bench.tape, name, slots, values, {});
    find_operator(name)->run(call);
    results = call.results;
  }
  what(results);
}

TEST(Factorisations, RequestWhatTheCardWasAskedFor) {
  for (const Factorisation& each : factorisations()) {
    TapeBench bench;
    bench.warm_up();
    run_row(bench, each.name, each.operands, true, [&](const std::vector<Tensor>& results) {
      expect_same(bench.requests(), each.forward, std::string(each.name) + ", forward");
      bench.start();
      bench.backward(results.at(each.differentiated));
      expect_same(bench.requests(), each.backward, std::string(each.name) + ", backward");
    });
  }
}

// tests/measured/linalg_streams_h200.jsonl.gz: what is modelled of it. `solve` has four right-hand sides, `svd`
// full_matrices=False.
TEST(Factorisations, RequestWhatTheCardWasAskedForAtEachSize) {
  // What the script called for each name: those that return whether they failed do not check it.
  const std::map<std::string, const char*> called{{"cholesky", "cholesky_ex"}, {"det", "det"},     {"eigh", "eigh"},
                                                  {"eigvalsh", "eigvalsh"},    {"inv", "inv_ex"},  {"qr", "qr"},
                                                  {"slogdet", "slogdet"},      {"solve", "solve"}, {"svd", "svd"},
                                                  {"svdvals", "svdvals"}};
  std::map<std::string, int> same, others;
  std::istringstream lines = measured::open_recorded(test::measured_dir() / "linalg_streams_h200.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const JsonDocument document = JsonDocument::parse(line, "linalg_streams_h200.jsonl");
    const std::string op = document.root().required_string("op");
    const auto row = called.find(op);
    if (row == called.end()) continue;
    const std::vector<std::int64_t> size = document.root().required_ints("size");
    Shape shape = size.size() == 2 ? Shape{size[0], size[1]} : Shape{size[0], size[1], size[2]};
    std::vector<Shape> operands{shape};
    shape[-1] = 4;
    if (op == "solve") operands.push_back(shape);
    TapeBench bench;
    bench.warm_up();
    run_row(bench, row->second, operands, false, [&](const std::vector<Tensor>&) {
      const RequestSum mine(bench.requests()), torch(document.root().required_ints("stream"));
      ++(mine == torch ? same : others)[op];
      EXPECT_NEAR(static_cast<double>(mine.most), static_cast<double>(torch.most),
                  0.01 * static_cast<double>(torch.most))
          << line;
    });
  }
  EXPECT_EQ(same, (std::map<std::string, int>{{"cholesky", 116},
                                              {"det", 116},
                                              {"eigh", 98},
                                              {"eigvalsh", 98},
                                              {"inv", 116},
                                              {"qr", 185},
                                              {"slogdet", 116},
                                              {"solve", 116},
                                              {"svd", 152},
                                              {"svdvals", 152}}));
  // Stacks of small matrices, and workspaces of singular values that are 128 bytes less there.
  EXPECT_EQ(others, (std::map<std::string, int>{{"eigh", 18}, {"eigvalsh", 18}, {"svd", 21}, {"svdvals", 21}}));
}

// Dgetrf, Xsyevd and XsyevBatched of float64; torch takes Jacobi's rotations (Ssyevj) of float32 alone.
TEST(Factorisations, OfFloat64AskForTheirOwnWorkspaces) {
  const auto asked = [](const char* name, const Shape& shape) {
    TapeBench bench;
    bench.warm_up();
    Bytes most = 0;
    run_row(
        bench, name, {shape}, false,
        [&](const std::vector<Tensor>&) {
          for (const Bytes bytes : bench.requests()) most = std::max(most, bytes);
        },
        DType::kFloat64);
    return most;
  };
  EXPECT_EQ(asked("eigvalsh", {96, 96}), 1335960);
  EXPECT_NEAR(static_cast<double>(asked("eigvalsh", {100, 100})), 1379416, 4000);
  EXPECT_EQ(asked("eigvalsh", {2, 24, 24}), 2 * 685720 - 128);
}

// cuda/linalg/BatchLinearAlgebra.cpp, lu_solve_kernel: a system of 33 to 64 rows is cuSOLVER's for up to 64 columns.
TEST(Factorisations, OfManyRightHandSidesAreTwoTriangularSystems) {
  const auto asks_for_order = [](std::int64_t columns) {
    TapeBench bench;
    bench.warm_up();
    bool found = false;
    run_row(bench, "solve", {{40, 40}, {40, columns}}, false, [&](const std::vector<Tensor>&) {
      for (const Bytes bytes : bench.requests()) found |= bytes == 320;  // numbers of 40 rows
    });
    return found;
  };
  EXPECT_FALSE(asks_for_order(64));
  EXPECT_TRUE(asks_for_order(65));
}

// tests/measured/solver_workspaces_h200.jsonl.gz: cusolverDn…_bufferSize of an H200, all sizes that were asked.
TEST(Factorisations, AskCusolverForItsWorkspaces) {
  std::istringstream lines = measured::open_recorded(test::measured_dir() / "solver_workspaces_h200.jsonl");
  int exact = 0, between = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto open = line.find('"') + 1, close = line.find('"', open);
    const std::string routine = line.substr(open, close - open);
    std::vector<std::int64_t> numbers;
    for (std::size_t at = close + 1; at < line.size() && line[at] == ',';) {
      char* end = nullptr;
      numbers.push_back(std::strtoll(line.c_str() + at + 1, &end, 10));
      at = static_cast<std::size_t>(end - line.c_str());
    }
    const DType dtype = routine.front() == 'D' ? DType::kFloat64 : DType::kFloat32;
    const std::string name = routine.substr(1);
    const std::int64_t n = numbers.front();
    std::int64_t mine = 0;
    if (name == "getrf") {
      mine = cusolver::lu_bytes(n, dtype);
    } else if (name == "Xpotrf") {
      mine = cusolver::cholesky_bytes(n);
    } else if (name == "Xsyevd") {  // not each of 33 to 511 rows is in the table
      mine = cusolver::divide_and_conquer_bytes(n, dtype);
      if (n > 32 && n < 512) {
        ++between;
        EXPECT_NEAR(static_cast<double>(mine), static_cast<double>(numbers.back()), 0.01 * static_cast<double>(mine));
        continue;
      }
    } else if (routine == "Ssyevj" && n >= 32 && n <= 512) {
      mine = cusolver::jacobi_bytes(n);
    } else {
      continue;
    }
    ++exact;
    EXPECT_EQ(mine, numbers.back()) << line;
  }
  EXPECT_EQ(exact, 1332);
  EXPECT_EQ(between, 560);
  EXPECT_EQ(cusolver::householder_bytes(1024), 6291584);
  EXPECT_EQ(cusolver::orthogonal_bytes(128, 100), 197760);
  EXPECT_EQ(cusolver::orthogonal_bytes(512, 128), 459776);
  EXPECT_EQ(cusolver::stacked_bytes(24, 2, DType::kFloat32), 685720);
  EXPECT_EQ(cusolver::singular_bytes(64, 100), 3171712);
}

}  // namespace
}  // namespace memcalc
