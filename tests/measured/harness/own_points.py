"""Modules of graphs, points and tables as a user writes them, of own_modules.py."""
import math

import torch
import torch.nn.functional as F
from torch import nn

from own_modules import floats, ids, own


@own(8)
class GraphNet(nn.Module):
    """Messages over edges by gather and scatter, mean and maximum, a readout for each graph; 500 nodes and 4000 edges a graph."""

    def __init__(self, w=128, layers=4):
        super().__init__()
        self.inp = nn.Linear(32, w)
        self.msg = nn.ModuleList(nn.Sequential(nn.Linear(2 * w + 8, w), nn.ReLU(), nn.Linear(w, w)) for _ in range(layers))
        self.upd = nn.ModuleList(nn.GRUCell(w, w) for _ in range(layers))
        self.norm = nn.ModuleList(nn.BatchNorm1d(w) for _ in range(layers))
        self.out = nn.Linear(2 * w, 1)

    def forward(self, x, edge, feature, y):
        b, n, _ = x.shape
        h = self.inp(x.flatten(0, 1))
        place = (edge + torch.arange(b, device=x.device)[:, None, None] * n).transpose(0, 1).flatten(1)
        src, dst, feature = place[0], place[1], feature.flatten(0, 1)
        count = torch.zeros(b * n, device=x.device).index_add_(0, dst, torch.ones(dst.numel(), device=x.device)).clamp_(min=1)
        for msg, upd, norm in zip(self.msg, self.upd, self.norm):
            m = msg(torch.cat([h[src], h[dst], feature], -1))
            total = torch.zeros_like(h, dtype=m.dtype).index_add(0, dst, m) / count[:, None].to(m.dtype)
            h = norm(upd(total.to(h.dtype), h))
        h = h.view(b, n, -1)
        return F.mse_loss(self.out(torch.cat([h.mean(1), h.amax(1)], -1)).squeeze(-1).float(), y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 500, 32), "edge": ids(500, batch, 2, 4000), "feature": floats(batch, 4000, 8), "y": floats(batch)}


@own(4)
class GraphAttention(nn.Module):
    """GAT: a softmax over each node's edges by scatter_reduce and scatter_add."""

    def __init__(self, w=64, heads=4):
        super().__init__()
        self.h, self.lin = heads, nn.ModuleList([nn.Linear(64, w * heads, bias=False), nn.Linear(w * heads, w * heads, bias=False)])
        self.a = nn.ParameterList(nn.Parameter(torch.randn(2, heads, w) * 0.1) for _ in range(2))
        self.out = nn.Linear(w * heads, 40)

    def forward(self, x, edge, y):
        b, n, _ = x.shape
        x, shift = x.flatten(0, 1), torch.arange(b, device=x.device)[:, None] * n
        src, dst = (edge[:, 0] + shift).flatten(), (edge[:, 1] + shift).flatten()
        for lin, a in zip(self.lin, self.a):
            h = lin(x).unflatten(-1, (self.h, -1))
            score = F.leaky_relu((h * a[0]).sum(-1)[src] + (h * a[1]).sum(-1)[dst], 0.2).float()
            where = dst[:, None].expand_as(score)
            top = torch.zeros(b * n, self.h, device=x.device).scatter_reduce(0, where, score, "amax", include_self=False)
            e = torch.exp(score - top[dst].detach())
            alpha = e / (torch.zeros(b * n, self.h, device=x.device).scatter_add(0, where, e)[dst] + 1e-16)
            m = (h[src] * alpha[..., None].to(h.dtype)).flatten(1)
            x = F.elu(torch.zeros(b * n, m.size(1), device=x.device, dtype=m.dtype).scatter_add(0, dst[:, None].expand_as(m), m))
        return F.cross_entropy(self.out(x), y.flatten())

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 1000, 64), "edge": ids(1000, batch, 2, 8000), "y": ids(40, batch, 1000)}


@own(16)
class PointNet(nn.Module):
    """Shared layers over points as convolutions of width 1, a transform net, a regulariser."""

    def __init__(self):
        super().__init__()
        def conv(a, b): return nn.Sequential(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
        self.t1, self.t2, self.t3 = conv(64, 64), conv(64, 128), nn.Linear(128, 64 * 64)
        self.a, self.b = nn.Sequential(conv(3, 64), conv(64, 64)), nn.Sequential(conv(64, 128), conv(128, 1024))
        self.head = nn.Sequential(nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.3), nn.Linear(512, 40))

    def forward(self, x, y):
        h = self.a(x.transpose(1, 2))
        t = self.t3(self.t2(self.t1(h)).max(2)[0]).view(-1, 64, 64) + torch.eye(64, device=x.device)
        h = torch.bmm(h.transpose(2, 1), t).transpose(2, 1)
        loss = F.cross_entropy(self.head(self.b(h).max(2)[0]), y)
        off = torch.bmm(t, t.transpose(2, 1)) - torch.eye(64, device=x.device)[None]
        return loss + 0.001 * torch.norm(off.float(), dim=(1, 2)).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 2048, 3), "y": ids(40, batch)}


@own(256)
class ClickNet(nn.Module):
    """DLRM: bags of embeddings, pairwise products below the diagonal."""

    def __init__(self, tables=26, rows=50000, w=64):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, w, mode="sum") for _ in range(tables))
        self.low = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, w), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(w + (tables + 1) * tables // 2, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, dense, sparse, y):
        x = self.low(dense)
        t = torch.stack([x] + [bag(sparse[:, i]).to(x.dtype) for i, bag in enumerate(self.bags)], 1)
        z = torch.bmm(t, t.transpose(1, 2))
        i, j = torch.tril_indices(t.size(1), t.size(1), -1, device=x.device)
        return F.binary_cross_entropy_with_logits(self.top(torch.cat([x, z[:, i, j]], 1)).squeeze(1), y)

    @staticmethod
    def inputs(batch): return {"dense": floats(batch, 13), "sparse": ids(50000, batch, 26, 3), "y": floats(batch)}


@own(1024)
class Nerf(nn.Module):
    """Rays, positions in sines, transmittance by cumprod."""

    def __init__(self, w=256, samples=64):
        super().__init__()
        self.samples = samples
        self.layers = nn.ModuleList(nn.Linear(63 if i == 0 else w + 63 if i == 4 else w, w) for i in range(8))
        self.sigma, self.feature = nn.Linear(w, 1), nn.Linear(w, w)
        self.rgb = nn.Sequential(nn.Linear(w + 27, w // 2), nn.ReLU(), nn.Linear(w // 2, 3), nn.Sigmoid())

    @staticmethod
    def sines(x, n): return torch.cat([x] + [f(2.0 ** i * x) for i in range(n) for f in (torch.sin, torch.cos)], -1)

    def forward(self, origin, way, y):
        z = torch.linspace(2, 6, self.samples, device=y.device).expand(origin.size(0), -1)
        z = z + torch.rand_like(z) * (4 / self.samples)
        p = self.sines(origin[:, None] + way[:, None] * z[..., None], 10)
        h = p
        for i, layer in enumerate(self.layers): h = F.relu(layer(torch.cat([h, p], -1) if i == 4 else h))
        sigma = F.relu(self.sigma(h)).squeeze(-1)
        view = self.sines(F.normalize(way, dim=-1), 4)[:, None].expand(-1, self.samples, -1)
        rgb = self.rgb(torch.cat([self.feature(h), view], -1))
        delta = torch.cat([z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 1e10)], -1)
        alpha = 1 - torch.exp(-sigma.float() * delta)
        shine = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        return F.mse_loss(((alpha * shine)[..., None] * rgb).sum(1), y)

    @staticmethod
    def inputs(batch): return {"origin": floats(batch, 3), "way": floats(batch, 3), "y": floats(batch, 3)}


@own(16)
class FourierOperator(nn.Module):
    """FNO: complex weights on the low frequencies of an image."""

    class Spectral(nn.Module):
        def __init__(self, w, m):
            super().__init__()
            self.m = m
            self.w1, self.w2 = (nn.Parameter(torch.rand(w, w, m, m, dtype=torch.cfloat) / w ** 2) for _ in range(2))

        def forward(self, x):
            f, m = torch.fft.rfft2(x.float()), self.m
            out = torch.zeros(x.shape[0], self.w1.shape[1], x.size(-2), x.size(-1) // 2 + 1, dtype=torch.cfloat, device=x.device)
            out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, :m, :m], self.w1)
            out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, -m:, :m], self.w2)
            return torch.fft.irfft2(out, s=(x.size(-2), x.size(-1)))

    def __init__(self, w=32, m=12):
        super().__init__()
        self.inp, self.out = nn.Linear(3, w), nn.Sequential(nn.Linear(w, 128), nn.GELU(), nn.Linear(128, 1))
        self.spectral = nn.ModuleList(self.Spectral(w, m) for _ in range(4))
        self.skip = nn.ModuleList(nn.Conv2d(w, w, 1) for _ in range(4))

    def forward(self, x, y):
        h = self.inp(x).permute(0, 3, 1, 2)
        for i, (a, b) in enumerate(zip(self.spectral, self.skip)):
            h = a(h) + b(h)
            if i < 3: h = F.gelu(h)
        p = self.out(h.permute(0, 2, 3, 1)).squeeze(-1)
        return (torch.norm(p.flatten(1).float() - y.flatten(1), dim=1) / torch.norm(y.flatten(1), dim=1)).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 64, 64, 3), "y": floats(batch, 64, 64)}


@own(64)
class Flow(nn.Module):
    """RealNVP on vectors: checkerboards, log determinants, a Gaussian."""

    def __init__(self, d=784, w=1024, layers=8):
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(d, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, 2 * d)) for _ in range(layers))
        self.register_buffer("mask", (torch.arange(d) % 2).float())
        self.scale = nn.Parameter(torch.ones(layers, d))

    def forward(self, x):
        total = x.new_zeros(x.size(0))
        for i, net in enumerate(self.nets):
            mask = self.mask if i % 2 == 0 else 1 - self.mask
            s, t = net(x * mask).chunk(2, -1)
            s = torch.tanh(s) * self.scale[i] * (1 - mask)
            x = x * mask + (1 - mask) * (x * torch.exp(s) + t)
            total = total + s.sum(-1)
        return -(-0.5 * (x ** 2 + math.log(2 * math.pi)).sum(-1) + total).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 784)}


@own(32)
class Capsules(nn.Module):
    """Routing by agreement, three rounds."""

    def __init__(self):
        super().__init__()
        self.conv, self.primary = nn.Conv2d(1, 256, 9), nn.Conv2d(256, 256, 9, 2)
        self.w = nn.Parameter(torch.randn(1, 1152, 10, 16, 8) * 0.01)

    @staticmethod
    def squash(x):
        n = (x ** 2).sum(-1, keepdim=True)
        return n / (1 + n) * x / torch.sqrt(n + 1e-8)

    def forward(self, x, y):
        u = self.squash(self.primary(F.relu(self.conv(x))).view(x.size(0), 1152, 8))
        u = (self.w @ u[:, :, None, :, None]).squeeze(-1)
        b = torch.zeros(x.size(0), 1152, 10, device=x.device)
        for i in range(3):
            v = self.squash((F.softmax(b, 2)[..., None] * u).sum(1))
            if i < 2: b = b + (u * v[:, None]).sum(-1)
        length = v.norm(dim=-1).float()
        hot = F.one_hot(y, 10).float()
        return (hot * F.relu(0.9 - length) ** 2 + 0.5 * (1 - hot) * F.relu(length - 0.1) ** 2).sum(1).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 1, 28, 28), "y": ids(10, batch)}


@own(4)
class ConvLstm(nn.Module):
    """Frames one after another through a cell of convolutions, the last one foretold."""

    def __init__(self, w=64):
        super().__init__()
        self.w, self.gates = w, nn.ModuleList([nn.Conv2d(1 + w, 4 * w, 5, padding=2), nn.Conv2d(2 * w, 4 * w, 5, padding=2)])
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        b, t, _, h, w = x.shape
        state = [(x.new_zeros(b, self.w, h, w), x.new_zeros(b, self.w, h, w)) for _ in self.gates]
        loss = 0
        for i in range(t - 1):
            inp = x[:, i]
            for k, gate in enumerate(self.gates):
                hid, cell = state[k]
                a, f, o, g = gate(torch.cat([inp, hid], 1)).split(self.w, 1)
                cell = torch.sigmoid(f) * cell + torch.sigmoid(a) * torch.tanh(g)
                inp = torch.sigmoid(o) * torch.tanh(cell)
                state[k] = (inp, cell)
            loss = loss + F.binary_cross_entropy_with_logits(self.out(inp), x[:, i + 1])
        return loss / (t - 1)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 10, 1, 64, 64)}


@own(8)
class Perceiver(nn.Module):
    """Latents that read bytes by nn.MultiheadAttention, checkpointed blocks."""

    def __init__(self, w=512, latents=128, depth=4):
        super().__init__()
        self.latents, self.inp = nn.Parameter(torch.randn(latents, w) * 0.02), nn.Linear(3, w)
        self.pos = nn.Parameter(torch.randn(1, 4096, w) * 0.02)
        self.cross = nn.MultiheadAttention(w, 1, batch_first=True)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(w, 8, 4 * w, dropout=0.0, activation="gelu", batch_first=True, norm_first=True) for _ in range(depth))
        self.head = nn.Linear(w, 1000)

    def forward(self, x, y):
        from torch.utils.checkpoint import checkpoint
        data = self.inp(x.flatten(2).transpose(1, 2)) + self.pos
        z = self.latents.expand(x.size(0), -1, -1)
        z = z + self.cross(z, data, data)[0]
        for block in self.blocks: z = checkpoint(block, z, use_reentrant=False)
        return F.cross_entropy(self.head(z.mean(1)), y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 64, 64), "y": ids(1000, batch)}
