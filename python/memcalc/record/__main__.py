"""python -m memcalc.record: a program from a model of a library, without weights and without a card."""
from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Sequence


if TYPE_CHECKING: from ._sources import Source

# A name that the library does not know, a library or a file that is not there.
_UNKNOWN = (AttributeError, ImportError, KeyError, OSError, RuntimeError, ValueError)


class _Wrong(ValueError):
    """A command line that cannot be answered."""


def _read_json(path: str) -> Any:
    try: return json.loads(Path(path).read_text())
    except OSError as error: raise _Wrong(f"{path}: {error.strerror}") from error
    except ValueError as error: raise _Wrong(f"{path}: {error}") from error


def _check(given: argparse.Namespace) -> None:
    """What is seen before a library is imported and the module is recorded."""
    for name in ("batch", "sequence", "target", "images", "image"):
        value = getattr(given, name)
        if value is not None and value < 1: raise _Wrong(f"--{name} {value}: 1 or more is expected")
    if given.hf and given.hf.endswith(".json"):
        if "model_type" not in _read_json(given.hf): raise _Wrong(f"{given.hf}: no model_type: it is no config.json of transformers")
    if given.config: _read_json(given.config)
    folder = Path(given.output).resolve().parent
    if not folder.is_dir(): raise _Wrong(f"-o {given.output}: {folder} is no folder")
    if not os.access(folder, os.W_OK): raise _Wrong(f"-o {given.output}: {folder} cannot be written")


def _check_task(task: str) -> None:
    from ._sources import TASKS
    from ._targets import TARGETS

    if task not in TASKS and task not in TARGETS: raise _Wrong(f"--task {task}: accepted: {', '.join([*TASKS, *TARGETS])}")


def _line(error: Exception) -> str:
    """What is wrong, in one line."""
    what = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return f"memcalc.record: error: {' '.join(what.split())}"


def _source(given: argparse.Namespace) -> Source:
    from . import _sources

    if given.hf:
        return _sources.transformers(given.hf, given.task, batch=given.batch, sequence=given.sequence,
                                     target=given.target, image=given.image, name=given.name,
                                     images=given.images, attention=given.attention)
    if given.diffusers:
        config = _read_json(given.config) if given.config else None
        return _sources.diffusers(given.diffusers, config, batch=given.batch, image=given.image)
    if given.ultralytics:
        return _sources.ultralytics(given.ultralytics, batch=given.batch, image=given.image, target=given.target or 8)
    if given.timm: return _sources.timm(given.timm, batch=given.batch, image=given.image)
    return _sources.torchvision(given.torchvision, batch=given.batch, image=given.image)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m memcalc.record", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--hf", metavar="ID|CONFIG.json", help="a model of transformers, by hub id or config.json")
    which.add_argument("--timm", metavar="NAME", help="a model of timm")
    which.add_argument("--torchvision", metavar="NAME", help="a model of torchvision")
    which.add_argument("--ultralytics", metavar="NAME", help="a YOLO detector, by its YAML's name")
    which.add_argument("--diffusers", metavar="CLASS", help="a network of diffusers, by its class")
    parser.add_argument("--config", metavar="FILE.json", help="arguments of the class of diffusers")
    parser.add_argument("--attention", help="transformers' attn_implementation: sdpa (the default), eager")
    parser.add_argument("--task", help="of a model of transformers: causal, mlm, seqcls, tokcls, qa, seq2seq, image, segmentation, "
                        "speech, ctc, contrastive, image-text, audio-text, captions, audio, detection, masks, prompts, concepts, features; default: what the configuration's architecture says")
    parser.add_argument("--batch", type=int, default=8, help="the default batch size of the program")
    parser.add_argument("--sequence", type=int, default=512, help="the default sequence length")
    parser.add_argument("--target", type=int, help="the default length of the target, or number of objects in an image")
    parser.add_argument("--images", type=int, default=1, help="how many images a text has (image-text)")
    parser.add_argument("--image", type=int, help="edge of the images, pixels; default: the model's own")
    parser.add_argument("--name", help="the program's name; default: that of the model")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="NAME.json or NAME.json.gz")
    given = parser.parse_args(arguments)
    from ._values import NotMade, ValueNeeded

    try:
        if given.task: _check_task(given.task)
        _check(given)
        source = _source(given)
    except _UNKNOWN as error:
        print(_line(error), file=sys.stderr)
        return 2
    try:
        program = source.record(given.name)
    except (NotMade, ValueNeeded) as error:
        print(_line(error) if isinstance(error, NotMade) else error, file=sys.stderr)
        return 2
    program.save(given.output)
    for name, symbol in program.to_dict()["symbols"].items():
        if symbol.get("fixed"): print(f"{name} is fixed at {symbol['default']}: {symbol['reason']}", file=sys.stderr)
    return 0


if __name__ == "__main__": sys.exit(main())
