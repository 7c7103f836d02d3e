#include "memcalc/spec/router_loss.h"

#include <variant>

namespace memcalc {

bool returns_router_logits(const ModelSpec& model) {
  const auto& architecture = model.architecture;
  return std::holds_alternative<MixtralSpec>(architecture) || std::holds_alternative<Qwen3MoeSpec>(architecture) ||
         std::holds_alternative<GptOssSpec>(architecture);
}

}  // namespace memcalc
