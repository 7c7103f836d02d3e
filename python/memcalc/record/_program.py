"""A program: what `record` makes, and how it is written."""
from __future__ import annotations

import contextlib
import gc
import gzip
import json
import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping

import torch

from ._description import describe, hidden_size, loss_shifts_labels, source_of
from ._functions import Functions, build as build_function, shared
from ._recordings import Example, Recordings, Variant, settings_of
from ._run import takes_dtype
from ._sizes import Source, apart as apart_at
from ._solve import AUTOCAST_ON_16_BITS, PRECISIONS, Mismatch, Sizes
from ._stretch import Depths, layers_of, plan_of, stretched
from ._transfer import Solved
from ._values import ValueNeeded
from ._variants import REFUSES, Made, deeper_parts, groups, merged_parts, plain, variant_parts

Json = Any
_DEEP = 10  # layers: of fewer nothing is saved
_DEEPER = 0.25  # of the passes of the shallow module are about as many as the deep one has


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


def _precisions(recordings: Recordings, variant: Variant, precisions: tuple[str, ...], source: Source,
                example: Example) -> tuple[str, ...]:
    """The precisions; where a module makes other calls with weights of 16 bits (T5's norms), that under autocast, too."""
    if precisions != PRECISIONS: return precisions
    made_at = {p: recordings.record(variant, p, example) for p in ("float32", "bfloat16")}
    one = len(groups(made_at, source.defaults)) == 1
    return precisions if one else (*precisions, AUTOCAST_ON_16_BITS)


def _working(recordings: Recordings, variant: Variant, precisions: tuple[str, ...], example: Example) -> tuple[str, ...]:
    """The precisions in which the module runs. Many of one's own do in float32 and under autocast alone: `torch.eye(64)` beside
    weights of 16 bits fails, complex ones have no such type, autocast refuses F.binary_cross_entropy."""
    def works(precision: str) -> bool:
        if precision.endswith("bfloat16") and any(p.is_complex() for p in recordings.built("float32").module.parameters()): return False
        try: recordings.record(variant, precision, example)
        except ValueNeeded: raise
        except Exception: return False
        return True

    recordings.record(variant, precisions[0], example)
    return (*precisions[:1], *(p for p in precisions[1:] if p in (variant.precisions or precisions) and works(p)))


def _for_checkpointing(recordings: Recordings, variants: list[Variant], precision: str, example: Example) -> list[Variant]:
    """The variants whose module makes other calls where it is told of checkpointing (T5's position bias needs a gradient
    then), as they are in that case."""
    plain = [v for v in variants if v.mode == "train" and not v.keys.get("cache")]
    if not plain or not recordings.built(precision).structure.checkpointing: return []

    def calls(variant: Variant) -> list[str]:
        return [event[1] for event in recordings.record(variant, precision, example).events if event[0] == "call"]

    if calls(plain[0]) == calls(replace(plain[0], checkpointing=True)): return []
    return [replace(v, checkpointing=True, keys={**v.keys, "checkpointing": True}) for v in plain]


def _caches_in_trainer(recordings: Recordings, variants: list[Variant], precision: str, example: Example) -> bool:
    """Whether there is a cache though config.use_cache is False on the module's own configuration, which is all that
    transformers' Trainer sets (trainer.py, 5.17): the part that looks has one of its own."""
    cached = next((v for v in variants if v.mode == "train" and v.keys.get("cache")), None)
    if cached is None: return False
    off = Variant(cached.mode, {"cache": False}, cached.inputs, cached.arguments, {"use_cache": False})
    built = recordings.built(precision)
    if all(config is built.module.config for config, _, _ in settings_of(built, off)): return False
    as_in_trainer = plain(recordings.record(replace(off, copies=False), precision, example).events)
    return as_in_trainer == plain(recordings.record(cached, precision, example).events)


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
    largest (where the module has a table of so many positions) and the smallest size of a symbol that the module takes, and what divides them. fixed: symbols that have one size,
    and why. depths: how the module is made with fewer layers; then most is recorded of these, where that is shown to be the same.
    not_compiled: why it is not recorded as torch.compile traces it.
    """
    how = _How(loss, dict(policies or {}), symbols, name, task, variants or [Variant("train"), Variant("eval", gradients=False)], precisions,
               sizes or {}, maxima or {}, minima or {}, fixed or {}, multiples or {}, step, not_compiled)
    recordings = Recordings(module_or_factory, how.policies, loss, step)
    with _calmly(): return Program(_program_of(recordings, example_inputs, how, depths))


@contextlib.contextmanager
def _calmly() -> Iterator[None]:
    """Python's collector of cycles looks at no object that there is already, and runs where a recording asks it alone. What is
    computed is small: threads would wait for each other."""
    was_collecting, had_frozen, threads = gc.isenabled(), gc.get_freeze_count(), torch.get_num_threads()
    gc.disable()
    gc.freeze()
    torch.set_num_threads(1)
    try: yield
    finally:
        torch.set_num_threads(threads)
        if not had_frozen: gc.unfreeze()
        if was_collecting: gc.enable()


def _program_of(recordings: Recordings, example_inputs: Any, how: _How, depths: Depths | None) -> dict[str, Json]:
    of_few = _stretched(recordings, example_inputs, how, depths) if depths is not None else None
    return of_few if of_few is not None else _recorded(recordings, example_inputs, how, _Found())


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


def _stretched(recordings: Recordings, example_inputs: Any, how: _How, depths: Depths) -> dict[str, Json] | None:
    """The program from those of the module with few layers (_stretch.py); None where the module's own passes are not what
    follows from theirs, or little would be saved."""
    if depths.count < _DEEP: return None
    source = Source(recordings.make, example_inputs, how.symbols)
    base = source.at(source.defaults)
    checked = list({(v.mode, *v.keys.items()): v for v in reversed(how.variants)}.values())
    checked += [replace(v, compiling=True) for v in checked if v.mode == "train"][:1]

    def once(of: Recordings) -> Json:
        """A pass of each of `checked` at one size and precision, and the description, as a program would have them."""
        found = [json.dumps(describe(of, how.precisions[:1]))]
        for variant in checked:
            made = of.record(variant, how.precisions[0], base)
            functions = Functions()
            entry = _forward(functions, merged_parts([(how.precisions[0], source.defaults)], [made]), variant)
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
            shallow, deep = plan.depths(periods)
            if shallow + _DEEPER * deep > 0.7 * depths.count: break
            few = [Recordings(depths.make(depths.count - depth, plan.head + (periods + more) * plan.period), how.policies, how.loss, how.step)
                   for more, depth in enumerate(plan.depths(periods))]
            try:
                one, two = map(once, few)
                if stretched(one, two, plan.times(periods)) != whole: continue
            except Mismatch: continue
            found = _Found()
            one, two = (json.loads(Program(content).to_json()) for content in (
                _recorded(few[0], example_inputs, how, found), _deeper(few[1], example_inputs, how, found)))
            return stretched(one, two, plan.times(periods))
    except Exception:  # the module's code may refuse fewer layers; what else is wrong shows in a recording of the whole
        return None
    return None


def _has_table(module: torch.nn.Module, count: int) -> bool:
    """Whether the module has a table of so many positions, behind which it fails; what is made of a position's number (rotary
    embeddings) has no end."""
    return any(isinstance(item, torch.Tensor) and "position" in f"{path}.{key}" and count in item.shape for path, part in module.named_modules()
               for key, item in {**part._parameters, **part._buffers, **vars(part)}.items())


@dataclass
class _Found:
    """What the recordings of a module have shown."""

    variants: list[Variant] = field(default_factory=list)      # which there are
    precisions: tuple[str, ...] = ()
    caches_in_trainer: bool = False
    passes: list[tuple[Variant, list[Made]]] = field(default_factory=list)
    fixed: dict[str, str] = field(default_factory=dict)        # of the symbols
    multiples: dict[str, int] = field(default_factory=dict)
    choices: dict[str, list[list[int]]] = field(default_factory=dict)
    not_compiled: str = ""
    is_apart: bool = False                                     # at a size of its own it makes other calls


def _deeper(recordings: Recordings, example_inputs: Any, how: _How, shallow: _Found) -> dict[str, Json]:
    """The program of a module with a period of layers more than that of which all is known. What was found out of a size by
    trying would name numbers of calls: then all is recorded."""
    if not shallow.is_apart and shallow.fixed.keys() == how.fixed.keys():
        try: return _recorded(recordings, example_inputs, how, _Found(), shallow)
        except Mismatch: pass
    return _recorded(recordings, example_inputs, how, _Found())


def _recorded(recordings: Recordings, example_inputs: Any, how: _How, found: _Found, shallow: _Found | None = None) -> dict[str, Json]:
    """The program from recordings of all that it holds, or what `shallow` does not tell; what these show goes into `found`."""
    name, task, variants, precisions, sizes = how.name, how.task, how.variants, how.precisions, how.sizes
    fixed, multiples, minima = dict(how.fixed), dict(how.multiples), dict(how.minima)
    module_or_factory = recordings.make
    source = Source(module_or_factory, example_inputs, how.symbols)
    first = recordings.built(precisions[0]).module
    maxima = {symbol: most for symbol, most in how.maxima.items() if _has_table(first, most)}
    base = source.at(source.defaults)
    if shallow is None and precisions == PRECISIONS: precisions = _working(recordings, variants[0], precisions, base)
    description = describe(recordings, precisions)
    functions = Functions()
    assumptions: dict[tuple[str, str], int] = {}
    by_nature = set(fixed)
    choices = {symbol: [list(given)] if isinstance(given[0], int) else [list(each) for each in given]
               for symbol, given in sizes.items()}
    several = {symbol for symbol, lists in choices.items() if len(lists) > 1}
    free = list(source.defaults)
    constants: list[Json] = []
    if shallow is not None: precisions, variants = shallow.precisions, shallow.variants
    else:
        precisions = _precisions(recordings, variants[0], precisions, source, base)
        if not any(v.checkpointing for v in variants): variants = variants + _for_checkpointing(recordings, variants, precisions[0], base)
    compiled = [replace(v, compiling=True) for v in variants if v.mode == "train" and not how.not_compiled]

    def passes(source: Source, fixed: dict[str, str], multiples: dict[str, int], choices: dict[str, list[list[int]]],
               needed: str = "") -> tuple[list[dict[str, Json]], dict[str, Json], str]:
        """The forward passes, the inputs, and why there are none as torch.compile traces them. `needed`: a symbol; as soon as
        that turns out to be fixed they are of no use."""
        solved: list[Solved] = []
        forwards: list[dict[str, Json]] = []
        inputs: dict[str, Json] = {}
        base = source.at(source.defaults)
        for variant in variants + compiled:
            if needed in fixed: break
            known: tuple[dict[str, Any], ...] = (fixed, multiples, choices)
            before = tuple(dict(each) for each in known)
            not_compiled = ""
            made_parts: list[Made] = []
            try:
                made_parts = variant_parts(recordings, source, variant, variant.precisions or precisions, solved, base, free, fixed,
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
            found.passes.append((variant, made_parts))
            add(variant, made_parts, forwards, inputs)
        return forwards, inputs, how.not_compiled

    def add(variant: Variant, made_parts: list[Made], forwards: list[dict[str, Json]], inputs: dict[str, Json]) -> None:
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
                if {str(met["dtype"].get("d")), str(described["dtype"].get("d"))} in ({"float32", "bfloat16"}, {"float32", "weights"}):
                    met["dtype"] = {"d": "weights"}
            for constant in parts[5]:
                if constant not in constants: constants.append(constant)

    forwards: list[dict[str, Json]] = []
    inputs: dict[str, Json] = {}
    if shallow is None: forwards, inputs, not_compiled = passes(source, fixed, multiples, choices)
    else:
        multiples, choices, not_compiled = dict(shallow.multiples), dict(shallow.choices), shallow.not_compiled
        for variant, made_parts in shallow.passes: add(variant, deeper_parts(recordings, variant, made_parts, base), forwards, inputs)
    for symbol in [s for s in choices if s in fixed.keys() - by_nature and not fixed[s].startswith(REFUSES)][:1]:
        # At its own size the module makes other calls than at all others (DiT has positions of that size alone).
        found.is_apart = True
        apart, sizes_apart = apart_at(source, symbol, choices[symbol])
        fixed_apart, multiples_apart = {s: why for s, why in fixed.items() if s != symbol}, dict(multiples)
        kept = len(functions.list)
        others, of_any_size, why = passes(apart, fixed_apart, multiples_apart, {**choices, symbol: sizes_apart}, needed=symbol)
        if symbol in fixed_apart or why != not_compiled:
            functions.forget(kept)
            continue
        size = {symbol: source.defaults[symbol]}
        forwards = [{**each, "at": size} for each in forwards] + [{**each, "not_at": size} for each in others]
        fixed, multiples, inputs = fixed_apart, multiples_apart, of_any_size
    found.fixed, found.multiples, found.choices, found.not_compiled = dict(fixed), dict(multiples), choices, not_compiled
    found.variants, found.precisions = variants, precisions
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
    found.caches_in_trainer = (shallow.caches_in_trainer if shallow is not None else
                               _caches_in_trainer(recordings, variants, precisions[0], base))
    if found.caches_in_trainer: content["caches_in_trainer"] = True
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
