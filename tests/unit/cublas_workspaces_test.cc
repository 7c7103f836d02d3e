// symbolic/cublas_workspaces: PyTorch's defaults by chip and version.
#include "memcalc/symbolic/cublas_workspaces.h"

#include <gtest/gtest.h>

namespace memcalc {
namespace {

DeviceSpec cuda(int major) {
  DeviceSpec device;
  device.compute_capability_major = major;
  return device;
}

DeviceSpec rocm(const char* architecture) {
  DeviceSpec device;
  device.gcn_architecture = architecture;
  return device;
}

TEST(CublasWorkspaces, FollowTheChip) {
  EXPECT_EQ(cublas_workspaces(cuda(8), {}).cublas, 8'519'680);
  EXPECT_EQ(cublas_workspaces(cuda(8), {}).cublaslt, kMiB);
  EXPECT_EQ(cublas_workspaces(cuda(9), {}).cublas, 32 * kMiB);
  EXPECT_EQ(cublas_workspaces(rocm("gfx90a"), {}).cublas, 32 * kMiB);
  EXPECT_EQ(cublas_workspaces(rocm("gfx942"), {}).cublas, 128 * kMiB);
  EXPECT_EQ(cublas_workspaces(rocm("gfx950"), {}).cublaslt, 79'691'776);
  EXPECT_EQ(cublas_workspaces(DeviceSpec{}, {}).cublas, 0) << "neither CUDA nor ROCm";
}

// pytorch/pytorch#175344
TEST(CublasWorkspaces, BlackwellHasTheLargerOneInLaterVersions) {
  const Behaviors later{.cublas_workspace = CublasWorkspace::kHopperAndBlackwell};
  for (const int major : {10, 11, 12}) {
    EXPECT_EQ(cublas_workspaces(cuda(major), {}).cublas, 8'519'680) << major;
    EXPECT_EQ(cublas_workspaces(cuda(major), later).cublas, 32 * kMiB) << major;
  }
  EXPECT_EQ(cublas_workspaces(cuda(8), later).cublas, 8'519'680);
}

TEST(CublasWorkspaces, ACardsOwnFileIsRight) {
  DeviceSpec device = cuda(9);
  device.cublas_workspace_bytes = 0;
  EXPECT_EQ(cublas_workspaces(device, {}).cublas, 0);
  EXPECT_EQ(cublas_workspaces(device, {}).cublaslt, kMiB);
}

}  // namespace
}  // namespace memcalc
