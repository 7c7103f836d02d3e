// How a run may be split: what is filled in, what is refused and with which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/spec/validate_parallel.h"
#include "support/paths.h"

namespace memcalc {
namespace {

using ::testing::HasSubstr;

ModelSpec model(const std::string& name) { return SpecRegistry(test::specs_dir().string()).model(name); }

RunOptions bare() { return {.batch_size = 1, .sequence_length = 16, .loop = Loop::kBare}; }

struct Refusal {
  const char* name;
  std::function<void(RunOptions&)> ask;
  const char* message;
};

const Refusal kRefusals[] = {
    {"GpusThatTheProductDoesNotDivide",
     [](RunOptions& o) {
       o.gpus = 6;
       o.parallel.tensor = 4;
       o.optimizer = Optimizer::kAdamWForLoop;
     },
     "tp 4 = 4 does not divide it"},
    {"HeadsThatCannotBeSplit", [](RunOptions& o) { o.parallel.tensor = 3; }, "a head cannot be split"},
    {"KeyValueHeads", [](RunOptions& o) { o.parallel.tensor = 16; }, "key/value heads"},
    {"NothingToShare", [](RunOptions& o) { o.parallel.data_parallel = DataParallel::kFsdp2; }, "one GPU has nothing"},
    {"NoRanksLeft",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.tensor = 2;
       o.parallel.data_parallel = DataParallel::kDdp;
     },
     "takes all GPUs"},
    {"AnotherFramework",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.data_parallel = DataParallel::kDsZero3;
       o.framework = Framework::kMegatron;
     },
     "ds-zero3 is deepspeed's"},
    {"HsdpThatIsNoDivisor",
     [](RunOptions& o) {
       o.gpus = 4;
       o.parallel.data_parallel = DataParallel::kFsdp2;
       o.parallel.hsdp_shard = 3;
     },
     "expected a divisor of the 4"},
    {"FsdpOptionsOfDdp",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.fsdp_param_dtype = DType::kBFloat16;
     },
     "accepted: --parallel fsdp2 or fsdp1"},
    {"BucketViewsOfFsdp",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.data_parallel = DataParallel::kFsdp2;
       o.parallel.ddp_bucket_view = true;
     },
     "accepted: --parallel ddp or zero1"},
    {"ForeachOverDTensors", [](RunOptions& o) { o.parallel.tensor = 2; }, "adamw-for"},
};

class Refusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refusals, SayWhy) {
  RunOptions options = bare();
  GetParam().ask(options);
  try {
    (void)resolve(model("llama-3.2-1b"), options);
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Refusals, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Defaults, AreFilledInAndSaid) {
  RunOptions options = bare();
  options.gpus = 4;
  const ResolvedRun ddp = resolve(model("llama-3.2-1b"), options);
  EXPECT_EQ(ddp.run.parallel.data_parallel, DataParallel::kDdp);
  EXPECT_THAT(ddp.assumptions, ::testing::Contains(HasSubstr("DistributedDataParallel")));
  options = bare();
  options.parallel.tensor = 2;
  options.optimizer = Optimizer::kAdamWForLoop;
  const ResolvedRun tensor = resolve(model("llama-3.2-1b"), options);
  EXPECT_EQ(tensor.run.parallel.gpus, 2);
  EXPECT_EQ(data_parallel_size(tensor.run.parallel), 1);
}

}  // namespace
}  // namespace memcalc
