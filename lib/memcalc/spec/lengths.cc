#include "memcalc/spec/lengths.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>

#include "memcalc/base/error.h"
#include "memcalc/base/number_text.h"
#include "memcalc/base/torch_generator.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {
namespace {

constexpr std::string_view kAcceptedFile =
    "a text file with a length in tokens on each line, or a length and how many samples have it";
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

/// A line of the file: a length, and of a histogram its count.
struct Row {
  std::int64_t tokens = 0;
  std::optional<std::int64_t> count{};
};

std::optional<Row> row_of(std::string_view line) {
  const auto gap = std::find_if(line.begin(), line.end(), is_space);
  const auto tokens = whole_number(line.substr(0, static_cast<std::size_t>(gap - line.begin())), kMostSampleTokens);
  if (!tokens) return std::nullopt;
  if (gap == line.end()) return Row{*tokens};
  const auto count = whole_number(trimmed(line.substr(static_cast<std::size_t>(gap - line.begin()))), kMostSamples);
  if (!count) return std::nullopt;
  return Row{*tokens, count};
}

Error line_error(std::string_view name, std::int64_t line, std::string_view found, const std::string& accepted) {
  return {ErrorCode::kInput,
          fmt::format("{}:{}: found '{}'; accepted: {}", shown_path(name), line, one_line(found), accepted)};
}

std::vector<std::int32_t> shuffled(const std::vector<std::int32_t>& tokens) {
  std::vector<std::int32_t> result;
  result.reserve(tokens.size());
  TorchGenerator generator(kSeed);
  for (const std::uint32_t i : generator.randperm(static_cast<std::int64_t>(tokens.size()))) {
    result.push_back(tokens[i]);
  }
  return result;
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
  if (!right || count < 3) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--lengths: found '{}{}'; accepted: lognormal:MEDIAN,SIGMA,MAX[,SAMPLES], as in "
                            "lognormal:200,0.6,1024: median and maximum from 1 to {} tokens, sigma (of the logarithm) "
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
  std::optional<bool> histogram;
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
    if (!histogram) {
      histogram = row->count.has_value();
      first_line = line_number;
    }
    if (*histogram != row->count.has_value()) {
      throw line_error(
          name, line_number, line,
          fmt::format("{}, as on line {}", *histogram ? "a length and a count" : "one length", first_line));
    }
    const std::int64_t count = row->count.value_or(1);
    if (count > kMostSamples - static_cast<std::int64_t>(result.tokens.size())) {
      throw line_error(name, line_number, line, fmt::format("at most {} samples in all", kMostSamples));
    }
    result.tokens.insert(result.tokens.end(), static_cast<std::size_t>(count), static_cast<std::int32_t>(row->tokens));
  }
  if (result.tokens.empty()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: found no lengths; accepted: {}", shown_path(name), kAcceptedFile));
  }
  if (*histogram) {
    result.tokens = shuffled(result.tokens);
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
