// What is said of a run on several GPUs: how it is split, and what its ranks need.
#include <string>

#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/spec/parallel_names.h"

namespace memcalc {

std::vector<std::string> split_of(const Parallel& p) {
  const auto* mesh = std::get_if<TorchMesh>(&p.layout);
  std::vector<std::string> words = {std::to_string(p.gpus) + " " + plural(p.gpus, "GPU")};
  if (p.nodes > 1) words.back() += " in " + std::to_string(p.nodes) + " hosts";
  if (p.data_parallel != DataParallel::kNone) {
    words.push_back(std::string(name_of(p.data_parallel)) + " over " + std::to_string(sharing_ranks(p)));
    if (mesh != nullptr && mesh->hsdp_shard > 0) {
      words.back() += " in groups of " + std::to_string(mesh->hsdp_shard);
    }
  }
  const auto add = [&](const char* name, std::int64_t size) {
    if (size > 1) words.push_back(std::string(name) + " " + std::to_string(size));
  };
  add("tp", p.tensor);
  if (p.sequence_parallel) words.emplace_back("sequence parallel");
  if (mesh != nullptr && mesh->loss_parallel) words.emplace_back("loss parallel");
  add("cp", p.context);
  if (p.context > 1) words.back() += " (" + std::string(name_of(p.context_type)) + ")";
  add("ep", p.expert);
  add("pp", p.pipeline);
  if (p.pipeline > 1) words.back() += " (" + std::string(name_of(p.schedule)) + ")";
  if (p.framework() != Framework::kTorch) words.emplace_back(name_of(p.framework()));
  return words;
}

std::string words_of(const RankRow& row) {
  std::string words = row.name;
  if (!row.holds.empty()) words += ": " + row.holds;
  return words;
}

}  // namespace memcalc
