// How long the samples of a data set are: a file of lengths, a histogram, or a log-normal distribution.
// Covered by tests/unit/lengths_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memcalc {

inline constexpr std::int64_t kMostSamples = 10'000'000;
inline constexpr std::int64_t kMostSampleTokens = std::int64_t{1} << 24U;  // the longest contexts are of 10 million
inline constexpr std::int64_t kDrawnSamples = 10'000;                      // of a distribution that names no number

struct SampleLengths {
  std::vector<std::int32_t> tokens;    // of each sample, in the order of the data set; never empty; prompt and answer,
                                       // of two answers the chosen one
  std::vector<std::int32_t> prompts;   // of these; empty: the file does not tell prompts from answers
  std::vector<std::int32_t> rejected;  // prompt and rejected answer; empty: the file has no second answer
  std::int64_t most = kMostSampleTokens;  // at which sequences are cut (--seq)
  std::string assumption;                 // what was not said and is assumed, as a line of the report; empty: nothing
};

/// What --lengths names: "lognormal:MEDIAN,SIGMA,MAX", or else a file.
///
/// lognormal:200,0.6,1024: lengths whose median is 200 tokens and whose logarithm has the standard deviation 0.6; those
/// above 1024 are 1024. 10,000 samples, or as many as a fourth number says. They are
/// numpy.random.RandomState(0).lognormal(log(MEDIAN), SIGMA, SAMPLES), rounded (numpy.rint) and put between 1 and MAX.
///
/// Throws Error(kUsage) for wrong numbers of a distribution, and Error(kInput) for a wrong file.
[[nodiscard]] SampleLengths read_lengths(const std::string& argument);

/// The text of such a file; `name` stands for it in messages. Each line is a length, or each is a length and how many
/// samples have it ("128 4000"). A length is a number of tokens, or "200/57": a prompt of 200 and an answer of 57, or
/// "200/57/80": a prompt, the chosen and the rejected answer; all lines of one kind. Blank lines and lines that begin
/// with # are skipped. A histogram knows no order: its samples are put in the order of torch.randperm, seed 0.
[[nodiscard]] SampleLengths parse_lengths(std::string_view text, std::string_view name);

}  // namespace memcalc
