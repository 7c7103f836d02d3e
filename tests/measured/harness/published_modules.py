"""Modules of published runs that are no family of memcalc, written anew from what they compute: records
tests/measured/published/programs/languini-*.json.gz and qwen1-*.json.gz.

    published_modules.py languini|qwen OUT_DIRECTORY     with a Python that has torch

timm-*-eager.json.gz there: `python -m memcalc.record --timm NAME` of timm 1.0.31 under TIMM_FUSED_ATTN=0.
"""
import math
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
package = types.ModuleType("memcalc")
package.__path__ = [str(ROOT / "python/memcalc")]
sys.modules["memcalc"] = package

import torch
import torch.nn.functional as F
from memcalc.record import record
from torch import nn


class LanguiniLayer(nn.Module):
    """GPT's layer in its own words: the GELU, the scaled scores and their mask are calls of torch, not kernels."""

    def __init__(self, width, inner, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.register_buffer("mask", torch.tril(torch.ones(4096, 4096))[None, None])

    def forward(self, x):
        batch, length, width = x.shape
        normed = self.norm_1(x)
        query, key, value = (linear(normed).view(batch, length, self.heads, -1).transpose(1, 2)
                             for linear in (self.query, self.key, self.value))
        scores = torch.einsum("bhid,bhjd->bhij", query, key) * (width // self.heads) ** -0.5
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        mixed = torch.einsum("bhjd,bhij->bhid", value, F.softmax(scores, dim=-1))
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.up(self.norm_2(x))
        return x + self.down(0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * torch.pow(y, 3.0)))))


class Languini(nn.Module):
    def __init__(self, layers, width, inner, heads):
        super().__init__()
        self.width = width
        self.tokens, self.positions = nn.Embedding(16384, width), nn.Embedding(512, width)
        self.layers = nn.ModuleList(LanguiniLayer(width, inner, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 16384, bias=False)

    def forward(self, ids, targets=None):
        x = self.tokens(ids) * math.sqrt(self.width)
        x = x + self.positions(torch.arange(ids.shape[1], device=ids.device).unsqueeze(0))
        for layer in self.layers: x = layer(x)
        return self.head(self.norm(x))


class QwenNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * self.weight


class QwenLayer(nn.Module):
    def __init__(self, width, inner, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = QwenNorm(width), QwenNorm(width)
        self.c_attn, self.attention_c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width, bias=False)
        self.w1, self.w2 = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.mlp_c_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x, rotation):
        batch, length, width = x.shape
        query, key, value = self.c_attn(self.ln_1(x)).split(width, dim=2)
        query, key, value = (part.reshape(batch, length, self.heads, -1) for part in (query, key, value))
        # flash-attn rotates each of them in one kernel: here a product, which reads and writes as much
        query, key = query * rotation, key * rotation
        mixed = F.scaled_dot_product_attention(*(part.transpose(1, 2) for part in (query, key, value)), is_causal=True)
        x = x + self.attention_c_proj(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.ln_2(x)
        return x + self.mlp_c_proj(self.w1(y) * F.silu(self.w2(y)))


class Qwen(nn.Module):
    def __init__(self, layers, width, inner, heads):
        super().__init__()
        self.wte, self.h = nn.Embedding(151936, width), nn.ModuleList(QwenLayer(width, inner, heads) for _ in range(layers))
        self.ln_f, self.lm_head = QwenNorm(width), nn.Linear(width, 151936, bias=False)
        self.register_buffer("rotation", torch.ones(1, 32768, 1, width // heads))

    def forward(self, input_ids, labels):
        x = self.wte(input_ids)
        rotation = self.rotation[:, :input_ids.shape[1]].to(x.dtype)
        for layer in self.h: x = layer(x, rotation)
        logits = self.lm_head(self.ln_f(x))
        loss = F.cross_entropy(logits[:, :-1].reshape(-1, 151936), labels[:, 1:].reshape(-1))
        return {"loss": loss, "logits": logits}


LANGUINI = {"tiny": (4, 768, 3072, 12), "small": (12, 768, 3072, 12), "medium": (24, 1024, 4096, 16), "large": (24, 1536, 6144, 16)}
QWEN = {"1.8b": (24, 2048, 5504, 16), "7b": (32, 4096, 11008, 32), "14b": (40, 5120, 13696, 40), "72b": (80, 8192, 24576, 64)}


def ids(batch, sequence): return torch.zeros(batch, sequence, dtype=torch.long)


def main():
    which, out = sys.argv[1], Path(sys.argv[2])
    for name, shape in (LANGUINI if which == "languini" else QWEN).items():
        if which == "languini":
            program = record(lambda: Languini(*shape), lambda batch: {"ids": ids(batch, 512), "targets": ids(batch, 512)}, symbols={"batch": 2},
                             name=f"languini-{name}", loss=lambda out, batch: F.cross_entropy(out.reshape(-1, 16384), batch["targets"].reshape(-1)))
        else:
            program = record(lambda: Qwen(*shape), lambda batch, sequence: {"input_ids": ids(batch, sequence), "labels": ids(batch, sequence)},
                             symbols={"batch": 2, "sequence": 512}, name=f"qwen1-{name}", task="causal")
        program.save(str(out / f"{'qwen1' if which == 'qwen' else which}-{name}.json.gz"))
        print(name)


if __name__ == "__main__":
    main()
