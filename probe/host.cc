#include "host.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "input_error.h"

namespace memcalc::probe {

namespace {

constexpr int kNotFound = 127;  // exit status of a child that could not become the program

// Prints those of the packages that this Python does not find.
constexpr const char* kMissing =
    "import importlib.util as of; "
    "print(*[each for each in ('memcalc', 'torch', 'transformers') if of.find_spec(each) is None], sep=', ')";

void become(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
}

std::runtime_error system_error(const char* call) {
  return std::runtime_error(std::string(call) + ": " + std::strerror(errno));
}

/// What a program prints, without the end of its line.
std::string output_of(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw system_error("pipe");
  const pid_t child = fork();
  if (child < 0) throw system_error("fork");
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    become(words);
    _exit(kNotFound);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 256> part{};
  for (ssize_t size = 0; (size = read(ends[0], part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) {
    throw InputError("host: found no program '" + words[0] +
                     "'; accepted: --python PATH, a Python with memcalc, torch and transformers");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw InputError("host: " + words[0] + " is no Python 3 that starts");
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

}  // namespace

void measure_host(const HostOptions& options) {
  const std::string missing = output_of({options.python, "-c", kMissing});
  if (!missing.empty()) {
    throw InputError(
        "host: " + options.python + " has no " + missing +
        "; a host file times Python, PyTorch and transformers; accepted: a Python with all three (--python PATH)");
  }
  become({options.python, "-m", "memcalc.measure", "--host", options.output_path});
  throw system_error(options.python.c_str());
}

}  // namespace memcalc::probe
