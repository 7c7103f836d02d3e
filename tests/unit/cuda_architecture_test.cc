#include "memcalc/spec/cuda_architecture.h"

#include <gtest/gtest.h>

namespace memcalc {
namespace {

DeviceSpec card(int major, int minor = 0) {
  DeviceSpec device;
  device.compute_capability_major = major;
  device.compute_capability_minor = minor;
  return device;
}

TEST(CudaArchitecture, LaterOnesHaveWhatEarlierOnesHave) {
  EXPECT_LT(architecture_of(card(8, 6)), CudaArchitecture::kAda);
  EXPECT_EQ(architecture_of(card(8, 9)), CudaArchitecture::kAda);
  EXPECT_GE(architecture_of(card(12)), CudaArchitecture::kBlackwellUltra);
  EXPECT_LT(architecture_of(card(12, 1)), CudaArchitecture::kAfterBlackwell);
  EXPECT_LT(architecture_of(card(6, 1)), CudaArchitecture::kVolta);
}

TEST(CudaArchitecture, AMajorNumberIsOneArchitectures) {
  EXPECT_TRUE(is_of(card(10, 3), CudaArchitecture::kBlackwell));
  EXPECT_FALSE(is_of(card(12), CudaArchitecture::kBlackwell));
  EXPECT_TRUE(is_of(card(9), CudaArchitecture::kHopper));
}

TEST(CudaArchitecture, ACardOfAnotherMakerHasNone) {
  EXPECT_FALSE(is_cuda(card(0)));
  EXPECT_EQ(architecture_of(card(0)), CudaArchitecture::kNone);
  EXPECT_TRUE(is_cuda(card(7, 5)));
}

}  // namespace
}  // namespace memcalc
