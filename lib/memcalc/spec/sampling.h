// How generate() chooses the next token where it does not take the likeliest (do_sample=True): --sampling.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace memcalc {

/// What the scores pass before a token is drawn, in no order: the framework has its own.
enum class ScoreRule : std::uint8_t { kRepetitionPenalty, kTemperature, kTopK, kTopP, kMinP };

/// As --sampling calls them; `plain` is none of them.
inline constexpr std::array<std::string_view, 5> kScoreRuleNames{"repetition-penalty", "temperature", "top-k", "top-p",
                                                                 "min-p"};
inline constexpr std::string_view kPlainSampling = "plain";

struct Sampling {
  std::array<bool, kScoreRuleNames.size()> rules{};

  void add(ScoreRule rule) { rules[static_cast<std::size_t>(rule)] = true; }
  [[nodiscard]] bool has(ScoreRule rule) const { return rules[static_cast<std::size_t>(rule)]; }
  [[nodiscard]] bool operator==(const Sampling&) const = default;
};

/// Nothing for a word that is none of the above, and for an empty list.
[[nodiscard]] inline std::optional<Sampling> sampling_of(const std::vector<std::string>& words) {
  if (words.empty()) return std::nullopt;
  Sampling sampling;
  for (const std::string& word : words) {
    bool known = word == kPlainSampling && words.size() == 1;
    for (std::size_t i = 0; i < kScoreRuleNames.size(); ++i) {
      if (word == kScoreRuleNames[i]) known = sampling.rules[i] = true;
    }
    if (!known) return std::nullopt;
  }
  return sampling;
}

[[nodiscard]] inline std::vector<std::string> words_of(const Sampling& sampling) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < kScoreRuleNames.size(); ++i) {
    if (sampling.rules[i]) words.emplace_back(kScoreRuleNames[i]);
  }
  if (words.empty()) words.emplace_back(kPlainSampling);
  return words;
}

}  // namespace memcalc
