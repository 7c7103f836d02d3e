#include "memcalc/spec/lengths.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/base/number_text.h"
#include "memcalc/base/torch_generator.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {
namespace {

constexpr std::string_view kAcceptedFile =
    "a text file with a length in tokens on each line, or a length and how many samples have it; a length is 257, or "
    "200/57 (prompt/answer), or 200/57/80 (prompt/chosen/rejected)";
constexpr std::string_view kLognormal = "lognormal:";
constexpr std::int64_t kMostLengthsBytes = std::int64_t{128} << 20U;  // ten million lines of up to 13 characters
constexpr std::uint64_t kSeed = 0;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<std::int64_t> whole_number(std::string_view text, std::int64_t most) {
  std::int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != text.data() + text.size() || value < 1 || value > most) return std::nullopt;
  return value;
}

/// A line of the file: a length as one, two or three numbers, and of a histogram its count.
struct Row {
  std::array<std::int64_t, 3> parts{};
  std::size_t part_count = 0;
  std::optional<std::int64_t> count{};

  bool is_like(const Row& other) const {
    return part_count == other.part_count && count.has_value() == other.count.has_value();
  }
};

std::optional<Row> row_of(std::string_view line) {
  const auto gap = static_cast<std::size_t>(std::find_if(line.begin(), line.end(), is_space) - line.begin());
  const std::string_view length = line.substr(0, gap);
  Row row;
  for (std::size_t at = 0; at <= length.size();) {
    const std::size_t end = std::min(length.find('/', at), length.size());
    const auto tokens = whole_number(length.substr(at, end - at), kMostSampleTokens);
    if (!tokens || row.part_count == row.parts.size()) return std::nullopt;
    row.parts[row.part_count++] = *tokens;
    at = end + 1;
  }
  // Prompt and answer are a sequence together.
  if (row.parts[0] + std::max(row.parts[1], row.parts[2]) > kMostSampleTokens) return std::nullopt;
  if (gap == line.size()) return row;
  row.count = whole_number(trimmed(line.substr(gap)), kMostSamples);
  if (!row.count) return std::nullopt;
  return row;
}

std::string words_of(const Row& row) {
  constexpr std::array<std::string_view, 3> kLengths = {"one length", "a prompt's and an answer's length (200/57)",
                                                        "lengths of a prompt and two answers (200/57/80)"};
  return std::string(row.count ? row.part_count == 1 ? "a length" : kLengths[row.part_count - 1]
                               : kLengths[row.part_count - 1]) +
         (row.count ? " and a count" : "");
}

Error line_error(std::string_view name, std::int64_t line, std::string_view found, const std::string& accepted) {
  return {ErrorCode::kInput,
          fmt::format("{}:{}: found '{}'; accepted: {}", shown_path(name), line, one_line(found), accepted)};
}

void shuffle(std::vector<std::int32_t>& tokens) {
  if (tokens.empty()) return;
  std::vector<std::int32_t> result;
  result.reserve(tokens.size());
  TorchGenerator generator(kSeed);
  for (const std::uint32_t i : generator.randperm(static_cast<std::int64_t>(tokens.size()))) {
    result.push_back(tokens[i]);
  }
  tokens = std::move(result);
}

/// numpy.random.RandomState(seed).standard_normal(): the polar method of Marsaglia (legacy_gauss in numpy's
/// legacy-distributions.c). numpy has promised to keep these numbers.
class LegacyNormal {
 public:
  explicit LegacyNormal(std::uint64_t seed) : generator_(seed) {}

  double next() {
    if (kept_) {
      const double value = *kept_;
      kept_.reset();
      return value;
    }
    double x = 0, y = 0, square = 0;
    do {
      x = 2 * uniform() - 1;
      y = 2 * uniform() - 1;
      square = x * x + y * y;
    } while (square >= 1 || square == 0);
    const double factor = std::sqrt(-2 * std::log(square) / square);
    kept_ = factor * x;
    return factor * y;
  }

 private:
  double uniform() {  // 53 bits
    const double high = generator_.random() >> 5U;
    const double low = generator_.random() >> 6U;
    return (high * 67108864 + low) / 9007199254740992;
  }

  TorchGenerator generator_;  // the same Mersenne twister, seeded in the same way
  std::optional<double> kept_;
};

SampleLengths drawn_lengths(std::string_view text) {
  // The median and SIGMA as numbers, MAX and SAMPLES as whole ones.
  std::array<double, 4> numbers{0, 0, 0, kDrawnSamples};
  const std::array<double, 4> least{1, 0, 1, 1};
  const std::array<double, 4> most{kMostSampleTokens, 10, kMostSampleTokens, kMostSamples};
  std::size_t count = 0;
  bool right = true;
  for (std::size_t at = 0; right && at <= text.size(); ++count) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view part = trimmed(text.substr(at, end - at));
    right = count < numbers.size();
    if (!right) break;
    double& value = numbers[count];
    const auto [rest, error] = parse_number(part.data(), part.data() + part.size(), value);
    right = error == std::errc{} && rest == part.data() + part.size() && value >= least[count] &&
            value <= most[count] && (count < 2 || value == std::floor(value));
    at = end + 1;
  }
  if (!right || count < 3 || numbers[0] > numbers[2]) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--lengths: found '{}{}'; accepted: lognormal:MEDIAN,SIGMA,MAX[,SAMPLES], as in "
                            "lognormal:200,0.6,1024: median and maximum from 1 to {} tokens, the median no more than "
                            "it, sigma (of the logarithm) "
                            "from 0 to 10, at most {} samples",
                            kLognormal, one_line(text), kMostSampleTokens, kMostSamples),
                "--lengths");
  }
  const auto [median, sigma, longest, samples] = numbers;
  SampleLengths result;
  result.tokens.reserve(static_cast<std::size_t>(samples));
  LegacyNormal normal(kSeed);
  const double mean = std::log(median);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(samples); ++i) {
    const double drawn = std::exp(mean + sigma * normal.next());
    result.tokens.push_back(static_cast<std::int32_t>(std::clamp(std::nearbyint(drawn), 1.0, longest)));
  }
  result.assumption = fmt::format(
      "{} lengths are drawn from a log-normal distribution, median {} tokens, sigma {}, at most {} tokens, by a fixed "
      "seed (numpy.random.RandomState({}))",
      samples, median, sigma, longest, kSeed);
  return result;
}

}  // namespace

SampleLengths parse_lengths(std::string_view text, std::string_view name) {
  SampleLengths result;
  std::optional<Row> first;
  std::int64_t line_number = 0, first_line = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trimmed(text.substr(at, end - at));
    at = end + 1;
    ++line_number;
    if (line.empty() || line.front() == '#') continue;
    const auto row = row_of(line);
    if (!row) {
      throw line_error(
          name, line_number, line,
          fmt::format("a length from 1 to {} tokens, or such a length and how many samples have it, from 1 "
                      "to {}",
                      kMostSampleTokens, kMostSamples));
    }
    if (!first) {
      first = row;
      first_line = line_number;
    }
    if (!row->is_like(*first)) {
      throw line_error(name, line_number, line, fmt::format("{}, as on line {}", words_of(*first), first_line));
    }
    const std::int64_t count = row->count.value_or(1);
    if (count > kMostSamples - static_cast<std::int64_t>(result.tokens.size())) {
      throw line_error(name, line_number, line, fmt::format("at most {} samples in all", kMostSamples));
    }
    const auto add = [&](std::vector<std::int32_t>& lengths, std::int64_t tokens) {
      lengths.insert(lengths.end(), static_cast<std::size_t>(count), static_cast<std::int32_t>(tokens));
    };
    add(result.tokens, row->parts[0] + row->parts[1]);
    if (row->part_count > 1) add(result.prompts, row->parts[0]);
    if (row->part_count > 2) add(result.rejected, row->parts[0] + row->parts[2]);
  }
  if (result.tokens.empty()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: found no lengths; accepted: {}", shown_path(name), kAcceptedFile));
  }
  if (first->count) {
    for (auto* lengths : {&result.tokens, &result.prompts, &result.rejected}) shuffle(*lengths);
    result.assumption = fmt::format(
        "the samples of a histogram of lengths have no order: they stand in the data set as torch.randperm of seed {} "
        "puts them",
        kSeed);
  }
  return result;
}

SampleLengths read_lengths(const std::string& argument) {
  if (argument.starts_with(kLognormal)) return drawn_lengths(std::string_view(argument).substr(kLognormal.size()));
  return parse_lengths(read_user_file(argument, kAcceptedFile, kMostLengthsBytes), argument);
}

}  // namespace memcalc
