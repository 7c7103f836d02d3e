"""What the host takes to call Triton's kernels as TRL's and Liger's functions do, beside products, a tiny LLaMA and a loop of Python; and
what a backward pass takes in a process that holds paged states of bitsandbytes. Small sizes: the card is never behind.

usage: triton_calls.py OUT [SECONDS]      trl, liger_kernel, bitsandbytes on the path"""
import json
import statistics
import sys
import time

import torch

OUT, BUDGET = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 30
BEGUN = time.time()


def python_us():
    begin, x = time.perf_counter(), 0
    for i in range(30000): x += i & 7
    return 1e6 * (time.perf_counter() - begin)


def write(name, **more):
    with open(OUT, "a") as out: out.write(json.dumps(dict(name=name, **more)) + "\n")


def timed(name, call, before=lambda: None, times=25, **more):
    """Microseconds of the host of a call from an idle card: least, median; a loop of Python beside."""
    if time.time() - BEGUN > BUDGET: return
    try:
        taken, loops = [], []
        for i in range(times + 3):
            given = before()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            call(*([] if given is None else [given]))
            taken.append(1e6 * (time.perf_counter() - begin))
            if i % 5 == 0: loops.append(round(python_us()))
        taken = sorted(taken[3:])
        write(name, least=round(taken[0], 1), median=round(statistics.median(taken), 1), python_us=statistics.median(loops), **more)
    except Exception as error: write(name, error=repr(error)[:400])


def tiny(layers=2, hidden=64):
    import transformers as tf
    config = tf.LlamaConfig(hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
                            vocab_size=512)
    return tf.LlamaForCausalLM(config).cuda().bfloat16()


def llama(tag):
    model, ids = tiny(), torch.randint(0, 500, (2, 32), device="cuda")
    timed("llama2 forward " + tag, lambda: model(input_ids=ids, labels=ids))
    timed("llama2 backward " + tag, lambda loss: loss.backward(), lambda: model(input_ids=ids, labels=ids).loss)


def head():
    from trl.kernels import chunked_logprob as c
    from trl.trainer.utils import maybe_gather_lm_head_ctx  # noqa: F401
    n, h = 32, 64
    bf = dict(device="cuda", dtype=torch.bfloat16)
    f32 = dict(device="cuda", dtype=torch.float32)
    hidden, weight = torch.randn(n, h, **bf), torch.randn(2048, h, **bf)
    tile, acc, acc_w, s = torch.empty(n, 2048, **bf), torch.zeros(n, h, **f32), torch.zeros(2048, h, **f32), [torch.zeros(n, **f32) for _ in range(7)]
    targets = torch.randint(0, 500, (n,), device="cuda")
    timed("mm out", lambda: torch.mm(hidden, weight.t(), out=tile))
    timed("addmm float32 hidden", lambda: torch.addmm(acc, tile, weight, out_dtype=torch.float32, out=acc))
    timed("addmm float32 weight", lambda: torch.addmm(acc_w, tile.t(), hidden, out_dtype=torch.float32, out=acc_w))
    timed("slice", lambda: acc[0:16])
    args = dict(logit_scale=1.0, softcap=1.0, inv_t=1.0, HAS_SOFTCAP=False)
    flags = {f"HAS_{k.upper()}": k in ("entropy", "is_top1") for k in c.OPTIONAL_OUTPUTS}
    timed("trl forward kernel", lambda: c._forward_kernel[(n,)](tile, tile.stride(0), targets, *s, 0, 2048, BLOCK_SIZE=c._BLOCK_SIZE, **flags, **args))
    timed("trl backward kernel", lambda: c._backward_kernel[(n, 2)](tile, tile.stride(0), targets, s[0], s[1], s[2], s[0], 0, 2048, HAS_LOGPROB_GRAD=True,
                                                                     HAS_ENTROPY_GRAD=False, BLOCK_SIZE=c._BLOCK_SIZE, **args))
    f = c.ChunkedLogProbFunction
    for n, h, words in ((597, 768, 32768), (600, 768, 32768), (597, 2048, 32768), (3066, 896, 32768), (597, 768, 21504)):  # as jobs have them
        a, wt, t = torch.randn(n, h, **bf), torch.randn(words, h, **bf), torch.empty(n, 32768, **bf)[:, :words]
        acc, acc_w = torch.zeros(n, h, **f32), torch.zeros(words, h, **f32)
        timed(f"mm out {n} {h} {words}", lambda: torch.mm(a, wt.t(), out=t), times=12)  # noqa: B023
        timed(f"addmm float32 hidden {n} {h} {words}", lambda: torch.addmm(acc, t, wt, out_dtype=torch.float32, out=acc), times=12)  # noqa: B023
        timed(f"addmm float32 weight {n} {h} {words}", lambda: torch.addmm(acc_w, t.t(), a, out_dtype=torch.float32, out=acc_w), times=12)  # noqa: B023
    hidden_of, w_of, targets_of = torch.randn(597, 768, **bf), torch.randn(250880, 768, **bf), torch.randint(0, 500, (597,), device="cuda")
    for trains in (False, True):
        x, wt = hidden_of.clone().requires_grad_(), w_of.clone().requires_grad_(trains)
        call = lambda: f.apply(x, wt, None, targets_of, 1.0, 32768, None, 1.0, ("log_probs", "entropy", "is_top1"))  # noqa: E731,B023
        timed(f"trl head forward of 250880 {'weight' if trains else 'frozen'}", call, times=8)
        timed(f"trl head backward of 250880 {'weight' if trains else 'frozen'}", lambda loss: loss.backward(), lambda: call()[0].sum(), times=8)  # noqa: B023
    for tiles in (1, 2, 4, 8):
        w = torch.randn(1024 * tiles, h, **bf)
        for trains in (False, True):
            x, wt = hidden.clone().requires_grad_(), w.clone().requires_grad_(trains)
            call = lambda: f.apply(x, wt, None, targets, 1.0, 1024, None, 1.0, ("log_probs", "entropy", "is_top1"))  # noqa: E731
            timed(f"trl head forward {tiles} {'weight' if trains else 'frozen'}", call)
            timed(f"trl head backward {tiles} {'weight' if trains else 'frozen'}", lambda loss: loss.backward(), lambda: call()[0].sum())


def liger():
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction  # noqa: F401
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy, liger_rms_norm, liger_rope, liger_swiglu
    bf = dict(device="cuda", dtype=torch.bfloat16, requires_grad=True)
    x, w, big = torch.randn(2, 32, 64, **bf), torch.randn(64, **bf), torch.randn(2, 32, 128, **bf)
    q, k = torch.randn(2, 4, 32, 16, **bf), torch.randn(2, 2, 32, 16, **bf)
    cos, sin = torch.randn(1, 32, 16, device="cuda"), torch.randn(1, 32, 16, device="cuda")
    rows, head, targets = torch.randn(64, 64, **bf), torch.randn(512, 64, **bf), torch.randint(0, 500, (64,), device="cuda")
    for name, call in (("rms norm", lambda: liger_rms_norm(x, w, 1e-6)), ("swiglu", lambda: liger_swiglu(big, big)),
                       ("rope", lambda: liger_rope(q, k, cos, sin)[0]), ("loss", lambda: liger_fused_linear_cross_entropy(rows, head, targets))):
        timed(f"liger {name} forward", call)
        timed(f"liger {name} backward", lambda out: out.backward(), lambda: call().float().sum())  # noqa: B023


def paged():
    import bitsandbytes as bnb
    model, ids = tiny(4), torch.randint(0, 500, (2, 32), device="cuda")
    loss = lambda: model(input_ids=ids, labels=ids).loss  # noqa: E731
    timed("paged: before, backward", lambda x: x.backward(), loss)
    for name, optimizer in (("adamw_8bit", bnb.optim.AdamW8bit), ("paged_adamw_32bit", bnb.optim.PagedAdamW32bit), ("paged_adamw_8bit", bnb.optim.PagedAdamW8bit)):
        of = optimizer(model.parameters(), lr=1e-5)
        big = torch.nn.Parameter(torch.randn(64 << 20, device="cuda", dtype=torch.bfloat16))
        with_big = optimizer([big], lr=1e-5)
        big.grad = torch.zeros_like(big)
        loss().backward()
        timed(f"{name} step", of.step, parameters=len(list(model.parameters())))
        timed(f"{name} step of 64 Mi", with_big.step, times=8)
        timed(f"{name}: then forward", loss, with_big.step, times=8)

        def behind():
            with_big.step()
            return loss()

        timed(f"{name}: then backward", lambda x: x.backward(), behind, times=8)
        timed(f"{name}: backward alone", lambda x: x.backward(), loss, times=8)
        del of, with_big, big


def main():
    for part in (lambda: llama("first"), head, liger, lambda: llama("behind Triton"), paged, lambda: llama("last")):
        try: part()
        except Exception as error: write("failed", error=repr(error)[:600])


if __name__ == "__main__": main()
