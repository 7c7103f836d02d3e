// What the user gave is wrong, or there is no card: one line and exit status 2, where other exceptions are 3.
#pragma once

#include <stdexcept>

namespace memcalc::probe {

struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace memcalc::probe
