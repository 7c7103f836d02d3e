"""Other tools' configuration files and command lines."""
from __future__ import annotations

import dataclasses
import os
import shlex
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from . import _core
from ._errors import error
from ._options import RunOptions
from ._specs import name_or_path

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclasses.dataclass(frozen=True)
class Config:
    """What a file or a command line of another tool asks: `memcalc.estimate(**config.options, gpu=…)`."""
    file: str
    format: str
    """axolotl, llama-factory, …; `command` for a command line"""
    program: str
    """whose keys and defaults these are, with its version"""
    options: dict[str, Any]
    """keywords of `memcalc.estimate`, `model` among them"""
    used: list[str]
    """keys that set an option"""
    irrelevant: dict[str, str]
    """keys that change neither memory nor time, with the reason"""
    approximated: dict[str, str]
    """keys in whose place something near is predicted, with what that is"""
    left_out: list[str]
    notes: list[str]
    """what is assumed where the file says nothing"""


def _typed(model: str | None, options: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    given = {name: value for name, value in options.items() if value is not None}
    if model is not None: given = {"model": model, **given}
    return given, [(name, "" if value is True else str(value)) for name, value in given.items()]


def _config(read: dict[str, Any], given: dict[str, Any]) -> Config:
    return Config(**{**read, "options": {**read["options"], **given}})


def read_config(path: str | os.PathLike[str], *, format: str | None = None, without: Sequence[str] = (),
                model: str | None = None, **options: Unpack[RunOptions]) -> Config:
    """Reads a file of axolotl, LLaMA-Factory, TRL, torchtitan, accelerate, DeepSpeed or `TrainingArguments`
    (docs/config-files.md).

    `format`: whose it is; recognised by its keys without. `without`: keys that are left out. `model` and `options` win
    over the file. Raises `InputError` for what is wrong in it and `UnsupportedError` for keys that are not modelled.
    """
    given, typed = _typed(model, options)
    return _config(_core.read_config(name_or_path(path, "path"), format or "", list(without), typed), given)


def read_command_line(command: str | Sequence[str], *, without: Sequence[str] = (), model: str | None = None,
                      **options: Unpack[RunOptions]) -> Config:
    """The same of a training's command line: `"torchrun --nproc_per_node 4 train.py --bf16"`, or its words."""
    given, typed = _typed(model, options)
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except (TypeError, ValueError) as failed:  # no words at all; a quotation that does not end
        raise error(_core.UsageError, "command", str(failed)) from None
    if not all(isinstance(each, str) for each in words):  # bytes are numbers
        raise error(_core.UsageError, "command", f"expected a string or a list of words, found {command!r}")
    return _config(_core.read_command_line(words, list(without), typed), given)
