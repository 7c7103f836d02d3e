"""Modules of tests/measured/module_programs_test.cc that are of no library: custom autograd.Functions, regions of checkpointing.

    python modules.py record NAME            NAME.json.gz, with memcalc.record
    python modules.py events NAME PRECISION  NAME.PRECISION.events: what the third step requests and frees, in bytes, on a card
                                             (or on a CUDA runtime that computes nothing)
"""
import sys
from pathlib import Path

import torch
from torch.utils.checkpoint import checkpoint

F = torch.nn.functional
HERE = Path(__file__).parent
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "amp-bf16": torch.float32}


class Swish(torch.autograd.Function):
    """silu(x), whose backward computes the sigmoid once more."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return gradient * (gate * (1 + x * (1 - gate)))


class Scaled(torch.autograd.Function):
    """x * exp(weight) * factor: a parameter, a number, and a tensor without gradient; the product stays on ctx."""

    @staticmethod
    def forward(ctx, x, weight, shown, factor):
        scale = weight.exp() * factor
        ctx.save_for_backward(x, shown)
        ctx.scale = scale
        return x * scale * shown, shown + 1

    @staticmethod
    def backward(ctx, gradient, unused):
        x, shown = ctx.saved_tensors
        of_x = gradient * shown * ctx.scale
        of_weight = (gradient * shown * x * ctx.scale).sum((0, 1))
        return of_x, of_weight, None, None


class CustomFunctions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)
        self.weight = torch.nn.Parameter(torch.zeros(1024))

    def forward(self, x, shown):
        hidden = Swish.apply(self.first(x))
        hidden, shown = Scaled.apply(hidden, self.weight, shown, 0.5)
        return self.last(Swish.apply(hidden)).float().pow(2).mean() + shown.float().mean()


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(256)
        self.up, self.down = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

    def forward(self, x, scale):
        return x + self.down(F.gelu(self.up(self.norm(x)))) * scale


class CheckpointRegions(torch.nn.Module):
    """The first block is not checkpointed, the second is, and of the third a function with a variable of its own."""

    def __init__(self):
        super().__init__()
        self.stem, self.before, self.whole, self.part = torch.nn.Linear(256, 256), Block(), Block(), Block()
        self.head = torch.nn.Linear(256, 64)

    def forward(self, x, shown):
        hidden = self.before(self.stem(x), shown)
        hidden = checkpoint(self.whole, hidden, shown, use_reentrant=False)

        def run(given):
            normed = self.part.norm(given)
            return self.part.down(F.gelu(self.part.up(normed))) + shown

        hidden = hidden + checkpoint(run, hidden, use_reentrant=False)
        return self.head(hidden).float().pow(2).mean()


class JoinedRows(torch.nn.Module):
    """What LLaVA does with the features of its images."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)

    def forward(self, x, shown):
        rows = self.first(x) * shown
        rows = list(rows)
        return self.last(torch.cat(rows, dim=0)).float().pow(2).mean()


MODULES = {"custom_functions": CustomFunctions, "checkpoint_regions": CheckpointRegions,
           "joined_rows": JoinedRows}


def example():
    return {"x": torch.zeros(4, 96, 256), "shown": torch.zeros(4, 96, 1)}


def write_program(name):
    from memcalc.record import Variant, record
    program = record(lambda: MODULES[name](), example(), variants=[Variant("train")], name=name)
    program.save(HERE / f"{name}.json.gz")


def write_events(name, precision):
    torch.cuda.init()
    dtype = PRECISIONS[precision]
    with torch.device("cuda"): module = MODULES[name]().to(dtype)
    batch = {key: value.to("cuda", dtype) for key, value in example().items()}
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-6)
    history = torch.cuda.memory._record_memory_history
    for step in range(3):
        optimizer.zero_grad(set_to_none=True)
        if step == 2: history(max_entries=10**6, context=None)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision.startswith("amp")): loss = module(**batch)
        loss.backward()
        if step == 2:
            events = torch.cuda.memory._snapshot()["device_traces"][0]
            history(enabled=None)
        del loss
        optimizer.step()
    lines = [f"{'+' if e['action'] == 'alloc' else '-'}{e['size']}" for e in events if e["action"] in ("alloc", "free_requested")]
    (HERE / f"{name}.{precision}.events").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "record": write_program(sys.argv[2])
    else: write_events(sys.argv[2], sys.argv[3])
