#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels.h"

namespace memcalc::probe {

namespace {

constexpr int kThreads = 256;

__global__ void empty_kernel() {}

__global__ void stream_kernel(const uint4* from, uint4* to, std::size_t reads, std::size_t writes) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  uint4 sum = {0, 0, 0, 0};
  const std::size_t both = min(reads, writes);
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < max(reads, writes); i += stride) {
    if (i < reads) {
      const uint4 value = from[i];
      sum.x ^= value.x;
      sum.y += value.y;
      sum.z ^= value.z;
      sum.w += value.w;
    }
    if (i < writes) to[i] = sum;
  }
  if (both == 0 && reads > 0 && sum.x == 0x5eed1234U) to[0] = sum;  // keeps the reads
}

__global__ void random_kernel(std::uint16_t* to, std::size_t count) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    std::uint64_t h = i * 0x9e3779b97f4a7c15ULL;  // a mixer: neighbours share no bits
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9ULL;
    to[i] = static_cast<std::uint16_t>((h >> 40 & 0x80ff) | 0x3f00);  // sign, exponent near 0, 7 bits of mantissa
  }
}

template <typename T>
__global__ void strided_kernel(const T* from, T* to, std::size_t elements, unsigned columns, unsigned rows) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  const unsigned inner = static_cast<unsigned>(i % 64);
  const std::size_t rest = i / 64;
  const std::size_t row = rest % rows, column = rest / rows % columns;
  to[i] = from[min((row * columns + column) * 64 + inner, elements - 1)];
}

template <typename T>
__global__ void rowwise_kernel(const T* from, T* to, unsigned columns) {
  __shared__ float partial[kThreads];
  const T* row = from + std::size_t{blockIdx.x} * columns;
  float sum = 0;
  for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) sum += static_cast<float>(row[i]);
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  const float mean = partial[0] / static_cast<float>(columns);
  T* out = to + std::size_t{blockIdx.x} * columns;
  for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) out[i] = static_cast<T>(static_cast<float>(row[i]) - mean);
}

template <typename T>
__global__ void column_sum_kernel(const T* from, float* to, unsigned rows, unsigned columns, unsigned rows_each) {
  const unsigned column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  const unsigned begin = blockIdx.y * rows_each, end = min(begin + rows_each, rows);
  float sum = 0;
  for (unsigned row = begin; row < end; ++row) sum += static_cast<float>(from[std::size_t{row} * columns + column]);
  atomicAdd(to + column, sum);
}

unsigned blocks_for(std::size_t items) {
  constexpr std::size_t kMost = 132 * 16;
  return static_cast<unsigned>(std::clamp<std::size_t>((items + kThreads - 1) / kThreads, 1, kMost));
}

}  // namespace

void launch_fill_random(void* to, std::size_t bytes, cudaStream_t stream) {
  random_kernel<<<2048, kThreads, 0, stream>>>(static_cast<std::uint16_t*>(to), bytes / 2);
}

void launch_empty(cudaStream_t stream) { empty_kernel<<<1, 32, 0, stream>>>(); }

void launch_stream(const void* from, void* to, std::size_t read, std::size_t write, cudaStream_t stream) {
  const std::size_t reads = read / sizeof(uint4), writes = write / sizeof(uint4);
  stream_kernel<<<blocks_for(std::max(reads, writes)), kThreads, 0, stream>>>(static_cast<const uint4*>(from),
                                                                              static_cast<uint4*>(to), reads, writes);
}

void launch_strided(const void* from, void* to, std::size_t elements, int size, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((elements + kThreads - 1) / kThreads);
  if (blocks == 0) return;
  const unsigned columns = 32, rows = static_cast<unsigned>(std::max<std::size_t>(1, elements / 64 / columns));
  if (size == 2) {
    strided_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const std::uint16_t*>(from),
                                                    static_cast<std::uint16_t*>(to), elements, columns, rows);
  } else {
    strided_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const float*>(from), static_cast<float*>(to), elements,
                                                    columns, rows);
  }
}

void launch_rowwise(const void* from, void* to, std::size_t rows, std::size_t columns, int size, cudaStream_t stream) {
  if (rows == 0 || columns == 0) return;
  const auto blocks = static_cast<unsigned>(rows), width = static_cast<unsigned>(columns);
  if (size == 2) {
    rowwise_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(from),
                                                    static_cast<__nv_bfloat16*>(to), width);
  } else {
    rowwise_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const float*>(from), static_cast<float*>(to), width);
  }
}

void launch_column_sum(const void* from, void* to, std::size_t rows, std::size_t columns, int size,
                       cudaStream_t stream) {
  if (rows == 0 || columns == 0) return;
  const unsigned rows_each = 256;
  const dim3 grid(static_cast<unsigned>((columns + kThreads - 1) / kThreads),
                  static_cast<unsigned>((rows + rows_each - 1) / rows_each));
  const auto height = static_cast<unsigned>(rows), width = static_cast<unsigned>(columns);
  if (size == 2) {
    column_sum_kernel<<<grid, kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(from), static_cast<float*>(to),
                                                     height, width, rows_each);
  } else {
    column_sum_kernel<<<grid, kThreads, 0, stream>>>(static_cast<const float*>(from), static_cast<float*>(to), height,
                                                     width, rows_each);
  }
}

}  // namespace memcalc::probe
