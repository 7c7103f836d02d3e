"""Training runs of a repository that have to fit their cards: for a test or a check of pull requests.

    python -m memcalc.runs memcalc-runs.txt

Each line of the file is a run, as it stands behind `memcalc` on the command line (docs/cli.md); lines that begin with
`#` and empty ones are skipped:

    --config train/axolotl.yml --gpu rtx-4090
    --model gpt2-xl --bs 4 --bf16 --gpu a100-sxm4-40gb

Exit status 1 where one of them does not fit, or is too close to call; 2 where one is wrong. Where GITHUB_STEP_SUMMARY
names a file, the table goes there as well. `memcalc.pytest_plugin` makes tests of the same lines.
"""
from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

from ._core import Error, UsageError
from ._executable import run
from ._report import _size

__all__ = ["Outcome", "check", "lines_of"]


@dataclass(frozen=True)
class Outcome:
    """What became of one run. Sizes are bytes."""

    line: str
    verdict: str  # "fits", "too-close", "does-not-fit"; "wrong": the line is no run that memcalc answers
    needed_bytes: int | None = None
    card: str = ""
    card_bytes: int | None = None
    message: str = ""  # one sentence: what is wrong, or what would make it fit

    @property
    def fits(self) -> bool:
        return self.verdict == "fits"


def lines_of(text: str) -> list[str]:
    """The runs of a file's text."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def check(line: str) -> Outcome:
    """One run; never raises for what the line says."""
    try:
        words = shlex.split(line)
        if words[:1] == ["memcalc"]: words = words[1:]
        if not any(word == "--gpu" or word.startswith("--gpu=") for word in words):
            raise UsageError("expected a card to fit: --gpu NAME")
        # What stands behind `--` is another program's command line.
        end = words.index("--") if "--" in words else len(words)
        printed, _ = run([*words[:end], "--format", "json", *words[end:]])
        return _outcome(line, json.loads(printed))
    except (Error, ValueError) as error:
        return Outcome(line, "wrong", message=str(error))


def _outcome(line: str, record: dict[str, Any]) -> Outcome:
    remedies = record.get("remedies") or []
    message = f"this does: {remedies[0]['command']}" if remedies and remedies[0]["verdict"] == "fits" else ""
    device = record["device"]
    return Outcome(line, record["verdict"], record.get("needed_bytes"), device["name"], device.get("memory_bytes"), message)


_MARKS = {"fits": "fits", "too-close": "too close to call", "does-not-fit": "does **not** fit", "wrong": "wrong"}


def _table(outcomes: Sequence[Outcome]) -> str:
    """In Markdown, a row a run."""
    rows = ["| run | | needs | card |", "| --- | --- | ---: | --- |"]
    for each in outcomes:
        needs = "" if each.needed_bytes is None else _size(each.needed_bytes)
        card = "" if each.card_bytes is None else f"{each.card}, {_size(each.card_bytes)}"
        message = f"; {each.message}" if each.message else ""
        cells = [f"`{each.line}`", _MARKS[each.verdict] + message, needs, card]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m memcalc.runs FILE", file=sys.stderr)
        return 2
    try:
        text = Path(arguments[0]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        print(f"memcalc.runs: error: {arguments[0]}: {error}", file=sys.stderr)
        return 2
    outcomes = [check(line) for line in lines_of(text)]
    if not outcomes:
        print(f"memcalc.runs: error: {arguments[0]}: expected a run a line, found none", file=sys.stderr)
        return 2
    print(_table(outcomes), end="")
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with open(summary, "a", encoding="utf-8") as file:
            file.write(_table(outcomes))
    if any(each.verdict == "wrong" for each in outcomes): return 2
    return 0 if all(each.fits for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
