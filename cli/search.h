// A search over many estimates, as the command line runs it: its number of threads, a progress bar on a terminal, and
// Ctrl-C, which ends the search and prints the best so far.
#pragma once

#include <cstddef>
#include <string>

#include "command.h"
#include "memcalc/planning.h"

namespace CLI {
class App;
}

namespace memcalc::cli {

/// --threads, as typed.
struct SearchArguments {
  std::string threads;
};

void add_search_options(CLI::App& command, SearchArguments& arguments);

/// Says on standard error that `faults` of the answer's rows ended in a bug of memcalc, and makes the status
/// kInternalError; without any: `status`.
[[nodiscard]] ExitStatus with_faults(std::size_t faults, ExitStatus status);

/// While one lives, the first Ctrl-C asks the search to stop; a second one ends the process as ever.
class Search {
 public:
  explicit Search(const SearchArguments& arguments);
  ~Search();
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  [[nodiscard]] const SearchControl& control() const { return control_; }
  [[nodiscard]] bool interrupted() const { return control_.stopped(); }

  /// Before the answer is written: takes the progress bar off the terminal.
  void clear_progress() const;

 private:
  void show(std::size_t done, std::size_t total);

  SearchControl control_;
  std::size_t shown_ = 0;
  mutable bool drawn_ = false;
};

}  // namespace memcalc::cli
