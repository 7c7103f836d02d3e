"""More modules as a user writes them (own_modules.py), of which seed 10021 draws."""
import math

import torch
import torch.nn.functional as F
from torch import nn

from own_modules import floats, ids, own


# ---- images ---------------------------------------------------------------------------------------------------------
@own(8)
class AtrousPyramid(nn.Module):
    """Dilated convolutions at four rates, pooled features, bilinear upsampling, focal loss."""

    def __init__(self, w=64, classes=21):
        super().__init__()
        conv = lambda a, b, stride=1: nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True))
        self.low = nn.Sequential(conv(3, w, 2), conv(w, w, 2))
        self.high = nn.Sequential(conv(w, 2 * w, 2), conv(2 * w, 4 * w))
        self.rates = nn.ModuleList(nn.Sequential(nn.Conv2d(4 * w, w, 3, padding=r, dilation=r, bias=False), nn.BatchNorm2d(w), nn.ReLU(True)) for r in (1, 6, 12, 18))
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4 * w, w, 1), nn.ReLU(True))
        self.out = nn.Sequential(conv(6 * w, 2 * w), nn.Dropout(0.1), nn.Conv2d(2 * w, classes, 1))

    def forward(self, x, y):
        low = self.low(x)
        high = self.high(low)
        size = high.shape[-2:]
        parts = [rate(high) for rate in self.rates] + [self.pool(high).expand(-1, -1, *size)]
        z = F.interpolate(torch.cat(parts, 1), size=low.shape[-2:], mode="bilinear", align_corners=False)
        scores = F.interpolate(self.out(torch.cat([z, low], 1)), size=x.shape[-2:], mode="bilinear", align_corners=False)
        entropy = F.cross_entropy(scores, y, reduction="none")
        return ((1 - torch.exp(-entropy)) ** 2 * entropy).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 256, 256), "y": ids(21, batch, 256, 256)}


@own(8)
class StyleTransfer(nn.Module):
    """Johnson's: reflected borders, instance norm, nearest upsampling; Gram matrices and total variation as losses."""

    def __init__(self, w=32):
        super().__init__()
        class Block(nn.Module):
            def __init__(self, c):
                super().__init__()
                self.a, self.b = nn.Conv2d(c, c, 3), nn.Conv2d(c, c, 3)
                self.na, self.nb = nn.InstanceNorm2d(c, affine=True), nn.InstanceNorm2d(c, affine=True)

            def forward(self, x):
                y = F.relu(self.na(self.a(F.pad(x, (1, 1, 1, 1), mode="reflect"))))
                return x + self.nb(self.b(F.pad(y, (1, 1, 1, 1), mode="reflect")))
        self.down = nn.Sequential(nn.ReflectionPad2d(4), nn.Conv2d(3, w, 9), nn.InstanceNorm2d(w, affine=True), nn.ReLU(), nn.ReflectionPad2d(1), nn.Conv2d(w, 2 * w, 3, 2),
                                  nn.InstanceNorm2d(2 * w, affine=True), nn.ReLU())
        self.blocks = nn.Sequential(*(Block(2 * w) for _ in range(3)))
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.ReflectionPad2d(1), nn.Conv2d(2 * w, w, 3), nn.InstanceNorm2d(w), nn.ReLU(), nn.ReflectionPad2d(4), nn.Conv2d(w, 3, 9))
        self.seen = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU())

    @staticmethod
    def gram(x):
        b, c, h, w = x.shape
        x = x.view(b, c, h * w)
        return x.bmm(x.transpose(1, 2)) / (c * h * w)

    def forward(self, x, style):
        y = torch.tanh(self.up(self.blocks(self.down(x))))
        with torch.no_grad(): content, wanted = self.seen(x), self.gram(self.seen(style))
        seen = self.seen(y)
        varied = (y[:, :, 1:] - y[:, :, :-1]).abs().mean() + (y[..., 1:] - y[..., :-1]).abs().mean()
        return F.mse_loss(seen, content) + 1e5 * F.mse_loss(self.gram(seen), wanted) + 1e-2 * varied

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 192, 192), "style": floats(batch, 3, 192, 192)}


@own(8)
class SuperResolution(nn.Module):
    """Residual channel attention, PixelShuffle, PReLU, Charbonnier's loss."""

    def __init__(self, w=64, blocks=6):
        super().__init__()
        self.head = nn.Conv2d(3, w, 3, padding=1)
        self.body = nn.ModuleList(nn.ModuleDict(dict(conv=nn.Sequential(nn.Conv2d(w, w, 3, padding=1), nn.PReLU(), nn.Conv2d(w, w, 3, padding=1)),
                                                     gate=nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(w, w // 16, 1), nn.ReLU(True), nn.Conv2d(w // 16, w, 1), nn.Sigmoid())))
                                  for _ in range(blocks))
        self.up = nn.Sequential(nn.Conv2d(w, 4 * w, 3, padding=1), nn.PixelShuffle(2), nn.PReLU(w), nn.Conv2d(w, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x, y):
        z = first = self.head(x)
        for block in self.body:
            r = block["conv"](z)
            z = z + r * block["gate"](r)
        out = self.up(z + first)
        return torch.sqrt((out - y) ** 2 + 1e-6).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 48, 48), "y": floats(batch, 3, 192, 192)}


@own(4)
class OpticalFlow(nn.Module):
    """Two frames, their correlation, warping by grid_sample at two levels, convex upsampling by unfold (RAFT's)."""

    def __init__(self, w=48):
        super().__init__()
        conv = lambda a, b, stride: nn.Sequential(nn.Conv2d(a, b, 3, stride, 1), nn.InstanceNorm2d(b), nn.LeakyReLU(0.1))
        self.features = nn.Sequential(conv(3, w, 2), conv(w, 2 * w, 2), conv(2 * w, 2 * w, 2))
        self.update = nn.Sequential(nn.Conv2d(81 + 2 * w + 2, 96, 3, padding=1), nn.ReLU(), nn.Conv2d(96, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 2, 3, padding=1))
        self.mask = nn.Conv2d(2 * w, 64 * 9, 1)

    def forward(self, x, y, flow):
        a, b = self.features(torch.cat([x, y])).chunk(2)
        n, c, h, w = a.shape
        rows, columns = torch.meshgrid(torch.arange(h, device=x.device), torch.arange(w, device=x.device), indexing="ij")
        places, moved = torch.stack([columns, rows]).float()[None], x.new_zeros(n, 2, h, w)
        for _ in range(3):
            moved = moved.detach()
            at = (places + moved).permute(0, 2, 3, 1)
            at = torch.stack([2 * at[..., 0] / (w - 1) - 1, 2 * at[..., 1] / (h - 1) - 1], -1)
            warped = F.grid_sample(b, at.to(b.dtype), align_corners=True)
            near = F.pad(warped, (4, 4, 4, 4))
            cost = torch.stack([(a * near[:, :, i:i + h, j:j + w]).mean(1) for i in range(9) for j in range(9)], 1)
            moved = moved + self.update(torch.cat([cost, a, moved.to(a.dtype)], 1))
        mask = self.mask(a).view(n, 1, 9, 8, 8, h, w).softmax(2)
        up = F.unfold(8 * moved, 3, padding=1).view(n, 2, 9, 1, 1, h, w)
        up = (mask * up).sum(2).permute(0, 1, 4, 2, 5, 3).reshape(n, 2, 8 * h, 8 * w)
        return (up - flow).abs().mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 256, 320), "y": floats(batch, 3, 256, 320), "flow": floats(batch, 2, 256, 320)}


@own(8)
class AnchorDetector(nn.Module):
    """A feature pyramid with heads shared over its levels, hard negatives by sorting, smooth L1 of what is gathered."""

    def __init__(self, w=96, anchors=6, classes=20):
        super().__init__()
        conv = lambda a, b, stride: nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.SiLU(inplace=True))
        self.stem = nn.Sequential(conv(3, 32, 2), conv(32, 64, 2))
        self.stages = nn.ModuleList([conv(64, 128, 2), conv(128, 192, 2), conv(192, 256, 2)])
        self.side = nn.ModuleList(nn.Conv2d(c, w, 1) for c in (128, 192, 256))
        self.score, self.box = nn.Conv2d(w, anchors * classes, 3, padding=1), nn.Conv2d(w, anchors * 4, 3, padding=1)
        self.classes = classes

    def forward(self, x, labels, boxes, chosen):
        x, found = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        levels, above = [], None
        for side, each in zip(reversed(self.side), reversed(found)):
            each = side(each)
            above = each if above is None else each + F.interpolate(above, scale_factor=2, mode="nearest")
            levels.append(above)
        flat = lambda z, k: z.permute(0, 2, 3, 1).reshape(z.size(0), -1, k)
        scores = torch.cat([flat(self.score(each), self.classes) for each in levels], 1)
        places = torch.cat([flat(self.box(each), 4) for each in levels], 1)
        near = places.gather(1, chosen[..., None].expand(-1, -1, 4))
        localised = F.smooth_l1_loss(near, boxes, beta=0.1)
        entropy = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        worst, _ = entropy.sort(1, descending=True)
        return localised + worst[:, :256].mean()

    @staticmethod
    def inputs(batch):
        count = 6 * (32 * 32 + 16 * 16 + 8 * 8)
        return {"x": floats(batch, 3, 256, 256), "labels": ids(20, batch, count), "boxes": floats(batch, 32, 4), "chosen": ids(count, batch, 32)}


@own(32)
class ImageVae(nn.Module):
    """Strided and transposed convolutions, a latent that is drawn, ELBO."""

    def __init__(self, w=32, latent=128):
        super().__init__()
        channels = (3, w, 2 * w, 4 * w, 8 * w)
        self.encoder = nn.Sequential(*(nn.Sequential(nn.Conv2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2)) for a, b in zip(channels, channels[1:])))
        self.mean, self.log, self.start = nn.Linear(8 * w * 16, latent), nn.Linear(8 * w * 16, latent), nn.Linear(latent, 8 * w * 16)
        back = channels[::-1]
        self.decoder = nn.Sequential(*(nn.Sequential(nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ELU()) for a, b in zip(back[:-1], back[1:-1])),
                                     nn.ConvTranspose2d(w, 3, 4, 2, 1))

    def forward(self, x):
        h = self.encoder(x).flatten(1)
        mean, log = self.mean(h), self.log(h).clamp(-10, 10)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log)
        out = self.decoder(self.start(z).view(x.size(0), -1, 4, 4))
        kl = -0.5 * (1 + log - mean.pow(2) - log.exp()).sum(1).mean()
        return F.binary_cross_entropy_with_logits(out, torch.sigmoid(x), reduction="sum") / x.size(0) + kl

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 64, 64)}


@own(32)
class GlobalFilter(nn.Module):
    """GFNet: patches mixed by a learned filter in the frequencies of two dimensions."""

    def __init__(self, w=256, depth=6, side=14):
        super().__init__()
        self.patch, self.depth, self.side = nn.Conv2d(3, w, 16, 16), depth, side
        self.place = nn.Parameter(torch.zeros(1, side * side, w))
        self.filters = nn.ParameterList(torch.randn(side, side // 2 + 1, w, 2) * 0.02 for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(w) for _ in range(2 * depth))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(w, 4 * w), nn.GELU(), nn.Linear(4 * w, w)) for _ in range(depth))
        self.head = nn.Linear(w, 100)

    def forward(self, x, y):
        z = self.patch(x).flatten(2).transpose(1, 2) + self.place
        b, n, c = z.shape
        for i in range(self.depth):
            h = self.norms[2 * i](z).view(b, self.side, self.side, c).to(torch.float32)
            h = torch.fft.rfft2(h, dim=(1, 2), norm="ortho") * torch.view_as_complex(self.filters[i].float())
            h = torch.fft.irfft2(h, s=(self.side, self.side), dim=(1, 2), norm="ortho").reshape(b, n, c)
            z = z + self.mlps[i](self.norms[2 * i + 1](h))
        return F.cross_entropy(self.head(z.mean(1)), y, label_smoothing=0.1)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 224, 224), "y": ids(100, batch)}


@own(64)
class TripletNet(nn.Module):
    """Three images through one network, distances of all pairs, the hardest of a batch."""

    def __init__(self, w=64):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, w, 5, 2, 2), nn.GroupNorm(8, w), nn.Mish(), nn.MaxPool2d(2), nn.Conv2d(w, 2 * w, 3, padding=1), nn.GroupNorm(8, 2 * w), nn.Mish(),
                                 nn.AvgPool2d(2), nn.Conv2d(2 * w, 4 * w, 3, padding=1), nn.Hardswish(), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(16 * w, 128))

    def forward(self, x, y):
        z = F.normalize(self.net(x))
        apart = torch.cdist(z, z)
        same = y[:, None] == y[None]
        furthest = (apart * same).max(1).values
        nearest = apart.masked_fill(same, float("inf")).min(1).values
        return F.relu(furthest - nearest + 0.3).mean() + F.triplet_margin_loss(z, z.roll(1, 0), z.roll(2, 0))

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 96, 96), "y": ids(16, batch)}


# ---- volumes, sequences of images -------------------------------------------------------------------------------------
@own(2)
class VNet(nn.Module):
    """Volumes: 5 x 5 x 5 convolutions, PReLU, transposed convolutions, dropout of channels, dice."""

    def __init__(self, w=16):
        super().__init__()
        conv = lambda a, b: nn.Sequential(nn.Conv3d(a, b, 5, padding=2), nn.BatchNorm3d(b), nn.PReLU(b))
        self.first, self.down1, self.down2 = conv(1, w), nn.Conv3d(w, 2 * w, 2, 2), nn.Conv3d(2 * w, 4 * w, 2, 2)
        self.mid1, self.mid2, self.drop = conv(2 * w, 2 * w), conv(4 * w, 4 * w), nn.Dropout3d(0.2)
        self.up1, self.up2 = nn.ConvTranspose3d(4 * w, 2 * w, 2, 2), nn.ConvTranspose3d(2 * w, w, 2, 2)
        self.back1, self.back2, self.out = conv(4 * w, 2 * w), conv(2 * w, w), nn.Conv3d(w, 2, 1)

    def forward(self, x, y):
        a = self.first(x) + x
        b = self.down1(a)
        b = self.mid1(b) + b
        c = self.down2(b)
        c = self.drop(self.mid2(c) + c)
        z = self.back1(torch.cat([self.up1(c), b], 1))
        z = self.back2(torch.cat([self.up2(z), a], 1))
        shares = torch.softmax(self.out(z), 1)[:, 1]
        return 1 - (2 * (shares * y).sum() + 1) / ((shares ** 2).sum() + (y ** 2).sum() + 1)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 1, 64, 64, 32), "y": floats(batch, 64, 64, 32)}


@own(4)
class VideoLstm(nn.Module):
    """Frames through one network, a bidirectional LSTM of two layers over them, attention over time."""

    def __init__(self, w=256):
        super().__init__()
        conv = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU6(True))
        self.frames = nn.Sequential(conv(3, 32), conv(32, 64), conv(64, 128), conv(128, 256), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.rnn = nn.LSTM(256, w, 2, batch_first=True, bidirectional=True, dropout=0.3)
        self.weigh, self.head = nn.Linear(2 * w, 1), nn.Linear(2 * w, 101)

    def forward(self, x, y):
        b, t = x.shape[:2]
        z = self.frames(x.flatten(0, 1)).view(b, t, -1)
        z, _ = self.rnn(z)
        weights = torch.softmax(self.weigh(torch.tanh(z)), 1)
        return F.cross_entropy(self.head((weights * z).sum(1)), y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 16, 3, 112, 112), "y": ids(101, batch)}


# ---- sound, series ----------------------------------------------------------------------------------------------------
@own(8)
class Conformer(nn.Module):
    """Spectrograms, 2-D subsampling, relative attention by a shift, depthwise convolution, GLU, CTC."""

    class Layer(nn.Module):
        def __init__(self, w, heads):
            super().__init__()
            ff = lambda: nn.Sequential(nn.LayerNorm(w), nn.Linear(w, 4 * w), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * w, w), nn.Dropout(0.1))
            self.ff1, self.ff2, self.heads = ff(), ff(), heads
            self.norm, self.qkv, self.place, self.proj = nn.LayerNorm(w), nn.Linear(w, 3 * w), nn.Linear(w, w, bias=False), nn.Linear(w, w)
            self.u, self.v = nn.Parameter(torch.zeros(heads, w // heads)), nn.Parameter(torch.zeros(heads, w // heads))
            self.pre, self.wide, self.deep = nn.LayerNorm(w), nn.Conv1d(w, 2 * w, 1), nn.Conv1d(w, w, 31, padding=15, groups=w)
            self.bn, self.narrow, self.last = nn.BatchNorm1d(w), nn.Conv1d(w, w, 1), nn.LayerNorm(w)

        def forward(self, x, places):
            b, n, w = x.shape
            x = x + 0.5 * self.ff1(x)
            q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            p = self.place(places).view(-1, self.heads, w // self.heads).permute(1, 2, 0)
            content = (q + self.u[None, :, None]) @ k.transpose(-1, -2)
            moved = (q + self.v[None, :, None]) @ p
            moved = F.pad(moved, (1, 0)).view(b, self.heads, -1, n)[:, :, 1:].view(b, self.heads, n, -1)[..., :n]
            weights = F.dropout(((content + moved) * (w // self.heads) ** -0.5).softmax(-1), 0.1, self.training)
            x = x + self.proj((weights @ v).transpose(1, 2).reshape(b, n, w))
            z = F.glu(self.wide(self.pre(x).transpose(1, 2)), 1)
            x = x + self.narrow(F.silu(self.bn(self.deep(z)))).transpose(1, 2)
            return self.last(x + 0.5 * self.ff2(x))

    def __init__(self, w=192, depth=4):
        super().__init__()
        self.sub = nn.Sequential(nn.Conv2d(1, w, 3, 2), nn.ReLU(), nn.Conv2d(w, w, 3, 2), nn.ReLU())
        self.inp, self.w = nn.Linear(w * 19, w), w
        self.layers, self.out = nn.ModuleList(self.Layer(w, 4) for _ in range(depth)), nn.Linear(w, 128)

    def forward(self, x, y, lengths):
        z = self.sub(x[:, None])
        b, c, n, f = z.shape
        z = self.inp(z.transpose(1, 2).reshape(b, n, c * f))
        at = torch.arange(n - 1, -n, -1.0, device=x.device)[:, None] * torch.exp(torch.arange(0, self.w, 2.0, device=x.device) * (-math.log(1e4) / self.w))
        places = torch.stack([at.sin(), at.cos()], -1).flatten(1)
        for layer in self.layers: z = layer(z, places)
        told = self.out(z).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(told, y, torch.full_like(lengths, n), lengths, zero_infinity=True)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 403, 80), "y": ids(127, batch, 24) + 1, "lengths": torch.full((batch,), 24)}


@own(8)
class SpectralLoss(nn.Module):
    """A 1-D U-Net of sound with the loss of spectrograms at three resolutions (torch.stft)."""

    def __init__(self, w=32):
        super().__init__()
        c = (1, w, 2 * w, 4 * w)
        self.down = nn.ModuleList(nn.Conv1d(a, b, 8, 4, 2) for a, b in zip(c, c[1:]))
        self.glu = nn.ModuleList(nn.Conv1d(b, 2 * b, 1) for b in c[1:])
        self.rnn = nn.GRU(4 * w, 2 * w, batch_first=True, bidirectional=True)
        self.up = nn.ModuleList(nn.ConvTranspose1d(b, a, 8, 4, 2) for a, b in reversed(list(zip(c, c[1:]))))

    def forward(self, x, y):
        z, kept = x[:, None], []
        for conv, glu in zip(self.down, self.glu):
            z = F.glu(glu(F.relu(conv(z))), 1)
            kept.append(z)
        z = self.rnn(z.transpose(1, 2))[0].transpose(1, 2)
        for i, conv in enumerate(self.up):
            z = conv(z + kept.pop())
            if i < 2: z = F.relu(z)
        z, loss = z[:, 0].float(), 0
        for n in (512, 1024, 2048):
            window = torch.hann_window(n, device=x.device)
            a, b = (torch.stft(each, n, n // 4, n, window, return_complex=True).abs().clamp(min=1e-5) for each in (z, y))
            loss = loss + (a - b).norm() / b.norm() + (a.log() - b.log()).abs().mean()
        return loss + F.l1_loss(z, y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 32768), "y": floats(batch, 32768)}


@own(32)
class NBeats(nn.Module):
    """Stacks of fully connected blocks that take off what they explain, scaled error."""

    def __init__(self, back=168, ahead=24, w=512, blocks=8):
        super().__init__()
        self.back, self.ahead = back, ahead
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(back, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, back + ahead)) for _ in range(blocks))

    def forward(self, x, y):
        mean, spread = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        rest, told = (x - mean) / spread, 0
        for block in self.blocks:
            theta = block(rest)
            rest = rest - theta[:, :self.back]
            told = told + theta[:, self.back:]
        told = told * spread + mean
        return (2 * (told - y).abs() / (told.abs() + y.abs() + 1e-8)).mean() + F.huber_loss(told, y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 168), "y": floats(batch, 24)}


@own(16)
class TemporalConvolutions(nn.Module):
    """A TCN: weight-normalised causal dilated convolutions, chomped; quantile losses."""

    def __init__(self, channels=32, w=128, depth=6):
        super().__init__()
        from torch.nn.utils import weight_norm
        self.first, self.layers = nn.Conv1d(channels, w, 1), nn.ModuleList()
        for i in range(depth): self.layers.append(nn.ModuleList(weight_norm(nn.Conv1d(w, w, 3, padding=2 * 2 ** i, dilation=2 ** i)) for _ in range(2)))
        self.out = nn.Linear(w, 3 * channels)

    def forward(self, x, y):
        z = self.first(x.transpose(1, 2))
        n = z.size(-1)
        for a, b in self.layers:
            h = F.dropout(F.relu(a(z)[..., :n]), 0.2, self.training)
            z = F.relu(z + F.dropout(F.relu(b(h)[..., :n]), 0.2, self.training))
        told = self.out(z.transpose(1, 2)).unflatten(-1, (3, -1))
        off = y[:, :, None] - told
        shares = torch.tensor([0.1, 0.5, 0.9], device=x.device)[:, None]
        return torch.maximum(shares * off, (shares - 1) * off).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 512, 32), "y": floats(batch, 512, 32)}


@own(8)
class FourierForecast(nn.Module):
    """Frequencies of a series filtered by learned complex weights, moving averages (FEDformer's decomposition)."""

    def __init__(self, w=128, modes=32, depth=3):
        super().__init__()
        self.inp, self.out, self.modes = nn.Linear(7, w), nn.Linear(w, 7), modes
        self.real = nn.ParameterList(torch.randn(modes, w, w, 2) / w for _ in range(depth))
        self.ffs = nn.ModuleList(nn.Sequential(nn.Linear(w, 4 * w), nn.GELU(), nn.Linear(4 * w, w)) for _ in range(depth))

    def forward(self, x, y):
        z = self.inp(x)
        b, n, w = z.shape
        for weight, ff in zip(self.real, self.ffs):
            f = torch.fft.rfft(z.float(), dim=1)
            kept = torch.einsum("bmi,mio->bmo", f[:, :self.modes], torch.view_as_complex(weight))
            out = torch.zeros(b, n // 2 + 1, w, dtype=kept.dtype, device=x.device)
            out[:, :self.modes] = kept
            z = z + torch.fft.irfft(out, n=n, dim=1)
            trend = F.avg_pool1d(F.pad(z.transpose(1, 2), (12, 12), mode="replicate"), 25, 1).transpose(1, 2)
            z = z - trend
            z = z + ff(z)
        return F.mse_loss(self.out(z)[:, -96:], y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 336, 7), "y": floats(batch, 96, 7)}


# ---- words, tables, graphs --------------------------------------------------------------------------------------------
@own(16)
class GruTranslator(nn.Module):
    """Encoder and decoder GRUs of three layers, Luong's attention, a tied softmax."""

    def __init__(self, vocabulary=16000, w=512):
        super().__init__()
        self.words, self.target = nn.Embedding(vocabulary, w, padding_idx=0), nn.Embedding(vocabulary, w)
        self.encoder = nn.GRU(w, w // 2, 3, batch_first=True, bidirectional=True, dropout=0.2)
        self.decoder = nn.GRU(w, w, 3, batch_first=True, dropout=0.2)
        self.bridge, self.mix, self.bias = nn.Linear(w, w), nn.Linear(2 * w, w), nn.Parameter(torch.zeros(vocabulary))

    def forward(self, x, y):
        memory, last = self.encoder(F.dropout(self.words(x), 0.2, self.training))
        start = torch.tanh(self.bridge(torch.cat([last[0::2], last[1::2]], -1)))
        z, _ = self.decoder(self.target(y[:, :-1]), start)
        weights = torch.bmm(z, memory.transpose(1, 2)).masked_fill((x == 0)[:, None], -1e4).softmax(-1)
        z = torch.tanh(self.mix(torch.cat([torch.bmm(weights, memory), z], -1)))
        scores = F.linear(z, self.target.weight, self.bias)
        return F.nll_loss(F.log_softmax(scores.flatten(0, 1), -1), y[:, 1:].flatten(), ignore_index=0)

    @staticmethod
    def inputs(batch): return {"x": ids(15999, batch, 50) + 1, "y": ids(15999, batch, 41) + 1}


@own(8)
class RelativeTransformer(nn.Module):
    """Transformer-XL: memory before the segment, relative places by shifting, an adaptive softmax is left out."""

    def __init__(self, vocabulary=20000, w=384, depth=4, heads=6):
        super().__init__()
        self.words, self.heads, self.w = nn.Embedding(vocabulary, w), heads, w
        self.kv, self.q, self.r, self.o = (nn.ModuleList(nn.Linear(w, b, bias=False) for _ in range(depth)) for b in (2 * w, w, w, w))
        self.norms = nn.ModuleList(nn.LayerNorm(w) for _ in range(2 * depth))
        self.ffs = nn.ModuleList(nn.Sequential(nn.Linear(w, 4 * w), nn.ReLU(True), nn.Dropout(0.1), nn.Linear(4 * w, w)) for _ in range(depth))
        self.u, self.v = nn.Parameter(torch.zeros(heads, w // heads)), nn.Parameter(torch.zeros(heads, w // heads))

    def forward(self, x, memory, y):
        z = self.words(x) * self.w ** 0.5
        b, n, w = z.shape
        m = memory.size(2)
        at = torch.arange(m + n - 1, -1, -1.0, device=x.device)
        angles = torch.outer(at, 1 / 1e4 ** (torch.arange(0.0, w, 2.0, device=x.device) / w))
        places = torch.cat([angles.sin(), angles.cos()], -1)
        hidden = torch.triu(torch.ones(n, m + n, dtype=torch.bool, device=x.device), 1 + m)
        for i in range(len(self.q)):
            both = torch.cat([memory[i].to(z.dtype), z], 1)
            k, v = self.kv[i](both).chunk(2, -1)
            k, v = (each.view(b, m + n, self.heads, -1) for each in (k, v))
            q, r = self.q[i](z).view(b, n, self.heads, -1), self.r[i](places).view(m + n, self.heads, -1)
            content = torch.einsum("bihd,bjhd->bhij", q + self.u, k)
            moved = torch.einsum("bihd,jhd->bhij", q + self.v, r)
            moved = torch.cat([moved.new_zeros(b, self.heads, n, 1), moved], -1).view(b, self.heads, m + n + 1, n)[:, :, 1:].view_as(content)
            weights = ((content + moved) / (w // self.heads) ** 0.5).masked_fill(hidden, float("-inf")).softmax(-1)
            read = torch.einsum("bhij,bjhd->bihd", F.dropout(weights, 0.1, self.training), v).reshape(b, n, w)
            z = self.norms[2 * i](z + self.o[i](read))
            z = self.norms[2 * i + 1](z + self.ffs[i](z))
        return F.cross_entropy((z @ self.words.weight.t()).flatten(0, 1), y.flatten())

    @staticmethod
    def inputs(batch): return {"x": ids(20000, batch, 128), "memory": floats(4, batch, 128, 384), "y": ids(20000, batch, 128)}


@own(512)
class FactorizationMachine(nn.Module):
    """DeepFM with EmbeddingBag and cross layers (DCN v2)."""

    def __init__(self, fields=26, rows=20000, w=32):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, w, mode="sum") for _ in range(4))
        self.words, self.linear = nn.Embedding(fields * rows // 10, w), nn.Embedding(fields * rows // 10, 1)
        self.register_buffer("shift", torch.arange(fields) * (rows // 10))
        n = (fields + 4) * w + 13
        self.cross, self.deep = nn.ModuleList(nn.Linear(n, n) for _ in range(3)), nn.Sequential(nn.Linear(n, 400), nn.BatchNorm1d(400), nn.ReLU(), nn.Dropout(0.2), nn.Linear(400, 400), nn.ReLU())
        self.out = nn.Linear(n + 400, 1)

    def forward(self, x, bags, dense, y):
        e = self.words(x + self.shift)
        pairs = 0.5 * (e.sum(1) ** 2 - (e ** 2).sum(1)).sum(1)
        z = torch.cat([e.flatten(1), *(table(bags[:, i]) for i, table in enumerate(self.tables)), torch.log1p(dense.abs())], 1)
        first = z
        for layer in self.cross: z = first * layer(z) + z
        out = self.out(torch.cat([z, self.deep(first)], 1)).squeeze(1) + pairs + self.linear(x + self.shift).sum((1, 2))
        return F.binary_cross_entropy_with_logits(out.float(), y)

    @staticmethod
    def inputs(batch): return {"x": ids(2000, batch, 26), "bags": ids(20000, batch, 4, 10), "dense": floats(batch, 13), "y": floats(batch)}


@own(4)
class Isomorphism(nn.Module):
    """GIN: sums of neighbours by index_add, a virtual node, sums and maxima of graphs by scatter_reduce."""

    def __init__(self, w=128, depth=4):
        super().__init__()
        self.atoms, self.bonds = nn.Embedding(120, w), nn.ModuleList(nn.Embedding(16, w) for _ in range(depth))
        self.eps = nn.Parameter(torch.zeros(depth))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(w, 2 * w), nn.BatchNorm1d(2 * w), nn.ReLU(), nn.Linear(2 * w, w)) for _ in range(depth))
        self.head = nn.Linear(2 * w, 12)

    def forward(self, atoms, source, target, bonds, graph, y):
        n = atoms.numel()
        z, graph, source, target, bonds = self.atoms(atoms.flatten()), graph.flatten(), source.flatten(), target.flatten(), bonds.flatten()
        virtual = z.new_zeros(y.size(0), z.size(1))
        for i, mlp in enumerate(self.mlps):
            z = z + virtual[graph]
            sent = F.relu(z[source] + self.bonds[i](bonds))
            z = F.relu(mlp((1 + self.eps[i]) * z + torch.zeros_like(z).index_add(0, target, sent.to(z.dtype))))
            virtual = virtual + torch.zeros_like(virtual).index_add(0, graph, z.to(virtual.dtype))
        wide = graph[:, None].expand(n, z.size(1))
        most = z.new_zeros(y.size(0), z.size(1)).scatter_reduce(0, wide, z, "amax", include_self=False)
        return F.binary_cross_entropy_with_logits(self.head(torch.cat([virtual.to(most.dtype), most], 1)), y)

    @staticmethod
    def inputs(batch):
        nodes, edges = 500, 2000
        return {"atoms": ids(120, batch, nodes), "source": ids(batch * nodes, batch, edges), "target": ids(batch * nodes, batch, edges).flip(1), "bonds": ids(16, batch, edges),
                "graph": torch.arange(batch * 20).repeat_interleave(nodes // 20).view(batch, nodes), "y": floats(batch * 20, 12)}


@own(64)
class TableTransformer(nn.Module):
    """Columns as tokens: nn.TransformerEncoder with dropout, numbers embedded by periodic functions."""

    def __init__(self, w=192, columns=24, depth=3):
        super().__init__()
        self.words, self.waves = nn.Embedding(1000, w), nn.Parameter(torch.randn(columns, 48))
        self.number, self.first = nn.Linear(96, w), nn.Parameter(torch.zeros(1, 1, w))
        layer = nn.TransformerEncoderLayer(w, 8, 3 * w, dropout=0.1, activation="gelu", batch_first=True, norm_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(w), enable_nested_tensor=False), nn.Linear(w, 2)

    def forward(self, x, numbers, y):
        angles = 2 * math.pi * self.waves * numbers[..., None]
        z = torch.cat([self.first.expand(x.size(0), -1, -1), self.words(x), F.relu(self.number(torch.cat([angles.cos(), angles.sin()], -1)))], 1)
        return F.cross_entropy(self.head(self.encoder(z)[:, 0]), y)

    @staticmethod
    def inputs(batch): return {"x": ids(1000, batch, 12), "numbers": floats(batch, 24), "y": ids(2, batch)}


@own(8)
class RoutedMlp(nn.Module):
    """A mixture of experts of one's own: dense routing by einsum with a capacity from cumulated places (GShard)."""

    def __init__(self, w=256, experts=8, depth=2, vocabulary=8000):
        super().__init__()
        self.words, self.experts, self.depth = nn.Embedding(vocabulary, w), experts, depth
        self.routers = nn.ModuleList(nn.Linear(w, experts, bias=False) for _ in range(depth))
        self.inner, self.outer = (nn.ParameterList(torch.randn(experts, a, b) * 0.02 for _ in range(depth)) for a, b in ((w, 4 * w), (4 * w, w)))
        self.norms, self.head = nn.ModuleList(nn.LayerNorm(w) for _ in range(depth)), nn.Linear(w, vocabulary)

    def forward(self, x, y):
        z = self.words(x)
        b, n, w = z.shape
        capacity, extra = 2 * n // self.experts, 0
        for i in range(self.depth):
            h = self.norms[i](z)
            shares = self.routers[i](h).float().softmax(-1)
            weight, chosen = shares.topk(2, -1)
            weight = weight / weight.sum(-1, keepdim=True)
            combine = 0
            for k in range(2):
                hot = F.one_hot(chosen[..., k], self.experts).float()
                place = (hot.cumsum(1) - 1) * hot
                hot = hot * (place < capacity)
                combine = combine + weight[..., k, None, None] * hot[..., None] * F.one_hot((place * hot).sum(-1).long(), capacity).float()[:, :, None]
            sent = torch.einsum("bnec,bnd->becd", (combine > 0).to(h.dtype), h)
            out = torch.einsum("becf,efd->becd", F.gelu(torch.einsum("becd,edf->becf", sent, self.inner[i])), self.outer[i])
            z = z + torch.einsum("bnec,becd->bnd", combine.to(out.dtype), out)
            extra = extra + self.experts * (shares.mean((0, 1)) * F.one_hot(chosen[..., 0], self.experts).float().mean((0, 1))).sum()
        return F.cross_entropy(self.head(z).flatten(0, 1).float(), y.flatten()) + 0.01 * extra

    @staticmethod
    def inputs(batch): return {"x": ids(8000, batch, 128), "y": ids(8000, batch, 128)}


@own(16)
class TextCnn(nn.Module):
    """Kim's convolutions over words and a highway, a CRF's forward algorithm over time."""

    def __init__(self, vocabulary=30000, w=300, tags=9):
        super().__init__()
        self.words = nn.Embedding(vocabulary, w)
        self.convs = nn.ModuleList(nn.Conv1d(w, 100, k, padding=k // 2) for k in (3, 5, 7))
        self.gate, self.change, self.out = nn.Linear(300, 300), nn.Linear(300, 300), nn.Linear(300, tags)
        self.trans = nn.Parameter(torch.randn(tags, tags))

    def forward(self, x, y):
        z = F.dropout(self.words(x), 0.5, self.training).transpose(1, 2)
        z = torch.cat([F.relu(conv(z)) for conv in self.convs], 1).transpose(1, 2)
        gate = torch.sigmoid(self.gate(z))
        scores = self.out(gate * F.relu(self.change(z)) + (1 - gate) * z).float()
        alpha = scores[:, 0]
        for t in range(1, x.size(1)): alpha = torch.logsumexp(alpha[:, :, None] + self.trans, 1) + scores[:, t]
        path = scores.gather(2, y[..., None]).squeeze(-1).sum(1) + self.trans[y[:, :-1], y[:, 1:]].sum(1)
        return (alpha.logsumexp(1) - path).mean()

    @staticmethod
    def inputs(batch): return {"x": ids(30000, batch, 64), "y": ids(9, batch, 64)}
