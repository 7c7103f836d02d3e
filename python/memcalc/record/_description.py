"""What of a module is described beside its forward passes: parameters, buffers, the order of their construction, modules."""
from __future__ import annotations

import datetime
import math
import re
import sys
from typing import Any

import torch

from ._run import _checkpointing_layers
from ._solve import solve_dtype

Json = Any


def describe(recordings: Any, precisions: tuple[str, ...]) -> dict[str, Json]:
    modules = {p: recordings.built(p).module for p in precisions}
    some = next(iter(modules.values()))
    described: dict[str, Json] = {"parameters": [], "buffers": []}

    def dtype_of(name: str, kind: str) -> str:
        found = {}
        for precision, module in modules.items():
            tensor = module.get_parameter(name) if kind == "parameters" else module.get_buffer(name)
            found[precision] = str(tensor.dtype)[len("torch."):]
        return solve_dtype(found)

    for name, parameter in some.named_parameters():
        entry: dict[str, Json] = {"name": name, "shape": list(parameter.shape), "dtype": dtype_of(name, "parameters")}
        if not parameter.requires_grad: entry["frozen"] = True
        if not parameter.is_contiguous(): entry["strides"] = list(parameter.stride())
        described["parameters"].append(entry)
    passing = {f"{path}.{key}" if path else key for path, m in some.named_modules() for key in m._non_persistent_buffers_set}
    for name, buffer in some.named_buffers():
        entry = {"name": name, "shape": list(buffer.shape), "dtype": dtype_of(name, "buffers")}
        if name in passing: entry["persistent"] = False
        if buffer.device.type != "cuda": entry["device"] = buffer.device.type
        described["buffers"].append(entry)
    recorders = [recordings.built(precision).recorder for precision in precisions]
    construction = _construction(recorders, some, is_moved=recordings.step is not None)
    if construction: described["construction"] = construction
    tied: dict[str, str] = {}
    first_name = {id(p): name for name, p in some.named_parameters()}
    for name, parameter in some.named_parameters(remove_duplicate=False):
        if first_name[id(parameter)] != name: tied[name] = first_name[id(parameter)]
    described["parameters"] = _folded(described["parameters"])
    described["buffers"] = _folded(described["buffers"])
    if tied: described["tied"] = tied
    layers = recordings.built(precisions[0]).recorder.layers or _checkpointing_layers(some)
    leaves = [{"name": path, "class": _class_of(m), **({"layer": True} if id(m) in layers else {})}
              for path, m in some.named_modules() if path and (id(m) in layers or (
                  not any(True for _ in m.children()) and any(True for _ in m.parameters(recurse=False))))]
    described["modules"] = _folded(leaves)
    return described


def _class_of(module: torch.nn.Module) -> str:
    """Its class; of a class that a model's code derives from nn.Linear or nn.LayerNorm that one, because peft, bitsandbytes
    and the Trainer ask isinstance. Not those of torch: they have a reason (NonDynamicallyQuantizableLinear)."""
    kind = type(module)
    if kind.__module__.split(".")[0] != "torch":
        for base in (torch.nn.Linear, torch.nn.LayerNorm):
            if isinstance(module, base): return base.__name__
    return kind.__name__


_LARGE = 1 << 20  # bytes: what PyTorch's allocator takes from its small pool leaves next to nothing behind


def _construction(recorders: list[Any], module: torch.nn.Module, is_moved: bool) -> list[Json]:
    """Names in the order in which they were registered, those too that were tied away; empty where nobody saw it. What a
    module makes large and drops (a backbone's classifier, a weight before it is normed) leaves segments in which others
    come to lie. `is_moved`: it is made on the host."""
    recorder = recorders[0]
    if not is_moved and _dies_large(recorder, module):
        if storages := _storages(recorders, module): return storages
    paths: dict[int, str] = {}
    for path, part in module.named_modules(): paths[id(part)] = path + "." if path else ""
    created = [(made(), key) for made, key in recorder.created]
    seen = dict.fromkeys(paths[id(part)] + key for part, key in created
                         if id(part) in paths and (key in part._parameters or key in part._buffers))
    names = [name for name, _ in [*module.named_parameters(), *module.named_buffers()]]
    if any(name not in seen for name in names): return _storages(recorders, module)
    return [] if list(seen) == names else _folded([{"name": name} for name in seen])


def _bytes(shape: list[int], dtype: str) -> int: return math.prod(shape) * getattr(torch, dtype).itemsize


def _dies_large(recorder: Any, module: torch.nn.Module) -> bool:
    """Another than those of tied parameters, which are known by name."""
    died = {number for kind, number, _, _ in recorder.storages if kind == "freed"}
    large = [shape for kind, number, shape, dtype in recorder.storages
             if kind == "made" and number in died and _bytes(shape, dtype) > _LARGE]
    seen: set[int] = set()
    for _, parameter in module.named_parameters(remove_duplicate=False):
        if id(parameter) in seen and list(parameter.shape) in large: large.remove(list(parameter.shape))
        seen.add(id(parameter))
    return bool(large)


def _storages(recorders: list[Any], module: torch.nn.Module) -> list[Json]:
    """The same as storages were made: where modules are copies, which register nothing (nn.TransformerEncoder's, of a layer
    that dies), and where large ones die. What is small and dies before anything that lives on is made is left out."""
    recorder = recorders[0]
    owned: dict[int, str] = {}
    tensors = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in tensors:
        if tensor.device.type == "cuda": owned.setdefault(recorder.living.get(tensor.untyped_storage()._cdata, -1), name)
    if -1 in owned or len(owned) < sum(tensor.device.type == "cuda" for _, tensor in tensors): return []
    events = recorder.storages
    others_of = [each.storages for each in recorders if each is not recorder and len(each.storages) == len(events)]
    died = {number: i for i, (kind, number, _, _) in enumerate(events) if kind == "freed"}
    lasting = [i for i, (kind, number, _, _) in enumerate(events) if kind == "made" and number in owned]
    items: list[Json] = []
    others: dict[int, int] = {}
    for i, (kind, number, shape, dtype) in enumerate(events):
        if kind == "freed" and number in others:
            if items and "freed" in items[-1]: items[-1]["freed"].append(others[number])
            else: items.append({"name": "", "freed": [others[number]]})
        elif kind == "made" and number in owned: items.append({"name": owned[number]})
        elif kind == "made" and number in died and (_bytes(shape, dtype) > _LARGE or any(i < made < died[number] for made in lasting)):
            others[number] = len(others)
            follows = any(each[i][3] != dtype for each in others_of) if others_of else dtype == "float32"
            items.append({"name": "", "shape": shape, "dtype": "weights" if follows else dtype})
    if [item["name"] for item in items] == [name for name, _ in tensors]: return []
    return [{key: value for key, value in item.items() if key != "name" or value} for item in _folded(items)]


_INDEXED = re.compile(r"^((?:[^.]*\.)*?[^.]*?)(\d+)(?:\.(.*))?$")  # the first part of the name that ends in a number


def _folded(items: list[Json]) -> list[Json]:
    """Entries of equal layers once: {"repeat": "encoder.layer.{}", "first": 0, "count": 12, "items": [...]}."""
    blocks: list[tuple[str | None, int, list[Json]]] = []
    for item in items:
        match = _INDEXED.match(item["name"])
        if match is None:
            blocks.append((None, 0, [item]))
            continue
        start, index, tail = match.group(1), int(match.group(2)), match.group(3) or ""
        entry = {**item, "name": tail}
        if blocks and blocks[-1][0] == start and blocks[-1][1] == index: blocks[-1][2].append(entry)
        else: blocks.append((start, index, [entry]))
    folded: list[Json] = []
    i = 0
    while i < len(blocks):
        head, number, inner = blocks[i]
        if head is None:
            folded += inner
            i += 1
            continue
        count = 1
        while i + count < len(blocks) and blocks[i + count] == (head, number + count, inner): count += 1
        prefix = head + "{}"
        if count > 1:
            folded.append({"repeat": prefix, "first": number, "count": count, "items": _folded(inner)})
        else:
            path = prefix.replace("{}", str(number))
            folded += [{**item, "name": f"{path}.{item['name']}" if item["name"] else path} if "name" in item
                       else {**item, "repeat": f"{path}.{item['repeat']}"} for item in _folded(inner)]
        i += count
    return folded


def source_of(module: torch.nn.Module) -> dict[str, str]:
    found = {"class": f"{type(module).__module__}.{type(module).__qualname__}", "torch": torch.__version__}
    for library in ("transformers", "timm", "torchvision", "diffusers"):
        loaded = sys.modules.get(library)
        if loaded is not None and any(type(m).__module__.startswith(library + ".") for m in module.modules()):
            found[library] = str(loaded.__version__)
    found["recorded"] = datetime.date.today().isoformat()
    return found


def hidden_size(config: Any) -> int | None:
    """The width of which the Trainer makes DeepSpeed's "auto" bucket sizes (HfTrainerDeepSpeedConfig.trainer_config_finalize,
    transformers 5.17); None where it finds none, and stops."""
    for owner in (config, getattr(config, "text_config", None)):
        if isinstance(width := getattr(owner, "hidden_size", None), int): return width
        if widths := getattr(owner, "hidden_sizes", None): return int(max(widths))
    return None


def loss_shifts_labels(module: Any) -> bool:
    """Whether transformers' Trainer counts labels without the first of each row (Trainer._loss_shifts_labels, 5.17)."""
    config = getattr(module, "config", None)
    if not hasattr(module, "loss_type") or getattr(config, "is_encoder_decoder", False): return False
    from transformers.loss.loss_utils import LOSS_MAPPING, ForCausalLMLoss
    return LOSS_MAPPING.get(module.loss_type) is ForCausalLMLoss
