"""What torch 2.11's inductor chooses about padding products whose rows are not aligned (fx_passes/pad_mm.py): needs a card, a minute.

usage: padding_choices.py OUT.jsonl [--lengths]    --lengths: products whose rows are aligned and whose length is not
The products of a language model's head, by type and rows: forward, the gradient of what enters and that of the weight. A row: type, product,
m, k, n, milliseconds (twice) of the product as it stands and padded with pad_mm's own copies, which pads where the first is more than 1.1
times the second; "planned_ms": without the copy of the gradient, as where the graph makes it.
"""
import json, sys

import torch
from torch._inductor.fx_passes import pad_mm

ROWS = [256, 576, 1024, 2048, 3072, 4480, 5760, 8064, 10368, 16384]
SHAPES = [(768, 50257), (1024, 50257), (768, 30522), (1024, 50265)]  # hidden, vocabulary


def timed(a, b, padded, planned=False):
    """Milliseconds of the product as it stands or padded with its copies, as pad_mm times them."""
    from torch._inductor.runtime.benchmarking import benchmarker
    align = 4 if a.dtype == torch.float32 else 8
    up = lambda n: -(-n // align) * align - n
    m, k, n = up(a.shape[0]), up(a.shape[1]), up(b.shape[1])
    if not padded:
        return benchmarker.benchmark_gpu(lambda: torch.mm(a, b))

    if planned:
        a = pad_mm.pad_mat1(a, m_padded_length=m, k_padded_length=k)
    return benchmarker.benchmark_gpu(lambda: pad_mm.pad_mm(a, b, m, k, n, planned, False))


def of_lengths(out):
    for dtype in (torch.bfloat16, torch.float32):
        torch.backends.cuda.matmul.allow_tf32 = True
        for hidden, wide in ((768, 3072), (1024, 4096), (768, 50304), (4096, 14336)):
            for rows in (788, 2001, 6301, 14001):
                x = torch.randn(rows, hidden, device="cuda", dtype=dtype)
                w = torch.randn(wide, hidden, device="cuda", dtype=dtype)
                g = torch.randn(rows, wide, device="cuda", dtype=dtype)
                for product, a, b in (("forward", x, w.t()), ("input", g, w), ("weight", g.t(), x)):
                    row = dict(dtype=str(dtype)[6:].replace("float32", "tf32"), product=product, m=a.shape[0], k=a.shape[1],
                               n=b.shape[1], plain_ms=[round(timed(a, b, False), 4) for _ in range(2)],
                               padded_ms=[round(timed(a, b, True), 4) for _ in range(2)],
                               planned_ms=[round(timed(a, b, True, True), 4) for _ in range(2)])
                    out.write(json.dumps(row) + "\n"); out.flush()


def main():
    with open(sys.argv[1], "w") as out:
        if "--lengths" in sys.argv:
            return of_lengths(out)
        for dtype in (torch.float32, torch.bfloat16):
            for tf32 in ((False, True) if dtype == torch.float32 else (False,)):
                torch.backends.cuda.matmul.allow_tf32 = tf32
                for hidden, vocabulary in SHAPES:
                    for rows in ROWS:
                        x = torch.randn(rows, hidden, device="cuda", dtype=dtype)
                        w = torch.randn(vocabulary, hidden, device="cuda", dtype=dtype)
                        g = torch.randn(rows, vocabulary, device="cuda", dtype=dtype)
                        for product, a, b in (("forward", x, w.t()), ("input", g, w), ("weight", g.t(), x)):
                            row = dict(dtype=str(dtype)[6:] if not tf32 else "tf32", product=product, m=a.shape[0], k=a.shape[1],
                                       n=b.shape[1], plain_ms=[round(timed(a, b, False), 4) for _ in range(2)],
                                       padded_ms=[round(timed(a, b, True), 4) for _ in range(2)])
                            if product == "input":
                                row["planned_ms"] = [round(timed(a, b, True, True), 4) for _ in range(2)]
                            out.write(json.dumps(row) + "\n"); out.flush()
                        del x, w, g


if __name__ == "__main__":
    main()
