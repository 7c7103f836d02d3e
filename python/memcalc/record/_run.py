"""One recording: the module built on fake tensors, its forward pass run once, what is known of it afterwards."""
from __future__ import annotations

import copy
import functools
import gc
import inspect
import random
import sys
import warnings
from collections import OrderedDict
from dataclasses import dataclass, field
from types import CellType
from typing import Any, Callable, Mapping

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from ._graphs import Events, with_graphs
from ._patches import patched
from ._recorder import Recorder, _dtype, _without_autograd
from ._values import Known, NotMade, ValueNeeded

Json = Any
Inputs = dict[str, "torch.Tensor"]


@dataclass
class Build:
    """A module of fake tensors in one precision, and the recorder that watched it being built."""

    module: torch.nn.Module
    fake: FakeTensorMode
    recorder: Recorder
    precision: str

    @functools.cached_property
    def structure(self) -> Structure:
        return Structure(self.module)


class Structure:
    """What every recording of a module asks of it, found once: a recording leaves the module as it was."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.parts = list(module.modules())
        self.paths = {id(part): path for path, part in module.named_modules()}
        self.tensors = tensor_names(module)
        self.attributes = self.tensors.keys() - {id(t) for t in [*module.parameters(), *module.buffers()]}
        self.layers = _checkpointing_layers(module)
        self._caches: tuple[int, list[Any]] = (0, [])

    @functools.cached_property
    def configurations(self) -> list[Any]:
        """Those of the parts, each once."""
        return list({id(part.config): part.config for part in self.parts if hasattr(part, "config")}.values())

    @functools.cached_property
    def checkpointing(self) -> list[torch.nn.Module]:
        """The parts that can be told of checkpointing."""
        return [part for part in self.parts if hasattr(part, "gradient_checkpointing")]

    def forget(self) -> None:
        """Empties functools' caches of the module's classes and of the files that define them: a result that an earlier forward
        pass left there (BEiT's index of relative positions) would be a value that this one never made."""
        if self._caches[0] != len(sys.modules): self._caches = (len(sys.modules), _caches(self.parts))
        for cached in self._caches[1]: cached.cache_clear()


@dataclass
class Recording:
    events: list[tuple[Any, ...]]
    inputs: list[dict[str, Json]]            # name, shape, dtype
    outputs: dict[str, Json]                 # what the returned object holds: names to numbers
    held: list[int] = field(default_factory=list)     # alive when the returned object is gone: the module holds them
    cycles: list[int] = field(default_factory=list)   # freed only by Python's collector of cycles
    constants: list[dict[str, Json]] = field(default_factory=list)
    assumptions: dict[tuple[str, str], int] = field(default_factory=dict)
    graphs: int | None = None                # of torch.compile; None: one, or it was not asked
    parts: list[Json] | None = None          # what of it is merged (_program.py), once somebody has asked
    with_loops: list[Json] | None = None


def build(make: Callable[..., torch.nn.Module] | torch.nn.Module, precision: str, policies: dict[str, Any]) -> Build:
    """`make` is a module (left alone: a copy without data is recorded) or a function that makes one, of a dtype or none."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    recorder = Recorder(fake, policies)
    _seed()
    with warnings.catch_warnings(), fake, _without_autograd(), patched(recorder), recorder:
        warnings.simplefilter("ignore")
        if isinstance(make, torch.nn.Module):
            module = _without_data(make, recorder)
        else:
            with torch.device("cuda"):
                try: module = make(dtype) if takes_dtype(make) else make()
                except ValueNeeded: raise
                except Exception as error: raise NotMade(f"{type(error).__name__}: {error}") from error
        if not takes_dtype(make) and dtype != torch.float32: module = module.to(dtype)
        # torch.FloatTensor(…) heeds no `with torch.device` (XLNet's parameters): a user moves the module.
        if any(p.device.type == "cpu" for p in module.parameters()): module = module.to("cuda")
    return Build(module, fake, recorder, precision)


def takes_dtype(make: Any) -> bool:
    if isinstance(make, torch.nn.Module): return False
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _seed() -> None:
    random.seed(0)
    try:
        import numpy
        numpy.random.seed(0)
    except ImportError:
        pass


def _without_data(module: torch.nn.Module, recorder: Recorder) -> torch.nn.Module:
    """A deep copy on the card whose tensors have no data; small integer buffers keep their values."""
    memo: dict[int, Any] = {}
    kept: list[Any] = []

    def fake_of(tensor: torch.Tensor) -> torch.Tensor:
        device = "cuda" if tensor.device.type in ("cpu", "meta", "cuda") else tensor.device
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
        if isinstance(tensor, torch.nn.Parameter): return torch.nn.Parameter(made, tensor.requires_grad)
        if not tensor.is_floating_point() and tensor.numel() <= 1 << 16 and tensor.device.type != "meta":
            recorder.number(made)
            with unset_fake_temporarily():
                recorder.values[id(made)].known = Known(tensor.detach().cpu())
        return made

    for part in module.modules():
        for tensor in [*part._parameters.values(), *part._buffers.values(), *vars(part).values()]:
            if isinstance(tensor, torch.Tensor) and id(tensor) not in memo:
                memo[id(tensor)] = fake_of(tensor)
                kept.append(tensor)
    return copy.deepcopy(module, memo)


def _checkpointing_layers(module: torch.nn.Module) -> set[int]:
    """Modules that are layers: transformers' GradientCheckpointingLayer, else equal items of lists."""
    of_class = {id(m) for m in module.modules() if any(c.__name__ == "GradientCheckpointingLayer" for c in type(m).__mro__)}
    if of_class: return of_class
    found: set[int] = set()
    for parent in module.modules():
        is_list = isinstance(parent, (torch.nn.ModuleList, torch.nn.Sequential))
        items = [m for m in parent.children() if any(True for _ in m.children())]
        # timm numbers the blocks of a stage by hand: b1, b2 … and nothing else.
        is_stage = len({type(m) for m in items}) == 1 and all(n[-1:].isdigit() for n, _ in parent.named_children())
        if not is_list and not is_stage: continue
        for item in items:
            if sum(type(other) is type(item) for other in items) >= 2: found.add(id(item))
    return found


_State = list[tuple[torch.nn.Module, dict[str, Any], list[tuple[Any, Any]]]]


def _state(parts: list[torch.nn.Module]) -> _State:
    """Attributes of all parts, and the content of those that are dictionaries (hooks, buffers) or lists."""
    return [(part, dict(vars(part)), [(item, item.copy() if item else ()) for item in vars(part).values()
                                      if type(item) in (dict, OrderedDict, list)]) for part in parts]


def _restore(state: _State) -> None:
    for part, attributes, containers in state:
        vars(part).clear()
        vars(part).update(attributes)
        for item, content in containers:
            if not item and not content: continue
            item.clear()
            if isinstance(item, dict): item.update(content)
            else: item.extend(content)


def _caches(parts: list[torch.nn.Module]) -> list[Any]:
    classes = {base for kind in {type(part) for part in parts} for base in kind.__mro__ if base.__module__.split(".")[0] != "torch"}
    files = {name: vars(sys.modules[name]) for name in {each.__module__ for each in classes} if name in sys.modules}
    functions = [getattr(item, "__func__", item) for each in classes for item in vars(each).values()]  # also of static methods
    functions += [item for name, names in files.items() for item in names.values() if getattr(item, "__module__", None) == name]
    found: list[Any] = []
    for function in functions:  # a decorator may hide the cache in its closure
        for cell in [CellType(function), *(getattr(function, "__closure__", None) or ())]:
            try: cached = cell.cell_contents
            except ValueError: continue  # not assigned yet
            if hasattr(cached, "cache_clear"): found.append(cached)
    return found


def tensor_names(module: torch.nn.Module) -> dict[int, str]:
    names = {id(p): name for name, p in module.named_parameters()}
    for name, buffer in module.named_buffers(): names.setdefault(id(buffer), name)
    for path, part in module.named_modules():
        for key, value in vars(part).items():
            if isinstance(value, torch.Tensor): names.setdefault(id(value), f"{path}.{key}" if path else key)
    return names


def record(built: Build, example: Mapping[str, Any], *, train: bool, gradients: bool,
           loss: Callable[[Any], Any] | None, arguments: dict[str, Any], compiling: bool = False,
           step: Callable[..., Any] | None = None) -> Recording:
    """Runs the forward pass once, as eager mode does or as torch.compile traces it. `example`: real tensors by name of forward's parameter (or plain values)."""
    recorder, module, structure = built.recorder, built.module, built.structure
    module.train(train)
    recorder.compiling, recorder.next = compiling, 0
    recorder.recordings += 1
    graphs_of = Events(record.__code__, _call_loss.__code__) if compiling else None
    recorder.events = [] if graphs_of is None else graphs_of
    recorder.assumptions.clear()
    recorder.constants, recorder.held, recorder.kinds = [], [], {}
    recorder.module_tensors, recorder.attributes = dict(structure.tensors), set(structure.attributes)
    recorder.paths, recorder.layers = structure.paths, structure.layers
    _seed()
    structure.forget()
    described: list[dict[str, Json]] = []
    state = _state(structure.parts)
    was_collecting = gc.isenabled()
    gc.disable()
    gc.freeze()  # what is collected below is this pass's
    try:
        with warnings.catch_warnings(), built.fake, _without_autograd(), patched(recorder), recorder:
            warnings.simplefilter("ignore")
            batch = _fake_inputs(recorder, example, built.precision, described)
            autocast = torch.autocast("cuda", torch.bfloat16, enabled=built.precision.startswith("autocast"))
            with torch.set_grad_enabled(gradients):
                with autocast:
                    recorder.recording = True
                    if step is not None: output = step(module, batch)
                    elif loss is None: output = module(**batch, **arguments)
                    else: output = {"loss": _call_loss(loss, module, batch, arguments)}
                    recorder.recording = False
                recorder.recording = False
                count = len(recorder.events)
                outputs = _named_outputs(recorder, output)
                recorder.recording = True
                del output
                alive = {info.number for info in recorder.values.values() if info.number >= 0}
                given = {info["number"] for info in described}
                if alive - given: gc.collect()
                left = {info.number for info in recorder.values.values() if info.number >= 0}
                recorder.recording = False
        events, graphs = with_graphs(graphs_of, count) if graphs_of is not None else (recorder.events[:count], None)
        constants = copy.deepcopy(recorder.constants)
        return Recording(events, described, outputs, sorted(left - given), sorted(alive - left), constants,
                         dict(recorder.assumptions), graphs)
    finally:
        recorder.recording = False
        # A forward pass may leave its sizes or tensors in the module (Swin's windows); the next recording is a first one too.
        _restore(state)
        if was_collecting: gc.enable()


def _call_loss(loss: Callable[..., Any], module: torch.nn.Module, batch: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """As `criterion(model(x), y)`: the output is gone when the loss is there."""
    parameters = inspect.signature(module.forward).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    given = {key: item for key, item in batch.items() if takes_all or key in {p.name for p in parameters}}
    if len(inspect.signature(loss).parameters) > 1: return loss(module(**given, **arguments), batch)
    return loss(module(**given, **arguments))


def _fake_inputs(recorder: Recorder, example: Mapping[str, Any], precision: str, described: list[dict[str, Json]]) -> dict[str, Any]:
    recorder.example = example
    batch: dict[str, Any] = {}
    for name, value in example.items():
        if not isinstance(value, torch.Tensor):
            batch[name] = value
            continue
        dtype = value.dtype
        if dtype == torch.float32 and precision.endswith("bfloat16"): dtype = torch.bfloat16
        made = torch.empty_strided(value.shape, value.stride(), dtype=dtype, device="cuda")
        recorder.recording = True
        number = recorder.number(made)
        recorder.recording = False
        if not dtype.is_floating_point:
            given, origin = _values_of(name, value)
            if recorder.policies.get(origin, True): recorder.values[id(made)].known = Known(given, frozenset([origin]))
        described.append({"name": name, "shape": list(value.shape), "dtype": {"d": _dtype(dtype)}, "number": number})
        batch[name] = made
        del made
    return batch


def _values_of(name: str, value: torch.Tensor) -> tuple[torch.Tensor, str]:
    """Integers of an input and the policy that they follow. A tensor of the meta device has none."""
    with unset_fake_temporarily(), torch._C.DisableTorchFunction():
        if value.device.type != "meta":
            is_full = "mask" in name and bool((value != 0).all())
            return value.clone(), "all_tokens_valid" if is_full else "example_values"
        if "mask" in name: return torch.ones(value.shape, dtype=value.dtype), "all_tokens_valid"
        return torch.zeros(value.shape, dtype=value.dtype), "zeros_without_data"


def _named_outputs(recorder: Recorder, output: Any) -> dict[str, Json]:
    """What the returned object holds: names to a number, or to a list of numbers."""
    seen: set[int] = set()

    def numbers(thing: Any) -> list[int]:
        if isinstance(thing, torch.Tensor):
            info = recorder.info(thing)
            return [info.number] if info is not None and info.number >= 0 else []
        if id(thing) in seen or isinstance(thing, (str, bytes, int, float, type(None), torch.nn.Module, type)): return []
        seen.add(id(thing))
        if isinstance(thing, Mapping): return [n for item in thing.values() for n in numbers(item)]
        if isinstance(thing, (list, tuple)): return [n for item in thing for n in numbers(item)]
        if hasattr(thing, "__dict__"): return [n for item in vars(thing).values() for n in numbers(item)]
        return []

    def named(name: str, thing: Any) -> Json:
        found = numbers(thing)
        return found[0] if isinstance(thing, torch.Tensor) and found else found

    if isinstance(output, Mapping): pairs = list(output.items())
    elif isinstance(output, tuple) and hasattr(output, "_fields"): pairs = list(zip(output._fields, output))
    elif isinstance(output, (list, tuple)): pairs = [(str(i), item) for i, item in enumerate(output)]
    else: pairs = [("output", output)]
    result: dict[str, Json] = {}
    for name, item in pairs:
        found = named(str(name), item)
        if found != []: result[str(name)] = found
    return result
