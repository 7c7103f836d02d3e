// What other programs call the values of memcalc's options. Each is accepted wherever the value itself is one of a
// row's names. Covered by tests/unit/run_fields_test.cc.
#pragma once

#include <span>
#include <string_view>

namespace memcalc {

struct ValueName {
  std::string_view theirs;
  std::string_view ours;
};

inline constexpr ValueName kValueNames[] = {
    // torch's dtypes; Lightning's Trainer(precision=...) 2.6
    {"float32", "fp32"},
    {"float16", "fp16"},
    {"half", "fp16"},
    {"bfloat16", "bf16"},
    {"32-true", "fp32"},
    {"16-true", "fp16"},
    {"bf16-true", "bf16"},
    {"16-mixed", "amp-fp16"},
    {"bf16-mixed", "amp-bf16"},
    // transformers 5.17: attn_implementation, gradient_checkpointing
    {"flash_attention_2", "flash"},
    {"true", "full"},
    {"false", "none"},
    // bitsandbytes: load_in_4bit (fp4 and nf4 take the same bytes), load_in_8bit; peft's and axolotl's words
    {"4bit", "nf4"},
    {"8bit", "int8"},
    {"gptq", "gptq4"},
    {"awq", "awq4"},
    // accelerate, axolotl, LLaMA-Factory: FSDP2 is what they start now; DeepSpeed's stages
    {"fsdp", "fsdp2"},
    {"zero2", "ds-zero2"},
    {"zero3", "ds-zero3"},
};

/// `value`, or what memcalc calls it where that is one of `names` and `value` is none of them.
[[nodiscard]] std::string_view own_value_name(std::span<const std::string_view> names, std::string_view value);

}  // namespace memcalc
