// Rows of an operator sweep, one JSON object a line, as the kernels that the timed operator runs. The row's kind and op
// say which; what PyTorch launches for it is the same as in symbolic/ops.
#include <array>
#include <optional>
#include <string_view>

#include "memcalc/base/bytes.h"
#include "memcalc/cost/calibrate.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/names.h"
#include "memcalc/symbolic/aten.h"

namespace memcalc {

namespace {

// Shorter ones were issued more slowly than they ran: these loops were not recorded as graphs.
constexpr double kLeastSecondsOfBackward = 1.5e-3;
constexpr double kLeastSecondsOfConvolution = 60e-6;
constexpr double kLeastSeconds = 1e-9;  // less is no time that a clock tells

double seconds_of(const JsonObject& json, std::string_view key) { return json.required_double(key, {0, 1e9}) * 1e-3; }

struct Row {
  const JsonObject& json;
  DType dtype = DType::kFloat32;
  bool tf32 = false;

  [[nodiscard]] std::int64_t count(std::string_view key) const {
    return json.required_int(key, {1, std::int64_t{1} << 40U});
  }
  /// A size of a tensor that is multiplied by others.
  [[nodiscard]] std::int64_t size(std::string_view key) const { return json.required_int(key, {1, 1 << 30}); }
  [[nodiscard]] double real(std::string_view key) const { return static_cast<double>(count(key)); }
  [[nodiscard]] double itemsize() const { return static_cast<double>(size_of(dtype)); }
};

Kernel kernel_of(const Row& row, KernelKind kind, double elements, double bytes) {
  Kernel kernel;
  kernel.kind = kind;
  kernel.dtype = row.dtype;
  kernel.elements = elements;
  kernel.bytes = bytes;
  return kernel;
}

Kernel product(const Row& row, std::int64_t m, std::int64_t n, std::int64_t k, Transposed transposed) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  Kernel kernel = kernel_of(row, KernelKind::kMatrixProduct, 0,
                            row.itemsize() * (real(m) * real(k) + real(k) * real(n) + real(m) * real(n)));
  kernel.work = work::Product{.batch = 1, .m = m, .n = n, .k = k, .transposed = transposed, .tf32 = row.tf32};
  kernel.flops = 2 * real(m) * real(n) * real(k);
  return kernel;
}

std::vector<Kernel> products(const Row& row) {
  const std::string layout = row.json.required_string("layout");
  const std::int64_t m = row.size("M"), n = row.size("N"), k = row.size("K");
  if (layout == "fwd") return {product(row, m, n, k, Transposed::kSecond)};
  if (layout == "dgrad") return {product(row, m, k, n, Transposed::kNone)};
  return {product(row, n, k, m, Transposed::kFirst)};
}

std::vector<Kernel> elementwise(const Row& row) {
  const std::string op = row.json.required_string("op");
  const double n = row.real("n"), item = row.itemsize();
  if (op == "dropout") return {kernel_of(row, KernelKind::kRandom, n, n * (2 * item + 1))};
  if (op == "cast") {
    // To bfloat16 from float32, or back.
    const KernelKind kind = item == 4 ? KernelKind::kVectorized : KernelKind::kConverting;
    return {kernel_of(row, kind, n, n * 6)};
  }
  const double tensors = op == "fill" ? 1 : op == "add" || op == "mul" || op == "axpy_" ? 3 : 2;
  return {kernel_of(row, KernelKind::kVectorized, n, n * item * tensors)};
}

Kernel rows_kernel(const Row& row, KernelKind kind, double tensors) {
  const double elements = row.real("rows") * row.real("h");
  return kernel_of(row, kind, elements, elements * row.itemsize() * tensors);
}

Kernel softmax(const Row& row, bool backward) {
  Kernel kernel = rows_kernel(row, KernelKind::kRowwise, backward ? 3 : 2);
  kernel.work = work::Rows{.count = row.count("rows"), .width = row.count("h"), .softmax = true, .backward = backward};
  return kernel;
}

std::vector<Kernel> rowwise(const Row& row) {
  const std::string op = row.json.required_string("op");
  if (op == "layernorm_fwd") return {rows_kernel(row, KernelKind::kRowwise, 2)};
  if (op == "log_softmax_fwd" || op == "softmax_fwd") return {softmax(row, false)};
  if (op == "log_softmax_bwd") return {softmax(row, true)};
  if (op == "softmax_bwd") return {rows_kernel(row, KernelKind::kVectorized, 3), softmax(row, true)};
  if (op == "layernorm_bwd") {
    return {rows_kernel(row, KernelKind::kRowwise, 3), rows_kernel(row, KernelKind::kColumnSum, 2)};
  }
  return {};  // nll_loss: a reduction over one row
}

std::vector<Kernel> sums(const Row& row) {
  if (row.json.required_string("op") != "column_sum") return {rows_kernel(row, KernelKind::kRowSum, 1)};
  Kernel kernel = rows_kernel(row, KernelKind::kColumnSum, 1);
  kernel.op = &aten::kSum;
  kernel.bytes += row.real("h") * row.itemsize();
  return {kernel};
}

std::vector<Kernel> embedding(const Row& row) {
  if (row.json.required_string("op") == "fwd") {
    const double elements = row.real("rows") * row.real("h");
    return {kernel_of(row, KernelKind::kIndexed, elements, 2 * elements * row.itemsize())};
  }
  Kernel kernel = kernel_of(row, KernelKind::kEmbeddingBackward, 0, 0);
  kernel.work =
      work::EmbeddingGradient{.indices = row.count("rows"), .width = row.count("h"), .table_rows = row.count("v")};
  return {kernel};
}

Kernel attention_kernel(const Row& row, bool backward) {
  const std::string backend = row.json.required_string("backend");
  const KernelKind kind = backend == "cudnn"   ? KernelKind::kCudnnAttention
                          : backend == "flash" ? KernelKind::kFlashAttention
                                               : KernelKind::kEfficientAttention;
  Kernel kernel = kernel_of(row, kind, 0, 0);
  const std::int64_t heads = checked_multiply(row.size("B"), row.size("H")), length = row.size("S");
  kernel.work = work::Attention{.heads = heads,
                                .queries = length,
                                .keys = length,
                                .width = row.size("D"),
                                .causal = row.json.required_bool("causal"),
                                .dropout = row.json.optional_bool("dropout").value_or(false),
                                .bias = row.json.optional_bool("bias").value_or(false),
                                .backward = backward};
  return kernel;
}

std::vector<Kernel> convolutions(const Row& row, bool backward) {
  const std::int64_t stride = row.size("s"), size = row.size("hw"), window = row.size("k");
  const std::int64_t out = (size + 2 * (window / 2) - window) / stride + 1;
  const std::int64_t windows = checked_multiply(row.size("B"), checked_multiply(out, out));
  const std::int64_t depth = checked_multiply(row.size("ci"), checked_multiply(window, window));
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double batch = row.real("B"), in_channels = row.real("ci"), out_channels = row.real("co");
  const double pixels = real(windows);
  const double bytes = row.itemsize() * (batch * in_channels * real(size) * real(size) + out_channels * pixels +
                                         out_channels * real(depth));
  Kernel kernel = kernel_of(row, KernelKind::kConvolution, 0, bytes);
  work::Convolution convolution{.groups = 1,
                                .pixels = windows,
                                .channels = row.size("co"),
                                .depth = depth,
                                .group_channels = in_channels,
                                .tf32 = row.tf32};
  kernel.work = convolution;
  kernel.flops = 2 * pixels * out_channels * real(depth);
  if (!backward) return {kernel};
  Kernel gradient = kernel;
  convolution.backward = true;
  gradient.work = convolution;
  return {kernel, gradient, gradient};
}

// Passes over each parameter's tensors: train/optimizers says the same of each rule.
std::vector<Kernel> optimizer(const Row& row) {
  const std::string op = row.json.required_string("op");
  const double passes = op == "adamw-foreach" ? 18 : op == "adamw-fused" ? 7 : op == "sgd-foreach" ? 3 : 7;
  const double n = row.real("n");
  if (row.count("tensors") > 64) return {};  // in part bound by the host
  return {kernel_of(row, KernelKind::kMultiTensor, n, n * row.itemsize() * passes)};
}

std::vector<Kernel> image(const Row& row) {
  const double n = row.real("n");
  return {kernel_of(row, KernelKind::kImage, n, n * row.itemsize() * row.real("tensors"))};
}

std::vector<Kernel> strided(const Row& row) {
  const double n = row.real("n");
  return {kernel_of(row, KernelKind::kStrided, n, 2 * n * row.itemsize())};
}

std::optional<Row> row_of(const JsonObject& json) {
  constexpr std::array<std::string_view, 4> kTypes = {"bf16", "fp16", "fp32", "tf32"};
  const std::optional<std::string> name = json.optional_choice("dtype", kTypes);
  if (!name || json.has("error")) return std::nullopt;
  Row row{.json = json};
  if (*name == "bf16") row.dtype = DType::kBFloat16;
  if (*name == "fp16") row.dtype = DType::kFloat16;
  row.tf32 = *name == "tf32";
  return row;
}

void append(std::vector<OperatorTiming>& timings, const Row& row, const std::string& kind) {
  const std::string dtype = row.json.required_string("dtype");
  const auto add = [&](const std::string& name, std::vector<Kernel> kernels, const char* key) {
    const double seconds = seconds_of(row.json, key);
    if (!kernels.empty() && seconds >= kLeastSeconds)
      timings.push_back({name + " " + dtype, std::move(kernels), seconds});
  };
  if (kind == "gemm") return add("product " + row.json.required_string("layout"), products(row), "ms");
  if (kind == "eltwise") return add(row.json.required_string("op"), elementwise(row), "ms");
  if (kind == "norm" || kind == "softmax") return add(row.json.required_string("op"), rowwise(row), "ms");
  if (kind == "reduce") return add(row.json.required_string("op"), sums(row), "ms");
  if (kind == "embedding") return add("embedding " + row.json.required_string("op"), embedding(row), "ms");
  if (kind == "optimizer") return add("optimizer " + row.json.required_string("op"), optimizer(row), "ms");
  if (kind == "image") return add(row.json.required_string("op"), image(row), "ms");
  if (kind == "strided") return add("strided " + row.json.required_string("op"), strided(row), "ms");
  if (kind == "attention") {
    const bool backward = row.json.required_bool("backward");
    const std::string name = row.json.required_string("backend") + (backward ? " backward" : " forward");
    return add(name, {attention_kernel(row, backward)}, "ms");
  }
  if (kind == "sdpa" && row.json.required_string("backend") != "math") {
    add(row.json.required_string("backend") + " forward", {attention_kernel(row, false)}, "fwd_ms");
    const double both = seconds_of(row.json, "fwdbwd_ms");
    if (both < kLeastSecondsOfBackward) return;
    add(row.json.required_string("backend") + " both", {attention_kernel(row, false), attention_kernel(row, true)},
        "fwdbwd_ms");
  }
  if (kind == "conv" && row.json.has("backward")) {  // of a profile: one direction
    std::vector<Kernel> kernels = convolutions(row, true);
    if (!row.json.required_bool("backward")) return add("convolution forward", {kernels.front()}, "ms");
    kernels.erase(kernels.begin());
    kernels.resize(static_cast<std::size_t>(row.json.required_int("gradients", {1, 2})));
    return add("convolution backward", std::move(kernels), "ms");
  }
  if (kind == "conv") {
    if (seconds_of(row.json, "fwd_ms") < kLeastSecondsOfConvolution) return;
    add("convolution forward", convolutions(row, false), "fwd_ms");
    if (seconds_of(row.json, "fwdbwd_ms") < kLeastSecondsOfBackward / 2) return;
    add("convolution both", convolutions(row, true), "fwdbwd_ms");
  }
}

// Small ones were issued more slowly than they ran.
constexpr std::int64_t kLeastCollectiveBytes = 4 << 20;

void append_collective(std::vector<OperatorTiming>& timings, const JsonObject& json) {
  const std::string op = json.required_string("op");
  Kernel kernel;
  const Collective kind = op == "all_reduce"       ? Collective::kAllReduce
                          : op == "all_gather"     ? Collective::kAllGather
                          : op == "reduce_scatter" ? Collective::kReduceScatter
                          : op == "all_to_all"     ? Collective::kAllToAll
                                                   : Collective::kSend;
  const std::int64_t bytes = json.required_int("bytes", {0, std::int64_t{1} << 50U});
  if (bytes < kLeastCollectiveBytes) return;
  kernel.work = work::Communication{
      .kind = kind, .bytes = static_cast<double>(bytes), .ranks = json.required_int("world", {1, 1'000'000})};
  const double seconds = seconds_of(json, "ms");
  if (seconds >= kLeastSeconds) timings.push_back({op, {kernel}, seconds});
}

}  // namespace

std::vector<OperatorTiming> read_operator_timings(const std::string& text, const std::string& name) {
  std::vector<OperatorTiming> timings;
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view each = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (each.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const JsonDocument document = JsonDocument::parse(each, name + ":" + std::to_string(line));
    const JsonObject json = document.root();
    if (json.has("world") && json.has("op")) append_collective(timings, json);
    if (const std::optional<Row> row = row_of(json)) append(timings, *row, json.required_string("kind"));
  }
  if (timings.empty()) {
    throw Error(ErrorCode::kInput,
                one_line(name, 4096) + ": found no timings of operators; accepted: lines that memcalc-probe writes");
  }
  return timings;
}

}  // namespace memcalc
