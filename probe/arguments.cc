#include "arguments.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "input_error.h"

namespace memcalc::probe {

namespace {

double seconds_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 1 && value <= 3600)) {
    throw InputError("--budget: found '" + text + "'; accepted: 1 to 3600 seconds");
  }
  return value;
}

// A file that cannot be written is told before a minute of measuring.
std::string writable(const std::string& option, const std::string& path) {
  const bool existed = std::filesystem::exists(path);
  if (!std::ofstream(path, std::ios::app)) throw InputError(option + ": " + path + " cannot be written");
  if (!existed) std::filesystem::remove(path);
  return path;
}

MeasureOptions measure_options(const std::vector<std::string>& words) {
  MeasureOptions options;
  const char* specs = std::getenv("MEMCALC_SPEC_PATH");
  options.specs = specs != nullptr ? specs : MEMCALC_SOURCE_SPECS;
  for (std::size_t i = 1; i < words.size(); i += 2) {
    const std::string& option = words[i];
    if (option != "--output" && option != "--rows" && option != "--specs" && option != "--budget") {
      throw InputError("measure: unknown option '" + option + "'; accepted: --output, --rows, --specs, --budget");
    }
    if (i + 1 == words.size()) throw InputError(option + ": expected a value, found nothing");
    const std::string& value = words[i + 1];
    if (option == "--output") options.output_path = writable(option, value);
    if (option == "--rows") options.rows_path = writable(option, value);
    if (option == "--specs") options.specs = value;
    if (option == "--budget") options.budget_seconds = seconds_of(value);
  }
  if (!std::filesystem::is_directory(options.specs)) {
    throw InputError("--specs: " + options.specs + " is not a directory; accepted: memcalc's specs");
  }
  return options;
}

HostOptions host_options(const std::vector<std::string>& words) {
  HostOptions options;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--python") {
      if (i + 1 == words.size()) throw InputError("--python: expected a value, found nothing");
      options.python = words[++i];
    } else if (words[i].starts_with("--")) {
      throw InputError("host: unknown option '" + words[i] + "'; accepted: --python");
    } else if (options.output_path.empty()) {
      options.output_path = writable("host", words[i]);
    } else {
      throw InputError("host: found another file '" + words[i] + "'; accepted: one file");
    }
  }
  if (options.output_path.empty()) throw InputError("host: found no file; accepted: the one to write");
  return options;
}

}  // namespace

Arguments parse(const std::vector<std::string>& words) {
  if (words.empty()) throw InputError("expected a command, found nothing; accepted: host, measure, run");
  Arguments arguments;
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h") return arguments;
  }
  if (words[0] == "measure") {
    arguments.command = Command::kMeasure;
    arguments.measure = measure_options(words);
  } else if (words[0] == "host") {
    arguments.command = Command::kHost;
    arguments.host = host_options(words);
  } else if (words[0] == "run") {
    arguments.command = Command::kRun;
    if (words.size() != 2) {
      throw InputError("run: found " + std::to_string(words.size() - 1) + " arguments; accepted: one file");
    }
    arguments.replay_path = words[1];
  } else {
    throw InputError("unknown command '" + words[0] + "'; accepted: host, measure, run");
  }
  return arguments;
}

}  // namespace memcalc::probe
