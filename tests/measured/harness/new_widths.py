"""What the first call with a new shape takes beyond the same call again: SDPA by kernel, Linear layers, and whole models whose
batches change their width. Each case in a forked process of its own, no profiler; prepared at once, then timed one after the
other. A line of OUT: {"case", "first": [ms], "again": [ms], ...}; of SDPA `forward` and `backward` apart, each awaited.

usage: new_widths.py OUT [--only CASE,...] [--dry]        --dry: tiny and on the CPU, to try the script
"""
import argparse
import json
import os
import random
import sys
import tempfile
import time
import traceback

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # forks before CUDA starts

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

DRY = "--dry" in sys.argv
DEVICE = "cpu" if DRY else "cuda"
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# name: batch, query heads, key heads, head width, type, and what else
SDPA = {
    "plain-64": (8, 12, 12, 64, "bf16", {}),
    "plain-64-fp16": (8, 12, 12, 64, "fp16", {}),
    "plain-64-b1": (1, 12, 12, 64, "bf16", {}),
    "plain-64-h32": (8, 32, 32, 64, "bf16", {}),
    "plain-32": (8, 12, 12, 32, "bf16", {}),
    "plain-128": (8, 12, 12, 128, "bf16", {}),
    "plain-256": (2, 8, 8, 256, "bf16", {}),
    "dropout-64": (8, 12, 12, 64, "bf16", dict(dropout=.1)),
    "mask-64": (8, 12, 12, 64, "bf16", dict(mask=True)),
    "mask-dropout-64": (8, 12, 12, 64, "bf16", dict(mask=True, dropout=.1)),
    "mask-dropout-64-odd": (8, 12, 12, 64, "bf16", dict(mask=True, dropout=.1, multiple=1)),
    "plain-64-odd": (8, 12, 12, 64, "bf16", dict(multiple=1)),
    "causal-64": (8, 12, 12, 64, "bf16", dict(causal=True)),
    "causal-64-gqa": (4, 32, 8, 64, "bf16", dict(causal=True, gqa=True)),
    "causal-128-gqa": (4, 16, 4, 128, "bf16", dict(causal=True, gqa=True)),
    "causal-128-long": (1, 16, 16, 128, "bf16", dict(causal=True, least=2000, most=6000)),
    "cross-64": (8, 12, 12, 64, "bf16", dict(queries=40)),
    "checkpoint-64": (8, 12, 12, 64, "bf16", dict(checkpoint=True)),
    "checkpoint-mask-dropout-64": (8, 12, 12, 64, "bf16", dict(checkpoint=True, mask=True, dropout=.1)),
    "nograd-64": (8, 12, 12, 64, "bf16", dict(grad=False)),
    "nograd-causal-128": (4, 16, 16, 128, "bf16", dict(grad=False, causal=True)),
    "token-64": (8, 32, 32, 64, "bf16", dict(grad=False, queries=1)),
    "token-128": (4, 16, 16, 128, "bf16", dict(grad=False, queries=1)),
    "flash-64": (8, 12, 12, 64, "bf16", dict(kernel=SDPBackend.FLASH_ATTENTION)),
    "efficient-64": (8, 12, 12, 64, "bf16", dict(kernel=SDPBackend.EFFICIENT_ATTENTION, mask=True)),
    "efficient-64-fp32": (8, 12, 12, 64, "fp32", dict(kernel=SDPBackend.EFFICIENT_ATTENTION)),
}
SDPA_PROCESSES = [list(SDPA)[i::3] for i in range(3)]
LINEAR = {"linear-bf16": "bf16", "linear-fp32": "fp32", "linear-tf32": "fp32", "linear-fp16": "fp16"}
MODELS = {  # task, config, batch, autocast, checkpointing
    "bert-amp": ("mlm", dict(model_type="bert", num_hidden_layers=8), 8, True, False),
    "bert-amp-ckpt": ("mlm", dict(model_type="bert", num_hidden_layers=8), 8, True, True),
    "bert-fp32": ("mlm", dict(model_type="bert", num_hidden_layers=8), 8, False, False),
    "bert-amp-2l": ("mlm", dict(model_type="bert", num_hidden_layers=2), 8, True, False),
    "t5-amp": ("seq2seq", dict(model_type="t5", d_model=768, d_kv=64, d_ff=3072, num_layers=6, num_heads=12,
                               decoder_start_token_id=0), 4, True, False),
    "llama-amp": ("causal", dict(model_type="llama", vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=10,
                                 num_attention_heads=16, num_key_value_heads=4), 4, True, False),
    "llama-amp-ckpt": ("causal", dict(model_type="llama", vocab_size=32000, hidden_size=1024, intermediate_size=2816,
                                      num_hidden_layers=10, num_attention_heads=16, num_key_value_heads=4), 4, True, True),
    "gpt2-amp": ("causal", dict(model_type="gpt2", n_layer=8), 4, True, False),
}
TASKS = {"mlm": "AutoModelForMaskedLM", "causal": "AutoModelForCausalLM", "seq2seq": "AutoModelForSeq2SeqLM"}


def wait():
    if not DRY: torch.cuda.synchronize()


def timed(call):
    wait()
    begun = time.perf_counter()
    result = call()
    wait()
    return result, round(1000 * (time.perf_counter() - begun), 3)


def widths_of(more, count=6, seed=7):
    r = random.Random(seed)
    multiple = more.get("multiple", 8)
    least, most = more.get("least", 64), more.get("most", 500)
    if DRY: least, most = 16, 200
    return [w * multiple for w in r.sample(range(least // multiple, most // multiple), count)]


def attention(width, case):
    """A layer's inputs as transformers makes them: [B, S, H, D] turned over; and its call."""
    batch, heads, key_heads, dim, dtype, more = case
    make = lambda s, h: torch.randn(batch, s, h, dim, device=DEVICE, dtype=TYPES[dtype])  # noqa: E731
    queries, keys = more.get("queries", width), width
    q, k, v = (make(s, h).transpose(1, 2) for s, h in ((queries, heads), (keys, key_heads), (keys, key_heads)))
    mask = torch.zeros(batch, 1, queries, keys, device=DEVICE, dtype=TYPES[dtype]) if more.get("mask") else None
    if more.get("grad", True):
        for each in (q, k, v): each.requires_grad_(True)

    def call(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=more.get("dropout", 0.),
                                              is_causal=more.get("causal", False), enable_gqa=more.get("gqa", False))
    return q, k, v, call


def once(width, name):
    case = SDPA[name]
    more = case[-1]
    q, k, v, call = attention(width, case)
    kernels = [more["kernel"]] if "kernel" in more else [SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH][:2 if DRY else 1]
    if DRY: kernels.append(SDPBackend.MATH)
    with sdpa_kernel(kernels):
        if not more.get("grad", True):
            with torch.no_grad(): return timed(lambda: call(q, k, v))[1], None
        run = (lambda: checkpoint(call, q, k, v, use_reentrant=False)) if more.get("checkpoint") else lambda: call(q, k, v)
        out, forward = timed(run)
        grad = torch.randn(out.shape[0], out.shape[2], out.shape[1], out.shape[3], device=DEVICE, dtype=out.dtype).transpose(1, 2)
        return forward, timed(lambda: torch.autograd.grad(out, (q, k, v), grad))[1]


def run_sdpa(names, tell):
    first = once(72 if not DRY else 24, "plain-64")  # starts cuDNN
    tell(dict(case="sdpa-first-of-process", forward=first[0], backward=first[1]))
    for name in names:
        widths = widths_of(SDPA[name][-1])
        new = [once(width, name) for width in widths]
        again = [once(width, name) for width in widths]
        tell(dict(case="sdpa-" + name, widths=widths, forward=[a for a, _ in new], forward_again=[a for a, _ in again],
                  backward=[b for _, b in new], backward_again=[b for _, b in again]))


def run_linear(name, tell):
    torch.backends.cuda.matmul.allow_tf32 = name == "linear-tf32"
    layers = torch.nn.Sequential(*(m for _ in range(12) for m in (torch.nn.Linear(768, 3072), torch.nn.Linear(3072, 768))))
    layers.to(DEVICE, TYPES[LINEAR[name]])

    def step(rows):
        x = torch.randn(rows, 768, device=DEVICE, dtype=TYPES[LINEAR[name]])
        return timed(lambda: layers(x).sum().backward())[1]
    step(512), step(512)
    rows = [8 * w for w in widths_of({}, 8)]
    tell(dict(case=name, rows=rows, first=[step(r) for r in rows], again=[step(r) for r in rows], third=[step(r) for r in rows]))


PRODUCTS = {  # one call of cuBLAS each: rows and a layer of 768 to 2,304
    "forward": lambda x, w, b, g: torch.mm(x, w.t()), "forward-bias": lambda x, w, b, g: torch.addmm(b, x, w.t()),
    "input": lambda x, w, b, g: torch.mm(g, w), "weight": lambda x, w, b, g: torch.mm(g.t(), x),
    "batched": lambda x, w, b, g: torch.bmm(x.view(4, -1, 768), w.t().expand(4, -1, -1))}


def run_products(name, tell):
    for dtype in ("bf16", "fp16", "fp32"):
        make = lambda *shape: torch.randn(*shape, device=DEVICE, dtype=TYPES[dtype])  # noqa: E731
        w, b = make(2304, 768), make(2304)
        for kind, call in PRODUCTS.items():
            rows = [8 * width for width in widths_of({}, 8, seed=11)]
            given = [(make(n, 768), make(n, 2304)) for n in [512] + rows]
            once = lambda x, g: timed(lambda: call(x, w, b, g))[1]  # noqa: E731
            once(*given[0]), once(*given[0])
            tell(dict(case=f"{name}-{dtype}-{kind}", rows=rows, first=[once(*each) for each in given[1:]],
                      again=[once(*each) for each in given[1:]]))


def run_model(name, tell, ready):
    import transformers
    task, config, batch, amp, checkpointing = MODELS[name]
    config = dict(config)
    made = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    if DRY:
        for key in ("num_hidden_layers", "num_layers", "n_layer"):
            if key in config: setattr(made, key, 1)
    model = getattr(transformers, TASKS[task]).from_config(made).to(DEVICE)
    model.train()
    if checkpointing: model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=False))
    if task == "causal": model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=not DRY)

    def step(width):
        ids = torch.randint(5, 1000, (batch, width), device=DEVICE)
        mask = torch.ones_like(ids)
        mask[0, width - 3:] = 0
        inputs = dict(input_ids=ids, attention_mask=mask, labels=ids if task != "seq2seq" else ids[:, :width // 2].contiguous())

        def whole():
            with torch.autocast(DEVICE, torch.bfloat16, enabled=amp): loss = model(**inputs).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return timed(whole)[1]
    step(512 if not DRY else 40)  # the widest: what follows finds memory
    step(512 if not DRY else 40)
    widths = widths_of({}, 8)
    ready()
    new = [step(width) for width in widths]
    tell(dict(case="model-" + name, widths=widths, first=new, again=[step(w) for w in widths], third=[step(w) for w in widths]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--only", default="")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--budget", type=float, default=110)
    a = parser.parse_args()
    import transformers
    for task in TASKS.values(): getattr(transformers, task)
    from transformers.models.bert import modeling_bert  # noqa: F401
    from transformers.models.gpt2 import modeling_gpt2  # noqa: F401
    from transformers.models.llama import modeling_llama  # noqa: F401
    from transformers.models.t5 import modeling_t5  # noqa: F401
    torch.set_num_threads(4)
    started = time.time()
    folder = tempfile.mkdtemp()
    cases = [f"sdpa{i}" for i in range(len(SDPA_PROCESSES))] + ["product"] + list(LINEAR) + list(MODELS)
    if a.only: cases = [c for c in cases if c in a.only.split(",")]

    def tell(row):
        with open(a.out, "a") as out: out.write(json.dumps(row) + "\n")

    def child(case):
        def ready():
            open(os.path.join(folder, case + ".ready"), "w").close()
            while not os.path.exists(os.path.join(folder, case + ".go")): time.sleep(.005)
        try:
            if case in MODELS: run_model(case, tell, ready)
            else:
                if not DRY: torch.zeros(1, device=DEVICE)
                ready()
                if case.startswith("sdpa"): run_sdpa(SDPA_PROCESSES[int(case[4:])], tell)
                elif case == "product": run_products(case, tell)
                else: run_linear(case, tell)
        except BaseException as error:  # its process's last words
            tell(dict(case=case, error=repr(error)[:300], traceback=traceback.format_exc()[-1500:]))
        os._exit(0)

    processes = {}
    for case in cases:
        pid = os.fork()
        if pid == 0: child(case)
        processes[case] = pid
    is_ready = lambda case: os.path.exists(os.path.join(folder, case + ".ready"))  # noqa: E731
    gone = set()
    while not all(is_ready(case) or case in gone for case in cases) and time.time() - started < 45:
        for case, pid in processes.items():
            if case not in gone and not is_ready(case) and os.waitpid(pid, os.WNOHANG)[0]: gone.add(case)
        time.sleep(.02)
    for case in gone: print("gone", case, flush=True)
    print(f"prepared in {time.time() - started:.1f} s", flush=True)
    for case in cases:
        if case in gone: continue
        begun = time.time()
        open(os.path.join(folder, case + ".go"), "w").close()
        while not os.waitpid(processes[case], os.WNOHANG)[0]:
            if time.time() - started > a.budget or time.time() - begun > 40:
                os.kill(processes[case], 9)
                os.waitpid(processes[case], 0)
                print("killed", case, flush=True)
                break
            time.sleep(.01)
        print(f"{case} {time.time() - begun:.1f} s", flush=True)


if __name__ == "__main__": main()
