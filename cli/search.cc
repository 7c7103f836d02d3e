#include "search.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "arguments.h"

namespace memcalc::cli {
namespace {

std::atomic<bool> stop_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may set nothing else");

extern "C" void ask_to_stop(int) {
  stop_asked.store(true, std::memory_order_relaxed);
  std::signal(SIGINT, SIG_DFL);
}

bool is_asked_for_progress() {
  const char* const asked = std::getenv("MEMCALC_PROGRESS");
  return asked != nullptr && std::string_view(asked) == "1";
}

}  // namespace

void add_search_options(CLI::App& command, SearchArguments& arguments) {
  command.add_option("--threads", arguments.threads, "that share the work [all cores]")
      ->type_name("N")
      ->group("Search");
}

ExitStatus with_faults(std::size_t faults, ExitStatus status) {
  if (faults == 0) return status;
  std::fprintf(stderr, "memcalc: error: %zu of the runs asked for ended in a bug of memcalc; please report %s\n",
               faults, faults == 1 ? "it" : "them");
  return kInternalError;
}

Search::Search(const SearchArguments& arguments) {
  if (!arguments.threads.empty()) {
    control_.threads =
        static_cast<unsigned>(std::min<std::int64_t>(parse_whole("--threads", arguments.threads, 1), 1024));
  }
  control_.stop = &stop_asked;
  // A notebook hands on what is written here: python/memcalc/_executable.py.
  if (::isatty(STDERR_FILENO) == 1 || is_asked_for_progress()) {
    control_.progress = [this, begin = std::chrono::steady_clock::now()](std::size_t done, std::size_t total) {
      // What is over in a moment needs no bar.
      if (std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(300)) show(done, total);
    };
  }
  std::signal(SIGINT, ask_to_stop);
}

Search::~Search() {
  std::signal(SIGINT, SIG_DFL);
  clear_progress();
}

void Search::clear_progress() const {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

void Search::show(std::size_t done, std::size_t total) {
  constexpr std::size_t kColumns = 30;
  const std::size_t step = std::max<std::size_t>(1, total / 200);
  if (drawn_ && done != total && done < shown_ + step) return;
  shown_ = done;
  drawn_ = true;
  if (total == 0) {
    std::fprintf(stderr, "\r%zu estimates\x1b[K", done);
    return;
  }
  const std::size_t filled = std::min(kColumns, kColumns * done / total);
  const std::string bar = std::string(filled, '#') + std::string(kColumns - filled, '.');
  std::fprintf(stderr, "\r[%s] %zu of %zu\x1b[K", bar.c_str(), done, total);
}

}  // namespace memcalc::cli
