"""python -m memcalc.record: a program from a model of a library, without weights and without a card."""
from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Sequence


if TYPE_CHECKING: from ._sources import Source

# A name that the library does not know, a library or a file that is not there.
_UNKNOWN = (AttributeError, ImportError, KeyError, OSError, RuntimeError, ValueError)


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
        config = json.loads(Path(given.config).read_text()) if given.config else None
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
    from ._values import ValueNeeded

    try: source = _source(given)
    except _UNKNOWN as error:
        print(_line(error), file=sys.stderr)
        return 2
    try:
        program = source.record(given.name)
    except ValueNeeded as error:
        print(error, file=sys.stderr)
        return 2
    program.save(given.output)
    for name, symbol in program.to_dict()["symbols"].items():
        if symbol.get("fixed"): print(f"{name} is fixed at {symbol['default']}: {symbol['reason']}", file=sys.stderr)
    return 0


if __name__ == "__main__": sys.exit(main())
