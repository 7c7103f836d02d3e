"""The planner's commands (docs/cli.md) as functions: the package's executable answers."""
from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Union

from . import _core
from ._answer import Answer
from ._errors import error
from ._executable import run
from ._model import Model

_FLAGS = {keyword: flag for name, flag, _, _ in _core.option_table()
          for keyword in (name, flag[2:].replace("-", "_"))}
_NEGATED = {"tie": "--no-tie", "prepare_kbit": "--no-prepare-kbit"}
OneOrMore = Union[str, "os.PathLike[str]", Model, Iterable[Union[str, "os.PathLike[str]", Model]]]


def _is_several(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, os.PathLike, dict))


def _words(value: Any) -> list[str]:
    values = value if _is_several(value) else [value]
    return [os.fspath(each) if isinstance(each, os.PathLike) else str(each) for each in values]


def arguments_of(options: dict[str, Any]) -> list[str]:
    """The words of the command line that the keywords stand for. A list is several values."""
    words: list[str] = []
    for keyword, value in options.items():
        if value is None: continue
        if hasattr(value, "tolist"): value = value.tolist()  # of NumPy or pandas
        flag = _FLAGS.get(keyword, "--" + keyword.replace("_", "-"))
        if value is True: words.append(flag)
        elif value is False:
            if keyword in _NEGATED: words.append(_NEGATED[keyword])
        else: words += [flag, ",".join(_words(value))]
    return words


def _named(models: Any, folder: str) -> list[Any]:
    """Names and paths; a Model becomes a file in `folder`."""
    named: list[Any] = list(models) if _is_several(models) else [models]
    for i, each in enumerate(named):
        if not isinstance(each, Model): continue
        if each.config is None:
            raise error(_core.UsageError, "model", "the planner takes names, files, and models of a configuration")
        path = Path(folder, f"{Path(each.name).name}-{i}.json")
        path.write_text(json.dumps(each.config))
        named[i] = path
    return named


def _kept(value: Any) -> Any:
    """The values of an iterator, which gives them once, as a list: an answer asks twice."""
    return list(value) if isinstance(value, Iterator) else value


def _ask(command: str, options: dict[str, Any], model: Any = None) -> Answer:
    model, options = _kept(model), {keyword: _kept(value) for keyword, value in options.items()}

    def answered(*form: str) -> tuple[str, bool]:
        with tempfile.TemporaryDirectory() as folder:
            of_model = {} if model is None else {"model": _named(model, folder)}
            return run([command, *arguments_of({**of_model, **options}), *form])

    record, positive = answered("--format", "json")
    return Answer(json.loads(record), positive, lambda: answered()[0])


def max_batch(model: OneOrMore, *, gpu: Any = None, **options: Any) -> Answer:
    """The largest batch (sequences per micro-batch) that fits on a card: `Answer.value`. Keywords are those of
    `memcalc.estimate` and of `memcalc max-batch` (`margin` in GiB, `multiple_of`, …); a list of models, cards or values
    asks for every combination, a row each. Raises as `estimate`."""
    return _ask("max-batch", {"gpu": gpu, **options}, model)


def max_seq(model: OneOrMore, *, gpu: Any = None, **options: Any) -> Answer:
    """The longest sequence, in tokens, that fits on a card; otherwise as `max_batch`."""
    return _ask("max-seq", {"gpu": gpu, **options}, model)


def max_model(family: str, *, gpu: Any = None, **options: Any) -> Answer:
    """The largest model of a family ("llama", or "all") that fits on a card: `Answer.value` is its name, None where none
    fits. Keywords are those of `memcalc.estimate`. Raises as `estimate`."""
    return _ask("max-model", {"family": family, "gpu": gpu, **options})


def sweep(model: OneOrMore, *, gpu: Any = None, **options: Any) -> Answer:
    """Memory over the values of some options: lists are varied, a row a point. Raises as `estimate`."""
    return _ask("sweep", {"gpu": gpu, **options}, model)


def compare(model: OneOrMore, *, gpu: Any = None, **options: Any) -> Answer:
    """Models on cards, side by side: does it fit, with how much room, how fast, at which `price` (dollars per GPU and
    hour). Raises as `estimate`."""
    return _ask("compare", {"gpu": gpu, **options}, model)


def ladder(model: OneOrMore, *, gpu: Any = None, all: bool = False, **options: Any) -> Answer:
    """From the run as asked, technique by technique, to the first that fits (`all`: beyond it, too): a row a technique
    with what it needs and costs. `Answer.remedies` are the cheapest ways to make it fit, `Answer.value` the command of
    the first. Raises as `estimate`."""
    return _ask("ladder", {"gpu": gpu, "all": all, **options}, model)


def plan(model: OneOrMore, *, gpus: int, global_batch: int, gpu: Any = None, **options: Any) -> Answer:
    """How to spread a training over `gpus` cards with `global_batch` sequences per optimizer step: the rows that no other
    beats in both speed and memory, the fastest first; `Answer.value` is its options. Keywords are those of
    `memcalc.estimate` but for what is looked for, and those of `memcalc plan` (`simulate`, `margin` in GiB, `emit`:
    "torchrun", "deepspeed", "megatron" or "trainer", then in `Answer.settings`). Raises as `estimate`."""
    return _ask("plan", {"gpu": gpu, "gpus": gpus, "global_batch": global_batch, **options}, model)
