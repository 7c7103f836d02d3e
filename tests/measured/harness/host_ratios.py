"""What a step takes the host beside a tiny LLaMA's, by architecture, at two depths, with and without a cache: tiny models of any family, in turns.

usage: host_ratios.py draw CASES.jsonl                                  architectures of all families that have a tiny config, seed 10011
       host_ratios.py predict CASES.jsonl MEMCALC OUT.jsonl             what memcalc tells of each, at both depths (no card)
       host_ratios.py run CASES.jsonl OUT.jsonl SECONDS [--device cpu]  rounds over all cases until the time is over; a line for each block of steps
No profiler is at work. A block times of each case, at "layers" and at half of them (depth "many", "few"): "phases": forward, forward without a cache ("plain", of decoders
that have one), backward and step() of foreach AdamW, each from an idle card, in milliseconds; of some whole steps of transformers' Trainer ("trainer"); "beside", phases of the LLaMA of
eight layers just before and just after; "core", microseconds: a loop of Python, of attribute look-ups over many objects (memory), of 100 launches, of 100 views.
"""
import json, os, random, subprocess, sys, tempfile, time, traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import host_drawn
from host_drawn import BATCH, BESIDE, CONFIGS, TOKENS

SEED = 10011
# Families that stand in families_streams.jsonl with a config of their own, by kind; those of images and text are left out (their calls take another form).
STREAMS = {json.loads(line)["config"]["model_type"]: json.loads(line) for line in (HERE / "families_streams.jsonl").read_text().splitlines()}
TEXT = {name: each for name, each in STREAMS.items() if each["run"]["task"] == "causal" and "text_config" not in each["config"] and each["config"].get("hidden_size", 64) < 1000}
EXPERTS = sorted({name for name, each in TEXT.items() if any("expert" in key for key in each["config"])} | {"mixtral", "qwen3_moe"})
KINDS = {"encoder": (8, tuple(sorted(host_drawn.KINDS["encoder"][1]))), "image": (2, ("vit", "deit")),
         "encoder-decoder": (3, ("bart", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5")),
         "decoder": (7, tuple(sorted((set(TEXT) - set(EXPERTS)) | set(host_drawn.KINDS["decoder"][1])))), "experts": (5, tuple(EXPERTS))}
DEPTHS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_decoder_layers")
CONFIGS["mt5"] = CONFIGS["t5"]
# Models of the sizes that are trained, not drawn: whether their Python takes what a tiny model's does.
REAL = {"bert": ("encoder", dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)), "vit": ("image", dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)),
        "gpt2": ("decoder", dict(n_embd=1024, n_layer=24, n_head=16)), "t5": ("encoder-decoder", dict(d_model=512, d_kv=64, d_ff=2048, num_layers=12, num_heads=8, decoder_start_token_id=0)),
        "llama": ("decoder", dict(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4)),
        "gemma3_text": ("decoder", dict(vocab_size=32000, hidden_size=1152, intermediate_size=6912, num_hidden_layers=26, num_attention_heads=4, num_key_value_heads=1, head_dim=256, sliding_window=512))}


def draw(path):
    draws, cases = random.Random(SEED), []
    for kind, (count, names) in KINDS.items():
        for family in draws.sample(names, count):
            layers = draws.choice((4, 6) if kind in ("encoder-decoder", "experts") else (4, 6, 8))
            cases.append(dict(family=family, kind=kind, layers=layers, precision=draws.choice(("bf16", "bf16", "amp-bf16", "fp32")), trainer="adamw_torch_fused"))
    draws.shuffle(cases)
    for number, case in enumerate(cases): case.update(id=f"h{SEED}-{number:02}-{case['family']}-{case['layers']}-{case['precision']}", trained=number % 4 == 0)
    for name, (kind, config) in REAL.items():
        cases.append(dict(family=name, kind=kind, layers=0, precision="bf16", trainer="adamw_torch_fused", id=f"h{SEED}-real-{name}", trained=False, config=config))
    Path(path).write_text("".join(json.dumps(case) + "\n" for case in cases))


def config_of(case):
    import transformers as tf
    family, layers = case["family"], case["layers"]
    if "config" in case: return tf.AutoConfig.for_model(family, **case["config"])
    if family in CONFIGS or family not in TEXT:
        if family != "mt5": return host_drawn.config_of(case)
        return tf.MT5Config(**CONFIGS["mt5"], num_layers=layers, num_decoder_layers=layers, decoder_start_token_id=0, **host_drawn.ENDS)
    own = dict(TEXT[family]["config"])
    for key in DEPTHS:
        if key in own: own[key] = layers
    for key in ("layer_types", "layers_block_type", "hybrid_override_pattern", "mlp_layer_types"):
        if isinstance(own.get(key), (list, str)): own[key] = (own[key] * layers)[:layers]
    return tf.AutoConfig.for_model(own.pop("model_type"), **own)






def class_of(case, config):
    import transformers as tf
    return tf.MllamaForCausalLM if case["family"] == "mllama_text_model" else host_drawn.class_of(case, config)


def depths(case): return {"many": case} if "config" in case else {"many": case, "few": dict(case, layers=case["layers"] // 2)}


def predict(cases, memcalc, out):
    cases = [BESIDE | dict(id="beside", trained=True), *map(json.loads, Path(cases).read_text().splitlines())]
    tasks = {"encoder": "mlm", "image": "image", "encoder-decoder": "seq2seq"}

    def ask(*words):
        got = subprocess.run([memcalc, *map(str, words), "--gpu", "h200-sxm", "--no-remedies", "--format", "json"], capture_output=True, text=True)
        try: answer = json.loads(got.stdout)
        except ValueError: return dict(refused=got.stderr[-200:])
        times = answer.get("time")
        return {"refused": "no time"} if not times else {key: round(1e3 * times[key + "_seconds"], 4) for key in ("step", "host", "kernel")} | {"phases": [round(1e3 * times["by_phase"][key + "_seconds"], 4) for key in ("forward", "backward", "optimizer")]}

    with open(out, "w") as file, tempfile.TemporaryDirectory() as folder:
        for case in cases:
            told = {}
            for depth, each in depths(case).items():
                config = config_of(each)
                path = Path(folder) / "config.json"
                path.write_text(json.dumps(dict(config.to_diff_dict(), model_type=config.model_type, architectures=[class_of(each, config).__name__]), default=str))
                words = ["--model", path, "--bs", BATCH, "--task", tasks.get(case["kind"], "causal"), *(["--seq", TOKENS] if case["kind"] != "image" else []), "--precision", case["precision"]]
                if case["precision"] != "bf16": words += ["--weights-dtype", "fp32"]
                if case["kind"] not in ("encoder", "image"): told[depth] = ask(*words, "--loop", "bare", "--use-cache", "--optimizer", "adamw")
                told[depth + "_plain"] = ask(*words, "--loop", "bare", "--optimizer", "adamw")
                if depth not in told: told[depth] = told.pop(depth + "_plain")
                if depth == "many" and case["trained"]: told["trainer"] = ask(*words, "--loop", "trainer")
            file.write(json.dumps(dict(id=case["id"], told=told)) + "\n"); file.flush()
            print(case["id"], {name: each.get("phases") or each for name, each in told.items()}, flush=True)


def core(torch, device, things):
    """Microseconds: a loop of Python, of look-ups over objects that no cache of a core holds, of 100 launches, of 100 views."""
    clock = time.perf_counter
    sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    small = core.__dict__.setdefault("small", torch.zeros(64, device=device))
    got, x = [], 0
    begin = clock()
    for i in range(4000): x += i & 3
    got.append(clock() - begin)
    begin = clock()
    for each in things: x += each.a
    got.append(clock() - begin)
    sync(); begin = clock()
    for _ in range(100): small.add_(1.0)
    got.append(clock() - begin); sync()
    begin = clock()
    for _ in range(100): small.view(8, 8)
    got.append(clock() - begin)
    return [round(1e6 * each, 1) for each in got]


def run(cases, out, seconds, device):
    begin = time.time()
    import torch
    from transformers import default_data_collator
    clock, sync = time.perf_counter, torch.cuda.synchronize if device == "cuda" else (lambda: None)
    file = open(out, "a")

    class Thing:
        def __init__(self): self.a = 1
    things = [Thing() for _ in range(60000)]
    random.Random(1).shuffle(things)
    things = things[:6000]

    def emit(**row): file.write(json.dumps(row, separators=(",", ":")) + "\n"); file.flush()

    made = host_drawn.maker(device, config_of, class_of)

    class Loop:
        def __init__(self, case):
            self.case, self.model = case, made(case)
            self.parameters = list(self.model.parameters())
            self.amp = case["precision"] == "amp-bf16"
            self.batch = {key: value.to(device) for key, value in default_data_collator([host_drawn.items_of(case, self.model)] * BATCH).items()}
            self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-6)
            self.cached = case["kind"] not in ("encoder", "image") and "mamba" not in case["family"]

        def forward(self, **more):
            if not self.amp: return self.model(**self.batch, **more).loss
            with torch.autocast(device, dtype=torch.bfloat16): return self.model(**self.batch, **more).loss

        def phases(self, count, skip=1):
            got = {}
            for number in range(count + skip):
                row = {}
                plain = self.cached and number % 2  # every other step; the last forward pass, whose graph is walked, always has the cache
                if plain: sync(); t = clock(); loss = self.forward(use_cache=False); row["plain"] = clock() - t; del loss
                sync(); t = clock(); loss = self.forward(); row["again" if plain else "forward"] = clock() - t
                sync(); t = clock(); loss.backward(); row["backward"] = clock() - t; del loss
                sync(); t = clock(); self.optimizer.step(); row["adamw"] = clock() - t
                sync(); t = clock(); self.optimizer.zero_grad(); row["zero"] = clock() - t
                if number >= skip:
                    for name, value in row.items(): got.setdefault(name, []).append(round(1e3 * value, 3))
            return got

    Trained = host_drawn.trained_loops(device, made)
    emit(kind="machine", **host_drawn.machine(device))
    beside, beside_trained, todo = Loop(BESIDE), Trained(BESIDE), []
    for case in map(json.loads, Path(cases).read_text().splitlines()):
        try: todo.append((case, {depth: Loop(each) for depth, each in depths(case).items()}, Trained(case) if case["trained"] else None))
        except Exception: emit(kind="error", id=case["id"], error=traceback.format_exc()[-500:]); print(case["id"], traceback.format_exc()[-200:], flush=True)
    print("made", len(todo), round(time.time() - begin, 1), flush=True)
    beside.phases(3); beside_trained.steps(2)
    order = random.Random(SEED + 1)
    for number in range(1000):
        for case, loops, trained in order.sample(todo, len(todo)):
            if time.time() - begin > seconds: return
            row, count = dict(kind="block", round=number, id=case["id"]), (2 if "config" in case else 4) if number else 1
            calls = dict(core=lambda: core(torch, device, things), before=lambda: beside.phases(2, 0), **{depth: lambda loop=loop: loop.phases(count) for depth, loop in loops.items()}, after=lambda: beside.phases(2, 0))
            if trained and (number % 2 or not number): calls.update(trainer=lambda: trained.steps(5 if number else 2), beside_trainer=lambda: beside_trained.steps(4) if number else None)
            host_drawn.timed(calls, row, number, emit)
        print("round", number, round(time.time() - begin, 1), flush=True)


if __name__ == "__main__":
    what, path, *rest = sys.argv[1:]
    device = rest.pop(rest.index("--device") + 1) if "--device" in rest else "cuda"
    if "--device" in rest: rest.remove("--device")
    if what == "draw": draw(path)
    elif what == "predict": predict(path, *rest[:2])
    else: run(path, rest[0], float(rest[1]), device)
