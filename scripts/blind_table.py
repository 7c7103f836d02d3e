"""Runs drawn at random, predicted before they were measured: the figures of a section of docs/validation.md.in.

Rows: tests/measured/rows_blind_h200.jsonl; how they were drawn: tests/measured/harness/blind_cases.py.
"""
import json
import statistics
from pathlib import Path

from memcalc_pages import FITS, MEASURED, ROOT, answered, json_lines, table

SKIPPED_STEPS = json.loads((MEASURED / "skipped_steps.json").read_text())["rows"]
KINDS = [  # heading: what a case has
    ("inference", lambda case: case.get("mode") == "infer"),
    ("QLoRA, LLM.int8", lambda case: "quant" in case),
    ("LoRA", lambda case: "lora" in case),
    ("Liger", lambda case: "liger" in case),
    ("images, speech, CLIP", lambda case: case.get("task", "image") in ("image", "speech", "contrastive")),
    ("encoders", lambda case: case["task"] in ("seqcls", "mlm", "tokcls")),
    ("encoder-decoders", lambda case: case["task"] == "seq2seq"),
    ("decoders", lambda case: True),
]
OPTIONS = {"optimizer": "--optimizer", "optim": "--optimizer", "accum": "--accum", "lora": "--lora", "attn": "--attn",
           "ckpt": "--checkpointing", "lora_dropout": "--lora-dropout", "lora_dtype": "--lora-dtype",
           "target_seq": "--target-seq", "new_tokens": "--new-tokens", "beams": "--beams", "task": "--task", "seq": "--seq"}
FLAGS = {"padding": "--padding", "clip": "--clip-grad", "liger": "--liger", "offload_activations": "--activation-offload"}


def words_of(row, folder):
    """The command line of a row."""
    case, infers = row["case"], row["case"].get("mode") == "infer"
    config = json.loads((ROOT / "specs/models" / f"{case['model']}.json").read_text())["config"] \
        if case["model"] not in NAMED else NAMED[case["model"]]
    model = case["model"]
    if config["model_type"] != "torchvision":  # a config.json, as the harness builds its models
        model = Path(folder) / f"{case['id']}.json"
        model.write_text(json.dumps(config))
    words = ["--model", model, "--gpu", "h200-sxm", "--bs", case["batch"], "--precision", case["precision"]]
    if "task" not in case: words += ["--image", case.get("image", 224)]
    words += [word for key, option in OPTIONS.items() if key in case for word in (option, case[key])]
    words += [option for key, option in FLAGS.items() if case.get(key)]
    if infers: return words + ["--infer"]
    words += ["--loop", row["loop"]]
    if row["loop"] == "bare" and "optimizer" not in case: words += ["--optimizer", "adamw"]
    decodes = case.get("task") in ("causal", "seq2seq", "speech") or case.get("task") == "seqcls" and is_decoder(config)
    if row["loop"] == "bare" and decodes and "ckpt" not in case: words += ["--use-cache"]
    for key, option in (("lora_targets", "--lora-targets"), ("freeze", "--freeze")):
        if key in case: words += [option, ",".join(case[key])]
    if "quant" in case:
        words += ["--quantize", case["quant"].replace("-dq", "-double"), "--prepare-kbit" if case.get("kbit") else "--no-prepare-kbit"]
    if case["id"] in SKIPPED_STEPS: words += ["--skipped-steps", SKIPPED_STEPS[case["id"]]]
    return words


def is_decoder(config):
    return config["model_type"] not in ("bert", "roberta", "distilbert", "electra")


NAMED = {name: entry["config"] for name, entry in json.loads((MEASURED / "models.json").read_text())["models"].items()}


def errors_of(row, answer):
    """(allocated, reserved) of the prediction less the measurement, relative."""
    memory = answered(row["case"]["id"], answer)["memory"]
    pairs = [(memory[f"peak_{key}_bytes"], row[f"peak_{key}"]) for key in ("allocated", "reserved")]
    return [predicted / measured - 1 for predicted, measured in pairs]


def percent(value):
    return "0" if value == 0 else "<0.001 %" if abs(value) < 5e-6 else f"{100 * abs(value):.3f} %"


def cells(name, errors):
    columns = [name, len(errors)]
    for column in zip(*errors):
        sizes = sorted(map(abs, column))
        columns += [f"{sizes.count(0)} of {len(sizes)}", percent(statistics.median(sizes)), percent(sizes[int(0.9 * len(sizes))]),
                    percent(sizes[-1])]
    return columns


def figures(memcalc):
    rows = json_lines(MEASURED / "rows_blind_h200.jsonl")
    errors = list(map(errors_of, rows, memcalc.all([words_of(row, memcalc.folder.name) for row in rows], FITS)))
    groups = {name: [] for name, _ in KINDS}
    for row, error in zip(rows, errors):
        groups[next(name for name, belongs in KINDS if belongs(row["case"]))].append(error)
    return {
        "count": len(rows), "models": len({row["case"]["model"] for row in rows}),
        "skipped": sum(row["case"]["id"] in SKIPPED_STEPS for row in rows),
        "table": table(("", ">rows", ">allocated: exact", ">median", ">p90", ">max", ">reserved: exact", ">median", ">p90", ">max"),
                       [cells("all", errors), *(cells(name, groups[name]) for name, _ in reversed(KINDS))]),
    }
