"""The planner's commands (docs/cli.md) as functions: the package's executable answers, in a process of its own."""
from __future__ import annotations

import html
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable

from . import _core
from ._model import Model
from ._specs import spec_directory

if TYPE_CHECKING:
    import pandas

_FLAGS = {keyword: flag for name, flag, _, _ in _core.option_table()
          for keyword in (name, flag[2:].replace("-", "_"))}
_NEGATED = {"tie": "--no-tie", "prepare_kbit": "--no-prepare-kbit"}


class Answer:
    """What a command of the planner says: a headline, facts, a table, notes. Sizes are bytes. `str(answer)` is the text
    of the command line, `to_dict()` its JSON (docs/answer.schema.json)."""

    def __init__(self, values: dict[str, Any], text: str) -> None:
        self._values = values
        self._text = text

    def __getitem__(self, key: str) -> Any:
        """A fact by its key in the JSON: `memcalc.max_batch("gpt2")["batch_size"]`."""
        return self._values[key]

    def to_dict(self) -> dict[str, Any]:
        """The record that `--format json` prints."""
        return dict(self._values)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table, a dict per row."""
        return list(self._values.get("rows", []))

    def to_frame(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.rows)

    def __str__(self) -> str:
        return self._text.rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _words(value: Any) -> list[str]:
    values = value if isinstance(value, (list, tuple, range)) else [value]
    return [os.fspath(each) if isinstance(each, os.PathLike) else str(each) for each in values]


def arguments_of(model: Any, gpu: Any, options: dict[str, Any]) -> list[str]:
    """The words of the command line that the keywords stand for. A list is several values."""
    words = ["--model", ",".join(_words(model))]
    if gpu is not None: words += ["--gpu", ",".join(_words(gpu))]
    for keyword, value in options.items():
        if value is None: continue
        flag = _FLAGS.get(keyword, "--" + keyword.replace("_", "-"))
        if value is True: words.append(flag)
        elif value is False:
            if keyword in _NEGATED: words.append(_NEGATED[keyword])
        else: words += [flag, ",".join(_words(value))]
    return words


def _run(words: list[str]) -> str:
    executable = Path(__file__).parent / "bin" / "memcalc"
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MEMCALC_SPEC_PATH": spec_directory()}
    process = subprocess.run([executable, *words], capture_output=True, text=True, env=environment,
                             stdin=subprocess.DEVNULL)
    if process.returncode in (0, 1) and process.stdout: return process.stdout
    message = process.stderr.strip().removeprefix("memcalc: error: ")
    error = (_core.UsageError if process.returncode == 2 else _core.InternalError)(message)
    start = message.split(":", 1)[0]
    error.part = start[2:].replace("-", "_") if start.startswith("--") else None
    raise error


def ask(command: str, model: Any, gpu: Any, options: dict[str, Any]) -> Answer:
    with tempfile.TemporaryDirectory() as folder:
        models = list(model) if isinstance(model, (list, tuple)) else [model]
        for i, each in enumerate(models):
            if not isinstance(each, Model): continue
            if each.config is None or each.is_traced:
                raise _core.UsageError("model: the planner takes names, files, and models of a configuration")
            models[i] = Path(folder) / f"{each.name}-{i}.json"
            models[i].write_text(json.dumps(each.config))
        words = [command, *arguments_of(models, gpu, options)]
        record = json.loads(_run([*words, "--format", "json"]))
        return Answer(record, _run(words))


def max_batch(model: str | os.PathLike[str] | Model | Iterable[str], *, gpu: Any = None, **options: Any) -> Answer:
    """The largest batch that fits on a card. Keywords are those of `memcalc.estimate` and of `memcalc max-batch`
    (`margin`, `multiple_of`, …); a list of models, cards or values asks for every combination. Raises as `estimate`."""
    return ask("max-batch", model, gpu, options)


def max_seq(model: str | os.PathLike[str] | Model | Iterable[str], *, gpu: Any = None, **options: Any) -> Answer:
    """The longest sequence that fits on a card; otherwise as `max_batch`."""
    return ask("max-seq", model, gpu, options)


def sweep(model: str | os.PathLike[str] | Model | Iterable[str], *, gpu: Any = None, **options: Any) -> Answer:
    """Memory over the values of some options: lists are varied, a row a point. Raises as `estimate`."""
    return ask("sweep", model, gpu, options)


def compare(model: str | os.PathLike[str] | Model | Iterable[str], *, gpu: Any = None, **options: Any) -> Answer:
    """Models on cards, side by side: does it fit, with how much room. Raises as `estimate`."""
    return ask("compare", model, gpu, options)
