"""`python -m memcalc.measure --model gpt2 --bs 4 …`: options of `memcalc estimate`, and --row FILE.

`python -m memcalc.measure --host FILE`, without a model: how fast this machine issues operators, for `--host FILE` of an estimate.
"""
from __future__ import annotations

import argparse
import sys
from typing import Any

from .. import _core
from .._specs import spec_directory
from . import measure
from ._host import write_host


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m memcalc.measure", description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--gpu")
    parser.add_argument("--row", metavar="FILE", help="append the measured row to FILE (JSON lines)")
    for name, flag, kind, description in _core.option_table():
        help_text = description.replace("%", "%%")
        if kind == "bool":
            parser.add_argument(flag, dest=name, action="store_const", const=True, help=help_text)
        elif kind == "Sequence[str]":
            parser.add_argument(flag, dest=name, type=lambda text: text.split(","), metavar="LIST", help=help_text)
        else:
            number: Any = {"int": int, "float": float}.get(kind, str)
            parser.add_argument(flag, dest=name, type=number, metavar="X", help=help_text)
    return parser


def _host(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m memcalc.measure", allow_abbrev=False)
    parser.add_argument("--host", metavar="FILE", required=True)
    path = parser.parse_args(words).host
    try:
        print(write_host(path, spec_directory()))
    except (RuntimeError, OSError, ImportError) as error:
        print(f"memcalc: error: {error}", file=sys.stderr)
        return 2
    return 0


def main() -> int:
    if "--host" in sys.argv and "--model" not in sys.argv: return _host(sys.argv[1:])
    arguments = {name: value for name, value in vars(_parser().parse_args()).items() if value is not None}
    try:
        print(measure(arguments.pop("model"), **arguments))
    except _core.Error as error:
        print(f"memcalc: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
