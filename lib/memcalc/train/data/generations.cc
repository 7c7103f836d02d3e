#include "memcalc/train/data/generations.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "memcalc/base/bytes.h"
#include "memcalc/train/data/sampler.h"

namespace memcalc {
namespace {

/// `rows` of the completions of these prompts, one for each completion that is generated at once.
BatchShape completions_of(const RunSpec& run, std::span<const std::int64_t> prompts, std::int64_t rows) {
  const std::int64_t completion = run.training().completion_length;
  const auto [shortest, longest] = std::minmax_element(prompts.begin(), prompts.end());
  BatchShape shape{.rows = rows, .columns = *longest + completion};
  shape.sequences = rows;
  shape.longest = shape.columns;
  shape.padded = *shortest < *longest;
  shape.valid_labels = rows * completion;
  std::int64_t tokens = 0;
  for (const std::int64_t prompt : prompts) tokens += prompt + completion;
  shape.tokens = tokens * rows / static_cast<std::int64_t>(prompts.size());
  return shape;
}

std::int64_t prompt_of(const RunSpec& run, std::uint32_t sample) {
  const std::vector<std::int32_t>& tokens = run.training().lengths->samples->tokens;
  return tokens[sample % tokens.size()];
}

std::uint64_t seed_of(const RunSpec& run) { return static_cast<std::uint64_t>(run.training().lengths->seed); }

}  // namespace

GenerationEpochs::GenerationEpochs(const RunSpec& run, std::int64_t processes, std::int64_t process)
    : run_(run), processes_(processes), process_(process), generator_(seed_of(run)) {}

std::vector<BatchShape> GenerationEpochs::next() {
  const Training& training = run_.training();
  const std::vector<std::int32_t>& tokens = training.lengths->samples->tokens;
  const std::int64_t rows = run_.batch_size * training.generated_micro_batches();  // of this process
  const std::int64_t unique = rows * processes_ / training.generations;
  const std::vector<std::uint32_t> order = generator_.randperm(static_cast<std::int64_t>(tokens.size()));
  std::vector<BatchShape> shapes;
  std::vector<std::int64_t> prompts(static_cast<std::size_t>(rows));
  for (std::int64_t first = 0; first + unique <= static_cast<std::int64_t>(order.size()); first += unique) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t prompt = first + (process_ * rows + i) / training.generations;
      prompts[static_cast<std::size_t>(i)] = prompt_of(run_, order[static_cast<std::size_t>(prompt)]);
    }
    shapes.insert(shapes.end(), static_cast<std::size_t>(training.generate_every()),
                  completions_of(run_, prompts, run_.batch_size));
  }
  return shapes;
}

std::vector<BatchShape> prompted(const Batches& batches, const RunSpec& run) {
  std::vector<BatchShape> shapes;
  shapes.reserve(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    std::vector<std::int64_t> prompts;
    for (const std::uint32_t sample : batches[i]) prompts.push_back(prompt_of(run, sample));
    shapes.push_back(completions_of(run, prompts, static_cast<std::int64_t>(prompts.size())));
  }
  return shapes;
}

std::vector<BatchShape> evaluated_generations(const RunSpec& run, std::int64_t processes, std::int64_t process) {
  const Evaluation& evaluation = *run.training().evaluation;
  const std::int64_t generations = run.training().generations;
  TorchGenerator generator(seed_of(run));  // each evaluation begins with it
  std::vector<std::uint32_t> rows;
  for (const std::uint32_t prompt : generator.randperm(ceil_div(evaluation.samples, generations))) {
    rows.insert(rows.end(), static_cast<std::size_t>(generations), prompt);
  }
  const Batches batches =
      loaded_batches(rows, {.batch_size = evaluation.batch_size, .processes = processes, .rank = process});
  return prompted(batches, run);
}

}  // namespace memcalc
