// spec/megatron_options: what --megatron takes.
#include <gtest/gtest.h>

#include <string>

#include "memcalc/base/error.h"
#include "memcalc/spec/megatron_spec.h"

namespace memcalc {
namespace {

TEST(MegatronOptionsTest, MegatronsOwnNamesAreTaken) {
  const MegatronOptions o = parse_megatron_options(
      "attention-backend=unfused,cross-entropy-loss-fusion,cross-entropy-fusion-impl=te,no-gradient-accumulation-"
      "fusion,"
      "moe-expert-capacity-factor=1.25,decoder-last-pipeline-num-layers=3,normalization=RMSNorm,hidden-dropout=0.1");
  EXPECT_EQ(o.attention, MegatronAttention::kUnfused);
  EXPECT_EQ(o.loss, MegatronLoss::kTe);
  EXPECT_FALSE(o.fuses_weight_gradients);
  EXPECT_EQ(o.expert_capacity, 1.25);
  EXPECT_EQ(o.last_stage_layers, 3);
  EXPECT_EQ(o.rms_norm, true);
  EXPECT_EQ(o.hidden_dropout, 0.1);
  const MegatronOptions of_stages = parse_megatron_options(
      "account-for-embedding-in-pipeline-split,defer-embedding-wgrad-compute,wgrad-deferral-limit=0,rotary-percent=0.5,"
      "microbatch-group-size-per-virtual-pipeline-stage=5,squared-relu,no-rope-fusion,apply-layernorm-1p");
  EXPECT_TRUE(of_stages.counts_embedding && !of_stages.counts_loss && of_stages.defers_head_gradient);
  EXPECT_EQ(of_stages.micro_batch_group, 5);
  EXPECT_TRUE(of_stages.squared_relu && !of_stages.fuses_rope);
  EXPECT_EQ(of_stages.rotary_percent, 0.5);
  EXPECT_EQ(parse_megatron_options("").loss, MegatronLoss::kNative);
  EXPECT_EQ(parse_megatron_options("cross-entropy-loss-fusion").loss, MegatronLoss::kFused);
}

struct Refusal {
  const char* name;
  const char* list;
  const char* says;  // a part of the message
};

class MegatronList : public ::testing::TestWithParam<Refusal> {};

TEST_P(MegatronList, IsRefusedWithTheReason) {
  try {
    (void)parse_megatron_options(GetParam().list);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find(GetParam().says), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, MegatronList,
                         ::testing::ValuesIn({Refusal{"Unknown", "use-megatron-fsdp", "unknown argument"},
                                              Refusal{"Mistyped", "atention-backend=fused", "attention-backend"},
                                              Refusal{"NoValue", "make-vocab-size-divisible-by",
                                                      "a whole number from 1, found nothing"},
                                              Refusal{"ValueOfAFlag", "swiglu=yes", "no value"},
                                              Refusal{"NotANumber", "hidden-dropout=0.1x", "from 0 to below 1"},
                                              Refusal{"TooLarge", "attention-dropout=1", "from 0 to below 1"},
                                              Refusal{"TooMuch", "rotary-percent=1.5", "up to 1, found \"1.5\""},
                                              Refusal{"Choice", "normalization=Batch", "RMSNorm or LayerNorm"}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace memcalc
