"""The passes of a variant at several sizes and precisions as one."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

from ._loops import fold as fold_loops
from ._recordings import Example, Recordings, Variant
from ._run import Recording
from ._sizes import Source, other_sizes, points as points_of
from ._solve import Merger, Mismatch, Sizes
from ._transfer import Solved, Transferred, deeper, has_types, keys_of, transferred
from ._unbound import fold as fold_unbound

Json = Any
REFUSES = "the module refuses"
# Precisions, the merged parts of the variant in these, and its recording in the first of them.
Made = tuple[tuple[str, ...], list[Json], Recording]


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
    events, renumber = fold_unbound(plain(made.events), living + made.held + made.cycles)
    outputs = [(name, renumber(found) if isinstance(found, int) else [renumber(n) for n in found])
               for name, found in made.outputs.items()]
    return [events, made.inputs, outputs, [renumber(n) for n in made.held], [renumber(n) for n in made.cycles], made.constants]


def plain(events: list[tuple[Any, ...]]) -> list[Json]:
    return [list(event) for event in events]


def merged_parts(keys: list[tuple[str, Sizes]], recordings: list[Recording]) -> list[Json]:
    lists = [_parts(made) for made in recordings]
    if len(lists) == 1 and keys[0][0] == "float32": return lists[0]  # there is nothing to be told apart
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
            names = [str(event[1]) for event in events if event[0] == "call"]
            what = f": {' or '.join(dict.fromkeys(names))}" if names else ""
            return f"at another size the module makes other calls (number {i} of its recording{what})"
    return "at another size the module makes more or fewer calls"


def groups(made_at: dict[str, Recording], sizes: Sizes) -> list[list[str]]:
    """Precisions whose recordings are one program."""
    groups: list[list[str]] = []
    for precision in made_at:
        for group in groups:
            members = [*group, precision]
            try:
                merged_parts([(p, sizes) for p in members], [made_at[p] for p in members])
            except Mismatch:
                continue
            group.append(precision)
            break
        else:
            groups.append([precision])
    return groups


def variant_parts(recordings: Recordings, source: Source, variant: Variant, precisions: tuple[str, ...],
                  solved: list[Solved], base: Example, free: list[str], fixed: dict[str, str], multiples: dict[str, int],
                  choices: dict[str, list[list[int]]]) -> list[Made]:
    """The parts of a variant for each group of precisions. One that is like a solved one needs no further sizes."""
    known = list(dict.fromkeys(s.group for s in solved))
    kind = repr(replace(variant, inputs=None))
    cached: dict[str, Recording] = {}
    found: list[Made] = []
    for group in known:
        made = cached[group[0]] = recordings.record(variant, group[0], base)
        like = _like([s for s in reversed(solved) if s.group == group], kind, made)
        if like is None: break
        if not like.has_types:
            for precision in group[1:]: cached[precision] = recordings.record(variant, precision, base)
            if not all(has_types(like.parts[0], parts_like(like.parts, cached[p])[0], p) for p in group[1:]): break
        found.append((group, like.parts, made))
    else:
        if known and {p for group in known for p in group} == set(precisions):
            solved += [Solved(group, kind, parts_like(parts, made), parts) for group, parts, made in found]
            return found
    made_at = {p: cached.get(p) or recordings.record(variant, p, base) for p in precisions}
    found = []
    for members in groups(made_at, source.defaults):
        parts = _solve(recordings, source, variant, members, made_at, free, fixed, multiples, choices)
        solved.append(Solved(tuple(members), kind, parts_like(parts, made_at[members[0]]), parts))
        found.append((tuple(members), parts, made_at[members[0]]))
    return found


def _like(solved: list[Solved], kind: str, made: Recording) -> Transferred | None:
    """What is known of the recording from solved variants: first from those that differ in their inputs alone, first from one."""
    known: dict[bool, tuple[list[Json], list[str]]] = {}
    for is_of_kind in (True, False):
        for others in ([], solved):
            for like in solved:
                if (like.kind == kind) != is_of_kind: continue
                has_loops = _has_loops(like.parts)
                if has_loops not in known:
                    parts = parts_like(like.parts, made)
                    known[has_loops] = (parts, keys_of(parts))
                found = transferred(like, kind, *known[has_loops], [s for s in others if _has_loops(s.parts) == has_loops])
                if found is not None: return found
    return None


def deeper_parts(recordings: Recordings, variant: Variant, shallow: list[Made], base: Example) -> list[Made]:
    """The same of a module with a period more of layers, from one pass for each group. `shallow`: of the module with fewer.
    Mismatch where that is not enough."""
    found: list[Made] = []
    for group, solved, made in shallow:
        now = recordings.record(variant, group[0], base)
        parts = deeper(Solved(group, None, parts_like(solved, made), solved), parts_like(solved, now))
        if parts is None: raise Mismatch("layers")
        found.append((group, parts, now))
    return found


def parts_like(solved: list[Json], made: Recording) -> list[Json]:
    """The parts of a recording, with loops where solved ones have them."""
    return _parts_with_loops(made) if _has_loops(solved) else _parts(made)


def _has_loops(parts: list[Json]) -> bool: return any(event[0] == "loop" for event in parts[0])


def _solve(recordings: Recordings, source: Source, variant: Variant, group: list[str], made_at: dict[str, Recording],
           free: list[str], fixed: dict[str, str], multiples: dict[str, int],
           choices: dict[str, list[list[int]]]) -> list[Json]:
    """The merged parts of a variant; a symbol that cannot be freed is fixed. Of `choices` those lists go that give no
    program."""
    keys = [(p, source.defaults) for p in group]
    at_base = [made_at[p] for p in group]
    cache: dict[tuple[int, ...], Recording] = {}

    def attempt(names: list[str], multiple: dict[str, int], chosen: dict[str, list[int]] | None = None) -> list[Json]:
        chosen = {**{s: lists[0] for s, lists in choices.items()}, **(chosen or {})}
        others = {s: other_sizes(s, source.defaults[s], multiple.get(s, 1), chosen) for s in names}
        points = points_of(source.defaults, names, others)[1:]
        made: list[Recording] = []
        for point in points:
            key = tuple(point[s] for s in sorted(point))
            if key not in cache:
                try:
                    cache[key] = recordings.record(variant, group[0], source.at(point))
                except Exception as error:  # the module's own code refuses this size
                    raise Mismatch(f"{REFUSES} another: {type(error).__name__}: {error}"[:300]) from error
            made.append(cache[key])
        return merged_parts(keys + [(group[0], point) for point in points], at_base + made)

    names = [s for s in free if s not in fixed]
    reasons: dict[str, str] = {}
    try:
        return attempt(names, multiples)
    except Mismatch:
        pass  # below each symbol for itself
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
    return merged_parts(keys, at_base)


def _fits(attempt: Callable[..., Any], symbol: str, multiples: dict[str, int], sizes: list[int] | None = None) -> bool:
    try:
        attempt([symbol], multiples, {symbol: sizes} if sizes else None)
    except Mismatch:
        return False
    return True


def _choose(choices: dict[str, list[list[int]]], symbol: str, sizes: list[int]) -> bool:
    choices[symbol] = [sizes]  # other variants are of these, too: a symbol has one minimum
    return True
