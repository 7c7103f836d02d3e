#include "answers.h"

#include <algorithm>
#include <array>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace memcalc::web {
namespace {

using Json = nlohmann::ordered_json;

std::string written(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// An object of values that are already JSON.
class Object {
 public:
  Object& put(std::string_view key, const std::string& json) {
    text_ += (text_.empty() ? "\"" : ",\"") + std::string(key) + "\":" + json;
    return *this;
  }
  Object& put(std::string_view key, const Json& json) { return put(key, written(json)); }
  [[nodiscard]] std::string text() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

/// The options as they would be typed: {"--bs": "4"}.
RunRequest request_of(const Json& asked) {
  RunRequest request;
  const auto options = asked.find("options");
  if (options == asked.end() || !options->is_object()) {
    throw Error(ErrorCode::kUsage, "options: expected an object of options and their texts");
  }
  for (const auto& [flag, text] : options->items()) {
    if (!text.is_string()) throw Error(ErrorCode::kUsage, one_line(flag) + ": expected its text", flag);
    set_option(request, flag, text.get<std::string>());
  }
  return request;
}

std::string text_of(const Json& asked, const char* key) {
  const auto found = asked.find(key);
  return found != asked.end() && found->is_string() ? found->get<std::string>() : std::string();
}

RunRecord ran_of(const Report& report) {
  return {report.model, report.run, &report.device, &report.asked_time, report.device_assumed};
}

Json certainty_json(const Report& report) {
  const std::optional<Certainty> certainty = certainty_of(report);
  if (!certainty) return Json::object();
  return {{"kind", certainty->kind}, {"runs", certainty->runs}, {"share", certainty->share}};
}

std::string estimate_answer(Answers& answers, const Json& asked) {
  const Question question = answers.question(request_of(asked));
  Report report = estimate(question);
  if (!question.run.run.trains() && !question.device_assumed) {
    report.concurrent_sequences =
        find_largest(question.model, question.run, question.device, {.neighbours = 0}, {.threads = 1}).unhurried;
  }
  Object answer;
  answer.put("report", render(report, Format::kJson, {.explain = asked.contains("explain")}));
  answer.put("command", Json("memcalc " + command_of(ran_of(report))));
  answer.put("certainty", certainty_json(report));
  Json cards = Json::array();
  for (const char* card : common_cards(question.model)) cards.push_back(card);
  answer.put("common_cards", std::move(cards));
  if (report.run.trains() && !report.epoch) answer.put("curve", render_json(step_curve(report)));
  return answer.text();
}

std::string ladder_answer(Answers& answers, const Json& asked) {
  const Question question = answers.question(request_of(asked));
  return Object()
      .put("ladder", render(answer_of(climb(question.model, question.run, question.device, true, {.threads = 1},
                                            question.time.host_size)),
                            Format::kJson))
      .text();
}

std::string largest_answer(Answers& answers, const Json& asked) {
  const Question question = answers.question(request_of(asked));
  const Measure measure = text_of(asked, "measure") == "sequence" ? Measure::kSequence : Measure::kBatch;
  const Largest largest = find_largest(question.model, question.run, question.device,
                                       {.measure = measure,
                                        .multiple_of = measure == Measure::kSequence ? 64 : 1,
                                        .neighbours = 0,
                                        .host = question.time.host_size},
                                       {.threads = 1});
  Json json = {{"largest", largest.unhurried}, {"at_limit", largest.at_limit}};
  if (const Probe* probe = largest.probe_of(largest.unhurried)) {
    json["needed_bytes"] = probe->needed;
    RunSpec run = largest.run;  // of the largest that runs at all
    if (measure == Measure::kBatch) run.batch_size = largest.unhurried;
    const Report report = estimate(question.model, run, question.device);
    if (report.time) json["tokens_per_second"] = report.time->tokens_per_second;
  }
  return written(json);
}

/// The run as settings of another program.
std::string settings_answer(Answers& answers, const Json& asked) {
  constexpr std::array<std::string_view, 5> kNames = {"nothing", "torchrun", "deepspeed", "megatron", "trainer"};
  const Question question = answers.question(request_of(asked));
  const std::string name = text_of(asked, "as");
  if (name == "axolotl") {
    return Object()
        .put("settings", Json(axolotl_settings(question.model, question.run.run)))
        .put("beside", Json(beside_axolotl(question.run.run)))
        .text();
  }
  const std::optional<Emit> emit = enum_from<Emit>(kNames, name);
  if (!emit) {
    throw Error(ErrorCode::kUsage,
                "as: expected axolotl, torchrun, deepspeed, megatron or trainer, found '" + one_line(name) + "'", "as");
  }
  const Framework framework = question.run.run.parallel.framework();
  if (*emit == Emit::kDeepSpeed && framework != Framework::kDeepSpeed) {
    throw Error(ErrorCode::kUnsupported,
                "DeepSpeed's settings are of a run with DeepSpeed: --parallel ds-zero1 and others");
  }
  if (*emit == Emit::kMegatron && framework != Framework::kMegatron) {
    throw Error(ErrorCode::kUnsupported, "Megatron's arguments are of a run with Megatron-LM: --framework megatron");
  }
  return Object()
      .put("settings", Json(settings_of(question.model, question.run.run, *emit)))
      .put("beside", Json(beside_settings(question.run.run, *emit)))
      .text();
}

/// Another tool's configuration file, by its name and text, as options. `model`: of which it is where it names none.
std::string config_answer(Answers& /*answers*/, const Json& asked) {
  ConfigFile read = read_config_text(text_of(asked, "text"), {text_of(asked, "name"), "", {}});
  const bool names_model = std::any_of(read.options.begin(), read.options.end(),
                                       [](const ConfigOption& each) { return each.flag == "--model"; });
  std::vector<ConfigOption> beside;
  if (!names_model) beside.push_back({"--model", text_of(asked, "model"), ""});
  const ConfigFile file = config_beside(std::move(read), beside);
  Json options = Json::object();
  for (const ConfigOption& each : file.options) options[each.flag] = each.text;
  return written({{"program", file.program},
                  {"counts", counts_of(file)},
                  {"options", std::move(options)},
                  {"assumptions", assumptions_of(file)}});
}

/// What does not depend on a run: written once, when the page is built.
std::string start_answer(Answers& answers, const Json& /*asked*/) {
  const SpecRegistry& registry = answers.registry();
  const Prices prices = read_prices(answers.specs());
  return Object()
      .put("version", Json(MEMCALC_VERSION))
      .put("schema", render_run_schema())
      .put("models", render(registry.models(), Format::kJson))
      .put("gpus", render(registry.devices(), Format::kJson))
      .put("prices", Json(prices.dollars_per_gpu_hour))
      .put("price_note", Json(prices.note))
      .text();
}

struct Ask {
  std::string_view name;
  std::string (*answer)(Answers& answers, const Json& asked);
};

constexpr std::array<Ask, 6> kAsks = {{{"estimate", estimate_answer},
                                       {"ladder", ladder_answer},
                                       {"largest", largest_answer},
                                       {"settings", settings_answer},
                                       {"config", config_answer},
                                       {"start", start_answer}}};

std::string answer_of(Answers& answers, std::string_view request) {
  const Json asked = Json::parse(request, nullptr, false);
  if (!asked.is_object()) throw Error(ErrorCode::kUsage, "expected a JSON object");
  const std::string name = text_of(asked, "ask");
  const auto found = std::find_if(kAsks.begin(), kAsks.end(), [&](const Ask& each) { return each.name == name; });
  if (found == kAsks.end()) throw Error(ErrorCode::kUsage, "ask: found '" + one_line(name) + "'", "ask");
  return found->answer(answers, asked);
}

std::string failed(const std::string& message, const std::string& part, const std::string& rule, bool ours) {
  return written({{"error", {{"message", message}, {"part", part}, {"rule", rule}, {"ours", ours}}}});
}

}  // namespace

Question Answers::question(const RunRequest& request) { return question_of(request, registry_); }

std::string Answers::answer(std::string_view request) {
  try {
    return answer_of(*this, request);
  } catch (const Error& error) {
    return failed(error.what(), error.part(), error.rule(), error.code() == ErrorCode::kInternal);
  } catch (const std::exception& error) {
    return failed(std::string("unexpected: ") + error.what(), "", "", true);
  }
}

}  // namespace memcalc::web
