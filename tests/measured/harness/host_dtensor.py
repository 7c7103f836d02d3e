"""Microseconds of the host in tensor parallelism's parts, without a card: a LLaMA layer of tiny sizes on the CPU, rank 0 of two in torch's
fake process group, each part in turns with the others. What counts is each over a Linear of DTensors, which a card's host was timed at.
usage: host_dtensor.py OUT.jsonl [ROUNDS]"""
import json, sys, time, os, warnings
warnings.filterwarnings("ignore")
import torch, torch.distributed as dist, torch.nn as nn
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.set_num_threads(1)
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module
from transformers.models.llama.modeling_llama import LlamaRMSNorm
mesh = init_device_mesh("cpu", (2,))
W, T = 64, 16
x = torch.randn(1, T, W, requires_grad=True); half = torch.randn(1, T // 2, W, requires_grad=True)
D = torch.bfloat16


class Pass(nn.Module):
    def forward(self, hidden): return hidden


def split(module, style): return parallelize_module(nn.ModuleDict(dict(it=module)), mesh, dict(it=style))["it"]


def parts(dtype):
    whole, own = x.detach().to(dtype).requires_grad_(), half.detach().to(dtype).requires_grad_()
    linear = lambda n=W: nn.Linear(W, n, bias=False, dtype=dtype)
    norm = lambda: LlamaRMSNorm(W).to(dtype)
    sharded = lambda: DTensor.from_local(own, mesh, [Shard(1)], run_check=False)
    made = {
        "linear": (linear(), lambda m: m(whole), [whole]), "norm": (norm(), lambda m: m(own), [own]), "layer norm": (nn.LayerNorm(W, dtype=dtype), lambda m: m(own), [own]),
        "column": (split(linear(), ColwiseParallel()), lambda m: m(whole), [whole]), "row": (split(linear(), RowwiseParallel()), lambda m: m(own_half(m, whole)), [whole]),
        "row to sequence": (split(linear(), RowwiseParallel(output_layouts=Shard(1))), lambda m: m(own_half(m, whole)), [whole]),
        "sequence norm": (split(norm(), SequenceParallel()), lambda m: m(own).to_local(), [own]), "sequence layer norm": (split(nn.LayerNorm(W, dtype=dtype), SequenceParallel()), lambda m: m(own).to_local(), [own]),
        "from_local, to_local": (None, lambda m: sharded().to_local(), [own]),
        "gather": (None, lambda m: sharded().redistribute(placements=[Replicate()]).to_local(), [own]),
        "gather for columns": (split(Pass(), PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))), lambda m: m(own).to_local(), [own]),
        "operator": (None, lambda m: (sharded() * 2.0).to_local(), [own]), "ten operators": (None, ten(sharded), [own])}
    made.update({"layer, " + way: layer(way, dtype) for way in ("plain", "tp", "sp")})
    return made


def layer(way, dtype):
    """A decoder layer: as it is, its Linears split, or with its norms and the sequence between them, too (measure_parallel.py)."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
    import measure_parallel as MP
    config = LlamaConfig(hidden_size=W, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1, vocab_size=99)
    config._attn_implementation = "sdpa"; it = LlamaDecoderLayer(config, 0).to(dtype).train(); whole = x.detach().to(dtype).requires_grad_(); own = half.detach().to(dtype).requires_grad_()
    positions = LlamaRotaryEmbedding(config)(whole, torch.arange(T).unsqueeze(0))
    positions = tuple(each.to(dtype) for each in positions)
    if way != "plain":
        class Model(nn.Module):
            def __init__(self): super().__init__(); self.model = nn.Module(); self.model.layers = nn.ModuleList([it]); self.model.embed_tokens = nn.Embedding(100, W); self.model.norm = LlamaRMSNorm(W); self.lm_head = nn.Linear(W, 100)
        MP.split_model(Model(), mesh, dict(sp=True) if way == "sp" else {})
    given = own if way == "sp" else whole
    def run(_):
        out = it(given, attention_mask=None, position_embeddings=positions)
        out = out[0] if isinstance(out, tuple) else out
        return out.to_local() if isinstance(out, DTensor) else out
    return None, run, [given]


def ten(sharded):
    def f(m):
        y = sharded()
        for _ in range(10): y = y * 2.0
        return y.to_local()
    return f


def own_half(m, whole): return whole[..., :W // 2]


def timed(f, times):
    """Seconds of the processor in forward and in backward: others may have it in between."""
    outs = []
    begin = time.thread_time()
    for _ in range(times): outs.append(f())
    middle = time.thread_time()
    for o in outs: o.backward(torch.ones_like(o))
    return (middle - begin) / times, (time.thread_time() - middle) / times


def main():
    rounds = int((sys.argv[2:] + ["25"])[0])
    for dtype in (torch.float32, torch.bfloat16):
        made, took = parts(dtype), {}
        for r in range(rounds + 2):
            for name, (module, f, inputs) in made.items():
                got = timed(lambda: f(module), 8)
                if r > 1: took.setdefault(name, []).append(got)
        for name, all_ in took.items():
            middle = lambda i: sorted(t[i] for t in all_)[len(all_) // 4]
            with open(sys.argv[1], "a") as out: out.write(json.dumps(dict(name=name, dtype=str(dtype)[6:], forward_us=round(1e6 * middle(0), 1), backward_us=round(1e6 * middle(1), 1))) + "\n")


main()
