"""Training jobs as trainers run them: drawn at random, predicted by memcalc, measured on a card, compared. What the rows
of ../jobs/rows.jsonl were made with is lost; this does the same again. A job is a line {"name", "config", "arguments"}:
the model's config.json (or no config and --model NAME of memcalc's) and memcalc's arguments, "lengths" where the data
has them, "extra" (keywords of the configuration) and "asked" (in place of the arguments) of jobs_wider.py's. What runs stands in jobs_run.py, each job in a forked process of its own.

usage: jobs.py draw SEED N OUT [--kinds sft,dpo,...]
       jobs.py predict MEMCALC JOBS OUT
       jobs.py time JOBS OUT [--at-once 12] [--budget SECONDS]        prepared at once, then trained one after the other
       jobs.py measure JOBS OUT [--at-once 5] [--budget SECONDS] [--limit SECONDS] [--only NAME,...]
       jobs.py compare JOBS PREDICTED MEASURED [--rows OUT]
EVENTS=DIR writes what each job asked of the allocator, too. JOBS_DEVICE=cpu runs each with a tiny model and no card.
JOBS_RANKS=all: of several GPUs each is a process (NCCL, on a CPU gloo), not rank 0 alone in a fake process group; a
job's "ranks" says so for itself, "events" that its requests are written (EVENTS), "stacks" that Python's frames are.
JOBS_WAIT=FILE: after the imports (time: once all are prepared), until there is such a file."""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback

MODELS = {
    "llama": dict(model_type="llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=6,
                  num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072,
                  tie_word_embeddings=True),
    "llama-untied": dict(model_type="llama", vocab_size=32000, hidden_size=1024, intermediate_size=2816,
                         num_hidden_layers=10, num_attention_heads=16, num_key_value_heads=16,
                         max_position_embeddings=4096, tie_word_embeddings=False),
    "gpt_neox": dict(model_type="gpt_neox", vocab_size=50304, hidden_size=768, intermediate_size=3072,
                     num_hidden_layers=12, num_attention_heads=12, max_position_embeddings=2048,
                     use_parallel_residual=True),
    "qwen3": dict(model_type="qwen3", vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=10,
                  num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960,
                  tie_word_embeddings=True),
    "mistral": dict(model_type="mistral", vocab_size=32768, hidden_size=1536, intermediate_size=4096,
                    num_hidden_layers=8, num_attention_heads=12, num_key_value_heads=4, head_dim=128,
                    max_position_embeddings=8192, sliding_window=None),
    "gpt2": dict(model_type="gpt2"),
    "opt": dict(model_type="opt", vocab_size=50272, hidden_size=768, ffn_dim=3072, num_hidden_layers=12,
                num_attention_heads=12, word_embed_proj_dim=768, max_position_embeddings=2048),
    "qwen2": dict(model_type="qwen2", vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=12,
                  num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=32768,
                  tie_word_embeddings=True),
    "qwen3_moe": dict(model_type="qwen3_moe", vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=6,
                      num_attention_heads=16, num_key_value_heads=4, head_dim=128, num_experts=32, num_experts_per_tok=4,
                      moe_intermediate_size=384, max_position_embeddings=40960, tie_word_embeddings=False),
    "mixtral": dict(model_type="mixtral", vocab_size=32000, hidden_size=1024, intermediate_size=2048, num_hidden_layers=6,
                    num_attention_heads=16, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2,
                    max_position_embeddings=32768),
    "bert": dict(model_type="bert", num_hidden_layers=8),
    "distilbert": dict(model_type="distilbert"),
    "roberta": dict(model_type="roberta", vocab_size=50265, max_position_embeddings=514, type_vocab_size=1,
                    pad_token_id=1, num_hidden_layers=6),
    "t5": dict(model_type="t5", vocab_size=32128, d_model=768, d_kv=64, d_ff=3072, num_layers=6, num_heads=12),
    "bart": dict(model_type="bart", vocab_size=50265, d_model=768, encoder_layers=6, decoder_layers=6,
                 encoder_ffn_dim=3072, decoder_ffn_dim=3072, encoder_attention_heads=12, decoder_attention_heads=12,
                 max_position_embeddings=1024),
    "whisper": dict(model_type="whisper", vocab_size=51865, d_model=512, encoder_layers=6, decoder_layers=6,
                    encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048,
                    num_mel_bins=80, max_source_positions=1500, max_target_positions=448, pad_token_id=0,
                    bos_token_id=1, eos_token_id=1, decoder_start_token_id=3),
}
DECODERS = ("llama", "llama-untied", "gpt_neox", "qwen3", "mistral", "gpt2", "opt", "qwen2")
ENCODERS = ("bert", "distilbert", "roberta")
GENERATE = ("grpo", "rloo", "grpo-vllm", "rloo-vllm")
REFERENCED = ("dpo", "kto", "online-dpo") + GENERATE  # trainers with a reference model


def common(r, job, precisions=("amp-bf16",), dtypes=("fp32", "bf16"), adapters=0.5):
    dtype = r.choice(dtypes)
    job += ["--precision", r.choice(precisions), "--weights-dtype", dtype,
            "--checkpointing", r.choice(["full", "none"]), "--accum", r.choice("1124"),
            "--optimizer", r.choice(["sgd", "adamw_torch", "adamw_torch_fused", "adamw_torch_fused", "adafactor"])]
    if r.random() < adapters: job += ["--lora", r.choice(["8", "16", "32"])]
    return "--lora" in job


def answers(r, job, shortest):
    seq = r.choice([128, 256, 384, 512])
    job += ["--seq", str(seq), "--completion", str(r.randrange(shortest, min(seq - 16, 128)))]


def evaluated(r, job, share=0.4):
    if r.random() < share:
        job += ["--eval-bs", r.choice("2458"), "--eval-samples", r.choice(["8", "12", "20", "33", "48"])]


def real_lengths(r, rows):
    top, middle, spread = r.choice([128, 200, 256, 384, 512]), r.uniform(3.5, 5.5), r.uniform(.4, .9)
    return " ".join(str(max(4, min(top, int(r.lognormvariate(middle, spread))))) for _ in range(rows))


ANSWERS = {"dpo-lengths": 2, "kto-lengths": 1, "orpo-lengths": 2, "reward-lengths": 2, "sft-answers": 1}
OPTIONS = ("grpo-options", "rloo-options")
GENERATED = ("grpo-eval", "rloo-eval", "grpo-lengths", "rloo-lengths", "grpo-times", "rloo-times")


def answers_of_lengths(r, rows, answers):
    """Samples as prompt/answer, or prompt/chosen/rejected."""
    top, prompt, answer = r.choice([128, 200, 300]), r.uniform(3.2, 5), r.uniform(3, 4.6)
    draw = lambda middle: max(6, min(top, int(r.lognormvariate(middle, .6))))  # noqa: E731
    return " ".join("/".join(map(str, [draw(prompt)] + [draw(answer) for _ in range(answers)])) for _ in range(rows))


LLAMA_LIKE = ("llama", "llama-untied", "qwen3", "mistral", "qwen2")  # names of layers, and cut_cross_entropy's patches
PATTERNS = (r".*layers\.[0-3]\.(self_attn\.[qv]_proj|mlp\.down_proj)", r"model\.layers\.\d+\.mlp\.(gate|up)_proj",
            r".*self_attn\.[qkvo]_proj")
UNFROZEN = (r"lm_head,model\.layers\.[0-2]\.", r"model\.embed_tokens", r"model\.layers\.\d+\.mlp\.down_proj", r"model\.layers\.[6-9]\..*proj")
SINGLE = ("cce", "torchao-8bit", "torchao-4bit", "saved", "pattern", "in-backward", "seq2seq-lengths", "save-fsdp1", "q-experts",
          "whole-dpo", "whole-kto", "freeze-except", "liger", "qlora", "qlora-dpo", "older", "old")
RELEASES = {"older": "4.57.6", "old": "5.5.4"}  # of transformers; a process anew has its folder


def draw_option(r, kind):
    """A job of one option, as draw_job() returns it."""
    untied = kind in ("saved", "freeze-except")
    model = r.choice(["t5", "bart"] if kind == "seq2seq-lengths" else ["llama-untied", "mistral"] if untied else
                     ["qwen3_moe", "mixtral"] if kind == "q-experts" else ["llama", "gpt2", "qwen3", "bert"] if kind in RELEASES else LLAMA_LIKE)
    loop = "bare" if kind == "in-backward" else r.choice(["trainer", "trl-sft"]) if kind in ("saved", "pattern", "liger", "qlora") else "trainer"
    if kind.startswith("whole") or kind == "qlora-dpo": loop = "trl-" + kind[-3:]
    task = "seq2seq" if kind == "seq2seq-lengths" else "seqcls" if model == "bert" else "causal"
    job, lengths = ["--loop", loop, "--task", task], None
    bs = r.choice([2, 3, 4, 8])
    job += ["--bs", str(bs)]
    if kind == "seq2seq-lengths":
        job += ["--steps", r.choice("468")]
        lengths = answers_of_lengths(r, bs * r.choice([9, 11, 33]), 1)
    elif kind.startswith("whole") or kind == "qlora-dpo":
        answers(r, job, 20)
    else:
        job += ["--seq", r.choice(["128", "200", "256", "384", "512", "700"])]
    if kind == "in-backward":
        dtype = r.choice(["fp32", "bf16"])
        job += ["--precision", dtype, "--weights-dtype", dtype, "--checkpointing", r.choice(["full", "none"]),
                "--optimizer", r.choice(["sgd", "adamw", "adamw-fused"]), "--optimizer-in-backward"]
        return model, job, lengths
    always = {"saved": 1, "pattern": 1, "save-fsdp1": 1, "seq2seq-lengths": 0, "q-experts": 1, "whole-dpo": .5, "whole-kto": .5, "freeze-except": 0, "qlora": 1, "qlora-dpo": 1}
    with_lora = common(r, job, ("amp-bf16",), ("bf16",) if kind in ("cce", "q-experts", "qlora", "qlora-dpo") else ("fp32", "bf16"), always.get(kind, .3))
    if kind == "q-experts": job += ["--quantize", r.choice(["nf4", "nf4-double"]), "--quantize-experts", "--no-prepare-kbit",
                                      "--lora-targets", "q_proj,k_proj,v_proj,o_proj"]
    if kind == "freeze-except": job += ["--freeze", "except:" + r.choice(UNFROZEN)]
    if kind.startswith("whole"): job += ["--whole-logits", "--ref-model", "adapters" if with_lora else "own"]
    if kind.startswith("qlora"): job += ["--quantize", r.choice(["nf4", "nf4-double"])]
    if kind in RELEASES: job += ["--transformers", RELEASES[kind]]
    if kind == "liger": job.append("--liger")
    if kind in ("q-experts", "whole-dpo", "whole-kto", "qlora-dpo"): return model, job, lengths
    if kind.startswith("torchao"): job[job.index("--optimizer") + 1] = "adamw_torch_" + kind[-4:]
    if kind == "cce": job.append("--cut-cross-entropy")
    if kind == "saved": job += ["--lora-modules-to-save", r.choice(["embed_tokens,lm_head", "lm_head", "embed_tokens"])]
    if kind == "pattern": job += ["--lora-targets", "re:" + r.choice(PATTERNS)]
    if kind == "save-fsdp1":
        job += ["--gpus", "2", "--parallel", "fsdp1", "--stages", "all", "--load", "host", "--save", r.choice(["full", "sharded"])]
    elif kind != "seq2seq-lengths":
        evaluated(r, job, .25)
    return model, job, lengths


def draw_job(r, kind):
    """Its model's name, arguments, and lengths or None."""
    if kind in SINGLE: return draw_option(r, kind)
    if kind in ("glue", "st", "cross", "st-lora", "cross-lora", "st-lengths", "cross-lengths"):
        model = r.choice(ENCODERS) if kind != "cross-lora" else "bert"  # the others' heads are several layers
    elif kind == "generate":
        model = r.choice(["t5", "bart"])
    elif kind == "generate-speech":
        model = "whisper"
    else:
        model = r.choice(DECODERS)
    loop = {"st": "sentence-transformer", "cross": "cross-encoder", "trainer": "trainer", "glue": "trainer",
            "st-lora": "sentence-transformer", "cross-lora": "cross-encoder", "st-lengths": "sentence-transformer",
            "cross-lengths": "cross-encoder", "online-dpo-lengths": "trl-online-dpo",
            "generate": "trainer", "generate-speech": "trainer", "generate-causal": "trainer", "packed": "trl-sft", "sft-lengths": "trl-sft",
            "grpo-vllm": "trl-grpo", "rloo-vllm": "trl-rloo", "grpo-options": "trl-grpo", "rloo-options": "trl-rloo",
            "dpo-lengths": "trl-dpo", "kto-lengths": "trl-kto", "orpo-lengths": "trl-orpo", "sft-smooth": "trl-sft",
            **{k: "trl-" + k.split("-")[0] for k in GENERATED}, "reward-fsdp2": "trl-reward", "sft-fsdp1": "trl-sft",
            "dpo-fsdp1": "trl-dpo", "orpo-fsdp1": "trl-orpo",
            "online-dpo-fsdp2": "trl-online-dpo", "online-dpo-zero3": "trl-online-dpo", "orpo-fsdp2": "trl-orpo",
            "reward-lengths": "trl-reward", "sft-answers": "trl-sft", "trainer-smooth": "trainer"}.get(kind, "trl-" + kind)
    job, lengths = ["--loop", loop], None
    if kind in ("glue", "sft-lengths", "packed"):
        bs, steps = r.choice([2, 3, 4, 8] + ([16, 32] if kind == "glue" else [])), r.choice([4, 6, 8])
        job += ["--task", "seqcls" if kind == "glue" else "causal", "--bs", str(bs), "--steps", str(steps)]
        lengths = real_lengths(r, bs * r.choice([9, 11, 33]))
        if kind == "packed":
            job += ["--attn", r.choice(["eager", "sdpa"]), "--packing", r.choice(["bfd", "bfd_split", "wrapped"])]
            job += ["--seq", r.choice(["256", "384", "512", "1024"])]
        precisions = ("fp32", "amp-fp16", "amp-bf16") if kind == "glue" else ("amp-bf16",)
        common(r, job, precisions, ("fp32",) if kind == "glue" else ("fp32", "bf16"), 0 if kind == "glue" else .4)
    elif kind in ANSWERS:
        bs = r.choice([2, 3, 4, 8])
        job += ["--bs", str(bs), "--steps", r.choice("468")]
        lengths = answers_of_lengths(r, bs * r.choice([9, 11, 33]), ANSWERS[kind])
        with_lora = common(r, job, adapters=.4)
        if kind == "reward-lengths" and with_lora: job += ["--lora-head"]
        if kind in ("dpo-lengths", "kto-lengths"):
            job += ["--ref-model", r.choice(["adapters" if with_lora else "own", "precomputed"])]
        if kind in ("dpo-lengths", "kto-lengths", "sft-answers") and r.random() < .3:
            job += ["--pad-to-multiple", r.choice(["8", "64"])]
        if kind != "orpo-lengths": evaluated(r, job, .25)
    elif kind in GENERATED:
        bs = r.choice("24")
        job += ["--bs", bs]
        if kind.endswith("lengths"):
            job += ["--completion", str(r.randrange(20, 100)), "--generations", "2", "--steps", r.choice("468")]
            lengths = real_lengths(r, r.choice([16, 24, 40]))
        else:
            answers(r, job, 20)
        with_lora = common(r, job)
        accum = int(job[job.index("--accum") + 1])
        if not kind.endswith("eval"):
            iterations = r.choice([2, 3, 4] if kind.endswith("times") else [1, 1, 2])
            per_generation = accum * r.choice([1, 1, 2])
            job += ["--steps-per-generation", str(per_generation), "--iterations", str(iterations)]
        if kind.endswith("eval") or (kind.endswith("lengths") and r.random() < .5):
            job += ["--eval-bs", r.choice("2468"), "--eval-samples", r.choice(["8", "12", "20", "32"])]
        job += ["--ref-model", r.choice(["none", "adapters" if with_lora else "own"])]
    elif kind in OPTIONS:
        job += ["--bs", r.choice("24")]
        answers(r, job, 20)
        with_lora = common(r, job)
        accum = job[job.index("--accum") + 1]
        job += ["--steps-per-generation", r.choice("1248"), "--iterations", r.choice("1123")]
        if r.random() < .3: job[job.index("--steps-per-generation") + 1] = accum
        job += ["--ref-model", r.choice(["none", "adapters" if with_lora else "own"])]
        if kind == "grpo-options":
            job += ["--grpo-loss", r.choice("grpo bnpo dr_grpo dapo cispo sapo luspo vespo".split()),
                    "--importance-level", r.choice(["token", "sequence"])]
    elif kind == "online-dpo-lengths":
        job += ["--bs", r.choice("24"), "--completion", str(r.randrange(20, 70)), "--steps", r.choice("46")]
        lengths = real_lengths(r, r.choice([16, 24, 40]))
        with_lora = common(r, job)
        job += ["--ref-model", "adapters" if with_lora else "own"]
    elif kind.startswith(("st", "cross")):
        of_lengths = kind.endswith("-lengths")
        bs = r.choice([16, 32, 64])
        job += ["--bs", str(bs)]
        if of_lengths:
            job += ["--steps", r.choice("468"), "--seq", r.choice(["128", "256", "384"])]
            texts = 2 if kind.startswith("cross") else 3
            lengths = answers_of_lengths(r, bs * r.choice([5, 9]), texts - 1)
        else:
            job += ["--seq", r.choice(["32", "64", "128"])]
        if kind.startswith("st"):
            job += ["--contrastive-loss", r.choice(["mnrl", "cached-mnrl"]), "--hard-negatives", r.choice("012")]
            if "cached-mnrl" in job: job += ["--mini-batch", r.choice(["16", "32"])]
            if of_lengths: job[job.index("--hard-negatives") + 1] = "1"
        if common(r, job, ("fp32", "amp-fp16", "amp-bf16"), ("fp32",), 1 if kind.endswith("-lora") else 0):
            job += ["--lora-head"] if kind == "cross-lora" else []
        evaluated(r, job)
    elif kind in ("generate-speech", "generate-causal"):
        speech = kind == "generate-speech"
        job += ["--task", "speech" if speech else "causal", "--bs", r.choice("248"),
                "--seq", r.choice(["32", "64", "100"] if speech else ["64", "128", "256"])]
        # Whisper's own generate() runs the encoder outside of autocast, on float32 recordings.
        common(r, job, ("amp-bf16", "fp32"), ("fp32",) if speech else ("fp32", "bf16"), 0 if speech else .3)
        if job[job.index("--weights-dtype") + 1] == "bf16": job[job.index("--precision") + 1] = "amp-bf16"
        job += ["--eval-bs", r.choice("2458"), "--eval-samples", r.choice(["8", "12", "20"]),
                "--eval-generate", r.choice(["12", "20", "48", "80"])]
        if r.random() < .3: job += ["--eval-beams", r.choice("24")]
    elif kind == "generate":
        job += ["--task", "seq2seq", "--bs", r.choice("248"), "--seq", r.choice(["64", "128", "256"]),
                "--target-seq", r.choice(["32", "64", "100"])]
        common(r, job, ("amp-bf16", "fp32"), ("fp32", "bf16"), .3)
        if job[job.index("--weights-dtype") + 1] == "bf16": job[job.index("--precision") + 1] = "amp-bf16"
        job += ["--eval-bs", r.choice("2458"), "--eval-samples", r.choice(["8", "12", "20", "33"]),
                "--eval-generate", r.choice(["12", "20", "48", "80"])]
        if r.random() < .3: job += ["--eval-beams", r.choice("24")]
    else:
        job += ["--task", "causal"] if kind in ("sft", "trainer", "sft-smooth", "trainer-smooth", "sft-fsdp1") else []
        job += ["--bs", r.choice("2344")]
        if kind in REFERENCED + ("orpo", "orpo-fsdp2", "dpo-fsdp1", "orpo-fsdp1") or kind.startswith("online-dpo-"):
            answers(r, job, 20)
        else:
            job += ["--seq", r.choice(["128", "200", "256", "384", "512", "700"])]
        always = {"online-dpo-fsdp2": 0, "online-dpo-zero3": 1}
        with_lora = common(r, job, adapters=always.get(kind, 0 if kind.endswith("-fsdp1") else .5))
        if kind in always: job += ["--gpus", "2", "--parallel", "fsdp2" if kind.endswith("fsdp2") else "ds-zero3"]
        if kind in always: job += ["--ref-model", "adapters" if with_lora else "own"]
        if "-fsdp" in kind and kind not in always: job += ["--gpus", r.choice("24"), "--parallel", kind[-5:]]
        if kind == "dpo-fsdp1": job += ["--ref-model", r.choice(["own", "precomputed"])]
        if kind.startswith("reward") and with_lora: job += ["--lora-head"]
        if kind in REFERENCED:
            choices = ["adapters"] if with_lora else ["own"]
            if kind in GENERATE: choices.append("none")
            if kind in ("dpo", "kto"): choices.append("precomputed")
            job += ["--ref-model", r.choice(choices)]
        if kind not in GENERATE + ("online-dpo",) and "-fsdp" not in kind and kind not in always: evaluated(r, job, .3)
        if kind.endswith("-smooth"): job += ["--label-smoothing"]
        if kind.endswith("-vllm"):  # memcalc runs three steps, and a server's streams are new in each
            job += ["--vllm", r.choice(["colocate", "colocate", "server"])]
            job += ["--vllm-sleep"] if job[-1] == "colocate" and r.random() < .5 else []
        if kind == "trainer" and "--eval-bs" in job and r.random() < .4: job.append("--eval-logits")
    return model, job, lengths


def draw(a):
    r = random.Random(a.seed)
    kinds = a.kinds.split(",")
    with open(a.out, "w") as out:
        for i in range(a.n):
            kind = kinds[i % len(kinds)]
            model, arguments, lengths = draw_job(r, kind)
            job = dict(name=f"j{a.seed}-{i:02}-{kind}-{model}", config=MODELS[model], arguments=arguments)
            if lengths: job["lengths"] = lengths
            out.write(json.dumps(job) + "\n")


def read(path):
    with open(path) as lines: return [job for job in map(json.loads, lines) if "name" in job]


def predict_job(memcalc, job, folder):
    arguments = list(job.get("asked", job["arguments"]))
    for key, option, text in (("config", "--model", json.dumps(job.get("config"))),
                              ("lengths", "--lengths", job.get("lengths", "").replace(" ", "\n") + "\n")):
        if key not in job: continue
        path = os.path.join(folder, "config.json" if key == "config" else "lengths.txt")
        with open(path, "w") as out: out.write(text)
        arguments += [option, path]

    def ask(*more):
        command = [memcalc, *arguments, *more, "--gpu", job.get("gpu", "h200-sxm"), "--format", "json"]
        return subprocess.run(command, capture_output=True, text=True)

    done = ask()
    if done.returncode > 1: return dict(name=job["name"], error=done.stderr.strip()[:300])
    report = json.loads(done.stdout)
    of = next((rank for rank in report.get("ranks", []) if rank["rank"] == 0), report["memory"])  # rank 0 is measured
    said = dict(name=job["name"], allocated=of["peak_allocated_bytes"], reserved=of["peak_reserved_bytes"])
    if "--eval-bs" in arguments and "--gpus" not in arguments:
        stages = {stage["name"]: stage for stage in json.loads(ask("--stages", "all").stdout)["stages"]}
        said["evaluation"] = stages["evaluate"]["peak_allocated_bytes"]
    if "--save" in arguments:
        stages = {stage["name"]: stage for stage in report["stages"]}
        said.update(allocated=stages["train"]["peak_allocated_bytes"], save=stages["save"]["peak_allocated_bytes"])
    seconds = (report.get("time") or {}).get("step_seconds")
    if seconds is not None: said.update(step_s=seconds, host_s=report["time"]["host_seconds"], kernel_s=report["time"]["kernel_seconds"])
    return said


def predict(a):
    with tempfile.TemporaryDirectory() as folder, open(a.out, "w") as out:
        for job in read(a.jobs):
            said = predict_job(a.memcalc, job, folder)
            out.write(json.dumps(said) + "\n")
            print(job["name"], said.get("error") or f"{said['allocated']} {said['reserved']}", flush=True)


def needs_of(job):
    """What is imported by a process anew: other releases, LLaMA-Factory with its TRL, and what starts CUDA as it is imported (bitsandbytes, torchao)."""
    if "--whole-logits" in job["arguments"]: return ["TRL_OLD"]
    needs = [option[2:].upper().replace("TRANSFORMERS", "TF") + "_" + job["arguments"][job["arguments"].index(option) + 1].replace(".", "_")
             for option in ("--trl", "--peft", "--transformers") if option in job["arguments"]]
    optimizer = (job["arguments"] + ["none"])[job["arguments"].index("--optimizer") + 1] if "--optimizer" in job["arguments"] else "none"
    if "--quantize" in job["arguments"] or any(part in optimizer for part in ("bnb", "paged", "lion", "ademamix")): needs.append("BNB")
    return needs + ["TORCHAO"] * ("torchao" in job["name"])


def measure_job(job, out, rank, port, folder=None):
    """In a forked process: its result is one line. $BNB, $TORCHAO, $TRL_OLD, $TF_5_5_4: folders that hold what a process anew needs.
    `folder`: it is timed, prepared once it has written NAME.ready there, and trains once NAME.go is there."""
    import jobs_run

    said = os.dup(1)
    needs = needs_of(job)
    if needs and all(each in os.environ for each in needs):
        if needs[0] == "TRL_OLD" or needs[0].startswith("TF_"): os.environ["JOBS_LIGHT"] = "1"
        if needs[0].startswith("TRL_"): os.environ["JOBS_NO_VLLM"] = "1"
        path = os.pathsep.join([*(os.environ.pop(each) for each in needs), os.environ.get("PYTHONPATH", "")])
        keywords = dict(job=job, out=os.path.abspath(out), rank=rank, port=port, folder=folder)
        command = f"import jobs, jobs_run; jobs_run.import_all(); jobs.measure_job(**{keywords!r})"
        os.chdir(os.path.dirname(os.path.abspath(__file__)))
        os.execve(sys.executable, [sys.executable, "-c", command], {**os.environ, "PYTHONPATH": path})
    noise = os.open(os.environ.get("JOBS_NOISE", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(noise, 1)
    os.dup2(noise, 2)
    try:
        if rank is not None: jobs_run.begin_rank(job, rank, port)
        if folder:
            result = dict(name=job["name"], **jobs_run.run_for_times(job, lambda: wait_for(folder, job["name"])))
            line = f"step {result['step_s']} together {result.get('together_s')}"
        else:
            result = dict(name=job["name"], **jobs_run.run(job, rank))
            line = f"{result['allocated']} {result['reserved']} step {result['step_s']}"
    except BaseException as error:  # a process of its own: whatever ends it is the job's result
        result = dict(name=job["name"], error=repr(error)[:600], traceback=traceback.format_exc()[-3000:])
        line = result["error"]
    if rank: out += f".rank{rank}"
    with open(out, "a") as lines: lines.write(json.dumps(result) + "\n")
    os.write(said, f"{job['name']} {line[:300]}\n".encode())
    os._exit(0)


def wait_for(folder, name):
    open(os.path.join(folder, name + ".ready"), "w").close()
    while not os.path.exists(os.path.join(folder, name + ".go")): time.sleep(.01)


def time_jobs(a):
    """So many are prepared at once; when all of these are ready, one trains after the other, the card and the host its own."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    started = time.time()
    import jobs_run

    jobs_run.import_all()
    print(f"imports {time.time() - started:.0f} s", flush=True)
    started = time.time()
    done = {row["name"] for row in read(a.out) if "error" not in row} if os.path.exists(a.out) else set()
    waiting = [job for job in read(a.jobs) if job["name"] not in done and (not a.only or job["name"] in a.only.split(","))]
    while waiting and time.time() - started < a.budget:
        folder, batch, waiting = tempfile.mkdtemp(), waiting[:a.at_once], waiting[a.at_once:]
        processes = {}
        for job in batch:
            sys.stdout.flush()
            process = os.fork()
            if process == 0: measure_job(job, a.out, None, 29700, folder)
            processes[job["name"]] = process
        begun = time.time()
        ready = lambda name: os.path.exists(os.path.join(folder, name + ".ready"))  # noqa: E731
        while time.time() - begun < a.prepare:
            for name, process in list(processes.items()):
                if not ready(name) and os.waitpid(process, os.WNOHANG)[0]: del processes[name]
            if all(map(ready, processes)): break
            time.sleep(.05)
        for name, process in processes.items():
            if not ready(name): os.kill(process, 9)
        print(f"prepared {len(processes)} in {time.time() - begun:.0f} s", flush=True)
        while "JOBS_WAIT" in os.environ and not os.path.exists(os.environ["JOBS_WAIT"]): time.sleep(.05)
        for name, process in processes.items():
            open(os.path.join(folder, name + ".go"), "w").close()
            deadline = time.time() + a.limit
            while not os.waitpid(process, os.WNOHANG)[0]:
                if time.time() > deadline:
                    os.kill(process, 9)
                    print("killed", name, flush=True)
                    deadline = float("inf")
                time.sleep(.02)
    if waiting: print("budget spent before", *(job["name"] for job in waiting), flush=True)


def ranks_of(job):
    """The processes of a job: of one alone, in a fake group where it has several GPUs, None."""
    gpus = int((job["arguments"] + ["1"])[job["arguments"].index("--gpus") + 1]) if "--gpus" in job["arguments"] else 1
    if gpus == 1 or (os.environ.get("JOBS_RANKS") != "all" and job.get("ranks") != "all"): return [None]
    return range(gpus)


def measure(a):
    started = time.time()
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # forks before CUDA starts
    import jobs_run

    jobs_run.import_all()
    print(f"imports {time.time() - started:.0f} s", flush=True)
    while "JOBS_WAIT" in os.environ and not os.path.exists(os.environ["JOBS_WAIT"]): time.sleep(.2)
    started = time.time()
    measured = {row["name"] for row in read(a.out) if "error" not in row} if os.path.exists(a.out) else set()
    waiting = [job for job in read(a.jobs) if job["name"] not in measured]
    if a.only: waiting = [job for job in waiting if job["name"] in a.only.split(",")]
    running, port = {}, 29700
    while waiting or running:
        if time.time() - started > a.budget and waiting:
            print("budget spent before", *(job["name"] for job in waiting), flush=True)
            waiting = []
        while waiting and len({name for name, _ in running.values()}) < a.at_once:
            job = waiting.pop(0)
            sys.stdout.flush()
            port += 1
            for rank in ranks_of(job):
                process = os.fork()
                if process == 0: measure_job(job, a.out, rank, port)
                running[process] = (job["name"], time.time() + a.limit)
        for process, (name, deadline) in list(running.items()):
            if os.waitpid(process, os.WNOHANG)[0]:
                del running[process]
            elif time.time() > deadline:
                os.kill(process, 9)
                print("killed", name, flush=True)
                running[process] = (name, float("inf"))
        time.sleep(.05)


def compare(a):
    said = {row["name"]: row for row in read(a.predicted)}
    measured = {row["name"]: row for row in read(a.measured)}
    off = dict(allocated=[], reserved=[])
    rows = []
    for job in read(a.jobs):
        p, m = said.get(job["name"], {}), measured.get(job["name"], {})
        if "allocated" not in p or "allocated" not in m:
            print(f"{job['name']:40} {p.get('error') or m.get('error') or 'missing'}")
            continue
        errors = {kind: 100 * (p[kind] / m[kind] - 1) for kind in off}
        for kind in off: off[kind].append(abs(errors[kind]))
        others = [stage for stage in ("evaluation", "save") if stage in p and stage in m]
        for stage in others: errors[stage] = 100 * (p[stage] / m[stage] - 1)
        evaluated = "".join(f"{stage} {errors[stage]:+8.3f} %   " for stage in others)
        seconds = f"{100 * (p['step_s'] / m['step_s'] - 1):+6.0f} % time" if p.get("step_s") and m.get("step_s") else ""
        print(f"{job['name']:40} allocated {m['allocated']:>12} {errors['allocated']:+8.3f} %   "
              f"reserved {m['reserved']:>12} {errors['reserved']:+8.3f} %   {evaluated}{seconds}")
        kinds = list(off) + others
        rows.append(dict(job, **{kind: m[kind] for kind in kinds}, blind={kind: p[kind] for kind in kinds}))
    for kind, errors in off.items():
        if not errors: continue
        errors.sort()
        print(f"{kind}: {len(errors)} jobs, {errors.count(0)} exact, median {errors[len(errors) // 2]:.3f} %, "
              f"p90 {errors[int(.9 * (len(errors) - 1))]:.3f} %, worst {errors[-1]:.3f} %")
    if a.rows:
        with open(a.rows, "w") as out:
            for row in rows: out.write(json.dumps(row) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(required=True)
    mode = modes.add_parser("draw")
    mode.add_argument("seed", type=int)
    mode.add_argument("n", type=int)
    mode.add_argument("out")
    mode.add_argument("--kinds", default="sft,dpo,kto,grpo,rloo,reward,trainer,glue,sft-lengths,packed,st,cross")
    mode.set_defaults(run=draw)
    mode = modes.add_parser("predict")
    for name in ("memcalc", "jobs", "out"): mode.add_argument(name)
    mode.set_defaults(run=predict)
    mode = modes.add_parser("measure")
    for name in ("jobs", "out"): mode.add_argument(name)
    mode.add_argument("--at-once", type=int, default=5)
    mode.add_argument("--budget", type=float, default=500)
    mode.add_argument("--limit", type=float, default=150, help="seconds of one job")
    mode.add_argument("--only")
    mode.set_defaults(run=measure)
    mode = modes.add_parser("time")
    for name in ("jobs", "out"): mode.add_argument(name)
    mode.add_argument("--at-once", type=int, default=12)
    mode.add_argument("--budget", type=float, default=200)
    mode.add_argument("--prepare", type=float, default=60, help="seconds until those of one batch that are not ready are given up")
    mode.add_argument("--limit", type=float, default=20, help="seconds that one trains")
    mode.add_argument("--only")
    mode.set_defaults(run=time_jobs)
    mode = modes.add_parser("compare")
    for name in ("jobs", "predicted", "measured"): mode.add_argument(name)
    mode.add_argument("--rows", help="writes rows as ../jobs/rows.jsonl has them")
    mode.set_defaults(run=compare)
    a = parser.parse_args()
    a.run(a)


if __name__ == "__main__": main()
