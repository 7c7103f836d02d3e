#include "memcalc/train/data/data_steps.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "memcalc/base/mixed_hash.h"
#include "memcalc/train/data/answers.h"
#include "memcalc/train/data/generations.h"
#include "memcalc/train/data/texts.h"

namespace memcalc {

namespace {

std::int64_t padded_tokens(const BatchShape& shape) { return shape.rows * shape.columns; }

Labels labels_of(const RunSpec& run) {
  return run.task == Task::kSequenceClassification ? Labels::kEachSample : Labels::kEachToken;
}

/// By TRL's RepeatSampler.
bool repeats_prompts(const RunSpec& run) { return run.generates() && run.training().loop != Loop::kTrlOnlineDpo; }

/// kto_config.py: the answers that KTO takes of other samples are of the same batch in the order of the data set.
SamplingStrategy strategy_of(const RunSpec& run) {
  if (run.training().loop == Loop::kTrlKto) return SamplingStrategy::kSequential;
  return run.training().lengths->grouped ? SamplingStrategy::kGroupByLength : SamplingStrategy::kRandom;
}

/// The micro-batches of one epoch after the other, as the sampler draws them and the collator lays them out.
class Epochs {
 public:
  Epochs(const RunSpec& run, std::int64_t processes, std::int64_t process)
      : run_(run),
        answers_(!run.generates() && has_answers(run)),
        prompts_(run.training().loop == Loop::kTrlOnlineDpo),
        lengths_of_run_(*run.training().lengths),
        loader_{.batch_size = run.batch_size, .processes = processes, .rank = process},
        collator_{.pad_to_multiple_of = lengths_of_run_.pad_to_multiple_of,
                  .padding_free = run.is_padding_free(),
                  .labels = labels_of(run)},
        lengths_(lengths_of_run_.samples->tokens) {
    if (lengths_of_run_.packing) {
      rows_ = packed(lengths_, run.sequence_length, *lengths_of_run_.packing);
      lengths_ = row_lengths(rows_);
    }
    if (repeats_prompts(run)) {
      generations_.emplace(run, processes, process);
      return;
    }
    sampler_.emplace(lengths_, SamplerOptions{.strategy = strategy_of(run),
                                              .seed = static_cast<std::uint64_t>(lengths_of_run_.seed),
                                              .group_size = run.batch_size * run.training().accumulation_steps});
  }

  [[nodiscard]] std::vector<BatchShape> next() {
    if (generations_) return generations_->next();
    const Batches batches = loaded_batches(sampler_->next_epoch(), loader_);
    if (run_.uses_sentence_transformers()) return collated_texts(batches, run_);
    if (run_.task == Task::kSeq2Seq) return collated_sources(batches, run_);
    if (prompts_) return prompted(batches, run_);
    if (answers_) return collated_answers(batches, run_, static_cast<std::int64_t>(lengths_.size()));
    return lengths_of_run_.packing ? collated(batches, rows_, collator_) : collated(batches, lengths_, collator_);
  }

 private:
  const RunSpec& run_;
  bool answers_, prompts_;
  const DataLengths& lengths_of_run_;
  LoaderOptions loader_;
  CollatorOptions collator_;
  PackedRows rows_;                    // empty: a row is a sample
  std::vector<std::int32_t> lengths_;  // of the rows
  std::optional<TrainSampler> sampler_;
  std::optional<GenerationEpochs> generations_;  // in the place of all of these
};

/// Places of those that are simulated, in order.
std::vector<std::size_t> simulated(const std::vector<std::int64_t>& largest, std::size_t most) {
  std::vector<std::size_t> places(largest.size());
  std::iota(places.begin(), places.end(), 0);
  if (places.size() <= most) return places;
  const auto end = places.begin() + static_cast<std::ptrdiff_t>(most);
  std::stable_sort(places.begin() + static_cast<std::ptrdiff_t>(most / 2), places.end(),
                   [&](std::size_t a, std::size_t b) { return largest[a] > largest[b]; });
  places.erase(end, places.end());
  std::sort(places.begin(), places.end());
  return places;
}

/// Sizes of micro-batches, each counted once.
class Sizes {
 public:
  void add(const BatchShape& shape) {
    MixedHash hash;
    for (const std::int64_t size :
         {shape.rows, shape.columns, shape.answers.prompt_columns, shape.answers.other_columns})
      hash.add(size);
    for (const std::vector<std::int32_t>& column : shape.texts) hash.add(width_of(column, 0, shape.rows).longest);
    sizes_.insert(hash.value());
  }
  [[nodiscard]] double count() const { return static_cast<double>(sizes_.size()); }

 private:
  std::unordered_set<std::uint64_t> sizes_;
};

double sizes_over_simulated(const std::vector<BatchShape>& shapes, const DataSteps& steps) {
  Sizes all, of_simulated;
  for (const BatchShape& shape : shapes) all.add(shape);
  for (const DataStep& step : steps.simulated) {
    for (const BatchShape& shape : step.micro_batches) of_simulated.add(shape);
  }
  return all.count() / of_simulated.count();
}

std::size_t median_of(const std::vector<DataStep>& steps) {
  std::vector<std::int64_t> tokens;
  for (const DataStep& step : steps) {
    std::int64_t sum = 0;
    for (const BatchShape& shape : step.micro_batches) sum += padded_tokens(shape);
    tokens.push_back(sum);
  }
  std::vector<std::size_t> by_tokens(steps.size());
  std::iota(by_tokens.begin(), by_tokens.end(), 0);
  const auto median = by_tokens.begin() + static_cast<std::ptrdiff_t>(by_tokens.size() / 2);
  std::nth_element(by_tokens.begin(), median, by_tokens.end(),
                   [&](std::size_t a, std::size_t b) { return tokens[a] < tokens[b]; });
  return *median;
}

void set_average_step(const RunSpec& run, DataSteps& steps) {
  for (const BatchShape& shape : steps.simulated[steps.median].micro_batches) {
    // Without padding all sequences of a batch are one row.
    steps.samples += run.is_padding_free() ? run.batch_size : shape.rows;
    steps.tokens += given_tokens(run, shape);
  }
}

/// That with whose generation the median step is made, or the first of these that is simulated: it generates then.
std::size_t generating_step(const RunSpec& run, const DataSteps& steps) {
  const std::int64_t every = run.training().generate_every(), count = run.training().accumulation_steps;
  std::size_t place = steps.median;
  const auto generation_of = [&](std::size_t at) { return steps.simulated[at].number * count / every; };
  while (place > 0 && every > count && generation_of(place - 1) == generation_of(steps.median)) --place;
  return place;
}

}  // namespace

std::int64_t given_tokens(const RunSpec& run, const BatchShape& shape) {
  if (!shape.texts.empty()) {
    std::int64_t tokens = 0;
    for (const std::vector<std::int32_t>& column : shape.texts) {
      tokens += shape.rows * width_of(column, 0, shape.rows).longest;
    }
    return tokens;
  }
  if (run.trains_on_pairs()) return 2 * shape.rows * std::max(shape.columns, shape.answers.other_columns);
  const std::int64_t labels = run.task == Task::kSeq2Seq ? shape.answers.other_columns : 0;
  return shape.rows * (shape.columns + labels);
}

const BatchShape& DataStep::largest() const {
  return *std::max_element(micro_batches.begin(), micro_batches.end(), [](const BatchShape& a, const BatchShape& b) {
    return padded_tokens(a) < padded_tokens(b);
  });
}

DataSteps data_steps(const RunSpec& run, std::int64_t processes, std::int64_t process, std::size_t most) {
  if (run.generates()) most = std::min(most, kMostGeneratingSteps);
  const auto accumulation = static_cast<std::size_t>(run.training().accumulation_steps);
  const auto wanted = static_cast<std::size_t>(run.training().lengths->steps);
  Epochs epochs(run, processes, process);
  std::vector<BatchShape> shapes;     // of all micro-batches
  std::vector<std::size_t> begins;    // of each step's
  std::vector<std::int64_t> largest;  // tokens of each step's largest micro-batch
  std::vector<bool> begins_epoch;     // of each step
  do {                                // of an epoch the last step may have fewer micro-batches
    const std::vector<BatchShape> epoch = epochs.next();
    for (std::size_t i = 0; i < epoch.size() && (wanted == 0 || begins.size() < wanted); i += accumulation) {
      begins.push_back(shapes.size());
      largest.push_back(0);
      begins_epoch.push_back(i == 0);
      for (std::size_t j = i; j < std::min(i + accumulation, epoch.size()); ++j) {
        shapes.push_back(epoch[j]);
        largest.back() = std::max(largest.back(), padded_tokens(epoch[j]));
      }
    }
  } while (begins.size() < wanted);
  DataSteps result{.all = static_cast<std::int64_t>(begins.size())};
  begins.push_back(shapes.size());
  for (const std::size_t place : simulated(largest, most)) {
    const auto first = shapes.begin() + static_cast<std::ptrdiff_t>(begins[place]);
    const auto last = shapes.begin() + static_cast<std::ptrdiff_t>(begins[place + 1]);
    result.simulated.push_back({.number = static_cast<std::int64_t>(place),
                                .begins_epoch = begins_epoch[place],
                                .micro_batches = {first, last}});
  }
  result.median = median_of(result.simulated);
  if (result.simulated.size() < begins.size() - 1) result.sizes_of_all = sizes_over_simulated(shapes, result);
  if (repeats_prompts(run)) result.median = generating_step(run, result);
  set_average_step(run, result);
  return result;
}

void set_first_calls(DataSteps& steps, const CountedFirstCalls& of_simulated) {
  const auto later = static_cast<double>(steps.all - 1);
  for (std::size_t i = 0; i < steps.first_calls.size(); ++i) {
    const double first = of_simulated.first_step[i], all = of_simulated.all[i] * steps.sizes_of_all;
    steps.first_calls[i] = later > 0 ? std::max(0.0, all - first) / later : first;
  }
}

CountedFirstCalls generated_first_calls(const RunSpec& run, const DataSteps& steps) {
  const std::int64_t completion = run.training().completion_length;
  std::unordered_set<std::int64_t> keys, prompts, columns;
  const double forward = run.checkpointing() == Checkpointing::kFull ? 2 : 1;
  const auto counted = [&] {
    const auto widths = static_cast<double>(columns.size());
    FirstCallCounts counts{};
    counts[static_cast<std::size_t>(FirstCall::kAttention)] =
        static_cast<double>(keys.size() + prompts.size()) + forward * widths;
    counts[static_cast<std::size_t>(FirstCall::kAttentionBackward)] = widths;
    return counts;
  };
  CountedFirstCalls result;
  for (const DataStep& step : steps.simulated) {
    for (const BatchShape& shape : step.micro_batches) {
      columns.insert(shape.columns);
      if (run.uses_vllm() || !prompts.insert(shape.columns - completion).second) continue;
      for (std::int64_t key = shape.columns - completion + 1; key < shape.columns; ++key) keys.insert(key);
    }
    if (&step == &steps.simulated.front()) result.first_step = counted();
  }
  result.all = counted();
  return result;
}

namespace {

std::vector<DataStep> executed_batches(const std::vector<BatchShape>& shapes, std::size_t most) {
  std::vector<std::int64_t> tokens;
  for (const BatchShape& shape : shapes) tokens.push_back(padded_tokens(shape));
  std::vector<DataStep> executed;
  for (const std::size_t place : simulated(tokens, most)) {
    executed.push_back({.number = static_cast<std::int64_t>(place), .micro_batches = {shapes[place]}});
  }
  return executed;
}

}  // namespace

std::vector<DataStep> evaluation_batches(const RunSpec& run, std::int64_t processes, std::int64_t process,
                                         std::size_t most) {
  if (run.generates()) return executed_batches(evaluated_generations(run, processes, process), most);
  const DataLengths& data = *run.training().lengths;
  const Evaluation& evaluation = *run.training().evaluation;
  std::vector<std::int32_t> lengths;  // of the evaluation set
  for (std::int64_t i = 0; i < evaluation.samples; ++i) {
    lengths.push_back(data.samples->tokens[static_cast<std::size_t>(i) % data.samples->tokens.size()]);
  }
  const SamplerOptions order{.strategy = data.grouped ? SamplingStrategy::kGroupByLength : SamplingStrategy::kRandom,
                             .seed = static_cast<std::uint64_t>(data.seed),
                             .group_size = evaluation.batch_size};
  const LoaderOptions loader{.batch_size = evaluation.batch_size, .processes = processes, .rank = process};
  const CollatorOptions collator{.pad_to_multiple_of = data.pad_to_multiple_of, .labels = labels_of(run)};
  const bool shuffles = run.uses_sentence_transformers();
  const Batches batches = loaded_batches(shuffles ? evaluated_texts(run) : evaluation_order(lengths, order), loader);
  if (shuffles) return executed_batches(collated_texts(batches, run), most);
  if (run.task == Task::kSeq2Seq) return executed_batches(collated_sources(batches, run), most);
  return executed_batches(
      has_answers(run) ? collated_answers(batches, run, evaluation.samples) : collated(batches, lengths, collator),
      most);
}

}  // namespace memcalc
