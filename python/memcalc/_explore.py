"""explore(): a run's options as controls in a notebook; the answer follows them."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import _core
from ._estimate import ASSUMED_GPU, estimate, gpus
from ._model import Model

if TYPE_CHECKING:
    import ipywidgets

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
_RANKS = (0, 8, 16, 32, 64, 128)
_CHOICES = {
    "precision": ("fp32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"),
    "optimizer": ("adamw", "adamw-fused", "adamw-8bit", "paged-adamw-8bit", "adafactor", "sgd", "lion"),
    "checkpointing": ("none", "full", "selective"),
    "quantize": ("none", "int8", "nf4", "nf4-double"),
}
_LONG = {"bs": "batch_size", "seq": "sequence_length"}


def explore(model: str | os.PathLike[str] | Model, *, gpu: str | None = None, **options: Any) -> ipywidgets.VBox:
    """Sliders and menus for a run in a notebook; the report with the memory curve of a step follows them. Keywords are
    those of `memcalc.estimate`: they say where the controls begin, and what has no control stays as given. Needs
    ipywidgets. Raises as `estimate` for what no control can mend."""
    import ipywidgets

    options = {_LONG.get(name, name): value for name, value in options.items()}
    begin = estimate(model, gpu=gpu, **options).to_dict()["run"]
    controls: dict[str, Any] = {"batch_size": _slider("batch", _BATCHES, begin.get("batch_size", 1))}
    if begin.get("sequence_length"):
        controls["sequence_length"] = _slider("length", _LENGTHS, begin["sequence_length"])
    controls["precision"] = _menu("precision", options.pop("precision", None), _of_flags(options))
    for name in ("optimizer", "checkpointing", "quantize"): controls[name] = _menu(name, options.pop(name, None))
    controls["lora"] = _slider("LoRA rank", _RANKS, options.pop("lora", None) or 0)
    cards = [device["name"] for device in gpus()]
    controls["gpu"] = ipywidgets.Dropdown(description="card", options=cards, value=gpu if gpu in cards else ASSUMED_GPU)
    for name in controls: options.pop(name, None)

    shown = ipywidgets.Output()

    def answer(*_: Any) -> None:
        chosen = {name: control.value for name, control in controls.items()}
        said = {name: value for name, value in chosen.items() if value not in (None, 0, "none", "")}
        with shown:
            from IPython.display import HTML, display

            shown.clear_output(wait=True)
            try:
                display(estimate(model, **options, **said))
            except _core.Error as error:
                import html

                display(HTML(f'<p style="color:#b3261e">{html.escape(str(error))}</p>'))

    for control in controls.values(): control.observe(answer, names="value")
    answer()
    half = (len(controls) + 1) // 2
    columns = [ipywidgets.VBox(list(controls.values())[:half]), ipywidgets.VBox(list(controls.values())[half:])]
    return ipywidgets.VBox([ipywidgets.HBox(columns), shown])


def _of_flags(options: dict[str, Any]) -> str | None:
    """The precision that fp16=True or bf16=True stands for, which then goes."""
    flags = {name: options.pop(name, None) for name in ("fp16", "bf16")}
    return next((f"amp-{name}" for name, on in flags.items() if on), None)


def _slider(label: str, values: tuple[int, ...], begin: int) -> Any:
    import ipywidgets

    return ipywidgets.SelectionSlider(description=label, options=sorted({*values, begin}), value=begin,
                                      continuous_update=True)


def _menu(name: str, *given: str | None) -> Any:
    import ipywidgets

    value = next((each for each in given if each is not None), None)
    values = _CHOICES[name] if value is None or value in _CHOICES[name] else (value, *_CHOICES[name])
    first = () if "none" in values else ("",)
    return ipywidgets.Dropdown(description=name, options=(*first, *values), value=value or (first or ("none",))[0])
