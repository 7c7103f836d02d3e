"""Lists of as many tensors as a size says: `torch.cat(list(x))` as one call, which is equal at all sizes."""
from __future__ import annotations

from typing import Any, Callable

from ._loops import _changed, _numbers

Json = Any
Event = Any
_JOINS = ("torch.cat", "torch.stack")


def fold(events: list[Event], living: list[int]) -> tuple[list[Event], Callable[[int], int]]:
    """The events with {"unbind": [x, dimension]} in place of the list that `x.unbind(dimension)` made, where nothing but one
    join uses it; and what has become of each number. The parts are views: x lives as long as they did."""
    events = list(events)
    removed: list[int] = []
    for begin, event in enumerate(events):
        if event[0] != "call" or event[1] not in ("torch.Tensor.unbind", "torch.unbind") or len(event) > 5: continue
        if not event[4] or "v" not in event[2][0] or len(event[2]) > 2 or event[3]: continue
        _fold_one(events, begin, set(living), removed)
    if not removed: return events, lambda number: number

    def renumber(number: int) -> int: return number - sum(gone < number for gone in removed)

    return [_changed(event, renumber) for event in events if event[0] != "gone"], renumber


def _fold_one(events: list[Event], begin: int, living: set[int], removed: list[int]) -> None:
    call = events[begin]
    parts = [{"v": number} for number in call[4]]
    numbers = set(call[4])
    uses = [i for i in range(begin + 1, len(events)) if events[i][0] != "gone" and not numbers.isdisjoint(_numbers(events[i]))]
    drops = [i for i in uses if events[i][0] == "drop"]
    joins = [i for i in uses if events[i][0] != "drop"]
    if len(joins) != 1 or len(drops) != len(parts) or not numbers.isdisjoint(living): return
    join = events[joins[0]]
    if join[0] != "call" or join[1] not in _JOINS or not join[2] or list(join[2][0]) != parts: return
    if not numbers.isdisjoint(_numbers(["call", "", join[2][1:], join[3], join[4]])): return
    source, dimension = call[2][0], call[2][1] if len(call[2]) > 1 else 0
    events[joins[0]] = ["call", join[1], [{"unbind": [source, dimension]}, *join[2][1:]], *join[3:]]
    events[begin] = ["gone"]
    for i in drops: events[i] = ["gone"]
    own = next((i for i in range(begin, drops[-1]) if list(events[i]) == ["drop", source["v"]]), None)
    if own is not None: events[own], events[drops[-1]] = ["gone"], ["drop", source["v"]]
    removed += call[4]
