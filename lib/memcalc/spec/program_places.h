// What the functions of a program name, found once for all its runs: each function as that of one module, with the
// places of its tensors and modules in the program's lists. Covered by tests/measured/program_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/spec/program.h"

namespace memcalc {

/// A module that begins: places as Program::module_path() has them.
struct PlacedModule {
  std::int32_t module = -1;  // -1: it holds no parameters, and the program does not name it
  std::int32_t called = -1;  // whose weight it uses, where it is called as a whole: of a shared embedding another's
  /// Parameters of other modules that its own calls use, not those of modules inside (Mamba's conv1d.weight).
  std::vector<std::int32_t> used;
};

/// A function as the function of one module, with the functions that it calls.
struct PlacedFunction {
  std::int32_t function = 0;
  std::int32_t module = -1;        // as PlacedModule has them, where the function is a module's: a layer's, the whole
  std::vector<std::int32_t> used;  // and of other functions those of its outermost calls
  /// Of ProgramFunction::parameters, by their places among parameters, then buffers, then constants.
  std::vector<std::int32_t> tensors;
  std::vector<std::vector<PlacedFunction>> layers;  // of each ProgramLayers, as they stand in the body and its loops
  std::vector<PlacedModule> modules;                // of each ProgramModule that begins
  std::vector<PlacedFunction> customs, backwards;   // of each ProgramCustom; `function` -1: there is no backward
  std::vector<PlacedFunction> regions;              // of each ProgramCheckpoint
};

/// The function of a forward pass, and what it calls.
struct PlacedForward {
  PlacedFunction main;
  std::vector<std::int32_t> functions;  // each once, as they are met
  std::vector<std::string> layers;      // paths, as they run
  bool has_regions = false;
};

}  // namespace memcalc
