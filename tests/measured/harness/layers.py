"""What a file of layers (docs/specs.md) means in torch: builds the module that memcalc models.

    python3 layers.py FILE.json      prints the module and its parameter count (on the CPU)
"""
import json, os, sys
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

HERE = os.path.dirname(os.path.abspath(__file__))
ACTIVATIONS = dict(relu=nn.ReLU, gelu=nn.GELU, silu=nn.SiLU, tanh=nn.Tanh, sigmoid=nn.Sigmoid, leaky_relu=nn.LeakyReLU, elu=nn.ELU,
                   hardswish=nn.Hardswish, relu6=nn.ReLU6, mish=nn.Mish, softplus=nn.Softplus)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, width, sequence, heads, kv_heads=None, head_dim=None, causal=False, rotary=False, fused=True, bias=True, dropout=0.0):
        super().__init__()
        self.head_dim = D = head_dim or width // heads; kv = (kv_heads or heads) * D
        self.sizes = (heads * D, kv, kv); self.fused, self.causal, self.dropout = fused, causal, dropout
        if fused: self.qkv = nn.Linear(width, sum(self.sizes), bias=bias)
        else:
            self.query = nn.Linear(width, heads * D, bias=bias); self.key = nn.Linear(width, kv, bias=bias); self.value = nn.Linear(width, kv, bias=bias)
        self.out = nn.Linear(heads * D, width, bias=bias)
        self.rotary = rotary
        if rotary:
            self.register_buffer("cos", torch.empty(sequence, D)); self.register_buffer("sin", torch.empty(sequence, D))
        self.grouped = kv != heads * D

    def forward(self, x):
        B, S, _ = x.shape
        if self.fused: q, k, v = (t.view(B, S, -1, self.head_dim).transpose(1, 2) for t in self.qkv(x).split(self.sizes, dim=2))
        else: q, k, v = (p(x).view(B, S, -1, self.head_dim).transpose(1, 2) for p in (self.query, self.key, self.value))
        if self.rotary:
            q = rotate(q, self.cos, self.sin); k = rotate(k, self.cos, self.sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, dropout_p=self.dropout, enable_gqa=self.grouped)
        return self.out(y.transpose(1, 2).contiguous().view(B, S, -1))


class TokensAndPositions(nn.Module):
    def __init__(self, rows, positions, width): super().__init__(); self.token = nn.Embedding(rows, width); self.position = nn.Embedding(positions, width)
    def forward(self, x): return self.token(x) + self.position(torch.arange(x.shape[1], device=x.device))


class Positions(nn.Module):
    def __init__(self, shape): super().__init__(); self.weight = nn.Parameter(torch.empty(1, *shape))
    def forward(self, x): return x + self.weight


class Call(nn.Module):
    def __init__(self, f): super().__init__(); self.f = f
    def forward(self, x): return self.f(x)


class Repeat(nn.Module):
    def __init__(self, blocks, ckpt):
        super().__init__(); self.ckpt = ckpt
        for i, b in enumerate(blocks): self.add_module(str(i), b)
    def forward(self, x):
        for block in self.children(): x = checkpoint(block, x, use_reentrant=False) if self.ckpt else block(x)
        return x


class Residual(nn.Module):
    def __init__(self, layers, shortcut):
        super().__init__(); self.layers = layers
        if shortcut is not None: self.shortcut = shortcut
    def forward(self, x): return (self.shortcut(x) if hasattr(self, "shortcut") else x) + self.layers(x)


class Gated(nn.Module):
    def __init__(self, layers, gate): super().__init__(); self.layers = layers; self.gate = gate
    def forward(self, x): return self.gate(x) * self.layers(x)


class Builder:
    """Follows the sample's shape (without the batch) from layer to layer."""
    def __init__(self, spec, length, size, ckpt):
        i = spec["input"]; self.ckpt = ckpt; self.vocabulary = i.get("vocabulary")
        self.shape = {"features": lambda: list(i["shape"]), "images": lambda: [i.get("channels", 3)] + [size or i["size"]] * 2, "tokens": lambda: [length or i["length"]]}[i["type"]]()

    def chain(self, layers, ckpt):
        chain = nn.Sequential()
        for i, l in enumerate(layers): chain.add_module(l.get("name", str(i)), self.layer(l, ckpt))
        return chain

    def beside(self, layers, ckpt, shape):
        after, self.shape = self.shape, list(shape); chain = self.chain(layers, ckpt); self.shape = after
        return chain

    def windows(self, k, s, p): self.shape[1:] = [(n + 2 * p - k) // s + 1 for n in self.shape[1:]]

    def layer(self, l, ckpt):
        l = dict(l); t = l.pop("type"); l.pop("name", None); sh = self.shape; two = len(sh) == 3
        if t == "linear":
            l.pop("in_features", None); m = nn.Linear(sh[-1], **l); sh[-1] = m.out_features; return m
        if t in ("conv1d", "conv2d"):
            l.pop("in_channels", None); m = (nn.Conv2d if t == "conv2d" else nn.Conv1d)(sh[0], **l); self.windows(m.kernel_size[0], m.stride[0], m.padding[0]); sh[0] = m.out_channels; return m
        if t == "batch_norm": return (nn.BatchNorm2d if two else nn.BatchNorm1d)(sh[0])
        if t == "group_norm": return nn.GroupNorm(l["num_groups"], sh[0])
        if t == "layer_norm": return nn.LayerNorm(sh[-1])
        if t == "rms_norm": return nn.RMSNorm(sh[-1])
        if t == "attention": return Attention(sh[1], sh[0], **l)
        if t in ACTIVATIONS: return ACTIVATIONS[t](**(dict(inplace=True) if l.get("in_place") else {}))
        if t == "dropout": return nn.Dropout(l["p"])
        if t in ("max_pool", "avg_pool"):
            k = l["kernel_size"]; s = l.get("stride", k); p = l.get("padding", 0); self.windows(k, s, p)
            return getattr(nn, dict(max_pool="MaxPool", avg_pool="AvgPool")[t] + ("2d" if two else "1d"))(k, s, p)
        if t == "adaptive_avg_pool":
            self.shape[1:] = [l["output_size"]] * (len(sh) - 1); return (nn.AdaptiveAvgPool2d if two else nn.AdaptiveAvgPool1d)(l["output_size"])
        if t == "flatten":
            a, b = l.get("start_dim", 1), l.get("end_dim", -1); e = len(sh) if b == -1 else b; n = 1
            for x in sh[a - 1:e]: n *= x
            sh[a - 1:e] = [n]; return nn.Flatten(a, b)
        if t == "transpose":
            a, b = l.get("dim0", 1), l.get("dim1", 2); sh[a - 1], sh[b - 1] = sh[b - 1], sh[a - 1]; return Call(lambda x: x.transpose(a, b))
        if t in ("mean", "first"):
            d = l.get("dim", 1); del sh[d - 1]; return Call((lambda x: x.mean(d)) if t == "mean" else (lambda x: x.select(d, 0)))
        if t == "embedding":
            rows = l.get("num_embeddings", self.vocabulary); sh.append(l["embedding_dim"])
            return TokensAndPositions(rows, l["positions"], sh[-1]) if "positions" in l else nn.Embedding(rows, sh[-1])
        if t == "positions": return Positions(sh)
        if t == "sequential": return self.chain(l["layers"], ckpt)
        if t == "repeat": return Repeat([self.chain(l["layers"], False if ckpt else ckpt) for _ in range(l["times"])], ckpt)
        if t == "residual":
            before = list(sh); layers = self.chain(l["layers"], ckpt); return Residual(layers, self.beside(l["shortcut"], ckpt, before) if "shortcut" in l else None)
        if t == "gated":
            before = list(sh); layers = self.chain(l["layers"], ckpt); return Gated(layers, self.beside(l["gate"], ckpt, before))
        raise ValueError(t)


class Model(nn.Module):
    def __init__(self, spec, length=None, size=None, ckpt=False):
        super().__init__()
        b = Builder(spec, length, size, ckpt); self.input_shape = list(b.shape)
        self.layers = b.chain(spec["layers"], ckpt); self.output_shape = list(b.shape); loss = spec["loss"]
        if loss["type"] == "causal_lm":
            self.head = nn.Linear(b.shape[-1], b.vocabulary, bias=loss.get("bias", False))
            if loss.get("tie_weights", True):
                e = next(m for m in self.modules() if isinstance(m, nn.Embedding)); self.head.weight = e.weight

    def forward(self, x, y):
        logits = self.head(self.layers(x)) if hasattr(self, "head") else self.layers(x)
        if logits.dim() == 2: return F.cross_entropy(logits, y)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))


def read(name):
    for path in (name, os.path.join(HERE, "../layers", name + ".json"), os.path.join(HERE, "../../../specs/examples", name + ".json")):
        if os.path.exists(path): return json.load(open(path))
    raise FileNotFoundError(name)


def build(name, case, dtype, ri):
    spec = read(name); B = case["batch_size"]
    with torch.device("cuda"): m = Model(spec, case.get("sequence_length"), case.get("image_size"), case.get("checkpointing") == "full")
    m = m.to(dtype)
    if spec["input"]["type"] == "tokens": x = torch.randint(0, spec["input"]["vocabulary"], (B, *m.input_shape), device="cuda")
    else: x = torch.randn(B, *m.input_shape, device="cuda", dtype=dtype)
    classes = spec["loss"].get("classes", spec["input"].get("vocabulary"))
    y = torch.randint(0, classes, (B, *m.output_shape[:-1]), device="cuda")
    return m, dict(x=x, y=y)


if __name__ == "__main__":
    m = Model(read(sys.argv[1])); print(m); print(sum(p.numel() for p in m.parameters()), "parameters")
