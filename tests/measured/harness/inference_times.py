"""Calls of generate(), drawn and predicted before they are measured: until the first token, and each token after it.

usage: inference_times.py draw SEED N OUT
       inference_times.py draw-unmeasured SEED OUT                      of families of which no call had been measured
       inference_times.py draw-mixed SEED OUT                           twenty of both
       inference_times.py draw-wide SEED OUT                            fifteen of both and five calls of model(**batch), two of them with images
       inference_times.py draw-large SEED OUT                           twenty: images and text and large models that generate, packed ones, speech, beams, experts, a call
       inference_times.py draw-sampled SEED OUT                         twenty-three of all that is modelled, three that draw their tokens, and one with a static cache, which is not
       inference_times.py draw-bound SEED OUT                           twenty-four: batches that the card decides, long prompts, packed ones, drawn tokens, eager attention and the kinds above
       inference_times.py draw-cards SEED OUT                           twenty-seven: calls and tokens that the card decides, several answers, a state's models and the kinds above
       inference_times.py predict MEMCALC CASES OUT [--hosts MEASURED]   with the middle host; or with what each case's host took
       inference_times.py measure CASES OUT [--budget SECONDS]          on a card (or on several: --cards)
       inference_times.py compare PREDICTED [PREDICTED …] MEASURED
A measured case has peak_allocated and peak_reserved of its second call, before anything else was on the card, call_ms (the median of whole calls after one that warms up) and first_ms (the median of calls for one token),
token_ms (their difference, for each token after the first), tokens_ms (each later token of each whole call, by a clock read after it) and
tiny_ms: a tiny LLaMA's forward without autograd just before and just after each call, which tells how fast the host was; beside each hosts_us, the seconds of the clock,
a loop of Python and a loop of launches in microseconds: whether Python and the driver are slow together.
quick_ms, where --quick is given: what a process that is there for it took for tiny calls of three families, directly before the group was measured (a file of the host of the moment before).
paired_ms: of one more call each later token and a tiny LLaMA's forward right behind it, both on the same state of the machine. Of a case without
new_tokens it is model(**batch). No profiler and no backward pass touches the process before all calls are timed: both slow later ones
(docs/time.md). A case with "profile" is profiled afterwards: kernels and their milliseconds of one call, of the longest each.
Four cases (fewer, where they fill the card: "reserved") build and warm up at the same time, each in a process of its own; then each measures alone, while the others wait for it.
"""
import argparse, gc, json, os, random, statistics, subprocess, sys, tempfile, time, traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = next((p for p in (HERE.parents[2], Path.cwd()) if (p / "specs/models").is_dir()), None)
DECODERS = ("llama-3.2-1b", "llama-3.2-3b", "tinyllama-1.1b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "gemma-2-2b", "gemma-3-1b", "gpt2",
            "gpt2-medium", "gpt2-xl", "pythia-410m", "pythia-1b", "pythia-2.8b", "opt-1.3b", "phi-2", "olmo-2-1b", "smollm2-1.7b", "granite-3.1-2b",
            "stablelm-2-1.6b", "mistral-7b", "llama-3.1-8b", "falcon3-1b")
EXPERTS = ("granite-3.0-3b-a800m", "granite-3.1-1b-a400m")
ENCODER_DECODERS = ("t5-base", "t5-large", "bart-large", "whisper-small")
UNMEASURED = dict(  # of families whose calls no card had run on 2026-11-29
    causal=("smollm-135m", "smollm2-360m", "cerebras-gpt-1.3b", "bloom-560m", "bloom-1b1", "gemma-2b", "gemma-3-270m", "phi-1.5", "olmo-1b", "starcoder2-3b",
            "stablelm-3b", "qwen1.5-1.8b", "qwen2.5-3b", "ernie-4.5-0.3b", "exaone-4.0-1.2b", "granite-4.0-1b", "smollm3-3b", "hunyuan-1.8b", "glm-edge-1.5b", "lfm2-1.2b",
            "falcon-rw-1b", "opt-350m", "mobilellm-r1-360m", "minicpm5-1b"),
    experts=("qwen1.5-moe-a2.7b", "lfm2-8b-a1b", "granite-3.1-3b-a800m"), seq2seq=("flan-t5-small", "mt5-small", "bart-base", "pegasus-xsum", "opus-mt-en-de", "m2m100-418m"),
    speech=("whisper-tiny", "whisper-base"))
FORWARD_ONLY = dict(images=("qwen2-vl-2b", "qwen2.5-vl-3b", "qwen3-vl-2b", "internvl3-1b-hf", "internvl3-2b-hf", "paligemma-3b-224", "paligemma2-3b-224", "mineru2.5-1.2b"),
                    mlm=("bert-base", "bert-large", "roberta-base", "roberta-large", "distilbert-base", "electra-large-discriminator", "modernbert-base"),
                    image=("vit-base-patch16-224", "vit-large-patch16-224", "deit-small-patch16-224", "beit-base-patch16-224"))
GENERATE_IMAGES = (  # a family each; of none had a card run generate()
    ("qwen2-vl-2b", "qwen2-vl-7b", "mineru2.5-1.2b"), ("qwen2.5-vl-3b", "qwen2.5-vl-7b"), ("qwen3-vl-2b", "qwen3-vl-4b", "qwen3-vl-8b"),
    ("internvl3-1b-hf", "internvl3-2b-hf", "internvl3-8b-hf", "internvl3.5-1b-hf", "internvl3.5-4b-hf", "internvl2.5-2b-mpo-hf"), ("paligemma-3b-224", "paligemma-3b-448"),
    ("paligemma2-3b-224", "paligemma2-10b-224", "paligemma2-3b-448"), ("llava-1.5-7b", "llava-llama-3-8b-v1.1"))
LARGE = ("llama-2-13b", "qwen2.5-14b", "qwen3-14b", "phi-4", "opt-13b", "pythia-12b", "mistral-nemo-12b", "falcon3-10b", "gemma-2-9b", "gemma-3-12b", "olmo-2-13b", "qwen2.5-7b",
         "yi-1.5-9b-16k", "solar-10.7b", "qwen3-8b", "glm-4-9b", "granite-3.3-8b", "olmo-2-7b", "gemma-7b", "bloom-7b1", "starcoder2-7b", "falcon-11b", "stablelm-2-12b", "command-r7b")
SAMPLING = dict(zip(("repetition-penalty", "temperature", "top-k", "top-p", "min-p"), (("repetition_penalty", 1.1), ("temperature", 0.7), ("top_k", 50), ("top_p", 0.9), ("min_p", 0.05))))
REFERENCE_TINY_MS = 8.46  # memcalc.measure's llama, a call without autograd


def lines_of(path): return [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()]
def write_lines(path, rows): Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def draw(a):
    r = random.Random(a.seed)
    names = r.sample(DECODERS, a.n - 6) + r.sample(EXPERTS, 2) + r.sample(ENCODER_DECODERS, 4)
    cases = []
    for i, name in enumerate(names):
        task = "speech" if "whisper" in name else "seq2seq" if name in ENCODER_DECODERS else "causal"
        run = dict(model=name, batch_size=r.choice([1, 1, 2, 4, 8, 16]), sequence_length=r.choice([64, 128, 256, 512, 1000]), task=task)
        run["precision"] = r.choice(["bf16", "bf16", "bf16", "fp16", "fp32"])
        run["weights_dtype"] = run["precision"]
        run.update(attention="sdpa", infer=True, new_tokens=r.choice([16, 24, 32, 48]))
        if name in DECODERS and i % 5 == 2:
            run["quantize"] = r.choice(["nf4", "int8"])
            run["precision"] = run["weights_dtype"] = "bf16" if run["quantize"] == "nf4" else "fp16"
        words = [name, f"b{run['batch_size']}", f"s{run['sequence_length']}+{run['new_tokens']}", run.get("quantize") or run["precision"]]
        cases.append(dict(id="-".join(words), run=run))
    write_lines(a.out, cases)


def draw_unmeasured(a):
    """Five decoders, one of experts, two encoder-decoders."""
    r = random.Random(a.seed)
    drawn = [(name, "causal") for name in r.sample(UNMEASURED["causal"], 5)] + [(r.choice(UNMEASURED["experts"]), "causal")]
    drawn += [(r.choice(UNMEASURED[task]), task) for task in ("seq2seq", r.choice(["seq2seq", "speech"]))]
    cases = []
    for name, task in drawn:
        run = dict(model=name, batch_size=r.choice([1, 1, 2, 4, 8, 16]), sequence_length=r.choice([64, 128, 256, 512, 1000]), task=task)
        run["precision"] = run["weights_dtype"] = r.choice(["bf16", "bf16", "bf16", "fp16", "fp32"])
        run.update(attention="sdpa", infer=True, new_tokens=r.choice([16, 24, 32]))
        cases.append(dict(id=f"{name}-b{run['batch_size']}-s{run['sequence_length']}+{run['new_tokens']}-{run['precision']}", run=run))
    write_lines(a.out, cases)


def draw_mixed(a):
    """Eight decoders of measured families, two of them packed, seven of others; experts of both; an encoder-decoder of each and speech."""
    r = random.Random(a.seed)
    drawn = [(name, "causal") for name in r.sample(DECODERS, 8) + r.sample(UNMEASURED["causal"], 7)]
    drawn += [(r.choice(EXPERTS), "causal"), (r.choice(UNMEASURED["experts"]), "causal")]
    drawn += [(r.choice(("t5-base", "t5-large", "bart-large")), "seq2seq"), (r.choice(UNMEASURED["seq2seq"]), "seq2seq"), (r.choice(("whisper-small", *UNMEASURED["speech"])), "speech")]
    cases = []
    for place, (name, task) in enumerate(drawn):
        run = dict(model=name, batch_size=r.choice([1, 1, 2, 4, 8, 16]), sequence_length=r.choice([64, 128, 256, 512, 1000]), task=task)
        run["precision"] = r.choice(["bf16", "bf16", "bf16", "fp16", "fp32"])
        if place < 2: run.update(quantize=("nf4", "int8")[place], precision=("bf16", "fp16")[place])
        run.update(weights_dtype=run["precision"], attention="sdpa", infer=True, new_tokens=r.choice([16, 24, 32]))
        cases.append(dict(id=f"{name}-b{run['batch_size']}-s{run['sequence_length']}+{run['new_tokens']}-{run.get('quantize') or run['precision']}", run=run))
    write_lines(a.out, cases)


def draw_wide(a):
    """Six decoders of measured families, two of them packed, four of others; two of experts; two encoder-decoders and speech; of model(**batch)
    two of images and text, an encoder, images, a decoder."""
    r = random.Random(a.seed)
    measured = r.sample(DECODERS, 7)
    drawn = [(name, "causal") for name in measured[:6] + r.sample(UNMEASURED["causal"], 4)]
    drawn += [(r.choice(EXPERTS), "causal"), (r.choice(UNMEASURED["experts"]), "causal")]
    drawn += [(r.choice(("t5-base", "t5-large", "bart-large")), "seq2seq"), (r.choice(UNMEASURED["seq2seq"]), "seq2seq"), (r.choice(("whisper-small", *UNMEASURED["speech"])), "speech")]
    drawn += [(name, "images") for name in r.sample(FORWARD_ONLY["images"], 2)] + [(r.choice(FORWARD_ONLY["mlm"]), "mlm"), (r.choice(FORWARD_ONLY["image"]), "image"), (measured[6], "causal")]
    cases = []
    for place, (name, task) in enumerate(drawn):
        generates = place < 15
        run = dict(model=name, batch_size=r.choice([1, 1, 2, 4, 8, 16]), sequence_length=r.choice([64, 128, 256, 512, 1000, 1500] if generates or task != "images" else [1200, 2000]), task=task)
        if name.startswith("bert") or task in ("seq2seq", "mlm"): run["sequence_length"] = min(run["sequence_length"], 512)
        run["precision"] = r.choice(["bf16", "bf16", "bf16", "fp16", "fp32"])
        if place < 2: run.update(quantize=("nf4", "int8")[place], precision=("bf16", "fp16")[place])
        run.update(weights_dtype=run["precision"], attention="sdpa", infer=True)
        new = r.choice([16, 24, 32])
        if generates: run["new_tokens"] = new
        if task == "images": run["images"] = r.choice([1, 2]); del run["task"]
        if task == "image": del run["sequence_length"]
        length = f"s{run['sequence_length']}" if "sequence_length" in run else "images"
        cases.append(dict(id=f"{name}-b{run['batch_size']}-{length}{f'+{new}' if generates else '-call'}-{run.get('quantize') or run['precision']}", run=run))
    write_lines(a.out, cases)


def generated(r, name, task, more, *, lengths=(64, 128, 256, 512, 1000), tokens=(16, 24), high=1):
    """A case of generate(), or of model(**batch) where `more` has "call", what `more` does not say of it drawn; up to two images, of 448 pixels up to `high`."""
    run = dict(model=name, batch_size=r.choice([1, 1, 2, 4, 8, 16]), sequence_length=r.choice((1200, 2000) if task == "images" else lengths), task=task)
    if task in ("seq2seq", "speech"): run["sequence_length"] = min(run["sequence_length"], 512 if task == "seq2seq" else 448)
    run["precision"] = r.choice(["bf16", "bf16", "bf16", "fp16", "fp32"] if task != "images" else ["bf16", "bf16", "fp16"])
    run.update((key, value) for key, value in more.items() if key not in ("call", "static"))
    run.update(weights_dtype=run["precision"], attention=more.get("attention", "sdpa"), infer=True)
    new = r.choice(tokens)
    if "call" not in more: run["new_tokens"] = new
    if task == "images": run["images"] = r.choice([1, high if name.endswith("448") else 2]); del run["task"]
    words = [name, f"b{run['batch_size']}", f"s{run['sequence_length']}" + ("-call" if "call" in more else f"+{new}"), run.get("quantize") or run["precision"]]
    words += [f"beam{more.get('beams')}"] * ("beams" in more) + ["eager"] * ("attention" in more) + ["static"] * ("static" in more) + ["+".join(more.get("sampling", []))] * ("sampling" in more) + [f"answers{more.get('num_return_sequences')}"] * ("num_return_sequences" in more)
    return dict(id="-".join(words), run=run, **({"static": True} if "static" in more else {}))


def draw_large(a):
    """Four models of images and text and four large decoders, three packed, speech and an encoder-decoder, two with beams, two of experts, two other
    decoders, all of generate(), and model(**batch) of one. One of each kind in each four, for large ones to be built beside small ones."""
    r = random.Random(a.seed)
    known = {path.stem for path in (ROOT / "specs/models").glob("*.json")}
    decoders = r.sample(DECODERS, 6)
    images = [(r.choice(names), "images", {}) for names in r.sample(GENERATE_IMAGES, 4)]
    large = [(name, "causal", dict(precision="bf16")) for name in r.sample([name for name in LARGE if name in known], 4)]
    packed = [(name, "causal", dict(quantize=how, precision=precision)) for name, (how, precision) in zip(decoders, (("nf4", "bf16"), ("int8", "fp16"), (r.choice(("nf4", "int8")), "bf16")))]
    pairs = [(r.choice(("whisper-tiny", "whisper-base", "whisper-small")), "speech", {}), (r.choice(("t5-base", "t5-large", "bart-large", *UNMEASURED["seq2seq"])), "seq2seq", {})]
    beams = [(decoders[3], "causal", dict(beams=4)), (r.choice(("t5-base", "bart-base", "flan-t5-small")), "seq2seq", dict(beams=r.choice([2, 4])))]
    experts = [(r.choice(EXPERTS), "causal", {}), (r.choice(UNMEASURED["experts"]), "causal", {})]
    others = [(decoders[4], "causal", {}), (r.choice(UNMEASURED["causal"]), "causal", {}), (decoders[5], "causal", dict(call=True))]
    cases = []
    for place in range(5):
        for name, task, more in (each[place] for each in (images, large, packed + pairs[:1], [pairs[1], *beams, experts[0]]) if place < len(each)): cases.append((name, task, more))
    cases += [experts[1], *others]
    write_lines(a.out, [generated(r, *case, lengths=(64, 128, 256, 512, 1000, 1500), tokens=(16, 24, 32), high=2) for case in cases])


def draw_sampled(a):
    """Of generate(): three decoders and three of other families, three of 9 to 14 billion weights, two packed, two of experts, two encoder-decoders, speech,
    three that draw tokens, one with beams, two of images and text; one of model(**batch); one with a static cache. Large ones far from each other."""
    r = random.Random(a.seed)
    known = {path.stem for path in (ROOT / "specs/models").glob("*.json")}
    decoders, others = r.sample(DECODERS, 9), r.sample(UNMEASURED["causal"], 4)
    small = [name for name in decoders if name not in ("mistral-7b", "llama-3.1-8b")]
    large = [(name, "causal", dict(precision="bf16")) for name in r.sample([name for name in LARGE if name in known and not name.endswith(("-7b", "-8b", "-r7b", "7b1"))], 3)]
    images = [(r.choice(names), "images", {}) for names in r.sample(GENERATE_IMAGES, 2)]
    packed = [(small[0], "causal", dict(quantize="nf4", precision="bf16")), (small[1], "causal", dict(quantize="int8", precision=r.choice(("bf16", "fp16"))))]
    experts = [(r.choice(EXPERTS), "causal", {}), (r.choice(UNMEASURED["experts"]), "causal", {})]
    pairs = [(r.choice(("t5-base", "t5-large", "bart-large")), "seq2seq", {}), (r.choice(UNMEASURED["seq2seq"]), "seq2seq", {}), (r.choice(("whisper-tiny", "whisper-base", "whisper-small")), "speech", {})]
    ways = [["temperature", "top-p"], ["top-k"], ["repetition-penalty", "temperature", "top-k", "top-p"], ["min-p"], ["plain"]]
    sampled = [(name, "causal", dict(precision="bf16", sampling=way)) for name, way in zip((small[2], small[3], others[3]), r.sample(ways, 3))]
    rest = [(small[4], "causal", dict(beams=4)), (small[5], "causal", dict(call=True)), (small[6], "causal", dict(static=True, precision="bf16"))]
    columns = [large + images, [(name, "causal", {}) for name in decoders[7:9] + others[:3]] + experts[:1], packed + pairs, sampled + rest[:2] + experts[1:]]
    cases = [column[place] for place in range(6) for column in columns if place < len(column)] + rest[2:]
    write_lines(a.out, [generated(r, *case) for case in cases])


def draw_bound(a):
    """Of generate(): four with large batches and long caches, two with long prompts, three packed, two that draw their tokens, two Gemmas, three
    encoder-decoders, speech, two of experts, two of images and text, one with beams, one with eager attention, two others; model(**batch) of one of images and text."""
    r = random.Random(a.seed)
    wide = r.sample(("pythia-1b", "opt-1.3b", "gpt2-xl", "olmo-1b", "cerebras-gpt-1.3b", "phi-2", "stablelm-2-1.6b", "falcon-rw-1b", "qwen1.5-1.8b", "smollm2-1.7b", "tinyllama-1.1b", "llama-3.2-1b", "qwen2.5-1.5b"), 4)
    drawn = [(name, "causal", dict(batch_size=b, sequence_length=s)) for name, (b, s) in zip(wide, r.sample([(32, 512), (32, 1000), (64, 256), (64, 512), (128, 128), (16, 2000)], 4))]
    drawn += [(name, "causal", dict(batch_size=r.choice([1, 2]), sequence_length=s, precision="bf16")) for name, s in zip(r.sample(("llama-3.1-8b", "mistral-7b", "qwen3-4b", "llama-3.2-3b", "qwen2.5-3b", "qwen2.5-7b"), 2), (4000, 8000))]
    names = [name for name in r.sample(DECODERS, len(DECODERS)) if name not in wide and not name.startswith("gemma")]
    drawn += [(name, "causal", more) for name, more in zip(names, (dict(quantize="nf4", precision="bf16", batch_size=r.choice([1, 2])), dict(quantize="nf4", precision="bf16", batch_size=16), dict(quantize="int8", precision=r.choice(("bf16", "fp16")))))]
    ways = r.sample([["temperature", "top-p"], ["top-k"], ["repetition-penalty", "temperature", "top-k", "top-p"], ["min-p"], ["temperature", "top-k", "top-p"]], 2)
    drawn += [(name, "causal", dict(sampling=way, precision="bf16")) for name, way in zip(names[3:], ways)]
    drawn += [(r.choice(some), "causal", {}) for some in (("gemma-2-2b", "gemma-2b", "gemma-2-9b"), ("gemma-3-1b", "gemma-3-270m", "gemma-3-12b"))]
    drawn += [(r.choice(some), task, {}) for some, task in ((("t5-base", "t5-large", "flan-t5-small", "mt5-small"), "seq2seq"), (("bart-base", "bart-large"), "seq2seq"), (("pegasus-xsum", "opus-mt-en-de", "m2m100-418m"), "seq2seq"),
                                                            (("whisper-tiny", "whisper-base", "whisper-small"), "speech"), (EXPERTS, "causal"), (UNMEASURED["experts"], "causal"))]
    drawn += [(r.choice(some), "images", {}) for some in r.sample(GENERATE_IMAGES, 2)] + [(r.choice(FORWARD_ONLY["images"]), "images", dict(call=True))]
    drawn += [(names[5], "causal", dict(beams=4)), (names[6], "causal", dict(attention="eager")), (r.choice(UNMEASURED["causal"]), "causal", {})]
    # Every sixth, so that large ones are built beside small ones.
    write_lines(a.out, [generated(r, *case) for place in range(6) for case in drawn[place::6]])


def draw_cards(a):
    """Of model(**batch) three large batches, two models that keep a state and one of images and text; of generate() four whose tokens read much of the card's memory, three packed, two that draw
    their tokens, two with several answers, three encoder-decoders, speech, two of experts, a Gemma, MPT, GLM, two of images and text, beams, a static cache.
    The card is to decide the first eight."""
    r = random.Random(a.seed)
    known = {path.stem for path in (ROOT / "specs/models").glob("*.json")}
    full = [(name, "causal", dict(call=True, batch_size=b, sequence_length=s, precision=p)) for name, (b, s, p) in zip(
        r.sample(("llama-3.1-8b", "mistral-7b", "qwen2.5-7b", "gemma-2-9b", "phi-4", "olmo-2-7b", "qwen3-8b"), 3), r.sample([(32, 512, "bf16"), (16, 1024, "fp16"), (8, 2048, "bf16"), (4, 1024, "fp32"), (4, 4000, "bf16")], 3))]
    wide = [(name, "causal", dict(batch_size=b, sequence_length=s, precision=p)) for name, (b, s, p) in zip(
        r.sample(("opt-13b", "pythia-12b", "llama-2-13b", "phi-2", "stablelm-3b", "pythia-6.9b", "gemma-7b", "opt-6.7b", "mistral-7b", "falcon3-10b"), 4), r.sample([(32, 1000, "bf16"), (16, 2000, "bf16"), (16, 64, "fp32"), (64, 512, "bf16"), (8, 1000, "fp32"), (24, 1000, "fp16")], 4))
        if name in known]
    names = [name for name in r.sample(DECODERS, len(DECODERS)) if not name.startswith("gemma") and name not in [each[0] for each in full + wide]]
    rest = [(name, "causal", more) for name, more in zip(names, (dict(quantize="nf4", precision="bf16", batch_size=r.choice([1, 2])), dict(quantize="nf4", precision="bf16", batch_size=32, sequence_length=512), dict(quantize="int8", precision="fp16")))]
    ways = r.sample([["temperature", "top-p"], ["top-k"], ["repetition-penalty", "temperature", "top-k", "top-p"], ["min-p"], ["temperature", "top-k", "top-p"]], 3)
    rest += [(name, "causal", dict(sampling=way, precision="bf16")) for name, way in zip(names[3:], ways[:2])]
    rest += [(names[5], "causal", dict(sampling=ways[2], num_return_sequences=r.choice([4, 8]), precision="bf16", batch_size=r.choice([1, 4]))), (r.choice(("t5-base", "bart-base", names[6])), "", dict(beams=4, num_return_sequences=2, batch_size=r.choice([2, 8])))]
    rest += [(r.choice(some), task, {}) for some, task in ((("t5-large", "flan-t5-small", "mt5-small"), "seq2seq"), (("bart-large", "m2m100-418m"), "seq2seq"), (("pegasus-xsum", "opus-mt-en-de"), "seq2seq"),
                                                           (("whisper-tiny", "whisper-base", "whisper-small"), "speech"), (EXPERTS, "causal"), (UNMEASURED["experts"] + ("olmoe-1b-7b", "deepseek-moe-16b"), "causal"))]
    rest += [(name, "causal", dict(call=True, precision="bf16", sequence_length=r.choice([128, 256]))) for name in (r.choice(("mamba-130m", "mamba-370m", "mamba-790m")), r.choice(("falcon-h1-0.5b", "lfm2-1.2b", "mamba2-130m")))]
    rest += [(name, "causal", dict(precision="bf16")) for name in (r.choice(("gemma-2-2b", "gemma-3-1b", "gemma-2b")), "mpt-7b", r.choice(("glm-4-9b", "glm-edge-1.5b")))]
    next(more for name, _, more in rest if name == "mpt-7b")["attention"] = "eager"
    rest += [(r.choice(some), "images", {}) for some in r.sample(GENERATE_IMAGES, 2)] + [(r.choice(FORWARD_ONLY["images"]), "images", dict(call=True, batch_size=8))]
    families = [name for name in names[7:] if not name.startswith("granite")]  # generate() of programs is refused
    rest += [(families[0], "causal", dict(beams=4)), (families[1], "causal", dict(static=True, precision="bf16"))]
    rest = [(name, task or ("seq2seq" if name in ("t5-base", "bart-base") else "causal"), more) for name, task, more in rest]
    places, bound = iter(rest), iter(full + wide)
    mixed = [case for three in zip(bound, *[places] * 3) for case in three]
    write_lines(a.out, [generated(r, *case) for case in mixed + list(bound) + list(places)])


def predict(a):
    sys.path.insert(0, str(ROOT / "scripts"))
    import memcalc_rows
    hosts = {row["id"]: row for row in lines_of(a.hosts)} if a.hosts else {}
    reference = json.loads((ROOT / "specs/measured/h100-sxm/rates.json").read_text())["host"]
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for case in lines_of(a.cases):
            words = ["--model", case["run"]["model"], *memcalc_rows.words_of(case["run"], ("model",)), "--gpu", a.gpu, "--format", "json", "--no-remedies"]
            if a.host: words += ["--host", a.host]
            elif case["id"] in hosts and hosts[case["id"]].get("tiny_ms"):
                rates = dict(reference, call_ratio=round(statistics.mean(hosts[case["id"]]["tiny_ms"]) / REFERENCE_TINY_MS, 4))
                path = Path(folder, "host.json")
                path.write_text(json.dumps(dict(schema_version=1, name="beside the call", rates=rates)))
                words += ["--host", str(path)]
            answer = subprocess.run([a.memcalc, *map(str, words)], capture_output=True, text=True)
            row = dict(id=case["id"])
            time_of = json.loads(answer.stdout).get("time") if answer.returncode <= 1 else None
            if time_of is None: row["refused"] = answer.stderr.strip() or "no time"
            else:
                row.update(call_ms=round(1e3 * time_of["step_seconds"], 2))
                row.update({f"peak_{k}": json.loads(answer.stdout)["memory"][f"peak_{k}_bytes"] for k in ("allocated", "reserved")})
                if case["run"].get("new_tokens"): row.update(first_ms=round(1e3 * time_of["prefill_seconds"], 2), token_ms=round(1e3 * time_of["seconds_per_token"], 3))
                row.update(kernel_ms=round(1e3 * time_of["kernel_seconds"], 2), host_ms=round(1e3 * time_of["host_seconds"], 2), kernels=time_of["kernels"], bound=time_of["bound_by"])
            said.append(row)
            print(row, flush=True)
    write_lines(a.out, said)


def config_of(run):
    import transformers as tf
    config = json.loads((ROOT / "specs/models" / f"{run['model']}.json").read_text())["config"]
    if "program" in config:  # its entry has the config.json
        entries = json.loads((ROOT / "specs/programs/sources.json").read_text())
        entries = entries if isinstance(entries, list) else next(v for v in entries.values() if isinstance(v, list))
        config = next(entry for entry in entries if entry["name"] == run["model"])["config"]
    config = {k: v for k, v in config.items() if k not in ("torch_dtype", "architectures", "dtype")}
    cfg = tf.AutoConfig.for_model(config.pop("model_type"), **config)
    if run.get("task") in ("seq2seq", "speech") and getattr(cfg, "decoder_start_token_id", None) is None: cfg.decoder_start_token_id = 1 if run["task"] == "speech" else 0
    return cfg


def built(case, device="cuda"):
    import torch, transformers as tf
    run = case["run"]
    cfg = config_of(run)
    task = "images" if "images" in run else run["task"]
    cls = {"causal": tf.AutoModelForCausalLM, "seq2seq": tf.AutoModelForSeq2SeqLM, "speech": tf.AutoModelForSpeechSeq2Seq, "images": tf.AutoModelForImageTextToText,
           "mlm": tf.AutoModelForMaskedLM, "image": tf.AutoModelForImageClassification}[task]
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[run["precision"]]
    for name in ("kaiming_uniform_", "uniform_", "normal_", "xavier_uniform_", "trunc_normal_"):  # what the weights are does not count
        setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
    try:
        with torch.device(device): model = cls.from_config(cfg, dtype=dtype, attn_implementation=run["attention"]).eval()
    except ValueError:  # a class without attention
        with torch.device(device): model = cls.from_config(cfg, dtype=dtype, attn_implementation="eager").eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1: p.uniform_(-0.02, 0.02)
    if run["precision"] == "fp16":  # as from_pretrained leaves them
        for name, p in model.named_parameters():
            if set(name.split(".")) & set(model._keep_in_fp32_modules or ()): p.data = p.data.float()
    if run.get("quantize"): pack(model, run["quantize"], dtype)
    gc.collect(); torch.cuda.empty_cache()
    if task == "speech": batch = dict(input_features=torch.randn(run["batch_size"], cfg.num_mel_bins, 3000, device=device, dtype=dtype))
    elif task == "image": batch = dict(pixel_values=torch.randn(run["batch_size"], 3, cfg.image_size, cfg.image_size, device=device, dtype=dtype))
    elif task == "images": batch = with_images(model, cfg, run, device)
    else:
        generator = torch.Generator(device=device).manual_seed(0)
        batch = dict(input_ids=torch.randint(5, min(cfg.vocab_size, 30000), (run["batch_size"], run["sequence_length"]), device=device, generator=generator))
    return model, batch


def with_images(model, cfg, run, device):
    """A text with images as the model's processor hands them over: python/memcalc/record/_pictures.py."""
    import importlib.util, torch
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("pictures", ROOT / "python/memcalc/record/_pictures.py"))
    sys.modules["pictures"] = module
    module.__spec__.loader.exec_module(module)
    shown = module.pictures(cfg, type(model), run["images"], None)
    special = {v for k, v in vars(cfg).items() if k.endswith(("token_id", "token_index")) and isinstance(v, int)}
    ids = torch.randint(5, min(shown.token_id, cfg.get_text_config().vocab_size, 30000), (run["batch_size"], run["sequence_length"]))
    for token in special: ids[ids == token] = 5 + max(special) % 7
    for start in range(1, shown.all_tokens, shown.tokens + 1): ids[:, start:start + shown.tokens] = shown.token_id
    batch = dict(input_ids=ids.to(device))
    for name, value in shown.tensors(run["batch_size"], run["sequence_length"]).items():
        batch[name] = torch.randn(value.shape, device=device, dtype=model.dtype) if value.is_floating_point() else value.to(device)
    if shown.types: batch[shown.types] = (ids == shown.token_id).long().to(device)
    return batch


def pack(model, how, dtype):
    """What transformers' quantizer makes of a model: every Linear and GPT-2's Conv1D but the head."""
    import bitsandbytes as bnb, torch
    from transformers.pytorch_utils import Conv1D
    head = model.get_output_embeddings()
    for name, module in list(model.named_modules()):
        for child, linear in list(module.named_children()):
            if type(linear) not in (torch.nn.Linear, Conv1D) or linear is head: continue
            made = dict(bias=linear.bias is not None)
            weight = linear.weight.data.t().contiguous() if type(linear) is Conv1D else linear.weight.data
            outs, ins = weight.shape
            if how == "nf4":
                new = bnb.nn.Linear4bit(ins, outs, compute_dtype=dtype, compress_statistics=False, quant_type="nf4", **made)
                new.weight = bnb.nn.Params4bit(weight, requires_grad=False, compress_statistics=False, quant_type="nf4")
            else:
                new = bnb.nn.Linear8bitLt(ins, outs, has_fp16_weights=False, threshold=6.0, **made)
                new.weight = bnb.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
            if linear.bias is not None: new.bias = torch.nn.Parameter(linear.bias.data, requires_grad=False)
            linear.weight = None
            setattr(module, child, new.cuda())


class Tiny:
    """A tiny LLaMA's forward without autograd: how fast the host is beside a call."""

    def __init__(self, device="cuda"):
        import torch, transformers as tf
        self.wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        small = dict(vocab_size=99, hidden_size=64, num_hidden_layers=8, num_attention_heads=4, intermediate_size=128)
        self.model = tf.LlamaForCausalLM(tf.LlamaConfig(num_key_value_heads=2, **small)).to(device).eval()
        self.ids = torch.randint(0, 90, (1, 16), device=device)

        self.small, self.loops = torch.zeros(64, device=device), []  # (seconds, Python's and the launches' microseconds) beside each

    def __call__(self):
        times = []
        for _ in range(7):
            self.wait(); t = time.perf_counter(); self.model(input_ids=self.ids); times.append(1e3 * (time.perf_counter() - t)); self.wait()
        t, total = time.perf_counter(), 0
        for number in range(20_000): total += number & 7
        between, small = time.perf_counter(), self.small
        for _ in range(150): small.add_(1)
        end = time.perf_counter(); self.wait()
        self.loops.append([round(time.time(), 2), round(1e6 * (between - t)), round(1e6 * (end - between))])
        return round(statistics.median(times[2:]), 3)


class Timed:
    """A case that was built: its calls, each with the tiny model's just before and just after it: a machine changes its state within a second."""

    def __init__(self, case, device="cuda"):
        import torch
        self.case, self.run, self.wait = case, case["run"], torch.cuda.synchronize if device == "cuda" else lambda: None
        begin = time.time()
        self.new, self.stamps, self.pairs = self.run.get("new_tokens"), [], None
        self.how = dict(do_sample=False)
        if "sampling" in self.run: self.how = dict(dict(do_sample=True, top_k=0), **dict(SAMPLING[word] for word in self.run["sampling"] if word != "plain"))
        if case.get("static"): self.how.update(cache_implementation="static", disable_compile=True)
        if device == "cuda":
            torch.zeros(1, device="cuda"); torch.cuda.empty_cache()
            torch.backends.cudnn.allow_tf32 = self.run["precision"] != "fp32"
            base = torch.cuda.memory_allocated()
        self.model, self.batch = built(case, device)
        if device == "cuda":  # as measure.py has them
            before = torch.cuda.memory_allocated() - base, torch.cuda.memory_reserved()
            self.call(self.new)
            torch.cuda.reset_peak_memory_stats()
            self.call(self.new)
            bytes_of = dict(alloc_after_model_and_batch=before[0], reserved_after_model=before[1], peak_allocated=torch.cuda.max_memory_allocated() - base,
                            peak_reserved=torch.cuda.max_memory_reserved(), alloc_after=torch.cuda.memory_allocated() - base)
        else: bytes_of = {}
        self.tiny = Tiny(device)
        self.row = dict(case, gpu=torch.cuda.get_device_name(0) if device == "cuda" else device, torch=torch.__version__, built_s=round(time.time() - begin, 1), **bytes_of)
        if self.new:
            after_token = self.model._update_model_kwargs_for_generation

            def stamped(*words, **named):
                self.stamps.append(time.perf_counter())
                if self.pairs is None: return after_token(*words, **named)
                self.wait(); t = time.perf_counter(); self.tiny.model(input_ids=self.tiny.ids); between = time.perf_counter(); self.wait()
                if len(self.stamps) > 1: self.pairs.append([round(1e3 * (self.stamps[-1] - self.begun), 2), round(1e3 * (between - t), 2)])
                self.begun = time.perf_counter()
                return after_token(*words, **named)
            self.model._update_model_kwargs_for_generation = stamped  # no operator of its own
        begin = time.time()
        self.tiny()
        if device != "cuda" or self.new is None: self.call(self.new)  # else both calls above have warmed up: cuDNN makes a plan for each number of keys
        self.row["warm_s"] = round(time.time() - begin, 2)

    def call(self, tokens):
        self.stamps.clear()
        self.wait(); t = time.perf_counter()
        if tokens: self.model.generate(**self.batch, max_new_tokens=tokens, min_new_tokens=tokens, num_beams=self.run.get("beams", 1), num_return_sequences=self.run.get("num_return_sequences", 1), pad_token_id=0, **self.how)
        else: out = self.model(**self.batch)
        self.wait(); return 1e3 * (time.perf_counter() - t)

    def measure(self, longest=3.0):
        row, end = self.row, time.time() + longest
        self.tiny.loops.clear()
        speeds, whole, first, tokens = [self.tiny()], [], [], []
        while len(whole) < (3 if self.new else 7) and (time.time() < end or len(whole) < 2):
            if self.new: first.append(self.call(1)); speeds.append(self.tiny())
            whole.append(self.call(self.new)); speeds.append(self.tiny())
            tokens.append([round(1e3 * (b - a), 2) for a, b in zip(self.stamps, self.stamps[1:])])
        row.update(call_ms=round(statistics.median(whole), 3), calls_ms=[round(x, 2) for x in whole], tiny_ms=speeds, hosts_us=list(self.tiny.loops))
        if self.new:
            row.update(first_ms=round(statistics.median(first), 3), firsts_ms=[round(x, 2) for x in first], tokens_ms=tokens)
            row["token_ms"] = round((row["call_ms"] - row["first_ms"]) / (self.new - 1), 4)
            self.pairs = []
            self.call(self.new)
            row["paired_ms"], self.pairs = self.pairs, None
        row["params"] = sum(p.numel() for p in self.model.parameters())

    def profile(self):
        """Kernels of a call, and of one for so few tokens; after all that is timed."""
        from torch.profiler import ProfilerActivity, profile
        for name, tokens in (("first", 1), ("five", 5)) if self.new else (("call", None),):
            with profile(activities=[ProfilerActivity.CUDA]) as p: self.call(tokens)
            kinds = {}
            for event in p.events():
                if not str(event.device_type).endswith("CUDA"): continue
                each = kinds.setdefault(event.name[:90], [0, 0.0])
                each[0] += 1; each[1] += event.device_time_total
            self.row["profile_" + name] = dict(kernels=sum(n for n, _ in kinds.values()), ms=round(sum(us for _, us in kinds.values()) / 1e3, 3),
                                               longest=[[k, n, round(us)] for k, (n, us) in sorted(kinds.items(), key=lambda x: -x[1][1])[:12]])


def child(case, out, ready, turn, device):
    """In a process of its own: builds and warms up, says so, measures when it is told to."""
    import torch, warnings
    warnings.filterwarnings("ignore")
    row = dict(case)
    try:
        with torch.no_grad():
            timed = Timed(case, device)
            row = timed.row
            os.write(ready, b"1")
            os.read(turn, 1)
            begin = time.time()
            timed.measure()
            row["turn_s"] = round(time.time() - begin, 1)
    except Exception as error: row.update(error=repr(error)[:300], where=traceback.format_exc()[-500:])
    with open(out, "a") as file: file.write(json.dumps(row) + "\n")
    print(case["id"], row.get("call_ms"), row.get("first_ms"), row.get("token_ms"), row.get("tiny_ms"), row.get("error", ""), row.get("built_s"), row.get("warm_s"), row.get("turn_s"), flush=True)
    if case.get("profile") and "turn_s" in row:
        with torch.no_grad(): timed.profile()
        with open(out + ".profiles", "a") as file: file.write(json.dumps({k: v for k, v in row.items() if k == "id" or k.startswith("profile_")}) + "\n")


QUICK = '''
import json, statistics, sys, time, torch
import importlib.util
spec = importlib.util.spec_from_file_location("_host", sys.argv[1] + "/memcalc/measure/_host.py")
_host = importlib.util.module_from_spec(spec)
spec.loader.exec_module(_host)
made = _host.tiny_models()
for model, ids, _ in made.values(): _host.timed_calls(model, ids, 6)
print("ready", flush=True)
for line in sys.stdin:
    begin, rounds = time.time(), []
    for _ in range(int(line)): rounds.append({name: round(statistics.median(_host.timed_calls(model, ids, 4))) for name, (model, ids, _) in made.items()})
    middle = {name: statistics.median(each[name] for each in rounds) for name in made}
    print(json.dumps(dict(at=round(begin, 2), seconds=round(time.time() - begin, 2), call=round(_host.call_factor_of(middle), 4), llama=[each["llama"] for each in rounds])), flush=True)
'''  # calls of memcalc.measure --host alone, when it is asked for them


class Quick:
    """A process that times tiny calls before a group."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", QUICK, str(ROOT / "python")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def __call__(self, rounds=12):
        print(rounds, file=self.process.stdin, flush=True)
        said = self.process.stdout.readline()
        return json.loads(said) if said.strip() else None


def groups_of(cases, most, gib):
    """As they come, so many together as fit on the card beside each other."""
    while cases:
        n, held = 1, cases[0].get("reserved", 0)
        while n < min(most, len(cases)) and held + cases[n].get("reserved", 0) < gib * 2**30: held += cases[n].get("reserved", 0); n += 1
        yield cases[:n]
        cases = cases[n:]


def measure(a):
    """In groups; one that takes too long costs itself alone."""
    import select, torch, transformers  # once, without a card: children find them there (bitsandbytes would take one)
    assert not torch.cuda.is_initialized()
    end, cases = time.time() + a.budget, lines_of(a.cases)
    Path(a.out).touch()
    quick = Quick() if a.quick else None
    for group in groups_of(cases, a.together, a.gib):
        begin = time.time()
        if begin > end: break
        children = []
        for place, case in enumerate(group):
            (said, say), (told, tell) = os.pipe(), os.pipe()
            pid = os.fork()
            if pid == 0:
                os.environ["CUDA_VISIBLE_DEVICES"] = str(place % a.cards)
                try: child(case, a.out, say, told, a.device)
                finally: os._exit(0)
            os.close(say); os.close(told)
            children.append([case, pid, said, tell])

        def ended(pid, seconds):
            limit = time.time() + seconds
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                time.sleep(0.02)
                if time.time() > min(limit, end): os.kill(pid, 9); os.waitpid(pid, 0); return False
            return True
        is_ready = {}
        for case, pid, said, _ in children:  # none measures while another builds
            able, _, _ = select.select([said], [], [], max(0.1, min(begin + a.setup, end) - time.time()))
            is_ready[pid] = bool(able) and os.read(said, 1) == b"1"
            if not is_ready[pid]: print(case["id"], "is not ready", flush=True); ended(pid, 0.5)
        if quick:
            with open(a.out + ".quick", "a") as file: file.write(json.dumps(dict(group=[case["id"] for case in group], quick=quick())) + "\n")
        for case, pid, said, tell in children:
            if is_ready[pid]: os.write(tell, b"1"); ended(pid, 25)
            os.close(said); os.close(tell)
        print(f"group {time.time() - begin:.1f} s", flush=True)


def compare(a):
    measured = {row["id"]: row for row in lines_of(a.files[-1])}
    for path in a.files[:-1]:
        errors = {"call_ms": [], "first_ms": [], "token_ms": []}
        for p in lines_of(path):
            m = measured.get(p["id"], {})
            if "call_ms" not in m or "call_ms" not in p: print(p["id"], p.get("refused", m.get("error"))); continue
            each = {k: 100 * (p[k] / m[k] - 1) for k in errors if k in p}
            for k, v in each.items(): errors[k].append(v)
            parts = "".join(f"   {k.split('_')[0]} {m[k]:8.2f} {p[k]:8.2f} {v:+6.1f} %" for k, v in each.items())
            print(f"{p['id']:40}{parts}  {p['bound']}  tiny {statistics.mean(m['tiny_ms']):.1f}")
        for k, v in errors.items():
            if v: print(path, k, f"{len(v)} rows: median {statistics.median(map(abs, v)):.1f} %, worst {max(v, key=abs):+.1f} %, under-predicted {sum(x < 0 for x in v)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function, words in (("draw", draw, "seed n out"), ("draw-unmeasured", draw_unmeasured, "seed out"), ("draw-mixed", draw_mixed, "seed out"), ("draw-wide", draw_wide, "seed out"), ("draw-large", draw_large, "seed out"), ("draw-sampled", draw_sampled, "seed out"), ("draw-bound", draw_bound, "seed out"), ("draw-cards", draw_cards, "seed out"), ("predict", predict, "memcalc cases out"), ("measure", measure, "cases out"), ("compare", compare, "")):
        command = commands.add_parser(name)
        for word in words.split(): command.add_argument(word, type=int if word in ("seed", "n") else str)
        if name == "compare": command.add_argument("files", nargs="+")
        if name == "measure":
            command.add_argument("--budget", type=float, default=220)
            command.add_argument("--setup", type=float, default=30, help="seconds in which a group must be built")
            command.add_argument("--together", type=int, default=4)
            command.add_argument("--quick", action="store_true", help="times tiny calls before each group")
            command.add_argument("--gib", type=float, default=120, help="of the card, for cases that say what they reserve")
            command.add_argument("--cards", type=int, default=1, help="so many hold the models that are built at the same time; one measures")
            command.add_argument("--device", default="cuda")
        if name == "predict": command.add_argument("--hosts")
        if name == "predict": command.add_argument("--gpu", default="h100-sxm")
        if name == "predict": command.add_argument("--host", help="a file of memcalc.measure --host")
        command.set_defaults(call=function)
    a = parser.parse_args()
    a.call(a)


if __name__ == "__main__": main()
