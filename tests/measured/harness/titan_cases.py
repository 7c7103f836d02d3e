"""Cases of measure_titan.py as JSON lines: small models with histories, which show the mechanism, and torchtitan's published
runs of LLaMA-3.1-8B at full size. usage: titan_cases.py [more] > titan_cases.jsonl"""
import json, sys

SMALL = dict(mode="titan", model="titan-small", layers=4, batch=2, seq=2048, world=8, gib=6, history=True, stacks=True, limit=110)
FLOAT8 = dict(float8="tensorwise", gather8=True, compile=True)
FULL = dict(mode="titan", model="titan-8b", batch=2, seq=8192, steps=2, clip=True, expandable=True, limit=120)

def small(id, **kw):
    case = dict(SMALL, id=id, **kw)
    if case.get("compile") or case.get("compile_loss"): case["code"] = True
    return case

CASES = [
    dict(FULL, id="titan-001", world=8, ac="selective", gib=84, history=True),
    small("small-eager-selective", ac="selective"),
    small("small-compile-selective", ac="selective", compile=True),
    small("small-compile-none", ac="none", compile=True),
    small("small-compile-full", ac="full", compile=True),
    small("small-float8-selective", ac="selective", **FLOAT8),
    dict(FULL, id="titan-005", world=128, ac="selective", compile=True, gib=64, history=True, stacks=True),
    dict(FULL, id="titan-031", world=32, ac="selective", expandable=False, compile_loss=True, optimizer="adamw-fused", gib=50, history=True, stacks=True, **FLOAT8),
    small("small-float8-none", ac="none", **FLOAT8),
    small("small-float8-full", ac="full", **FLOAT8),
    dict(FULL, id="titan-003", world=8, ac="selective", gib=78, history=True, **FLOAT8),
    small("small-compile-selective-loss", ac="selective", compile=True, compile_loss=True),
    small("small-eager-none", ac="none"),
    small("small-eager-full", ac="full"),
    dict(FULL, id="titan-007", batch=1, seq=32768, world=8, ac="full", gib=85, history=True, **FLOAT8),
    small("small-rowwise-selective", ac="selective", compile=True, float8="rowwise"),
    small("small-float8-selective-gather16", ac="selective", compile=True, float8="tensorwise"),
    small("one-compile-none", ac="none", compile=True, world=1) | dict(world=1),
    small("one-compile-full", ac="full", compile=True) | dict(world=1),
    small("one-compile-selective", ac="selective", compile=True) | dict(world=1),
    small("hf-compile-selective", ac="selective", compile=True) | dict(model="llama-3.2-1b", gib=10),
    small("hf-compile-full", ac="full", compile=True) | dict(model="llama-3.2-1b", gib=10),
    small("hf-compile-none", ac="none", compile=True) | dict(model="llama-3.2-1b", gib=10),
    small("hf-eager-selective", ac="selective") | dict(model="llama-3.2-1b", gib=10),
    dict(FULL, id="titan-002", world=8, ac="selective", compile=True, gib=78, history=True),
    small("small-float8-eager-selective", ac="selective", float8="tensorwise", gather8=True),
    small("small-float8-eager-none", ac="none", float8="tensorwise", gather8=True),
    dict(FULL, id="titan-005-eager", world=128, ac="selective", gib=69, history=True),
]
HF = dict(model="llama-3.2-1b", gib=10, limit=120)
MORE = [  # of transformers' module, which memcalc runs
    small("hf-float8-selective", ac="selective", **FLOAT8) | HF,
    small("hf-float8-full", ac="full", **FLOAT8) | HF,
    small("hf-float8-none", ac="none", **FLOAT8) | HF,
    small("hf-float8-none-gather16", ac="none", compile=True, float8="tensorwise") | HF,
    small("hf-rowwise-none", ac="none", compile=True, float8="rowwise") | HF,
    small("hf-model-full", ac="full", compile=True, parts="model") | HF | dict(world=1),
    small("hf-model-none", ac="none", compile=True, parts="model") | HF | dict(world=1),
    small("hf-one-layers-selective", ac="selective", compile=True) | HF | dict(world=1),
    small("hf-one-layers-none", ac="none", compile=True) | HF | dict(world=1),
    small("hf-qwen3-selective", ac="selective", compile=True) | HF | dict(model="qwen3-0.6b"),
    small("hf-16-selective", ac="selective", compile=True) | HF | dict(layers=16, seq=4096, gib=22, expandable=True),
    small("hf-16-float8-full", ac="full", **FLOAT8) | HF | dict(layers=16, seq=8192, gib=40, world=32),
]

for case in MORE if "more" in sys.argv else CASES: print(json.dumps(case))
