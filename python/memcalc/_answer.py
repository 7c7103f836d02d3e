"""Answer: what a command of the planner says, as values, a dict, a frame, a page of a notebook, or a figure."""
from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Callable

from ._report import _COLORS, _axes, _size

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas

_FITS, _FITS_NOT = "#55a868", "#c44e52"
# The one value that a command is asked for, by the place of it in the record.
_VALUE_OF = {"max-batch": "largest", "max-seq": "largest", "max-model": "model"}


class Answer:
    """What a command of the planner says: a headline, facts, a table, notes. Sizes are bytes, times seconds. `str(answer)`
    is the text of the command line, `to_dict()` its JSON (docs/answer.schema.json), `answer["needed_bytes"]` a fact of
    it or the values of a column."""

    def __init__(self, record: dict[str, Any], positive: bool, text: Callable[[], str]) -> None:
        self._record = record
        self._positive = positive
        self._ask_for_text = text
        self._text: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_text": str(self), "_ask_for_text": None}  # a pickle has the text

    @property
    def command(self) -> str:
        """"max-batch", "max-seq", "max-model", "sweep", "compare", "ladder" or "plan"."""
        return str(self._record["command"])

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        return str(self._record["answer"])

    @property
    def positive(self) -> bool:
        """False where nothing that was looked for fits (exit status 1 of the command line)."""
        return self._positive

    @property
    def value(self) -> Any:
        """What was asked for: the largest batch or sequence that runs (int; 0: none), the name of the largest model, the
        options of the fastest plan (str, as on the command line), the cheapest command of the ladder (the run's own where
        it fits); None where nothing fits, and of what is a table: `sweep`, `compare`, several values."""
        if self.command in _VALUE_OF: return self.facts.get(_VALUE_OF[self.command])
        if not self._positive: return None
        if self.command == "plan": return self.rows[0]["options"] if self.rows else None
        if self.command == "ladder": return (self.remedies or self.rows)[0]["command"]
        return None

    @property
    def facts(self) -> dict[str, Any]:
        """Of the answer as a whole, by their keys in the JSON."""
        return dict(self._record["facts"])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table, a dict per row; what is not known or does not apply is not in it."""
        return [dict(row) for row in self._record["rows"]]

    @property
    def notes(self) -> list[str]:
        """What a reader has to know about the answer."""
        return list(self._record["notes"])

    @property
    def assumptions(self) -> list[str]:
        """Every default that shapes the answer, a sentence each."""
        return list(self._record["assumptions"])

    @property
    def remedies(self) -> list[dict[str, Any]]:
        """Of `ladder`: up to three ways to make the run fit, the cheapest first: `techniques`, `price`, `command`,
        `needed_bytes`. Where nothing fits, the one that needs least."""
        return [dict(remedy) for remedy in self._record.get("remedies", [])]

    @property
    def settings(self) -> str | None:
        """Of `plan` with `emit`: what to copy."""
        return self._record.get("settings")

    def to_dict(self) -> dict[str, Any]:
        """The record that `--format json` prints."""
        return dict(self._record)

    def to_frame(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.rows)

    def plot(self, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """The table as a figure (matplotlib), in GiB: of `sweep` the categories at the peak, stacked, a bar a point; of
        one `max_batch` or `max_seq` the memory over what was tried, below the card's; of several the largest of each; of
        the others what each row needs, green where it fits."""
        axes = _axes(ax)
        rows = self.rows
        if self.command == "sweep": _stacked(axes, rows)
        elif "largest" in self.facts: _searched(axes, rows, self.facts)
        elif rows and "largest" in rows[0]: _bars(axes, rows, "largest", 1)
        else: _bars(axes, rows, "needed_bytes", 2**30)
        axes.set_title(self.headline if len(self.headline) < 80 else self.command, fontsize="medium")
        return axes

    def __getitem__(self, key: str) -> Any:
        if key in self._record["facts"]: return self._record["facts"][key]
        if any(key in row for row in self._record["rows"]): return [row.get(key) for row in self._record["rows"]]
        return self._record[key]

    def __str__(self) -> str:
        if self._text is None: self._text = self._ask_for_text().rstrip("\n")
        return self._text

    def __repr__(self) -> str:
        return f"<memcalc.Answer {self.command}: {self.headline}>"

    def _repr_html_(self) -> str:
        """The headline and the table; a bar behind what each row needs."""
        rows = self.rows
        keys = list(dict.fromkeys(key for row in rows for key in row))
        head = "".join(f"<th>{html.escape(_heading(key))}</th>" for key in keys)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(_cell(key, row.get(key)))}</td>" for key in keys) + "</tr>"
                       for row in rows)
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return (f'<table class="memcalc"><caption style="text-align:left"><b>{html.escape(self.headline)}</b></caption>'
                f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" + (f"<ul>{notes}</ul>" if notes else ""))


def _heading(key: str) -> str:
    return key.removesuffix("_bytes").removesuffix("_seconds").replace("_", " ")


def _cell(key: str, value: Any) -> str:
    """As people read it: the unit is in the key."""
    if value is None: return "-"
    if isinstance(value, bool): return "yes" if value else "no"
    if key.endswith("_bytes"): return _size(value) if value >= 0 else "-" + _size(-value)
    if key.endswith("_seconds"): return f"{value:.3g} s"
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _label(row: dict[str, Any]) -> str:
    """What sets a row apart: its words, and its numbers that are no result."""
    named = ("model", "gpu", "technique", "mode", "layout", "checkpointing")
    words = [str(row[key]) for key in named if key in row]
    if words: words += [str(row[key]) for key in ("bs", "seq", "micro_batch") if key in row]
    return " ".join(words or [str(value) for value in row.values() if isinstance(value, str)])


def _stacked(axes: matplotlib.axes.Axes, rows: list[dict[str, Any]]) -> None:
    rows = [row for row in rows if "allocated_bytes" in row]  # the others were refused
    varied = [key for key, value in rows[0].items() if isinstance(value, str)] if rows else []
    labels = [" ".join(str(row[key]) for key in varied) for row in rows]
    below = [0.0] * len(rows)
    for name, color in _COLORS.items():
        heights = [row.get(name + "_bytes", 0) / 2**30 for row in rows]
        if not any(heights): continue
        axes.bar(range(len(rows)), heights, bottom=below, color=color, label=name.replace("_", " "))
        below = [low + height for low, height in zip(below, heights)]
    axes.set_xticks(range(len(rows)), labels, rotation=90 if len(rows) > 8 else 0)
    axes.set_xlabel(" ".join(_heading(key) for key in varied))
    axes.set_ylabel("GiB at the peak")
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))  # beside the bars


def _searched(axes: matplotlib.axes.Axes, rows: list[dict[str, Any]], facts: dict[str, Any]) -> None:
    tried = next(iter(rows[0])) if rows else "value"  # "batch_size", "sequence_length"
    for key, marker in (("allocated_bytes", "."), ("reserved_bytes", "."), ("needed_bytes", "o")):
        axes.plot([row[tried] for row in rows], [row[key] / 2**30 for row in rows], marker=marker,
                  label=_heading(key), lw=0.8)
    axes.axhline(facts["memory_bytes"] / 2**30, color="#888888", ls="--", label=facts["gpu"])
    axes.axvline(facts["largest"], color=_FITS, lw=0.8)
    axes.set_xlabel(tried.replace("_", " "))
    axes.set_ylabel("GiB")
    axes.legend(fontsize="small")


def _bars(axes: matplotlib.axes.Axes, rows: list[dict[str, Any]], key: str, unit: int) -> None:
    rows = [row for row in rows if key in row][::-1]  # the first row on top
    axes.barh(range(len(rows)), [row[key] / unit for row in rows],
              color=[_FITS if row.get("verdict", "fits") == "fits" else _FITS_NOT for row in rows])
    axes.set_yticks(range(len(rows)), [_label(row) for row in rows], fontsize="small")
    memory = {row["needed_bytes"] + row["headroom_bytes"] for row in rows if "headroom_bytes" in row}
    if key == "needed_bytes" and len(memory) == 1: axes.axvline(memory.pop() / unit, color="#888888", ls="--")
    axes.set_xlabel(_heading(key) + (" GiB" if unit > 1 else ""))
