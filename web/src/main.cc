// The same without a browser, for tests: a request a line on standard input, an answer a line.
//   memcalc_web SPECS
#include <algorithm>
#include <iostream>
#include <string>

#include "answers.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  memcalc::web::Answers answers(argv[1]);
  for (std::string request; std::getline(std::cin, request);) {
    std::string answer = answers.answer(request);
    std::replace(answer.begin(), answer.end(), '\n', ' ');  // between values; within a text it is "\\n"
    std::cout << answer << std::endl;
  }
}
