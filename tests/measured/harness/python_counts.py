"""How much Python a layer of transformers runs, without a card: bytecode instructions, function calls and ATen operators of a
forward, by family, counted by sys.monitoring on the tiny models of inference_host.py. The same in each run: no clock is in it.

usage: python_counts.py OUT.jsonl [FAMILY …]
A line for each family: of decode (a token with a cache), forward (without labels), train (with them) and generate (a token of generate(); first: all
up to the first token), what each layer adds and what is beside the layers: {"instr": [layer, rest], "starts": …, "ccalls": …, "ops": …}.
An encoder-decoder's layer is one of both sides in train and first, one of the decoder in decode.
"""
import json, sys, warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
warnings.filterwarnings("ignore")
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from inference_host import FAMILIES, calls_of, tiny

MONITOR, TOOL, COUNTED = sys.monitoring, 3, dict(instr=0, starts=0, ccalls=0)
EVENTS = dict(instr="INSTRUCTION", starts="PY_START", ccalls="CALL")


class Operators(TorchDispatchMode):
    def __init__(self): super().__init__(); self.calls = {}
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls[str(function)] = self.calls.get(str(function), 0) + 1
        return function(*args, **(kwargs or {}))


def counted(call):
    call(); call()
    for key in COUNTED: COUNTED[key] = 0
    MONITOR.set_events(TOOL, sum(getattr(MONITOR.events, name) for name in EVENTS.values()))
    try: call()
    finally: MONITOR.set_events(TOOL, 0)
    result = dict(COUNTED)
    with Operators() as operators: call()
    return dict(result, ops=sum(operators.calls.values()), operators=operators.calls)


def main():
    torch.set_num_threads(1)
    MONITOR.use_tool_id(TOOL, "counts")
    for key, name in EVENTS.items():
        def add(*_, key=key): COUNTED[key] += 1
        MONITOR.register_callback(TOOL, getattr(MONITOR.events, name), add)
    for family in sys.argv[2:] or FAMILIES:
        both = []
        for layers in (2, 4):
            model = tiny(family, layers)
            calls, got = calls_of(family, model, "cpu"), {}
            if "decode" in calls:
                with torch.no_grad():
                    got["decode"], got["first"], three = counted(calls["decode"]), counted(lambda: calls["generate"](1)), counted(lambda: calls["generate"](3))
                got["generate"] = {k: (three[k] - got["first"][k]) / 2 for k in (*EVENTS, "ops")}
            if "forward" in calls:
                with torch.no_grad(): got["forward"] = counted(calls["forward"])
            model.train()
            got["train"] = counted(calls["train"])
            both.append(got)
        row = dict(family=family)
        for name, few in both[0].items():
            many = both[1][name]
            row[name] = {k: [(many[k] - few[k]) / 2, few[k] - (many[k] - few[k])] for k in (*EVENTS, "ops")}
            if name != "generate": row[name]["operators"] = {k: (many["operators"][k] - few["operators"].get(k, 0)) / 2 for k in many["operators"] if many["operators"][k] != few["operators"].get(k, 0)}
        with open(sys.argv[1], "a") as out: out.write(json.dumps(row) + "\n")
        print(family, flush=True)


if __name__ == "__main__": main()
