"""Modules of sequences as a user writes them, of own_modules.py."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

from own_modules import floats, ids, own


@own(16)
class TiedLstm(nn.Module):
    """Merity's AWD-LSTM in short: tied embedding, dropout shared over time, activation penalties."""

    def __init__(self, words=20000, width=400, hidden=1150):
        super().__init__()
        self.emb = nn.Embedding(words, width)
        self.rnns = nn.ModuleList([nn.LSTM(width, hidden, batch_first=True), nn.LSTM(hidden, hidden, batch_first=True), nn.LSTM(hidden, width, batch_first=True)])
        self.out = nn.Linear(width, words)
        self.out.weight = self.emb.weight

    def drop(self, x, p):
        mask = x.new_empty(x.size(0), 1, x.size(2)).bernoulli_(1 - p) / (1 - p)
        return x * mask

    def forward(self, x, y):
        h = self.drop(self.emb(x), 0.4)
        for rnn in self.rnns:
            raw, _ = rnn(h)
            h = self.drop(raw, 0.25)
        loss = F.cross_entropy(self.out(h).flatten(0, 1), y.flatten())
        return loss + 2 * h.float().pow(2).mean() + (raw[:, 1:] - raw[:, :-1]).float().pow(2).mean()

    @staticmethod
    def inputs(batch): return {"x": ids(20000, batch, 70), "y": ids(20000, batch, 70)}


@own(16)
class BahdanauDecoder(nn.Module):
    """A GRU encoder both ways, a decoder of cells that looks back at each step."""

    def __init__(self, words=8000, w=256, steps=20):
        super().__init__()
        self.steps = steps
        self.src, self.dst = nn.Embedding(words, w), nn.Embedding(words, w)
        self.enc = nn.GRU(w, w, 2, bidirectional=True, batch_first=True, dropout=0.1)
        self.key, self.query, self.energy = nn.Linear(2 * w, w), nn.Linear(w, w), nn.Linear(w, 1)
        self.cell, self.out = nn.GRUCell(3 * w, w), nn.Linear(w, words)

    def forward(self, x, y):
        memory, _ = self.enc(self.src(x))
        keys, h = self.key(memory), memory.new_zeros(x.size(0), 256)
        scores = []
        for t in range(self.steps):
            weight = F.softmax(self.energy(torch.tanh(keys + self.query(h)[:, None])), 1)
            context = (weight * memory).sum(1)
            h = self.cell(torch.cat([self.dst(y[:, t]), context], 1), h)
            scores.append(self.out(h))
        return F.cross_entropy(torch.stack(scores, 1).flatten(0, 1), y.flatten())

    @staticmethod
    def inputs(batch): return {"x": ids(8000, batch, 50), "y": ids(8000, batch, 20)}


@own(4)
class WaveNet(nn.Module):
    """Dilated causal convolutions with gates and weight norm, as a vocoder: 8-bit mu-law."""

    def __init__(self, layers=10, stacks=2, res=64, skip=128):
        super().__init__()
        self.emb = nn.Embedding(256, res)
        self.dil = [2 ** (i % layers) for i in range(layers * stacks)]
        self.gated = nn.ModuleList(weight_norm(nn.Conv1d(res, 2 * res, 2, dilation=d)) for d in self.dil)
        self.res = nn.ModuleList(weight_norm(nn.Conv1d(res, res, 1)) for _ in self.dil)
        self.skips = nn.ModuleList(weight_norm(nn.Conv1d(res, skip, 1)) for _ in self.dil)
        self.post = nn.Sequential(nn.ReLU(), nn.Conv1d(skip, skip, 1), nn.ReLU(), nn.Conv1d(skip, 256, 1))

    def forward(self, x, y):
        h, total = self.emb(x).transpose(1, 2), 0
        for d, gated, res, skip in zip(self.dil, self.gated, self.res, self.skips):
            a, b = gated(F.pad(h, (d, 0))).chunk(2, 1)
            z = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(z)
            h = (h + res(z)) * math.sqrt(0.5)
        return F.cross_entropy(self.post(total), y)

    @staticmethod
    def inputs(batch): return {"x": ids(256, batch, 8000), "y": ids(256, batch, 8000)}


@own(4)
class ConvTasNet(nn.Module):
    """Separation in time: an encoder of strided filters, depthwise temporal blocks, masks, SI-SNR; parametrized weight norm."""

    def __init__(self, n=256, b=128, h=256):
        super().__init__()
        self.enc, self.dec = nn.Conv1d(1, n, 16, 8, bias=False), nn.ConvTranspose1d(n, 1, 16, 8, bias=False)
        self.norm, self.inp = nn.GroupNorm(1, n), nn.Conv1d(n, b, 1)
        self.blocks = nn.ModuleList(nn.Sequential(parametrizations.weight_norm(nn.Conv1d(b, h, 1)), nn.PReLU(), nn.GroupNorm(1, h), nn.Conv1d(h, h, 3, padding=2 ** i, dilation=2 ** i, groups=h),
                                                  nn.PReLU(), nn.GroupNorm(1, h), nn.Conv1d(h, b, 1)) for i in range(6))
        self.mask = nn.Sequential(nn.PReLU(), nn.Conv1d(b, 2 * n, 1), nn.Sigmoid())

    def forward(self, x, y):
        e = F.relu(self.enc(x[:, None]))
        h = self.inp(self.norm(e))
        for block in self.blocks: h = h + block(h)
        m = self.mask(h).view(x.size(0), 2, -1, e.size(-1))
        out = self.dec((m * e[:, None]).flatten(0, 1)).view(x.size(0), 2, -1).float()
        y = y.float()[..., :out.size(-1)]
        y = y - y.mean(-1, keepdim=True)
        scale = (out * y).sum(-1, keepdim=True) / y.pow(2).sum(-1, keepdim=True).clamp(min=1e-8)
        noise = out - scale * y
        return -10 * torch.log10((scale * y).pow(2).sum(-1) / (noise.pow(2).sum(-1) + 1e-8) + 1e-8).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 16000), "y": floats(batch, 2, 16000)}


@own(8)
class DeepSpeech(nn.Module):
    """Convolutions over a spectrogram, GRUs both ways with batch norm between, CTC."""

    def __init__(self, w=512):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20, True), nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20, True))
        self.rnns = nn.ModuleList(nn.GRU(32 * 41 if i == 0 else w, w, bidirectional=True) for i in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm1d(32 * 41 if i == 0 else w) for i in range(3))
        self.head = nn.Linear(w, 29)

    def forward(self, x, y):
        h = self.conv(x[:, None])
        h = h.flatten(1, 2).permute(2, 0, 1).contiguous()
        for norm, rnn in zip(self.norms, self.rnns):
            t, b, f = h.shape
            h, _ = rnn(norm(h.reshape(t * b, f)).view(t, b, f))
            h = h.view(t, b, 2, -1).sum(2)
        logits = F.log_softmax(self.head(h).float(), -1)
        frames = torch.full((x.size(0),), logits.size(0), dtype=torch.long)
        return F.ctc_loss(logits, y, frames, torch.full((x.size(0),), y.size(1), dtype=torch.long), zero_infinity=True)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 161, 400), "y": ids(27, batch, 40) + 1}


@own(8)
class EinsumAttention(nn.Module):
    """Attention by einsum with relative positions (Transformer-XL's shift) and a learned mask."""

    def __init__(self, words=10000, w=512, heads=8, layers=4, length=256):
        super().__init__()
        self.emb, self.heads, self.layers = nn.Embedding(words, w), heads, layers
        self.qkv = nn.ModuleList(nn.Linear(w, 3 * w, bias=False) for _ in range(layers))
        self.proj = nn.ModuleList(nn.Linear(w, w) for _ in range(layers))
        self.rel = nn.Parameter(torch.randn(length, heads, w // heads) * 0.02)
        self.u, self.v = nn.Parameter(torch.zeros(heads, w // heads)), nn.Parameter(torch.zeros(heads, w // heads))
        self.n1, self.n2 = (nn.ModuleList(nn.LayerNorm(w) for _ in range(layers)) for _ in range(2))
        self.ff = nn.ModuleList(nn.Sequential(nn.Linear(w, 4 * w), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * w, w)) for _ in range(layers))
        self.out = nn.Linear(w, words)

    def shift(self, x):
        b, h, q, k = x.shape
        return F.pad(x, (1, 0)).view(b, h, k + 1, q)[:, :, 1:].reshape(b, h, q, k)

    def forward(self, x, y):
        h, n = self.emb(x), x.size(1)
        mask = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        for i in range(self.layers):
            q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in self.qkv[i](self.n1[i](h)).chunk(3, -1))
            ac = torch.einsum("bihd,bjhd->bhij", q + self.u, k)
            bd = self.shift(torch.einsum("bihd,jhd->bhij", q + self.v, self.rel))
            p = F.dropout(((ac + bd) * q.size(-1) ** -0.5).masked_fill(mask, float("-inf")).softmax(-1), 0.1, self.training)
            h = h + self.proj[i](torch.einsum("bhij,bjhd->bihd", p, v).flatten(2))
            h = h + self.ff[i](self.n2[i](h))
        return F.cross_entropy(self.out(h).view(-1, self.out.out_features), y.view(-1))

    @staticmethod
    def inputs(batch): return {"x": ids(10000, batch, 256), "y": ids(10000, batch, 256)}


@own(16)
class Translator(nn.Module):
    """torch's nn.Transformer with masks, sinusoids, label smoothing."""

    def __init__(self, words=16000, w=512):
        super().__init__()
        self.src, self.dst = nn.Embedding(words, w), nn.Embedding(words, w)
        place = torch.arange(512)[:, None] * torch.exp(torch.arange(0, w, 2) * (-math.log(10000.0) / w))
        self.register_buffer("pos", torch.stack([place.sin(), place.cos()], -1).flatten(1))
        self.net, self.out = nn.Transformer(w, 8, 3, 3, 2048, batch_first=True), nn.Linear(w, words)

    def forward(self, x, y):
        a = self.src(x) * 22.6 + self.pos[:x.size(1)]
        b = self.dst(y[:, :-1]) * 22.6 + self.pos[:y.size(1) - 1]
        mask = nn.Transformer.generate_square_subsequent_mask(b.size(1), device=x.device)
        h = self.net(a, b, tgt_mask=mask, src_key_padding_mask=x == 15999, tgt_is_causal=True)
        return F.cross_entropy(self.out(h).transpose(1, 2), y[:, 1:], label_smoothing=0.1)

    @staticmethod
    def inputs(batch): return {"x": ids(15999, batch, 96), "y": ids(15999, batch, 65)}


@own(8)
class FourierMixer(nn.Module):
    """S4D-like convolutions of the whole length by Fourier transforms, with complex parameters in pairs of floats."""

    class Block(nn.Module):
        def __init__(self, w, n=32):
            super().__init__()
            self.log_dt, self.c = nn.Parameter(torch.rand(w)), nn.Parameter(torch.randn(w, n, 2))
            self.a_re, self.a_im = nn.Parameter(torch.full((w, n), -0.5)), nn.Parameter(torch.arange(n).float().repeat(w, 1))
            self.d, self.out, self.norm = nn.Parameter(torch.randn(w)), nn.Conv1d(w, 2 * w, 1), nn.LayerNorm(w)

        def forward(self, x):
            n = x.size(-1)
            a = -torch.exp(self.a_re) + 1j * self.a_im
            dt_a = a * torch.exp(self.log_dt)[:, None]
            power = torch.exp(dt_a[..., None] * torch.arange(n, device=x.device))
            c = torch.view_as_complex(self.c) * (torch.exp(dt_a) - 1) / a
            kernel = 2 * torch.einsum("hn,hnl->hl", c, power).real
            u = self.norm(x.transpose(1, 2)).transpose(1, 2).float()
            y = torch.fft.irfft(torch.fft.rfft(kernel, n=2 * n) * torch.fft.rfft(u, n=2 * n), n=2 * n)[..., :n]
            y = F.gelu(y + u * self.d[:, None])
            return x + F.glu(self.out(y.to(x.dtype)), 1)

    def __init__(self, w=128):
        super().__init__()
        self.inp, self.blocks, self.out = nn.Conv1d(1, w, 1), nn.Sequential(*[self.Block(w) for _ in range(4)]), nn.Linear(w, 10)

    def forward(self, x, y): return F.cross_entropy(self.out(self.blocks(self.inp(x)).mean(-1)), y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 1, 1024), "y": ids(10, batch)}


@own(4)
class SelectiveScan(nn.Module):
    """A gated state space that goes through its steps in Python, with a custom gradient for its activation."""

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)
        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            s = torch.sigmoid(x)
            return g * (s * (1 + x * (1 - s)))

    def __init__(self, w=256, n=16, words=5000):
        super().__init__()
        self.emb, self.inp, self.conv = nn.Embedding(words, w), nn.Linear(w, 4 * w), nn.Conv1d(2 * w, 2 * w, 4, groups=2 * w, padding=3)
        self.x, self.dt, self.a = nn.Linear(2 * w, 2 * n + 16), nn.Linear(16, 2 * w), nn.Parameter(torch.arange(1, n + 1).float().repeat(2 * w, 1).log())
        self.n, self.out, self.head = n, nn.Linear(2 * w, w), nn.Linear(w, words)

    def forward(self, x, y):
        h, gate = self.inp(self.emb(x)).chunk(2, -1)
        h = self.Swish.apply(self.conv(h.transpose(1, 2))[..., :x.size(1)].transpose(1, 2))
        dt, b, c = self.x(h).split([16, self.n, self.n], -1)
        dt = F.softplus(self.dt(dt))
        decay = torch.exp(dt[..., None] * -torch.exp(self.a))
        inp = dt[..., None] * b[:, :, None] * h[..., None]
        state, outs = inp.new_zeros(inp[:, 0].shape), []
        for t in range(64):
            state = decay[:, t] * state + inp[:, t]
            outs.append(torch.einsum("bdn,bn->bd", state, c[:, t]))
        h = torch.stack(outs, 1) * self.Swish.apply(gate)
        return F.cross_entropy(self.head(self.out(h)).flatten(0, 1), y.flatten())

    @staticmethod
    def inputs(batch): return {"x": ids(5000, batch, 64), "y": ids(5000, batch, 64)}
