"""What a step of sizes that were not seen waits for beside cuDNN's plans (new_widths.py): cuBLAS's choice by kind of product and
shape, cudaMalloc and cudaFree by size, and which attentions of cuDNN use a kernel for the first time in their process (0.3 to 1.3 s).
Each part in a forked process of its own, one after the other, no profiler. A line of OUT each; `python_us`: jobs_run.py's loop, beside.

usage: new_size_parts.py OUT [--only products,mallocs,kernels,lazy] [--dry]
"""
import argparse
import ctypes
import json
import os
import random
import time
import traceback

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # forks before CUDA starts
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DRY = False
LAYERS = ((768, 768), (768, 2304), (768, 3072), (3072, 768), (1024, 2816), (2048, 8192), (768, 32128))
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def python_us():
    begin, x = time.perf_counter(), 0
    for i in range(30000): x += i & 7
    return 1e6 * (time.perf_counter() - begin)


def timed(call):
    if not DRY: torch.cuda.synchronize()
    begun = time.perf_counter()
    call()
    if not DRY: torch.cuda.synchronize()
    return round(1000 * (time.perf_counter() - begun), 3)


def products(tell):
    device = "cpu" if DRY else "cuda"
    r = random.Random(5)
    for dtype in TYPES:
        for inner, outer in LAYERS:
            make = lambda *shape: torch.randn(*shape, device=device, dtype=TYPES[dtype])  # noqa: E731
            w, b = make(outer, inner), make(outer)
            rows = [512] + r.sample(range(200, 4000), 5) + [8 * n for n in r.sample(range(40, 400), 5)]
            given = [(make(n, inner), make(n, outer)) for n in (rows if not DRY else [64, 72])]
            for kind, call in {"forward": lambda x, g: torch.mm(x, w.t()), "forward-bias": lambda x, g: torch.addmm(b, x, w.t()),
                               "input": lambda x, g: torch.mm(g, w), "weight": lambda x, g: torch.mm(g.t(), x)}.items():
                first = [timed(lambda: call(*each)) for each in given]
                again = [timed(lambda: call(*each)) for each in given]
                tell(dict(part="products", dtype=dtype, inner=inner, outer=outer, kind=kind, rows=rows[1:], first=first[1:], again=again[1:]))
    # What stands beside each other by rows: scores and weighted values of eager attention.
    for keys in r.sample(range(40, 500), 6):
        q, k = (torch.randn(96, keys, 64, device=device, dtype=torch.bfloat16) for _ in range(2))
        p = torch.randn(96, keys, keys, device=device, dtype=torch.bfloat16)
        calls = {"scores": lambda: torch.bmm(q, k.transpose(1, 2)), "values": lambda: torch.bmm(p, k), "turned": lambda: torch.bmm(p.transpose(1, 2), q)}
        tell(dict(part="batched", keys=keys, **{name: [timed(call), timed(call)] for name, call in calls.items()}))


def mallocs(tell):
    if DRY: return
    torch.zeros(1, device="cuda")
    runtime = ctypes.CDLL([line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line][0])
    for mib in (2, 20, 42, 128, 512, 1024, 4096, 16384):
        pointers, taken, given = [], [], []
        for _ in range(4):
            p = ctypes.c_void_p()
            taken.append(timed(lambda: runtime.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(mib << 20))))
            pointers.append(p)
        for p in pointers: given.append(timed(lambda: runtime.cudaFree(p)))
        torch_takes = timed(lambda: torch.empty(mib << 20, dtype=torch.uint8, device="cuda"))
        torch_again = timed(lambda: torch.empty(mib << 20, dtype=torch.uint8, device="cuda"))
        torch_gives = timed(torch.cuda.empty_cache)
        tell(dict(part="mallocs", mib=mib, cuda_malloc=taken, cuda_free=given, torch=torch_takes, torch_again=torch_again, empty_cache=torch_gives))


ATTENTIONS = [  # mask: as transformers gives it, [B, 1, S, S]; keys
    (f"{what}-{keys}", keys, more) for what, more in (("mask", dict(mask=True)), ("plain", {}), ("causal", dict(causal=True)))
    for keys in ((64, 301, 302, 303, 304, 308, 37, 45, 1021, 130, 132, 600) if what == "mask" else (301, 302, 304, 37, 1021))]


def kernels(tell):
    device = "cpu" if DRY else "cuda"
    for name, keys, more in ATTENTIONS:
        q, k, v = (torch.randn(4, keys, 12, 64, device=device, dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(3))
        mask = torch.zeros(4, 1, keys, keys, device=device, dtype=torch.bfloat16) if "mask" in more else None
        got = []

        def forward(): got.append(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=more.get("causal", False)))
        with sdpa_kernel([SDPBackend.MATH if DRY else SDPBackend.CUDNN_ATTENTION]):
            first = timed(forward)
            back = timed(lambda: torch.autograd.grad(got[0].sum(), (q, k, v)))
        tell(dict(part="kernels", case=name, keys=keys, forward=first, backward=back))


TURNS = {"plain": {}, "dropout": dict(dropout=.1), "mask": dict(mask=True), "mask-dropout": dict(mask=True, dropout=.1), "causal": dict(causal=True),
         "causal-dropout": dict(causal=True, dropout=.1), "wide": dict(causal=True, width=128)}


def turns(tell):
    """Plans of seven kinds of attention in turns, each with a width of its own; the first round uses kernels for the first time."""
    device, r = "cpu" if DRY else "cuda", random.Random(3)
    for round_, keys in enumerate([301] + [4 * n + 1 for n in r.sample(range(10, 120), 7)]):
        for name, more in TURNS.items():
            width = more.get("width", 64)
            q, k, v = (torch.randn(8, keys, 12, width, device=device, dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(3))
            mask = torch.zeros(8, 1, keys, keys, device=device, dtype=torch.bfloat16) if "mask" in more else None
            got = []

            def forward():
                got.append(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=more.get("causal", False), dropout_p=more.get("dropout", 0.)))
            with sdpa_kernel([SDPBackend.MATH if DRY else SDPBackend.CUDNN_ATTENTION]):
                first = timed(forward)
                grad = torch.randn_like(got[0])
                back = timed(lambda: torch.autograd.grad(got[0], (q, k, v), grad))
            tell(dict(part="turns", case=name, round=round_, keys=keys, forward=first, backward=back))


def collators(tell):
    """Of lists of numbers, as a tokenizer leaves them, a batch makes tensors: microseconds, least of twelve."""
    import jobs_run
    import datasets
    import transformers as tf
    datasets.fingerprint.Hasher.hash = classmethod(lambda cls, value: os.urandom(8).hex())
    from trl.trainer.dpo_trainer import DataCollatorForPreference
    from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference
    from trl.trainer.reward_trainer import DataCollatorForPreference as OfRewards
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling
    torch.set_num_threads(2)
    tokenizer, r = jobs_run.tokenizer(), random.Random(1)
    ids = lambda n: jobs_run.ids(r, n)  # noqa: E731

    def least(call):
        times = []
        for _ in range(12):
            begun = time.perf_counter()
            call()
            times.append(1e6 * (time.perf_counter() - begun))
        return round(min(times), 1)

    for bs, n in ((2, 128), (8, 200), (16, 200), (8, 512), (32, 512)):
        rows = {"sft": [dict(input_ids=ids(n - i)) for i in range(bs)],
                "pad": [dict(input_ids=ids(n - i), labels=1) for i in range(bs)],
                "seq2seq": [dict(input_ids=ids(n - i), labels=ids(n - i)) for i in range(bs)],
                "lists": [dict(input_ids=ids(n), attention_mask=[1] * n, labels=ids(n)) for i in range(bs)],
                "dpo": [dict(prompt_ids=ids(n // 2), chosen_ids=ids(n // 2 - i), rejected_ids=ids(n // 2)) for i in range(bs)],
                "reward": [dict(chosen_ids=ids(n - i), rejected_ids=ids(n)) for i in range(bs)],
                "kto": [dict(prompt_ids=ids(n // 2), completion_ids=ids(n // 2 - i), KL_completion_ids=ids(n // 2), label=True) for i in range(bs)]}
        calls = {"sft": DataCollatorForLanguageModeling(pad_token_id=0), "pad": tf.DataCollatorWithPadding(tokenizer), "seq2seq": tf.DataCollatorForSeq2Seq(tokenizer),
                 "lists": tf.default_data_collator, "dpo": DataCollatorForPreference(pad_token_id=0), "reward": OfRewards(pad_token_id=0),
                 "kto": DataCollatorForUnpairedPreference(pad_token_id=0)}
        table = datasets.Dataset.from_list(rows["sft"] * 3)
        texts = [jobs_run.words(r, n) for _ in range(bs)]
        tell(dict(part="collators", batch=bs, tokens=n, **{name: least(lambda: call([dict(row) for row in rows[name]])) for name, call in calls.items()},
                  arrow=least(lambda: table.__getitems__(list(range(bs)))), texts=least(lambda: tokenizer(texts, padding=True, return_tensors="pt"))))


def lazy(tell):
    """A step's small kernels in a process that has not used them: what CUDA loads."""
    device = "cpu" if DRY else "cuda"
    x = torch.randn(512, 768, device=device)
    h, i = x.bfloat16(), torch.randint(0, 99, (512,), device=device)
    w = torch.randn(768, device=device)
    calls = {"add": lambda: x + x, "gelu": lambda: F.gelu(h), "silu": lambda: F.silu(h), "softmax": lambda: x.softmax(-1), "norm": lambda: F.layer_norm(x, (768,), w, w),
             "cast": lambda: x.bfloat16(), "embedding": lambda: F.embedding(i, x), "loss": lambda: F.cross_entropy(x, i), "sum": lambda: x.sum(),
             "mean": lambda: x.mean(-1), "cat": lambda: torch.cat([x, x]), "pow": lambda: h.float().pow(2).mean(-1, keepdim=True), "copy": lambda: x.t().contiguous(),
             "dropout": lambda: F.dropout(h, .1), "norms": lambda: torch._foreach_norm([x, w]), "eq": lambda: (i == 3).any(), "argmax": lambda: x.argmax(-1)}
    tell(dict(part="lazy", **{name: [timed(call), timed(call)] for name, call in calls.items()}))


def main():
    global DRY
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--only", default="products,mallocs,lazy,kernels")
    parser.add_argument("--dry", action="store_true")
    a = parser.parse_args()
    DRY = a.dry

    def tell(row):
        with open(a.out, "a") as out: out.write(json.dumps(dict(row, python_us=round(min(python_us() for _ in range(2))))) + "\n")

    for name in a.only.split(","):
        pid = os.fork()
        if pid == 0:
            try: globals()[name](tell)
            except BaseException as error: tell(dict(part=name, error=repr(error)[:300], traceback=traceback.format_exc()[-1500:]))
            os._exit(0)
        begun = time.time()
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.time() - begun > 45: os.kill(pid, 9)
            time.sleep(.02)
        print(f"{name} {time.time() - begun:.1f} s", flush=True)


if __name__ == "__main__": main()
