// Options of the command line, one a line: "--bs 4".
#include <algorithm>
#include <cstdlib>

#include "memcalc/spec/run_fields.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(run_options) {
  memcalc::RunRequest request;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t space = std::min(line.find(' '), line.size());
    memcalc::fuzz::expect_answer_or_one_line([&] {
      const memcalc::Field* field = memcalc::find_field(line.substr(0, space));
      if (field == nullptr) return;
      const std::string_view value = line.substr(std::min(space + 1, line.size()));
      memcalc::set_field(request, *field, memcalc::parse_field(*field, value));
    });
  }
  for (const std::size_t row : request.given) {
    if (row >= memcalc::run_fields().size()) std::abort();
  }
}
