"""Three models in plain torch, for architectures that are described layer by layer."""
import torch
from torch import nn
from torch.nn import functional as F


class Classifier(nn.Module):
    def __init__(self, net): super().__init__(); self.net = net
    def forward(self, x, y): return F.cross_entropy(self.net(x), y)


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def cnn():
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
                         nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Attention(nn.Module):
    def __init__(self, width, heads): super().__init__(); self.heads = heads; self.qkv = nn.Linear(width, 3 * width); self.out = nn.Linear(width, width)
    def forward(self, x):
        B, S, W = x.shape
        q, k, v = (t.view(B, S, self.heads, W // self.heads).transpose(1, 2) for t in self.qkv(x).split(W, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(B, S, W))


class Block(nn.Module):
    def __init__(self, width, heads, ffn):
        super().__init__()
        self.norm1 = nn.LayerNorm(width); self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width); self.mlp = nn.Sequential(nn.Linear(width, ffn), nn.GELU(), nn.Linear(ffn, width))
    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, vocab=32000, positions=1024, width=512, heads=8, ffn=2048, layers=4):
        super().__init__()
        self.token = nn.Embedding(vocab, width); self.position = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList([Block(width, heads, ffn) for _ in range(layers)])
        self.norm = nn.LayerNorm(width); self.head = nn.Linear(width, vocab, bias=False); self.head.weight = self.token.weight
    def forward(self, x, y):
        h = self.token(x) + self.position(torch.arange(x.shape[1], device=x.device))
        for b in self.blocks: h = b(h)
        logits = self.head(self.norm(h))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))


def build(name, case, dtype, ri):
    B = case["batch_size"]
    if name not in ("mlp", "cnn", "decoder"):
        import layers
        return layers.build(name, case, dtype, ri)
    with torch.device("cuda"):
        m = dict(mlp=lambda: Classifier(mlp()), cnn=lambda: Classifier(cnn()), decoder=Decoder)[name]()
    m = m.to(dtype)
    if name == "decoder": x = ri(32000, B, case["sequence_length"]); y = ri(32000, B, case["sequence_length"])
    elif name == "mlp": x = torch.randn(B, 784, device="cuda", dtype=dtype); y = ri(9, B)
    else: x = torch.randn(B, 3, case["image_size"], case["image_size"], device="cuda", dtype=dtype); y = ri(9, B)
    return m, dict(x=x, y=y)
