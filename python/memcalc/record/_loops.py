"""Loops of Python found again in a recording: a body that ran several times becomes one body and a count.

Only where the number of runs depends on the sizes: a recurrence over chunks of the sequence, a loop over images.
"""
from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass
from typing import Any, Callable

import torch

Json = Any
Event = list[Json]
Shifts = list[tuple[int, int]]
_LONGEST = 600  # events of a body
_SHORTEST = 4


class _Unequal(Exception):
    pass


def fold(events: list[Event], outputs: list[int]) -> tuple[list[Event], Callable[[int], int]]:
    """The events with loops, shorter bodies first, and what gives the new number of a value. `outputs`: values that live on."""
    shifts: Shifts = []

    def renumber(number: int) -> int:
        for last, gone in shifts:
            if number >= last: number -= gone
        return number

    known: dict[Any, int] = {}
    kinds = [known.setdefault(_skeleton(event), len(known)) for event in events]
    compared = torch.tensor(kinds)
    seen = _Seen(events, outputs)
    length = _SHORTEST
    while length <= min(_LONGEST, len(events) // 2):
        loops = _find(events, compared, length, seen)
        length += not loops  # what was folded may have made further ones
        if not loops: continue
        lasts = [loop.first + loop.shift * (loop.count - 1) for loop in loops]
        gone = [0, *itertools.accumulate(loop.shift * (loop.count - 1) for loop in loops)]
        shifts += [(last - before, after - before) for last, before, after in zip(lasts, gone, gone[1:])]

        def change(number: int) -> int: return number - gone[bisect.bisect_right(lasts, number)]

        folded, folded_kinds = events[:loops[0].start], kinds[:loops[0].start]
        for loop, following in zip(loops, [*(loop.start for loop in loops[1:]), len(events)]):
            made = _changed(["loop", loop.count, loop.carries, loop.body], change)
            folded += [made, *(_changed(event, change) for event in events[loop.end:following])]
            folded_kinds += [known.setdefault(_skeleton(made), len(known)), *kinds[loop.end:following]]
        events, kinds, compared = folded, folded_kinds, torch.tensor(folded_kinds)
        seen = _Seen(events, [renumber(number) for number in outputs])
    return events, renumber


@dataclass
class _Found:
    start: int
    end: int
    count: int
    shift: int                # numbers that a run makes
    carries: list[list[int]]
    body: list[Event]
    first: int                # the first of these numbers


class _Seen:
    """Where events name values."""

    def __init__(self, events: list[Event], outputs: list[int]) -> None:
        self.outputs = set(outputs)
        self.firsts = _first_numbers(events)
        self.numbers = [_numbers(event) for event in events]
        self.last_use = {number: place for place, numbers in enumerate(self.numbers) for number in numbers}
        self.dropped = {event[1]: place for place, event in enumerate(events) if event[0] == "drop"}

    def lives(self, number: int, behind: int) -> bool:
        return number in self.outputs or self.last_use.get(number, -1) >= behind


def _find(events: list[Event], kinds: torch.Tensor, length: int, seen: _Seen) -> list[_Found]:
    """Bodies of `length` events that ran at least twice in a row."""
    loops: list[_Found] = []
    differ = torch.nonzero(kinds[:-length] != kinds[length:]).flatten()
    edges = torch.cat((torch.tensor([-1]), differ, torch.tensor([len(events) - length])))
    runs = edges[1:] - edges[:-1] - 1
    for i in torch.nonzero(runs >= length).flatten().tolist():
        found = _fit(events, int(edges[i]) + 1, length, int(runs[i]) // length + 1, seen)
        if found is not None and (not loops or loops[-1].end <= found.start): loops.append(found)
    return loops


def _fit(events: list[Event], start: int, length: int, count: int, seen: _Seen) -> _Found | None:
    """A loop in events of equal kinds; the first runs are left out where they differ (nothing to drop yet)."""
    for begin in range(start, start + length * (count - 1) - length + 1):
        runs = (start + length * count - begin) // length
        while runs >= 2:
            found = _loop(events, begin, length, runs, seen)
            if found is not None: return found
            runs -= 1
        if begin - start > 2 * length: break
    return None


def _loop(events: list[Event], begin: int, length: int, runs: int, seen: _Seen) -> _Found | None:
    firsts, end = seen.firsts, begin + length * runs
    first = firsts[begin]
    shift = firsts[begin + length] - first
    if shift == 0 or any(firsts[begin + j * length] - first != shift * j for j in range(1, runs)): return None
    # What a run made is gone with the next one, and nothing behind the loop speaks of any run but the last.
    last = first + shift * (runs - 1)
    if any(not begin <= seen.dropped.get(n, -1) < end or seen.lives(n, end) for n in range(first, last)): return None
    block = events[begin:begin + length]
    if not _balanced(block): return None
    carried: set[int] = set()
    try:
        steps = [_stepped(one, other) for one, other in zip(block, events[begin + length:begin + 2 * length])]
        for j in range(1, runs):
            for i, now in enumerate(steps):
                place = begin + j * length + i
                for a, b in zip(seen.numbers[begin + i], seen.numbers[place], strict=True):
                    if b == a + shift * j:
                        if a < first: carried.add(a)
                    elif a != b or a >= first - shift and a in carried: return None
                if not _agrees(now, events[place], j): return None
    except (_Unequal, ValueError):
        return None
    if any(a < first - shift or not begin <= seen.dropped.get(a, -1) < end for a in carried): return None
    return _Found(begin, end, runs, shift, [[a + shift, a] for a in sorted(carried)], steps, first)


def _balanced(block: list[Event]) -> bool:
    """Modules and regions begin and end within one run."""
    depth = 0
    for event in block:
        depth += (event[0] in ("enter", "autocast", "grad", "checkpoint")) - (event[0] in ("leave", "autocast_end", "grad_end",
                                                                                          "checkpoint_end"))
        if depth < 0 or event[0] in ("custom", "set_grad"): return False
    return depth == 0


def _first_numbers(events: list[Event]) -> list[int]:
    """At each event, the number that the next new value gets."""
    made: list[int] = []
    following = 0
    for event in events:
        made.append(following)
        for number in _results(event): following = max(following, number + 1)
        if not made or event[0] == "enter":
            for number in _numbers(event): following = max(following, number + 1)
    made.append(following)
    return made


def _results(event: Event) -> list[int]:
    if event[0] == "call": return event[4]
    if event[0] == "loop": return [n for inner in event[3] for n in _results(inner)]
    if event[0] == "custom": return [n for item in event[3] if "v" in item for n in [item["v"]]] + event[7]
    return []


def _skeleton(item: Json) -> Any:
    """What is equal in all runs: everything but integers and the numbers of values."""
    if isinstance(item, dict):
        return "v" if "v" in item else tuple((key, _skeleton(value)) for key, value in item.items())
    if isinstance(item, (list, tuple)): return tuple(_skeleton(value) for value in item)
    return "i" if type(item) is int else item


def _refers(item: Json) -> list[int]:
    if isinstance(item, dict): return [item["v"]] if "v" in item else [n for value in item.values() for n in _refers(value)]
    return [n for value in item for n in _refers(value)] if isinstance(item, list) else []


def _numbers(event: Event) -> list[int]:
    """Values that the event names, its results too."""
    if event[0] == "drop": return [event[1]]
    if event[0] == "call": return _refers(event[2]) + _refers(event[3]) + event[4]
    if event[0] == "loop": return [n for inner in event[3] for n in _numbers(inner)] + [n for pair in event[2] for n in pair]
    return _refers(event[1:])


def _changed(event: Event, change: Callable[[int], int]) -> Event:
    """The event with other numbers for its values."""
    def inner(item: Json) -> Json:
        if isinstance(item, dict):
            return {"v": change(item["v"])} if "v" in item else {key: inner(value) for key, value in item.items()}
        return [inner(value) for value in item] if isinstance(item, list) else item

    if event[0] == "drop": return ["drop", change(event[1])]
    if event[0] == "call": return ["call", event[1], inner(event[2]), inner(event[3]), [change(n) for n in event[4]], *event[5:]]
    if event[0] == "loop":
        return ["loop", event[1], [[change(a), change(b)] for a, b in event[2]], [_changed(e, change) for e in event[3]]]
    if event[0] == "custom":
        made = [event[0], *(inner(item) for item in event[1:])]
        made[4], made[8] = [_changed(e, change) for e in event[4]], [_changed(e, change) for e in event[8]]
        made[7] = [change(n) for n in event[7]]
        return made
    return [event[0], *(inner(item) for item in event[1:])]


def _stepped(first: Event, second: Event) -> Event:
    """The first run's event, its integers as {"i": [first, step]} where the second has others."""
    if first[0] == "call":
        return ["call", first[1], _step(first[2], second[2]), _step(first[3], second[3]), first[4],
                *(_step(a, b) for a, b in zip(first[5:], second[5:]))]
    if first[0] == "loop":
        return ["loop", _step(first[1], second[1]), first[2], [_stepped(a, b) for a, b in zip(first[3], second[3])]]
    return first


def _step(first: Json, second: Json) -> Json:
    if isinstance(first, dict):
        if "v" in first: return first
        if "i" in first: return first if first == second else _fail()
        return {key: _step(first[key], second[key]) for key in first}
    if isinstance(first, list): return [_step(a, b) for a, b in zip(first, second)]
    if type(first) is int and first != second: return {"i": [first, second - first]}
    return first if first == second else _fail()


def _fail() -> Json:
    raise _Unequal


def _agrees(steps: Json, event: Json, run: int) -> bool:
    """Whether run number `run` is the first run with its steps taken."""
    if steps[0] == "call":
        return all(_at(a, b, run) for a, b in zip([steps[2], steps[3], *steps[5:]], [event[2], event[3], *event[5:]]))
    if steps[0] == "loop":
        return _at(steps[1], event[1], run) and all(_agrees(a, b, run) for a, b in zip(steps[3], event[3]))
    return True


def _at(steps: Json, item: Json, run: int) -> bool:
    if isinstance(steps, dict):
        if "v" in steps: return True
        if "i" in steps and type(item) is int: return steps["i"][0] + run * steps["i"][1] == item
        return all(_at(steps[key], item[key], run) for key in steps)
    if isinstance(steps, list): return all(_at(a, b, run) for a, b in zip(steps, item))
    return steps == item
