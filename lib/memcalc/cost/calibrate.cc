#include "memcalc/cost/calibrate.h"

#include <fmt/core.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <variant>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/cost/collective.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/missing_rates.h"

namespace memcalc {

namespace {

double predicted_seconds(const OperatorTiming& timing, const DeviceSpec& device, const DeviceRates& rates) {
  double seconds = 0;
  for (const Kernel& kernel : timing.kernels) {
    const auto* communication = kernel.as<work::Communication>();
    seconds += communication != nullptr ? collective_seconds(*communication, device, rates.link)
                                        : kernel_seconds(kernel, device, rates);
  }
  return seconds;
}

// The search runs over logarithms, so that no rate turns negative and all are of one size.
Eigen::VectorXd logarithms(const DeviceRates& rates) {
  std::vector<double> values;
  visit_rates(rates, [&](const char*, const char*, double value) { values.push_back(std::log(value)); });
  return Eigen::Map<Eigen::VectorXd>(values.data(), static_cast<Eigen::Index>(values.size()));
}

DeviceRates with_logarithms(DeviceRates rates, const Eigen::VectorXd& logarithms) {
  Eigen::Index i = 0;
  visit_rates(rates, [&](const char*, const char*, double& value) { value = std::exp(logarithms[i++]); });
  return rates;
}

// A timing that no model meets (a kernel of another kind was chosen) must not pull the others: errors beyond kLarge
// count linearly (Huber).
constexpr double kLarge = 0.15;

double weight_of(double residual) {
  const double size = std::abs(residual);
  return size <= kLarge ? 1 : std::sqrt(kLarge / size);
}

class Search {
 public:
  Search(const DeviceSpec& device, const DeviceRates& start, std::span<const OperatorTiming> timings)
      : device_(device), start_(start), timings_(timings) {}

  Eigen::VectorXd run() {
    Eigen::VectorXd x = logarithms(start_);
    double damping = 1e-2;
    double cost = cost_of(residuals(x));
    for (int iteration = 0; iteration < 60; ++iteration) {
      const Eigen::VectorXd r = residuals(x);
      const Eigen::MatrixXd jacobian = derivatives(x, r);
      Eigen::VectorXd weights = r.unaryExpr([](double each) { return weight_of(each) * weight_of(each); });
      const Eigen::MatrixXd normal = jacobian.transpose() * weights.asDiagonal() * jacobian;
      const Eigen::VectorXd gradient = jacobian.transpose() * weights.cwiseProduct(r);
      bool improved = false;
      for (int attempt = 0; attempt < 8 && !improved; ++attempt) {
        Eigen::MatrixXd damped = normal;
        for (Eigen::Index i = 0; i < damped.rows(); ++i) damped(i, i) += damping * (normal(i, i) + 1e-3);
        const Eigen::VectorXd step = damped.ldlt().solve(gradient).cwiseMax(-0.7).cwiseMin(0.7);
        const Eigen::VectorXd candidate = x - step;
        const double candidate_cost = cost_of(residuals(candidate));
        if (candidate_cost < cost) {
          improved = true;
          x = candidate;
          damping = std::max(damping / 3, 1e-7);
          if (cost - candidate_cost < 1e-7 * cost) return x;
          cost = candidate_cost;
        } else {
          damping *= 4;
        }
      }
      if (!improved) break;
    }
    return x;
  }

 private:
  Eigen::VectorXd residuals(const Eigen::VectorXd& x) const {
    const DeviceRates rates = with_logarithms(start_, x);
    Eigen::VectorXd r(static_cast<Eigen::Index>(timings_.size()));
    for (std::size_t i = 0; i < timings_.size(); ++i) {
      r[static_cast<Eigen::Index>(i)] = std::log(predicted_seconds(timings_[i], device_, rates) / timings_[i].seconds);
    }
    return r;
  }

  Eigen::MatrixXd derivatives(const Eigen::VectorXd& x, const Eigen::VectorXd& r) const {
    constexpr double kStep = 1e-4;
    Eigen::MatrixXd jacobian(r.size(), x.size());
    for (Eigen::Index i = 0; i < x.size(); ++i) {
      Eigen::VectorXd moved = x;
      moved[i] += kStep;
      jacobian.col(i) = (residuals(moved) - r) / kStep;
    }
    return jacobian;
  }

  static double cost_of(const Eigen::VectorXd& r) {
    double sum = 0;
    for (const double each : r) {
      const double size = std::abs(each);
      sum += size <= kLarge ? size * size : kLarge * (2 * size - kLarge);
    }
    return sum;
  }

  const DeviceSpec& device_;
  const DeviceRates& start_;
  std::span<const OperatorTiming> timings_;
};

// A loop goes over the same tensors again and finds them in the second-level cache, where a step's come from memory:
// of an H100, 25 MB that a step adds at 3.0 TB/s a loop adds at 5.7. Very small ones say what a launch takes.
bool held_by_cache(const OperatorTiming& timing, const DeviceRates& rates) {
  constexpr double kLeastBytes = 4e6, kTimesCache = 2;
  double bytes = 0;
  for (const Kernel& kernel : timing.kernels) {
    if (!std::holds_alternative<std::monostate>(kernel.work) && kernel.as<work::Rows>() == nullptr) return false;
    bytes = std::max(bytes, kernel.bytes);
  }
  return bytes > kLeastBytes && bytes < kTimesCache * rates.cache.bytes;
}

double quantile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

std::vector<FitSummary> summarize(const DeviceSpec& device, const DeviceRates& rates,
                                  std::span<const OperatorTiming> timings) {
  std::vector<FitSummary> summary;
  std::map<std::string, std::vector<double>> errors;
  for (const OperatorTiming& timing : timings) {
    std::vector<double>& of_name = errors[timing.name];
    if (of_name.empty()) summary.push_back({.name = timing.name});
    of_name.push_back(std::abs(predicted_seconds(timing, device, rates) / timing.seconds - 1));
  }
  for (FitSummary& each : summary) {
    std::vector<double>& of_name = errors[each.name];
    each.rows = of_name.size();
    each.median_error = quantile(of_name, 0.5);
    each.p90_error = quantile(of_name, 0.9);
  }
  return summary;
}

}  // namespace

Calibration calibrate(const DeviceSpec& device, const DeviceRates& given, std::span<const OperatorTiming> timings) {
  DeviceRates start = given;
  start.product_times.clear();  // the formula is fitted, of which those say how far it is off
  for (const OperatorTiming& timing : timings) {
    KernelList kernels;
    for (const Kernel& kernel : timing.kernels) kernels.push_back(kernel);
    const std::vector<std::string> missing = missing_rates(kernels, device);
    if (missing.empty()) continue;
    throw Error(ErrorCode::kInput,
                fmt::format("calibrate: {} was timed, of which the spec of {} lacks {}; accepted: rows of types whose "
                            "rate the card's file has",
                            timing.name, device.name, missing.front()));
  }
  std::vector<OperatorTiming> fitted;
  for (const OperatorTiming& timing : timings) {
    if (!held_by_cache(timing, start)) fitted.push_back(timing);
  }
  Calibration result;
  result.rates = with_logarithms(start, Search(device, start, fitted).run());
  result.summary = summarize(device, result.rates, timings);
  return result;
}

}  // namespace memcalc
