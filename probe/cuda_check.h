// Errors of CUDA and cuBLASLt as one exception, with the call that failed.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "input_error.h"

namespace memcalc::probe {

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

/// Chooses card 0 and makes its context. Throws InputError where there is none.
inline void use_first_card() {
  int cards = 0;
  const cudaError_t status = cudaGetDeviceCount(&cards);
  if (status != cudaSuccess || cards == 0) {
    throw InputError(std::string("no CUDA card: ") +
                     (status == cudaSuccess ? "none is visible" : cudaGetErrorString(status)));
  }
  check(cudaSetDevice(0), "cudaSetDevice(0)");
  check(cudaFree(nullptr), "cudaFree(nullptr)");
}

}  // namespace memcalc::probe

#define MEMCALC_CUDA(call) ::memcalc::probe::check((call), #call)
