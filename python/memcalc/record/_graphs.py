"""Where torch.compile breaks a forward pass, as Dynamo does (torch/_dynamo/symbolic_convert.py, 2.11, nested_graph_breaks off).

A call that Dynamo cannot trace breaks every frame of Python that it lies in. A frame goes on behind the call that broke it
in a graph of its own, where Dynamo can write such a function; in a loop, a `try`, or at another instruction it cannot, and
the frame runs in eager mode as a whole. A frame that is called from there is compiled by itself, but for those of files that
Dynamo skips: torch's own.
"""
from __future__ import annotations

import dis
import os
import sys
from collections import Counter, defaultdict
from types import CodeType, FrameType
from typing import Any, Callable, Iterable

from ._functions import _matching
from ._loops import _numbers, _results
from ._values import refused

Event = tuple[Any, ...]
Chain = tuple[tuple["_Frame", int], ...]  # from the outermost frame on: a frame and the instruction that it is at
_HERE = os.path.dirname(os.path.abspath(__file__))
# Decorated with break_graph_if_unsupported, and generic_jump, which only a tensor's truth itself breaks at.
_RESUMED = frozenset("""CALL CALL_KW CALL_FUNCTION CALL_FUNCTION_KW CALL_METHOD CALL_FUNCTION_EX STORE_ATTR STORE_SUBSCR
    BINARY_SUBSCR""".split())
_JUMPS = frozenset(name for name in dis.opmap if "JUMP" in name and ("IF_TRUE" in name or "IF_FALSE" in name))


class _Frame:
    """One run of a function of Python."""

    __slots__ = ("code", "eager_from", "breaks", "regions")

    def __init__(self, code: CodeType) -> None:
        self.code = code
        # How often it has been broken, and the instruction from which on it runs in eager mode. None: it does not.
        self.eager_from: tuple[int, int] | None = (0, -1) if _is_skipped(code) else None
        self.breaks: list[int] = []  # places behind which it goes on in a graph
        self.regions = 0  # contexts of torch that it has entered and not left

    def __call__(self, *_: Any) -> None: return None  # what a frame's f_trace is called with, if anybody traces


_skipped: dict[CodeType, bool] = {}


def _is_skipped(code: CodeType) -> bool:
    if code not in _skipped:
        from torch._dynamo import trace_rules
        _skipped[code] = bool(trace_rules.check(code))
    return _skipped[code]


class Events(list):  # type: ignore[type-arg]
    """Events of a recording as torch.compile traces it: with the frames of Python that each came from."""

    def __init__(self, outermost: CodeType, loss: CodeType) -> None:
        super().__init__()
        self.chains: list[Chain] = []
        self.breaks: dict[int, str] = {}  # places of calls that Dynamo does not trace, and why
        self.contexts: set[int] = set()   # of these, those that enter a context
        self._outermost, self._loss = outermost, loss

    def append(self, event: Event) -> None:
        super().append(event)
        self.chains.append(() if event[0] == "drop" else self._chain(sys._getframe(1)))

    def break_at_next(self, why: str, is_context: bool = False) -> None:
        self.breaks[len(self)] = why
        if is_context: self.contexts.add(len(self))

    def _chain(self, frame: FrameType | None) -> Chain:
        found: list[tuple[_Frame, int]] = []
        while frame is not None and frame.f_code is not self._outermost:
            code = frame.f_code
            if code is self._loss or not code.co_filename.startswith(_HERE):
                if not isinstance(frame.f_trace, _Frame): frame.f_trace = _Frame(code)  # lives as long as the frame does
                found.append((frame.f_trace, frame.f_lasti))
            frame = frame.f_back
        return tuple(reversed(found))


def with_graphs(events: Events, count: int) -> tuple[list[Event], int | None]:
    """The first `count` events with ("graph",) where a graph of torch.compile begins and ("break", why) where it ends; and
    how many there are. None: the whole is one graph."""
    chains = events.chains[:count]
    breaks = {place: why for place, why in events.breaks.items() if place < count}
    made = list(events[:count])
    if not breaks: return made, None
    broken = _broken_frames(made, chains, breaks, events.contexts)
    owners = _owners(made, chains, breaks, broken)
    order = _order(made, chains, breaks)
    marked: list[Event] = []
    now: Any = None
    for at, place in enumerate(order):
        owner = owners[place]
        if made[place][0] == "drop":  # in a graph where it goes on behind
            owner = next((owners[p] for p in order[at:] if made[p][0] != "drop"), None)
            if owner != now: owner = None
        if owner != now:
            if now is not None: marked.append(("break", _why(now[0], place, chains, breaks)))
            if owner is not None: marked.append(("graph",))
            now = owner
        if made[place][0] != "untraced": marked.append(made[place])
    if now is not None: marked.append(("break", "returns"))
    marked = _layers_outside(_without_empty(marked))
    return marked, sum(event[0] == "graph" for event in marked)


def _why(frame: _Frame, place: int, chains: list[Chain], breaks: dict[int, str]) -> str:
    found = min((p for p in breaks if p >= place), default=None)
    return breaks[found] if found is not None and any(f is frame for f, _ in chains[found]) else "returns"


def _broken_frames(events: list[Event], chains: list[Chain], breaks: dict[int, str], contexts: set[int]) -> set[_Frame]:
    """Frames that some call broke, which know now how they go on."""
    broken: set[_Frame] = set()
    in_checkpoint = 0
    for place, (event, chain) in enumerate(zip(events, chains)):
        in_checkpoint += (event[0] == "checkpoint") - (event[0] == "checkpoint_end")
        if chain and event[0] in ("autocast", "grad"): chain[-1][0].regions += 1
        if chain and event[0] in ("autocast_end", "grad_end"): chain[-1][0].regions -= 1
        if place not in breaks: continue
        if in_checkpoint: raise refused(f"breaks the graph in a region of torch.utils.checkpoint ({breaks[place]})")
        for i, (frame, at) in enumerate(chain):
            broken.add(frame)
            if frame.eager_from is not None: continue
            is_last = i + 1 == len(chain)
            stop = _stop(frame, at, is_last, is_last and place in contexts)
            if stop is None:
                frame.breaks.append(place)
                continue
            begin = frame.breaks[-1] + 1 if frame.breaks else 0
            calls = sum(events[p][0] == "call" and any(f is frame and where < stop for f, where in chains[p])
                        for p in range(begin, place))
            frame.eager_from = (len(frame.breaks), stop if calls > 1 else -1)  # is_non_empty_graph: of two calls at least
    return broken


def _stop(frame: _Frame, at: int, is_last: bool, is_context: bool) -> int | None:
    """The instruction up to which the frame is a graph; None: it goes on behind this one in another graph (the instruction may
    break a graph, should_compile_partial_graph). Where the frame is in a loop none of it is (maybe_has_backedge), elsewhere
    it is up to the last instruction at which the stack was empty (step_graph_break)."""
    instructions = list(dis.get_instructions(frame.code))
    here = max(i for i, each in enumerate(instructions) if each.offset <= at)  # a call leaves it at a cache of the instruction
    at, name = instructions[here].offset, instructions[here].opname
    may_break = (name in _RESUMED or is_last and name in _JUMPS) and not is_context  # BEFORE_WITH is no such instruction
    if may_break and _may_stop(frame, instructions, at):
        for each in instructions[here + 1:]:
            if each.opname in ("RETURN_VALUE", "RETURN_CONST"): break
            if _is_jump(each) and each.argval < at: return -1
        return None
    depths = _depths(instructions)
    return next((each.offset for each in reversed(instructions[:here + 1])
                 if depths.get(each.offset) == 0 and _may_stop(frame, instructions, each.offset)), -1)


def _is_jump(instruction: dis.Instruction) -> bool:
    return instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs


def _may_stop(frame: _Frame, instructions: list[dis.Instruction], at: int) -> bool:
    """Not in a `try`, nor in a context that is none of torch's."""
    handler = _handler(frame.code, at)
    if handler is None: return True
    begins = next(i for i, each in enumerate(instructions) if each.offset == handler)
    return frame.regions > 0 and any(each.opname == "WITH_EXCEPT_START" for each in instructions[begins:begins + 2])


def _depths(instructions: list[dis.Instruction]) -> dict[int, int]:
    """The depth of the stack before each instruction, but for handlers of exceptions."""
    places = {each.offset: i for i, each in enumerate(instructions)}
    depths: dict[int, int] = {}
    to_do = [(0, 0)]
    while to_do:
        place, depth = to_do.pop()
        while place < len(instructions) and instructions[place].offset not in depths:
            each = instructions[place]
            depths[each.offset] = depth
            if _is_jump(each): to_do.append((places[each.argval], depth + dis.stack_effect(each.opcode, each.arg, jump=True)))
            if each.opname in ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE") or each.opname.startswith(
                    ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE")): break
            argument = each.arg if each.opcode >= dis.HAVE_ARGUMENT else None
            depth += dis.stack_effect(each.opcode, argument, jump=False)
            place += 1
    return depths


def _handler(code: CodeType, at: int) -> int | None:
    """Where an exception at that instruction goes; None: out of the function."""
    parse: Callable[[CodeType], Iterable[Any]] | None = getattr(dis, "_parse_exception_table", None)  # from Python 3.11 on
    if parse is None: return None
    return next((entry.target for entry in parse(code) if entry.start <= at < entry.end), None)


def _owners(events: list[Event], chains: list[Chain], breaks: dict[int, str], broken: set[_Frame]) -> list[Any]:
    """Of each event the graph that it is part of: the frame that is compiled, and how often it has been broken. None: eager."""
    passed: Counter[_Frame] = Counter()
    owners: list[Any] = []
    open_modules: list[Any] = []
    for place, (event, chain) in enumerate(zip(events, chains)):
        if event[0] == "leave":
            owners.append(open_modules.pop())
            continue
        owner = None
        if place in breaks: passed.update(frame for frame, _ in chain if place in frame.breaks)
        elif event[0] != "drop":
            for i, (frame, at) in enumerate(chain):
                is_broken_inside = i + 1 < len(chain) and chain[i + 1][0] in broken
                if frame.eager_from is not None and (passed[frame], at) >= frame.eager_from: continue
                if frame in broken and is_broken_inside: continue
                owner = (frame, passed[frame])
                break
        if event[0] == "enter":
            if any(place < p < _matching(events, place, "enter", "leave") for p in breaks): owner = None
            open_modules.append(owner)
        owners.append(owner)
    return owners


def _order(events: list[Event], chains: list[Chain], breaks: dict[int, str]) -> list[int]:
    """The events' places as they happen. What a function that goes on behind a break is given lives until it returns: the
    call holds its arguments. So do the arguments of the frame that was broken."""
    spans: dict[_Frame, list[int]] = {}
    for place, chain in enumerate(chains):
        for frame, _ in chain: spans.setdefault(frame, [place, place])[1] = place
    ends: defaultdict[_Frame, list[int]] = defaultdict(list)  # where the frames go on
    for place in breaks:
        chain = chains[place]
        for i, (frame, _) in enumerate(chain):
            if place in frame.breaks: ends[frame].append(spans[chain[i + 1][0]][1] if i + 1 < len(chain) else place)
    born: dict[int, int] = {}
    used: defaultdict[int, list[int]] = defaultdict(list)
    drops: dict[int, int] = {}
    for place, event in enumerate(events):
        if event[0] == "drop":
            drops[event[1]] = place
            continue
        if event[0] in ("call", "custom"):
            for number in _results(list(event)): born.setdefault(number, place)
        for number in _numbers(list(event)): used[number].append(place)
    later: defaultdict[int, list[int]] = defaultdict(list)
    for frame, (begin, end) in sorted(spans.items(), key=lambda item: item[1][1] - item[1][0]):
        if frame not in ends: continue
        for number, place in drops.items():
            if not begin <= place < end: continue
            first = born.get(number, -1)
            crosses = any(first <= at < place and any(at < use < place for use in used[number]) for at in ends[frame])
            if crosses or (first < begin and any(begin <= use for use in used[number])): drops[number] = end
    moved = {number: place for number, place in drops.items() if events[place][0] != "drop" or events[place][1] != number}
    for number, place in moved.items(): later[place].append(number)
    own = {event[1]: place for place, event in enumerate(events) if event[0] == "drop"}
    gone = {own[number] for number in moved}
    order: list[int] = []
    for place in range(len(events)):
        if place not in gone: order.append(place)
        order += [own[number] for number in later.get(place, ())]
    return order


def _without_empty(events: list[Event]) -> list[Event]:
    """Without graphs in which nothing is called."""
    kept: list[Event] = []
    begin = -1
    for event in events:
        if event[0] == "graph": begin = len(kept)
        if event[0] == "break" and not any(each[0] in ("call", "custom", "checkpoint") for each in kept[begin:]):
            del kept[begin]
            continue
        kept.append(event)
    return kept


def _layers_outside(events: list[Event]) -> list[Event]:
    """A graph of nothing but a layer is one of the layer's function, whose calls can be equal and be one instruction."""
    made = list(events)
    for begin, event in enumerate(events):
        if event[0] != "graph" or events[begin + 1][0] != "enter" or not events[begin + 1][5]: continue
        end = _matching(events, begin + 1, "enter", "leave")
        if events[end + 1][0] != "break": continue
        made[begin:begin + 2] = [events[begin + 1], event]
        made[end:end + 2] = [events[end + 1], events[end]]
    return made
