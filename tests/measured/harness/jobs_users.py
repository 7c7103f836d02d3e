"""Jobs drawn as users' scripts have them: the allocator's cache is kept after the construction, models are made on the host as often as
on the card, and versions of transformers and TRL other than the newest are among them.

usage: jobs_users.py SEED OUT"""
import json
import random
import sys

import jobs
import jobs_wider

MODELS = {**jobs_wider.MODELS,
          "starcoder2": dict(model_type="starcoder2", vocab_size=49152, hidden_size=768, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=12,
                             num_key_value_heads=2, max_position_embeddings=4096, sliding_window=None),
          "granite": dict(model_type="granite", vocab_size=49155, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
                          num_key_value_heads=4, max_position_embeddings=4096, tie_word_embeddings=True),
          "phi": dict(model_type="phi", vocab_size=51200, hidden_size=1024, intermediate_size=4096, num_hidden_layers=8, num_attention_heads=16,
                      max_position_embeddings=2048),
          "vit": dict(model_type="vit", num_hidden_layers=8),
          "deit": dict(model_type="deit", hidden_size=384, num_attention_heads=6, intermediate_size=1536, num_hidden_layers=8)}
DECODERS = jobs_wider.DECODERS + ("starcoder2", "granite", "phi", "gpt_neox", "llama-untied")
LLAMA_LIKE = jobs_wider.LLAMA_LIKE
ENCODERS = ("bert", "distilbert", "roberta", "electra", "mpnet", "xlm-roberta")
KINDS = ("sft", "sft-reentrant", "sft-group", "sft-liger", "sft-8bit", "sft-qlora", "sft-eval", "sft-rslora", "sft-pattern", "packed", "padding-free",
         "dpo", "dpo-eval", "dpo-precomputed", "dpo-lengths", "kto", "kto-lora", "orpo", "reward", "reward-eval", "grpo", "grpo-options", "grpo-lora", "rloo",
         "trainer", "trainer-saved", "trainer-every", "trainer-logits", "trainer-8bit", "glue-group", "qa", "tokcls", "seq2seq-group", "speech", "images",
         "tf-4.57.6-encoder", "tf-4.57.6-decoder", "tf-5.5.4-decoder", "tf-5.23.0-encoder", "tf-5.23.0-decoder", "trl-1.5.1", "trl-1.15.0", "trl-0.27.2", "sft-fsdp1", "orpo-fsdp1", "save-fsdp1")
BITS = ("adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "lion_8bit")
OLDER = {"tf": "--transformers", "trl": "--trl"}


def draw(r, kind):
    """Model, arguments, lengths, extra."""
    if kind.endswith("fsdp1"): return *jobs.draw_job(r, kind), {}
    first, _, rest = kind.partition("-")
    encoder, lengths, extra = first in ("glue", "qa", "tokcls"), None, {}
    if first == "tf": rest, _, side = rest.partition("-")
    if first == "tf": encoder = side == "encoder"
    model = r.choice(ENCODERS[:3] if first == "tf" and encoder else ("llama", "qwen3", "gpt2", "mistral") if first in OLDER else ENCODERS if encoder else
                     ("t5", "bart") if first == "seq2seq" else ("whisper",) if first == "speech" else ("vit", "deit") if first == "images" else
                     ("llama-untied", "mistral") if rest == "saved" else LLAMA_LIKE if rest in ("pattern", "liger") else DECODERS)
    task = {"glue": "seqcls", "qa": "qa", "tokcls": "tokcls", "seq2seq": "seq2seq", "speech": "speech", "images": "image"}.get(first, "causal")
    if first == "tf" and encoder: task = "seqcls"
    loop = {"packed": "trl-sft", "padding": "trl-sft", "trl": r.choice(["trl-sft", "trl-dpo"]) if rest == "1.15.0" else "trl-sft"}.get(
        first, "trl-" + first if first in ("sft", "dpo", "kto", "orpo", "reward", "grpo", "rloo") else "trainer")
    bs = r.choice([8, 16, 32] if encoder or first == "images" else [2, 4, 8] if loop in ("trl-grpo", "trl-rloo") else [2, 3, 4, 6])
    job = ["--loop", loop] + (["--task", task] if loop in ("trainer", "trl-sft") else []) + ["--bs", str(bs)]
    if rest == "group" or first in ("packed", "padding") or rest == "lengths":
        job += ["--steps", r.choice("468")]
        rows = bs * r.choice([9, 11, 20])
        lengths = jobs.answers_of_lengths(r, rows, 2 if first == "dpo" else 1) if first in ("dpo", "seq2seq") else jobs.real_lengths(r, rows)
        if rest == "group": job.append("--group-by-length")
        if first == "packed": job += ["--packing", r.choice(["bfd", "bfd_split", "wrapped"]), "--seq", r.choice(["256", "512", "1024"])]
        if first == "padding": job += ["--padding-free", "--seq", "1024"]
    elif loop in ("trl-dpo", "trl-kto", "trl-orpo", "trl-grpo", "trl-rloo"): jobs.answers(r, job, 20)
    elif first == "speech": job += ["--seq", r.choice(["32", "64", "100"])]
    elif first != "images": job += ["--seq", r.choice(["64", "128", "256", "384"] if encoder else ["128", "200", "256", "384", "512", "700", "1024"])]
    fp32 = encoder or first in ("seq2seq", "speech", "images")
    job += ["--precision", r.choice(["amp-bf16", "amp-fp16", "fp32"]) if fp32 else "amp-bf16", "--weights-dtype", "fp32" if fp32 else r.choice(["fp32", "bf16", "bf16"]),
            "--checkpointing", {"every": r.choice(["every-2", "every-3"]), "reentrant": "full"}.get(rest, r.choice(["full", "none"])), "--accum", r.choice("1124"),
            "--optimizer", r.choice(BITS) if rest == "8bit" else r.choice(["adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "adafactor", "sgd"])]
    if rest == "reentrant": job.append("--reentrant")
    if rest == "liger": job.append("--liger")
    with_lora = rest in ("qlora", "rslora", "pattern", "saved", "lora") or not fp32 and first not in OLDER and r.random() < .3 and rest != "reentrant"
    if with_lora: job += ["--lora", r.choice(["8", "16", "32"])]
    if rest == "rslora": extra["lora"] = dict(use_rslora=True)
    if rest == "pattern": job += ["--lora-targets", "re:" + r.choice(jobs.PATTERNS)]
    if rest == "saved": job += ["--lora-modules-to-save", r.choice(["embed_tokens,lm_head", "lm_head", "embed_tokens"])]
    if rest == "qlora": job += ["--quantize", r.choice(["nf4", "nf4-double"])]
    if loop in ("trl-dpo", "trl-kto"): job += ["--ref-model", "precomputed" if rest == "precomputed" else "adapters" if with_lora else "own"]
    if loop in ("trl-grpo", "trl-rloo"): job += ["--ref-model", r.choice(["none", "adapters" if with_lora else "own"])]
    if rest == "options": job += ["--grpo-loss", r.choice("grpo bnpo dr_grpo cispo sapo".split()), "--importance-level", r.choice(["token", "sequence"])]
    if loop == "trl-reward" and with_lora: job.append("--lora-head")
    if rest in ("eval", "logits") or not lengths and loop in ("trainer", "trl-sft") and first not in ("speech", "trl") and r.random() < .25:
        job += ["--eval-bs", r.choice("248"), "--eval-samples", r.choice(["8", "12", "20"])] + (["--eval-logits"] if rest == "logits" else [])
    if first in OLDER: job += [OLDER[first], rest]
    if rest == "0.27.2": job += ["--transformers", "4.57.6"]  # which this TRL goes with
    if rest not in ("qlora", "4.57.6", "0.27.2") and r.random() < .5: job += ["--load", "host"]
    return model, job, lengths, extra


def main():
    seed, r = int(sys.argv[1]), random.Random(int(sys.argv[1]))
    with open(sys.argv[2], "w") as lines:
        for i, kind in enumerate(KINDS):
            model, arguments, lengths, extra = draw(r, kind)
            job = dict(name=f"j{seed}-{i:02}-{kind}-{model}", config=MODELS[model], arguments=arguments, keep_cache=True)
            if lengths: job["lengths"] = lengths
            if extra: job["extra"] = extra
            if arguments[arguments.index("--task") + 1 if "--task" in arguments else 1] == "qa":
                job["asked"] = ["tokcls" if each == "qa" else each for each in arguments]
            lines.write(json.dumps(job) + "\n")


if __name__ == "__main__": main()
