"""What memcalc.measure measured on an H200, beside the harness and the prediction: the figures of a section of
docs/validation.md.in.

Rows: tests/measured/measure_h200.jsonl (measure.py and measure_trainer.py of tests/measured/harness) and
measure_h200_memcalc.jsonl (memcalc.measure), the same runs in the same order.
"""
import json
from pathlib import Path

from memcalc_pages import FITS, MEASURED, answered, json_lines, table

EXPLAINED = {"gpt2-b4-s512-trainer-amp-bf16-accum2"}  # rows that differ, of which the template says what is known


def words_of(row, folder):
    """The command line of a row."""
    case = row["case"]
    config = case["config"]
    if config["model_type"] == "torchvision":
        config = {"name": config["architecture"], "config": config, "source": "torchvision", "date": "2026-11"}
    path = Path(folder) / f"{case['id']}.json"
    path.write_text(json.dumps(config))
    words = ["--model", path, "--gpu", "h200-sxm", "--task", case["task"], "--bs", case["batch"], "--precision",
             case["precision"], "--loop", row["loop"], "--optimizer", case["optimizer"], "--checkpointing", case["ckpt"],
             "--accum", case["accum"]]
    words += ["--image", case["image"]] if case["task"] == "image" else ["--seq", case["seq"]]
    if "clip" in case: words += ["--clip-grad", case["clip"]]
    if case.get("use_cache"): words += ["--use-cache"]
    return words


def difference(value, measured):
    return "equal" if value == measured else f"{value - measured:+,}"


def figures(memcalc):
    pairs = list(zip(json_lines(MEASURED / "measure_h200.jsonl"), json_lines(MEASURED / "measure_h200_memcalc.jsonl")))
    bare = [(harness, ours) for harness, ours in pairs if harness["loop"] == "bare"]
    peaks = ("peak_allocated", "peak_reserved")
    differing = {harness["case"]["id"] for harness, ours in pairs if any(harness[key] != ours[key] for key in peaks)}
    if differing != EXPLAINED: raise SystemExit(f"docs/validation.md.in says nothing of {sorted(differing ^ EXPLAINED)}")
    rows = []
    for (harness, ours), answer in zip(pairs, memcalc.all([words_of(row, memcalc.folder.name) for row, _ in pairs], FITS)):
        name = harness["case"]["id"]
        assert name == ours["case"]["id"]
        cells = [name]
        for key in peaks:
            told = answered(name, answer)["memory"][f"{key}_bytes"]
            cells += [f"{harness[key]:,}", difference(ours[key], harness[key]), difference(told, harness[key])]
        rows.append(cells)
    return {
        "count": len(pairs), "bare": len(bare),
        "same": sum(all(harness[key] == ours[key] for key in peaks) for harness, ours in bare),
        "phases": sum(harness["phases"] == ours["phases"] for harness, ours in bare),
        "table": table(("run", ">harness: allocated", ">memcalc.measure", ">predicted", ">harness: reserved",
                        ">memcalc.measure", ">predicted"), rows),
    }
