// Other tools' configuration files, and the options that they become.
#include <vector>

#include "memcalc/spec/config_files/config_file.h"
#include "memcalc/spec/run_fields.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(config_file) {
  memcalc::fuzz::expect_answer_or_one_line([&] {
    const std::vector<memcalc::ConfigOption> typed = {{"--model", "gpt2", ""}, {"--gpus", "2", ""}};
    const char* const name = text.starts_with('[') ? "run.toml" : "run.yml";
    const memcalc::ConfigFile read = memcalc::read_config_text(text, {name, "", {}});
    memcalc::RunRequest request;
    for (const memcalc::ConfigOption& each : memcalc::config_beside(read, typed).options) {
      memcalc::set_option(request, each.flag, each.text);
    }
  });
}
