"""From a flat recording to functions: a layer's calls become a function of its own, equal functions are one."""
from __future__ import annotations

import json
from typing import Any

Json = Any
Event = tuple[Any, ...]


class Functions:
    """The functions of a program, each once."""

    def __init__(self) -> None:
        self.list: list[Json] = []
        self._index: dict[str, int] = {}

    def add(self, function: Json) -> int:
        key = json.dumps(function, sort_keys=True, separators=(",", ":"))
        if key not in self._index:
            self._index[key] = len(self.list)
            self.list.append(function)
        return self._index[key]

    def forget(self, count: int) -> None:
        """All but the first `count`."""
        del self.list[count:]
        self._index = {key: place for key, place in self._index.items() if place < count}


def build(functions: Functions, events: list[Event], inputs: dict[str, int], results: list[int]) -> tuple[int, dict[int, int]]:
    """The index of the function that the events make, and its own number of each value."""
    body = _Body(functions, "", [], inputs)
    body.add(events)
    return body.finish([{"v": number} for number in results]), body.local


class _Body:
    def __init__(self, functions: Functions, path: str, positional: list[Json], keywords: dict[str, Any]) -> None:
        self.functions, self.path = functions, path
        self.local: dict[int, int] = {}
        self.instructions: list[Json] = []
        self.created: set[int] = set()
        self.dead: set[int] = set()
        self.captured: list[int] = []
        self.given: list[int] = []
        self.keywords: list[str] = []
        for item in positional:
            if "v" in item: self._input(item["v"])
        self.positional = len(self.given)
        for name, item in keywords.items():
            number = item.get("v") if isinstance(item, dict) else item
            if number is None or number in self.local: continue
            self.keywords.append(name)
            self._input(number)
        self._renamed: dict[int, int] = {}

    def _input(self, number: int) -> None:
        if number in self.local: return
        self.local[number] = len(self.local)
        self.given.append(number)

    def _number(self, number: int) -> int:
        """Values of the outside that are not passed get their place behind the passed ones in `finish`."""
        if number not in self.local:
            self.local[number] = -1 - len(self.captured)
            self.captured.append(number)
        return self.local[number]

    def _create(self, number: int) -> Json:
        if number not in self.local:
            self.created.add(number)
            self.local[number] = 1_000_000_000 + len(self.created)  # the final numbers follow the inputs'
        return self.local[number]

    def _encode(self, item: Json) -> Json:
        if isinstance(item, dict):
            if "v" in item: return {"v": self._number(item["v"])}
            if "p" in item: return {"p": self._parameter(item["p"])}
            return {key: self._encode(value) for key, value in item.items()}
        if isinstance(item, list): return [self._encode(value) for value in item]
        return item

    def _relative(self, path: str) -> str:
        if not self.path: return path
        return path[len(self.path) + 1:] if path.startswith(self.path + ".") else "/" + path

    _parameter = _relative

    def add(self, events: list[Event]) -> None:
        i = 0
        while i < len(events):
            event = events[i]
            if event[0] == "enter" and event[5] and event[1] != self.path:
                end = _matching(events, i, "enter", "leave")
                self._layer(events[i], events[i + 1:end], events[end][1])
                i = end
            elif event[0] == "enter":
                self.instructions.append(["enter", self._relative(event[1]), event[2]])
            elif event[0] == "leave": self.instructions.append(["leave"])
            elif event[0] == "drop":
                self.dead.add(event[1])
                number = self._number(event[1])
                if self.instructions and self.instructions[-1][0] == "drop": self.instructions[-1][1].append(number)
                else: self.instructions.append(["drop", [number]])
            elif event[0] == "call":
                arguments, keywords = self._encode(event[2]), self._encode(event[3])
                made = ["call", event[1], arguments, keywords, [self._create(number) for number in event[4]]]
                self.instructions.append(made + list(event[5:]))
            elif event[0] == "custom": self._custom(event)
            elif event[0] == "checkpoint":
                end = _matching(events, i, "checkpoint", "checkpoint_end")
                self._region(event, events[i + 1:end], events[end][1])
                i = end
            elif event[0] == "loop":
                outer, self.instructions = self.instructions, []
                self.add(event[3])
                body, self.instructions = self.instructions, outer
                carries = [[self._number(a), self._number(b)] for a, b in event[2]]
                self.instructions.append(["loop", event[1], carries, body])
            else:
                self.instructions.append(list(event))
            i += 1

    def _custom(self, event: Event) -> None:
        """A custom autograd function: forward from its tensors, backward from the gradients and what was saved."""
        _, name, given, results, forward, saved, attributes, incoming, backward, outgoing, answers = event
        body = _Body(self.functions, self.path, [item for item in given if "v" in item], {})
        body.add(forward)
        kept = [item["v"] for item in [*results, *saved, *attributes] if "v" in item]
        ends = list(dict.fromkeys(kept))
        arguments = [{"v": self._number(number)} for number in [*body.given, *body.captured]]
        self.dead |= body.dead - body.created
        index = body.finish([{"v": number} for number in ends])
        made: dict[str, Json] = {"saved": [self._place(item, ends) for item in saved],
                                 "attributes": [self._place(item, ends) for item in attributes]}
        if incoming:
            back = _Body(self.functions, self.path, [{"v": number} for number in incoming],
                         {f"saved.{i}": item for i, item in enumerate([*saved, *attributes]) if "v" in item})
            back.add(backward)
            returned = [item for item in outgoing if item is not None]
            if not back.captured:  # else it uses what neither ctx nor the gradients hold, and memcalc refuses it
                made["backward"] = back.finish(returned)
            made["inputs"] = self._encode(answers["inputs"])
            made["differentiable"] = answers["differentiable"]
            if answers["asked"]: made["needs"] = answers["needs"]
            if not answers["materialize"]: made["materialize"] = False
        self.instructions.append(["custom", name, index, arguments, [self._create(item["v"]) for item in results if "v" in item],
                                  made])

    def _place(self, item: Json, ends: list[int]) -> Json:
        """A saved tensor: the place among the forward function's results, or a parameter."""
        return {"p": self._relative(item["p"])} if "p" in item else ends.index(item["v"])

    def _layer(self, enter: Event, events: list[Event], returned: list[Json]) -> None:
        _, path, _, positional, keywords, _ = enter
        index, arguments, named, results, _ = self._called(path, positional, keywords, events, returned)
        self.instructions.append(["layer", index, self._relative(path), arguments, named,
                                  [self._create(number) for number in results]])

    def _region(self, begin: Event, events: list[Event], returned: list[Json]) -> None:
        """A region of torch.utils.checkpoint: what it uses of the outside and is not given, its function holds."""
        _, reentrant, positional, keywords = begin
        index, arguments, named, results, dead = self._called(self.path, positional, keywords, events, returned)
        self.instructions.append(["checkpoint", reentrant, index, arguments, named,
                                  [self._create(number) for number in results]])
        if dead: self.instructions.append(["drop", [self._number(number) for number in dead]])

    def _called(self, path: str, positional: list[Json], keywords: dict[str, Json], events: list[Event],
                returned: list[Json]) -> tuple[int, list[Json], dict[str, Json], list[int], list[int]]:
        """A function of its own: its index, what it is given, what it makes, and what of the outside dies in it."""
        body = _Body(self.functions, path, positional, keywords)
        body.add(events)
        escaped = [number for number in body.local if number in body.created and number not in body.dead]
        wanted = [item["v"] for item in returned if "v" in item]
        results = list(dict.fromkeys(wanted + [n for n in escaped if n not in wanted]))
        arguments = [{"v": self._number(number)} for number in body.given[:body.positional]]
        named = {name: {"v": self._number(number)}
                 for name, number in zip(body.keywords, body.given[body.positional:])}
        named.update({f"captured.{i}": {"v": self._number(number)} for i, number in enumerate(body.captured)})
        dead = sorted(body.dead - body.created)
        self.dead |= set(dead)
        return body.finish([{"v": number} for number in results]), arguments, named, results, dead

    def finish(self, results: list[Json]) -> int:
        outer = len(self.given)
        count = outer + len(self.captured)

        def final(number: int) -> int:
            if number < 0: return outer - 1 - number
            return number if number < 1_000_000_000 else count + number - 1_000_000_001

        def renumber(item: Json) -> Json:
            if isinstance(item, dict):
                if "v" in item: return {"v": final(item["v"])}
                return {key: renumber(value) for key, value in item.items()}
            return [renumber(value) for value in item] if isinstance(item, list) else item

        ends = [final(self._number(item["v"])) for item in results]
        def finish_all(instructions: list[Json]) -> None:
            for made in instructions: finish_one(made)

        def finish_one(made: Json) -> None:
            if made[0] == "loop":
                made[2] = [[final(a), final(b)] for a, b in made[2]]
                finish_all(made[3])
            elif made[0] == "call": made[2:5] = [renumber(made[2]), {key: renumber(value) for key, value in made[3]}, [final(n) for n in made[4]]]
            elif made[0] == "custom":
                made[3:5] = [renumber(made[3]), [final(n) for n in made[4]]]
                if "inputs" in made[5]: made[5]["inputs"] = renumber(made[5]["inputs"])
            elif made[0] == "drop": made[1] = [final(n) for n in made[1]]
            elif made[0] in ("layer", "checkpoint"): made[3:6] = [renumber(made[3]), renumber(made[4]), [final(n) for n in made[5]]]
        finish_all(self.instructions)
        names = self.keywords + [f"captured.{i}" for i in range(len(self.captured))]
        self.local = {number: final(local) for number, local in self.local.items()}
        function: Json = {"inputs": self.positional, "keywords": names, "body": fold(self.instructions), "results": ends}
        return self.functions.add(function)


# The Trainer's count of labels goes through all layers of transformers' models, which do nothing with it, and its loop holds it.
_PASSED_ON = "num_items_in_batch"
_PLACES = {"layer": (1, 4), "layers": (1, 6), "checkpoint": (2, 4), "custom": (2, None)}  # of the function, and of its keywords


def shared(functions: list[Json], forwards: list[Json]) -> list[Json]:
    """The functions without a count of labels that they are given and do not use: then those that differ in it alone are one.
    `forwards` call them by their new numbers."""
    mains = {forward["function"] for forward in forwards}
    made = Functions()
    places: list[int] = []
    without: list[bool] = []
    for i, function in enumerate(functions):
        body = [_called_anew(each, places, without) for each in function["body"]]
        keywords = function["keywords"]
        number = function["inputs"] + keywords.index(_PASSED_ON) if _PASSED_ON in keywords else -1
        used = set(function["results"])
        for each in body: _with_values(each, lambda n: used.add(n) or n)  # type: ignore[func-returns-value]
        without.append(i not in mains and number >= 0 and number not in used)
        if without[-1]:
            def change(n: int, gone: int = number) -> int: return n - (n > gone)
            body = [_with_values(each, change) for each in body]
            function = {**function, "keywords": [name for name in keywords if name != _PASSED_ON],
                        "results": [change(n) for n in function["results"]]}
        places.append(made.add({**function, "body": body}))
    for forward in forwards: forward["function"] = places[forward["function"]]
    return made.list


def _called_anew(made: Json, places: list[int], without: list[bool]) -> Json:
    """The instruction with the new number of the function that it calls, and without what that is no longer given."""
    if made[0] == "loop": return [*made[:3], [_called_anew(each, places, without) for each in made[3]]]
    if made[0] not in _PLACES: return made
    function, keywords = _PLACES[made[0]]
    made, called = list(made), made[function]
    made[function] = places[called]
    if keywords is not None and without[called]:
        made[keywords] = {name: item for name, item in made[keywords].items() if name != _PASSED_ON}
    if made[0] == "custom" and "backward" in made[5]: made[5] = {**made[5], "backward": places[made[5]["backward"]]}
    return made


def _with_values(made: Json, change: Any) -> Json:
    """The instruction with other numbers for its values."""
    def inner(item: Json) -> Json:
        if isinstance(item, dict): return {"v": change(item["v"])} if "v" in item else {key: inner(value) for key, value in item.items()}
        return [inner(value) for value in item] if isinstance(item, list) else item

    def numbers(items: list[int]) -> list[int]: return [change(n) for n in items]

    if made[0] == "call": return [*made[:2], inner(made[2]), inner(made[3]), numbers(made[4]), *made[5:]]
    if made[0] == "drop": return ["drop", numbers(made[1])]
    if made[0] == "loop": return ["loop", made[1], [numbers(pair) for pair in made[2]], [_with_values(each, change) for each in made[3]]]
    if made[0] in ("layer", "checkpoint"): return [*made[:3], inner(made[3]), inner(made[4]), numbers(made[5])]
    if made[0] == "layers": return [*made[:5], inner(made[5]), inner(made[6]), numbers(made[7]), *made[8:]]
    if made[0] == "custom":
        answers = {**made[5], "inputs": inner(made[5]["inputs"])} if "inputs" in made[5] else made[5]
        return [*made[:3], inner(made[3]), numbers(made[4]), answers]
    return made


def _matching(events: list[Event], start: int, begins: str, ends: str) -> int:
    depth = 0
    for i in range(start, len(events)):
        depth += (events[i][0] == begins) - (events[i][0] == ends)
        if depth == 0: return i
    raise AssertionError(f"{begins} without {ends}")


def fold(body: list[Json]) -> list[Json]:
    """Runs of equal layers, each fed by the one before, as one instruction."""
    folded: list[Json] = []
    i = 0
    while i < len(body):
        count, drops, used = _run(body, i)
        if count >= (2 if drops else 3):
            _, function, path, positional, keywords, results = body[i]
            head, number = _split(path)
            folded.append(["layers", function, head, number, count, positional, keywords, results, drops])
            i += used
        else:
            folded.append(body[i])
            i += 1
    return folded


def _split(path: str) -> tuple[str, int]:
    """`encoder.layer.3` is 3 of `encoder.layer.{}`; the last part of the path that ends in a number is taken."""
    parts = path.split(".")
    for i in range(len(parts) - 1, -1, -1):
        name = parts[i].rstrip("0123456789")
        if name != parts[i]: return ".".join([*parts[:i], name + "{}", *parts[i + 1:]]), int(parts[i][len(name):])
    return path, -1


def _run(body: list[Json], start: int) -> tuple[int, bool, int]:
    """(layers in the run, whether each one's first input is dropped behind it, instructions in the run)"""
    first = body[start]
    if first[0] != "layer" or not first[3] or not first[5]: return 0, False, 0
    head, number = _split(first[2])
    given = {item["v"] for item in [*first[3], *first[4].values()]}
    new = [n for n in first[5] if n not in given]
    if number < 0 or not new or first[5][0] != new[0] or new != list(range(new[0], new[0] + len(new))): return 0, False, 0
    same = given - {first[3][0]["v"]}
    if any(n not in same and n not in new for n in first[5]): return 0, False, 0
    count, at, drops = 1, start, False
    while True:
        now = body[at]
        after = at + 1
        dropped = after < len(body) and body[after] == ["drop", [now[3][0]["v"]]]
        if dropped: after += 1
        if after >= len(body) or (count > 1 and dropped != drops): break
        expected = ["layer", first[1], head.replace("{}", str(number + count)), [{"v": now[5][0]}, *first[3][1:]], first[4],
                    [n if n in same else n + len(new) for n in now[5]]]
        if body[after] != expected: break
        drops, at, count = dropped, after, count + 1
    return count, drops, at - start + 1
