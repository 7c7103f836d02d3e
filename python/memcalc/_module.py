"""Which model a real `nn.Module` is: one of a known family, found by its parameters, or none of them."""
from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from . import _core
from ._specs import device_spec, model_spec, registry, spec_directory

if TYPE_CHECKING:
    import torch

ANY_CARD = "h100-sxm"  # on which parameters are listed: their shapes do not depend on it
Shapes = list[tuple[str, tuple[int, ...]]]

# transformers names its classes by what they are for.
_TASKS = (("ForSequenceClassification", "seqcls"), ("ForTokenClassification", "tokcls"), ("ForMaskedLM", "mlm"),
          ("ForQuestionAnswering", "qa"), ("ForImageClassification", "image"), ("ForSpeechSeq2Seq", "speech"),
          ("ForCausalLM", "causal"), ("LMHeadModel", "causal"))


def task_of(class_name: str, model_type: str) -> str | None:
    """`LlamaForCausalLM` is causal; None where the name does not tell."""
    for ending, task in _TASKS:
        if class_name.endswith(ending): return task
    if class_name.endswith("ForConditionalGeneration"): return "speech" if model_type == "whisper" else "seq2seq"
    return None


def parameters_of(spec: _core.ModelSpec, options: dict[str, Any]) -> Shapes:
    """Names and shapes of the family's own parameters."""
    table = _core.Question(spec, device_spec(ANY_CARD), options, False, registry()).parameters()
    return [(name, shape) for name, shape, _, _ in table]


def shapes_of(module: torch.nn.Module) -> Shapes:
    return [(name, tuple(parameter.shape)) for name, parameter in module.named_parameters()]


def _by_config(module: torch.nn.Module) -> tuple[_core.ModelSpec, dict[str, Any], dict[str, Any]] | None:
    """(spec, options, config) of a model of transformers whose family has exactly its parameters."""
    config = getattr(module, "config", None)
    if config is None or not hasattr(config, "to_dict") or not getattr(config, "model_type", ""): return None
    values = json.loads(json.dumps(config.to_dict(), default=_plain))
    options: dict[str, Any] = {}
    task = task_of(type(module).__name__, config.model_type)
    if task is None: return None
    options["task"] = task
    try:
        spec = _core.model_from_json(json.dumps(values), type(module).__name__)
        if parameters_of(spec, options) != shapes_of(module): return None
    except _core.Error:
        return None
    return spec, options, values


@functools.lru_cache(maxsize=4)
def _torchvision_shapes(directory: str) -> dict[int, list[tuple[str, Shapes]]]:
    """By the count of parameter tensors: the torchvision models of the registry and their parameters."""
    found: dict[int, list[tuple[str, Shapes]]] = {}
    for model in json.loads(registry().models())["models"]:
        if model["model_type"] != "torchvision": continue
        spec = model_spec(model["name"], {})
        shapes = parameters_of(spec, {})
        found.setdefault(len(shapes), []).append((model["name"], shapes))
    return found


def _by_shapes(module: torch.nn.Module) -> _core.ModelSpec | None:
    """One of torchvision's classifiers, which do not know their names: by class library and parameters."""
    if not type(module).__module__.startswith("torchvision."): return None
    shapes = shapes_of(module)
    for name, known in _torchvision_shapes(spec_directory()).get(len(shapes), []):
        if known == shapes: return model_spec(name, {})
    return None


def known_family(module: torch.nn.Module) -> tuple[_core.ModelSpec, dict[str, Any], dict[str, Any] | None] | None:
    """(spec, options that it implies, config); None where no family has exactly the module's parameters."""
    by_config = _by_config(module)
    if by_config is not None: return by_config
    spec = _by_shapes(module)
    if spec is None: return None
    return spec, {"task": "image"}, {"model_type": "torchvision", "architecture": spec.name}


def _plain(value: Any) -> Any:
    """What a transformers config holds beside JSON's types: a torch.dtype."""
    text = str(value)
    return text[len("torch."):] if text.startswith("torch.") else text
