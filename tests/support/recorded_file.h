// Recorded text under tests/measured, most of it compressed (zlib's gz* functions read both kinds), and the records of
// all runs there.
#pragma once

#include <filesystem>
#include <functional>
#include <sstream>
#include <string>

#include "memcalc/spec/json_reader.h"

namespace memcalc::measured {

/// The text of `path`, or of `path`.gz where only that exists; a stream that has failed where neither can be read.
[[nodiscard]] std::istringstream open_recorded(const std::filesystem::path& path);

/// Every row of a run (single_gpu.jsonl, trainer.jsonl, rows_*.jsonl) and the head of every history, with the name of
/// its file.
void for_each_record(const std::function<void(const std::string& file, const JsonObject& record)>& each);

}  // namespace memcalc::measured
