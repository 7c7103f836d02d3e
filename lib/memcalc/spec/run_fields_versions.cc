// The rows of versions: which releases of the frameworks a run is answered for (profiles.h).
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/run_field_access.h"
#include "memcalc/spec/software_used.h"

namespace memcalc {
namespace {

using fields::row, fields::nothing;
using G = FieldGroup;
using K = FieldType;

constexpr std::string_view kVersion = "a version, such as 2.11 or 5.17.0";

bool put_profile(RunRequest& request, const FieldValue& value) {
  request.versions.profile = std::get<std::string>(value);
  return !request.versions.profile->empty();
}

bool put_written(RunRequest& request, const FieldValue& value) {
  request.version_file = std::get<std::string>(value);
  return !request.version_file.empty();
}

template <Software kOf>
bool put_version(RunRequest& request, const FieldValue& value) {
  const std::string& text = std::get<std::string>(value);
  request.versions.asked[static_cast<std::size_t>(kOf)] = text;
  return version_of(text).has_value();
}

// 0.39.0 brought NF4.
bool put_bitsandbytes(RunRequest& request, const FieldValue& value) {
  const auto version = version_of(std::get<std::string>(value));
  return put_version<Software::kBitsandbytes>(request, value) && *version >= Version{0, 39, 0};
}

template <Software kOf>
std::optional<FieldValue> take_version(const RunRecord& r) {
  return wheel_of(r.run.profile, kOf);
}

bool is_megatron(const RunRecord& r) { return r.run.parallel.framework() == Framework::kMegatron; }
bool runs_on_torch(const RunRecord& r) { return !is_megatron(r); }
bool asks_transformers(const RunRecord& r) {
  return r.run.uses_trainer() || (!is_megatron(r) && runs_transformers(r.model));
}
bool asks_trl(const RunRecord& r) { return r.run.uses_trl(); }
bool asks_peft(const RunRecord& r) { return r.run.fine_tuning.lora.has_value() && !is_megatron(r); }
bool asks_liger_kernel(const RunRecord& r) { return r.run.fine_tuning.liger; }
bool asks_bitsandbytes(const RunRecord& r) { return uses_bitsandbytes(r.run); }

const Field kFields[] = {
    row("--profile", "profile", G::kVersions, K::kText, "NAME", "versions that go together: memcalc profiles [p1]",
        {.set = put_profile, .get = nothing}),
    row("--versions", "versions", G::kVersions, K::kText, "FILE", "requirements.txt, pip freeze, uv.lock, environment",
        {.set = put_written, .get = nothing}),
    row("--torch", "torch", G::kVersions, K::kText, "V", "PyTorch, as 2.10.0 or 2.11.0+cu128 [2.11.0]",
        {.accepted = kVersion,
         .set = put_version<Software::kTorch>,
         .get = take_version<Software::kTorch>,
         .exists = runs_on_torch,
         .belongs_to = "torch's and DeepSpeed's runs, not to Megatron's"}),
    row("--transformers", "transformers", G::kVersions, K::kText, "V", "transformers, as 4.57.6 or 5.23 [5.17.0]",
        {.accepted = kVersion,
         .set = put_version<Software::kTransformers>,
         .get = take_version<Software::kTransformers>,
         .exists = asks_transformers,
         .belongs_to = "models of transformers and its Trainer"}),
    row("--accelerate", "accelerate", G::kVersions, K::kText, "V", "accelerate, as 1.13.0 [1.15.0]",
        {.accepted = kVersion,
         .set = put_version<Software::kAccelerate>,
         .get = take_version<Software::kAccelerate>,
         .exists = [](const RunRecord& r) { return r.run.uses_trainer(); },
         .belongs_to = "the loops of the Trainer (every --loop but bare)"}),
    row("--trl", "trl", G::kVersions, K::kText, "V", "TRL, as 0.27 or 1.16.0 [1.16.0]",
        {.accepted = kVersion,
         .set = put_version<Software::kTrl>,
         .get = take_version<Software::kTrl>,
         .exists = asks_trl,
         .belongs_to = "TRL's trainers (--loop trl-sft and others)"}),
    row("--peft", "peft", G::kVersions, K::kText, "V", "peft, as 0.19.1 [0.21.2]",
        {.accepted = kVersion,
         .set = put_version<Software::kPeft>,
         .get = take_version<Software::kPeft>,
         .exists = asks_peft,
         .belongs_to = "adapters (--lora R)"}),
    row("--bitsandbytes", "bitsandbytes", G::kVersions, K::kText, "V",
        "its version; inputs kept before 0.43.2 [0.50.2]",
        {.accepted = "a version from 0.39.0, which brought NF4, such as 0.43.2",
         .set = put_bitsandbytes,
         .get = take_version<Software::kBitsandbytes>,
         .exists = asks_bitsandbytes,
         .belongs_to = "what bitsandbytes packs or steps (--quantize nf4, nf4-double or int8, its 8-bit optimizers)"}),
    row("--liger-kernel", "liger_kernel", G::kVersions, K::kText, "V",
        "its version; its loss takes more before 0.8.3 [0.8.5]",
        {.accepted = "a version from 0.6.2, such as 0.8.0",
         .set = put_version<Software::kLigerKernel>,
         .get = take_version<Software::kLigerKernel>,
         .exists = asks_liger_kernel,
         .belongs_to = "Liger's kernels (--liger)"}),
};

}  // namespace

std::span<const Field> fields_of_versions() { return kFields; }

}  // namespace memcalc
