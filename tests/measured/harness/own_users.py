"""Still more modules as a user writes them (own_modules.py), of which seed 11021 draws: graphs, recurrent networks, losses of torch.nn, loops of one's own."""
import math

import torch
import torch.nn.functional as F
from torch import nn

from own_modules import floats, ids, own


# ---- graphs and points ----------------------------------------------------------------------------------------------
@own(4)
class EdgeMessages(nn.Module):
    """Gilmer's messages: an MLP of both ends and the edge, summed by index_add, a GRU cell updates the nodes; mean by graph."""

    def __init__(self, w=128, rounds=4):
        super().__init__()
        self.rounds = rounds
        self.atom, self.bond = nn.Embedding(64, w), nn.Linear(16, w)
        self.message = nn.Sequential(nn.Linear(3 * w, w), nn.SiLU(), nn.Linear(w, w))
        self.update, self.norm = nn.GRUCell(w, w), nn.LayerNorm(w)
        self.out = nn.Sequential(nn.Linear(w, w), nn.ELU(), nn.Linear(w, 12))

    def forward(self, atoms, sources, targets, edges, graph, y):
        h, e = self.atom(atoms), self.bond(edges)
        for _ in range(self.rounds):
            m = self.message(torch.cat([h[sources], h[targets], e], -1))
            h = self.update(torch.zeros_like(h).index_add(0, targets, m.to(h.dtype)), self.norm(h))
        sums = h.new_zeros(y.size(0), h.size(1)).scatter_add(0, graph[:, None].expand_as(h), h)
        return F.l1_loss(self.out(sums / 32), y)

    @staticmethod
    def inputs(batch):
        n, m = 32 * 16 * batch, 96 * 16 * batch
        return {"atoms": ids(64, n), "sources": ids(29, m), "targets": ids(31, m), "edges": floats(m, 16), "graph": torch.arange(16 * batch).repeat_interleave(32), "y": floats(16 * batch, 12)}


@own(4)
class Equivariant(nn.Module):
    """Satorras's EGNN on whole clouds: squared distances of all pairs, coordinates moved along differences, smooth L1."""

    def __init__(self, w=64, layers=4):
        super().__init__()
        self.emb = nn.Linear(8, w)
        make = lambda a, b: nn.Sequential(nn.Linear(a, w), nn.SiLU(), nn.Linear(w, b))
        self.edges = nn.ModuleList(make(2 * w + 1, w) for _ in range(layers))
        self.moves = nn.ModuleList(nn.Sequential(nn.Linear(w, w), nn.SiLU(), nn.Linear(w, 1, bias=False), nn.Tanh()) for _ in range(layers))
        self.nodes = nn.ModuleList(make(2 * w, w) for _ in range(layers))
        self.out = nn.Linear(w, 1)

    def forward(self, features, x, y, moved):
        h, start = self.emb(features), x
        n = h.size(1)
        for edge, move, node in zip(self.edges, self.moves, self.nodes):
            way = x[:, :, None] - x[:, None]
            squares = way.pow(2).sum(-1, keepdim=True)
            m = edge(torch.cat([h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1), squares], -1))
            x = x + (way / (squares.sqrt() + 1) * move(m)).mean(2)
            h = h + node(torch.cat([h, m.sum(2)], -1))
        return F.smooth_l1_loss(self.out(h.mean(1)).squeeze(-1), y, beta=0.5) + F.mse_loss(x - start, moved)

    @staticmethod
    def inputs(batch): return {"features": floats(batch, 48, 8), "x": floats(batch, 48, 3), "y": floats(batch), "moved": floats(batch, 48, 3)}


@own(8)
class SetTransformer(nn.Module):
    """Induced points that attend to a set and back (nn.MultiheadAttention), pooled by a seed; Chamfer's distance by cdist as the loss."""

    def __init__(self, w=128, induced=32, points=256):
        super().__init__()
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.at, self.ff = nn.MultiheadAttention(w, 4, batch_first=True), nn.Sequential(nn.Linear(w, 2 * w), nn.ReLU(), nn.Linear(2 * w, w))
                self.n1, self.n2 = nn.LayerNorm(w), nn.LayerNorm(w)

            def forward(self, q, kv):
                q = self.n1(q + self.at(q, kv, kv, need_weights=False)[0])
                return self.n2(q + self.ff(q))
        self.emb, self.points = nn.Linear(3, w), points
        self.induced = nn.Parameter(torch.randn(2, induced, w))
        self.down, self.up = nn.ModuleList(Block() for _ in range(2)), nn.ModuleList(Block() for _ in range(2))
        self.seed, self.pool, self.out = nn.Parameter(torch.randn(1, 1, w)), Block(), nn.Sequential(nn.Linear(w, 512), nn.GELU(), nn.Linear(512, 3 * points))

    def forward(self, x):
        h = self.emb(x)
        for i, (down, up) in enumerate(zip(self.down, self.up)):
            h = up(h, down(self.induced[i].expand(x.size(0), -1, -1), h))
        code = self.pool(self.seed.expand(x.size(0), -1, -1), h)
        distances = torch.cdist(self.out(code[:, 0]).view(-1, self.points, 3).float(), x.float())
        return distances.min(1)[0].mean() + distances.min(2)[0].mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 512, 3)}


# ---- recurrent ------------------------------------------------------------------------------------------------------
@own(16)
class ProjectedSpeech(nn.Module):
    """A listener of projected LSTMs that halves time between its layers, batch norms of features, CTC loss."""

    def __init__(self, w=320, tokens=64):
        super().__init__()
        self.norm = nn.BatchNorm1d(80)
        self.one, self.two = nn.LSTM(80, w, batch_first=True, bidirectional=True, proj_size=128), nn.LSTM(512, w, batch_first=True, bidirectional=True, proj_size=128)
        self.out = nn.Linear(256, tokens)

    def forward(self, x, y):
        h = self.norm(x.transpose(1, 2)).transpose(1, 2)
        h, _ = self.one(h)
        h, _ = self.two(h.reshape(h.size(0), h.size(1) // 2, -1))
        scores = F.log_softmax(self.out(h).float(), -1).transpose(0, 1)
        lengths = torch.full((x.size(0),), scores.size(0), dtype=torch.long), torch.full((x.size(0),), y.size(1), dtype=torch.long)
        return F.ctc_loss(scores, y, *lengths, zero_infinity=True)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 400, 80), "y": ids(62, batch, 30) + 1}


@own(32)
class DeepArForecast(nn.Module):
    """Salinas's: an LSTM over covariates and the last value, a scale for each series, negative log-likelihood of Student's t."""

    def __init__(self, w=96, series=370):
        super().__init__()
        self.who = nn.Embedding(series, 20)
        self.rnn = nn.LSTM(1 + 4 + 20, w, 3, batch_first=True, dropout=0.1)
        self.mean, self.scale, self.freedom = (nn.Linear(w, 1) for _ in range(3))

    def forward(self, x, covariates, who):
        level = 1 + x[:, :168].abs().mean(1, keepdim=True)
        z = x / level
        given = torch.cat([z[:, :-1, None], covariates[:, 1:], self.who(who)[:, None].expand(-1, x.size(1) - 1, -1)], -1)
        h, _ = self.rnn(given)
        m, s, v = self.mean(h)[..., 0], F.softplus(self.scale(h))[..., 0] + 1e-4, F.softplus(self.freedom(h))[..., 0] + 2
        y = (z[:, 1:] - m) / s
        return -(torch.lgamma((v + 1) / 2) - torch.lgamma(v / 2) - 0.5 * torch.log(math.pi * v) - torch.log(s) - (v + 1) / 2 * torch.log1p(y * y / v)).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 192), "covariates": floats(batch, 192, 4), "who": ids(370, batch)}


@own(16)
class CrfTagger(nn.Module):
    """Embeddings, a GRU both ways, a linear chain's forward algorithm written as a loop, tags' scores gathered."""

    def __init__(self, words=30000, w=200, tags=17):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(words, w, padding_idx=0), nn.GRU(w, 150, batch_first=True, bidirectional=True)
        self.out = nn.Linear(300, tags)
        self.step, self.start, self.end = nn.Parameter(torch.randn(tags, tags)), nn.Parameter(torch.randn(tags)), nn.Parameter(torch.randn(tags))

    def forward(self, x, y):
        h, _ = self.rnn(F.dropout(self.emb(x), 0.3, self.training))
        e = self.out(h).float()
        alpha = self.start + e[:, 0]
        for t in range(1, e.size(1)):
            alpha = torch.logsumexp(alpha[:, :, None] + self.step + e[:, t, None], 1)
        total = torch.logsumexp(alpha + self.end, 1)
        gold = e.gather(2, y[..., None]).squeeze(-1).sum(1) + self.step[y[:, :-1], y[:, 1:]].sum(1) + self.start[y[:, 0]] + self.end[y[:, -1]]
        return (total - gold).mean()

    @staticmethod
    def inputs(batch): return {"x": ids(30000, batch, 40), "y": ids(17, batch, 40)}


@own(16)
class MatrixLstm(nn.Module):
    """xLSTM's matrix memory in its parallel form: cumulative log gates, a decay matrix with its row's most taken off, group norm."""

    def __init__(self, words=8192, w=256, heads=4, layers=3):
        super().__init__()
        self.heads, self.emb = heads, nn.Embedding(words, w)
        self.norms, self.ups, self.qkv = (nn.ModuleList(f() for _ in range(layers)) for f in (lambda: nn.LayerNorm(w), lambda: nn.Linear(w, 4 * w), lambda: nn.Linear(2 * w, 6 * w)))
        self.gates, self.heads_norm, self.downs = (nn.ModuleList(f() for _ in range(layers)) for f in (lambda: nn.Linear(6 * w, 2 * heads), lambda: nn.GroupNorm(heads, 2 * w), lambda: nn.Linear(2 * w, w)))
        self.out = nn.Linear(w, words, bias=False)

    def forward(self, x, y):
        h = self.emb(x)
        b, t, _ = h.shape
        for norm, up, qkv, gates, of_heads, down in zip(self.norms, self.ups, self.qkv, self.gates, self.heads_norm, self.downs):
            inner, gate = up(norm(h)).chunk(2, -1)
            all3 = qkv(inner)
            q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in all3.chunk(3, -1))
            into, keep = gates(all3).float().transpose(1, 2).chunk(2, 1)
            total = F.logsigmoid(keep).cumsum(-1)
            decay = (total[..., :, None] - total[..., None, :] + into[..., None, :]).masked_fill(torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1), -math.inf)
            most = decay.amax(-1, keepdim=True)
            scores = (q @ k.mT) / math.sqrt(q.size(-1)) * torch.exp(decay - most)
            mixed = scores / torch.maximum(scores.sum(-1, keepdim=True).abs(), torch.exp(-most)) @ v.float()
            mixed = of_heads(mixed.transpose(1, 2).reshape(b * t, -1)).view(b, t, -1)
            h = h + down(mixed * F.silu(gate))
        return F.cross_entropy(self.out(h).flatten(0, 1), y.flatten())

    @staticmethod
    def inputs(batch): return {"x": ids(8192, batch, 256), "y": ids(8192, batch, 256)}


@own(32)
class AdaptiveWords(nn.Module):
    """A two-layer LSTM over words with nn.AdaptiveLogSoftmaxWithLoss: clusters by how rare a word is. All targets are of the head here."""

    def __init__(self, words=50000, w=400):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(words, w), nn.LSTM(w, w, 2, dropout=0.2)
        self.drop, self.out = nn.Dropout(0.2), nn.Linear(w, 2002)
        self.tail = nn.Sequential(nn.Linear(w, 100, bias=False), nn.Linear(100, words - 2000, bias=False))

    def forward(self, x, y):
        h, _ = self.rnn(self.drop(self.emb(x)))
        h = self.drop(h).flatten(0, 1)
        head, tail = F.log_softmax(self.out(h), 1), F.log_softmax(self.tail(h[::4]), 1)
        return F.nll_loss(head, y.flatten() % 2002) + F.nll_loss(tail, y.flatten()[::4] % 48000)

    @staticmethod
    def inputs(batch): return {"x": ids(50000, 35, batch), "y": ids(50000, 35, batch)}


# ---- losses and loops of one's own -----------------------------------------------------------------------------------
@own(32)
class ArcFace(nn.Module):
    """A small ResNet with PReLU, features of norm 1, an angular margin by acos and one-hot, a centre loss."""

    def __init__(self, classes=5000, w=64):
        super().__init__()
        conv = lambda a, b, s: nn.Sequential(nn.Conv2d(a, b, 3, s, 1, bias=False), nn.BatchNorm2d(b), nn.PReLU(b), nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b))
        self.stem = nn.Sequential(nn.Conv2d(3, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w), nn.PReLU(w))
        self.blocks = nn.ModuleList(conv(a, b, 2) for a, b in ((w, w), (w, 2 * w), (2 * w, 4 * w), (4 * w, 8 * w)))
        self.ways = nn.ModuleList(nn.Conv2d(a, b, 1, 2, bias=False) for a, b in ((w, w), (w, 2 * w), (2 * w, 4 * w), (4 * w, 8 * w)))
        self.out = nn.Sequential(nn.Flatten(), nn.Dropout(0.4), nn.Linear(8 * w * 49, 512), nn.BatchNorm1d(512))
        self.weight, self.centres = nn.Parameter(torch.randn(classes, 512)), nn.Parameter(torch.randn(classes, 512))

    def forward(self, x, y):
        h = self.stem(x)
        for block, way in zip(self.blocks, self.ways): h = block(h) + way(h)
        e = self.out(h)
        cosine = F.linear(F.normalize(e), F.normalize(self.weight)).float().clamp(-1 + 1e-6, 1 - 1e-6)
        turned = torch.cos(torch.acos(cosine) + 0.5)
        hot = F.one_hot(y, cosine.size(1)).to(cosine.dtype)
        return F.cross_entropy(64 * (hot * turned + (1 - hot) * cosine), y) + 1e-3 * F.mse_loss(e.float(), self.centres[y])

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 112, 112), "y": ids(5000, batch)}


@own(16)
class MomentumQueue(nn.Module):
    """MoCo: a second encoder follows by lerp_ in each step, a queue of keys as a buffer, InfoNCE by einsum."""

    def __init__(self, w=48, queue=4096):
        super().__init__()
        def encoder():
            conv = lambda a, b: [nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
            return nn.Sequential(*conv(3, w), *conv(w, 2 * w), *conv(2 * w, 4 * w), *conv(4 * w, 8 * w), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * w, 8 * w), nn.ReLU(), nn.Linear(8 * w, 128))
        self.query, self.key = encoder(), encoder()
        self.key.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(128, queue), dim=0))

    def forward(self, a, b):
        q = F.normalize(self.query(a), dim=1)
        with torch.no_grad():
            for mine, other in zip(self.key.parameters(), self.query.parameters()): mine.mul_(0.999).add_(other, alpha=0.001)
            k = F.normalize(self.key(b), dim=1)
        positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        scores = torch.cat([positive, negative], 1) / 0.07
        with torch.no_grad(): self.queue[:, :k.size(0)] = k.float().T
        return F.cross_entropy(scores, torch.zeros(scores.size(0), dtype=torch.long, device=scores.device))

    @staticmethod
    def inputs(batch): return {"a": floats(batch, 3, 160, 160), "b": floats(batch, 3, 160, 160)}


@own(16)
class NoisePredictor(nn.Module):
    """DDPM written by hand: time as sinusoids, residual blocks with group norm and scale-shift, attention at the lowest level, a draw of noise, weights by signal to noise."""

    def __init__(self, w=64):
        super().__init__()
        class Block(nn.Module):
            def __init__(self, a, b):
                super().__init__()
                self.n1, self.c1, self.n2, self.c2 = nn.GroupNorm(8, a), nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.Conv2d(b, b, 3, padding=1)
                self.t, self.skip = nn.Linear(4 * w, 2 * b), nn.Conv2d(a, b, 1) if a != b else nn.Identity()

            def forward(self, x, t):
                scale, shift = self.t(F.silu(t))[..., None, None].chunk(2, 1)
                h = self.n2(self.c1(F.silu(self.n1(x)))) * (1 + scale) + shift
                return self.skip(x) + self.c2(F.dropout(F.silu(h), 0.1, self.training))
        self.w = w
        self.time = nn.Sequential(nn.Linear(w, 4 * w), nn.SiLU(), nn.Linear(4 * w, 4 * w))
        self.first, self.last = nn.Conv2d(3, w, 3, padding=1), nn.Sequential(nn.GroupNorm(8, w), nn.SiLU(), nn.Conv2d(w, 3, 3, padding=1))
        self.downs = nn.ModuleList([Block(w, w), Block(w, 2 * w), Block(2 * w, 4 * w)])
        self.ups = nn.ModuleList([Block(8 * w, 2 * w), Block(4 * w, w), Block(2 * w, w)])
        self.qkv, self.norm, self.proj = nn.Conv2d(4 * w, 12 * w, 1), nn.GroupNorm(8, 4 * w), nn.Conv2d(4 * w, 4 * w, 1)
        self.register_buffer("kept", torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0))

    def forward(self, x, t):
        noise = torch.randn_like(x)
        kept = self.kept[t][:, None, None, None]
        h = self.first(kept.sqrt() * x + (1 - kept).sqrt() * noise)
        angles = t[:, None].float() * torch.exp(-math.log(1e4) * torch.arange(self.w // 2, device=x.device) / (self.w // 2))[None]
        time, skips = self.time(torch.cat([angles.sin(), angles.cos()], 1)), []
        for block in self.downs:
            h = block(h, time)
            skips.append(h)
            h = F.avg_pool2d(h, 2)
        b, c, height, width = h.shape
        q, k, v = self.qkv(self.norm(h)).view(b, 3, 4, c // 4, height * width).transpose(-1, -2).unbind(1)
        h = h + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(b, c, height, width))
        for block in self.ups:
            h = F.interpolate(h, scale_factor=2, mode="nearest")
            h = block(torch.cat([h, skips.pop()], 1), time)
        errors = F.mse_loss(self.last(h), noise, reduction="none").mean((1, 2, 3))
        weights = torch.clamp(self.kept[t] / (1 - self.kept[t]), max=5.0)
        return (weights * errors).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 64, 64), "t": ids(1000, batch)}


@own(64)
class CriticPenalty(nn.Module):
    """DCGAN's two networks in a step, hinge losses; the generator's images are made once with and once without gradients; feature matching."""

    def __init__(self, z=128, w=64):
        super().__init__()
        up = lambda a, b: [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)]
        down = lambda a, b: [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.InstanceNorm2d(b, affine=True), nn.LeakyReLU(0.2, True)]
        self.made = nn.Sequential(nn.ConvTranspose2d(z, 8 * w, 4, 1, 0, bias=False), nn.BatchNorm2d(8 * w), nn.ReLU(True), *up(8 * w, 4 * w), *up(4 * w, 2 * w), *up(2 * w, w),
                                  nn.ConvTranspose2d(w, 3, 4, 2, 1), nn.Tanh())
        self.seen, self.score = nn.Sequential(*down(3, w), *down(w, 2 * w), *down(2 * w, 4 * w)), nn.Conv2d(4 * w, 1, 4)

    def forward(self, x, z):
        images = self.made(z)
        real, fake = self.seen(x), self.seen(images.detach())
        critic = F.relu(1 - self.score(real)).mean() + F.relu(1 + self.score(fake)).mean()
        again = self.seen(images)
        return critic - self.score(again).mean() + 0.1 * F.l1_loss(again.mean((2, 3)), real.detach().mean((2, 3)))

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 64, 64), "z": floats(batch, 128, 1, 1)}


@own(256)
class Splines(nn.Module):
    """KAN: B-splines of order three on a grid, written as a recursion; multi-margin and pinball losses."""

    def __init__(self, sizes=(64, 128, 128, 10), grid=8):
        super().__init__()
        self.register_buffer("grid", torch.linspace(-2, 2, grid + 7))
        self.base = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.spline = nn.ParameterList(torch.randn(b, a, grid + 3) * 0.01 for a, b in zip(sizes, sizes[1:]))

    def bases(self, x):
        g, x = self.grid, x[..., None]
        b = ((x >= g[:-1]) & (x < g[1:])).to(x.dtype)
        for k in range(1, 4):
            b = (x - g[:-(k + 1)]) / (g[k:-1] - g[:-(k + 1)]) * b[..., :-1] + (g[k + 1:] - x) / (g[k + 1:] - g[1:-k]) * b[..., 1:]
        return b

    def forward(self, x, y, target):
        for base, spline in zip(self.base, self.spline):
            x = base(F.silu(x)) + F.linear(self.bases(x).flatten(1), spline.flatten(1))
        left = target[:, None] - x
        return F.multi_margin_loss(x.float(), y) + torch.maximum(0.9 * left, -0.1 * left).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 64), "y": ids(10, batch), "target": floats(batch)}


@own(64)
class NeuralOde(nn.Module):
    """Twelve steps of Runge-Kutta over a convolutional field with time as a channel, multilabel margins."""

    def __init__(self, w=48, classes=20):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, w, 3, 2, 1), nn.GroupNorm(8, w), nn.Softplus())
        self.one, self.two, self.norm = nn.Conv2d(w + 1, w, 3, padding=1), nn.Conv2d(w + 1, w, 3, padding=1), nn.GroupNorm(8, w)
        self.out = nn.Linear(w, classes)

    def field(self, t, x):
        time = torch.ones_like(x[:, :1]) * t
        h = self.norm(torch.tanh(self.one(torch.cat([x, time.to(x.dtype)], 1))))
        return self.two(torch.cat([h, time.to(h.dtype)], 1))

    def forward(self, x, y):
        h, steps = self.first(x), 6
        for i in range(steps):
            t, dt = i / steps, 1 / steps
            a = self.field(t, h)
            b = self.field(t + dt / 2, h + dt / 2 * a)
            c = self.field(t + dt / 2, h + dt / 2 * b)
            d = self.field(t + dt, h + dt * c)
            h = h + dt / 6 * (a + 2 * b + 2 * c + d)
        return F.multilabel_soft_margin_loss(self.out(F.adaptive_avg_pool2d(h, 1).flatten(1)), y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 64, 64), "y": floats(batch, 20).clamp(0, 1)}


@own(8)
class BilinearPooling(nn.Module):
    """Two small backbones whose features are multiplied at each pixel, signed roots, a Gram matrix, triplet loss with a distance of its own."""

    def __init__(self, w=64, classes=200):
        super().__init__()
        def backbone(k): return nn.Sequential(nn.Conv2d(3, w, k, 2, padding=k // 2), nn.BatchNorm2d(w), nn.Hardswish(), nn.Conv2d(w, w, k, 2, padding=k // 2, groups=w), nn.Conv2d(w, 2 * w, 1), nn.BatchNorm2d(2 * w), nn.Hardswish(),
                                              nn.Conv2d(2 * w, 2 * w, 3, 2, padding=1), nn.BatchNorm2d(2 * w), nn.Mish())
        self.a, self.b, self.out = backbone(3), backbone(7), nn.Linear(4 * w * w, classes)

    def forward(self, x, y):
        a, b = self.a(x).flatten(2), self.b(x).flatten(2)
        z = torch.bmm(a, b.transpose(1, 2)).flatten(1).float() / a.size(2)
        z = F.normalize(torch.sign(z) * torch.sqrt(z.abs() + 1e-5))
        n = z.size(0) // 2
        pull = F.triplet_margin_with_distance_loss(z[:n], z[n:2 * n], z[:n].flip(0), distance_function=lambda p, q: 1 - F.cosine_similarity(p, q), margin=0.2)
        return F.cross_entropy(self.out(z), y, label_smoothing=0.1) + pull

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 192, 256), "y": ids(200, batch)}


@own(16)
class WaveUNet(nn.Module):
    """Demucs in short: strided convolutions of sound with GLU, a two-way LSTM between, transposed ones back, uneven lengths cut, L1 at three resolutions."""

    def __init__(self, w=48, depth=4):
        super().__init__()
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        a = 2
        for i in range(depth):
            b = w * 2 ** i
            self.downs.append(nn.Sequential(nn.Conv1d(a, b, 8, 4), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1)))
            self.ups.insert(0, nn.Sequential(nn.Conv1d(b, 2 * b, 3, padding=1), nn.GLU(1), nn.ConvTranspose1d(b, a, 8, 4)))
            a = b
        self.rnn, self.mix = nn.LSTM(a, a, 2, bidirectional=True), nn.Linear(2 * a, a)

    def forward(self, x, y):
        h, skips = x, []
        for down in self.downs:
            h = down(h)
            skips.append(h)
        h = self.mix(self.rnn(h.permute(2, 0, 1))[0]).permute(1, 2, 0)
        for i, up in enumerate(self.ups):
            h = up(h + skips.pop()[..., :h.size(-1)])
            if i < len(self.ups) - 1: h = F.relu(h)
        cut = y[..., :h.size(-1)]
        return F.l1_loss(h, cut) + sum(F.l1_loss(F.avg_pool1d(h, k), F.avg_pool1d(cut, k)) for k in (4, 16))

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 2, 16384), "y": floats(batch, 2, 16384)}


@own(16)
class SentencePairs(nn.Module):
    """As sentence-transformers trains: a small BERT, means over tokens, in-batch negatives with a scale, Matryoshka's cuts of the features."""

    def __init__(self):
        super().__init__()
        from transformers import BertConfig, BertModel
        self.bert = BertModel(BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536), add_pooling_layer=False)

    def embed(self, x, mask):
        h = self.bert(input_ids=x, attention_mask=mask).last_hidden_state
        m = mask[..., None].to(h.dtype)
        return (h * m).sum(1) / m.sum(1).clamp(min=1e-9)

    def forward(self, a, b, a_mask, b_mask):
        a, b = self.embed(a, a_mask), self.embed(b, b_mask)
        total = 0
        for width, weight in ((384, 1.0), (256, 1.0), (128, 0.5)):
            scores = F.normalize(a[:, :width], dim=-1) @ F.normalize(b[:, :width], dim=-1).T * 20
            total = total + weight * F.cross_entropy(scores, torch.arange(scores.size(0), device=scores.device))
        return total

    @staticmethod
    def inputs(batch): return {"a": ids(30000, batch, 32), "b": ids(30000, batch, 128), "a_mask": torch.ones(batch, 32, dtype=torch.long), "b_mask": torch.ones(batch, 128, dtype=torch.long)}


@own(4096)
class DeepRanking(nn.Module):
    """DLRM: embedding bags, a lower triangle of all dot products, a cross network of low rank, focal BCE, a reconstruction by nn.CosineEmbeddingLoss."""

    def __init__(self, w=64, tables=8, rows=100000):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, w, mode="sum") for _ in range(tables))
        self.low = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, w), nn.ReLU())
        n = (tables + 1) * tables // 2 + w
        self.u, self.v = nn.ModuleList(nn.Linear(n, 32, bias=False) for _ in range(2)), nn.ModuleList(nn.Linear(32, n) for _ in range(2))
        self.top = nn.Sequential(nn.Linear(n, 256), nn.ReLU(), nn.BatchNorm1d(256), nn.Linear(256, 1))
        self.register_buffer("lower", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, dense, sparse, y):
        low = self.low(dense)
        all9 = torch.stack([low] + [bag(sparse[:, i]).to(low.dtype) for i, bag in enumerate(self.bags)], 1)
        dots = torch.bmm(all9, all9.transpose(1, 2))[:, self.lower[0], self.lower[1]]
        first = h = torch.cat([low, dots], 1)
        for u, v in zip(self.u, self.v): h = first * v(u(h)) + h
        scores = self.top(h).squeeze(1)
        entropy = F.binary_cross_entropy_with_logits(scores, y, reduction="none")
        sure = torch.sigmoid(scores).detach()
        return (entropy * (y * (1 - sure) + (1 - y) * sure) ** 2).mean() + 0.01 * F.cosine_embedding_loss(all9[:, 0], all9[:, 1], torch.ones_like(y))

    @staticmethod
    def inputs(batch): return {"dense": floats(batch, 13), "sparse": ids(99991, batch, 8, 4), "y": floats(batch).clamp(0, 1)}
