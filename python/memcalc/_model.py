"""Model: an architecture, by name, by its config, or of a module that exists."""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple

from . import _core
from ._errors import error
from ._module import ANY_CARD, _plain, known_family
from ._specs import device_spec, model_spec, registry, spec_directory

if TYPE_CHECKING:
    import torch

class Parameter(NamedTuple):
    """A parameter as the framework names it: `dtype` is what the module holds ("float32"), `shape` outermost first."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool


def reference_of(model: object) -> str:
    """A name or a path. Whoever gives something else is told how to make a Model of it."""
    if isinstance(model, (str, os.PathLike)): return os.fspath(model)
    raise error(_core.UsageError, "model", f"expected a name, a path or a Model, found {type(model).__name__}; "
                "Model.from_config(…) takes a configuration, Model.from_module(…) a module")


class Model:
    """A model's architecture. `Model("llama-3-8b", layers=8)`: a registry name, a hub id, a config.json, a directory
    with one or weights beside one; the keywords change its sizes (`layers`, `hidden`, `heads`, `kv_heads`, `head_dim`,
    `ffn`, `vocab`, `max_positions`, `tie`).

    Raises `UsageError` for an unknown name, with the nearest one, `InputError` for a file that is none.
    """

    def __init__(self, reference: str | os.PathLike[str], **sizes: int | bool) -> None:
        self._spec: _core.ModelSpec = model_spec(reference_of(reference), dict(sizes))
        self._options: dict[str, Any] = {}
        self._config = None if sizes else _config_of(os.fspath(reference), self._spec.name)

    @classmethod
    def _of(cls, spec: _core.ModelSpec, config: dict[str, Any] | None = None) -> Model:
        model = cls.__new__(cls)
        model._spec = spec
        model._config = config
        model._options = {}
        return model

    @classmethod
    def of_family(cls, family: str, **sizes: int | bool) -> Model:
        """A family alone ("llama", "gpt2", …): transformers' defaults for the sizes that are not given."""
        if not isinstance(family, str):
            raise error(_core.UsageError, "family", f"expected a name, found {type(family).__name__}")
        return cls._of(_core.model_of_family(family, dict(sizes)))

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | Any, name: str | None = None) -> Model:
        """From what a config.json holds: a dict (with `model_type`), or a `PretrainedConfig` of transformers (whatever
        has `to_dict()`). The dict may also be a model file of ours (docs/specs.md).

        Raises `UnsupportedError` for a family that is not modelled, `InputError` for a wrong value, `UsageError` for what
        is no configuration.
        """
        if not isinstance(config, Mapping) and not hasattr(config, "to_dict"):
            raise error(_core.UsageError, "config", f"expected a dict or what has to_dict(), found {type(config).__name__}")
        values = config if isinstance(config, Mapping) else config.to_dict()
        names = (name, values.get("_name_or_path"), values.get("name"), values.get("model_type"))
        named = next((each for each in names if each and isinstance(each, str)), "config")
        try:
            text = json.dumps(dict(values), default=_plain)
        except (TypeError, ValueError, RecursionError) as failed:  # it holds itself
            raise error(_core.InputError, "config", f"it cannot be written as JSON: {failed}") from None
        return cls._of(_core.model_from_json(text, named), _config_in(json.loads(text)))

    @classmethod
    def from_program(cls, path: str | os.PathLike[str]) -> Model:
        """From a program that `memcalc.record` wrote, *.json or *.json.gz (docs/programs.md)."""
        return cls._of(model_spec(os.fspath(path), {}))

    @classmethod
    def from_module(cls, module: torch.nn.Module, example_inputs: Any = None, *,
                    loss: Callable[[Any], torch.Tensor] | None = None, policies: Mapping[str, Any] | None = None,
                    symbols: Mapping[str, Any] | None = None, recorded: bool = False,
                    precision: str | None = None) -> Model:
        """From a real `nn.Module` (needs PyTorch), on whatever device it is, the meta device included.

        A model of transformers or torchvision whose family memcalc knows, and whose parameters are exactly the
        family's, is that family. Any other module (or with `recorded=True`) is recorded as a program, without a card
        and without its weights: `example_inputs` is then a micro-batch, a tensor, a tuple or a dict of keywords; `loss`
        makes a scalar of the module's output where that is none and has no `.loss`; `policies` answers values that the
        module looks at, `symbols` says which dimensions are free (docs/programs.md). Every option of `estimate` applies
        either way; the batch is that of the example where none is asked for, the precision `precision`.

        Raises `UnsupportedError` for a module that cannot be recorded, with the line of its code and what would help.
        """
        known = None if recorded else known_family(module)
        if known is not None:
            spec, options, config = known
            return cls._asked(cls._of(spec, config), options, precision)
        if example_inputs is None:
            raise error(_core.UsageError, "example_inputs", "no family has this module's parameters; give a micro-batch, "
                                                             "so that it can be recorded")
        from .record import record

        try:
            program = record(module, example_inputs, loss=loss, policies=policies, symbols=symbols)
        except (AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError) as failed:
            reason = str(failed).split("\n", 1)[0]
            raise error(_core.UnsupportedError, "module", f"it cannot be recorded: {reason}") from failed
        return cls._asked(cls._of(_core.model_from_json(program.to_json(), type(module).__name__)), {}, precision)

    @classmethod
    def _asked(cls, model: Model, options: dict[str, Any], precision: str | None) -> Model:
        """The model with options that hold where `estimate` is not asked for others."""
        model._options = {**options, "precision": precision} if precision is not None else options
        return model

    @property
    def is_program(self) -> bool:
        """Recorded (docs/programs.md), by `from_module` or before; else a family."""
        return self._spec.is_program

    @property
    def is_traced(self) -> bool:
        """False: the older name of what `from_module` made before it recorded programs, whose batch, precision and loop
        were those of the trace. A program's stay free (`is_program`)."""
        return False

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def model_type(self) -> str:
        """As in config.json: "bert", "llama", …; "torchvision", "layers" for a user's own, "program"."""
        return self._spec.model_type

    @property
    def source(self) -> str:
        """Where the values come from."""
        return self._spec.source

    @property
    def assumptions(self) -> list[str]:
        """Every value that was not given, a sentence each."""
        return self._spec.assumptions

    @property
    def config(self) -> dict[str, Any] | None:
        """The config.json that it was made from; None for a model of layers or where sizes were changed."""
        return self._config

    def parameters(self, **options: Any) -> list[Parameter]:
        """Every parameter in the order of `named_parameters()`. Options as of `memcalc.estimate`: the task decides the
        head, `lora` adds adapters, `precision` sets the dtype."""
        question = _core.Question(self._spec, device_spec(ANY_CARD), {**self._options, **options}, False,
                                  registry())
        return [Parameter(*row) for row in question.parameters()]

    def __copy__(self) -> Model:
        return self

    def __deepcopy__(self, _memo: object) -> Model:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a memcalc.Model cannot be pickled; what it was made of can: a name, or a configuration (config)")

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
