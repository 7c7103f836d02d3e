"""Steps of bitsandbytes' optimizers: seconds of step() by count and size of parameters, each ended by a look at the card,
as bitsandbytes itself waits behind each parameter. usage: optimizer_times.py OUT"""
import json
import sys
import time

import bitsandbytes as bnb
import torch

SIZES = ((64, 3000), (64, 60000), (64, 1 << 20), (16, 1 << 24), (2, 1 << 28))
KINDS = {"adamw-8bit": (bnb.optim.AdamW8bit, {}), "adamw-bnb": (bnb.optim.AdamW32bit, {}), "lion-8bit": (bnb.optim.Lion8bit, {}),
         "paged-adamw": (bnb.optim.PagedAdamW32bit, {}), "paged-adamw-8bit": (bnb.optim.PagedAdamW8bit, {})}


def main():
    with open(sys.argv[1], "w") as out:
        for dtype in (torch.float32, torch.bfloat16):
            for count, size in SIZES:
                for kind, (Optimizer, more) in KINDS.items():
                    parameters = [torch.nn.Parameter(torch.zeros(size, device="cuda", dtype=dtype)) for _ in range(count)]
                    for each in parameters: each.grad = torch.full_like(each, 1e-3)
                    optimizer, seconds = Optimizer(parameters, lr=1e-5, **more), []
                    for _ in range(6):
                        torch.cuda.synchronize()
                        begin = time.perf_counter()
                        optimizer.step()
                        torch.cuda.synchronize()
                        seconds.append(time.perf_counter() - begin)
                    out.write(json.dumps(dict(kind=kind, dtype=str(dtype)[6:], count=count, size=size, first=seconds[0], seconds=sorted(seconds[1:])[2])) + "\n")
                    out.flush()
                    del parameters, optimizer
                    torch.cuda.empty_cache()


if __name__ == "__main__": main()
