"""A program of a deep model from those of shallow ones: what a further period of layers adds, added as often as is left.

Recording takes as long as the module has calls. Where layers repeat, the module with few of them makes the same calls, and
the programs of two depths say what one period (a layer, or one of each kind in their pattern) adds. That the deep module
goes on so is not taken for granted: `Depths.check` compares it with passes that were recorded at its full depth.
"""
from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass
from typing import Any, Callable

from ._description import _folded
from ._functions import fold
from ._solve import Mismatch

Json = Any
_NUMBER = re.compile(r"(\d+)")


def stretched(one: Json, two: Json, times: int) -> Json:
    """`grown` of programs or parts of them: equal layers stand one by one meanwhile."""
    return _folded_again(grown(_unfolded(one), _unfolded(two), times))


def grown(one: Json, two: Json, times: int) -> Json:
    """What stands `times` periods behind `two`, where `two` is one period more than `one`. Mismatch where that is not said
    by numbers that grow evenly and by items that repeat."""
    if type(one) is not type(two): raise Mismatch("kinds")
    if isinstance(two, dict):
        if list(one) != list(two): raise Mismatch("keys")
        return {key: grown(one[key], item, times) for key, item in two.items()}
    return _items(one, two, times) if isinstance(two, list) else _moved(two, one, two, times)


def _moved(item: Json, one: Json, two: Json, times: int) -> Json:
    """The item, whose numbers are as much further, `times` over, as those of `two` are than those of `one`."""
    if not type(item) is type(one) is type(two): raise Mismatch("kinds")
    if type(item) is int: return item + times * (two - one)
    if isinstance(item, str):
        parts = [_NUMBER.split(each) for each in (item, one, two)]
        if len({(len(each), *each[::2]) for each in parts}) > 1: raise Mismatch(f"{one!r} and {two!r}")
        return "".join(str(int(at) + times * (int(b) - int(a))) if i % 2 and a != b else at for i, (at, a, b) in enumerate(zip(*parts)))
    if isinstance(item, dict):
        if not list(item) == list(one) == list(two): raise Mismatch("keys")
        return {key: _moved(each, one[key], two[key], times) for key, each in item.items()}
    if isinstance(item, list):
        if not len(item) == len(one) == len(two): raise Mismatch("lengths")
        return [_moved(each, a, b, times) for each, a, b in zip(item, one, two)]
    if not item == one == two: raise Mismatch(f"{one!r} and {two!r}")
    return item


def _items(one: list[Json], two: list[Json], times: int) -> list[Json]:
    """Lists of which the longer one has, in some places, a period more: further ones follow from the two before."""
    if len(one) == len(two): return [grown(a, b, times) for a, b in zip(one, two)]
    shapes, others = [_shape(item) for item in one], [_shape(item) for item in two]
    if len({*shapes, *others}) == 1: return _numbers(one, two, times)
    made: list[Json] = []
    i = j = 0
    while i < len(one) or j < len(two):
        if i < len(one) and j < len(two) and shapes[i] == others[j]:
            made.append(grown(one[i], two[j], times))
            i, j = i + 1, j + 1
            continue
        added = next((n for n in range(1, len(two) - j + 1) if others[j - n:j] == others[j:j + n]
                      and shapes[i - n:i] == others[j:j + n] and shapes[i:i + _AHEAD] == others[j + n:j + n + _AHEAD]), None)
        if added is None or added > min(i, j): raise Mismatch("lists")
        made += _continued(one[i - added:i], two[j - added:j], two[j:j + added], times)
        j += added
    return made


_AHEAD = 8  # items that tell where two lists are the same again


def _continued(in_one: list[Json], before: list[Json], last: list[Json], times: int) -> list[Json]:
    """The periods behind `before`. What the whole has more of, shifts them as it shifts `before`, which is `in_one` there."""
    shifted = [grown(a, b, times) for a, b in zip(in_one, before)]
    return [_moved(item, a, b, more) for more in range(1, times + 2) for item, a, b in zip(shifted, before, last)]


def _numbers(one: list[Json], two: list[Json], times: int) -> list[Json]:
    """Of values alone: a period of them stands evenly behind the one before it, others may follow."""
    added = len(two) - len(one)
    for end in range(len(one), added - 1, -1):
        before, last = two[end - added:end], two[end:end + added]
        if len({_value(b) - _value(a) for a, b in zip(before, last)}) != 1: continue
        made = [grown(a, b, times) for a, b in zip(one[:end], two)] + _continued(one[end - added:end], before, last, times)
        return made + [grown(a, b, times) for a, b in zip(one[end:], two[end + added:])]
    raise Mismatch("numbers")


def _value(item: Json) -> int:
    if isinstance(item, dict) and "v" in item: item = item["v"]
    if type(item) is not int: raise Mismatch("no number")
    return item


def _shape(item: Json) -> str:
    """What of an item is the same one period later."""
    def inner(item: Json) -> Json:
        if isinstance(item, bool) or item is None: return item
        if isinstance(item, int): return 0
        if isinstance(item, str): return _NUMBER.sub("#", item)
        if isinstance(item, dict): return {key: inner(value) for key, value in item.items()}
        if isinstance(item, list): return [] if item and all(type(each) is int or isinstance(each, dict) and "v" in each for each in item) else [inner(each) for each in item]
        return item

    if isinstance(item, list) and item and item[0] == "layer": return json.dumps([item[:2], inner(item[2:])])
    return json.dumps(inner(item))


def _unfolded(item: Json) -> Json:
    """Programs' `layers` and `repeat` as what they stand for."""
    if isinstance(item, dict):
        return {key: [each for made in value for each in _one_by_one(made)] if key == "body" else _unfolded(value) for key, value in item.items()}
    if isinstance(item, list):
        return [_unfolded(each) for made in item for each in (_repeated(made) if isinstance(made, dict) and "repeat" in made else [made])]
    return item


def _repeated(entry: dict[str, Json]) -> list[Json]:
    made = []
    for number in range(entry["first"], entry["first"] + entry["count"]):
        path = entry["repeat"].replace("{}", str(number))
        for item in entry["items"]:
            for each in _repeated(item) if "repeat" in item else [item]:
                made.append({**each, "name": f"{path}.{each['name']}" if each["name"] else path})
    return made


def _one_by_one(made: Json) -> list[Json]:
    if made[0] != "layers": return [made]
    _, function, head, first, count, positional, keywords, results, drops = made
    given = {item["v"] for item in [*positional, *keywords.values()]}
    new = sum(n not in given for n in results)
    same = given - {positional[0]["v"]}
    found: list[Json] = []
    for i in range(count):
        found.append(["layer", function, head.replace("{}", str(first + i)), positional, keywords,
                      [n if n in same else n + i * new for n in results]])
        if drops and i + 1 < count: found.append(["drop", [positional[0]["v"]]])
        positional = [{"v": found[-2 if drops and i + 1 < count else -1][5][0]}, *positional[1:]]
    return found


def _folded_again(item: Json) -> Json:
    if isinstance(item, dict): return {key: fold(value) if key == "body" else _folded_again(value) for key, value in item.items()}
    if isinstance(item, list):
        if item and all(isinstance(each, dict) and "name" in each for each in item): return _folded(item)
        return [_folded_again(each) for each in item]
    return item


@dataclass
class Plan:
    """Layers from `head` on are repetitions of `period` layers, `tail` others follow: which depths are recorded."""

    depth: int
    head: int
    period: int
    tail: int

    def depths(self, periods: int) -> tuple[int, int]:
        return self.head + periods * self.period + self.tail, self.head + (periods + 1) * self.period + self.tail

    def times(self, periods: int) -> int:
        """How many periods the module has beyond the second of these depths."""
        return (self.depth - self.depths(periods)[1]) // self.period


def layers_of(body: list[Json], depth: int) -> list[int] | None:
    """The functions of the layers of the only list of `depth` modules whose items a forward pass calls once each, in order."""
    found: dict[str, list[tuple[int, int]]] = {}

    def of(body: list[Json]) -> None:
        for made in body:
            if made[0] == "layer":
                match = re.fullmatch(r"(.*?)(\d+)", made[2])
                if match: found.setdefault(match.group(1), []).append((int(match.group(2)), made[1]))
            elif made[0] == "layers" and made[2].endswith("{}"):
                found.setdefault(made[2][:-2], []).extend((made[3] + i, made[1]) for i in range(made[4]))
            elif made[0] == "loop": of(made[3])

    of(body)
    lists = [calls for calls in found.values() if [number for number, _ in calls] == list(range(depth))]
    return [function for _, function in lists[0]] if len(lists) == 1 else None


def plan_of(kinds: list[int]) -> Plan | None:
    """The plan that records the fewest layers; None where the kinds of the layers do not repeat."""
    depth, best = len(kinds), None
    for period in range(1, depth // 3 + 1):
        for head in range(0, depth // 3):
            end = head  # as far as layers are those of a period before
            while end + period < depth and kinds[end] == kinds[end + period]: end += 1
            repeats = (end + period - head) // period
            tail = depth - head - repeats * period
            if repeats < 4 or tail > 2 * period + 2: continue
            plan = Plan(depth, head, period, tail)
            if best is None or (head + tail + 2 * period) < (best.head + best.tail + 2 * best.period): best = plan
    return best


@dataclass
class Depths:
    """How a module is made with fewer of its layers."""

    count: int                                      # of the layers that it has
    make: Callable[[int, int], Callable[..., Any]]  # of how many are left out, and from which one on


def depths_of(config: Any, make: Callable[[Any], Callable[..., Any]]) -> Depths | None:
    """Of a configuration of transformers, and what makes a module of one; None where it does not say how many layers it has."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    count = getattr(text, "num_hidden_layers", None)
    if not isinstance(count, int) or (text is not config and all(part is not text for part in vars(config).values())): return None

    def shallower(left_out: int, first: int) -> Callable[..., Any]:
        """Lists with an item for each layer lose theirs, lists of layers theirs (Mllama's); numbers of layers at the start
        (first_k_dense_replace) stay."""
        made = copy.deepcopy(config)
        text = made.get_text_config()
        for key, value in list(vars(text).items()):
            if isinstance(value, list) and len(value) == count: setattr(text, key, value[:first] + value[first + left_out:])
        if isinstance(named := getattr(text, "cross_attention_layers", None), list):
            text.cross_attention_layers = [at - left_out * (at >= first) for at in named if not first <= at < first + left_out]
        text.num_hidden_layers = count - left_out
        return make(made)

    return Depths(count, shallower)
