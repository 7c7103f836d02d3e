"""Jobs drawn wider than jobs.py draws them: more families, losses, optimizers and trainers, some of which memcalc has no option
for. Such a job has "extra" (keywords of the configuration that no option of memcalc says) or "asked" (memcalc's arguments,
which stand in for the job's own), so that it is known what a wrong answer would be.

usage: jobs_wider.py SEED OUT [KIND,...]    the kinds of seed 8041, or these, or "later": those of seed 9041"""
import json
import random
import sys

import jobs

MODELS = {**jobs.MODELS,
          "gemma3": dict(model_type="gemma3_text", hidden_size=640, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=1, head_dim=256,
                         intermediate_size=2048, vocab_size=262144, max_position_embeddings=32768, sliding_window=512),
          "gemma2": dict(model_type="gemma2", hidden_size=768, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2, head_dim=256,
                         intermediate_size=3072, vocab_size=256000, max_position_embeddings=8192, sliding_window=4096),
          "smollm2": dict(model_type="llama", vocab_size=49152, hidden_size=576, num_hidden_layers=15, num_attention_heads=9, num_key_value_heads=3,
                          intermediate_size=1536, max_position_embeddings=8192, tie_word_embeddings=True),
          "phi3": dict(model_type="phi3", vocab_size=32064, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
                       num_key_value_heads=16, max_position_embeddings=4096, pad_token_id=0),
          "olmo2": dict(model_type="olmo2", vocab_size=100352, hidden_size=1024, intermediate_size=4096, num_hidden_layers=8, num_attention_heads=16,
                        num_key_value_heads=16, max_position_embeddings=4096),
          "stablelm": dict(model_type="stablelm", vocab_size=100352, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8,
                           num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=4096, use_qkv_bias=True),
          "bloom": dict(model_type="bloom", vocab_size=250880, hidden_size=768, n_layer=8, n_head=12),
          "electra": dict(model_type="electra", embedding_size=768, hidden_size=768, num_attention_heads=12, intermediate_size=3072, num_hidden_layers=8),
          "xlm-roberta": dict(model_type="xlm-roberta", vocab_size=250002, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1,
                              num_hidden_layers=6),
          "mpnet": dict(model_type="mpnet", vocab_size=30527, max_position_embeddings=514, num_hidden_layers=8),
          "modernbert": dict(model_type="modernbert", vocab_size=50368, num_hidden_layers=10, reference_compile=False)}
DECODERS = ("llama", "gpt_neox", "qwen3", "mistral", "gpt2", "opt", "qwen2", "gemma3", "gemma2", "smollm2", "phi3", "olmo2", "stablelm", "bloom")
LLAMA_LIKE = ("llama", "qwen3", "mistral", "qwen2", "smollm2", "llama-untied")
ENCODERS = ("bert", "distilbert", "roberta", "electra", "xlm-roberta", "mpnet", "modernbert")
OPTIMIZERS = ("adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "adafactor", "adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "lion_8bit")
DPO_LOSSES = ("hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "apo_zero", "discopop", "sft", "sigmoid_norm")
KINDS = ("sft", "sft-answers", "packed", "padding-free", "sft-liger", "sft-qlora", "sft-save", "dpo-loss", "dpo-loss", "dpo", "dpo-precomputed", "kto",
         "kto-lengths", "orpo", "cpo", "reward", "reward-lengths", "grpo", "grpo", "rloo", "online-dpo", "trainer", "trainer", "trainer-eval",
         "trainer-liger", "trainer-qlora", "trainer-moe", "glue", "qa", "seq2seq", "st", "st-cached", "st-loss", "cross", "st-lora", "sft-lengths")

LATER = ("sft-dora", "sft-lengths", "packed", "packed-eager", "padding-free", "sft-liger", "sft-eval", "sft-qlora", "sft-bnb", "sft-images", "sft-images-lora",
         "sft-answers", "dpo", "dpo-dora", "dpo-lengths", "kto", "kto-eval", "kto-lengths", "grpo", "grpo-lengths", "grpo-eval", "rloo", "grpo-dora",
         "reward-lengths", "orpo-lengths", "online-dpo", "trainer", "trainer-dora", "trainer-eval", "trainer-liger", "trainer-bnb", "trainer-moe",
         "glue-eval", "seq2seq-lengths", "st-dora", "st-lengths", "cross-eval", "trainer-qlora")
EVALUATED = ("sft-eval", "kto-eval", "grpo-eval", "trainer-eval", "glue-eval", "cross-eval")
IMAGES = dict(model_type="llava", vision_feature_layer=-2, vision_feature_select_strategy="default")


def llava(r):
    """A LLaVA whose parts are drawn."""
    text = dict(model_type="llama", vocab_size=r.choice([32064, 128320]), hidden_size=1024, intermediate_size=r.choice([2816, 4096]),
                num_hidden_layers=r.choice([6, 8, 10]), num_attention_heads=16, num_key_value_heads=r.choice([4, 16]), max_position_embeddings=4096)
    tower = dict(model_type="clip_vision_model", hidden_size=768, intermediate_size=3072, num_hidden_layers=r.choice([6, 9]), num_attention_heads=12,
                 image_size=r.choice([224, 336]), patch_size=14, projection_dim=768)
    return dict(IMAGES, text_config=text, vision_config=tower)


def draw_later(r, kind):
    """Model, arguments, lengths of the kinds of seed 9041; None: draw() knows it."""
    first, _, rest = kind.partition("-")
    if kind not in LATER or kind in ("sft-liger", "sft-qlora", "trainer-liger", "trainer-qlora", "trainer-moe", "sft-answers", "online-dpo", "kto-lengths"): return None
    loop = {"trainer": "trainer", "glue": "trainer", "seq2seq": "trainer", "st": "sentence-transformer", "cross": "cross-encoder", "packed": "trl-sft",
            "padding": "trl-sft"}.get(first, "trl-" + first)
    encoder = first in ("glue", "st", "cross")
    model = r.choice(["bert", "roberta", "electra", "distilbert"] if encoder else ["t5", "bart"] if first == "seq2seq" else
                     LLAMA_LIKE + ("gpt2", "phi3") if rest == "dora" else DECODERS)
    bs, lengths, job = r.choice([2, 3, 4, 6]), None, ["--loop", loop]
    if loop in ("trainer", "trl-sft"): job += ["--task", {"glue": "seqcls", "seq2seq": "seq2seq"}.get(first, "causal")]
    if encoder: bs = r.choice([8, 16, 32])
    if loop in ("trl-grpo", "trl-rloo"): bs = r.choice([2, 4, 8])
    job += ["--bs", str(bs)]
    if kind.startswith(("packed", "padding")) or kind == "sft-lengths":
        job += ["--steps", r.choice("468")]
        lengths = jobs.real_lengths(r, bs * r.choice([9, 11, 33]))
        if first == "packed": job += ["--packing", r.choice(["bfd", "bfd_split", "wrapped"]), "--seq", r.choice(["256", "512", "1024"])]
        if kind == "packed-eager": job += ["--attn", "eager"]
        if first == "padding": job += ["--padding-free", "--seq", "1024"]
        if kind == "sft-lengths" and r.random() < .3: job.append("--group-by-length")
    elif kind == "grpo-lengths":
        job += ["--completion", str(r.randrange(20, 100)), "--generations", "2", "--steps", r.choice("468")]
        lengths = jobs.real_lengths(r, r.choice([16, 24, 40]))
    elif kind.endswith("lengths"):
        job += ["--steps", r.choice("468")]
        lengths = jobs.answers_of_lengths(r, bs * r.choice([9, 11]), 2 if first in ("dpo", "orpo", "reward", "st") else 1)
        if first == "st": job += ["--contrastive-loss", "mnrl", "--hard-negatives", "1"]
    elif encoder:
        job += ["--seq", r.choice(["32", "64", "128"])]
        if first == "st": job += ["--contrastive-loss", "mnrl", "--hard-negatives", r.choice("01")]
    elif loop in ("trl-dpo", "trl-kto", "trl-orpo", "trl-grpo", "trl-rloo"):
        jobs.answers(r, job, 20)
    elif kind.startswith("sft-images"):
        job += ["--seq", str(r.choice([600, 640, 700]))]
    else:
        job += ["--seq", r.choice(["128", "200", "256", "384", "512", "700", "1024"])]
    optimizer = r.choice(["adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "adafactor", "sgd"])
    if rest == "bnb": optimizer = r.choice(["adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "lion_8bit"])
    dtype = "fp32" if encoder or first == "seq2seq" else r.choice(["fp32", "bf16"])
    job += ["--precision", "amp-bf16", "--weights-dtype", dtype, "--checkpointing", r.choice(["full", "none"]), "--accum", r.choice("1124"),
            "--optimizer", optimizer]
    with_lora = rest in ("dora", "images-lora") or not encoder and first != "seq2seq" and r.random() < .35
    if with_lora: job += ["--lora", r.choice(["8", "16", "32"])]
    if rest == "dora": job.append("--dora")
    if loop in ("trl-dpo", "trl-kto"): job += ["--ref-model", "adapters" if with_lora else "own"]
    if loop in ("trl-grpo", "trl-rloo"):
        job += ["--ref-model", r.choice(["none", "adapters" if with_lora else "own"])]
        if kind == "grpo" and r.random() < .7: job += ["--generations", str(r.choice([n for n in (2, 4, 8) if bs % n == 0]))]
    if loop == "trl-reward" and with_lora: job += ["--lora-head"]
    if kind in EVALUATED or not lengths and loop in ("trainer", "trl-sft", "trl-dpo") and not kind.startswith("sft-images") and r.random() < .25:
        job += ["--eval-bs", r.choice("248"), "--eval-samples", r.choice(["8", "12", "20", "32"])]
        if kind == "trainer-eval" and r.random() < .6: job += ["--eval-logits"] + (["--eval-accum", "2"] if r.random() < .5 else [])
    if kind == "trainer-dora" and r.random() < .5: job += ["--lora-targets", "q_proj,v_proj"] if model in LLAMA_LIKE else []
    return model, job, lengths


def options(r, job, kind):
    optimizer = r.choice(OPTIMIZERS)
    if kind.startswith(("st", "cross")) and "bit" in optimizer: optimizer = "adamw_torch_fused"
    dtype = "bf16" if "qlora" in kind else "fp32" if kind in ("glue", "qa", "seq2seq") or kind.startswith(("st", "cross")) else r.choice(["fp32", "bf16"])
    job += ["--precision", "amp-bf16", "--weights-dtype", dtype, "--checkpointing", r.choice(["full", "none"]), "--accum", r.choice("1124"),
            "--optimizer", optimizer]
    always = {"sft-qlora": 1, "trainer-qlora": 1, "st-lora": 1, "glue": 0, "qa": 0, "seq2seq": 0, "st": 0, "st-cached": 0, "st-loss": 0, "cross": 0, "cpo": 0,
              "sft-liger": 0, "trainer-liger": 0, "trainer-moe": .5}
    if r.random() < always.get(kind, .4): job += ["--lora", r.choice(["8", "16", "32"])]
    if "qlora" in kind: job += ["--quantize", r.choice(["nf4", "nf4-double"])]
    return "--lora" in job


def draw(r, kind, later=False):
    """Model, arguments, lengths, extra, asked."""
    extra, lengths, asked = {}, None, None
    if later and (drawn := draw_later(r, kind)) is not None: return *drawn, extra, asked
    model = r.choice(ENCODERS if kind in ("glue", "qa") or kind.startswith(("st", "cross")) else ["t5", "bart"] if kind == "seq2seq" else
                     LLAMA_LIKE if "liger" in kind else ["qwen3_moe", "mixtral"] if kind == "trainer-moe" else DECODERS)
    if kind in ("cross", "st-lora"): model = r.choice(["bert", "roberta", "electra"])
    loop = {"trainer": "trainer", "glue": "trainer", "qa": "trainer", "seq2seq": "trainer", "st": "sentence-transformer", "cross": "cross-encoder", "packed": "trl-sft",
            "padding": "trl-sft", "online": "trl-online-dpo"}.get(kind.split("-")[0], "trl-" + kind.split("-")[0])
    bs = r.choice([2, 3, 4, 6])
    job = ["--loop", loop]
    if loop in ("trainer", "trl-sft"):
        job += ["--task", {"glue": "seqcls", "qa": "qa", "seq2seq": "seq2seq"}.get(kind, "causal")]
    if kind in ("packed", "padding-free", "sft-lengths", "glue"):
        if kind == "glue": bs = r.choice([8, 16, 32])
        job += ["--bs", str(bs), "--steps", r.choice("46")]
        lengths = jobs.real_lengths(r, bs * r.choice([9, 11, 33]))
        if kind == "packed": job += ["--packing", r.choice(["bfd", "bfd_split", "wrapped"]), "--seq", r.choice(["256", "512", "1024"])]
        if kind == "padding-free": job += ["--padding-free", "--seq", "1024"]
    elif kind in ("kto-lengths", "reward-lengths", "sft-answers"):
        job += ["--bs", str(bs), "--steps", r.choice("46")]
        lengths = jobs.answers_of_lengths(r, bs * r.choice([9, 11]), jobs.ANSWERS[kind])
    elif kind in ("st", "st-cached", "st-loss", "cross", "st-lora"):
        job += ["--bs", r.choice(["16", "32", "64"]), "--seq", r.choice(["32", "64", "128"])]
        if kind in ("st", "st-lora"): job += ["--contrastive-loss", "mnrl", "--hard-negatives", r.choice("012")]
        if kind == "st-cached": job += ["--contrastive-loss", "cached-mnrl", "--hard-negatives", r.choice("012"), "--mini-batch", r.choice(["8", "16", "32"])]
        if kind == "st-loss": extra["st_loss"] = r.choice(["TripletLoss", "CoSENTLoss", "ContrastiveLoss", "CosineSimilarityLoss"])
    elif kind in ("qa", "seq2seq"):
        job += ["--bs", r.choice(["8", "16"]), "--seq", r.choice(["128", "256", "384"])]
        if kind == "seq2seq": job += ["--target-seq", r.choice(["32", "64", "128"])]
    else:
        job += ["--bs", str(bs)]
        if loop in ("trl-dpo", "trl-kto", "trl-orpo", "trl-cpo", "trl-grpo", "trl-rloo", "trl-online-dpo"):
            if loop in ("trl-grpo", "trl-rloo", "trl-online-dpo"): job[-1] = str(r.choice([2, 4]))
            jobs.answers(r, job, 20)
        else: job += ["--seq", r.choice(["128", "200", "256", "384", "512", "700", "1024"])]
    with_lora = options(r, job, kind)
    if loop in ("trl-dpo", "trl-kto", "trl-online-dpo"):
        job += ["--ref-model", "precomputed" if kind == "dpo-precomputed" else "adapters" if with_lora else "own"]
    if loop in ("trl-grpo", "trl-rloo"): job += ["--ref-model", r.choice(["none", "adapters" if with_lora else "own"])]
    if loop == "trl-grpo" and r.random() < .5:
        job += ["--grpo-loss", r.choice("grpo bnpo dr_grpo dapo cispo sapo".split()), "--importance-level", r.choice(["token", "sequence"])]
    if loop == "trl-reward" and with_lora: job += ["--lora-head"]
    if kind == "dpo-loss":
        extra["loss_type"] = [r.choice(DPO_LOSSES)]
        if extra["loss_type"] == ["bco_pair"] or r.random() < .2: extra["loss_type"].append("sft")
    if kind == "cpo":
        extra["loss_type"] = r.choice(["sigmoid", "hinge", "ipo", "simpo"])
        asked = ["trl-orpo" if each == "trl-cpo" else each for each in job]
    if "liger" in kind: job.append("--liger")
    if kind == "sft-save" or r.random() < .15: extra.update(save_strategy="steps", save_steps=2)
    if kind == "trainer-eval" or (loop in ("trainer", "trl-sft", "trl-dpo", "trl-reward") and not lengths and r.random() < .3):
        job += ["--eval-bs", r.choice("2458"), "--eval-samples", r.choice(["8", "12", "20", "33"])]
        if kind == "trainer-eval" and r.random() < .5: job.append("--eval-logits")
    if kind == "qa": asked = ["tokcls" if each == "qa" else each for each in job]
    if kind == "trainer" and r.random() < .3: job.append("--group-by-length") if lengths else None
    return model, job, lengths, extra, asked


def main():
    seed, out = int(sys.argv[1]), sys.argv[2]
    r = random.Random(seed)
    kinds = KINDS if len(sys.argv) < 4 else LATER if sys.argv[3] == "later" else sys.argv[3].split(",")
    with open(out, "w") as lines:
        for i, kind in enumerate(kinds):
            model, arguments, lengths, extra, asked = draw(r, kind, kinds is LATER)
            config = MODELS[model] if "images" not in kind else llava(r)
            job = dict(name=f"j{seed}-{i:02}-{kind}-{model if 'images' not in kind else 'llava'}", config=config, arguments=arguments)
            for key, value in (("lengths", lengths), ("extra", extra), ("asked", asked)):
                if value: job[key] = value
            lines.write(json.dumps(job) + "\n")


if __name__ == "__main__": main()
