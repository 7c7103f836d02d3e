#include "memcalc/train/data/texts.h"

#include <algorithm>
#include <cstddef>

#include "memcalc/base/bytes.h"
#include "memcalc/base/torch_generator.h"

namespace memcalc {

namespace {

std::int64_t text_columns(const RunSpec& run) {
  return run.training().loop == Loop::kCrossEncoder ? 1 : run.training().sentences.columns();
}

/// Of the sample's text in this column.
std::int32_t tokens_in_column(const SampleLengths& lengths, std::uint32_t sample, std::int64_t column) {
  const std::size_t place = sample % lengths.tokens.size();
  if (column == 0 && !lengths.prompts.empty()) return lengths.prompts[place];
  return column > 1 && !lengths.rejected.empty() ? lengths.rejected[place] : lengths.tokens[place];
}

BatchShape shape_of_texts(std::vector<std::vector<std::int32_t>> texts) {
  BatchShape shape{.rows = static_cast<std::int64_t>(texts.front().size())};
  for (const std::vector<std::int32_t>& column : texts) {
    const ColumnWidth width = width_of(column, 0, shape.rows);
    shape.columns = std::max(shape.columns, width.longest);
    shape.padded = shape.padded || width.padded;
    for (const std::int32_t tokens : column) shape.tokens += tokens;
  }
  shape.longest = shape.columns;
  shape.valid_labels = shape.rows;
  shape.sequences = shape.rows * static_cast<std::int64_t>(texts.size());
  shape.texts = std::move(texts);
  return shape;
}

}  // namespace

ColumnWidth width_of(const std::vector<std::int32_t>& column, std::int64_t begin, std::int64_t rows) {
  const auto first = column.begin() + begin;
  const auto [shortest, longest] = std::minmax_element(first, first + rows);
  return {.longest = *longest, .padded = *shortest < *longest};
}

std::vector<BatchShape> collated_texts(const Batches& batches, const RunSpec& run) {
  const SampleLengths& lengths = *run.training().lengths->samples;
  std::vector<BatchShape> shapes;
  shapes.reserve(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    std::vector<std::vector<std::int32_t>> texts(static_cast<std::size_t>(text_columns(run)));
    for (std::size_t column = 0; column < texts.size(); ++column) {
      for (const std::uint32_t sample : batches[i]) {
        texts[column].push_back(tokens_in_column(lengths, sample, static_cast<std::int64_t>(column)));
      }
    }
    shapes.push_back(shape_of_texts(std::move(texts)));
  }
  return shapes;
}

std::vector<BatchShape> collated_sources(const Batches& batches, const RunSpec& run) {
  const DataLengths& data = *run.training().lengths;
  const SampleLengths& lengths = *data.samples;
  std::vector<BatchShape> shapes;
  shapes.reserve(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    BatchShape shape{.rows = static_cast<std::int64_t>(batches[i].size())};
    for (const std::uint32_t sample : batches[i]) {
      const std::size_t place = sample % lengths.tokens.size();
      shape.tokens += lengths.tokens[place];
      shape.longest = std::max<std::int64_t>(shape.longest, lengths.tokens[place]);
      shape.valid_labels += lengths.rejected[place];
      shape.answers.other_columns = std::max<std::int64_t>(shape.answers.other_columns, lengths.rejected[place]);
    }
    shape.columns = round_up(shape.longest, data.pad_to_multiple_of);
    shape.answers.other_columns = round_up(shape.answers.other_columns, data.pad_to_multiple_of);
    shape.sequences = shape.rows;
    shape.padded = shape.tokens < shape.rows * shape.columns;
    shapes.push_back(shape);
  }
  return shapes;
}

BatchShape texts_shape_of(const RunSpec& run) {
  const std::vector<std::int32_t> column(static_cast<std::size_t>(run.batch_size),
                                         static_cast<std::int32_t>(run.sequence_length));
  return shape_of_texts(std::vector(static_cast<std::size_t>(text_columns(run)), column));
}

std::vector<std::uint32_t> evaluated_texts(const RunSpec& run) {
  TorchGenerator generator(static_cast<std::uint64_t>(run.training().lengths->seed));
  return generator.randperm(run.training().evaluation->samples);
}

}  // namespace memcalc
