// cuDNN's own choice for convolutions, without running them: the bytes that its first plan requests, as PyTorch asks
// for it with torch.backends.cudnn.benchmark = False (native/cudnn/Conv_v8.cpp of 2.11: the configurations of
// CUDNN_HEUR_MODE_INSTANT in their order, without those that convert inputs down, in float32 without TF32 without
// those of tensor cores; then the fallback list). Some 1,000 a second and process on an H200's host.
//
// g++ -O2 -std=c++17 convolution_plans.cc -o convolution_plans -I$CUDNN/include -I$CUDA/include -L$CUDNN/lib
// -l:libcudnn.so.9 usage: convolution_plans PROCESSES OUT SECONDS < SHAPES     on a card
//        convolution_plans --describe DEVICE.json             on a card: what the next form is given
//        convolution_plans --device DEVICE.json < SHAPES      without one: plans of no engine that needs cuBLASLt, and
//                                                              sums that are split on a card stay whole
// A line of SHAPES: layout (nchw, nhwc), mode (bf16, fp16, fp32, tf32), dimensions of an image (2 or 3), batch,
// channels, extents, output channels, groups, window, strides, padding, dilation (a number for each dimension).
// Writes it with the bytes of forward, input's and weight's gradient (-1: none), and the numbers of the engines.
#include <cudnn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Numbers = std::vector<std::int64_t>;
using Clock = std::chrono::steady_clock;

struct Failure {
  cudnnStatus_t status;
};

void check(cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) throw Failure{status};
}

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) { check(cudnnBackendCreateDescriptor(type, &raw_)); }
  Descriptor(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : raw_{other.raw_} { other.raw_ = nullptr; }
  ~Descriptor() {
    if (raw_ != nullptr) cudnnBackendDestroyDescriptor(raw_);
  }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* value) {
    check(cudnnBackendSetAttribute(raw_, name, type, count, value));
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.raw_);
  }
  void set(cudnnBackendAttributeName_t name, const Numbers& values) {
    set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t most, void* into) {
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(raw_, name, type, most, &count, into));
    return count;
  }
  void finish() { check(cudnnBackendFinalize(raw_)); }
  [[nodiscard]] cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

cudnnHandle_t handle = nullptr;
Descriptor* properties = nullptr;  // of a card that is not here

struct Convolution {
  std::string layout, mode;
  Numbers image, weight, result, window, stride, padding, dilation;
};

/// As fixSizeOneDimStride leaves them.
Numbers strides_of(const Numbers& sizes, bool channels_last) {
  const int rank = static_cast<int>(sizes.size());
  std::vector<int> order;  // from the innermost
  if (channels_last) order.push_back(1);
  for (int i = rank - 1; i >= (channels_last ? 2 : 0); --i) order.push_back(i);
  if (channels_last) order.push_back(0);
  Numbers strides(sizes.size());
  std::int64_t next = 1;
  for (const int i : order) {
    strides[static_cast<std::size_t>(i)] = next;
    next *= sizes[static_cast<std::size_t>(i)];
  }
  return strides;
}

Descriptor tensor(std::int64_t name, const Numbers& sizes, const Convolution& of) {
  const cudnnDataType_t type = of.mode == "bf16"   ? CUDNN_DATA_BFLOAT16
                               : of.mode == "fp16" ? CUDNN_DATA_HALF
                                                   : CUDNN_DATA_FLOAT;
  const std::int64_t alignment = 32;
  Descriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes);
  made.set(CUDNN_ATTR_TENSOR_STRIDES, strides_of(sizes, of.layout == "nhwc"));
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  made.finish();
  return made;
}

struct Names {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t image, weight, result, convolution, alpha, beta;
};

constexpr Names kPasses[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

struct Plan {
  std::int64_t bytes = -1, engine = -1;
  std::string knobs;  // TYPE=VALUE of the engine's settings
};

/// True where PyTorch passes the engine over.
bool is_filtered(Descriptor& engine, const std::string& mode) {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  const std::int64_t count =
      engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
  return std::any_of(notes, notes + count, [&](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
           (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && mode == "fp32");
  });
}

std::string knobs_of(Descriptor& configuration) {
  constexpr std::int64_t kMost = 64;
  std::vector<Descriptor> choices;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < kMost; ++i) {
    choices.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    raw.push_back(choices.back().raw());
  }
  const std::int64_t count =
      configuration.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, kMost, raw.data());
  std::string found;
  for (std::int64_t i = 0; i < count; ++i) {
    cudnnBackendKnobType_t type{};
    std::int64_t value = 0;
    Descriptor& choice = choices[static_cast<std::size_t>(i)];
    choice.get(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    choice.get(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
    if (!found.empty()) found += ',';
    found += std::to_string(static_cast<int>(type)) + '=' + std::to_string(value);
  }
  return found.empty() ? "-" : found;
}

Plan first_of(const Descriptor& graph, cudnnBackendHeurMode_t heuristics, const std::string& mode) {
  Descriptor list(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  list.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  list.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &heuristics);
  if (properties != nullptr) list.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *properties);
  list.finish();
  const std::int64_t count = list.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<Descriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(configurations.back().raw());
  }
  if (count > 0) list.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, raw.data());
  for (Descriptor& configuration : configurations) {
    Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t into = engine.raw();
    configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &into);
    if (is_filtered(engine, mode)) continue;
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (properties != nullptr) {
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *properties);
    } else {
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    }
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (cudnnBackendFinalize(plan.raw()) != CUDNN_STATUS_SUCCESS) continue;
    Plan found;
    plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &found.bytes);
    engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &found.engine);
    found.knobs = knobs_of(configuration);
    return found;
  }
  return {};
}

Plan plan_of(const Names& names, const Convolution& of) {
  const Descriptor image = tensor('x', of.image, of), weight = tensor('w', of.weight, of),
                   result = tensor('y', of.result, of);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const auto dimensions = static_cast<std::int64_t>(of.stride.size());
  Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions);
  convolution.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, of.padding);
  convolution.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, of.padding);
  convolution.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, of.dilation);
  convolution.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, of.stride);
  convolution.finish();
  const float alpha = 1, beta = 0;
  Descriptor operation(names.type);
  operation.set(names.image, image);
  operation.set(names.weight, weight);
  operation.set(names.result, result);
  operation.set(names.convolution, convolution);
  operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
  operation.set(names.beta, CUDNN_TYPE_FLOAT, 1, &beta);
  operation.finish();
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.finish();
  const Plan plan = first_of(graph, CUDNN_HEUR_MODE_INSTANT, of.mode);
  return plan.bytes >= 0 ? plan : first_of(graph, CUDNN_HEUR_MODE_FALLBACK, of.mode);
}

Convolution read(const std::string& line) {
  Convolution made;
  std::istringstream in(line);
  std::size_t rank = 0;
  std::int64_t batch = 0, channels = 0, out_channels = 0, groups = 1;
  in >> made.layout >> made.mode >> rank >> batch >> channels;
  const auto numbers = [&] {
    Numbers values(rank);
    for (std::int64_t& value : values) in >> value;
    return values;
  };
  const Numbers extents = numbers();
  in >> out_channels >> groups;
  made.window = numbers();
  made.stride = numbers();
  made.padding = numbers();
  made.dilation = numbers();
  made.image = {batch, channels};
  made.weight = {out_channels, channels / groups};
  made.result = {batch, out_channels};
  for (std::size_t i = 0; i < rank; ++i) {
    made.image.push_back(extents[i]);
    made.weight.push_back(made.window[i]);
    made.result.push_back(
        (extents[i] + 2 * made.padding[i] - made.dilation[i] * (made.window[i] - 1) - 1) / made.stride[i] + 1);
  }
  return made;
}

void answer(const std::string& line, std::ostream& out) {
  const Convolution of = read(line);
  Plan plans[3];
  for (int i = 0; i < 3; ++i) {
    try {
      plans[i] = plan_of(kPasses[i], of);
    } catch (const Failure&) {
      plans[i] = {};
    }
  }
  if (std::getenv("PLANS_ALONE") == nullptr) out << line;
  for (const Plan& plan : plans) out << ' ' << plan.bytes;
  for (const Plan& plan : plans) out << ' ' << plan.engine;
  for (const Plan& plan : plans) out << ' ' << (plan.knobs.empty() ? "-" : plan.knobs);
  out << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (std::string(argv[1]) == "--describe") {
    check(cudnnCreate(&handle));
    Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device.set(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    device.finish();
    std::string json(1 << 20, '\0');
    json.resize(static_cast<std::size_t>(device.get(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                                    static_cast<std::int64_t>(json.size()), json.data())));
    std::ofstream(argv[2]) << json;
    return 0;
  }
  if (std::string(argv[1]) == "--device") {
    std::ifstream file(argv[2]);
    std::string json{std::istreambuf_iterator<char>(file), {}};
    Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(json.size()),
               json.data());
    device.finish();
    properties = &device;
    for (std::string line; std::getline(std::cin, line);) answer(line, std::cout);
    return 0;
  }
  const std::size_t processes = static_cast<std::size_t>(std::atoi(argv[1]));
  const double seconds = argc > 3 ? std::atof(argv[3]) : 1e9;
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
  const auto began = Clock::now();
  for (std::size_t process = 0; process < processes; ++process) {
    if (fork() != 0) continue;
    check(cudnnCreate(&handle));
    std::ofstream out(std::string(argv[2]) + "." + std::to_string(process));
    std::size_t done = 0;
    for (std::size_t i = process; i < lines.size(); i += processes, ++done) {
      if (std::chrono::duration<double>(Clock::now() - began).count() > seconds) break;
      answer(lines[i], out);
    }
    out.flush();
    std::fprintf(stderr, "%zu: %zu lines in %.1f s\n", process, done,
                 std::chrono::duration<double>(Clock::now() - began).count());
    std::_Exit(0);
  }
  while (wait(nullptr) > 0) continue;
  return 0;
}
