#include "memcalc/plan/plan_search.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "memcalc/plan/plainness.h"

namespace memcalc {
namespace {

constexpr std::size_t kWave = 8;         // surveyed before the next decision: the same on any number of threads
constexpr std::size_t kFirstWaves = 2;   // of kinds that differ
constexpr double kAnotherKind = 2.5;     // a distance
constexpr double kSizesAlone = 1;        // a distance
constexpr std::size_t kWithRefused = 4;  // times the budget
constexpr double kTooSlow = 1.3;         // times the fastest: the expectation is not that wrong

double steps_between(std::int32_t a, std::int32_t b) {
  return std::abs(std::log2(static_cast<double>(a)) - std::log2(static_cast<double>(b)));
}

bool is_timed(const Choice& c) { return !c.offload_states && !c.offload_parameters; }

}  // namespace

double distance_of(const PlanQuestion& question, const Choice& a, const Choice& b) {
  double distance = 0;
  if (a.way != b.way || a.data_parallel != b.data_parallel) distance += 4;
  if (a.offload_states != b.offload_states || a.offload_parameters != b.offload_parameters) distance += 4;
  if (a.offload_activations != b.offload_activations) distance += 3;
  if (a.checkpointing != b.checkpointing) distance += 2.5;
  if (a.reshard != b.reshard) distance += 1;
  if (a.schedule != b.schedule) distance += 1;
  // Gradients of earlier micro-batches lie beside activations, whole or sharded.
  if ((micro_batches_of(question, a) > 1) != (micro_batches_of(question, b) > 1)) distance += 1;
  distance += 0.3 * steps_between(a.checkpoint_every, b.checkpoint_every);
  distance += steps_between(a.tensor, b.tensor) + steps_between(a.context, b.context);
  distance += 0.7 * steps_between(a.pipeline, b.pipeline) + 0.7 * steps_between(a.expert, b.expert);
  distance += 0.5 * steps_between(a.virtual_stages, b.virtual_stages);
  return distance + 0.2 * steps_between(a.micro_batch, b.micro_batch);
}

PlanSearch::PlanSearch(const PlanQuestion& question, std::vector<Contender> contenders)
    : question_(question), contenders_(std::move(contenders)), expected_(contenders_.size()) {}

double PlanSearch::expected_bytes(std::size_t place) const {
  const Contender& each = contenders_[place];
  return each.least + expected_[place].share * (each.likely - each.least);
}

double PlanSearch::expected_seconds(std::size_t place) const {
  return contenders_[place].ranking_seconds * expected_[place].ratio;
}

void PlanSearch::learn_from(std::size_t place) {
  const Contender& from = contenders_[place];
  const Outcome& outcome = from.survey->outcome;
  if (!outcome.answered()) {
    ++refused_;
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      double& nearest = expected_[i].refused_distance;
      nearest = std::min(nearest, distance_of(question_, from.choice, contenders_[i].choice));
    }
    return;
  }
  const bool timed = outcome.speed.has_value() && from.ranking_seconds > 0;
  const double share = std::max(0.0, static_cast<double>(outcome.needed + outcome.error) - from.least) /
                       std::max(1.0, from.likely - from.least);
  const double ratio = timed ? outcome.speed->step_seconds / from.ranking_seconds : 1;
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    if (contenders_[i].survey) continue;
    const double distance = distance_of(question_, from.choice, contenders_[i].choice);
    Expectation& expected = expected_[i];
    if (timed && distance < expected.timed_distance) {
      expected.timed_distance = distance;
      expected.ratio = ratio;
    }
    if (distance >= expected.distance) continue;
    expected.distance = distance;
    expected.share = distance > kAnotherKind ? std::min(share, 1.0) : share;
  }
  const bool in_host = question_.host.bytes_per_gpu == 0 || outcome.host <= question_.host.bytes_per_gpu;
  if (timed && outcome.fits() && in_host && (fastest_ == 0 || outcome.speed->step_seconds < fastest_)) {
    fastest_ = outcome.speed->step_seconds;
  }
}

std::vector<std::size_t> PlanSearch::next_wave() const {
  const auto card = static_cast<double>(question_.device.usable_bytes());
  std::vector<Promise> hopeful, all;
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    if (contenders_[i].survey) continue;
    const bool doubtful = expected_[i].refused_distance < std::min(kSizesAlone, expected_[i].distance);
    const Promise promise{i, expected_bytes(i), expected_seconds(i), doubtful};
    all.push_back(promise);
    if (promise.bytes <= card && is_timed(contenders_[i].choice)) hopeful.push_back(promise);
  }
  if (fastest_ > 0 && surveyed_ >= kFirstWaves * kWave && !worth_a_look(hopeful)) return {};
  // Plainer ones first, of what is expected to be about as fast.
  for (Promise& each : hopeful) each.seconds *= 1 + kAsFast * strangeness_of(contenders_[each.place].choice);
  const auto faster = [](const Promise& a, const Promise& b) {
    return std::tie(a.doubtful, a.seconds, a.bytes, a.place) < std::tie(b.doubtful, b.seconds, b.bytes, b.place);
  };
  const auto leaner = [](const Promise& a, const Promise& b) {
    return std::tie(a.doubtful, a.bytes, a.seconds, a.place) < std::tie(b.doubtful, b.bytes, b.seconds, b.place);
  };
  std::sort(hopeful.begin(), hopeful.end(), faster);
  std::sort(all.begin(), all.end(), leaner);
  std::vector<std::size_t> wave;
  // The first in order that is no nearer to another of the wave, nor (`unseen`) to one that was surveyed.
  const auto take = [&](const std::vector<Promise>& sorted, double apart, bool unseen, std::size_t most) {
    for (const Promise& each : sorted) {
      if (most == 0 || wave.size() == kWave) return;
      if (unseen && expected_[each.place].distance < apart) continue;
      const bool near = std::any_of(wave.begin(), wave.end(), [&](std::size_t other) {
        return distance_of(question_, contenders_[each.place].choice, contenders_[other].choice) < apart;
      });
      if (near) continue;
      wave.push_back(each.place);
      --most;
    }
  };
  constexpr double kSizesApart = 0.25;  // not two micro-batches of one kind beside each other
  take(all, kSizesApart, false, 1);
  if (surveyed_ >= kFirstWaves * kWave) take(hopeful, kSizesApart, false, 5);
  take(hopeful, kAnotherKind, true, kWave);
  take(hopeful, kSizesApart, false, kWave);
  take(all, kSizesApart, false, kWave);
  return wave;
}

bool PlanSearch::worth_a_look(const std::vector<Promise>& hopeful) const {
  return std::any_of(hopeful.begin(), hopeful.end(),
                     [&](const Promise& each) { return each.seconds < kTooSlow * fastest_; });
}

void PlanSearch::survey(std::size_t most, const SearchControl& control) {
  // A refusal costs little, so that it takes nothing of the budget, within reason.
  while (surveyed_ - refused_ < most && surveyed_ < kWithRefused * most && !control.stopped()) {
    std::vector<std::size_t> wave = next_wave();
    if (wave.empty()) return;
    wave.resize(std::min(wave.size(), most + refused_ - surveyed_));
    const SearchControl counted{.threads = control.threads,
                                .progress =
                                    [&](std::size_t done, std::size_t) {
                                      if (control.progress)
                                        control.progress(std::min(most, surveyed_ - refused_ + done), most);
                                    },
                                .stop = control.stop};
    (void)for_each_index(wave.size(), counted, [&](std::size_t i) {
      Contender& each = contenders_[wave[i]];
      each.survey = std::make_unique<Survey>(memcalc::surveyed(candidate_of(question_, each.choice)));
      if (each.survey->whole) each.simulated = std::make_unique<Outcome>(each.survey->outcome);
    });
    for (const std::size_t place : wave) {
      if (!contenders_[place].survey) continue;  // stopped
      ++surveyed_;
      learn_from(place);
    }
  }
}

}  // namespace memcalc
