// spec/rules_trl: a run that breaks each rule.
#include <algorithm>
#include <memory>
#include <utility>

#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/run_names.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

const RunOptions kSft{.loop = Loop::kTrlSft};
const RunOptions kDpo{.loop = Loop::kTrlDpo, .lora_rank = 8};
const RunOptions kKto{.batch_size = 2, .loop = Loop::kTrlKto};
const RunOptions kGrpo{.loop = Loop::kTrlGrpo};
const RunOptions kOrpo{.loop = Loop::kTrlOrpo};
const RunOptions kOnlineDpo{.loop = Loop::kTrlOnlineDpo};
const RunOptions kVllm{.loop = Loop::kTrlGrpo, .vllm = VllmMode::kColocate, .lora_rank = 8};
const RunOptions kEvaluates{.loop = Loop::kTrainer, .eval_batch_size = 2};
const RunOptions kPredicts{.loop = Loop::kTrainer, .eval_batch_size = 2, .eval_new_tokens = 8};

const RunOptions kReward{.loop = Loop::kTrlReward};
const RunOptions kBiEncoder{.loop = Loop::kSentenceTransformer};
const RunOptions kCrossEncoder{.loop = Loop::kCrossEncoder};
const RunOptions kLengths{.loop = Loop::kTrainer, .lengths = "lognormal:20,0.5,64,100"};
const RunOptions kPrompts{.batch_size = 8, .loop = Loop::kTrlGrpo, .lengths = "lognormal:20,0.5,64,100"};

void set_samples(RunSpec& run, SampleLengths samples) {
  run.training().lengths->samples = std::make_shared<const SampleLengths>(std::move(samples));
}

const test::RuleCase kCases[] = {
    {"trl-causal", "gpt2", [](RunSpec& run) { run.task = Task::kSequenceClassification; }, kSft},
    {"trl-reward-scores", "gpt2", [](RunSpec& run) { run.task = Task::kCausalLm; }, kReward},
    {"trl-of-a-family",
     "granite-3.1-2b",
     [](RunSpec& run) { run.training().loop = Loop::kTrlSft; },
     {.loop = Loop::kTrainer}},
    {"trl-compile", "gpt2", [](RunSpec& run) { run.training().compile = true; }, kSft},
    {"trl-parallel", "gpt2",
     [](RunSpec& run) {
       run.parallel.data_parallel = DataParallel::kDp;
       run.parallel.gpus = 2;
     },
     kSft},
    {"trl-adapters-generate-fsdp1",
     "gpt2",
     [](RunSpec& run) {
       run.parallel.data_parallel = DataParallel::kFsdp1;
       run.parallel.gpus = 2;
       run.precision = Precision::kAmpBf16;
     },
     {.loop = Loop::kTrlGrpo, .lora_rank = 8}},
    {"float32-head-alone", "gpt2",
     [](RunSpec& run) {
       run.training().float32_head = true;
       run.parallel.data_parallel = DataParallel::kFsdp2;
       run.parallel.gpus = 2;
     },
     kGrpo},
    {"trl-adapters-generate",
     "gpt2",
     [](RunSpec& run) {
       run.parallel.data_parallel = DataParallel::kFsdp2;
       run.parallel.gpus = 2;
     },
     {.loop = Loop::kTrlGrpo, .lora_rank = 8}},
    {"sft-completion-lengths",
     "gpt2",
     [](RunSpec& run) { run.training().completion_length = 8; },
     {.loop = Loop::kTrlSft, .lengths = "lognormal:20,0.5,64,100"}},
    {"lengths-of-answers", "gpt2", [](RunSpec& run) { set_samples(run, {.tokens = {3}, .prompts = {1}}); }, kLengths},
    {"lengths-of-packed-answers",
     "gpt2",
     [](RunSpec& run) { set_samples(run, {.tokens = {3}, .prompts = {1}}); },
     {.loop = Loop::kTrlSft, .lengths = "lognormal:20,0.5,64,100", .padding_free = true}},
    {"lengths-grouped-answers",
     "gpt2",
     [](RunSpec& run) { run.training().lengths->grouped = true; },
     {.loop = Loop::kTrlDpo, .lengths = "lognormal:20,0.5,64,100", .lora_rank = 8}},
    {"label-smoothing-loop", "gpt2", [](RunSpec& run) { run.training().smooths_labels = true; }, kDpo},
    {"label-smoothing-task",
     "t5-base",
     [](RunSpec& run) { run.training().smooths_labels = true; },
     {.loop = Loop::kTrainer}},
    {"label-smoothing-alone",
     "gpt2",
     [](RunSpec& run) {
       run.training().smooths_labels = true;
       run.training().compile = true;
     },
     {.loop = Loop::kTrainer}},
    {"trl-generations", "gpt2", [](RunSpec& run) { run.training().generations = 3; }, {.loop = Loop::kTrlGrpo}},
    {"trl-generation-size",
     "gpt2",
     [](RunSpec& run) { run.training().accumulation_steps = 4097; },
     {.loop = Loop::kTrlGrpo}},
    {"trl-generate-every",
     "gpt2",
     [](RunSpec& run) { run.training().steps_per_generation = 99; },
     {.loop = Loop::kTrlGrpo, .accumulation_steps = 2}},
    {"sft-loss-version", "gpt2",
     [](RunSpec& run) {
       run.training().sft_loss = SftLoss::kDft;
       run.profile.behaviors.sft_loss = SftLossForm::kLogits;
     },
     kSft},
    {"trl-reference-of-an-engine", "gpt2",
     [](RunSpec& run) {
       run.training().reference = Reference::kModel;
       run.parallel.data_parallel = DataParallel::kDsZero2;
       run.parallel.layout = DeepSpeedZero{};
       run.parallel.gpus = 2;
     },
     kOnlineDpo},
    {"trl-padding", "gpt2", [](RunSpec& run) { run.padding = true; }, kSft},
    {"trl-completion", "gpt2", [](RunSpec& run) { run.training().completion_length = run.sequence_length; }, kDpo},
    {"trl-reference-of-adapters", "gpt2", [](RunSpec& run) { run.fine_tuning.lora.reset(); }, kDpo},
    {"trl-reference-quantized", "gpt2",
     [](RunSpec& run) {
       run.training().reference = Reference::kModel;
       run.fine_tuning.quantization = Quantization::kNf4;
     },
     kDpo},
    {"trl-pairs-reference", "gpt2", [](RunSpec& run) { run.training().reference = Reference::kNone; }, kDpo},
    {"trl-orpo-reference", "gpt2", [](RunSpec& run) { run.training().reference = Reference::kModel; }, kOrpo},
    {"trl-online-dpo-reference", "gpt2", [](RunSpec& run) { run.training().reference = Reference::kNone; }, kOnlineDpo},
    {"trl-whole-logits", "gpt2",
     [](RunSpec& run) {
       run.training().whole_logits = true;
       run.training().reference = Reference::kPrecomputed;
     },
     kKto},
    {"trl-kto-batch", "gpt2", [](RunSpec& run) { run.batch_size = 1; }, kKto},
    {"trl-generates-reference", "gpt2", [](RunSpec& run) { run.training().reference = Reference::kPrecomputed; },
     kGrpo},
    {"vllm-packed", "gpt2", [](RunSpec& run) { run.fine_tuning.quantization = Quantization::kNf4; }, kVllm},
    {"vllm-max-length", "gpt2", [](RunSpec& run) { run.training().vllm.max_length = run.sequence_length - 1; }, kVllm},
    {"vllm-context", "gpt2", [](RunSpec& run) { run.training().vllm.max_length = 1025; }, kVllm},
    {"vllm-expandable", "gpt2",
     [](RunSpec& run) {
       run.training().vllm.sleeps = true;
       run.expandable_segments = true;
     },
     kVllm},
    {"trl-generates-evaluation", "gpt2", [](RunSpec& run) { run.training().evaluation.emplace(); }, kOnlineDpo},
    {"trl-vllm-evaluation", "gpt2", [](RunSpec& run) { run.training().evaluation.emplace(); }, kVllm},
    {"evaluation-in-the-trainer", "gpt2", [](RunSpec& run) { run.training().loop = Loop::kBare; }, kEvaluates},
    {"evaluation-parallel", "gpt2",
     [](RunSpec& run) {
       run.parallel.data_parallel = DataParallel::kDp;
       run.parallel.gpus = 2;
     },
     kEvaluates},
    {"evaluation-of-a-family",
     "granite-3.1-2b",
     [](RunSpec& run) { run.training().evaluation.emplace(); },
     {.loop = Loop::kTrainer}},
    {"evaluation-compile", "gpt2", [](RunSpec& run) { run.training().compile = true; }, kEvaluates},
    {"evaluation-logits-of-trl", "gpt2", [](RunSpec& run) { run.training().evaluation.emplace().keeps_logits = true; },
     kSft},
    {"evaluation-of-scores", "gpt2", [](RunSpec& run) { run.training().evaluation.emplace().keeps_logits = true; },
     kReward},
    {"eval-generate-seq2seq", "gpt2",
     [](RunSpec& run) {
       run.training().evaluation->new_tokens = 8;
       run.training().loop = Loop::kTrlSft;
     },
     kEvaluates},
    {"eval-generate-logits", "t5-base", [](RunSpec& run) { run.training().evaluation->keeps_logits = true; },
     kPredicts},
    {"eval-generate-one-gpu", "gpt2",
     [](RunSpec& run) {
       run.training().evaluation->new_tokens = 8;
       run.parallel.data_parallel = DataParallel::kFsdp2;
       run.parallel.gpus = 2;
     },
     kEvaluates},
    {"eval-labels-generate", "gpt2", [](RunSpec& run) { run.training().evaluation->has_labels = false; }, kEvaluates},
    {"eval-beams-generate", "t5-base", [](RunSpec& run) { run.training().evaluation->beams = 4; }, kEvaluates},
    {"sentences-bi-encoder", "bert-base", [](RunSpec& run) { run.task = Task::kMaskedLm; }, kBiEncoder},
    {"sentences-cross-encoder", "bert-base", [](RunSpec& run) { run.task = Task::kMaskedLm; }, kCrossEncoder},
    {"sentences-encoders",
     "gpt2",
     [](RunSpec& run) { run.training().loop = Loop::kCrossEncoder; },
     {.task = Task::kSequenceClassification, .loop = Loop::kTrainer}},
    {"sentences-alone", "bert-base", [](RunSpec& run) { run.padding = true; }, kBiEncoder},
    {"cross-encoder-head", "distilbert-base", [](RunSpec& run) { run.fine_tuning.lora->trains_head = true; },
     {.task = Task::kSequenceClassification, .loop = Loop::kCrossEncoder, .lora_rank = 8}},
    {"cross-encoder-ddp", "bert-base",
     [](RunSpec& run) {
       run.parallel.data_parallel = DataParallel::kDdp;
       run.parallel.gpus = 2;
     },
     {.task = Task::kSequenceClassification, .loop = Loop::kCrossEncoder}},
    {"features-have-no-loss", "bert-base", [](RunSpec& run) { run.training().loop = Loop::kTrainer; }, kBiEncoder},
    {"lengths-of-tokens",
     "bert-base",
     [](RunSpec& run) { run.training().lengths.emplace(); },
     {.task = Task::kTokenClassification, .loop = Loop::kTrainer}},
    {"lengths-of-a-family",
     "granite-3.1-2b",
     [](RunSpec& run) { run.training().lengths.emplace(); },
     {.loop = Loop::kTrainer}},
    {"lengths-parallel", "gpt2",
     [](RunSpec& run) {
       run.parallel.data_parallel = DataParallel::kDp;
       run.parallel.gpus = 2;
     },
     kLengths},
    {"lengths-evaluation-rows",
     "gpt2",
     [](RunSpec& run) { run.training().evaluation.emplace(); },
     {.loop = Loop::kTrlSft, .lengths = "lognormal:20,0.5,64,100", .packing = PackingStrategy::kBfd}},
    {"lengths-fewest-prompts", "gpt2", [](RunSpec& run) { run.training().steps_per_generation = 101; }, kPrompts},
    {"lengths-generation-steps", "gpt2", [](RunSpec& run) { run.training().lengths->pad_to_multiple_of = 8; },
     kPrompts},
    {"lengths-alone", "gpt2", [](RunSpec& run) { run.padding = true; }, kLengths},
};

TEST(RulesOfTrl, EachIsBrokenByARun) { test::expect_each_rule_broken(rules_of_trl(), kCases); }

TEST(RulesOfTrl, MegatronIsNoTrainersFramework) {
  const ModelSpec& model = test::model_of("gpt2");
  for (const Loop loop : {Loop::kTrlSft, Loop::kTrlDpo, Loop::kTrlGrpo, Loop::kCrossEncoder}) {
    const std::string name(kLoopNames[static_cast<std::size_t>(loop)]);
    for (const std::int64_t tensor : {1, 2}) {
      RunOptions options{.loop = loop, .gpus = tensor, .framework = Framework::kMegatron};
      options.batch_size = 2;
      options.parallel.tensor = tensor;
      try {
        (void)resolve(model, options);
        ADD_FAILURE() << name << " is taken";
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      }
    }
  }
  RunOptions plain{.gpus = 2, .framework = Framework::kMegatron};
  plain.parallel.tensor = 2;
  EXPECT_EQ(resolve(model, plain).run.training().loop, Loop::kBare);
}

TEST(RulesOfTrl, KtoTakesTwoSamplesWhereItTakesTheOthersAnswer) {
  const ModelSpec& model = test::model_of("gpt2");
  EXPECT_EQ(resolve(model, {.loop = Loop::kTrlKto}).run.batch_size, 2);
  const RunOptions unpaired{.batch_size = 1, .loop = Loop::kTrlKto, .kto_loss = KtoLoss::kApoZeroUnpaired};
  EXPECT_EQ(resolve(model, unpaired).run.batch_size, 1);
}

TEST(RulesOfTrl, TheRoutersLossIsOfMixturesThatReturnTheirLogits) {
  const auto balances = [](const char* model, RunOptions options) {
    return resolve(test::model_of(model), options).run.training().balances_experts;
  };
  EXPECT_TRUE(balances("mixtral-8x7b", {.loop = Loop::kTrlSft}));
  EXPECT_TRUE(balances("qwen3-30b-a3b", {.loop = Loop::kTrlGrpo}));
  EXPECT_FALSE(balances("mixtral-8x7b", {.loop = Loop::kTrlSft, .no_router_loss = true}));
  EXPECT_FALSE(balances("mixtral-8x7b", {.loop = Loop::kTrlOrpo}));
  EXPECT_FALSE(balances("mixtral-8x7b", {.loop = Loop::kTrainer}));
  EXPECT_TRUE(balances("mixtral-8x7b", {.loop = Loop::kTrainer, .router_loss = true}));
  EXPECT_FALSE(balances("gpt2", {.loop = Loop::kTrlSft}));
}

TEST(RulesOfTrl, ItsTrainersHaveDefaultsOfTheirOwn) {
  const ModelSpec model = test::model_of("gpt2");
  const RunSpec run = resolve(model, {.loop = Loop::kTrlSft}).run;
  EXPECT_EQ(run.task, Task::kCausalLm);
  EXPECT_EQ(run.checkpointing(), Checkpointing::kFull);
  EXPECT_EQ(run.precision, Precision::kAmpBf16);
  const RunSpec asked =
      resolve(model, {.precision = Precision::kFp32, .loop = Loop::kTrlSft, .checkpointing = Checkpointing::kNone}).run;
  EXPECT_EQ(asked.checkpointing(), Checkpointing::kNone);
  EXPECT_EQ(asked.precision, Precision::kFp32);
}

TEST(RulesOfTrl, OrpoHasNoReferenceAndOnlineDpoOneOfItsOwn) {
  const ModelSpec model = test::model_of("gpt2");
  const RunSpec orpo = resolve(model, kOrpo).run, online = resolve(model, kOnlineDpo).run;
  EXPECT_EQ(orpo.training().reference, Reference::kNone);
  EXPECT_EQ(orpo.rows(), 2 * orpo.batch_size) << "a chosen and a rejected answer";
  EXPECT_EQ(online.training().reference, Reference::kModel);
  EXPECT_TRUE(online.generates());
  EXPECT_EQ(orpo.dropout, 0);
  EXPECT_EQ(online.dropout, 0);
}

TEST(RulesOfTrl, ARewardModelGivesOneNumberForASequence) {
  const RunSpec run = resolve(test::model_of("gpt2"), kReward).run;
  EXPECT_EQ(run.task, Task::kSequenceClassification);
  EXPECT_TRUE(run.gives_one_score());
  EXPECT_EQ(run.rows(), 2);
  EXPECT_EQ(run.dropout, 0);
  EXPECT_EQ(run.training().reference, Reference::kNone);
}

TEST(RulesOfTrl, RowsOfSeveralSamplesHaveNoPaddingButThoseThatAreWrapped) {
  const ModelSpec model = test::model_of("gpt2");
  RunOptions options{.loop = Loop::kTrlSft, .lengths = "lognormal:20,0.5,64,100"};
  EXPECT_FALSE(resolve(model, options).run.is_padding_free());
  for (const auto& [packing, free] : {std::pair(PackingStrategy::kBfd, true),
                                      {PackingStrategy::kBfdSplit, true},
                                      {PackingStrategy::kWrapped, false}}) {
    options.packing = packing;
    const RunSpec run = resolve(model, options).run;
    EXPECT_EQ(run.is_padding_free(), free);
    EXPECT_EQ(run.passes_mask(), !free);
    EXPECT_EQ(run.sequence_length, 1024) << "SFTConfig.max_length";
  }
}

TEST(RulesOfTrl, LengthsAreNotCutBeforeTheyArePacked) {
  const RunSpec run = resolve(test::model_of("gpt2"), {.sequence_length = 16,
                                                       .loop = Loop::kTrlSft,
                                                       .lengths = "lognormal:20,0.5,64,100",
                                                       .packing = PackingStrategy::kBfdSplit})
                          .run;
  const std::vector<std::int32_t>& tokens = run.training().lengths->samples->tokens;
  EXPECT_GT(*std::max_element(tokens.begin(), tokens.end()), 16);
  EXPECT_EQ(run.sequence_length, 16);
}

TEST(RulesOfTrl, ABiEncoderTrainsOnHiddenStates) {
  const ModelSpec model = test::model_of("bert-base");
  const RunSpec run = resolve(model, kBiEncoder).run;
  EXPECT_EQ(run.task, Task::kFeatures);
  EXPECT_EQ(run.training().sentences.loss, ContrastiveLoss::kMnrl);
  EXPECT_EQ(run.training().sentences.columns(), 2);
  EXPECT_EQ(resolve(model, kCrossEncoder).run.task, Task::kSequenceClassification);
}

}  // namespace
}  // namespace memcalc
