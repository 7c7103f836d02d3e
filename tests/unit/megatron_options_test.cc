// spec/megatron_spec: what the list --megatron takes.
#include <gtest/gtest.h>

#include <string>

#include "memcalc/base/error.h"
#include "memcalc/spec/megatron_spec.h"
#include "memcalc/spec/run_fields.h"

namespace memcalc {
namespace {

MegatronOptions options_of(std::string_view list) {
  RunRequest request;
  set_list(request, FieldGroup::kMegatron, list);
  return request.run.parallel.megatron;
}

TEST(MegatronOptionsTest, MegatronsOwnNamesAreTaken) {
  const MegatronOptions o = options_of(
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
  const MegatronOptions of_stages = options_of(
      "account-for-embedding-in-pipeline-split,defer-embedding-wgrad-compute,wgrad-deferral-limit=0,rotary-percent=0.5,"
      "microbatch-group-size-per-virtual-pipeline-stage=5,squared-relu,no-rope-fusion,apply-layernorm-1p");
  EXPECT_TRUE(of_stages.counts_embedding && !of_stages.counts_loss && of_stages.defers_head_gradient);
  EXPECT_EQ(of_stages.micro_batch_group, 5);
  EXPECT_TRUE(of_stages.squared_relu && !of_stages.fuses_rope);
  EXPECT_EQ(of_stages.rotary_percent, 0.5);
  EXPECT_EQ(options_of("").loss, MegatronLoss::kNative);
  EXPECT_EQ(options_of("cross-entropy-loss-fusion").loss, MegatronLoss::kFused);
}

struct Refusal {
  const char* name;
  const char* list;
  const char* says;  // a part of the message
};

class MegatronList : public ::testing::TestWithParam<Refusal> {};

TEST_P(MegatronList, IsRefusedWithTheReason) {
  try {
    (void)options_of(GetParam().list);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find(GetParam().says), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, MegatronList,
                         ::testing::ValuesIn({Refusal{"Unknown", "use-megatron-fsdp",
                                                      "unknown name 'use-megatron-fsdp'"},
                                              Refusal{"Mistyped", "atention-backend=fused", "attention-backend"},
                                              Refusal{"NoValue", "make-vocab-size-divisible-by",
                                                      "a whole number from 1 to 1048576, found nothing"},
                                              Refusal{"ValueOfAFlag", "swiglu=yes", "true or false, found 'yes'"},
                                              Refusal{"NotANumber", "hidden-dropout=0.1x", "from 0 to less than 1"},
                                              Refusal{"TooLarge", "attention-dropout=1", "from 0 to less than 1"},
                                              Refusal{"TooMuch", "rotary-percent=1.5", "up to 1, found '1.5'"},
                                              Refusal{"Choice", "normalization=Batch", "LayerNorm, RMSNorm"},
                                              Refusal{"ChoiceOfMethod", "recompute-method=blocks", "uniform, block"}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace memcalc
