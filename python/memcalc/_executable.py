"""The executable that the package carries, in a process of its own: other threads keep running meanwhile."""
from __future__ import annotations

import codecs
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Sequence

from . import _core
from ._specs import spec_directory

EXECUTABLE = Path(__file__).parent / "bin" / "memcalc"
_END_OF_BAR = "\x1b[K"  # the progress bar is one line, written over and over


def run(words: Sequence[str]) -> tuple[str, bool]:
    """What it prints, and whether it answers "yes" (exit status 0, not 1). A long search draws its bar in a notebook and
    in a terminal. Raises `UsageError` for wrong input."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MEMCALC_SPEC_PATH": spec_directory()}
    if _somebody_watches(): environment["MEMCALC_PROGRESS"] = "1"
    with subprocess.Popen([str(EXECUTABLE), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        said: list[str] = []
        reader = threading.Thread(target=_hand_on, args=(process.stderr, said), daemon=True)
        reader.start()
        try:
            printed = process.stdout.read().decode("utf-8")
        except BaseException:
            process.kill()
            raise
        reader.join()
    if process.returncode in (0, 1) and printed: return printed, process.returncode == 0
    message = "".join(said).strip().removeprefix("memcalc: error: ")
    error = (_core.UsageError if process.returncode == 2 else _core.InternalError)(message)
    start = message.split(":", 1)[0]
    error.part = start[2:].replace("-", "_") if start.startswith("--") else None
    raise error


def _somebody_watches() -> bool:
    if os.environ.get("MEMCALC_PROGRESS") == "0": return False
    return "ipykernel" in sys.modules or sys.stderr.isatty()


def _hand_on(stderr: IO[bytes], said: list[str]) -> None:
    """Writes what belongs to the bar to this process's stderr; what else was said goes to `said`."""
    bar = ""
    text = codecs.getreader("utf-8")(stderr)
    while character := text.read(1, 1):
        if not bar and character != "\r":
            said.append(character)
            continue
        bar += character
        if bar.endswith(_END_OF_BAR):
            sys.stderr.write(bar)
            sys.stderr.flush()
            bar = ""
