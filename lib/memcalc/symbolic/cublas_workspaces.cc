#include "memcalc/symbolic/cublas_workspaces.h"

#include "memcalc/spec/cuda_architecture.h"

namespace memcalc {
namespace {

/// parseChosenWorkspaceSize: 4096 KiB twice and 16 KiB eight times, or 4096 KiB eight times.
constexpr Bytes kUsual = 8 * kMiB + 128 * kKiB, kLarge = 32 * kMiB;

CublasWorkspaces of_cuda(const DeviceSpec& device, const Behaviors& behaviors) {
  const CudaArchitecture of_card = architecture_of(device);
  const bool is_blackwell = of_card >= CudaArchitecture::kBlackwell && of_card < CudaArchitecture::kAfterBlackwell;
  const bool is_large = is_of(device, CudaArchitecture::kHopper) ||
                        (is_blackwell && behaviors.cublas_workspace == CublasWorkspace::kHopperAndBlackwell);
  return {.cublas = is_large ? kLarge : kUsual, .cublaslt = kMiB};
}

/// hipBLASLt asks for 76 MiB.
CublasWorkspaces of_rocm(const std::string& architecture) {
  const bool is_mi300 = architecture.starts_with("gfx94") || architecture.starts_with("gfx95");
  return {.cublas = is_mi300 ? 128 * kMiB : kLarge, .cublaslt = 76 * kMiB};
}

CublasWorkspaces by_default(const DeviceSpec& device, const Behaviors& behaviors) {
  if (is_cuda(device)) return of_cuda(device, behaviors);
  return device.gcn_architecture.empty() ? CublasWorkspaces{} : of_rocm(device.gcn_architecture);
}

}  // namespace

CublasWorkspaces cublas_workspaces(const DeviceSpec& device, const Behaviors& behaviors) {
  const CublasWorkspaces usual = by_default(device, behaviors);
  return {.cublas = device.cublas_workspace_bytes.value_or(usual.cublas),
          .cublaslt = device.cublaslt_workspace_bytes.value_or(usual.cublaslt)};
}

}  // namespace memcalc
