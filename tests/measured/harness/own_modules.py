"""Modules as a user writes them, which other_programs.py records and measures: each has its inputs at a batch size and its loss."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

OWN = {}


def own(batch, **known):
    """Registers a class under its name: the batch that it is recorded at."""
    def put(kind):
        OWN[kind.__name__] = dict(kind=kind, batch=batch, **known)
        return kind
    return put


def ids(high, *shape): return torch.arange(math.prod(shape)).remainder(high).view(shape)
def floats(*shape): return torch.empty(shape)


# ---- images ---------------------------------------------------------------------------------------------------------
class DoubleConv(nn.Sequential):
    def __init__(self, a, b):
        super().__init__(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                         nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


@own(4)
class UNet(nn.Module):
    """The one of milesial/Pytorch-UNet, with transposed convolutions and its cross-entropy plus dice loss."""

    def __init__(self, classes=2, widths=(64, 128, 256, 512, 1024)):
        super().__init__()
        self.first = DoubleConv(3, widths[0])
        self.downs = nn.ModuleList(DoubleConv(a, b) for a, b in zip(widths, widths[1:]))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.convs = nn.ModuleList(DoubleConv(b, a) for a, b in zip(widths, widths[1:]))
        self.out = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x, y):
        levels = [self.first(x)]
        for down in self.downs: levels.append(down(F.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for up, conv in zip(reversed(self.ups), reversed(self.convs)):
            x, skip = up(x), levels.pop()
            dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
            x = conv(torch.cat([skip, F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])], 1))
        scores = self.out(x)
        loss = F.cross_entropy(scores, y)
        shares, truth = F.softmax(scores, 1).float(), F.one_hot(y, scores.size(1)).permute(0, 3, 1, 2).float()
        inter = 2 * (shares.flatten(0, 1) * truth.flatten(0, 1)).sum((-1, -2))
        total = shares.flatten(0, 1).sum((-1, -2)) + truth.flatten(0, 1).sum((-1, -2))
        total = torch.where(total == 0, inter, total)
        return loss + 1 - ((inter + 1e-6) / (total + 1e-6)).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 320, 480), "y": ids(2, batch, 320, 480)}


@own(2)
class ValidUNet(nn.Module):
    """Ronneberger's: convolutions without padding, crops."""

    def __init__(self):
        super().__init__()
        w = (1, 64, 128, 256, 512)
        block = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3), nn.ReLU(True), nn.Conv2d(b, b, 3), nn.ReLU(True))
        self.down = nn.ModuleList(block(a, b) for a, b in zip(w, w[1:]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, b // 2, 2, 2) for b in (512, 256, 128))
        self.back = nn.ModuleList(block(b, b // 2) for b in (512, 256, 128))
        self.head = nn.Conv2d(64, 2, 1)

    def forward(self, x, y):
        kept = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for i in range(3):
            x, skip = self.up[i](x), kept[2 - i]
            cut = (skip.shape[2] - x.shape[2]) // 2
            x = self.back[i](torch.cat([skip[:, :, cut:cut + x.shape[2], cut:cut + x.shape[3]], x], 1))
        x = self.head(x)
        cut = (y.shape[1] - x.shape[2]) // 2
        return F.cross_entropy(x, y[:, cut:cut + x.shape[2], cut:cut + x.shape[3]])

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 1, 404, 404), "y": ids(2, batch, 404, 404)}


@own(8)
class AttentionUNet(nn.Module):
    """Group norm, SiLU, bilinear upsampling, gates on the skips, a time embedding as diffusion tutorials write it."""

    def __init__(self, base=64):
        super().__init__()
        w = [base, base * 2, base * 4]
        self.time = nn.Sequential(nn.Linear(128, 256), nn.SiLU(), nn.Linear(256, 256))
        self.inp = nn.Conv2d(3, base, 3, padding=1)
        self.down = nn.ModuleList(self.Res(a, b) for a, b in zip([base] + w, w))
        self.mid = nn.MultiheadAttention(w[-1], 4, batch_first=True)
        self.gate = nn.ModuleList(nn.Conv2d(2 * c, 1, 1) for c in reversed(w))
        self.up = nn.ModuleList(self.Res(a + b, b) for a, b in zip([w[-1]] + w[:0:-1], reversed(w)))
        self.out = nn.Sequential(nn.GroupNorm(8, base), nn.SiLU(), nn.Conv2d(base, 3, 3, padding=1))

    class Res(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.n1, self.c1 = nn.GroupNorm(8, a), nn.Conv2d(a, b, 3, padding=1)
            self.t = nn.Linear(256, 2 * b)
            self.n2, self.c2 = nn.GroupNorm(8, b), nn.Conv2d(b, b, 3, padding=1)
            self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

        def forward(self, x, t):
            h = self.c1(F.silu(self.n1(x)))
            scale, shift = self.t(F.silu(t))[:, :, None, None].chunk(2, 1)
            return self.c2(F.silu(self.n2(h) * (1 + scale) + shift)) + self.skip(x)

    def forward(self, x, noise, t):
        alpha = torch.cos(t.float() / 1000 * math.pi / 2)[:, None, None, None]
        noisy = alpha * x + (1 - alpha ** 2).clamp(min=0).sqrt() * noise
        freq = torch.exp(-math.log(10000) * torch.arange(64, device=x.device) / 64)
        emb = t[:, None].float() * freq[None]
        emb = self.time(torch.cat([emb.sin(), emb.cos()], -1).to(x.dtype))
        h, kept = self.inp(noisy), []
        for res in self.down:
            h = res(h, emb)
            kept.append(h)
            h = F.avg_pool2d(h, 2)
        b, c, hh, ww = h.shape
        seq = h.flatten(2).transpose(1, 2)
        h = (seq + self.mid(seq, seq, seq, need_weights=False)[0]).transpose(1, 2).reshape(b, c, hh, ww)
        for res, gate in zip(self.up, self.gate):
            h, skip = F.interpolate(h, scale_factor=2, mode="bilinear", align_corners=False), kept.pop()
            if h.shape[1] != skip.shape[1]: h = h[:, :skip.shape[1]].contiguous() if h.shape[1] > skip.shape[1] else h
            h = res(torch.cat([h if h.shape[1] == res.n1.num_channels - skip.shape[1] else F.pad(h, (0, 0, 0, 0, 0, res.n1.num_channels - skip.shape[1] - h.shape[1])), skip * torch.sigmoid(gate(torch.cat([skip, skip], 1)))], 1), emb)
        return F.mse_loss(self.out(h), noise)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 64, 64), "noise": floats(batch, 3, 64, 64), "t": ids(1000, batch)}


@own(16)
class VectorQuantized(nn.Module):
    """VQ-VAE: nearest code by cdist, a straight-through gradient by a custom autograd.Function, codes by EMA."""

    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z, q): return q.clone()
        @staticmethod
        def backward(ctx, g): return g, None

    def __init__(self, codes=512, width=128):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1))
        self.dec = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1))
        self.register_buffer("codes", torch.randn(codes, width))
        self.register_buffer("counts", torch.ones(codes))

    def forward(self, x):
        z = self.enc(x)
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        with torch.no_grad():
            distance = flat.float().pow(2).sum(1, keepdim=True) - 2 * flat.float() @ self.codes.t() + self.codes.pow(2).sum(1)
            nearest = distance.argmin(1)
            hot = F.one_hot(nearest, self.codes.shape[0]).float()
            self.counts.mul_(0.99).add_(hot.sum(0), alpha=0.01)
            self.codes.mul_(0.99).add_((hot.t() @ flat.float()) / self.counts[:, None], alpha=0.01)
        q = F.embedding(nearest, self.codes).view(z.shape[0], z.shape[2], z.shape[3], -1).permute(0, 3, 1, 2)
        commit = F.mse_loss(z.float(), q)
        return F.mse_loss(self.dec(self.Straight.apply(z, q.to(z.dtype))).float(), x.float()) + 0.25 * commit

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 128, 128)}


@own(16)
class SpectralGan(nn.Module):
    """Both losses of a GAN of one step: the generator's through the discriminator, the discriminator's on detached images."""

    def __init__(self, base=64):
        super().__init__()
        def up(a, b): return nn.Sequential(nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True))
        def down(a, b): return nn.Sequential(spectral_norm(nn.Conv2d(a, b, 4, 2, 1)), nn.LeakyReLU(0.2, True))
        self.g = nn.Sequential(nn.ConvTranspose2d(128, base * 8, 4, 1, 0, bias=False), nn.BatchNorm2d(base * 8), nn.ReLU(True), up(base * 8, base * 4),
                               up(base * 4, base * 2), up(base * 2, base), nn.ConvTranspose2d(base, 3, 4, 2, 1), nn.Tanh())
        self.d = nn.Sequential(down(3, base), down(base, base * 2), down(base * 2, base * 4), down(base * 4, base * 8), nn.Flatten(), spectral_norm(nn.Linear(base * 8 * 16, 1)))

    def forward(self, x, z):
        fake = self.g(z)
        loss_d = F.relu(1 - self.d(x)).mean() + F.relu(1 + self.d(fake.detach())).mean()
        return loss_d - self.d(fake).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 64, 64), "z": floats(batch, 128, 1, 1)}


@own(32)
class Byol(nn.Module):
    """A target network that follows by EMA, torchvision's ResNet-18."""

    def __init__(self):
        super().__init__()
        import copy
        import torchvision
        net = torchvision.models.resnet18(weights=None)
        net.fc = nn.Sequential(nn.Linear(512, 1024), nn.BatchNorm1d(1024), nn.ReLU(True), nn.Linear(1024, 256))
        self.online, self.target = net, copy.deepcopy(net).requires_grad_(False)
        self.predict = nn.Sequential(nn.Linear(256, 1024), nn.BatchNorm1d(1024), nn.ReLU(True), nn.Linear(1024, 256))

    def forward(self, a, b):
        with torch.no_grad():
            for mine, theirs in zip(self.target.parameters(), self.online.parameters()): mine.mul_(0.996).add_(theirs, alpha=0.004)
            ta, tb = self.target(a), self.target(b)
        pa, pb = self.predict(self.online(a)), self.predict(self.online(b))
        return (2 - 2 * F.cosine_similarity(pa.float(), tb.float(), dim=-1)).mean() + (2 - 2 * F.cosine_similarity(pb.float(), ta.float(), dim=-1)).mean()

    @staticmethod
    def inputs(batch): return {"a": floats(batch, 3, 160, 160), "b": floats(batch, 3, 160, 160)}


@own(64)
class SimClr(nn.Module):
    """Pairs of views against all others of the batch."""

    def __init__(self):
        super().__init__()
        import torchvision
        self.net = torchvision.models.resnet34(weights=None, num_classes=128)

    def forward(self, a, b):
        z = F.normalize(self.net(torch.cat([a, b])), dim=1)
        n = z.shape[0]
        scores = z @ z.t() / 0.1
        scores = scores.masked_fill(torch.eye(n, dtype=torch.bool, device=z.device), float("-inf"))
        return F.cross_entropy(scores, torch.arange(n, device=z.device).roll(n // 2))

    @staticmethod
    def inputs(batch): return {"a": floats(batch, 3, 96, 96), "b": floats(batch, 3, 96, 96)}


@own(4)
class ModulatedConv(nn.Module):
    """StyleGAN2's convolution: a weight for each sample, samples as groups; noise; a blur."""

    class Layer(nn.Module):
        def __init__(self, a, b, up):
            super().__init__()
            self.weight, self.style, self.up = nn.Parameter(torch.randn(1, b, a, 3, 3)), nn.Linear(512, a), up
            self.noise, self.bias = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(b))

        def forward(self, x, w):
            b, c, h, _ = x.shape
            if self.up: x, h = F.interpolate(x, scale_factor=2.0, mode="bilinear"), 2 * h
            weight = self.weight * self.style(w).view(b, 1, c, 1, 1)
            weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8).view(b, -1, 1, 1, 1)
            x = F.conv2d(x.reshape(1, b * c, h, h), weight.view(-1, c, 3, 3), padding=1, groups=b).view(b, -1, h, h)
            x = x + self.noise * torch.randn(b, 1, h, h, device=x.device, dtype=x.dtype) + self.bias.view(1, -1, 1, 1)
            return F.leaky_relu(x, 0.2) * math.sqrt(2)

    def __init__(self):
        super().__init__()
        self.map = nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(512, 512), nn.LeakyReLU(0.2))])
        self.start = nn.Parameter(torch.randn(1, 256, 8, 8))
        self.layers = nn.ModuleList([self.Layer(256, 256, False), self.Layer(256, 256, True), self.Layer(256, 128, True), self.Layer(128, 64, True), self.Layer(64, 32, True)])
        self.rgb = nn.Conv2d(32, 3, 1)

    def forward(self, z, y):
        w, x = self.map(z), self.start.expand(z.shape[0], -1, -1, -1)
        for layer in self.layers: x = layer(x, w)
        return F.l1_loss(self.rgb(x), y)

    @staticmethod
    def inputs(batch): return {"z": floats(batch, 512), "y": floats(batch, 3, 128, 128)}


@own(8)
class Deformable(nn.Module):
    """Convolutions whose places are learned (torchvision.ops.deform_conv2d)."""

    def __init__(self, width=128):
        super().__init__()
        from torchvision.ops import DeformConv2d
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.offsets = nn.ModuleList(nn.Conv2d(width, 18, 3, padding=1) for _ in range(3))
        self.convs = nn.ModuleList(DeformConv2d(width, width, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(3))
        self.head = nn.Linear(width, 100)

    def forward(self, x, y):
        x = self.stem(x)
        for offset, conv, norm in zip(self.offsets, self.convs, self.norms): x = x + F.relu(norm(conv(x, offset(x))))
        return F.cross_entropy(self.head(x.mean((2, 3))), y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 224, 224), "y": ids(100, batch)}


@own(2)
class VolumeNet(nn.Module):
    """A 3-D U-Net of two levels with instance norm and convolutions without padding in its head."""

    def __init__(self, w=24):
        super().__init__()
        def block(a, b): return nn.Sequential(nn.Conv3d(a, b, 3, padding=1), nn.InstanceNorm3d(b, affine=True), nn.PReLU(), nn.Conv3d(b, b, 3, padding=1), nn.InstanceNorm3d(b, affine=True), nn.PReLU())
        self.a, self.b, self.c = block(2, w), block(w, 2 * w), block(2 * w, 4 * w)
        self.u2, self.u1 = nn.ConvTranspose3d(4 * w, 2 * w, 2, 2), nn.ConvTranspose3d(2 * w, w, 2, 2)
        self.d2, self.d1, self.head = block(4 * w, 2 * w), block(2 * w, w), nn.Conv3d(w, 4, 3)

    def forward(self, x, y):
        a = self.a(x)
        b = self.b(F.max_pool3d(a, 2))
        c = self.c(F.max_pool3d(b, 2))
        b = self.d2(torch.cat([self.u2(c), b], 1))
        a = self.d1(torch.cat([self.u1(b), a], 1))
        return F.cross_entropy(self.head(a), y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 2, 64, 96, 64), "y": ids(4, batch, 62, 94, 62)}


# ---- sequences ------------------------------------------------------------------------------------------------------
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


# ---- graphs, points, tables -----------------------------------------------------------------------------------------
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
