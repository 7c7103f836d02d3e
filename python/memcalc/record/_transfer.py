"""What is known of a pass that was recorded at several sizes, for another that makes the same calls."""
from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import Any

from ._solve import FOLLOWING, Mismatch

Json = Any
# What stands in the events as it was recorded.
_AS_MADE = frozenset("drop leave enter grad grad_end autocast autocast_end graph break".split())
_LAYER = re.compile(r'(?<=[."])\d+(?=[."])')  # of a path in a key
_AHEAD = 16  # events that tell where two recordings are the same again


@dataclass
class Solved:
    """A variant that was recorded at all sizes: as it was at the defaults, and merged."""

    group: tuple[str, ...]
    kind: Any        # what the variant is beside its inputs
    raw: list[Json]  # with loops where `parts` has them
    parts: list[Json]

    @functools.cached_property
    def keys(self) -> list[str]: return keys_of(self.raw)

    @functools.cached_property
    def has_counterparts(self) -> bool:
        """Whether each of its calls stands for one of another variant."""
        return not any(event[0] == "custom" for event in self.parts[0]) and len(self.raw[0]) == len(self.parts[0])

    @functools.cached_property
    def places(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place, key in enumerate(self.keys): found.setdefault(key, []).append(place)
        return found

    def different(self, key: str) -> list[int]:
        """The places of a call that have expressions of their own, each once."""
        if key not in self._different:
            self._different[key] = list({_key(self.parts[0][place]): place for place in self.places.get(key, ())}.values())
        return self._different[key]

    @functools.cached_property
    def _different(self) -> dict[str, list[int]]: return {}


@dataclass
class Transferred:
    """The merged parts of a variant that was recorded at one size alone."""

    parts: list[Json]
    has_types: bool  # whether they are known to be right in all precisions, too


def keys_of(parts: list[Json]) -> list[str]: return [_key(event) for event in parts[0]]


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


def transferred(like: Solved, kind: Any, now: list[Json], keys: list[str], others: list[Solved]) -> Transferred | None:
    """`now`, of the keys, with the expressions of the solved variant, where both make the same calls, or one that `others` make
    and never with other expressions. None where a call with integers or types has no counterpart.

    Of a variant that differs from the solved one in its inputs alone, types are those of the solved one: what an input adds
    are calls of others that name no type of computed values.
    """
    if not like.has_counterparts: return None
    events: list[Json] = []
    at = 0
    has_types = kind == like.kind
    for event, key in zip(now[0], keys):
        if event[0] in _AS_MADE:
            events.append(event)
            continue
        place = next((i for i in like.places.get(key, ()) if at <= i < at + 400), None)
        if place is not None:
            at = place + 1
            try: events.append(_expressed(like, place, event))
            except Mismatch: return None
            continue
        made = [_expressed(other, i, event) for other in others if other is not like for i in other.different(key)]
        if made and all(each == made[0] for each in made):
            has_types = has_types and not _has_following(made[0])
            events.append(made[0])
        else:
            if _has_sizes(event[2:4] + event[5:] if event[0] == "call" else event[1:]): return None
            has_types = False
            events.append(event)
    parts = _with_rest([like, *others], now, events)
    return None if parts is None else Transferred(parts, has_types)


def _expressed(like: Solved, place: int, event: Json) -> Json:
    return [_with_expressions(b, s, n) for b, s, n in zip(like.raw[0][place], like.parts[0][place], event)]


def _has_following(item: Json) -> bool:
    """Whether a type is named that follows the precision."""
    if isinstance(item, dict): return item.get("d") in FOLLOWING or any(map(_has_following, item.values()))
    return isinstance(item, (list, tuple)) and any(map(_has_following, item))


def deeper(shallow: Solved, now: list[Json]) -> list[Json] | None:
    """`now`, of a module with more layers, with the expressions of the same variant of one with fewer: a further period of
    layers has those of the period before it. None where that is not what was recorded."""
    if not shallow.has_counterparts: return None
    places = _aligned([_LAYER.sub("#", key) for key in shallow.keys], [_LAYER.sub("#", key) for key in keys_of(now)])
    if places is None: return None
    try: events = [event if event[0] in _AS_MADE else _expressed(shallow, place, event) for event, place in zip(now[0], places)]
    except Mismatch: return None
    return _with_rest([shallow], now, events)


def _aligned(one: list[str], two: list[str]) -> list[int] | None:
    """Of each item of `two` the place in `one` of the same, or of the one that stands a period earlier."""
    places: list[int] = []
    i = j = 0
    while i < len(one) or j < len(two):
        if i < len(one) and j < len(two) and one[i] == two[j]:
            places.append(i)
            i, j = i + 1, j + 1
            continue
        added = next((n for n in range(1, min(i, j, len(two) - j) + 1) if two[j - n:j] == two[j:j + n] == one[i - n:i]
                      and one[i:i + _AHEAD] == two[j + n:j + n + _AHEAD]), None)
        if added is None: return None
        places += range(i - added, i)
        j += added
    return places


def _with_rest(likes: list[Solved], now: list[Json], events: list[Json]) -> list[Json] | None:
    """All parts of `now`, of which the events are known."""
    inputs = {item["name"]: item for like in reversed(likes) for item in like.parts[1]}
    if any(item["name"] not in inputs for item in now[1]) or now[5] != likes[0].raw[5]: return None
    described = [{**inputs[item["name"]], "number": item["number"]} for item in now[1]]
    return [events, described, now[2], now[3], now[4], likes[0].parts[5]]


def has_types(solved: Json, made: Json, precision: str) -> bool:
    """Whether what was recorded at the precision has the types of the solved events: where a cache joins keys and values,
    the values may become float32 under autocast, and without it not."""
    if isinstance(solved, dict) and "d" in solved:
        following = FOLLOWING.get(solved["d"])
        return isinstance(made, dict) and made.get("d") == (following[precision] if following else solved["d"])
    if isinstance(solved, dict):
        if "v" in solved or not isinstance(made, dict): return True
        return all(has_types(item, made.get(key), precision) for key, item in solved.items())
    if isinstance(solved, (list, tuple)):
        if not isinstance(made, (list, tuple)) or len(made) != len(solved): return False
        return all(has_types(s, m, precision) for s, m in zip(solved, made))
    return True


def _has_sizes(item: Json) -> bool:
    if isinstance(item, dict): return "d" in item or ("v" not in item and any(_has_sizes(value) for value in item.values()))
    if isinstance(item, (list, tuple)): return any(_has_sizes(value) for value in item)
    return type(item) is int and (item > 0 or item < -4)  # -1 and the like are dimensions, 1 may be the batch


def _with_expressions(before: Json, solved: Json, now: Json) -> Json:
    if isinstance(now, dict):
        if "v" in now or "p" in now: return now
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
