"""Predicted against measured: runs a real step on this machine's GPU (needs `pip install memcalc[measure]`).

    python -m memcalc.measure --model gpt2 --bs 4 --loop bare --precision bf16 --row rows.jsonl

The options are those of `memcalc estimate`; what is run is what `tests/measured/harness` runs, so a row that is written
may stand among the rows there. The model gets random weights: nothing is downloaded, and memory does not depend on them.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .. import _core
from .._errors import error
from .._estimate import PACKAGES, estimate, installed_version
from .._model import Model
from .._report import Report, _size

__all__ = ["Line", "Measurement", "case_of", "compare", "measure", "run_cases"]

_OPTIMIZERS = {
    "bare": ("adamw", "adamw-fused", "adamw-for", "adam", "nadam", "radam", "adamax", "sgd", "sgdm", "adagrad", "rmsprop",
             "adafactor-torch", "adafactor"),
    "trainer": ("adamw", "adamw-fused", "adafactor", "sgd", "adagrad", "rmsprop"),
}
# Of a run record: what a case keeps, and the only value of other keys with which a run is possible here.
_KEPT = {"batch_size", "sequence_length", "target_sequence_length", "image_size", "task", "precision", "weights_dtype",
         "loop", "optimizer", "accumulation_steps", "max_grad_norm", "checkpointing", "reentrant", "attention", "dropout",
         "use_cache", "lora", "lora_targets", "lora_dropout", "lora_dtype"}
_ONLY = {"gpus": 1, "nodes": 1, "tp": 1, "cp": 1, "ep": 1, "pp": 1, "parallel": "none", "framework": "torch",
         "quantize": "none", "float8": "none", "lora_dtype": "fp32", "stages": "train"}
_ELSEWHERE = {"model", "gpu"}  # the config stands for the model; the row names the card that it ran on


class Line(NamedTuple):
    """A quantity in bytes."""

    name: str
    predicted: int | None
    measured: int | None

    @property
    def difference(self) -> int | None:
        """Predicted minus measured."""
        return None if self.predicted is None or self.measured is None else self.predicted - self.measured


@dataclass(frozen=True)
class Measurement:
    """A report beside what was measured; `str()` is the table."""

    report: Report
    row: dict[str, Any]
    lines: list[Line]

    def __str__(self) -> str:
        cells: list[tuple[str, ...]] = [("", "predicted", "measured", "difference")]
        for line in self.lines:
            difference = line.difference
            told = "" if difference is None or not line.measured else (
                "exact" if difference == 0 else f"{difference:+,} B ({100 * difference / line.measured:+.3f} %)")
            cells.append((line.name, *("-" if b is None else _size(b) for b in line[1:3]), told))
        widths = [max(len(row[column]) for row in cells) for column in range(4)]
        return "\n".join("  ".join((row[0].ljust(widths[0]), row[1].rjust(widths[1]), row[2].rjust(widths[2]), row[3]))
                         .rstrip() for row in cells)


def _refuse(part: str, message: str) -> _core.Error:
    return error(_core.UnsupportedError, part, message)


def case_of(model: Model, report: Report, name: str | None = None) -> dict[str, Any]:
    """What `_run.py` runs for a report of `model`. Raises `UnsupportedError` for what it cannot run."""
    run = report.to_dict()["run"]
    if run.get("loop", "bare") not in _OPTIMIZERS: raise _refuse("loop", "measure runs trainer and bare")
    only = {**_ONLY, "weights_dtype": {"bf16": "bf16", "fp16": "fp16"}.get(run["precision"], "fp32"),
            "pin_memory": run.get("loop") == "trainer"}
    for key, value in run.items():
        if key in PACKAGES:
            installed = installed_version(key)
            if installed is not None and installed.split("+")[0] != value.split("+")[0]:
                raise _refuse(key, f"measure runs what is installed, {installed}, not {value}")
            continue
        if key in only and value != only[key]: raise _refuse(key, f"measure runs {only[key]} here, not {value}")
        if key not in only and key not in _KEPT | _ELSEWHERE and (value or key == "tie"):
            raise _refuse(key, "measure does not run this yet")
    if run["optimizer"] not in _OPTIMIZERS[run["loop"]]:
        raise _refuse("optimizer", f"measure runs {', '.join(_OPTIMIZERS[run['loop']])} in the {run['loop']} loop, "
                                   f"not {run['optimizer']}")
    if run["checkpointing"] not in ("none", "full"):
        raise _refuse("checkpointing", f"measure runs none and full, not {run['checkpointing']}")
    if run["loop"] == "trainer" and run["task"] not in ("seqcls", "causal", "mlm"):
        raise _refuse("loop", f"measure runs the Trainer for seqcls, mlm and causal, not for {run['task']}")
    if model.config is None: raise _refuse("model", "measure builds models of transformers and torchvision")
    kept = {key: value for key, value in run.items()
            if key in _KEPT and (value is not False or key == "reentrant") and value != "none"}
    kept["max_grad_norm"] = float(run["max_grad_norm"])
    return {"id": name or f"{Path(model.name).stem}-b{run['batch_size']}-{run['precision']}",
            "run": {"model": model.name, **kept}, "harness": {"config": model.config}}


def run_cases(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The measured rows, in a process of its own, so that nothing of this one is on the card."""
    with tempfile.TemporaryDirectory() as folder:
        cases_path, rows_path = Path(folder, "cases.jsonl"), Path(folder, "rows.jsonl")
        cases_path.write_text("".join(json.dumps(case) + "\n" for case in cases))
        script = str(Path(__file__).with_name("_run.py"))
        process = subprocess.run([sys.executable, script, str(cases_path), str(rows_path)], stdin=subprocess.DEVNULL,
                                 stdout=sys.stderr)
        if process.returncode != 0 or not rows_path.exists():
            raise _refuse("measure", f"the measuring process ended with {process.returncode}")
        return [json.loads(line) for line in rows_path.read_text().splitlines()]


def _phases_of(report: Report) -> list[tuple[str, int, int, int]]:
    """(phase, allocated before, peak, after) in order, as the recorded rows have them."""
    events = report.timeline(all_steps=True)
    found: list[tuple[str, int, int, int]] = []
    start = 0
    for end in range(1, len(events) + 1):
        if end < len(events) and events["phase"][end] == events["phase"][start]: continue
        before = int(events["allocated_bytes"][start - 1]) if start else 0
        inside = events["allocated_bytes"][start:end]
        found.append((str(events["phase"][start]), before, max(before, int(inside.max())), int(inside[-1])))
        start = end
    return found


def compare(report: Report, row: dict[str, Any]) -> list[Line]:
    """Each quantity that both know: peaks, the peak of each phase, and what stays allocated, by category."""
    used = row.get("nvml_after_train")
    lines = [
        Line("peak allocated", report.peak_allocated_bytes, row["peak_allocated"]),
        Line("peak reserved", report.peak_reserved_bytes, row["peak_reserved"]),
        Line("device in use", report.device_used_bytes, used and used - row["nvml_before_context"]),
    ]
    if "phases" not in row: return lines
    for phase, peak in report.phases.items():
        lines.append(Line(f"{phase}: peak", peak, max(p[3] for p in row["phases"] if p[1] == phase)))
    # What stays, from the bytes between phases: the last forward and backward, and what the first step added.
    told = _phases_of(report)
    predicted = {phase: [p for p in told if p[0] == phase] for phase in ("forward", "backward")}
    measured = {phase: [p[1:] for p in row["phases"] if p[1] == phase] for phase in ("forward", "backward")}

    def kept(of: Any) -> tuple[int, int, int, int]:
        forward, backward = of["forward"], of["backward"]
        return (forward[0][1], forward[-1][3] - forward[-1][1], backward[-1][3] - forward[-1][1],
                forward[-1][1] - forward[0][1])

    names = ("weights and inputs", "activations, after forward", "gradients, after backward",
             "optimizer states and workspaces, between steps")
    return lines + [Line(name, p, m) for name, p, m in zip(names, kept(predicted), kept(measured))]


def gpu_name() -> str:
    """Of the card that torch uses. Raises `UnsupportedError` where there is none."""
    try:
        import torch
    except ImportError as failed:
        raise _refuse("torch", f"measure needs PyTorch (pip install memcalc[measure]): {failed}") from None
    if not torch.cuda.is_available(): raise _refuse("gpu", "measure needs a CUDA device; torch finds none")
    return str(torch.cuda.get_device_name(0))


def measure(model: str | os.PathLike[str] | Model, *, gpu: str | None = None, row: str | os.PathLike[str] | None = None,
            **options: Any) -> Measurement:
    """Runs `model` under the options of `memcalc.estimate` on this machine's first GPU.

    `gpu`: the name by which memcalc knows the card (by default found by torch's name for it). `row`: a file to which
    the measured row is appended (JSON lines). The plain loop (`loop="bare"`) takes three steps and tells every phase,
    the Trainer eight and tells its peaks. Raises `UnsupportedError` for what cannot be run here.
    """
    subject = model if isinstance(model, Model) else Model(model)
    report = estimate(subject, gpu=gpu or gpu_name(), **options)
    measured = run_cases([case_of(subject, report)])[0]
    if "error" in measured: raise _refuse("measure", measured["error"])
    if row is not None:
        with open(row, "a") as file: file.write(json.dumps(measured) + "\n")
    return Measurement(report, measured, compare(report, measured))
