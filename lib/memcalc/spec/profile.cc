#include "memcalc/spec/profile.h"

#include <fmt/core.h>

namespace memcalc {

void take_software(Profile& profile, Software of, const Profile& from) {
  profile.version(of) = from.version(of);
  for (const Behavior& row : behavior_table()) {
    if (row.software == of) row.set(profile.behaviors, row.get(from.behaviors));
  }
  if (of != Software::kTorch) return;
  profile.cuda = from.cuda;
  profile.other_cuda = from.other_cuda;
  profile.oldest_architecture = from.oldest_architecture;
  profile.wheel_of_older = from.wheel_of_older;
  profile.cudnn = from.cudnn;
  profile.nccl = from.nccl;
}

std::string wheel_of(const Profile& profile, Software of) {
  std::string text = text_of(profile.version(of));
  if (of == Software::kTorch && profile.other_cuda) {
    text += fmt::format("+cu{}{}", profile.cuda.major, profile.cuda.minor);
  }
  return text;
}

std::vector<std::size_t> differences(const Profile& a, const Profile& b) {
  std::vector<std::size_t> rows;
  const std::span<const Behavior> table = behavior_table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].get(a.behaviors) != table[i].get(b.behaviors)) rows.push_back(i);
  }
  return rows;
}

}  // namespace memcalc
