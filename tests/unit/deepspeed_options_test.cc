// spec/deepspeed_options: the names of DeepSpeed's configuration that --deepspeed takes.
#include <gtest/gtest.h>

#include <string>

#include "memcalc/base/error.h"
#include "memcalc/spec/deepspeed_spec.h"
#include "memcalc/spec/run_fields.h"

namespace memcalc {
namespace {

DeepSpeedOptions options_of(std::string_view list) {
  RunRequest request;
  set_list(request, FieldGroup::kDeepSpeed, list);
  return request.run.parallel.deepspeed;
}

TEST(DeepSpeedOptionsTest, DefaultsAreDeepSpeeds) {
  const DeepSpeedOptions options = options_of("");
  EXPECT_EQ(options.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(options.prefetch_bucket_size, 50'000'000);
  EXPECT_EQ(options.param_persistence_threshold, 100'000);
  EXPECT_EQ(options.max_live_parameters, 1'000'000'000);
  EXPECT_EQ(options.max_reuse_distance, 1'000'000'000);
  EXPECT_EQ(options.sub_group_size, 1'000'000'000);
  EXPECT_FALSE(options.overlap_comm.has_value());
}

TEST(DeepSpeedOptionsTest, SizesAreWholeNumbersHoweverTheyAreWritten) {
  const DeepSpeedOptions options = options_of(
      "reduce_bucket_size=5e7,overlap_comm=true,sub_group_size=100,stage3_prefetch_bucket_size=0,"
      "stage3_param_persistence_threshold=1e4,stage3_max_live_parameters=30000000,stage3_max_reuse_distance=1.5e8");
  EXPECT_EQ(options.reduce_bucket_size, 50'000'000);
  EXPECT_EQ(options.overlap_comm, true);
  EXPECT_EQ(options.sub_group_size, 100);
  EXPECT_EQ(options.prefetch_bucket_size, 0);
  EXPECT_EQ(options.param_persistence_threshold, 10'000);
  EXPECT_EQ(options.max_live_parameters, 30'000'000);
  EXPECT_EQ(options.max_reuse_distance, 150'000'000);
}

struct BadCase {
  const char* list;
  const char* part_of_message;
};

class BadOptions : public testing::TestWithParam<BadCase> {};

TEST_P(BadOptions, AreRefusedWithOneClearLine) {
  try {
    (void)options_of(GetParam().list);
    FAIL() << GetParam().list;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    const std::string message = error.what();
    EXPECT_NE(message.find(GetParam().part_of_message), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(DeepSpeedOptionsTest, BadOptions,
                         testing::Values(BadCase{"reduce_bucket=5e8", "did you mean 'reduce_bucket_size'"},
                                         BadCase{"reduce_bucket_size", "found nothing"},
                                         BadCase{"reduce_bucket_size=0", "a whole number from 1"},
                                         BadCase{"reduce_bucket_size=5.5", "a whole number from 1"},
                                         BadCase{"reduce_bucket_size=5e8x", "found '5e8x'"},
                                         BadCase{"reduce_bucket_size=1e99", "a whole number from 1"},
                                         BadCase{"overlap_comm=yes", "true or false"},
                                         BadCase{"stage3_max_live_parameters=-1", "a whole number from 0"}));

}  // namespace
}  // namespace memcalc
