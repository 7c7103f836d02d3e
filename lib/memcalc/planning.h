// The planner's facade, beside memcalc.h: what asks for many estimates. Everything is a pure function of its arguments
// but for the progress that it reports and the stop flag that it reads (SearchControl).
//
//   const memcalc::Largest largest = memcalc::find_largest(model, run, device, {.measure = memcalc::Measure::kBatch});
//   std::cout << memcalc::render(memcalc::answer_of(largest), memcalc::Format::kText);
#pragma once

#include "memcalc/memcalc.h"
#include "memcalc/plan/axolotl_settings.h"
#include "memcalc/plan/check.h"
#include "memcalc/plan/ladder.h"
#include "memcalc/plan/largest.h"
#include "memcalc/plan/outcome.h"
#include "memcalc/plan/plan.h"
#include "memcalc/plan/search_control.h"
#include "memcalc/plan/sweep.h"
#include "memcalc/plan/upgrade.h"
#include "memcalc/plan/utilization.h"
#include "memcalc/report/answer.h"
#include "memcalc/spec/hosts.h"
#include "memcalc/spec/not_modelled.h"
#include "memcalc/spec/option_names.h"
#include "memcalc/spec/user_file.h"
