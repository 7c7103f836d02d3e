// Checkpoints whose weights are packed. Models may be published so, and from_pretrained keeps that by itself: gpt-oss
// in MXFP4, DeepSeek-V3 in FP8; copies of others are, by bitsandbytes, GPTQ or AWQ. Rules of transformers 5.17:
// quantizers/quantizer_mxfp4.py, quantizer_finegrained_fp8.py, auto.py. Covered by tests/unit/native_formats_test.cc.
// MIRRORS(transformers, "quantizers/auto.py", "5.17.0")
// MIRRORS(transformers, "quantizers/quantizer_finegrained_fp8.py", "5.17.0")
// MIRRORS(transformers, "quantizers/quantizer_mxfp4.py", "5.17.0")
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// quantization_config of a config.json; kNone where there is none. Throws Error(kUnsupported) for other formats.
[[nodiscard]] Quantization checkpoint_quantization(const HfReader& config, const std::string& model_type);

/// How the run's weights are packed: as asked, else as they are stored where transformers keeps that. run: with its
/// precision and its purpose.
[[nodiscard]] Quantization resolve_quantization(const ModelSpec& model, const RunOptions& options, const RunSpec& run,
                                                std::vector<std::string>& assumptions);

/// Whether transformers keeps the format on that card, or unpacks it to 16 bits.
[[nodiscard]] bool keeps_packed(Quantization kind, const DeviceSpec& device);
/// The run with its weights as they are on a card that does not.
[[nodiscard]] RunSpec dequantized(RunSpec run);

}  // namespace memcalc
