"""A program: what `record` makes, and how it is written."""
from __future__ import annotations

import copy
import gzip
import inspect
import itertools
import json
import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Mapping

import torch
import torch.utils.checkpoint

from ._description import describe, hidden_size, loss_shifts_labels, source_of
from ._functions import Functions, build as build_function, shared
from ._loops import fold as fold_loops
from ._run import Build, Recording, build, record as run, takes_dtype
from ._solve import AUTOCAST_ON_16_BITS, FOLLOWING, PRECISIONS, Merger, Mismatch, Sizes
from ._stretch import Depths, layers_of, plan_of, stretched
from ._unbound import fold as fold_unbound

Json = Any
Example = Mapping[str, Any]


@dataclass
class Variant:
    """One forward pass that a program has: its mode, and what else makes it differ."""

    mode: str = "train"                                    # or "eval"
    keys: dict[str, bool] = field(default_factory=dict)    # as {"cache": True}
    inputs: list[str] | None = None                        # names of the inputs that are passed; None: all
    arguments: dict[str, Any] = field(default_factory=dict)  # as {"use_cache": True}
    config: dict[str, Any] = field(default_factory=dict)   # set on module.config before, see _settings
    copies: bool = True                                    # and on the configurations of its parts
    checkpointing: bool = False                            # as under transformers' gradient checkpointing
    regions: bool = False                                  # as under diffusers', whose regions are then the program's
    gradients: bool | None = None                          # None: in train mode
    compiling: bool = False                                # as torch.compile traces it
    precisions: tuple[str, ...] | None = None              # None: those of the program


class Program:
    def __init__(self, content: dict[str, Json]) -> None:
        self._content = content

    def to_dict(self) -> dict[str, Json]:
        return self._content

    def to_json(self) -> str:
        return json.dumps(self._content, separators=(",", ":"))

    def save(self, path: str | Path) -> None:
        """`.json`, or `.json.gz`: the same bytes for the same program."""
        path = Path(path)
        data = self.to_json().encode()
        path.write_bytes(gzip.compress(data, 9, mtime=0) if path.suffix == ".gz" else data)

    def __repr__(self) -> str:
        return f"Program({self._content['name']!r}, {len(self._content['functions'])} functions)"


def _resized(tensor: torch.Tensor, dimension: int, size: int) -> torch.Tensor:
    if tensor.shape[dimension] == size: return tensor
    return tensor.index_select(dimension, torch.arange(size) % tensor.shape[dimension])


class _Source:
    """Example inputs at any sizes of the symbols."""

    def __init__(self, module: Any, example: Any, symbols: Mapping[str, Any] | None) -> None:
        self.bound: dict[str, list[tuple[str, int]]] = {}
        self.defaults: Sizes = {}
        self._make: Callable[..., Example] | None = None
        if callable(example) and not isinstance(example, torch.Tensor):
            self._make = example
            self.defaults = {name: int(value) for name, value in (symbols or {}).items()}
            self.base = dict(example(**self.defaults))
            return
        self.base = self._named(module, example)
        for name, places in (symbols if symbols is not None else self._guess()).items():
            if isinstance(places, int): places = self._places(places)
            self.bound[name] = [(p.rsplit(".", 1)[0], int(p.rsplit(".", 1)[1])) for p in places]
            tensor, dimension = self.bound[name][0]
            self.defaults[name] = self.base[tensor].shape[dimension]

    def _named(self, module: Any, example: Any) -> dict[str, Any]:
        if isinstance(example, Mapping): return dict(example)
        items = list(example) if isinstance(example, (tuple, list)) else [example]
        if not isinstance(module, torch.nn.Module): raise TypeError("example_inputs by name are needed with a factory")
        return dict(zip(list(inspect.signature(module.forward).parameters), items))

    def _places(self, size: int) -> list[str]:
        return [f"{name}.{i}" for name, t in self.base.items() if isinstance(t, torch.Tensor)
                for i, n in enumerate(t.shape) if n == size]

    def _guess(self) -> dict[str, list[str]]:
        """`batch`: the first dimension of all inputs; `sequence`: the second one of the integer inputs of two."""
        tensors = {name: t for name, t in self.base.items() if isinstance(t, torch.Tensor) and t.dim() > 0}
        found: dict[str, list[str]] = {}
        if tensors and len({t.shape[0] for t in tensors.values()}) == 1: found["batch"] = [f"{name}.0" for name in tensors]
        lengths = {name: t for name, t in tensors.items() if t.dim() == 2 and not t.is_floating_point()}
        if "batch" in found and lengths and len({t.shape[1] for t in lengths.values()}) == 1:
            found["sequence"] = [f"{name}.1" for name in lengths]
        return found

    def at(self, sizes: Sizes) -> dict[str, Any]:
        if self._make is not None: return dict(self._make(**sizes))
        made = dict(self.base)
        for symbol, places in self.bound.items():
            for name, dimension in places: made[name] = _resized(made[name], dimension, sizes[symbol])
        return made


def _other_sizes(name: str, default: int, multiple: int, chosen: Mapping[str, list[int]]) -> list[int]:
    """Three further sizes without common factors, or those that were chosen."""
    if name in chosen: return list(chosen[name])
    if default <= 16: return [n for n in (3, 5, 7, 11) if n != default][:3]
    if multiple > 1:
        steps = [n for n in (11, 7, 5, 3, 2, 13) if n * multiple != default]
        return [n * multiple for n in sorted(steps, key=lambda n: abs(n * multiple / default - 0.7))[:3]]

    def prime(n: int) -> bool: return all(n % d for d in range(2, int(n**0.5) + 1))

    found: list[int] = []
    for share in (0.65, 0.41, 0.29) if multiple == 1 else (0.65, 0.79, 1.3):  # longer ones for loops with few runs
        n = int(default * share)
        while not prime(n) or n in found: n -= 1
        found.append(max(n, 3))
    return found


def _points(defaults: Sizes, free: list[str], others: dict[str, list[int]]) -> list[Sizes]:
    """Sizes to record at: the defaults, each symbol alone, mixed ones, and one where all are different, as a check."""
    points = [dict(defaults)]
    for symbol in free: points.append({**defaults, symbol: others[symbol][0]})
    if len(free) == 1:
        points.append({**defaults, free[0]: others[free[0]][1]})
    else:
        for symbol in free:
            points.append({**defaults, **{s: others[s][1 if s == symbol else 0] for s in free}})
    if free: points.append({**defaults, **{s: others[s][2] for s in free}})
    points += [{**defaults, s: size} for s in free for size in others[s][3:]]
    return points


class _Recordings:
    """Makes recordings of a module, which is built once for each type of weights."""

    def __init__(self, make: Any, policies: dict[str, Any], loss: Any, step: Any = None) -> None:
        self.make, self.policies, self.loss, self.step = make, policies, loss, step
        self._builds: dict[str, Build] = {}
        self._first: dict[str, Recording] = {}  # the first ones, which several questions ask for
        self.count = 0

    def built(self, precision: str) -> Build:
        key = "bfloat16" if precision.endswith("bfloat16") else "float32"
        if key not in self._builds: self._builds[key] = build(self.make, key, self.policies)
        return self._builds[key]

    def record(self, variant: Variant, precision: str, example: Example) -> Recording:
        key = repr([variant, precision, [(name, _told(item)) for name, item in example.items()]])
        if key in self._first: return self._first[key]
        made = self._record(variant, precision, example)
        if len(self._first) < _KEPT: self._first[key] = made
        return made

    def _record(self, variant: Variant, precision: str, example: Example) -> Recording:
        built = self.built(precision)
        built.precision = precision
        inputs = {k: v for k, v in example.items() if variant.inputs is None or k in variant.inputs}
        settings = _settings(built.module, variant)
        before = [(owner, key, getattr(owner, key, _NOTHING)) for owner, key, _ in settings]
        for owner, key, value in settings: setattr(owner, key, value)
        try:
            made = run(built, inputs, train=variant.mode == "train", loss=self.loss, arguments=dict(variant.arguments),
                       gradients=variant.mode == "train" if variant.gradients is None else variant.gradients,
                       compiling=variant.compiling, step=self.step)
        finally:
            for owner, key, old in before:
                if old is _NOTHING: delattr(owner, key)
                else: setattr(owner, key, old)
        self.count += 1
        return made


_NOTHING = object()
_REFUSES = "the module refuses"
_KEPT = 8  # more are not asked for twice
_DEEP = 10  # layers: of fewer nothing is saved


def _told(item: Any) -> Any:
    """What tells an input from that of other sizes: its shape, and of a few numbers (grids) these."""
    if not isinstance(item, torch.Tensor): return item
    return (tuple(item.shape), item.tolist() if item.device.type == "cpu" and item.numel() <= 64 else None)


def _called(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _in_region(module: Any, *args: Any) -> Any:
    """ModelMixin.enable_gradient_checkpointing (diffusers 0.42)."""
    return torch.utils.checkpoint.checkpoint(module.__call__, *args, use_reentrant=False)


def _settings(module: Any, variant: Variant) -> list[tuple[Any, str, Any]]:
    """(object, attribute, value): what a variant sets. Parts have configurations of their own, copies (T5's decoder) or
    parts of it (a text_config). In these a choice is switched off only: T5's encoder must not have a cache."""
    own = getattr(module, "config", None)
    found = [(own, key, value) for key, value in variant.config.items()
             if own is not None and (hasattr(own, key) or not variant.copies)]  # without copies as the Trainer: in any case
    if variant.checkpointing:
        for part in module.modules():
            if hasattr(part, "gradient_checkpointing"):
                found += [(part, "gradient_checkpointing", True), (part, "_gradient_checkpointing_func", _in_region if variant.regions else _called)]
    if not variant.copies: return found
    parts = {id(part.config): part.config for part in module.modules() if hasattr(part, "config") and part.config is not own}
    return found + [(config, key, value) for config in parts.values() for key, value in variant.config.items()
                    if value is False and getattr(config, key, None) is True]


def _precisions(recordings: _Recordings, variant: Variant, precisions: tuple[str, ...], source: _Source,
                example: Example) -> tuple[str, ...]:
    """The precisions; where a module makes other calls with weights of 16 bits (T5's norms), that under autocast, too."""
    if precisions != PRECISIONS: return precisions
    made_at = {p: recordings.record(variant, p, example) for p in ("float32", "bfloat16")}
    one = len(_groups(made_at, source.defaults)) == 1
    return precisions if one else (*precisions, AUTOCAST_ON_16_BITS)


def _for_checkpointing(recordings: _Recordings, variants: list[Variant], precision: str, example: Example) -> list[Variant]:
    """The variants whose module makes other calls where it is told of checkpointing (T5's position bias needs a gradient
    then), as they are in that case."""
    plain = [v for v in variants if v.mode == "train" and not v.keys.get("cache")]
    module = recordings.built(precision).module
    if not plain or not any(hasattr(part, "gradient_checkpointing") for part in module.modules()): return []

    def calls(variant: Variant) -> list[str]:
        return [event[1] for event in recordings.record(variant, precision, example).events if event[0] == "call"]

    if calls(plain[0]) == calls(replace(plain[0], checkpointing=True)): return []
    return [replace(v, checkpointing=True, keys={**v.keys, "checkpointing": True}) for v in plain]


def _caches_in_trainer(recordings: _Recordings, variants: list[Variant], precision: str, example: Example) -> bool:
    """Whether there is a cache though config.use_cache is False on the module's own configuration, which is all that
    transformers' Trainer sets (trainer.py, 5.17): the part that looks has one of its own."""
    cached = next((v for v in variants if v.mode == "train" and v.keys.get("cache")), None)
    if cached is None: return False
    off = Variant(cached.mode, {"cache": False}, cached.inputs, cached.arguments, {"use_cache": False})
    module = recordings.built(precision).module
    if all(config is module.config for config, _, _ in _settings(module, off)): return False
    as_in_trainer = _plain(recordings.record(replace(off, copies=False), precision, example).events)
    return as_in_trainer == _plain(recordings.record(cached, precision, example).events)


def _parts(made: Recording) -> list[Json]:
    """What of a recording is merged."""
    if made.parts is None: made.parts = _unbound_parts(made)
    return made.parts


def _parts_with_loops(made: Recording) -> list[Json]:
    """The same with the loops of its events found."""
    if made.with_loops is None: made.with_loops = _with_loops(_parts(made))
    return made.with_loops


def _unbound_parts(made: Recording) -> list[Json]:
    living = [n for found in made.outputs.values() for n in ([found] if isinstance(found, int) else found)]
    events, renumber = fold_unbound(_plain(made.events), living + made.held + made.cycles)
    outputs = [(name, renumber(found) if isinstance(found, int) else [renumber(n) for n in found])
               for name, found in made.outputs.items()]
    return [events, made.inputs, outputs, [renumber(n) for n in made.held], [renumber(n) for n in made.cycles], made.constants]


def _plain(events: list[tuple[Any, ...]]) -> list[Json]:
    return [list(event) for event in events]


def _merged(keys: list[tuple[str, Sizes]], recordings: list[Recording]) -> list[Json]:
    lists = [_parts(made) for made in recordings]
    if len({len(parts[0]) for parts in lists}) > 1: lists = [_parts_with_loops(made) for made in recordings]
    merger = Merger(keys)
    merged: list[Json] = []
    for position in range(len(lists[0])):
        items = [parts[position] for parts in lists]
        if position == 0:
            if len({len(events) for events in items}) > 1: raise Mismatch(_first_difference(items))
            made: list[Json] = []
            for i in range(len(items[0])):
                try:
                    made.append(merger.merge([events[i] for events in items]))
                except Mismatch as error:
                    raise Mismatch(f"call {i}, {items[0][i][:2]}: {error}") from None
            merged.append(made)
        else:
            merged.append(merger.merge(items))
    return merged


def _with_loops(parts: list[Json]) -> list[Json]:
    """The parts of a recording with the loops of its events found."""
    events, inputs, outputs, held, cycles, constants = parts
    living = [n for _, found in outputs for n in ([found] if isinstance(found, int) else found)] + held + cycles
    folded, renumber = fold_loops(events, living)
    return [folded, inputs, [(name, renumber(found) if isinstance(found, int) else [renumber(n) for n in found])
                             for name, found in outputs],
            [renumber(n) for n in held], [renumber(n) for n in cycles], constants]


def _first_difference(lists: list[list[Json]]) -> str:
    for i, events in enumerate(zip(*lists)):
        if len({tuple(str(x) for x in event[:2]) for event in events}) > 1:
            return (f"at another size the module makes other calls, from number {i} on: "
                    f"{', '.join(str(event[:2]) for event in events[:3])}")
    return "at another size the module makes more or fewer calls"


def record(module_or_factory: Any, example_inputs: Any, *, loss: Callable[[Any], Any] | None = None,
           policies: Mapping[str, Any] | None = None, symbols: Mapping[str, Any] | None = None, name: str | None = None,
           task: str = "other", variants: list[Variant] | None = None, precisions: tuple[str, ...] = PRECISIONS,
           sizes: Mapping[str, list[Any]] | None = None, maxima: Mapping[str, int] | None = None,
           minima: Mapping[str, int] | None = None, fixed: Mapping[str, str] | None = None,
           multiples: Mapping[str, int] | None = None, step: Callable[[Any, dict[str, Any]], Any] | None = None,
           depths: Depths | None = None, not_compiled: str = "") -> Program:
    """Records a module's forward passes as a program (docs/programs.md): those in train mode as torch.compile traces them, too.

    module_or_factory: an `nn.Module` (left alone) or a function that makes one; a function with one parameter gets the
    dtype of the weights. example_inputs: tensors by name, or a function of the symbols that makes them. symbols: names
    of sizes that stay free: a list of places (`{"batch": ["x.0", "y.0"]}`), or with a function their defaults. loss: the
    loss from the module's output, where the module returns none. policies: answers for values (docs/programs.md).
    sizes: for a symbol, three or more further sizes at which to record, or lists of such, of which the first is taken that
    gives one program; where all of a list are larger than the default, that is the least. maxima, minima, multiples: the
    largest and the smallest size of a symbol that the module takes, and what divides them. fixed: symbols that have one size,
    and why. depths: how the module is made with fewer layers; then most is recorded of these, where that is shown to be the same.
    not_compiled: why it is not recorded as torch.compile traces it.
    """
    how = _How(loss, dict(policies or {}), symbols, name, task, variants or [Variant("train"), Variant("eval", gradients=False)], precisions,
               sizes or {}, maxima or {}, minima or {}, fixed or {}, multiples or {}, step, not_compiled)
    recordings = _Recordings(module_or_factory, how.policies, loss, step)
    of_few = _stretched(recordings, example_inputs, how, depths) if depths is not None else None
    return Program(of_few if of_few is not None else _recorded(recordings, example_inputs, how))


@dataclass
class _How:
    """What `record` is told beside the module and its inputs."""

    loss: Callable[[Any], Any] | None
    policies: dict[str, Any]
    symbols: Mapping[str, Any] | None
    name: str | None
    task: str
    variants: list[Variant]
    precisions: tuple[str, ...]
    sizes: Mapping[str, list[Any]]
    maxima: Mapping[str, int]
    minima: Mapping[str, int]
    fixed: Mapping[str, str]
    multiples: Mapping[str, int]
    step: Callable[[Any, dict[str, Any]], Any] | None
    not_compiled: str = ""


def _stretched(recordings: _Recordings, example_inputs: Any, how: _How, depths: Depths) -> dict[str, Json] | None:
    """The program from those of the module with few layers (_stretch.py); None where the module's own passes are not what
    follows from theirs, or little would be saved."""
    if depths.count < _DEEP: return None
    source = _Source(recordings.make, example_inputs, how.symbols)
    base = source.at(source.defaults)
    checked = list({(v.mode, *v.keys.items()): v for v in reversed(how.variants)}.values())
    checked += [replace(v, compiling=True) for v in checked if v.mode == "train"][:1]

    def once(of: _Recordings) -> Json:
        """A pass of each of `checked` at one size and precision, and the description, as a program would have them."""
        found = [json.dumps(describe(of, how.precisions[:1]))]
        for variant in checked:
            made = of.record(variant, how.precisions[0], base)
            functions = Functions()
            entry = _forward(functions, _merged([(how.precisions[0], source.defaults)], [made]), variant)
            found.append(json.dumps([functions.list, entry, made.graphs, made.inputs, made.constants,
                                     sorted([*key, count] for key, count in made.assumptions.items())]))
        return [json.loads(each) for each in found]

    try:
        whole = once(recordings)
        functions, entry, *_ = whole[1]
        kinds = layers_of(functions[entry["function"]]["body"], depths.count)
        plan = plan_of(kinds) if kinds is not None else None
        if plan is None: return None
        for periods in (3, 4) if plan.period == 1 else (1, 2):
            if sum(plan.depths(periods)) > 0.7 * depths.count: break
            few = [_Recordings(depths.make(depths.count - depth, plan.head + (periods + more) * plan.period), how.policies, how.loss, how.step)
                   for more, depth in enumerate(plan.depths(periods))]
            try:
                one, two = map(once, few)
                if stretched(one, two, plan.times(periods)) != whole: continue
            except Mismatch: continue
            one, two = (json.loads(Program(_recorded(each, example_inputs, how)).to_json()) for each in few)
            return stretched(one, two, plan.times(periods))
    except Exception:  # the module's code may refuse fewer layers; what else is wrong shows in a recording of the whole
        return None
    return None


def _recorded(recordings: _Recordings, example_inputs: Any, how: _How) -> dict[str, Json]:
    """The program from recordings of all that it holds."""
    name, task, variants, precisions, sizes = how.name, how.task, how.variants, how.precisions, how.sizes
    fixed, multiples, minima, maxima = dict(how.fixed), dict(how.multiples), dict(how.minima), how.maxima
    module_or_factory = recordings.make
    source = _Source(module_or_factory, example_inputs, how.symbols)
    first = recordings.built(precisions[0]).module
    description = describe(recordings, precisions)
    functions = Functions()
    assumptions: dict[tuple[str, str], int] = {}
    by_nature = set(fixed)
    choices = {symbol: [list(given)] if isinstance(given[0], int) else [list(each) for each in given]
               for symbol, given in sizes.items()}
    several = {symbol for symbol, lists in choices.items() if len(lists) > 1}
    free = list(source.defaults)
    constants: list[Json] = []
    base = source.at(source.defaults)
    precisions = _precisions(recordings, variants[0], precisions, source, base)
    if not any(v.checkpointing for v in variants): variants = variants + _for_checkpointing(recordings, variants, precisions[0], base)
    compiled = [replace(v, compiling=True) for v in variants if v.mode == "train" and not how.not_compiled]

    def passes(source: _Source, fixed: dict[str, str], multiples: dict[str, int], choices: dict[str, list[list[int]]],
               needed: str = "") -> tuple[list[dict[str, Json]], dict[str, Json], str]:
        """The forward passes, the inputs, and why there are none as torch.compile traces them. `needed`: a symbol; as soon as
        that turns out to be fixed they are of no use."""
        solved: list[_Solved] = []
        forwards: list[dict[str, Json]] = []
        inputs: dict[str, Json] = {}
        base = source.at(source.defaults)
        for variant in variants + compiled:
            if needed in fixed: break
            known: tuple[dict[str, Any], ...] = (fixed, multiples, choices)
            before = tuple(dict(each) for each in known)
            not_compiled = ""
            made_parts: list[tuple[tuple[str, ...], list[Json], Recording]] = []
            try:
                made_parts = _variant_parts(recordings, source, variant, variant.precisions or precisions, solved, base, free, fixed,
                                            multiples, choices)
            except Exception as error:  # the module's code is another where it is compiled, and may fail here
                if not variant.compiling: raise
                not_compiled = f"{type(error).__name__}: {error}"[:300]
            if variant.compiling and known != before:
                for now, then in zip(known, before):
                    now.clear()
                    now.update(then)
                not_compiled = not_compiled or "calls that eager mode makes at any size, torch.compile traces at some alone"
            if not_compiled: return forwards, inputs, not_compiled
            for group, parts, made in made_parts:
                for key, count in made.assumptions.items(): assumptions[key] = max(count, assumptions.get(key, 0))
                entry = _forward(functions, parts, variant)
                if set(group) < {*PRECISIONS, *precisions}: entry["precisions"] = list(group)
                if made.graphs is not None: entry["graphs"] = made.graphs
                if variant.compiling and entry in forwards: forwards[forwards.index(entry)]["runs"] = ["eager", "compiled"]
                elif variant.compiling: forwards.append({**entry, "runs": ["compiled"]})
                else: forwards.append(entry)
                for described in parts[1]:
                    met = inputs.setdefault(described["name"], {k: described[k] for k in ("name", "shape", "dtype")})
                    # Forwards of their own for float32 and bfloat16: the loop makes inputs in the weights' type.
                    if {str(met["dtype"].get("d")), str(described["dtype"].get("d"))} == {"float32", "bfloat16"}:
                        met["dtype"] = {"d": "weights"}
                for constant in parts[5]:
                    if constant not in constants: constants.append(constant)
        return forwards, inputs, how.not_compiled

    forwards, inputs, not_compiled = passes(source, fixed, multiples, choices)
    for symbol in [s for s in choices if s in fixed.keys() - by_nature and not fixed[s].startswith(_REFUSES)][:1]:
        # At its own size the module makes other calls than at all others (DiT has positions of that size alone).
        apart, sizes_apart = _apart(source, symbol, choices[symbol])
        fixed_apart, multiples_apart = {s: why for s, why in fixed.items() if s != symbol}, dict(multiples)
        kept = len(functions.list)
        others, of_any_size, why = passes(apart, fixed_apart, multiples_apart, {**choices, symbol: sizes_apart}, needed=symbol)
        if symbol in fixed_apart or why != not_compiled:
            functions.forget(kept)
            continue
        size = {symbol: source.defaults[symbol]}
        forwards = [{**each, "at": size} for each in forwards] + [{**each, "not_at": size} for each in others]
        fixed, multiples, inputs = fixed_apart, multiples_apart, of_any_size
    # Arguments that are a part of a size, as a whole number, were seen only of sizes that have such parts.
    arguments = json.dumps([made[:5] for function in functions.list for made in function["body"]])
    for symbol in several - set(fixed):
        common = math.gcd(source.defaults.get(symbol, 1), *choices[symbol][0])
        if common > 1 and re.search(rf"\b{symbol}\b[^\"]*//", arguments): multiples.setdefault(symbol, common)
    content: dict[str, Json] = {
        "format": "memcalc.program", "version": 3 if any("at" in each for each in forwards) else 2, "name": name or type(first).__name__,
        "source": source_of(first), "task": task,
        "symbols": {s: _symbol(s, source.defaults[s], fixed, multiples, maxima, _minima(minima, choices, several, source.defaults))
                    for s in source.defaults},
        "inputs": [_flat_dtype(inputs[key]) for key in base if key in inputs],
        **description,
    }
    width = hidden_size(getattr(first, "config", None))
    if width is not None: content["hidden_size"] = width
    if loss_shifts_labels(first): content["loss_shifts_labels"] = True
    if _caches_in_trainer(recordings, variants, precisions[0], base): content["caches_in_trainer"] = True
    if not takes_dtype(module_or_factory): content["converted"] = True
    if not_compiled: content["not_compiled"] = not_compiled
    if constants: content["constants"] = [_flat_dtype(constant) for constant in constants]
    content["functions"], content["forwards"] = shared(functions.list, forwards), forwards
    content["assumptions"] = [{"policy": policy, "where": where, "count": count}
                              for (policy, where), count in sorted(assumptions.items())]
    content["opaque"] = sorted({call[1] for f in content["functions"] for call in f["body"] if call[0] == "opaque"})
    return content


def _flat_dtype(item: Json) -> Json:
    dtype = item["dtype"]["d"] if isinstance(item["dtype"], dict) else item["dtype"]
    return {**item, "shape": [n["n"] if isinstance(n, dict) else n for n in item["shape"]], "dtype": dtype}


def _minima(minima: Mapping[str, int], choices: Mapping[str, list[list[int]]], several: set[str],
            defaults: Sizes) -> dict[str, int]:
    """The smallest sizes: those that were asked for, and of a symbol for which larger ones were chosen its default."""
    larger = {s: defaults[s] for s, lists in choices.items() if s in several and s in defaults and min(lists[0]) > defaults[s]}
    return {**larger, **minima}


def _symbol(name: str, default: int, fixed: dict[str, str], multiples: dict[str, int], maxima: Mapping[str, int],
            minima: Mapping[str, int]) -> Json:
    made: dict[str, Json] = {"default": default}
    if name in minima: made["minimum"] = minima[name]
    if name in maxima: made["maximum"] = maxima[name]
    if name in fixed: made.update({"fixed": True, "reason": fixed[name]})
    elif multiples.get(name, 1) > 1: made["multiple"] = multiples[name]
    return made


def _groups(made_at: dict[str, Recording], sizes: Sizes) -> list[list[str]]:
    """Precisions whose recordings are one program."""
    groups: list[list[str]] = []
    for precision in made_at:
        for group in groups:
            members = [*group, precision]
            try:
                _merged([(p, sizes) for p in members], [made_at[p] for p in members])
            except Mismatch:
                continue
            group.append(precision)
            break
        else:
            groups.append([precision])
    return groups


@dataclass
class _Solved:
    """A variant that was recorded at all sizes: as it was at the defaults, and merged."""

    group: tuple[str, ...]
    raw: list[Json]  # with loops where `parts` has them
    parts: list[Json]

    def parts_of(self, made: Recording) -> list[Json]:
        return _parts_with_loops(made) if any(event[0] == "loop" for event in self.parts[0]) else _parts(made)


def _variant_parts(recordings: _Recordings, source: _Source, variant: Variant, precisions: tuple[str, ...],
                   solved: list[_Solved], base: Example, free: list[str], fixed: dict[str, str], multiples: dict[str, int],
                   choices: dict[str, list[list[int]]]) -> list[tuple[tuple[str, ...], list[Json], Recording]]:
    """The parts of a variant for each group of precisions. One that is like a solved one needs no further sizes."""
    known = list(dict.fromkeys(s.group for s in solved))
    cached: dict[str, Recording] = {}
    found: list[tuple[tuple[str, ...], list[Json], Recording]] = []
    for group in known:
        made = cached[group[0]] = recordings.record(variant, group[0], base)
        like = [s for s in reversed(solved) if s.group == group]
        candidates = ((s, _transferred(s, s.parts_of(made))) for s in like)
        solved_like, parts = next(((s, found) for s, found in candidates if found is not None), (None, None))
        if solved_like is None or parts is None: break
        for precision in group[1:]: cached[precision] = recordings.record(variant, precision, base)
        if not all(_has_types(parts[0], solved_like.parts_of(cached[p])[0], p) for p in group[1:]): break
        found.append((group, parts, made))
    else:
        if known and {p for group in known for p in group} == set(precisions): return found
    made_at = {p: cached.get(p) or recordings.record(variant, p, base) for p in precisions}
    found = []
    for members in _groups(made_at, source.defaults):
        parts = _solve(recordings, source, variant, members, made_at, free, fixed, multiples, choices)
        known_now = _Solved(tuple(members), [], parts)
        known_now.raw = known_now.parts_of(made_at[members[0]])
        solved.append(known_now)
        found.append((tuple(members), parts, made_at[members[0]]))
    return found


def _key(event: list[Json]) -> str:
    """What of an event is the same in another variant: all but the numbers of values, fractions and flags."""
    def inner(item: Json) -> Json:
        if isinstance(item, dict): return "v" if "v" in item else {key: inner(value) for key, value in item.items()}
        if isinstance(item, (list, tuple)): return [inner(value) for value in item]
        return 0.5 if isinstance(item, (bool, float)) else item
    if event[0] == "call": return json.dumps([event[1], inner(event[2]), inner(event[3]), len(event[4]), inner(event[5:])])
    if event[0] in ("drop", "leave"): return event[0]
    if event[0] == "loop": return json.dumps(["loop", inner(event[1]), len(event[2]), [_key(each) for each in event[3]]])
    return json.dumps([event[0], inner(event[1:])])


def _transferred(like: _Solved, now: list[Json]) -> list[Json] | None:
    """`now` with the expressions of the solved variant, where both make the same calls; None where a call with integers or
    types has no counterpart."""
    if any(event[0] == "custom" for event in like.parts[0]) or len(like.raw[0]) != len(like.parts[0]): return None
    keys = [_key(event) for event in like.raw[0]]
    events: list[Json] = []
    at = 0
    for event in now[0]:
        if event[0] in ("drop", "leave", "enter", "grad", "grad_end", "autocast", "autocast_end", "graph", "break"):
            events.append(event)
            continue
        key = _key(event)
        place = next((i for i in range(at, min(at + 400, len(keys))) if keys[i] == key), None)
        if place is None:
            if _has_sizes(event[2:]): return None
            events.append(event)
            continue
        at = place + 1
        try:
            events.append([_with_expressions(b, s, n) for b, s, n in zip(like.raw[0][place], like.parts[0][place], event)])
        except Mismatch:
            return None
    inputs = {item["name"]: item for item in like.parts[1]}
    if any(item["name"] not in inputs for item in now[1]) or now[5] != like.raw[5]: return None
    described = [{**inputs[item["name"]], "number": item["number"]} for item in now[1]]
    return [events, described, now[2], now[3], now[4], like.parts[5]]


def _has_types(solved: Json, made: Json, precision: str) -> bool:
    """Whether what was recorded at the precision has the types of the solved events: where a cache joins keys and values,
    the values may become float32 under autocast, and without it not."""
    if isinstance(solved, dict) and "d" in solved:
        following = FOLLOWING.get(solved["d"])
        return isinstance(made, dict) and made.get("d") == (following[precision] if following else solved["d"])
    if isinstance(solved, dict):
        if "v" in solved or not isinstance(made, dict): return True
        return all(_has_types(item, made.get(key), precision) for key, item in solved.items())
    if isinstance(solved, (list, tuple)):
        if not isinstance(made, (list, tuple)) or len(made) != len(solved): return False
        return all(_has_types(s, m, precision) for s, m in zip(solved, made))
    return True


def _has_sizes(item: Json) -> bool:
    if isinstance(item, dict): return "d" in item or ("v" not in item and any(_has_sizes(value) for value in item.values()))
    if isinstance(item, (list, tuple)): return any(_has_sizes(value) for value in item)
    return type(item) is int and not -4 <= item <= 4


def _with_expressions(before: Json, solved: Json, now: Json) -> Json:
    if isinstance(now, dict):
        if "v" in now: return now
        if isinstance(before, dict) and before.keys() == now.keys():
            if isinstance(solved, dict) and solved.keys() == now.keys():
                return {key: _with_expressions(before[key], solved[key], now[key]) for key in now}
        raise Mismatch("keys")
    if isinstance(now, (list, tuple)):
        if len(before) != len(now): raise Mismatch("lengths")
        return [_with_expressions(b, s, n) for b, s, n in zip(before, solved, now)]
    if isinstance(solved, dict) and "n" in solved:
        if before != now: raise Mismatch("integers")
        return solved
    return now if isinstance(now, (bool, float)) or type(now) is int else solved


def _solve(recordings: _Recordings, source: _Source, variant: Variant, group: list[str], made_at: dict[str, Recording],
           free: list[str], fixed: dict[str, str], multiples: dict[str, int],
           choices: dict[str, list[list[int]]]) -> list[Json]:
    """The merged parts of a variant; a symbol that cannot be freed is fixed. Of `choices` those lists go that give no
    program."""
    keys = [(p, source.defaults) for p in group]
    at_base = [made_at[p] for p in group]
    cache: dict[tuple[int, ...], Recording] = {}

    def attempt(names: list[str], multiple: dict[str, int], chosen: dict[str, list[int]] | None = None) -> list[Json]:
        chosen = {**{s: lists[0] for s, lists in choices.items()}, **(chosen or {})}
        others = {s: _other_sizes(s, source.defaults[s], multiple.get(s, 1), chosen) for s in names}
        points = _points(source.defaults, names, others)[1:]
        made: list[Recording] = []
        for point in points:
            key = tuple(point[s] for s in sorted(point))
            if key not in cache:
                try:
                    cache[key] = recordings.record(variant, group[0], source.at(point))
                except Exception as error:  # the module's own code refuses this size
                    raise Mismatch(f"{_REFUSES} another: {type(error).__name__}: {error}"[:300]) from error
            made.append(cache[key])
        return _merged(keys + [(group[0], point) for point in points], at_base + made)

    names = [s for s in free if s not in fixed]
    reasons: dict[str, str] = {}
    try:
        return attempt(names, multiples)
    except Mismatch as error:
        reason = str(error)
    for symbol in names:
        try:
            attempt([symbol], multiples)
            continue
        except Mismatch as error:
            reasons[symbol] = str(error)
        if any(_fits(attempt, symbol, multiples, each) and _choose(choices, symbol, each)
               for each in choices.get(symbol, [])[1:]): continue
        for multiple in (0, 16, 64, 128, 256):  # 0: longer sizes, no multiples
            if multiple and (source.defaults[symbol] % multiple or source.defaults[symbol] // multiple < 2): continue
            if source.defaults[symbol] <= 16 or symbol in choices: continue
            if not _fits(attempt, symbol, {**multiples, symbol: multiple}): continue
            multiples[symbol] = multiple
            break
        else:
            fixed[symbol] = reasons[symbol]
    names = [s for s in names if s not in fixed]
    try:
        return attempt(names, multiples)
    except Mismatch as error:
        for symbol in names: fixed.setdefault(symbol, str(error))
    return _merged(keys, at_base)


def _apart(source: _Source, symbol: str, choices: list[list[int]]) -> tuple[_Source, list[list[int]]]:
    """The source with another default of the symbol, and the further sizes at which it is then recorded."""
    sizes = [n for n in choices[0] if n != source.defaults[symbol]]
    step = math.gcd(*sizes)
    apart = copy.copy(source)
    apart.defaults = {**source.defaults, symbol: next(n for n in itertools.count(max(sizes) + step, step) if n != source.defaults[symbol])}
    return apart, [sizes]


def _fits(attempt: Callable[..., Any], symbol: str, multiples: dict[str, int], sizes: list[int] | None = None) -> bool:
    try:
        attempt([symbol], multiples, {symbol: sizes} if sizes else None)
    except Mismatch:
        return False
    return True


def _choose(choices: dict[str, list[list[int]]], symbol: str, sizes: list[int]) -> bool:
    choices[symbol] = [sizes]  # other variants are of these, too: a symbol has one minimum
    return True


def _forward(functions: Functions, parts: list[Json], variant: Variant) -> dict[str, Json]:
    events, described, outputs, held, cycles, _ = parts
    events = [tuple(event) for event in events]
    given = {item["name"]: item["number"] for item in described}
    numbers: list[int] = []
    for _, found in outputs: numbers += [found] if isinstance(found, int) else found
    numbers = list(dict.fromkeys([*numbers, *held, *cycles]))
    index, local = build_function(functions, _without_root(events), given, numbers)
    entry: dict[str, Json] = {"mode": variant.mode, **variant.keys, "inputs": [item["name"] for item in described],
                              "gradients": variant.mode == "train" if variant.gradients is None else variant.gradients,
                              "function": index}
    entry["outputs"] = {name: local[found] if isinstance(found, int) else _stride([local[n] for n in found])
                        for name, found in outputs}
    if held: entry["held"] = _stride([local[n] for n in held])
    if cycles: entry["cycles"] = _stride([local[n] for n in cycles])
    return entry


def _without_root(events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without entering and leaving the module itself, which is the function: a step has calls around it."""
    first = next((i for i, event in enumerate(events) if event[0] == "enter" and event[1] == ""), None)
    if first is None: return events  # a step may call the parts alone
    depth = 0
    for i in range(first, len(events)):
        depth += (events[i][0] == "enter") - (events[i][0] == "leave")
        if depth == 0: return [*events[:first], *events[first + 1:i], *events[i + 1:]]
    raise AssertionError("the module was entered and not left")


def _stride(numbers: list[int]) -> list[Json]:
    """Numbers in a regular pattern as one item: {"first": [5, 6], "stride": 3, "count": 12}."""
    for width in (1, 2, 3, 4):
        if len(numbers) < 3 * width or len(numbers) % width: continue
        step = numbers[width] - numbers[0]
        if step > 0 and all(numbers[i + width] - numbers[i] == step for i in range(len(numbers) - width)):
            return [{"first": numbers[:width], "stride": step, "count": len(numbers) // width}]
    return list(numbers)
