"""Jobs drawn as users' scripts have them: the allocator's cache is kept after the construction, models are made on the host as often as
on the card, and versions of transformers and TRL other than the newest are among them.

usage: jobs_users.py SEED OUT [KIND,...]    the kinds of seed 11041, or these, or "releases": those of seed 12041"""
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
KINDS = ("sft-default", "packed-default", "sft-default-lora", "dpo-default", "grpo-default", "reward-default", "qa-bert", "qa-decoder", "tf-4.57.6-encoder",
         "trl-0.27.2", "kto-default", "rloo-default", "dpo-default-lora", "grpo-default-lora", "packed-default-lora", "sft-qlora", "dpo-qlora", "sft-liger",
         "sft-liger-lora", "padding-free", "sft-answers", "orpo-default", "reward-default-lora", "sft-8bit", "trainer-logits", "trainer-smooth", "glue-group",
         "generate-t5", "generate-speech", "tokcls", "images", "tf-4.57.6-decoder", "tf-5.5.4-decoder", "tf-5.23.0-decoder", "trl-1.5.1", "trl-1.15.0",
         "peft-0.18.1", "peft-0.19.1", "kto-qlora", "grpo-options")
# "trl-1.12.0-dpo": TRL's release and its trainer; where memcalc refuses it, it is asked for the newest release's.
RELEASES = ("sft-default", "dpo-default", "grpo-default", "rloo-default", "kto-default", "reward-default", "orpo-default", "cpo-default", "online-dpo",
            "sft-default-lora", "grpo-default-lora", "dpo-default-lora", "packed-default", "grpo-options", "trainer-eval", "qa-bert-lora", "tokcls-lora",
            "generate-t5", "generate-speech", "glue-group", "trl-1.9.2-sft", "trl-1.10.0-sft", "trl-1.14.2-sft", "trl-1.3.0-reward", "trl-1.12.0-reward",
            "trl-1.7.0-orpo", "trl-1.12.0-orpo", "trl-1.12.0-dpo", "trl-1.14.2-kto", "trl-1.12.0-rloo", "peft-0.19.1", "tf-5.23.0-decoder")
BITS = ("adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "lion_8bit")
OLDER = {"tf": "--transformers", "trl": "--trl", "peft": "--peft"}


def draw(r, kind):
    """Model, arguments, lengths, extra. `default`: of the trainer's own options no one but its batch and its longest sequence."""
    first, _, rest = kind.partition("-")
    default, with_lora = rest.startswith("default"), rest.endswith("lora") or first == "peft"
    encoder, lengths, extra, side = first in ("glue", "tokcls") or kind.startswith("qa-bert"), None, {}, ""
    if first in ("tf", "trl"): rest, _, side = rest.partition("-")
    if side == "encoder": encoder = True
    model = r.choice(ENCODERS[:3] if first == "tf" and encoder else ("llama", "qwen3", "gpt2", "mistral") if first in OLDER else ("bert", "roberta", "electra", "distilbert")
                     if kind.startswith("qa-bert") else ("bert", "roberta", "electra") if kind == "tokcls-lora" else ("gpt2", "llama", "qwen2", "mistral") if kind == "qa-decoder" else ENCODERS if encoder else
                     ("t5", "bart") if kind == "generate-t5" else ("whisper",) if rest == "speech" else ("vit", "deit") if first == "images" else
                     LLAMA_LIKE if "liger" in rest or "qlora" in rest else DECODERS)
    task = {"glue": "seqcls", "qa": "qa", "tokcls": "tokcls", "images": "image"}.get(first, "causal")
    if first == "generate": task = "seq2seq" if rest == "t5" else "speech"
    if first == "tf" and encoder: task = "seqcls"
    loop = {"packed": "trl-sft", "padding": "trl-sft", "online": "trl-online-dpo",
            "trl": "trl-" + (side or ("dpo" if rest == "1.15.0" else "sft"))}.get(
        first, "trl-" + first if first in ("sft", "dpo", "kto", "orpo", "cpo", "reward", "grpo", "rloo") else "trainer")
    if first == "peft": loop = r.choice(["trainer", "trl-sft"]) if rest == "0.19.1" else "trainer"
    bs = r.choice([8, 16, 32] if encoder or first == "images" else [2, 4, 8] if loop in ("trl-grpo", "trl-rloo", "trl-sft", "trl-online-dpo") else [2, 3, 4, 6])
    if first == "grpo" and default: bs = 8  # TRL's own, as many as its generations
    job = ["--loop", loop] + (["--task", task] if loop in ("trainer", "trl-sft") else []) + ["--bs", str(bs)]
    if rest == "group" or first in ("packed", "padding") or rest == "answers":
        job += ["--steps", r.choice("468")]
        rows = bs * r.choice([9, 11, 20]) * (4 if first == "packed" else 1)
        lengths = jobs.answers_of_lengths(r, rows, 1) if rest == "answers" else jobs.real_lengths(r, rows)
        if rest == "group": job.append("--group-by-length")
        if first == "packed": job += ["--packing", "bfd", "--seq", r.choice(["512", "1024"])]
        if first == "padding": job += ["--padding-free", "--seq", "1024"]
    elif loop in ("trl-dpo", "trl-kto", "trl-orpo", "trl-cpo", "trl-grpo", "trl-rloo", "trl-online-dpo"): jobs.answers(r, job, 20)
    elif rest == "speech": job += ["--seq", r.choice(["32", "64", "100"])]
    elif first != "images": job += ["--seq", r.choice(["64", "128", "256", "384"] if encoder else ["128", "200", "256", "384", "512", "700", "1024"])]
    fp32 = encoder or first in ("generate", "images", "qa")
    if default:
        job += ["--weights-dtype", r.choice(["fp32", "bf16"])]
    else:
        job += ["--precision", r.choice(["amp-bf16", "amp-fp16", "fp32"]) if fp32 and first != "generate" else "amp-bf16", "--weights-dtype",
                "fp32" if fp32 else r.choice(["fp32", "bf16", "bf16"]), "--checkpointing", r.choice(["full", "none"]), "--accum", r.choice("1124"),
                "--optimizer", r.choice(BITS) if rest == "8bit" else r.choice(["adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "adafactor", "sgd"])]
    if "liger" in rest: job.append("--liger")
    if rest == "smooth": job.append("--label-smoothing")
    if with_lora: job += ["--lora", r.choice(["8", "16", "32"])]
    if rest == "qlora": job += ["--quantize", r.choice(["nf4", "nf4-double"])]
    if loop in ("trl-dpo", "trl-kto", "trl-online-dpo"): job += ["--ref-model", "adapters" if with_lora else "own"]
    if loop in ("trl-grpo", "trl-rloo"): job += ["--ref-model", "none" if default and first == "grpo" else r.choice(["adapters" if with_lora else "own"])]
    if kind == "grpo-options": job += ["--grpo-loss", r.choice("grpo bnpo dr_grpo cispo sapo".split()), "--importance-level", r.choice(["token", "sequence"])]
    if (loop == "trl-reward" or task in ("qa", "tokcls")) and with_lora: job.append("--lora-head")
    if task in ("qa", "tokcls") and with_lora: job += ["--lora-targets", "q_lin,v_lin" if model == "distilbert" else "query,value"]  # all-linear has their head, too
    if first == "grpo" and default: job += ["--generations", "8"]
    if first == "generate": job += ["--eval-bs", "8", "--eval-samples", "16", "--eval-generate", r.choice(["32", "64"]), "--eval-beams", r.choice(["1", "4"])]
    elif rest == "logits" or not lengths and loop in ("trainer", "trl-sft") and first not in OLDER and r.random() < .3:
        job += ["--eval-bs", r.choice("248"), "--eval-samples", r.choice(["8", "12", "20"])] + (["--eval-logits"] if rest == "logits" else [])
    if first in OLDER: job += [OLDER[first], rest]
    if rest == "0.27.2": job += ["--transformers", "4.57.6"]  # which this TRL goes with
    if rest not in ("qlora", "4.57.6", "0.27.2") and r.random() < .5: job += ["--load", "host"]
    return model, job, lengths, extra


def asked_for(arguments):
    """CPO's batch is ORPO's; trainers of an older TRL than memcalc has read are asked for as the newest's."""
    asked = ["trl-orpo" if each == "trl-cpo" else each for each in arguments]
    if "--trl" not in asked or "trl-sft" in asked or "trl-reward" in asked: return asked
    at = asked.index("--trl")
    if int(asked[at + 1].split(".")[1]) < 15: del asked[at:at + 2]
    return asked


def main():
    seed, r = int(sys.argv[1]), random.Random(int(sys.argv[1]))
    kinds = KINDS if len(sys.argv) < 4 else RELEASES if sys.argv[3] == "releases" else sys.argv[3].split(",")
    with open(sys.argv[2], "w") as lines:
        for i, kind in enumerate(kinds):
            model, arguments, lengths, extra = draw(r, kind)
            job = dict(name=f"j{seed}-{i:02}-{kind}-{model}", config=MODELS[model], arguments=arguments, keep_cache=True)
            if lengths: job["lengths"] = lengths
            if extra: job["extra"] = extra
            if (asked := asked_for(arguments)) != arguments: job["asked"] = asked
            lines.write(json.dumps(job) + "\n")


if __name__ == "__main__": main()
