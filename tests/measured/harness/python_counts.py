"""How much Python a layer of transformers runs, without a card: bytecode instructions, function calls and ATen operators of a
forward, by family, counted by sys.monitoring on the tiny models of inference_host.py. The same in each run: no clock is in it.

usage: python_counts.py OUT.jsonl [FAMILY …]
       python_counts.py OUT.jsonl --streams [FAMILY …]    of the tiny models of families_streams.jsonl a token with a cache alone
       python_counts.py OUT.jsonl --towers                of generate_streams.py's models of images and text a layer of the tower, and what is around all layers
       python_counts.py OUT.jsonl --trained [FAMILY …]    of these and inference_host.py's a forward with labels alone, in training
A line for each family: of decode (a token with a cache), forward (without labels), train (with them) and generate (a token of generate(); first: all
up to the first token), what each layer adds and what is beside the layers: {"instr": [layer, rest], "starts": …, "ccalls": …, "ops": …}.
An encoder-decoder's layer is one of both sides in train and first, one of the decoder in decode.
Experts of --streams take batched_mm, as generate() has it for tokens on a card. Before Python 3.12, which has no sys.monitoring, a tracer counts: 3.11 runs
1.0435 times as many instructions (twelve families, 1.040 to 1.048). "operators16": what a layer calls in bfloat16 but views.
"""
import json, sys, warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
warnings.filterwarnings("ignore")
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from inference_host import FAMILIES, calls_of, tiny

MONITOR, TOOL, COUNTED = getattr(sys, "monitoring", None), 3, dict(instr=0, starts=0, ccalls=0)
VIEWS = ("slice", "unsqueeze", "view", "_unsafe_view", "transpose", "t", "expand", "permute", "split", "split_with_sizes", "select", "squeeze", "alias", "detach",
         "reshape", "unbind", "chunk", "empty_like", "empty", "lift_fresh", "narrow", "as_strided", "new_empty")
EVENTS = dict(instr="INSTRUCTION", starts="PY_START", ccalls="CALL")


class Operators(TorchDispatchMode):
    def __init__(self): super().__init__(); self.calls = {}
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls[str(function)] = self.calls.get(str(function), 0) + 1
        return function(*args, **(kwargs or {}))


def traced(frame, event, _):
    """For sys.settrace: each frame's instructions."""
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    if event == "call": COUNTED["starts"] += 1
    if event == "opcode": COUNTED["instr"] += 1
    return traced


def counted(call):
    call(); call()
    for key in COUNTED: COUNTED[key] = 0
    if MONITOR is None: sys.settrace(traced)
    else: MONITOR.set_events(TOOL, sum(getattr(MONITOR.events, name) for name in EVENTS.values()))
    try: call()
    finally: sys.settrace(None) if MONITOR is None else MONITOR.set_events(TOOL, 0)
    result = dict(COUNTED)
    with Operators() as operators: call()
    return dict(result, ops=sum(operators.calls.values()), operators=operators.calls)


def decode_of(make, task, name):
    """Of a token with a cache: {"instr": [layer, rest], …} in float32, and the operators of a layer in bfloat16."""
    got = []
    for dtype in (torch.float32, torch.bfloat16):
        for layers in (2, 4):
            model = make(layers).to(dtype).eval()
            implementation = getattr(model, "get_experts_implementation", dict)()
            if "grouped_mm" in dict(implementation).values(): model.set_experts_implementation("batched_mm")
            with torch.no_grad(): got.append(counted(calls_of(name if task == "causal" else "bart", model, "cpu")["decode"]))
    few, many, few16, many16 = got
    row = {k: [(many[k] - few[k]) / 2, few[k] - (many[k] - few[k])] for k in ("instr", "starts", "ops")}
    operators = {k: (n - few16["operators"].get(k, 0)) / 2 for k, n in many16["operators"].items() if n != few16["operators"].get(k, 0)}
    return dict(row, operators16={k: n for k, n in operators.items() if k.split(".")[1] not in VIEWS})


def streams(names):
    from compile_breaks import models
    for name, task, make in models():
        if task not in ("causal", "seq2seq") or (names and name not in names): continue
        try: row = dict(family=name, python=".".join(map(str, sys.version_info[:2])), decode=decode_of(make, task, name))
        except Exception as error: print(name, repr(error)[:120], flush=True); continue
        with open(sys.argv[1], "a") as out: out.write(json.dumps(row) + "\n")


def trained(names):
    from compile_breaks import batches, models
    for name, task, make in models():
        if names and name not in names: continue
        few, many = [], []
        try:
            for layers, of in ((2, few), (4, many)):
                model = make(layers).train()
                batch, _ = batches(model, task)
                of.append(counted(lambda: model(**batch)))
        except Exception as error: print(name, repr(error)[:120], flush=True); continue
        (few,), (many,) = few, many
        layer = {k: [(many[k] - few[k]) / 2, few[k] - (many[k] - few[k])] for k in ("instr", "starts", "ops")}
        with open(sys.argv[1], "a") as out: out.write(json.dumps(dict(family=name, python=".".join(map(str, sys.version_info[:2])), train=layer)) + "\n")


def towers():
    import transformers as tf
    from generate_streams import MODELS
    from inference_times import with_images
    for name in MODELS:
        got = []
        for layers in (4, 6):
            config = json.loads(json.dumps(MODELS[name]))
            config["vision_config"].update({"depth" if "depth" in config["vision_config"] else "num_hidden_layers": layers})
            config = tf.AutoConfig.for_model(config.pop("model_type"), **config)
            model = tf.AutoModelForImageTextToText.from_config(config, attn_implementation="sdpa").float().eval()
            batch = with_images(model, config, dict(images=1, batch_size=1, sequence_length=300), "cpu")
            with torch.no_grad(): got.append(counted(lambda: model(**batch)))
        few, more = got
        layer = (more["instr"] - few["instr"]) / 2
        operators = {k: (n - few["operators"].get(k, 0)) / 2 for k, n in more["operators"].items()}
        kernels = sum(n for k, n in operators.items() if k.split(".")[1] not in VIEWS)
        row = dict(tower=name, python="%d.%d" % sys.version_info[:2], text_layers=2, instr=[layer, few["instr"] - 4 * layer], ops=kernels)
        with open(sys.argv[1], "a") as out: out.write(json.dumps(row) + "\n")
        print(row, flush=True)


def main():
    torch.set_num_threads(1)
    if MONITOR is not None: MONITOR.use_tool_id(TOOL, "counts")
    for key, name in EVENTS.items() if MONITOR is not None else ():
        def add(*_, key=key): COUNTED[key] += 1
        MONITOR.register_callback(TOOL, getattr(MONITOR.events, name), add)
    if sys.argv[2:3] == ["--towers"]: return towers()
    if sys.argv[2:3] == ["--streams"]: return streams(sys.argv[3:])
    if sys.argv[2:3] == ["--trained"]: return trained(sys.argv[3:])
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
