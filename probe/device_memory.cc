#include "device_memory.h"

#include <dlfcn.h>

namespace memcalc::probe {

namespace {

// nvml.h, as far as it is called here; the library's interface is stable.
struct NvmlMemory {
  unsigned long long total, free, used;
};
using Initialize = int (*)();
using HandleByBusId = int (*)(const char*, void**);
using MemoryInfo = int (*)(void*, NvmlMemory*);

template <typename Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

DeviceUse::DeviceUse() {
  library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library_ == nullptr) return;
  const auto initialize = symbol<Initialize>(library_, "nvmlInit_v2");
  const auto by_index = symbol<int (*)(unsigned, void**)>(library_, "nvmlDeviceGetHandleByIndex_v2");
  if (initialize == nullptr || by_index == nullptr || initialize() != 0) return;
  // CUDA_VISIBLE_DEVICES is CUDA's matter, not NVML's: with several cards visible to NVML the first is taken.
  if (by_index(0, &nvml_device_) != 0) nvml_device_ = nullptr;
}

DeviceUse::~DeviceUse() {
  if (library_ != nullptr) dlclose(library_);
}

std::int64_t DeviceUse::used_bytes() const {
  if (nvml_device_ != nullptr) {
    NvmlMemory memory{};
    const auto info = symbol<MemoryInfo>(library_, "nvmlDeviceGetMemoryInfo");
    if (info != nullptr && info(nvml_device_, &memory) == 0) return static_cast<std::int64_t>(memory.used);
  }
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return -1;
  return static_cast<std::int64_t>(total - free);
}

}  // namespace memcalc::probe
