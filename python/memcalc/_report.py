"""Report: what an estimate answers, as attributes, a dict, a frame, a page of a notebook, or a figure."""
from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

from . import _core
from ._errors import error

if TYPE_CHECKING:
    import matplotlib.axes
    import numpy as np
    import pandas

_COLORS = {
    "weights": "#4c72b0", "autocast_copies": "#7a9bd1", "gathered_weights": "#64b5cd", "gradients": "#dd8452",
    "optimizer_states": "#c44e52", "activations": "#55a868", "kv_cache": "#ccb974", "temporaries": "#8c8c8c",
    "inputs": "#937860", "workspaces": "#8172b3", "communication": "#da8bc3", "allocator_slack": "#cccccc",
}


def _size(count: int) -> str:
    """As the text report writes it: three figures, binary units."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024: return f"{value:.0f} B" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.0f} GiB" if value >= 1000 else f"{value:.3g} GiB"

_VERDICTS = {"fits": "fits on", "too-close": "is too close to call on", "does-not-fit": "does not fit on"}


class Report:
    """The answer to one question. Sizes are bytes. `str(report)` is the text of the command line, `to_dict()` its JSON
    (docs/report.schema.json), which holds everything; the attributes are what is asked most."""

    def __init__(self, core: _core.Report, question: _core.Question) -> None:
        self._core = core
        self._question = question
        self._dict: dict[str, Any] | None = None

    @property
    def peak_allocated_bytes(self) -> int:
        """`torch.cuda.max_memory_allocated()`."""
        return self._core.peak_allocated_bytes

    @property
    def peak_reserved_bytes(self) -> int:
        """`torch.cuda.max_memory_reserved()`."""
        return self._core.peak_reserved_bytes

    @property
    def device_used_bytes(self) -> int | None:
        """What nvidia-smi adds: reserved, the CUDA context and kernels. None where the card's context is not known."""
        return self._core.device_used_bytes

    @property
    def exact_lower_bound_bytes(self) -> int:
        """The requests alone: no allocator can do with less."""
        return self._core.exact_lower_bound_bytes

    @property
    def fits(self) -> bool:
        """On the card that was named (or assumed), beyond the error of such predictions."""
        return self._core.fits

    @property
    def verdict(self) -> str:
        """"fits", "too-close" (within the error of such predictions: either may happen) or "does-not-fit"."""
        return self._core.verdict

    @property
    def parameters(self) -> int:
        return self._core.parameters_total

    @property
    def trainable_parameters(self) -> int:
        return self._core.parameters_trainable

    @property
    def categories(self) -> dict[str, int]:
        """What fills the memory at the peak; the values sum to `peak_allocated_bytes` (docs/categories.md)."""
        return dict(self._values()["memory"]["categories"])

    @property
    def phases(self) -> dict[str, int]:
        """The largest `allocated` within forward, backward, optimizer."""
        return {name: phase["peak_bytes"] for name, phase in self._values()["memory"]["phases"].items()}

    @property
    def flops(self) -> float:
        """Of one optimizer step, recomputation and optimizer included."""
        return float(self._values()["flops"]["total"])

    @property
    def step_seconds(self) -> float | None:
        """Of one optimizer step in the steady state, or of one call of a model that does not train; None where the card's
        rates are not known (docs/time.md)."""
        return self._of_time("step_seconds")

    @property
    def prefill_seconds(self) -> float | None:
        """Of generate() until its first token is there; None for other runs, and as of `step_seconds`."""
        return self._of_time("prefill_seconds")

    @property
    def seconds_per_token(self) -> float | None:
        """Of generate(), each token after the first, for the whole batch; None as of `prefill_seconds`."""
        return self._of_time("seconds_per_token")

    @property
    def samples_per_second(self) -> float | None:
        """Of all GPUs together; None as of `step_seconds`."""
        return self._of_time("samples_per_second")

    @property
    def tokens_per_second(self) -> float | None:
        """Of all GPUs together; None as of `step_seconds`, and where samples are images."""
        return self._of_time("tokens_per_second")

    @property
    def mfu(self) -> float | None:
        """Share of the datasheet's FLOP/s, 0 to 1, without what checkpointing computes again; None as of `step_seconds`."""
        return self._of_time("mfu")

    @property
    def times(self) -> dict[str, float]:
        """Seconds of a step by what they go to: classes of kernels, and waits for host, network and data. They sum to
        `step_seconds`; empty where that is not known."""
        return _without_unit(self._values().get("time", {}).get("by_class", {}))

    @property
    def phase_times(self) -> dict[str, float]:
        """Seconds of forward, backward (with recomputation) and optimizer; empty where they are not known."""
        return _without_unit(self._values().get("time", {}).get("by_phase", {}))

    @property
    def training(self) -> dict[str, Any] | None:
        """The whole training, where `tokens` was given: steps, seconds, `gpu_hours`, price and energy."""
        found: dict[str, Any] | None = self._values().get("training")
        return found

    @property
    def assumptions(self) -> list[str]:
        """Every default that shapes the answer, a sentence each."""
        return self._core.assumptions

    @property
    def not_modelled(self) -> list[str]:
        return self._core.not_modelled

    @property
    def profile(self) -> str:
        """The versions whose behaviour this is: "torch 2.11.0 (CUDA 13.0, cuDNN 9.19), transformers 5.17.0"."""
        return self._core.profile

    def to_dict(self) -> dict[str, Any]:
        """The record that `--format json --explain` prints; a new dict each time."""
        return dict(json.loads(self.render("json", explain=True)))

    def render(self, format: str = "text", *, explain: bool = False, details: bool = False) -> str:
        """As text, json, csv or md. `details`: all that the text can say, not one screen of it. `explain` adds the rule of
        every term and the largest blocks at the peak."""
        if not isinstance(format, str):
            raise error(_core.UsageError, "format", f"expected one of text, json, csv, md, found {format!r}")
        return self._core.render(format, explain, details)

    def timeline(self, *, all_steps: bool = False) -> np.ndarray:
        """Every allocation and free of the last step (or of construction and all steps) as a NumPy structured array:
        `phase`, `delta_bytes` (of the block; negative: freed), `allocated_bytes`, `reserved_bytes`, `operator`."""
        import numpy

        rows = [line.split("\t") for line in self._question.trace(all_steps).splitlines() if not line.startswith("#")]
        fields = [("phase", "U12"), ("delta_bytes", "<i8"), ("allocated_bytes", "<i8"), ("reserved_bytes", "<i8"),
                  ("operator", "O")]
        return numpy.array([(phase, int(delta), int(allocated), int(reserved), operator)
                            for phase, delta, allocated, reserved, operator, *_ in rows], dtype=fields)

    def to_frame(self, what: str = "categories") -> pandas.DataFrame:
        """A pandas DataFrame of "categories" (bytes and share of the peak), "phases", "accounting" (bytes per
        parameter), "contributors" (largest blocks at the peak), "times" (seconds of a step) or "timeline"."""
        import pandas

        if what == "categories":
            frame = pandas.DataFrame({"bytes": pandas.Series(self.categories, dtype="int64")})
            return frame.assign(share=frame["bytes"] / self.peak_allocated_bytes)
        if what == "phases": return pandas.DataFrame({"peak_bytes": pandas.Series(self.phases, dtype="int64")})
        if what in ("accounting", "contributors"): return pandas.DataFrame(self._values()["memory"][what])
        if what == "times":
            return pandas.DataFrame({"seconds": pandas.Series(self.times, dtype="float64")})
        if what == "timeline": return pandas.DataFrame(self.timeline())
        raise error(_core.UsageError, "what",
                    f"expected categories, phases, accounting, contributors, times or timeline, found {what!r}")

    def plot(self, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """The categories at the peak as bars (matplotlib)."""
        axes = _axes(ax)
        shares = sorted(((n, b) for n, b in self.categories.items() if b), key=lambda share: share[1])
        axes.barh([name.replace("_", " ") for name, _ in shares], [size / 2**30 for _, size in shares],
                  color=[_COLORS.get(name, "#8c8c8c") for name, _ in shares])
        axes.set_xlabel("GiB at the peak")
        axes.set_title(f"{self._values()['model']['name']}: {_size(self.peak_allocated_bytes)} allocated")
        return axes

    def plot_timeline(self, ax: matplotlib.axes.Axes | None = None, *,
                      all_steps: bool = False) -> matplotlib.axes.Axes:
        """Allocated and reserved memory over the events of a step, phases shaded (matplotlib)."""
        axes = _axes(ax)
        events = self.timeline(all_steps=all_steps)
        axes.step(range(len(events)), events["allocated_bytes"] / 2**30, where="post", label="allocated", lw=0.8)
        axes.step(range(len(events)), events["reserved_bytes"] / 2**30, where="post", label="reserved", lw=0.8)
        start = 0
        for end in range(1, len(events) + 1):
            if end < len(events) and events["phase"][end] == events["phase"][start]: continue
            phase = str(events["phase"][start])
            color = {"forward": "#55a868", "backward": "#dd8452", "optimizer": "#c44e52"}.get(phase, "#ffffff")
            axes.axvspan(start, end, color=color, alpha=0.12, lw=0)
            if end - start > len(events) / 12: axes.text((start + end) / 2, 0, phase, ha="center", va="bottom")
            start = end
        axes.set_xlabel("allocations and frees")
        axes.set_ylabel("GiB")
        axes.set_ylim(bottom=0)
        axes.legend(loc="best")
        return axes

    def _of_time(self, key: str) -> float | None:
        value = self._values().get("time", {}).get(key)
        return None if value is None else float(value)

    def _values(self) -> dict[str, Any]:
        if self._dict is None: self._dict = self.to_dict()
        return self._dict

    def __str__(self) -> str:
        return self.render().rstrip("\n")

    def __copy__(self) -> Report:
        return self

    def __deepcopy__(self, _memo: object) -> Report:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a memcalc.Report cannot be pickled; to_dict() and the arguments of estimate() can")

    def __repr__(self) -> str:
        values = self._values()
        fits = _VERDICTS[self.verdict]
        return (f"<memcalc.Report {values['model']['name']}: {_size(self.peak_allocated_bytes)} allocated, "
                f"{_size(self.peak_reserved_bytes)} reserved, {fits} {values['device']['name']}>")

    def _repr_html_(self) -> str:
        values = self._values()
        peak = max(self.peak_allocated_bytes, 1)
        largest = max(self.categories.values())
        rows = []
        for name, size in sorted(self.categories.items(), key=lambda share: -share[1]):
            if size == 0: continue
            bar = (f'<div style="background:{_COLORS.get(name, "#8c8c8c")};height:0.9em;'
                   f'width:{100 * size / largest:.1f}%;min-width:1px"></div>')
            rows.append(f'<tr><td style="text-align:left">{html.escape(name.replace("_", " "))}</td>'
                        f"<td>{_size(size)}</td><td>{100 * size / peak:.1f} %</td>"
                        f'<td style="width:20em">{bar}</td></tr>')
        used = self.device_used_bytes
        facts = [f"{_size(self.peak_allocated_bytes)} allocated", f"{_size(self.peak_reserved_bytes)} reserved"]
        if used is not None: facts.append(f"{_size(used)} of {_size(values['device']['memory_bytes'])} in use")
        verdict = _VERDICTS[self.verdict].replace("not", "<b>not</b>")
        title = f"{html.escape(values['model']['name'])} {verdict} {html.escape(values['device']['name'])}"
        return (f'<table class="memcalc"><caption style="text-align:left"><b>{title}</b>: {", ".join(facts)}</caption>'
                f'<tbody>{"".join(rows)}</tbody></table>{self._curve()}')

    def _curve(self) -> str:
        """The curve of one step as the page draws it; nothing where there is no step."""
        curve = self._core.curve()
        if not curve: return ""
        from ._curve import curve_html

        device = self._values()["device"]
        return curve_html(curve, device.get("memory_bytes"), device["name"], f"Memory of one step of {self._values()['model']['name']}")


def _without_unit(seconds: dict[str, float]) -> dict[str, float]:
    return {key.removesuffix("_seconds"): value for key, value in seconds.items()}


def _axes(ax: matplotlib.axes.Axes | None) -> matplotlib.axes.Axes:
    if ax is not None: return ax
    from matplotlib import pyplot

    return pyplot.subplots()[1]
