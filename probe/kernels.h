// Kernels that stand for PyTorch's memory-bound ones: what they read, write and compute is given in bytes and elements.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace memcalc::probe {

/// Random floating-point numbers of size 0.5 to 2, in 16 and in 32 bits alike: zeros would need less power, and a card
/// at its power limit would run faster than it does with data.
void launch_fill_random(void* to, std::size_t bytes, cudaStream_t stream);

/// Nothing.
void launch_empty(cudaStream_t stream);

/// Reads `read` bytes from `from` and writes `write` bytes to `to`, 16 bytes a thread and turn.
void launch_stream(const void* from, void* to, std::size_t read, std::size_t write, cudaStream_t stream);

/// Writes a permuted copy: `elements` of `size` bytes, an index calculation for each.
void launch_strided(const void* from, void* to, std::size_t elements, int size, cudaStream_t stream);

/// A block a row: reads `rows` of `columns` elements of `size` bytes twice, writes them once.
void launch_rowwise(const void* from, void* to, std::size_t rows, std::size_t columns, int size, cudaStream_t stream);

/// Sums `rows` of `columns` elements down the columns.
void launch_column_sum(const void* from, void* to, std::size_t rows, std::size_t columns, int size,
                       cudaStream_t stream);

}  // namespace memcalc::probe
