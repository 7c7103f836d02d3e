"""Modules as a user writes them (own_modules.py), of which seed 13021 draws: torch.nn's layers with arguments that are not their defaults,
factorisations, grouped convolutions, sums by index."""
import math

import torch
import torch.nn.functional as F
from torch import nn

from own_modules import floats, ids, own


# ---- recurrent networks ---------------------------------------------------------------------------------------------
@own(8)
class BareLstm(nn.Module):
    """LSTMs without biases, one of them both ways, over words; tags of each."""

    def __init__(self, w=256):
        super().__init__()
        self.words = nn.Embedding(8000, w)
        self.lower = nn.LSTM(w, w, bias=False, batch_first=True, bidirectional=True)
        self.upper = nn.LSTM(2 * w, w, bias=False, batch_first=True)
        self.out = nn.Linear(w, 32)

    def forward(self, words, y):
        h, _ = self.upper(self.lower(self.words(words))[0])
        return F.cross_entropy(self.out(h).flatten(0, 1), y.flatten())

    @staticmethod
    def inputs(batch): return {"words": ids(8000, batch, 96), "y": ids(32, batch, 96)}


@own(8)
class ProjectedLstm(nn.Module):
    """Two layers whose states are projected (proj_size), over features of sound, dropout between them."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(80, 512, num_layers=2, proj_size=128, dropout=0.1)
        self.out = nn.Linear(128, 48)

    def forward(self, x, y):
        h, (state, cell) = self.rnn(x.transpose(0, 1))
        return F.cross_entropy(self.out(h).transpose(0, 1).flatten(0, 1), y.flatten()) + 1e-3 * cell.square().mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 150, 80), "y": ids(48, batch, 150)}


@own(8)
class ElmanTagger(nn.Module):
    """nn.RNN with relu of three layers both ways, and a GRU without a bias behind it."""

    def __init__(self, w=192):
        super().__init__()
        self.words = nn.Embedding(5000, w, padding_idx=0)
        self.rnn = nn.RNN(w, w, 3, nonlinearity="relu", bidirectional=True, batch_first=True, dropout=0.2)
        self.gru = nn.GRU(2 * w, w, bias=False, batch_first=True)
        self.out = nn.Linear(w, 17)

    def forward(self, words, y):
        h, last = self.gru(self.rnn(self.words(words))[0])
        return F.cross_entropy(self.out(h + last[0][:, None]).transpose(1, 2), y)

    @staticmethod
    def inputs(batch): return {"words": ids(5000, batch, 80), "y": ids(17, batch, 80)}


# ---- attention ------------------------------------------------------------------------------------------------------
@own(4)
class OddAttention(nn.Module):
    """nn.MultiheadAttention with biases of keys and values and a zero of attention, with widths of its own for both, with weights asked for."""

    def __init__(self, w=256):
        super().__init__()
        self.near = nn.MultiheadAttention(w, 8, dropout=0.1, add_bias_kv=True, add_zero_attn=True, batch_first=True)
        self.far = nn.MultiheadAttention(w, 4, kdim=96, vdim=160, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(w) for _ in range(2))
        self.out = nn.Linear(w, 10)

    def forward(self, x, keys, values, y):
        n = self.norms[0](x)
        x = x + self.near(n, n, n, need_weights=False)[0]
        found, weights = self.far(self.norms[1](x), keys, values, average_attn_weights=False)
        return F.cross_entropy(self.out((x + found).mean(1)), y) - 1e-2 * (weights * (weights + 1e-6).log()).sum(-1).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 120, 256), "keys": floats(batch, 70, 96), "values": floats(batch, 70, 160), "y": ids(10, batch)}


@own(4)
class PreNormTranslator(nn.Module):
    """nn.TransformerEncoder and -Decoder layers with norm_first, gelu, no biases; a causal mask and paddings."""

    def __init__(self, w=320):
        super().__init__()
        self.words = nn.Embedding(6000, w)
        made = dict(nhead=5, dim_feedforward=4 * w, dropout=0.1, activation="gelu", batch_first=True, norm_first=True, bias=False)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(w, **made), 3, nn.LayerNorm(w), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(w, **made), 3, nn.LayerNorm(w))

    def forward(self, words, padding, target, y):
        memory = self.encoder(self.words(words), src_key_padding_mask=padding)
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1), device=target.device)
        h = self.decoder(self.words(target), memory, tgt_mask=mask, memory_key_padding_mask=padding)
        return F.cross_entropy((h @ self.words.weight.T).flatten(0, 1), y.flatten())

    @staticmethod
    def inputs(batch):
        return {"words": ids(6000, batch, 96), "padding": torch.zeros(batch, 96, dtype=torch.bool), "target": ids(6000, batch, 64), "y": ids(6000, batch, 64)}


# ---- convolutions ---------------------------------------------------------------------------------------------------
@own(8)
class GroupedTower(nn.Module):
    """Grouped convolutions of 4 to 64 groups at three resolutions, channels shuffled between, as ResNeXt and ShuffleNet have."""

    def __init__(self):
        super().__init__()
        self.stem, layers, c = nn.Conv2d(3, 64, 5, 2, 2), [], 64
        for groups, out, stride in ((4, 128, 2), (8, 128, 1), (32, 256, 2), (16, 256, 1), (64, 512, 2), (2, 512, 1)):
            layers += [nn.Conv2d(c, out, 3, stride, 1, groups=groups, bias=False), nn.BatchNorm2d(out), nn.Hardswish(), nn.ChannelShuffle(4)]
            c = out
        self.layers, self.out = nn.Sequential(*layers), nn.Linear(c, 100)

    def forward(self, x, y): return F.cross_entropy(self.out(self.layers(self.stem(x)).mean((2, 3))), y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 192, 192), "y": ids(100, batch)}


@own(8)
class LongSeparable(nn.Module):
    """Separable 1-D convolutions of kernels 3 to 31, dilated, with layer norm across channels and GEGLU (ConvNeXt of sequences)."""

    def __init__(self, w=192):
        super().__init__()
        self.stem = nn.Conv1d(12, w, 9, 4, 4)
        self.deep = nn.ModuleList(nn.Conv1d(w, w, k, padding="same", dilation=d, groups=w) for k, d in ((3, 1), (7, 2), (15, 4), (31, 8)))
        self.norms = nn.ModuleList(nn.LayerNorm(w) for _ in range(4))
        self.up, self.down = nn.ModuleList(nn.Linear(w, 8 * w) for _ in range(4)), nn.ModuleList(nn.Linear(4 * w, w) for _ in range(4))
        self.out = nn.Linear(w, 5)

    def forward(self, x, y):
        x = self.stem(x)
        for deep, norm, up, down in zip(self.deep, self.norms, self.up, self.down):
            value, gate = up(norm(deep(x).transpose(1, 2))).chunk(2, -1)
            x = x + down(value * F.gelu(gate)).transpose(1, 2)
        return F.binary_cross_entropy_with_logits(self.out(x.amax(-1)), y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 12, 4096), "y": floats(batch, 5)}


@own(4)
class SegNet(nn.Module):
    """Max pooling that gives its places, unpooling by them, local response norm, a class for each pixel with weights and an ignored one."""

    def __init__(self):
        super().__init__()
        def part(a, b): return nn.Sequential(nn.Conv2d(a, b, 3, 1, 1, bias=False), nn.GroupNorm(8, b), nn.LeakyReLU(0.1, inplace=True))
        self.down, self.up = nn.ModuleList([part(3, 48), part(48, 96), part(96, 192)]), nn.ModuleList([part(192, 96), part(96, 48), part(48, 48)])
        self.norm, self.out = nn.LocalResponseNorm(5), nn.Conv2d(48, 12, 1)
        self.register_buffer("weights", torch.ones(12))

    def forward(self, x, y):
        places, x = [], self.norm(x)
        for part in self.down:
            x, where = F.max_pool2d(part(x), 2, return_indices=True)
            places.append(where)
        for part in self.up: x = part(F.max_unpool2d(x, places.pop(), 2))
        return F.cross_entropy(self.out(x), y, weight=self.weights, ignore_index=11)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 160, 224), "y": ids(12, batch, 160, 224)}


@own(4)
class SpatialTransformer(nn.Module):
    """A network that warps what it sees (affine_grid, grid_sample), fold of unfolded patches, adaptive pooling, bicubic upsampling."""

    def __init__(self):
        super().__init__()
        self.where = nn.Sequential(nn.Conv2d(3, 16, 7, 2), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(16, 32, 5), nn.AdaptiveAvgPool2d((4, 5)), nn.Flatten(), nn.Linear(640, 6))
        self.mix = nn.Linear(3 * 64, 3 * 64)
        self.net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, padding_mode="circular"), nn.InstanceNorm2d(64, affine=True), nn.ELU(), nn.Conv2d(64, 3, 3, 1, 1))

    def forward(self, x, y):
        grid = F.affine_grid(self.where(x).view(-1, 2, 3), x.shape, align_corners=False)
        x = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
        patches = self.mix(F.unfold(x, 8, stride=8).transpose(1, 2)).transpose(1, 2)
        x = self.net(x + F.fold(patches, x.shape[-2:], 8, stride=8))
        return F.huber_loss(F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False), y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 3, 96, 128), "y": floats(batch, 3, 192, 256)}


# ---- linear algebra -------------------------------------------------------------------------------------------------
@own(8)
class DeepKernel(nn.Module):
    """A Gaussian process on learned features: kernels of each task's points, Cholesky, triangular solves, log determinants."""

    def __init__(self, w=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(24, w), nn.Tanh(), nn.Linear(w, w), nn.Tanh(), nn.Linear(w, 8))
        self.scale, self.noise = nn.Parameter(torch.zeros(8)), nn.Parameter(torch.zeros(()))

    def forward(self, x, y):
        h = (self.net(x) * self.scale.exp()).float()
        square = (h[:, :, None] - h[:, None]).square().sum(-1)
        kernel = torch.exp(-0.5 * square) + (self.noise.exp() + 1e-2) * torch.eye(x.size(1), device=x.device)
        with torch.autocast("cuda", enabled=False):
            low = torch.linalg.cholesky(kernel.float())
            white = torch.linalg.solve_triangular(low, y[..., None].float(), upper=False)
        return (0.5 * white.square().sum((1, 2)) + low.diagonal(dim1=-2, dim2=-1).log().sum(-1)).mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 160, 24), "y": floats(batch, 160)}


@own(8)
class RidgeHead(nn.Module):
    """Bertinetto's R2D2: a small network whose last layer is solved in closed form for each episode (linalg.solve), orthogonality by slogdet."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AvgPool2d(7), nn.Flatten())
        self.penalty = nn.Parameter(torch.zeros(()))

    def forward(self, shown, labels, asked, y):
        episodes, n = labels.shape[:2]
        a = self.net(shown.flatten(0, 1)).view(episodes, n, -1).float()
        b = self.net(asked.flatten(0, 1)).view(episodes, -1, a.size(-1)).float()
        with torch.autocast("cuda", enabled=False):
            gram = a.transpose(1, 2) @ a + (self.penalty.exp() + 1.0) * torch.eye(a.size(-1), device=a.device)
            w = torch.linalg.solve(gram, a.transpose(1, 2) @ labels.float())
            return F.cross_entropy((b @ w).flatten(0, 1), y.flatten()) + 1e-4 * torch.linalg.slogdet(gram)[1].mean()

    @staticmethod
    def inputs(batch): return {"shown": floats(batch, 25, 1, 28, 28), "labels": floats(batch, 25, 5), "asked": floats(batch, 30, 1, 28, 28), "y": ids(5, batch, 30)}


@own(8)
class Whitening(nn.Module):
    """Features whitened by the symmetric root of their covariance (linalg.eigh), singular values of a weight as a penalty."""

    def __init__(self, w=96):
        super().__init__()
        self.net, self.head = nn.Sequential(nn.Linear(200, 256), nn.SiLU(), nn.Linear(256, w)), nn.Linear(w, 20)

    def forward(self, x, y):
        h = self.net(x).flatten(0, 1).float()
        with torch.autocast("cuda", enabled=False):
            h = h - h.mean(0)
            values, vectors = torch.linalg.eigh(h.T @ h / h.size(0) + 1e-3 * torch.eye(h.size(1), device=h.device))
            h = h @ (vectors * values.clamp_min(1e-5).rsqrt()) @ vectors.T
            singular = torch.linalg.svdvals(self.head.weight.float())
        return F.cross_entropy(self.head(h), y.flatten()) + 1e-3 * (singular - 1).square().sum()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 64, 200), "y": ids(20, batch, 64)}


@own(8)
class OrthogonalLayers(nn.Module):
    """nn.utils.parametrizations: an orthogonal map by matrix_exp, a spectral norm, a weight norm; QR of a batch of frames."""

    def __init__(self, w=96):
        super().__init__()
        from torch.nn.utils import parametrizations
        self.turn = parametrizations.orthogonal(nn.Linear(w, w, bias=False), orthogonal_map="matrix_exp")
        self.smooth = parametrizations.spectral_norm(nn.Linear(w, 2 * w))
        self.sized = parametrizations.weight_norm(nn.Linear(2 * w, 6 * 8))

    def forward(self, x, y):
        frames = self.sized(F.softplus(self.smooth(self.turn(x)))).view(-1, 8, 6).float()
        with torch.autocast("cuda", enabled=False): q, r = torch.linalg.qr(frames)
        return (q.transpose(1, 2) @ y).square().sum((1, 2)).neg().mean() + r.diagonal(dim1=-2, dim2=-1).square().mean()

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 96), "y": floats(batch, 8, 3)}


# ---- pairs, bags, indices -------------------------------------------------------------------------------------------
@own(64)
class BiaffineParser(nn.Module):
    """Dozat's arcs by an nn.Bilinear of pairs and an einsum with labels; margins of ranked pairs."""

    def __init__(self, w=128):
        super().__init__()
        self.head, self.dependent = nn.Linear(w, 64), nn.Linear(w, 64)
        self.pair, self.label = nn.Bilinear(64, 64, 32), nn.Parameter(torch.zeros(9, 65, 65))

    def forward(self, x, far, y):
        a, b = F.elu(self.head(x)), F.elu(self.dependent(far))
        score = self.pair(a, b).sigmoid().mean(-1)
        one = torch.ones_like(a[..., :1])
        labels = torch.einsum("bi,lij,bj->bl", torch.cat([a, one], -1), self.label.to(a.dtype), torch.cat([b, one], -1))
        return F.cross_entropy(labels, y) + F.margin_ranking_loss(score[0::2], score[1::2], torch.ones_like(score[0::2]), margin=0.3)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 128), "far": floats(batch, 128), "y": ids(9, batch)}


@own(64)
class WeightedBags(nn.Module):
    """Bags of words with weights, of maxima, of means, offsets given; MLP with batch norm and dropout; many labels at once."""

    def __init__(self, w=64):
        super().__init__()
        self.sums, self.most = nn.EmbeddingBag(30000, w, mode="sum"), nn.EmbeddingBag(9000, w, mode="max")
        self.means = nn.EmbeddingBag(5000, w, mode="mean", include_last_offset=True)
        self.net = nn.Sequential(nn.Linear(3 * w, 512), nn.BatchNorm1d(512), nn.Mish(), nn.Dropout(0.3), nn.Linear(512, 200))

    def forward(self, words, weights, marks, pieces, offsets, y):
        x = torch.cat([self.sums(words, per_sample_weights=weights), self.most(marks), self.means(pieces, offsets)], -1)
        return F.multilabel_soft_margin_loss(self.net(x), y)

    @staticmethod
    def inputs(batch):
        return {"words": ids(30000, batch, 20), "weights": floats(batch, 20), "marks": ids(9000, batch, 7), "pieces": ids(5000, batch * 5),
                "offsets": torch.arange(batch + 1) * 5, "y": floats(batch, 200)}


@own(4)
class HeteroGraph(nn.Module):
    """Relations of three kinds by index_select and scatter_reduce (mean, amax, prod of gates), TopK pooling by gathered scores."""

    def __init__(self, w=96, kinds=3):
        super().__init__()
        self.start, self.relations = nn.Linear(20, w), nn.ModuleList(nn.Linear(w, w, bias=False) for _ in range(kinds))
        self.gate, self.score, self.out = nn.Linear(w, 1), nn.Linear(w, 1), nn.Linear(w, 6)

    def forward(self, nodes, sources, targets, y):
        h = self.start(nodes).flatten(0, 1)
        for relation, how in zip(self.relations, ("mean", "amax", "sum")):
            m = relation(h).index_select(0, sources)
            place = targets[:, None].expand_as(m)
            got = torch.zeros_like(h)
            h = F.silu(h + (got.scatter_add(0, place, m.to(h.dtype)) if how == "sum" else got.scatter_reduce(0, place, m.to(h.dtype), how, include_self=False)))
        h = (h * self.gate(h).sigmoid()).view(*nodes.shape[:2], -1)
        best, where = self.score(h).squeeze(-1).topk(50, dim=1)
        kept = h.gather(1, where[..., None].expand(-1, -1, h.size(-1))) * best.tanh()[..., None]
        return F.cross_entropy(self.out(kept.logsumexp(1)), y)

    @staticmethod
    def inputs(batch): return {"nodes": floats(batch, 400, 20), "sources": ids(batch * 400, batch * 2500), "targets": ids(batch * 400, batch * 2500), "y": ids(6, batch)}


@own(8)
class TensorTrain(nn.Module):
    """Weights as trains of four cores contracted by einsum of several, a Hadamard product of shifted views (roll), Fourier features, cosine embedding."""

    def __init__(self, rank=16):
        super().__init__()
        self.cores = nn.ParameterList(nn.Parameter(torch.zeros(r, 4, 8, s)) for r, s in ((1, rank), (rank, rank), (rank, rank), (rank, 1)))
        self.register_buffer("waves", torch.zeros(32, 128))
        self.norm = nn.RMSNorm(4096)

    def forward(self, x, other, y):
        weight = torch.einsum("aijb,bklc,cmnd,dope->ikmojlnp", *self.cores).reshape(256, 4096)
        def embed(x):
            angle = 2 * math.pi * (x @ self.waves)
            return self.norm(torch.cat([angle.sin(), angle.cos()], -1) @ weight)
        a, b = embed(x), embed(other)
        mixed = a * a.roll(1, -1) + torch.fft.irfft(torch.fft.rfft(a.float()) * torch.fft.rfft(b.float()).conj(), n=4096)
        return F.cosine_embedding_loss(mixed, b, y)

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 32), "other": floats(batch, 32), "y": floats(batch)}


@own(8)
class SoftSorting(nn.Module):
    """Sinkhorn over scores in logarithms, cumulative sums, sorted targets, ListNet and pairwise logistic losses, masked means."""

    def __init__(self, w=128, rounds=8):
        super().__init__()
        self.rounds, self.net = rounds, nn.Sequential(nn.Linear(46, w), nn.GELU(), nn.Linear(w, w), nn.GELU(), nn.Linear(w, 1))

    def forward(self, x, grades):
        score = self.net(x).squeeze(-1).float()
        best, order = grades.sort(dim=1, descending=True)
        log = -(score[:, :, None] - score.gather(1, order)[:, None]).abs()
        for _ in range(self.rounds):
            log = log - log.logsumexp(2, keepdim=True)
            log = log - log.logsumexp(1, keepdim=True)
        gain = torch.einsum("bij,bj->bi", log.exp(), best)
        pairs = grades[:, :, None] > grades[:, None]
        logistic = F.softplus(-(score[:, :, None] - score[:, None])).masked_fill(~pairs, 0.0).sum() / pairs.sum().clamp(min=1)
        return logistic + F.kl_div(score.log_softmax(1), grades.softmax(1), reduction="batchmean") - gain.cumsum(1).mean() * 1e-3

    @staticmethod
    def inputs(batch): return {"x": floats(batch, 120, 46), "grades": floats(batch, 120)}
