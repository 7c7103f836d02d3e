#include "memcalc/train/data/answers.h"

#include <algorithm>
#include <cstddef>

#include "memcalc/base/bytes.h"
namespace memcalc {

namespace {

/// The sequences of one tensor, padded to the longest.
struct PaddedRows {
  std::int64_t rows = 0, tokens = 0, labels = 0, longest = 0;

  void add(std::int64_t length, std::int64_t prompt) {
    ++rows;
    tokens += length;
    labels += std::max<std::int64_t>(length - prompt, 0);
    longest = std::max(longest, length);
  }
  [[nodiscard]] bool padded(std::int64_t columns) const { return tokens < rows * columns; }
};

/// Lengths of a sample, by its place in the data set.
class Samples {
 public:
  Samples(const RunSpec& run, std::int64_t count)
      : lengths_(*run.training().lengths->samples), count_(count), batch_(run.batch_size) {}

  [[nodiscard]] std::int64_t prompt(std::uint32_t sample) const {
    return lengths_.prompts.empty() ? 0 : lengths_.prompts[place(sample)];
  }
  [[nodiscard]] std::int64_t chosen(std::uint32_t sample) const { return lengths_.tokens[place(sample)]; }
  [[nodiscard]] std::int64_t rejected(std::uint32_t sample) const {
    return lengths_.rejected.empty() ? chosen(sample) : lengths_.rejected[place(sample)];
  }
  /// kto_trainer.py, add_kl_completion_ids: in the order of the data set, --bs samples at a time, each gets the answer
  /// of the one before it, the first that of the last.
  [[nodiscard]] std::int64_t with_other_answer(std::uint32_t sample) const {
    const std::int64_t first = sample / batch_ * batch_, last = std::min(first + batch_, count_) - 1;
    const auto other = static_cast<std::uint32_t>(sample == first ? last : sample - 1);
    return std::min(prompt(sample) + chosen(other) - prompt(other), lengths_.most);
  }

 private:
  [[nodiscard]] std::size_t place(std::uint32_t sample) const { return sample % lengths_.tokens.size(); }

  const SampleLengths& lengths_;
  std::int64_t count_, batch_;
};

}  // namespace

bool has_answers(const RunSpec& run) {
  return run.trains_on_answers() || run.trains_on_pairs() ||
         (run.training().loop == Loop::kTrlSft && !run.training().lengths->samples->prompts.empty());
}

std::vector<BatchShape> collated_answers(const Batches& batches, const RunSpec& run, std::int64_t sample_count) {
  const Samples samples(run, sample_count);
  const DataLengths& data = *run.training().lengths;
  const Loop loop = run.training().loop;
  const auto columns_of = [&](std::int64_t longest) { return round_up(longest, data.pad_to_multiple_of); };
  std::vector<BatchShape> shapes;
  shapes.reserve(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    PaddedRows chosen, rejected, others, prompts;
    AnswersShape answers;
    for (const std::uint32_t sample : batches[i]) {
      const std::int64_t prompt = samples.prompt(sample);
      chosen.add(samples.chosen(sample), prompt);
      rejected.add(samples.rejected(sample), prompt);
      prompts.add(prompt, prompt);
      if (loop != Loop::kTrlKto) continue;
      const std::int64_t label_count = samples.chosen(sample) - prompt;
      if (sample % 2 == 0) {  // every second sample is desirable
        ++answers.first_samples;
        answers.first_labels += label_count;
      }
      others.add(samples.with_other_answer(sample), prompt);
    }
    BatchShape shape{.rows = chosen.rows, .columns = columns_of(chosen.longest), .tokens = chosen.tokens};
    shape.valid_labels = chosen.labels;
    shape.longest = chosen.longest;
    if (run.trains_on_pairs()) {
      answers.first_labels = chosen.labels;
      shape.longest = std::max(chosen.longest, rejected.longest);
      shape.valid_labels += rejected.labels;
      shape.tokens += rejected.tokens;
      if (loop == Loop::kTrlOrpo) {  // each tensor is padded by itself, and the two together later
        shape.columns = chosen.longest;
        answers.prompt_columns = prompts.longest;
        answers.other_columns = rejected.longest;
      } else {
        shape.columns = columns_of(shape.longest);
      }
      shape.padded = shape.tokens < 2 * shape.rows * std::max(shape.columns, answers.other_columns);
    } else {
      shape.padded = chosen.padded(shape.columns);
    }
    if (loop == Loop::kTrlKto) {
      answers.other_columns = columns_of(others.longest);
      answers.other_labels = others.labels;
      answers.other_padded = others.padded(answers.other_columns);
    }
    shape.sequences = run.trains_on_pairs() ? 2 * shape.rows : shape.rows;
    shape.answers = answers;
    shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace memcalc
