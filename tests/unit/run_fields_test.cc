// spec/run_fields, spec/run_record, spec/run_request: the table of a run, how its rows are read and written, and that
// an option which does not exist in a run is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_fields.h"
#include "memcalc/spec/run_record.h"
#include "memcalc/spec/value_names.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

using Words = std::vector<std::string>;
using test::question_of;
using test::request_of;
using ::testing::HasSubstr;

std::string refusal_of(const Words& words) {
  try {
    (void)question_of(words);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "";
}

std::string rule_of(const Words& words) {
  try {
    (void)question_of(words);
  } catch (const Error& error) {
    return error.rule();
  }
  return "";
}

// --- the rows ---

TEST(RunFields, HaveNamesOfTheirOwnAndOneLineOfHelp) {
  std::set<std::string_view> flags, keys;
  for (const Field& field : run_fields()) {
    SCOPED_TRACE(std::string(field.flag));
    EXPECT_TRUE(flags.insert(field.flag).second);
    EXPECT_TRUE(keys.insert(field.key).second);
    std::string_view line = field.help;
    for (std::size_t end = 0; end != std::string_view::npos; line.remove_prefix(std::min(end + 1, line.size()))) {
      end = line.find('\n');
      std::size_t letters = 0;
      for (const char c : line.substr(0, end)) letters += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
      EXPECT_LE(letters, 56U);
      if (end == std::string_view::npos) break;
    }
    EXPECT_NE(field.set, nullptr);
    EXPECT_NE(field.get, nullptr);
    EXPECT_EQ(field.type == FieldType::kFlag, field.value.empty());
    EXPECT_EQ(field.exists == nullptr, field.belongs_to.empty()) << "what it belongs to";
    EXPECT_EQ(field.type == FieldType::kName, field.type == FieldType::kName && !field.names.empty());
  }
}

TEST(RunFields, AreFoundByFlagKeyAndTheFlagWithoutDashes) {
  const Field* batch = find_field("--bs");
  ASSERT_NE(batch, nullptr);
  for (const char* name : {"batch_size", "bs"}) EXPECT_EQ(find_field(name), batch);
  EXPECT_EQ(find_field("--no-tie"), find_field("tie"));
  EXPECT_EQ(find_field("target_seq"), find_field("--target-seq"));
  EXPECT_EQ(find_field("swiglu"), nullptr) << "stands in --megatron's list";
  EXPECT_EQ(find_field("--batch"), nullptr);
}

// --- reading ---

struct BadValue {
  const char* flag;
  const char* text;
  const char* says;
};

TEST(RunFields, RefuseAValueInOneLineThatSaysWhatIsAccepted) {
  for (const auto& [flag, text, says] : std::vector<BadValue>{
           {"--bs", "0", "--bs: expected a whole number of 1 or more, found '0'"},
           {"--bs", "1e3", "found '1e3'"},
           {"--bs", "99999999999999999999", "found '99999999999999999999'"},
           {"--accum", "65537", "--accum: expected a whole number from 1 to 65536, found '65537'"},
           {"--dropout", "1", "a number from 0 to less than 1, found '1'"},
           {"--clip-grad", "nan", "--clip-grad: expected a number of 0 or more, found 'nan'"},
           {"--storage-rate", "inf", "a number above 0, found 'inf'"},
           {"--tokens", "1e30", "--tokens: expected a number from 1 to"},
           {"--memory", "24GB", "--memory: expected a number from 0.0625 to 1048576, in GiB, found '24GB'"},
           {"--precision", "bf-16", "did you mean 'bf16'"},
           {"--optimizer", "adamx", "did you mean"},
           {"--checkpointing", "every-0", "one of none, full, selective, every-N, found 'every-0'"},
           {"--bitsandbytes", "0.38", "a version from 0.39.0"},
           {"--lora-targets", "a,,b", "names between commas"},
           {"--stage-layers", "4,0", "whole numbers between commas, found '4,0'"},
           {"--fp16", "yes", "--fp16: expected no value, found 'yes'"},
           {"--layers", "2001", "--layers: expected a whole number from 1 to 2000, found '2001'"},
           {"--gpus", "131073", "--gpus: expected a whole number from 1 to 131072, found '131073'"},
           {"--megatron", "use-megatron-fsdp", "unknown name 'use-megatron-fsdp'"},
           {"--megatron", "atention-backend=fused", "did you mean 'attention-backend'"},
           {"--megatron", "make-vocab-size-divisible-by", "a whole number from 1 to 1048576, found nothing"},
           {"--megatron", "swiglu=yes", "no value, true or false, found 'yes'"},
           {"--megatron", "hidden-dropout=0.1x", "from 0 to less than 1"},
           {"--megatron", "rotary-percent=1.5", "up to 1, found '1.5'"},
           {"--megatron", "normalization=Batch", "one of LayerNorm, RMSNorm"},
           {"--deepspeed", "reduce_bucket=5e8", "did you mean 'reduce_bucket_size'"},
           {"--deepspeed", "reduce_bucket_size", "found nothing"},
           {"--deepspeed", "reduce_bucket_size=5.5", "a whole number from 1 to"},
           {"--deepspeed", "reduce_bucket_size=1e99", "a whole number from 1 to"},
           {"--deepspeed", "overlap_comm=yes", "true or false"},
       }) {
    try {
      RunRequest request;
      set_option(request, flag, text);
      ADD_FAILURE() << flag << " " << text << " is taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      const std::string message = error.what();
      EXPECT_NE(message.find(says), std::string::npos) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      EXPECT_TRUE(error.part().starts_with(flag)) << error.part();
    }
  }
}

TEST(RunFields, ReadNumbersAsPeopleWriteThem) {
  const RunRequest request = request_of({"--tokens", "1.5T", "--clip-grad", "--checkpointing", "every-4",
                                         "--lora-targets", "all-linear", "--no-tie", "--optimizer", "adamw_torch"});
  EXPECT_EQ(request.time.tokens, 1.5e12);
  EXPECT_EQ(request.run.max_grad_norm, 1.0);
  EXPECT_EQ(request.run.checkpointing, Checkpointing::kFull);
  EXPECT_EQ(request.run.checkpoint_every, 4);
  EXPECT_TRUE(request.run.lora_targets.empty());
  EXPECT_EQ(request.changes.tie, false);
  EXPECT_EQ(request.run.optimizer, Optimizer::kAdamWForeach);
}

TEST(RunFields, ReadMegatronsAndDeepSpeedsOwnNames) {
  const RunRequest request = request_of(
      {"--megatron",
       "attention-backend=unfused,cross-entropy-loss-fusion,cross-entropy-fusion-impl=te,"
       "no-gradient-accumulation-fusion,moe-expert-capacity-factor=1.25,decoder-last-pipeline-num-layers=3,"
       "normalization=RMSNorm,hidden-dropout=0.1,account-for-embedding-in-pipeline-split,wgrad-deferral-limit=0,"
       "rotary-percent=0.5,squared-relu,no-rope-fusion,apply-layernorm-1p,swiglu=false",
       "--deepspeed", "reduce_bucket_size=5e7,overlap_comm=true,stage3_prefetch_bucket_size=0"});
  const MegatronLayout& o = request.run.megatron;
  EXPECT_EQ(o.attention, MegatronAttention::kUnfused);
  EXPECT_EQ(o.loss, MegatronLoss::kTe);
  EXPECT_FALSE(o.fuses_weight_gradients);
  EXPECT_EQ(o.expert_capacity, 1.25);
  EXPECT_EQ(o.last_stage_layers, 3);
  EXPECT_EQ(o.rms_norm, true);
  EXPECT_EQ(o.hidden_dropout, 0.1);
  EXPECT_TRUE(o.counts_embedding && !o.counts_loss && o.squared_relu && !o.fuses_rope);
  EXPECT_EQ(o.rotary_percent, 0.5);
  EXPECT_EQ(o.swiglu, false);
  EXPECT_EQ(request.run.deepspeed_sizes.reduce_bucket_size, 50'000'000);
  EXPECT_EQ(request.run.deepspeed.overlap_comm, true);
  EXPECT_EQ(request.run.deepspeed_sizes.prefetch_bucket_size, 0);
}

TEST(RunFields, ReadWhichEngineMegatronRanWith) {
  const MegatronLayout o = request_of({"--megatron",
                                       "transformer-engine=1.2,deterministic-mode,max-position-embeddings=64,"
                                       "no-masked-softmax-fusion,attention-softmax-in-fp32,no-persist-layer-norm"})
                               .run.megatron;
  EXPECT_TRUE(o.engine_1_2 && o.deterministic && !o.fuses_softmax && o.softmax_in_float32);
  EXPECT_EQ(o.max_positions, 64);
  EXPECT_FALSE(request_of({"--megatron", "transformer-engine=2.11"}).run.megatron.engine_1_2);
}

TEST(RunFields, LocalLayersOfMegatronHaveAnAttentionOfTheirOwn) {
  for (const char* list :
       {"transformer-impl=local,attention-backend=unfused", "transformer-impl=local,attention-backend=flash"}) {
    EXPECT_EQ(request_of({"--megatron", list}).run.megatron.attention, MegatronAttention::kLocal) << list;
  }
}

TEST(RunFields, TwoSpellingsOfOneChoiceContradictEachOther) {
  EXPECT_NE(refusal_of({"--model", "gpt2", "--tie", "--no-tie"}).find("contradict"), std::string::npos);
  EXPECT_EQ(rule_of({"--model", "gpt2", "--fp16", "--bf16"}), "precision-given-twice");
  EXPECT_EQ(rule_of({"--model", "gpt2", "--fp16", "--precision", "fp32"}), "precision-given-twice");
}

// --- what does not exist in a run ---

// Numbers, texts, keys of lists and runs that need more words; the others are asked below.
TEST(RunFields, AnOptionThatChangesNothingIsRefusedByName) {
  const Words gpt2 = {"--model", "gpt2", "--layers", "2"};
  const std::vector<std::pair<std::string, Words>> cases = {
      {"hsdp_shard-exists", {"--parallel", "ds-zero2", "--loop", "bare", "--bf16", "--hsdp-shard", "2"}},
      {"lora_dropout-exists", {"--lora-dropout", "0.1"}},
      {"bitsandbytes-exists", {"--bitsandbytes", "0.43.2"}},
      {"liger_kernel-exists", {"--liger-kernel", "0.8.0"}},
      {"tokens-exists", {"--infer", "--tokens", "1e9"}},
      {"swiglu-exists", {"--megatron", "swiglu"}},
      {"overlap_comm-exists", {"--gpus", "2", "--framework", "megatron", "--deepspeed", "overlap_comm=true"}},
  };
  for (const auto& [rule, more] : cases) {
    Words words = gpt2;
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(rule_of(words), rule) << more.front();
    EXPECT_NE(refusal_of(words).find("changes nothing in this run: it belongs to "), std::string::npos) << rule;
  }
  EXPECT_EQ(rule_of({"--model", "resnet18", "--seq", "128"}), "sequence_length-exists");
  EXPECT_EQ(rule_of({"--model", "yolo11n", "--seq", "128"}), "sequence_length-exists");  // a program of images
  EXPECT_EQ(rule_of({"--model", "resnet18", "--attn", "eager"}), "attention-exists");
  EXPECT_EQ(rule_of({"--model", "gpt2", "--gpus", "2", "--framework", "megatron", "--loop", "trainer"}),
            "megatron-loop");
  EXPECT_EQ(rule_of({"--model", "gpt2", "--gpus", "8", "--parallel", "none"}), "parallel-none-with-copies");
  EXPECT_EQ(rule_of({"--model", "gpt2", "--deepspeed", "overlap_comm=true"}), "deepspeed-options-of-deepspeed");
}

/// Words that give a field a value other than what holds where it does not exist; none: of a type that has no such.
Words given(const Field& field) {
  const std::string flag(field.flag);
  switch (field.type) {
    case FieldType::kFlag: return {flag};
    case FieldType::kWhole:
      return {flag, std::to_string(std::max<std::int64_t>(2, static_cast<std::int64_t>(field.least) + 1))};
    case FieldType::kName: return {flag, std::string(field.names.back())};
    default: return {};
  }
}

TEST(RunFields, WhatDoesNotExistInARunIsRefusedThere) {
  int by_table = 0;
  for (const Words& run : {Words{"--model", "gpt2"}, {"--model", "gpt2", "--infer"}, {"--model", "resnet18"}}) {
    const Question q = question_of(run);
    const RunRecord ran{q.model, q.run.run};
    for (const auto table : {fields_of_runs(), fields_of_parallel(), fields_of_jobs(), fields_of_versions()}) {
      for (const Field& field : table) {
        if (field.exists == nullptr || field.exists(ran)) continue;
        Words words = run;
        for (const std::string& word : given(field)) words.push_back(word);
        if (words.size() == run.size()) continue;
        const std::string refusal = refusal_of(words);
        EXPECT_NE(refusal, "") << field.flag << " of " << run.back();
        if (rule_of(words) != std::string(field.key) + "-exists") continue;  // a rule says more
        EXPECT_THAT(refusal, HasSubstr("changes nothing in this run: it belongs to "));
        ++by_table;
      }
    }
  }
  EXPECT_GT(by_table, 100);
}

TEST(RunFields, WhatHoldsAnywayMayBeSaid) {
  EXPECT_EQ(refusal_of({"--model", "gpt2", "--tp", "1", "--virtual-stages", "1", "--micro-batches", "1"}), "");
}

TEST(RunFields, ValuesMayHaveTheNamesOfOtherPrograms) {
  for (const ValueName& each : kValueNames) {
    bool known = false;
    for (const Field& field : run_fields()) {
      EXPECT_EQ(std::count(field.names.begin(), field.names.end(), each.theirs), 0) << each.theirs;
      known = known || own_value_name(field.names, each.theirs) == each.ours;
    }
    EXPECT_TRUE(known) << each.theirs;
  }
  const auto command = [](const Words& words) {
    const Question q = question_of(words);
    return command_of(RunRecord{q.model, q.run.run});
  };
  EXPECT_EQ(
      command({"--model", "gpt2", "--gpus", "2", "--loop", "bare", "--parallel", "fsdp", "--precision", "bfloat16"}),
      command({"--model", "gpt2", "--gpus", "2", "--loop", "bare", "--parallel", "fsdp2", "--precision", "bf16"}));
  EXPECT_EQ(command({"--model", "gpt2", "--checkpointing", "true", "--bf16", "--attn", "flash_attention_2"}),
            command({"--model", "gpt2", "--checkpointing", "full", "--bf16", "--attn", "flash"}));
}

TEST(RunFields, ACardThatWasNamedShortlyIsTold) {
  const auto told = [](const std::string& gpu) {
    const Question q = question_of(Words{"--model", "gpt2", "--gpu", gpu});
    return std::count(q.run.assumptions.begin(), q.run.assumptions.end(),
                      "--gpu " + gpu + " is taken for a100-sxm4-80gb with 79.2 GiB");
  };
  EXPECT_EQ(told("A100"), 1);
  EXPECT_EQ(told("a100-sxm4-80gb"), 0);
  EXPECT_EQ(told("A100-SXM4-80GB"), 0);
}

TEST(RunFields, WhatChangesNothingIsTold) {
  const auto told = [](const std::string& option, const Words& words) {
    const Question question = question_of(words);
    const std::vector<std::string>& all = question.run.assumptions;
    return std::any_of(all.begin(), all.end(), [&](const std::string& each) {
      return each.starts_with(option + " changes no byte") || each.starts_with(option + " changes nothing here");
    });
  };
  const Words gpt2 = {"--model", "gpt2", "--layers", "2", "--gpus", "2"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  EXPECT_TRUE(told("--clip-grad", with(gpt2, {"--parallel", "ds-zero2", "--loop", "bare", "--bf16", "--clip-grad"})));
  EXPECT_TRUE(told("--pin-memory", with(gpt2, {"--parallel", "megatron-dist", "--tp", "2", "--pin-memory"})));
  EXPECT_FALSE(told("--pin-memory", with(gpt2, {"--parallel", "ddp", "--pin-memory"})));
  EXPECT_TRUE(told("--no-router-loss", {"--model", "llama-3.2-1b", "--loop", "trl-sft", "--no-router-loss"}));
  EXPECT_FALSE(told("--no-router-loss", {"--model", "mixtral-8x7b", "--loop", "trl-sft", "--no-router-loss"}));
}

// --- the record ---

TEST(RunRecordFields, AreTheOptionsThatExistInTheRun) {
  const Question q = question_of(Words{"--model", "gpt2", "--bs", "4", "--lora", "8"});
  const Words words = words_of(RunRecord{q.model, q.run.run});
  const std::string text = join(words, " ");
  for (const char* said :
       {"--model gpt2", "--bs 4", "--lora 8", "--lora-targets all-linear", "--optimizer adamw-fused"}) {
    EXPECT_NE(text.find(said), std::string::npos) << said;
  }
  for (const char* not_said : {"--schedule", "--image", "--gpu ", "--fp16"}) {
    EXPECT_EQ(text.find(not_said), std::string::npos) << not_said;
  }
}

TEST(RunRecordFields, HaveTheMemoryOfACardThatWasNotNamed) {
  const Question q = question_of(Words{"--model", "gpt2", "--memory", "10", "--margin", "1"});
  const RunRecord ran{q.model, q.run.run, &q.device, &q.time, q.device_assumed};
  EXPECT_EQ(command_of(ran), "--model gpt2 --memory 10 --margin 1");
}

TEST(RunRecordFields, HaveThePowerLimitOfACardWhoseClockIsKnown) {
  const auto asked = [](const char* gpu, const char* watts) {
    return Words{"--model", "gpt2", "--gpu", gpu, "--power-limit", watts};
  };
  const Question q = question_of(asked("h200-sxm", "500"));
  EXPECT_EQ(q.device.power_watts, 500);
  const RunRecord ran{q.model, q.run.run, &q.device, &q.time, q.device_assumed};
  EXPECT_EQ(command_of(ran), "--model gpt2 --gpu h200-sxm --power-limit 500");
  EXPECT_NE(refusal_of(asked("h200-sxm", "400")).find("expected 490 to 700 W with h200-sxm, found 400"),
            std::string::npos);
  EXPECT_FALSE(question_of(asked("h200-sxm", "700")).device.power_given) << "its own";
  EXPECT_EQ(rule_of(asked("h100-sxm-96gb", "700")), "power-within-range");
  EXPECT_EQ(rule_of(asked("a100-sxm4-80gb", "300")), "power-needs-rates");
  EXPECT_NE(refusal_of(asked("a100-sxm4-80gb", "300")).find("--gpu h100-sxm, h100-sxm-96gb, h200-sxm"),
            std::string::npos);
}

TEST(RunRecordFields, TheShortestCommandSaysWhatDoesNotFollow) {
  const Question q = question_of(
      Words{"--model", "gpt2", "--layers", "2", "--bs", "4", "--seq", "1024", "--loop", "trainer", "--bf16"});
  const RunRecord ran{q.model, q.run.run};
  EXPECT_EQ(command_of(ran), "--model gpt2 --bs 4 --layers 2 --precision amp-bf16");
  EXPECT_EQ(options_of(ran), "--bs 4 --precision amp-bf16");
}

TEST(RunRecordFields, AreReadFromJson) {
  const JsonDocument json = JsonDocument::parse(
      R"({"model": "gpt2", "batch_size": 2, "tie": false, "gpus": 4, "framework": "megatron", "stage_layers": [1, 1],
          "lora_targets": ["c_attn"], "megatron": {"swiglu": true, "recompute-num-layers": 3}})",
      "a row");
  const RunRequest request = request_from(json.root());
  EXPECT_EQ(request.model, "gpt2");
  EXPECT_EQ(request.run.batch_size, 2);
  EXPECT_EQ(request.changes.tie, false);
  EXPECT_EQ(request.run.parallel.stage_layers, (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(request.run.lora_targets, Words{"c_attn"});
  EXPECT_EQ(request.run.megatron.swiglu, true);
  EXPECT_EQ(request.run.megatron.recompute_layers, 3);
  for (const char* wrong : {R"({"batch": 2})", R"({"batch_size": "2"})", R"({"megatron": {"swigl": true}})",
                            R"({"precision": "bf17"})", R"({"batch_size": 0})"}) {
    EXPECT_THROW((void)request_from(JsonDocument::parse(wrong, "a row").root()), Error) << wrong;
  }
}

}  // namespace
}  // namespace memcalc
