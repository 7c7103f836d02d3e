// Errors of CUDA and cuBLASLt as one exception, with the call that failed.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace memcalc::probe {

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

}  // namespace memcalc::probe

#define MEMCALC_CUDA(call) ::memcalc::probe::check((call), #call)
