// MIRRORS(torch, "cuda/linalg/BatchLinearAlgebraLib.cpp", "2.11.0")
#include "memcalc/symbolic/ops/solver_workspace.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>

namespace memcalc::cusolver {

namespace {

/// What CUDA 13's cuSOLVER answers on an H200 of these sizes; between them the line is taken
/// (tests/measured/solver_workspaces_h200.jsonl.gz).
struct Answer {
  std::int64_t size = 0, bytes = 0;
};

/// cusolverDnSgetrf_bufferSize and Dgetrf's, of more than 1,024 rows.
constexpr auto kLu = std::to_array<Answer>({
    {1025, 13088},
    {1152, 14656},
    {1280, 16896},
    {1500, 21152},
    {1536, 21760},
    {1792, 50432},
    {2000, 52224},
    {2048, 52480},
    {2304, 57600},
    {2560, 59648},
    {3000, 63232},
    {3072, 63744},
    {4000, 94784},
    {4096, 98560},
    {6000, 189760},
    {8192, 327936},
});
constexpr auto kDoubleLu = std::to_array<Answer>({
    {1025, 13088},
    {1152, 14656},
    {1280, 16896},
    {1500, 21152},
    {1536, 21760},
    {1792, 84224},
    {2000, 86016},
    {2048, 86272},
    {2304, 92416},
    {2560, 94464},
    {3000, 98048},
    {3072, 98560},
    {4000, 105984},
    {4096, 106752},
    {6000, 189760},
    {8192, 327936},
});

/// cusolverDnXsyevd_bufferSize of float32; of 32 to 512 torch takes Jacobi's rotations there.
constexpr auto kDivideAndConquer = std::to_array<Answer>({
    {1, 265496},       {2, 268716},        {3, 271816},       {4, 274924},       {5, 278168},       {6, 281292},
    {7, 284552},       {8, 287820},        {9, 291096},       {10, 294380},      {11, 297672},      {12, 300972},
    {13, 304408},      {14, 307724},       {15, 311176},      {16, 314636},      {17, 318104},      {18, 321580},
    {19, 325064},      {20, 328684},       {21, 332184},      {22, 335820},      {23, 339336},      {24, 342988},
    {25, 346648},      {26, 350316},       {27, 354120},      {28, 357804},      {29, 361496},      {30, 365324},
    {31, 369160},      {32, 373004},       {40, 404684},      {48, 437644},      {56, 472140},      {64, 508300},
    {80, 585100},      {96, 668044},       {112, 757132},     {128, 852364},     {160, 1061260},    {192, 1294732},
    {224, 1552780},    {256, 1835404},     {288, 2142604},    {320, 2474380},    {352, 2830732},    {384, 3211660},
    {400, 3411340},    {448, 4047244},     {480, 4501900},    {512, 4981132},    {513, 4996504},    {520, 5104844},
    {544, 5484940},    {576, 6013324},     {600, 6425676},    {640, 7143820},    {700, 8327596},    {768, 9959308},
    {800, 10778380},   {896, 13432204},    {1000, 16640076},  {1024, 17429388},  {1025, 17462680},  {1152, 21950860},
    {1280, 26996620},  {1500, 36893996},   {1536, 38661004},  {1792, 52422540},  {2000, 65148044},  {2048, 68281228},
    {2304, 86237068},  {2560, 106290060},  {3000, 145656012}, {3072, 152687500}, {4000, 258163980}, {4096, 270648204},
    {6000, 579180044}, {8192, 1078035340},
});

/// cusolverDnXsyevBatched_bufferSize: what each matrix of a stack adds, of 1 by 1 to 32 by 32, within 64 bytes.
constexpr auto kStacked = std::to_array<std::int64_t>({
    265240, 268332, 271432, 274668, 277784, 281036, 284168, 287436, 290712, 293996, 297416,
    300716, 304024, 307468, 310920, 314380, 317720, 321324, 324808, 328300, 331928, 335436,
    339080, 342732, 346392, 350060, 353736, 357420, 361240, 364940, 368776, 372620,
});

std::int64_t up_to(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// On the line between two of the answers, and beyond the last as n squared.
std::int64_t between(std::span<const Answer> known, std::int64_t n) {
  const auto next = std::find_if(known.begin(), known.end(), [&](const Answer& each) { return each.size >= n; });
  if (next == known.end()) return known.back().bytes / known.back().size * n / known.back().size * n;
  if (next->size == n || next == known.begin()) return next->bytes;
  const Answer &low = *(next - 1), &high = *next;
  return low.bytes + (high.bytes - low.bytes) * (n - low.size) / (high.size - low.size);
}

}  // namespace

std::int64_t lu_bytes(std::int64_t n, DType dtype) {
  if (n > 1024) return dtype == DType::kFloat64 ? between(kDoubleLu, n) : between(kLu, n);
  const std::int64_t tiles = (n + 31) / 32;
  const auto block = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(tiles)));
  return 256 * (tiles + 1 + std::min<std::int64_t>(block, 16));
}

std::int64_t cholesky_bytes(std::int64_t n) {
  const std::int64_t tiles = (n + 31) / 32;
  return 128 + up_to(4 * tiles * tiles, 32);
}

std::int64_t householder_bytes(std::int64_t n) { return (2 << 20) + 128 + 4096 * std::max<std::int64_t>(n, 256); }

std::int64_t orthogonal_bytes(std::int64_t m, std::int64_t k) {
  const std::int64_t block = std::min<std::int64_t>(k, 128);
  return (128 << 10) + up_to(1024 + 4 * (m * block + std::max<std::int64_t>(0, 2 * k * block - 128 * 128)), 128);
}

std::int64_t jacobi_bytes(std::int64_t n) {
  const std::int64_t more = (n + 31) / 32 - 1;  // blocks of columns beyond the first
  return 8212 + 4148 * more + 16 * more * (more - 1) + 4 * n * (n + 1);
}

std::int64_t divide_and_conquer_bytes(std::int64_t n, DType dtype) {
  const std::int64_t single = between(kDivideAndConquer, n);
  return dtype == DType::kFloat64 ? 2 * single - 128 : single;
}

std::int64_t stacked_bytes(std::int64_t n, std::int64_t count, DType dtype) {
  const std::int64_t further = kStacked[static_cast<std::size_t>(n - 1)] * size_of(dtype) / size_of(DType::kFloat32);
  return divide_and_conquer_bytes(n, dtype) + (count - 1) * further;
}

std::int64_t singular_bytes(std::int64_t m, std::int64_t n) {
  const std::int64_t least = std::min(m, n), padded = up_to(least, 32);
  const std::int64_t square = up_to(jacobi_bytes(least) + 4 * least * (least - 1) + 132 * padded, 128);
  if (m == n) return square;
  const std::int64_t reduced = householder_bytes(least) + up_to(4 * least, 128) + (m < n ? up_to(4 * m * n, 128) : 0);
  return std::max(square, reduced);
}

}  // namespace memcalc::cusolver
