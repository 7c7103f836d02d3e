// train/trl: what TRL's trainers hold beside the model that trains.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/models/module.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/kernel_list.h"
#include "memcalc/train/module_walks.h"
#include "memcalc/train/step.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

struct Simulated {
  RunSpec run;
  SymbolicRun symbolic;
};

Simulated simulated(RunOptions options) {
  const ModelSpec& model = registry().model("qwen2.5-0.5b");
  options.batch_size = options.batch_size.value_or(4);
  options.sequence_length = 64;
  const RunSpec run = resolve(model, options).run;
  return {run, run_symbolically(model, run, registry().device("h200-sxm"))};
}

Bytes asked_for(const Trace& trace, Category category) {
  Bytes sum = 0;
  for (const Event& event : trace.events) {
    if (event.kind != EventKind::kAllocate) continue;
    const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
    if (block.category == category) sum += block.requested;
  }
  return sum;
}

bool has_phase(const Trace& trace, Phase phase) {
  return std::any_of(trace.events.begin(), trace.events.end(),
                     [&](const Event& event) { return event.phase == phase; });
}

std::int64_t times_of(const SymbolicRun& symbolic, HostWork what) {
  std::int64_t times = 0;
  for (const Kernel& kernel : symbolic.kernels) {
    const auto* work = kernel.as<work::OfHost>();
    if (work != nullptr && work->what == what) times += work->times;
  }
  return times;
}

// TRL 1.3 to 1.5 copy the shifted logits before the entropy and again before the accuracy; 1.6 looks at a view of them,
// which entropy_from_logits flattens. Before 1.3 they are copied for the accuracy alone.
TEST(Trl, MetricsCopyShiftedLogitsAsOftenAsTheirVersion) {
  const ModelSpec& model = registry().model("qwen2.5-0.5b");
  const auto copies = [&](SftLossForm form) {
    RunSpec run =
        resolve(model,
                {.batch_size = 4, .sequence_length = 64, .precision = Precision::kAmpBf16, .loop = Loop::kTrlSft})
            .run;
    run.profile.behaviors.sft_loss = form;
    const SymbolicRun symbolic = run_symbolically(model, run, registry().device("h200-sxm"));
    constexpr Bytes kShifted = Bytes{4} * 63 * 151936 * 4;
    std::int64_t found = 0;
    for (const Event& event : symbolic.trace.events) {
      if (event.kind != EventKind::kAllocate) continue;
      if (symbolic.trace.blocks[static_cast<std::size_t>(event.block)].requested == kShifted) ++found;
    }
    return found;
  };
  const std::int64_t once = copies(SftLossForm::kLogits);
  EXPECT_GE(once, 1);
  EXPECT_EQ(copies(SftLossForm::kShiftedCopies), 2 * once);
  EXPECT_EQ(copies(SftLossForm::kShiftedViews), once);
}

TEST(Trl, CollatorsMakeTensorsOfLists) {
  constexpr std::int64_t kTokens = std::int64_t{4} * 64;
  const auto collated = [](RunOptions options) {
    return times_of(simulated(std::move(options)).symbolic, HostWork::kCollatedToken);
  };
  EXPECT_EQ(collated({.loop = Loop::kTrlSft}), kTokens);
  EXPECT_EQ(collated({.loop = Loop::kTrlSft, .accumulation_steps = 3}), 3 * kTokens);
  EXPECT_EQ(collated({.loop = Loop::kTrlReward}), 2 * kTokens) << "pairs";
  EXPECT_EQ(collated({.loop = Loop::kTrainer}), 0) << "tensors of one length";
  EXPECT_EQ(collated({.loop = Loop::kTrlSft, .dataloader_workers = 2}), 0) << "beside the step";
}

TEST(Trl, PeftWalksOverTheModelWhereTheReferenceIsTheModelWithoutAdapters) {
  const auto toggled = [](RunOptions options) {
    options.completion_length = 32;
    return times_of(simulated(std::move(options)).symbolic, HostWork::kToggledModule);
  };
  constexpr std::int64_t kModules = 24 * 7;  // layers, and adapted in each
  EXPECT_EQ(toggled({.loop = Loop::kTrlDpo, .lora_rank = 8}), kModules);
  EXPECT_EQ(toggled({.loop = Loop::kTrlKto, .lora_rank = 8}), kModules) << "once for both of its passes";
  EXPECT_EQ(toggled({.loop = Loop::kTrlDpo, .reference = Reference::kPrecomputed, .lora_rank = 8}), 0);
  EXPECT_EQ(toggled({.loop = Loop::kTrlDpo}), 0) << "a second model";
}

TEST(Trl, TheReferenceIsASecondModelThatIsCountedOnItsOwn) {
  const SymbolicRun without = simulated({.loop = Loop::kTrlDpo, .reference = Reference::kPrecomputed}).symbolic;
  const SymbolicRun with = simulated({.loop = Loop::kTrlDpo}).symbolic;
  const Bytes weights = 494'032'768 * Bytes{4};
  EXPECT_EQ(without.reference_bytes, 0);
  EXPECT_EQ(with.reference_bytes, weights);
  const Bytes more = asked_for(with.trace, Category::kWeights) - asked_for(without.trace, Category::kWeights);
  const Bytes head = 151936 * Bytes{896} * 4;  // of its own, until it is tied to the embedding
  EXPECT_GE(more, weights + head);
  EXPECT_LT(more, weights + head + (1 << 20)) << "buffers of rotary embeddings";
  EXPECT_EQ(with.parameters.size(), without.parameters.size()) << "the optimizer has those of one model";
}

TEST(Trl, AdaptersNeedNoSecondModel) {
  const Simulated dpo = simulated({.loop = Loop::kTrlDpo, .lora_rank = 8});
  EXPECT_EQ(dpo.run.training().reference, Reference::kAdapters);
  EXPECT_EQ(dpo.symbolic.reference_bytes, 0);
}

TEST(Trl, GrpoGeneratesItsCompletionsWithAKeyValueCacheAndHasNoReference) {
  const Simulated grpo = simulated({.loop = Loop::kTrlGrpo, .completion_length = 16});
  EXPECT_EQ(grpo.run.training().reference, Reference::kNone);
  EXPECT_TRUE(has_phase(grpo.symbolic.trace, Phase::kDecode));
  EXPECT_GT(asked_for(grpo.symbolic.trace, Category::kKeyValueCache), 0);
  EXPECT_FALSE(has_phase(simulated({.loop = Loop::kTrlSft}).symbolic.trace, Phase::kDecode));
}

TEST(Trl, TheReportHasAPeakOfDecodingAndItsTimeIsTheForwardPasss) {
  const ModelSpec& model = registry().model("qwen2.5-0.5b");
  const auto report = [&](Loop loop) {
    return estimate(model,
                    resolve(model, {.batch_size = 4, .sequence_length = 64, .loop = loop, .completion_length = 16}),
                    registry().device("h200-sxm"));
  };
  const Report grpo = report(Loop::kTrlGrpo), dpo = report(Loop::kTrlDpo);
  EXPECT_GT(grpo.memory.phase_peaks[static_cast<std::size_t>(Phase::kDecode)], 0);
  EXPECT_GT(grpo.time->step.forward_seconds, 3 * dpo.time->step.forward_seconds);
  EXPECT_LT(grpo.time->step.optimizer_seconds, 1.5 * dpo.time->step.optimizer_seconds);
}

TEST(Trl, AllCompletionsOfAStepAreGeneratedAtOnce) {
  const auto cache = [](std::int64_t accumulation) {
    const Simulated grpo = simulated(
        {.batch_size = 2, .loop = Loop::kTrlGrpo, .accumulation_steps = accumulation, .completion_length = 8});
    return asked_for(grpo.symbolic.trace, Category::kKeyValueCache);
  };
  EXPECT_EQ(cache(4), 4 * cache(1));
}

/// Steps in which tokens are generated.
std::set<int> generating_steps(RunOptions options) {
  options.batch_size = 2;
  options.completion_length = 8;
  const Trace trace = simulated(std::move(options)).symbolic.trace;
  std::set<int> steps;
  for (const Event& event : trace.events) {
    if (event.phase == Phase::kDecode) steps.insert(event.step);
  }
  return steps;
}

TEST(Trl, AGenerationLastsForAsManyMicroBatchesAsItIsAskedFor) {
  using Steps = std::set<int>;
  EXPECT_EQ(generating_steps({.loop = Loop::kTrlGrpo}), (Steps{0, 1, 2}));
  EXPECT_EQ(generating_steps({.loop = Loop::kTrlGrpo, .iterations = 2}), (Steps{0, 2}));
  EXPECT_EQ(generating_steps({.loop = Loop::kTrlRloo, .steps_per_generation = 8}), (Steps{0, 2})) << "others left out";
  EXPECT_EQ(generating_steps({.loop = Loop::kTrlGrpo, .accumulation_steps = 4, .steps_per_generation = 2}),
            (Steps{0, 1, 2}));
  EXPECT_EQ(generating_steps({.loop = Loop::kTrlGrpo, .accumulation_steps = 2, .steps_per_generation = 3}),
            (Steps{0, 1, 3, 4}))
      << "of every third micro-batch";
}

Report report_of(RunOptions options) {
  const ModelSpec& model = registry().model("qwen2.5-0.5b");
  options.batch_size = 2;
  options.sequence_length = 64;
  options.completion_length = 8;
  return estimate(model, resolve(model, options), registry().device("h200-sxm"));
}

TEST(Trl, TheTimeOfAStepIsTheMeanOfThoseThatAGenerationServes) {
  const Throughput once = *report_of({.loop = Loop::kTrlRloo}).time;
  EXPECT_EQ(once.generation_steps, 0);
  EXPECT_EQ(once.step.generating_step_seconds, 0) << "each generates";
  const Throughput fourth = *report_of({.loop = Loop::kTrlRloo, .iterations = 4}).time;
  EXPECT_EQ(fourth.generation_steps, 4);
  const StepTime& step = fourth.step;
  EXPECT_NEAR(step.generating_step_seconds, once.step.step_seconds, 0.01 * once.step.step_seconds);
  EXPECT_LT(step.other_step_seconds, step.generating_step_seconds / 2);
  EXPECT_NEAR(step.step_seconds, (step.generating_step_seconds + 3 * step.other_step_seconds) / 4, 1e-9);
  EXPECT_NEAR(fourth.samples_per_second, 2 / step.step_seconds, 1e-6);
}

TEST(Trl, AGenerationInTheMiddleOfAStep) {
  const Throughput three =
      *report_of({.loop = Loop::kTrlRloo, .accumulation_steps = 2, .steps_per_generation = 3}).time;
  EXPECT_EQ(three.generation_steps, 1.5);
  const StepTime& step = three.step;
  EXPECT_NEAR(step.step_seconds, (2 * step.generating_step_seconds + step.other_step_seconds) / 3, 1e-9);
  const Throughput twice =
      *report_of({.loop = Loop::kTrlRloo, .accumulation_steps = 4, .steps_per_generation = 2}).time;
  EXPECT_EQ(twice.step.generating_step_seconds, 0) << "each step has two";
}

TEST(Trl, EachMicroBatchOfOnlineDpoGenerates) {
  const auto seconds = [](std::int64_t accumulation) {
    const Report report = report_of({.loop = Loop::kTrlOnlineDpo, .accumulation_steps = accumulation, .lora_rank = 8});
    return report.time->step.forward_seconds + report.time->step.backward_seconds;
  };
  const double two = seconds(2), three = seconds(3), four = seconds(4);
  EXPECT_NEAR(four - three, three - two, 0.02 * three);
}

TEST(Trl, CompletionsOfAnEarlierModelAreScoredOnceMore) {
  // Of the forward passes of the first step: of each micro-batch one with gradients, before it one without.
  const auto requests = [](std::int64_t iterations) {
    const Trace trace =
        simulated({.loop = Loop::kTrlGrpo, .completion_length = 8, .iterations = iterations}).symbolic.trace;
    return std::count_if(trace.events.begin(), trace.events.end(), [](const Event& event) {
      return event.kind == EventKind::kAllocate && event.phase == Phase::kForward && event.step == 0;
    });
  };
  EXPECT_GT(requests(2), requests(1) * 5 / 4);
}

TEST(Trl, UnderZero3GenerationHasTheWholeModelAndNothingElseDoes) {
  const ModelSpec& model = registry().model("qwen2.5-0.5b");
  RunOptions options{.batch_size = 2, .sequence_length = 64, .loop = Loop::kTrlGrpo, .completion_length = 8};
  options.gpus = 4;
  options.data_parallel_given = true;
  options.parallel.data_parallel = DataParallel::kDsZero3;
  const RunSpec run = resolve(model, options).run;
  const SymbolicRun symbolic = run_symbolically(model, run, registry().device("h100-sxm"));
  std::vector<bool> live(symbolic.trace.blocks.size());
  Bytes gathered = 0, whole = 0, training = 0;
  for (const Event& event : symbolic.trace.events) {
    const auto block = static_cast<std::size_t>(event.block);
    const bool takes = event.kind == EventKind::kAllocate, gives = event.kind == EventKind::kFree;
    if ((takes || gives) && symbolic.trace.blocks[block].category == Category::kGatheredWeights &&
        takes != live[block]) {
      live[block] = takes;
      gathered += (takes ? 1 : -1) * symbolic.trace.blocks[block].requested;
    }
    if (event.phase == Phase::kDecode) whole = std::max(whole, gathered);
    if (event.phase == Phase::kBackward) training = std::max(training, gathered);
  }
  EXPECT_GE(whole, 494'032'768 * Bytes{2});
  EXPECT_LT(training, whole / 2 + 151936 * Bytes{896} * 2) << "a few layers and the head";
}

TEST(Trl, RlooComparesWithAReferenceOfItsOwn) {
  EXPECT_EQ(simulated({.loop = Loop::kTrlRloo}).run.training().reference, Reference::kModel);
  EXPECT_EQ(simulated({.loop = Loop::kTrlKto}).run.training().reference, Reference::kModel);
}

std::int64_t requests_of(const Trace& trace, Bytes bytes) {
  return std::count_if(trace.events.begin(), trace.events.end(), [&](const Event& event) {
    return event.kind == EventKind::kAllocate && event.step == 1 &&
           trace.blocks[static_cast<std::size_t>(event.block)].requested == bytes;
  });
}

constexpr Bytes kWords = 151936;  // of the model

TEST(Trl, OrpoHoldsTheLogitsOfBothAnswersInFloat32) {
  const Trace trace = simulated({.loop = Loop::kTrlOrpo, .completion_length = 16}).symbolic.trace;
  EXPECT_EQ(requests_of(trace, 8 * 64 * kWords * 4), 3) << "themselves, the gradients of both losses";
  EXPECT_EQ(requests_of(trace, 8 * 63 * kWords * 4), 1) << "the gradient of the answers' log-probabilities";
  EXPECT_EQ(requests_of(trace, 4 * 63 * kWords * 4), 4)
      << "the chosen answers', their log_softmax, the gradients of both";
  EXPECT_EQ(requests_of(trace, 4 * 48 * 8), 2) << "the prompts and their mask, which nobody reads";
}

TEST(Trl, OnlineDpoKeepsTheLogitsOfCompletionsAlone) {
  const Trace trace = simulated({.batch_size = 2, .loop = Loop::kTrlOnlineDpo, .completion_length = 16}).symbolic.trace;
  EXPECT_EQ(requests_of(trace, 4 * 64 * kWords * 4), 3) << "of the model, of the reference, and a gradient";
  EXPECT_TRUE(has_phase(trace, Phase::kDecode));
}

TEST(Trl, OnlineDpoGeneratesWithoutACacheWhereLayersAreCheckpointed) {
  const auto cache = [](Checkpointing checkpointing) {
    const Simulated run =
        simulated({.loop = Loop::kTrlOnlineDpo, .checkpointing = checkpointing, .completion_length = 40});
    return asked_for(run.symbolic.trace, Category::kKeyValueCache);
  };
  EXPECT_EQ(cache(Checkpointing::kFull), 0);
  EXPECT_GT(cache(Checkpointing::kNone), 0);
}

TEST(Trl, OnlineDpoGeneratesForEachMicroBatchByItself) {
  const auto cache = [](std::int64_t accumulation) {
    const Simulated run = simulated({.batch_size = 2,
                                     .loop = Loop::kTrlOnlineDpo,
                                     .checkpointing = Checkpointing::kNone,
                                     .accumulation_steps = accumulation,
                                     .completion_length = 8});
    return asked_for(run.symbolic.trace, Category::kKeyValueCache);
  };
  EXPECT_EQ(cache(3), 3 * cache(1));
}

TEST(Trl, DropoutIsSwitchedOffWhereItIsAModule) {
  const auto dropout = [](const char* model, Loop loop) {
    return resolve(registry().model(model), {.batch_size = 2, .sequence_length = 64, .loop = loop}).run.dropout;
  };
  EXPECT_EQ(dropout("gpt2", Loop::kTrlDpo), 0);
  EXPECT_EQ(dropout("opt-125m", Loop::kTrlDpo), std::nullopt) << "a function, which no module switches off";
  EXPECT_EQ(dropout("gpt2", Loop::kTrlGrpo), std::nullopt);
}

std::int64_t gathers(const RunOptions& options) {
  const SymbolicRun symbolic = simulated(options).symbolic;
  return std::count_if(symbolic.kernels.begin(), symbolic.kernels.end(), [](const Kernel& kernel) {
    const auto* moved = std::get_if<work::Communication>(&kernel.work);
    return moved != nullptr && moved->kind == Collective::kAllGather;
  });
}

TEST(Trl, OnSeveralGpusWhatIsLoggedIsGatheredFromAllProcesses) {
  RunOptions sft{.loop = Loop::kTrlSft};
  EXPECT_EQ(gathers(sft), 0);
  sft.gpus = 2;
  sft.parallel.data_parallel = DataParallel::kDdp;
  // The labels' count before the step; tokens, entropy, correct ones and the tokens of the mask in it.
  EXPECT_EQ(gathers(sft), 5);
}

TEST(Trl, AReferenceIsReadWhereTheTrainerReadsIt) {
  EXPECT_EQ(simulated({.loop = Loop::kTrlDpo}).symbolic.warm_up, kNoBlock);
  EXPECT_NE(simulated({.loop = Loop::kTrlDpo, .loading = ModelLoading::kDeviceMap}).symbolic.warm_up, kNoBlock);
  EXPECT_NE(
      simulated({.loop = Loop::kTrlGrpo, .completion_length = 8, .reference = Reference::kModel}).symbolic.warm_up,
      kNoBlock);
}

// Before trl 1.16 a reference that is read beside a model object is float32, whatever that is.
TEST(Trl, AReferenceHadADtypeOfItsOwn) {
  const ModelSpec& model = registry().model("qwen2.5-0.5b");
  const auto reference_bytes = [&](Loop loop, ModelLoading loading, bool is_as_policy) {
    RunOptions options{.batch_size = 2, .sequence_length = 64, .loop = loop, .loading = loading};
    options.reference = Reference::kModel;
    options.weights_dtype = DType::kBFloat16;
    options.completion_length = 8;
    RunSpec run = resolve(model, options).run;
    run.profile.behaviors.reference_is_as_policy = is_as_policy;
    return run_symbolically(model, run, registry().device("h200-sxm")).reference_bytes;
  };
  constexpr Bytes kParameters = 494'032'768;
  EXPECT_EQ(reference_bytes(Loop::kTrlGrpo, ModelLoading::kHost, true), kParameters * 2);
  EXPECT_EQ(reference_bytes(Loop::kTrlGrpo, ModelLoading::kHost, false), kParameters * 4);
  EXPECT_EQ(reference_bytes(Loop::kTrlDpo, ModelLoading::kDeviceMap, false), kParameters * 4);
  EXPECT_EQ(reference_bytes(Loop::kTrlDpo, ModelLoading::kConfig, false), kParameters * 2) << "given to the trainer";
}

// trl 1.6 to 1.13: selective_log_softmax takes float32 logits a sequence at a time, and keeps the logits.
TEST(Trl, LogitsOfAnswersWereHeld) {
  const ModelSpec& model = registry().model("qwen2.5-0.5b");
  const auto trace_of = [&](Loop loop, std::int64_t batch) {
    RunOptions options{.batch_size = batch, .sequence_length = 64, .precision = Precision::kAmpBf16, .loop = loop};
    options.completion_length = 16;
    RunSpec run = resolve(model, options).run;
    run.profile.behaviors.preference_scores = PreferenceScores::kLogits;
    return run_symbolically(model, run, registry().device("h200-sxm")).trace;
  };
  EXPECT_EQ(requests_of(trace_of(Loop::kTrlKto, 8), 8 * 64 * kWords * 4), 5)
      << "of others' answers twice, of the policy, of the reference, the slice's gradient";
  EXPECT_EQ(requests_of(trace_of(Loop::kTrlOrpo, 4), 63 * kWords * 4), 8 + 3 * 8) << "without a reference";
  const Trace trace = trace_of(Loop::kTrlDpo, 4);
  EXPECT_EQ(requests_of(trace, 8 * 64 * kWords * 4), 3) << "of the policy, of the reference, the slice's gradient";
  EXPECT_EQ(requests_of(trace, 8 * 63 * kWords * 4), 3) << "a copy for the entropy, the stack, the zeros of gather";
  EXPECT_EQ(requests_of(trace, 63 * kWords * 4), 2 * 8 + 3 * 8) << "exponentials of both, and of each sequence three";
  EXPECT_EQ(requests_of(trace, 128 * kWords * 4), 3 * 3) << "of 504 rows of the entropy all but the last 120";
}

TEST(Trl, OnlyAnAnswersTokensGoThroughTheHeadOfSft) {
  const auto peak = [](RunOptions options) {
    options.loop = Loop::kTrlSft;
    options.batch_size = 64;
    return simulated(options).symbolic.trace;
  };
  const auto most = [](const Trace& trace) {  // numbers of tokens by words
    Bytes largest = 0;
    for (const Event& event : trace.events) {
      const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
      if (event.kind == EventKind::kAllocate && event.phase == Phase::kForward) {
        largest = std::max(largest, block.requested);
      }
    }
    return largest;
  };
  const Bytes all = most(peak({})), answers = most(peak({.completion_length = 16}));
  EXPECT_EQ(all, 64 * 63 * Bytes{32768} * 2);
  EXPECT_EQ(answers, 64 * 16 * Bytes{32768} * 2);
}

TEST(Trl, DftWeighsEachTokenByItsProbability) {
  const auto allocations = [](SftLoss loss) {
    const Trace trace = simulated({.loop = Loop::kTrlSft, .sft_loss = loss}).symbolic.trace;
    return std::count_if(trace.events.begin(), trace.events.end(), [&](const Event& event) {
      const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
      return event.kind == EventKind::kAllocate && block.requested == 4 * 63 * 4;
    });
  };
  EXPECT_GT(allocations(SftLoss::kDft), allocations(SftLoss::kNll));
}

TEST(Trl, KtoWithoutAKlDivergenceRunsNoSecondAnswer) {
  const auto forwards = [](KtoLoss loss) {
    const Simulated job = simulated({.loop = Loop::kTrlKto, .kto_loss = loss, .reference = Reference::kPrecomputed});
    return asked_for(job.symbolic.trace, Category::kInputs);
  };
  EXPECT_LT(forwards(KtoLoss::kApoZeroUnpaired), forwards(KtoLoss::kKto));
  EXPECT_NO_THROW((void)simulated({.batch_size = 1, .loop = Loop::kTrlKto, .kto_loss = KtoLoss::kApoZeroUnpaired}));
}

// Requests of an autograd node in a step; [:, -seq_len:] of all tokens is a slice to autograd, too.
std::int64_t requests_of_node(const Trace& trace, std::string_view node) {
  return std::count_if(trace.events.begin(), trace.events.end(), [&](const Event& event) {
    return event.kind == EventKind::kAllocate && event.step == 1 && event.node != nullptr && event.node->name == node;
  });
}

TEST(Trl, BackwardOfPreferencesNegatesAndSlices) {
  const auto requests = [](Loop loop, std::optional<KtoLoss> kto, std::string_view node) {
    return requests_of_node(simulated({.loop = loop, .kto_loss = kto}).symbolic.trace, node);
  };
  EXPECT_EQ(requests(Loop::kTrlKto, KtoLoss::kKto, "RsubBackward1"), 2) << "1 - chosen, 1 - rejected";
  EXPECT_EQ(requests(Loop::kTrlKto, KtoLoss::kKto, "SubBackward0"), 1) << "kl - rejected";
  EXPECT_EQ(requests(Loop::kTrlKto, KtoLoss::kApoZeroUnpaired, "RsubBackward1"), 1) << "1 - chosen";
  EXPECT_EQ(requests(Loop::kTrlKto, KtoLoss::kKto, "NansumBackward0"), 3) << "losses.nanmean()";
  const std::int64_t slices = requests(Loop::kTrlSft, {}, "SliceBackward0");
  for (const Loop loop : {Loop::kTrlKto, Loop::kTrlDpo}) {
    EXPECT_EQ(requests(loop, {}, "SliceBackward0") - slices, 1) << "outputs.log_probs[:, -seq_len:]";
  }
}

// Distributions.cpp: a sum of probabilities is of their type, and what is not finite is looked for on the card.
TEST(Trl, SamplingAsksForNoIntegersAsLargeAsTheProbabilities) {
  const Simulated job = simulated({.loop = Loop::kTrlGrpo, .completion_length = 8});
  const Trace& trace = job.symbolic.trace;
  const auto is_eight_bytes_wide = [&](const Event& event) {
    return event.kind == EventKind::kAllocate && event.phase == Phase::kDecode &&
           trace.blocks[static_cast<std::size_t>(event.block)].requested == 151936 * Bytes{4} * 8;
  };
  EXPECT_TRUE(std::none_of(trace.events.begin(), trace.events.end(), is_eight_bytes_wide));
}

// LLaMA-Factory's trainers: float32 logits of every token.
TEST(Trl, WholeLogitsAreHeldBesideTheirSoftmax) {
  constexpr Bytes kLogits = Bytes{8} * 64 * 151936 * 4;  // of four pairs
  const auto logits_alive = [](Loop loop, std::int64_t rows) {
    const Trace trace =
        simulated(
            {.batch_size = rows, .loop = loop, .whole_logits = true, .reference = Reference::kAdapters, .lora_rank = 8})
            .symbolic.trace;
    Bytes alive = 0, most = 0;
    for (const Event& event : trace.events) {
      if (!event.moves_block()) continue;
      const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
      if (block.requested < kLogits * 63 / 64 || block.category == Category::kWeights) continue;
      alive += event.kind == EventKind::kAllocate ? block.requested : -block.requested;
      most = std::max(most, alive);
    }
    return static_cast<double>(most) / static_cast<double>(kLogits);
  };
  // Of DPO the policy's logits and their softmax, the reference's, and the copy of a slice that the softmax's kernel
  // makes; KTO holds the samples' while it runs the others' answers.
  EXPECT_NEAR(logits_alive(Loop::kTrlDpo, 4), 2 + 3 * 63.0 / 64, 0.01);
  EXPECT_NEAR(logits_alive(Loop::kTrlKto, 8), 2 + 3 * 63.0 / 64, 0.01);
}

// trl 1.16, add_fused_lm_head: every layer's router logits are held until the loss has them.
TEST(Trl, OfMixturesOfExpertsEveryLayersRouterLogitsAreKept) {
  const auto held = [](Loop loop, bool balances, Checkpointing checkpointing) {
    ModelSpec model = registry().model("qwen3-30b-a3b");
    set_layers(model, 3);
    RunOptions options{.batch_size = 2, .sequence_length = 250, .loop = loop};
    options.checkpointing = checkpointing;
    (loop == Loop::kTrainer ? options.router_loss : options.no_router_loss) = (loop == Loop::kTrainer) == balances;
    const RunSpec run = resolve(model, options).run;
    const SymbolicRun job = run_symbolically(model, run, registry().device("h200-sxm"));
    const Trace& trace = job.trace;
    std::vector<std::size_t> open;
    std::size_t most = 0;
    for (const Event& event : trace.events) {
      if (!event.moves_block()) continue;
      const auto block = static_cast<std::size_t>(event.block);
      if (trace.blocks[block].requested != 2 * 250 * 128 * 2 || event.phase != Phase::kForward) continue;
      if (event.kind == EventKind::kAllocate) open.push_back(block);
      if (event.kind == EventKind::kFree) std::erase(open, block);
      most = std::max(most, open.size());
    }
    return most;
  };
  // Beside them rotary embeddings are as large, and for a while other tensors of a layer.
  for (const Loop loop : {Loop::kTrlSft, Loop::kTrainer}) {  // the Trainer: config.output_router_logits
    EXPECT_GT(held(loop, true, Checkpointing::kFull), held(loop, false, Checkpointing::kFull));
    EXPECT_GT(held(loop, true, Checkpointing::kNone), held(loop, false, Checkpointing::kNone));
  }
}

/// Rank 0 of two.
Simulated on_two(RunOptions options, DataParallel mode) {
  options.gpus = 2;
  options.parallel.data_parallel = mode;
  return simulated(options);
}

TEST(Trl, Fsdp2AndZero3ShareTheReferenceOut) {
  const RunOptions dpo{.loop = Loop::kTrlDpo};
  const Bytes elements = 494'032'768;
  EXPECT_EQ(on_two(dpo, DataParallel::kDdp).symbolic.reference_bytes, elements * 4);
  EXPECT_EQ(on_two(dpo, DataParallel::kFsdp2).symbolic.reference_bytes, elements / 2 * 4) << "as it was loaded";
  EXPECT_EQ(on_two(dpo, DataParallel::kDsZero2).symbolic.reference_bytes, elements * 2) << "whole, in DeepSpeed's type";
  const SymbolicRun zero3 = on_two(dpo, DataParallel::kDsZero3).symbolic;
  const SymbolicRun without = on_two({.loop = Loop::kTrlSft}, DataParallel::kDsZero3).symbolic;
  EXPECT_EQ(zero3.parameters.size(), without.parameters.size()) << "the optimizer has those of one model";
}

TEST(Trl, Fsdp1SharesTheReferenceOutByLayers) {
  const SymbolicRun own = on_two({.loop = Loop::kTrlDpo}, DataParallel::kFsdp1).symbolic;
  const SymbolicRun none =
      on_two({.loop = Loop::kTrlDpo, .reference = Reference::kPrecomputed}, DataParallel::kFsdp1).symbolic;
  const Bytes half = 494'032'768 / 2 * Bytes{4};
  EXPECT_GE(own.reference_bytes, half);
  EXPECT_LT(own.reference_bytes, half + (1 << 16)) << "flat parameters are aligned";
  const auto gathered = [](const SymbolicRun& run) { return asked_for(run.trace, Category::kGatheredWeights); };
  EXPECT_EQ(own.parameters.size(), none.parameters.size());
  EXPECT_GT(gathered(own), 0);
}

TEST(Trl, UnderFsdpAReferenceStaysInTheTypeInWhichItWasLoaded) {
  RunOptions options{.loop = Loop::kTrlDpo};
  options.weights_dtype = DType::kBFloat16;
  const Simulated half = on_two(options, DataParallel::kFsdp2);
  EXPECT_EQ(half.symbolic.reference_bytes, 494'032'768 / 2 * Bytes{2});
  EXPECT_EQ(half.run.weights_dtype, DType::kFloat32) << "of the model that trains";
}

/// Of what is gathered the most at a time, while a model generates, and in backward.
std::pair<Bytes, Bytes> most_gathered(const Trace& trace) {
  std::vector<bool> live(trace.blocks.size());
  Bytes now = 0, decode = 0, backward = 0;
  for (const Event& event : trace.events) {
    const auto block = static_cast<std::size_t>(event.block);
    const bool takes = event.kind == EventKind::kAllocate, gives = event.kind == EventKind::kFree;
    if ((takes || gives) && trace.blocks[block].category == Category::kGatheredWeights && takes != live[block]) {
      live[block] = takes;
      now += (takes ? 1 : -1) * trace.blocks[block].requested;
    }
    if (event.phase == Phase::kDecode) decode = std::max(decode, now);
    if (event.phase == Phase::kBackward) backward = std::max(backward, now);
  }
  return {decode, backward};
}

TEST(Trl, OnlineDpoGathersALayerAtATimeToGenerateUnderFsdp2) {
  const Bytes whole = 494'032'768 * Bytes{2}, head = 151936 * Bytes{896} * 2;
  const auto fsdp2 =
      most_gathered(on_two({.loop = Loop::kTrlOnlineDpo, .completion_length = 8}, DataParallel::kFsdp2).symbolic.trace);
  EXPECT_GE(fsdp2.first, head);
  EXPECT_LT(fsdp2.first, whole);
}

TEST(Trl, OfARewardModelUnderFsdp2TheRootHasTheClassifier) {
  const Simulated reward = on_two({.batch_size = 2, .loop = Loop::kTrlReward}, DataParallel::kFsdp2);
  const Bytes embedding = 151936 * Bytes{896} * 2;
  const auto [decode, backward] = most_gathered(reward.symbolic.trace);
  EXPECT_EQ(decode, 0);
  EXPECT_GE(backward, embedding);
}

/// An evaluation in the middle of the training, of trainers that generate.
TEST(Trl, AnEvaluationGeneratesItsCompletions) {
  const auto run = [](std::optional<std::int64_t> batch) {
    RunOptions options{.loop = Loop::kTrlGrpo, .completion_length = 8};
    options.batch_size = 2;
    options.eval_batch_size = batch;
    if (batch) options.eval_samples = 2 * *batch + 1;
    return simulated(options).symbolic.trace;
  };
  const auto caches = [](const Trace& trace) { return asked_for(trace, Category::kKeyValueCache); };
  const Trace without = run({}), two = run(2), eight = run(8);
  EXPECT_FALSE(has_phase(without, Phase::kEvaluation));
  EXPECT_TRUE(has_phase(two, Phase::kEvaluation));
  const Bytes of_row = caches(without) / 6;  // two rows in each of three steps
  EXPECT_EQ(caches(two) - caches(without), 5 * of_row);
  EXPECT_EQ(caches(eight) - caches(without), 17 * of_row);
}

/// The largest requests of a kind.
Bytes largest_asked_for(const Trace& trace, Category category) {
  Bytes most = 0;
  for (const Event& event : trace.events) {
    if (event.kind != EventKind::kAllocate) continue;
    const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
    if (block.category == category) most = std::max(most, block.requested);
  }
  return most;
}

/// cast_lm_head_to_fp32: the tied weight, of 136,134,656 numbers, becomes float32 with its gradient and its moments.
TEST(Trl, AFloat32HeadIsHeldAndMultipliedInFloat32) {
  const auto run = [](bool casts) {
    RunOptions options{.loop = Loop::kTrlGrpo, .completion_length = 8};
    options.weights_dtype = DType::kBFloat16;
    options.float32_head = casts;
    return simulated(options).symbolic;
  };
  const SymbolicRun plain = run(false), cast = run(true);
  std::set<DType> dtypes;
  for (const ParameterInfo& each : cast.parameters) {
    EXPECT_EQ(each.dtype == DType::kFloat32, each.is_embedding) << each.name;
    dtypes.insert(each.dtype);
  }
  EXPECT_EQ(dtypes.size(), 2U);
  EXPECT_GT(asked_for(cast.trace, Category::kWeights), asked_for(plain.trace, Category::kWeights));
  const auto products_of_vocabulary = [](const SymbolicRun& of, DType dtype) {
    return std::count_if(of.kernels.begin(), of.kernels.end(), [&](const Kernel& kernel) {
      const auto* product = kernel.as<work::Product>();
      return product != nullptr && kernel.dtype == dtype && kernel.phase == Phase::kBackward && product->n == 32768;
    });
  };
  EXPECT_EQ(products_of_vocabulary(plain, DType::kFloat32), 0);
  EXPECT_GT(products_of_vocabulary(cast, DType::kFloat32), 0);
}

TEST(Trl, TheHeadIsGatheredWholeAlthoughItIsNotCalled) {
  const Bytes head = 151936 * Bytes{896} * 2;
  for (const DataParallel mode : {DataParallel::kFsdp2, DataParallel::kDsZero3}) {
    const SymbolicRun run = on_two({.loop = Loop::kTrlSft}, mode).symbolic;
    EXPECT_EQ(largest_asked_for(run.trace, Category::kGatheredWeights), head);
  }
}

// A LLaMA's attention and MLP, and what peft puts around each adapted product.
TEST(ModuleWalks, ModulesOfAWalkAreThoseOfTheNamesAndOfAdapters) {
  std::vector<Parameter> parameters;
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.up_proj.weight",
        "model.layers.1.self_attn.q_proj.weight", "model.layers.1.mlp.up_proj.weight", "model.norm.weight"}) {
    parameters.push_back({.name = name});
  }
  const ModuleCount base = count_modules(parameters);
  EXPECT_EQ(base.all, 15 * 6 / 5);  // itself, model, embed_tokens, layers, two of five each, norm
  parameters.insert(parameters.begin() + 2, {{.name = "model.layers.0.self_attn.q_proj.lora_A.default.weight"},
                                             {.name = "model.layers.0.self_attn.q_proj.lora_B.default.weight"}});
  const ModuleCount adapted = count_modules(parameters);
  EXPECT_EQ(adapted.all, base.all + 10);
  EXPECT_EQ(adapted.adapted, 1);
  EXPECT_EQ(adapted.of_adapters, 10);
}

}  // namespace
}  // namespace memcalc
