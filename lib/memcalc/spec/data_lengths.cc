#include "memcalc/spec/data_lengths.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/lengths.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {

namespace {

/// sft_config.py: max_length, to which rows are packed.
std::int64_t resolve_row(const RunOptions& options, std::vector<std::string>& assumptions) {
  constexpr std::int64_t kMaxLength = 1024;
  if (options.sequence_length) return *options.sequence_length;
  assumptions.push_back(fmt::format("rows of {} tokens: SFTConfig.max_length (--seq)", kMaxLength));
  return kMaxLength;
}

/// The places for which `keep` holds.
template <typename Keep>
void keep_samples(SampleLengths& lengths, const Keep& keep) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < lengths.tokens.size(); ++i) {
    if (!keep(i)) continue;
    for (auto* each : {&lengths.tokens, &lengths.prompts, &lengths.rejected}) {
      if (!each->empty()) (*each)[kept] = (*each)[i];
    }
    ++kept;
  }
  for (auto* each : {&lengths.tokens, &lengths.prompts, &lengths.rejected}) {
    if (!each->empty()) each->resize(kept);
  }
}

/// Of a file that does not tell prompts from answers each sample's answer has the share of --completion in --seq.
void split_by_share(SampleLengths& lengths, const RunSpec& run, std::vector<std::string>& assumptions) {
  const double share = static_cast<double>(run.training().completion_length) / static_cast<double>(run.sequence_length);
  for (std::int32_t& tokens : lengths.tokens) {
    tokens = std::max(tokens, 2);
    const auto answer = static_cast<std::int32_t>(std::lround(share * tokens));
    lengths.prompts.push_back(tokens - std::clamp(answer, 1, tokens - 1));
  }
  assumptions.push_back(
      fmt::format("of each sample {:.0f} % is the answer, as --completion says of --seq; a file may tell: 200/57, or "
                  "200/57/80 with "
                  "a rejected answer",
                  100 * share));
}

/// dpo_trainer.py, kto_trainer.py, orpo_trainer.py, reward_trainer.py: what is dropped and what is cut at `most`.
void cut_answers(SampleLengths& lengths, RunSpec& run, std::int64_t most, std::vector<std::string>& assumptions) {
  Training& training = run.training();
  const bool on_answers = run.trains_on_answers();
  if (on_answers && lengths.prompts.empty()) split_by_share(lengths, run, assumptions);
  if (run.trains_on_pairs() && lengths.rejected.empty()) {
    assumptions.emplace_back("the rejected answer is as long as the chosen one (a file may tell: 200/57/80)");
  }
  const std::size_t all = lengths.tokens.size();
  if (training.loop == Loop::kTrlReward) {
    keep_samples(lengths, [&](std::size_t i) {
      return lengths.tokens[i] <= most && (lengths.rejected.empty() || lengths.rejected[i] <= most);
    });
  } else if (on_answers && training.loop != Loop::kTrlOrpo) {
    keep_samples(lengths, [&](std::size_t i) { return lengths.prompts[i] < most; });
  }
  if (lengths.tokens.empty()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--seq: TRL drops all samples of --lengths, of which no prompt is below {} tokens", most),
                "--seq");
  }
  if (lengths.tokens.size() < all) {
    assumptions.push_back(fmt::format("{} of {} samples are dropped, as TRL does with those beyond --seq",
                                      all - lengths.tokens.size(), all));
  }
  std::int64_t longest_answer = 0, longest = 0;
  for (auto* each : {&lengths.tokens, &lengths.rejected}) {
    for (std::size_t i = 0; i < each->size(); ++i) {
      const std::int64_t prompt = lengths.prompts.empty() ? 0 : lengths.prompts[i];
      // ORPO cuts answers alone: a prompt that is longer than all of it stays.
      const std::int64_t kept = training.loop == Loop::kTrlOrpo ? std::max(prompt, most) : most;
      (*each)[i] = static_cast<std::int32_t>(std::min<std::int64_t>((*each)[i], kept));
      longest_answer = std::max(longest_answer, (*each)[i] - prompt);
      longest = std::max<std::int64_t>(longest, (*each)[i]);
    }
  }
  lengths.most = most;
  // Another sample's answer, of the same --bs, may stand behind a longer prompt.
  const auto batch = static_cast<std::size_t>(run.batch_size);
  for (std::size_t i = 0; training.loop == Loop::kTrlKto && i < lengths.tokens.size(); ++i) {
    const std::size_t last = std::min(i + batch, lengths.tokens.size()) - 1;
    const std::size_t other = i % batch == 0 ? last : i - 1;
    const std::int64_t answer = lengths.tokens[other] - lengths.prompts[other];
    longest = std::max(longest, std::min(lengths.prompts[i] + answer, most));
  }
  run.sequence_length = longest;
  if (on_answers) training.completion_length = std::min(longest_answer, longest - 1);
  if (training.loop == Loop::kTrlKto) assumptions.emplace_back("every second sample of the data set is desirable");
}

/// Of sentence-transformers: "12/57/80" are an anchor, a positive and a negative, each cut by itself (max_seq_length);
/// of a cross-encoder a pair, cut as one.
void cut_texts(SampleLengths& lengths, RunSpec& run, std::int64_t most) {
  const auto cut = [&](std::int64_t tokens) { return static_cast<std::int32_t>(std::min(tokens, most)); };
  const bool is_pair = run.training().loop == Loop::kCrossEncoder;
  for (auto* each : {&lengths.tokens, &lengths.rejected}) {
    for (std::size_t i = 0; i < each->size(); ++i) {
      const std::int64_t before = lengths.prompts.empty() || is_pair ? 0 : lengths.prompts[i];
      (*each)[i] = cut((*each)[i] - before);
    }
  }
  for (std::int32_t& tokens : lengths.prompts) tokens = cut(tokens);
  if (is_pair) lengths.prompts.clear();
  run.sequence_length = 0;
  for (const auto* each : {&lengths.prompts, &lengths.tokens, &lengths.rejected}) {
    for (const std::int32_t tokens : *each) run.sequence_length = std::max<std::int64_t>(run.sequence_length, tokens);
  }
}

/// Of an encoder-decoder: "200/57" are a source and its labels, which stand where other trainers have a second answer;
/// a number alone is the source's, and labels have --target-seq tokens.
void cut_sources(SampleLengths& lengths, const RunOptions& options, RunSpec& run, std::int64_t most,
                 std::vector<std::string>& assumptions) {
  if (!lengths.rejected.empty()) {
    throw Error(ErrorCode::kUsage,
                "lengths: an encoder-decoder has a source and its labels, not three texts; accepted: "
                "lines like 200, 200/57",
                "--lengths");
  }
  const std::int64_t most_labels = options.target_sequence_length.value_or(kMostSampleTokens);
  std::int64_t longest_source = 1, longest_labels = 1;
  for (std::size_t i = 0; i < lengths.tokens.size(); ++i) {
    const bool tells = !lengths.prompts.empty();
    const std::int64_t source = std::min<std::int64_t>(tells ? lengths.prompts[i] : lengths.tokens[i], most);
    const std::int64_t labels = tells ? std::min<std::int64_t>(lengths.tokens[i] - lengths.prompts[i], most_labels)
                                      : run.target_sequence_length;
    lengths.tokens[i] = static_cast<std::int32_t>(source);
    lengths.rejected.push_back(static_cast<std::int32_t>(labels));
    longest_source = std::max(longest_source, source);
    longest_labels = std::max(longest_labels, labels);
  }
  if (!lengths.prompts.empty()) {  // --target-seq has no default then
    std::erase_if(assumptions, [](const std::string& each) { return each.starts_with("target sequence length"); });
  }
  lengths.prompts.clear();
  run.sequence_length = longest_source;
  run.target_sequence_length = longest_labels;
}

}  // namespace

/// trainer_utils and data collators: samples longer than --seq are cut, as a tokenizer with truncation does.
void resolve_lengths(const RunOptions& options, RunSpec& run, std::vector<std::string>& assumptions) {
  SampleLengths lengths = read_lengths(*options.lengths);
  if (!lengths.assumption.empty()) assumptions.push_back(lengths.assumption);
  DataLengths data{.argument = *options.lengths,
                   .steps = options.steps.value_or(0),
                   .packing = options.packing,
                   .grouped = options.group_by_length,
                   .pad_to_multiple_of = options.pad_to_multiple_of.value_or(1),
                   .seed = options.seed.value_or(42)};
  // sft_trainer.py: rows of several samples have no padding, but those whose samples are not told apart.
  const bool tells_samples = data.packing && *data.packing != PackingStrategy::kWrapped;
  data.padding_free = options.padding_free || tells_samples;
  const std::int64_t most = options.sequence_length.value_or(kMostSampleTokens);
  if (data.packing) {
    run.sequence_length = resolve_row(options, assumptions);
  } else if (run.generates()) {  // the data are prompts; where --seq leaves none, rule trl-completion says so
    const std::int64_t completion = run.training().completion_length;
    const auto longest = static_cast<std::int32_t>(std::max<std::int64_t>(most - completion, 1));
    for (std::int32_t& tokens : lengths.tokens) tokens = std::min(tokens, longest);
    run.sequence_length = std::min(*std::max_element(lengths.tokens.begin(), lengths.tokens.end()) + completion, most);
  } else if (run.uses_sentence_transformers()) {
    cut_texts(lengths, run, most);
  } else if (run.task == Task::kSeq2Seq) {
    cut_sources(lengths, options, run, most, assumptions);
  } else if (run.trains_on_answers() || run.trains_on_pairs()) {
    cut_answers(lengths, run, most, assumptions);
  } else {
    for (std::int32_t& tokens : lengths.tokens) {
      tokens = static_cast<std::int32_t>(std::min<std::int64_t>(tokens, most));
    }
    run.sequence_length = *std::max_element(lengths.tokens.begin(), lengths.tokens.end());
  }
  data.samples = std::make_shared<const SampleLengths>(std::move(lengths));
  std::string_view laid_out = "padded to the longest of their batch";
  if (data.padding_free) laid_out = "all of a batch stand in one row, without padding";
  std::string order =
      fmt::format("in the Trainer's order of seed {}{}", data.seed, data.grouped ? ", grouped by length" : "");
  if (run.training().loop == Loop::kTrlKto) order = "in the order of the data set, KTO's default";
  if (run.generates() && run.training().loop != Loop::kTrlOnlineDpo) {
    laid_out = "padded to the longest prompt that a process generates for at once";
    order = fmt::format("in the order of TRL's RepeatSampler, seed {}", data.seed);
  }
  assumptions.push_back(fmt::format("{} are taken {}, and {}", data.packing ? "rows" : "samples", order, laid_out));
  if (data.packing) {
    assumptions.push_back(
        fmt::format("rows of {} tokens are packed by TRL's strategy {}", run.sequence_length, name_of(*data.packing)));
  }
  run.training().lengths = std::move(data);
}

}  // namespace memcalc
