#include "memcalc/symbolic/ops/conv_workspace.h"
namespace memcalc {
Bytes convolution_workspace(const ConvolutionShape&, ConvolutionPass, DType, bool) { return 0; }
bool is_measured_convolution(const ConvolutionShape&, DType, bool) { return false; }
}  // namespace memcalc
