"""Modules of images as a user writes them, of own_modules.py."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import spectral_norm

from own_modules import floats, ids, own


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
