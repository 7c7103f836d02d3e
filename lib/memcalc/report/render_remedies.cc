// Remedies as text and as Markdown: commands that can be copied as they stand, in text continued over lines.
#include <fmt/core.h>

#include <string>

#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"

namespace memcalc {
namespace {

/// "checkpointing of every layer, micro-batches of 1, 8 a step: 20.2 GiB, 1.31 s a step"
std::string summary_of(const Remedy& remedy) {
  std::string text;
  for (const std::string& each : remedy.techniques) text += (text.empty() ? "" : " + ") + each;
  text += ": needs " + format_bytes(remedy.needed);
  if (remedy.verdict == Verdict::kTooClose) text += ", too close to call";
  if (remedy.step_seconds) text += fmt::format(", {} a step", format_seconds(*remedy.step_seconds));
  return text;
}

/// The words of a command; what stands in quotes is a part of one.
std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : command) {
    if (c == '\'') quoted = !quoted;
    if (c == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

/// A command over several lines, as a shell continues them; an option stays beside its value.
std::vector<std::string> continued(const std::string& command, std::size_t columns) {
  constexpr std::size_t kBackslash = 2;
  std::vector<std::string> parts;
  for (std::string& word : words_of(command)) {
    const bool is_value = !parts.empty() && parts.size() > 1 && !word.starts_with("--");
    if (is_value) {
      parts.back() += " " + word;
    } else {
      parts.push_back(std::move(word));
    }
  }
  std::vector<std::string> lines;
  for (const std::string& part : parts) {
    if (lines.empty()) {
      lines.push_back(part);
    } else if (lines.back().size() + 1 + part.size() + kBackslash <= columns) {
      lines.back() += " " + part;
    } else {
      lines.back() += " \\";
      lines.push_back("  " + part);
    }
  }
  return lines;
}

}  // namespace

std::string_view heading_of(const std::vector<Remedy>& remedies) {
  return remedies.front().verdict == Verdict::kFits ? "What would fit"
                                                    : "Nothing that was tried fits; what needs least";
}

std::vector<std::string> lines_of(const std::vector<Remedy>& remedies, std::size_t columns) {
  std::vector<std::string> lines;
  std::size_t number = 0;
  for (const Remedy& remedy : remedies) {
    std::string lead = fmt::format("  {}. ", ++number);
    for (const std::string& text : {summary_of(remedy), "costs: " + remedy.price}) {
      for (const std::string& part : wrap(text, columns - lead.size())) {
        lines.push_back(lead + part);
        lead.assign(lead.size(), ' ');
      }
    }
    for (const std::string& part : continued(remedy.command, columns - lead.size())) lines.push_back(lead + part);
  }
  return lines;
}

std::string markdown_of(const std::vector<Remedy>& remedies) {
  std::string out = fmt::format("**{}**\n", heading_of(remedies));
  for (const Remedy& remedy : remedies) {
    out += fmt::format("\n- {}; {}\n\n  ```sh\n  {}\n  ```\n", summary_of(remedy), remedy.price, remedy.command);
  }
  return out;
}

}  // namespace memcalc
