// The module that the page's worker loads: memcalc_answer() by emscripten; the specs lie in its file system.
#include <emscripten.h>

#include <string>

#include "answers.h"

extern "C" EMSCRIPTEN_KEEPALIVE const char* memcalc_answer(const char* request) {
  static memcalc::web::Answers answers("/specs");
  static std::string answer;
  answer = answers.answer(request);
  return answer.c_str();
}
