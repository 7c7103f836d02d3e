"""Runs drawn at random, predicted before they were measured: the figures of a section of docs/validation.md.in.

Rows: tests/measured/rows_blind_h200.jsonl.gz; how they were drawn: tests/measured/harness/blind_cases.py.
"""
import statistics

import memcalc_rows
from memcalc_pages import FITS, answered, table

KINDS = [  # heading: what a run has
    ("inference", lambda run: "infer" in run),
    ("QLoRA, LLM.int8", lambda run: "quantize" in run),
    ("LoRA", lambda run: "lora" in run),
    ("Liger", lambda run: "liger" in run),
    ("images, speech, CLIP", lambda run: run["task"] in ("image", "speech", "contrastive")),
    ("encoders", lambda run: run["task"] in ("seqcls", "mlm", "tokcls")),
    ("encoder-decoders", lambda run: run["task"] == "seq2seq"),
    ("decoders", lambda run: True),
]


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
    rows = memcalc_rows.read("rows_blind_h200.jsonl")
    errors = [memcalc_rows.errors_of(row, answered(row["id"], report))
              for row, report in zip(rows, memcalc_rows.reports(memcalc, rows, FITS))]
    groups = {name: [] for name, _ in KINDS}
    for row, error in zip(rows, errors):
        groups[next(name for name, belongs in KINDS if belongs(row["run"]))].append(error)
    return {
        "count": len(rows), "models": len({row["run"]["model"] for row in rows}),
        "skipped": sum("skipped_steps" in row["run"] for row in rows),
        "table": table(("", ">rows", ">allocated: exact", ">median", ">p90", ">max", ">reserved: exact", ">median", ">p90", ">max"),
                       [cells("all", errors), *(cells(name, groups[name]) for name, _ in reversed(KINDS))]),
    }
