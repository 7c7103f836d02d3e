"""Model: an architecture, by name, by its config, or of a module that exists."""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple

from . import _core
from ._module import ANY_CARD, _plain, known_family
from ._specs import device_spec, model_spec, spec_directory

if TYPE_CHECKING:
    import torch

class Parameter(NamedTuple):
    """A parameter as the framework names it: `dtype` is what the module holds ("float32"), `shape` outermost first."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool


class Model:
    """A model's architecture. `Model("llama-3-8b", layers=8)`: a registry name, a hub id, a config.json, a directory
    with one or weights beside one; the keywords change its sizes (`layers`, `hidden`, `heads`, `kv_heads`, `head_dim`,
    `ffn`, `vocab`, `max_positions`, `tie`).

    Raises `UsageError` for an unknown name, with the nearest one, `InputError` for a file that is none.
    """

    _parameters: list[Parameter]

    def __init__(self, reference: str | os.PathLike[str], **sizes: int | bool) -> None:
        self._spec: _core.ModelSpec | _core.TracedStep = model_spec(os.fspath(reference), dict(sizes))
        self._options: dict[str, Any] = {}
        self._config = None if sizes else _config_of(os.fspath(reference), self._spec.name)

    @classmethod
    def _of(cls, spec: _core.ModelSpec | _core.TracedStep, config: dict[str, Any] | None = None) -> Model:
        model = cls.__new__(cls)
        model._spec = spec
        model._config = config
        model._options = {}
        return model

    @classmethod
    def of_family(cls, family: str, **sizes: int | bool) -> Model:
        """A family alone ("llama", "gpt2", …): transformers' defaults for the sizes that are not given."""
        return cls._of(_core.model_of_family(family, dict(sizes)))

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | Any, name: str | None = None) -> Model:
        """From what a config.json holds: a dict (with `model_type`), or a `PretrainedConfig` of transformers (whatever
        has `to_dict()`). The dict may also be a model file of ours (docs/specs.md).

        Raises `UnsupportedError` for a family that is not modelled, `InputError` for a wrong value.
        """
        values = config if isinstance(config, Mapping) else config.to_dict()
        named = name or values.get("_name_or_path") or values.get("name") or values.get("model_type") or "config"
        text = json.dumps(dict(values), default=_plain)
        return cls._of(_core.model_from_json(text, str(named)), _config_in(json.loads(text)))

    @classmethod
    def from_module(cls, module: torch.nn.Module, example_inputs: Any = None, *, precision: str = "fp32",
                    loss: Callable[[Any], torch.Tensor] | None = None, traced: bool = False) -> Model:
        """From a real `nn.Module` (needs PyTorch), on whatever device it is, the meta device included; it is not run.

        A model of transformers or torchvision whose family memcalc knows, and whose parameters are exactly the
        family's, is that family: every option of `estimate` applies. Any other module (or with `traced=True`) is
        traced: a copy of it runs forward and backward on the meta device, and its operators, sizes and lifetimes are
        taken as PyTorch shows them. `example_inputs` is then a micro-batch: a tensor, a tuple or a dict of keywords;
        `precision` is that of `estimate`; `loss` makes a scalar of the module's output where that is none and has no
        `.loss` (by default cross entropy over an output of two dimensions). Such a model runs in a plain loop at that
        batch and precision; optimizer, accumulation, clipping and `expandable` stay free.

        Parameters are exact either way. Of a traced module what happens inside an operator is not seen: scratch
        memory, cuDNN's workspaces. Raises `UnsupportedError` for a module that cannot run without data.
        """
        known = None if traced else known_family(module)
        if known is not None:
            spec, options, config = known
            model = cls._of(spec, config)
            model._options = options
            return model
        if example_inputs is None:
            raise _error(_core.UsageError, "example_inputs", "no family has this module's parameters; give a micro-batch, "
                                                             "so that it can be traced")
        from . import _traced

        try:
            recorded = _traced.trace(module, example_inputs, precision=precision, loss=loss)
        except (NotImplementedError, RuntimeError, TypeError) as failed:
            reason = str(failed).split("\n", 1)[0]
            raise _error(_core.UnsupportedError, "module", f"it does not run on the meta device: {reason}") from failed
        model = cls._of(_core.TracedStep(type(module).__name__, precision, recorded))
        model._parameters = [Parameter(*row) for row in recorded.parameters]
        return model

    @property
    def is_traced(self) -> bool:
        """Made by `from_module` from a module of no known family."""
        return isinstance(self._spec, _core.TracedStep)

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def model_type(self) -> str:
        """As in config.json: "bert", "llama", …; "torchvision", "layers" for a user's own, "traced"."""
        return self._spec.model_type if isinstance(self._spec, _core.ModelSpec) else "traced"

    @property
    def source(self) -> str:
        """Where the values come from."""
        return self._spec.source if isinstance(self._spec, _core.ModelSpec) else "operators of the module"

    @property
    def assumptions(self) -> list[str]:
        """Every value that was not given, a sentence each."""
        return self._spec.assumptions if isinstance(self._spec, _core.ModelSpec) else []

    @property
    def config(self) -> dict[str, Any] | None:
        """The config.json that it was made from; None for a model of layers or where sizes were changed."""
        return self._config

    def parameters(self, **options: Any) -> list[Parameter]:
        """Every parameter in the order of `named_parameters()`. Options as of `memcalc.estimate`: the task decides the
        head, `lora` adds adapters, `precision` sets the dtype."""
        if isinstance(self._spec, _core.TracedStep): return list(self._parameters)
        question = _core.Question(self._spec, device_spec(ANY_CARD), {**self._options, **options}, False)
        return [Parameter(*row) for row in question.parameters()]

    def __repr__(self) -> str:
        return f"<memcalc.Model {self.name!r} ({self.model_type})>"


def _config_in(values: dict[str, Any]) -> dict[str, Any] | None:
    """Of a config.json or of a model file of ours."""
    config = values.get("config", values)
    return config if isinstance(config, dict) and "model_type" in config else None


def _config_of(reference: str, name: str) -> dict[str, Any] | None:
    candidates = [Path(spec_directory(), "models", name + ".json"), Path(reference), Path(reference, "config.json")]
    for path in candidates:
        if path.suffix == ".json" and path.is_file(): return _config_in(json.loads(path.read_text()))
    return None


def _error(kind: type[_core.Error], part: str, message: str) -> _core.Error:
    error = kind(f"{part}: {message}")
    error.part = part
    return error
