"""estimate() and its relatives."""
from __future__ import annotations

import functools
import importlib.metadata
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _core
from ._errors import error
from ._model import Model, reference_of
from ._options import RunOptions
from ._report import Report
from ._specs import device_spec, model_spec, name_or_path, registry, spec_directory

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Unpack

# The card whose behaviour is assumed where none is named, as on the command line.
ASSUMED_GPU = "h100-sxm"
_SIZES = frozenset(_core.size_keywords())


# Whose versions matter, as pip calls them.
PACKAGES = ("torch", "transformers", "accelerate", "peft", "trl", "bitsandbytes", "liger-kernel")


def installed_version(package: str) -> str | None:
    """As pip says it; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.lru_cache(maxsize=1)
def installed_versions() -> str:
    """What is installed beside this Python: "torch==2.11.0,transformers==5.17.0"; empty: nothing of it."""
    found = ((package, installed_version(package)) for package in PACKAGES)
    return ",".join(f"{package}=={version}" for package, version in found if version is not None)


def _with_installed_versions(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of what nobody says a version, the one that is installed; the report says so."""
    if any(options.get(name) is not None for name in ("versions", "profile")): return options
    installed = installed_versions()
    return {**options, "versions": installed} if installed else options


def _name_elsewhere(name: str) -> str:
    """What an option of this name, which other programs have, is called here (specs/option_names.json)."""
    path = Path(spec_directory(), "option_names.json")
    for program in json.loads(path.read_text(encoding="utf-8"))["programs"] if path.exists() else ():
        if name in program["names"]: return f"memcalc's command line calls it {program['names'][name]}"
        if name in program.get("without_effect", ()): return "it changes neither memory nor the time of a step: leave it out"
    return ""


def _question(model: str | os.PathLike[str] | Model | None, gpu: str | os.PathLike[str] | None,
              options: Mapping[str, Any]) -> _core.Question:
    sizes = {name: value for name, value in options.items() if name in _SIZES and value is not None}
    if isinstance(model, Model):
        if sizes:
            name = next(iter(sizes))
            raise error(_core.UsageError, name, "sizes change a model that is given by name; this one is a Model")
    if "card" in options:
        options = dict(options)
        described = options.pop("card")
        if gpu is not None and described is not None:
            raise error(_core.UsageError, "card", "contradicts gpu: give one")
        gpu = described if gpu is None else gpu
    options = _with_installed_versions(options)
    device = device_spec(ASSUMED_GPU if gpu is None else name_or_path(gpu, "gpu"))
    try:
        if not isinstance(model, Model):
            return _core.Question(model_spec(reference_of(model), sizes), device, options, gpu is None, registry())
        return _core.Question(model._spec, device, {**model._options, **options}, gpu is None, registry())
    except _core.UsageError as refused:
        if refused.rule == "unknown-option" and refused.part and (hint := _name_elsewhere(refused.part)):
            refused.args = (f"{refused}; {hint}",)
        raise


def estimate(model: str | os.PathLike[str] | Model, *, gpu: str | os.PathLike[str] | None = None,
             **options: Unpack[RunOptions]) -> Report:
    """Runs a training step without data and says what it needs.

    `model`: a name (`memcalc.models()`), a hub id, the path of a config.json, of a directory with one or of weights, or
    a `Model`. `gpu`: a name (`memcalc.gpus()`) or a file of ours; without one the H100's behaviour is assumed. All other
    keywords are those of `RunOptions`; also as the command line spells them (`bs` for `batch_size`). Versions that nobody
    says are those that are installed beside this Python.

    Raises `UsageError` (unknown name or keyword, value out of range), `InputError` (a wrong file), `UnsupportedError`
    (a combination that is not modelled). That a run does not fit is an answer: `Report.fits`. The GIL is released.
    """
    question = _question(model, gpu, options)
    return Report(question.estimate(), question)


def _question_of(run: Mapping[str, Any]) -> _core.Question:
    if not isinstance(run, Mapping):
        raise error(_core.UsageError, "runs", f"expected a dict of estimate's arguments, found {type(run).__name__}")
    arguments = dict(run)
    return _question(arguments.pop("model", None), arguments.pop("gpu", None), arguments)


def estimate_many(runs: Iterable[Mapping[str, Any]], *, threads: int = 2, errors: str = "raise") -> np.ndarray:
    """Many estimates at the speed of C++: each run is a dict of `estimate`'s arguments, `model` among them.

    Returns a NumPy structured array with a row per run: `ok`, `fits`, `peak_allocated_bytes`, `peak_reserved_bytes`,
    `device_used_bytes` (-1 where the card's context is not known), the peak of each phase, the categories at the peak,
    `slack_bytes`, parameters, all int64; `flops` (of one optimizer step), `step_seconds` and `samples_per_second` (NaN
    where the card's rates are not known), float64. `numpy` is needed.

    `errors="raise"`: the first run that is refused raises. `errors="skip"`: its row has `ok == 0` and zeros.
    """
    import numpy

    if errors not in ("raise", "skip"):
        raise error(_core.UsageError, "errors", f"expected 'raise' or 'skip', found {errors!r}")
    questions: list[_core.Question | BaseException] = []
    if isinstance(threads, bool) or not isinstance(threads, (int, numpy.integer)) or threads < 1:
        raise error(_core.UsageError, "threads", f"expected a whole number of 1 or more, found {threads!r}")
    if isinstance(runs, (str, Mapping)) or not isinstance(runs, Iterable):
        raise error(_core.UsageError, "runs", f"expected a list of dicts, one a run, found {type(runs).__name__}")
    for run in runs:
        try:
            questions.append(_question_of(run))
        except _core.Error as refused:
            questions.append(refused)
    packed, failures = _core.estimate_many(questions, min(int(threads), 256))
    if failures and errors == "raise":
        index, failure = min(failures, key=lambda each: each[0])
        failure.args = (f"run {index}: {failure}",)
        raise failure
    return numpy.frombuffer(packed, dtype=_core.row_fields()).copy()


def models() -> list[dict[str, Any]]:
    """The models of the registry: `name`, `model_type`, `published_parameters`, `aliases`, `source`, `date`, …"""
    return list(json.loads(registry().models())["models"])


def gpus() -> list[dict[str, Any]]:
    """The cards of the registry: `name`, `memory_bytes`, `validated` (its memory behaviour was measured), …"""
    return list(json.loads(registry().devices())["gpus"])
