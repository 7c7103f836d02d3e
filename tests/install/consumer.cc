// The smallest program that uses the library.
#include <iostream>

#include "memcalc/memcalc.h"

int main() {
  try {
    const memcalc::SpecRegistry registry(SPECS_DIR);
    const memcalc::ModelSpec model = registry.model("bert-large");
    const memcalc::DeviceSpec device = registry.device("h100-sxm");
    const memcalc::ResolvedRun run =
        memcalc::resolve(model, {.batch_size = 4, .precision = memcalc::Precision::kAmpFp16});
    const memcalc::Report report = memcalc::estimate(model, run, device);
    std::cout << memcalc::render(report, memcalc::Format::kText);
    return report.fits() ? 0 : 1;
  } catch (const memcalc::Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
