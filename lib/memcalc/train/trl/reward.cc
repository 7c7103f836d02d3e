// MIRRORS(trl, "trainer/reward_trainer.py", "1.16.0")
#include "memcalc/train/trl/reward.h"

#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/gather.h"
#include "memcalc/train/trl/metrics.h"

namespace memcalc {

namespace {

/// Lowest, mean and highest score, how often the chosen answer is the better one, and by how much.
void look_at_rewards(const Tensor& logits, const Tensor& chosen, const Tensor& rejected) {
  const NoGrad no_grad(logits.tape().modes);
  {
    const Tensor all = gathered(logits);
    read_on_host(no_grad::max(all));  // min() asks for the same
    read_on_host(mean(all, 0b11, false));
    read_on_host(no_grad::max(all));
  }
  Tensor mean_accuracy = mean(no_grad::to(no_grad::greater(chosen, rejected), DType::kFloat32), 1, false);
  look_at(mean_accuracy);
  mean_accuracy.reset();  // the variable now holds a number
  Tensor mean_margin = mean(subtract(chosen, rejected), 1, false);
  mean_margin = mean(gathered(mean_margin), mean_margin.tape().processes > 1 ? 1 : 0, false);
  read_on_host(mean_margin);
  mean_margin.reset();
}

}  // namespace

Tensor reward_loss(Tape& tape, const Batch& inputs, const CallModel& call_model) {
  ModelOutput outputs = call_model(inputs);
  std::vector<Tensor> rewards = halves(squeeze(outputs.logits, 1));
  Tensor loss = mean(log_sigmoid(rewards[0] - rewards[1]), 1, false);
  loss = negate(std::move(loss));
  if (tape.modes.training) look_at_sum(inputs.attention_mask);
  look_at_rewards(outputs.logits, rewards[0], rewards[1]);
  outputs.clear();
  rewards.clear();
  return loss;
}

}  // namespace memcalc
