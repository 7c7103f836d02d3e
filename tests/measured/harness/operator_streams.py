"""What single operators ask of the allocator in a step, forward and backward: 300 modules of an operator each, at sizes drawn at random,
in float32 and under bfloat16 autocast. The loss is the mean square of what the operator gives.

usage: operator_streams.py measure OUT [--seconds N] [--device cpu] [--seed N] [--only PATTERN]   a row {"id", "precision", "forward", "backward"} each: bytes of requests in
                                                           order, negative where a block is freed; the second of two steps
       operator_streams.py record FOLDER [--only PATTERN]  a program of each (memcalc.record)
       operator_streams.py compare MEMCALC FOLDER MEASURED [--only PATTERN]
"""
import argparse
import gzip
import json
import math
import random
import re
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SEED = 10021

# name: (parameters, other inputs, what is computed). Sizes are letters, of which each operator draws its own; an input is a size and
# the letter below which its numbers lie, "mask" or "float"; "M: …" makes a module self.m first.
SIZES = dict(n=(2, 3, 4, 7, 8), c=(16, 24, 32, 48, 64, 96), d=(64, 96, 128, 200, 256), h=(14, 16, 24, 28, 33, 40), w=(14, 16, 24, 28, 35, 40), l=(50, 64, 100, 128, 197, 250),
             e=(500, 1000, 2000, 3333), k=(5, 7, 10, 19), z=(8, 10, 12))
IMAGE, SERIES, ROWS, VOLUME = ("p", "ncHW"), ("p", "ncl"), ("p", "nld"), ("p", "nczHW")
OPERATORS = {}


def of(names, parameters, text, **inputs):
    """Operators that take the same."""
    for name, code in (line.split(": ", 1) for line in text.strip().splitlines()): OPERATORS[name.strip()] = (parameters, inputs, code.strip())


of("sorting", {"p": "nld"}, """
    sort: p.sort(-1)[0]
    sort_middle: p.sort(1, descending=True)[0]
    argsort: p.gather(-1, p.argsort(-1))
    msort: torch.msort(p)
    sort_stable: torch.sort(p, stable=True)[0]
    topk_few: p.topk(3, -1)[0]
    topk_many: p.topk(40, -1)[0]
    topk_middle: p.topk(5, 1)[0]
    kthvalue: p.kthvalue(9, -1)[0]
    median: p.median(-1)[0]
    nanmedian: p.nanmedian(-1)[0]
    median_all: p.median()
    mode: p.mode(-1)[0]
    quantile: p.float().quantile(0.3, -1)
    cummax: p.cummax(1)[0]
    cummin: p.cummin(-1)[0]
    cumsum: p.cumsum(1)
    cumsum_last: p.cumsum(-1)
    cumprod: p.cumprod(-1)
    logcumsumexp: p.logcumsumexp(1)
    max_last: p.max(-1)[0]
    min_middle: p.min(1)[0]
    amax: p.amax((1, 2))
    amin: p.amin(1)
    max_all: p.max()
    argmax: p.gather(-1, p.argmax(-1, keepdim=True))
    logsumexp: p.logsumexp((1, 2))
    std: p.std(1)
    var_all: p.var()
    var_mean: torch.var_mean(p, -1)[0] + torch.var_mean(p, -1)[1]
    std_mean: torch.std_mean(p, 1)[0]
    norm1: p.norm(1, -1)
    norm2: p.norm(2, 1)
    norm3: p.norm(3, -1)
    norm_inf: p.norm(float("inf"), 1)
    vector_norm: torch.linalg.vector_norm(p, 2, (1, 2))
    matrix_norm: torch.linalg.matrix_norm(p)
    prod: p.prod(-1)
    prod_all: p.prod()
    nansum: p.nansum(1)
    nanmean: p.nanmean(-1)
    renorm: p.renorm(2, 0, 1.0)
    cumulative_trapezoid: torch.cumulative_trapezoid(p, dim=1)
    diff: p.diff(dim=1)
    gradient: torch.gradient(p, dim=1)[0]
    softmin: F.softmin(p, 1)
    softmax_middle: p.softmax(1)
    log_softmax_middle: F.log_softmax(p, 1)
    gumbel: F.gumbel_softmax(p, 0.5)
    gumbel_hard: F.gumbel_softmax(p, 0.5, hard=True)
    normalize_middle: F.normalize(p, dim=1)
    rms_norm: F.rms_norm(p, p.shape[-1:])
    layer_norm_plain: F.layer_norm(p, p.shape[-1:])
    layer_norm_two: F.layer_norm(p, p.shape[-2:])
    unfold_sliding: p.unfold(1, 8, 3)
    roll: p.roll(3, 1)
    roll_two: p.roll((1, 2), (0, 1))
    flip: p.flip(1)
    rot90: p.rot90(1, (1, 2))
    tril: p.tril()
    triu: p.triu(2)
    diagonal: p.diagonal(0, 1, 2)
    diag_embed: p[:, :16].diag_embed()
    repeat_interleave: p.repeat_interleave(3, 1)
    tile: p.tile(1, 2, 2)
    narrow: p.narrow(1, 3, 20)
    step_slice: p[:, ::2]
    movedim: p.movedim(0, 2) * 2
    stack: torch.stack([p, p * 2], 1)
    hstack: torch.hstack([p, p])
    block: p.unflatten(-1, (4, -1)).transpose(1, 2).reshape(p.size(0), -1)
    expand: p[:, :1].expand(-1, 30, -1) * 1.5
    masked_mean: (p * (p > 0)).sum(1) / (p > 0).sum(1)
    where_self: torch.where(p > 0, p, 0.1 * p)
    clamp_min: p.clamp(min=0.1)
    lerp: torch.lerp(p, p.flip(0), 0.3)
    addcmul: torch.addcmul(p, p, p, value=0.5)
    addcdiv: torch.addcdiv(p, p, p.abs() + 1, value=0.5)
    xlogy: torch.xlogy(p, p.abs() + 1)
    atan2: torch.atan2(p, p + 1)
    pow_tensor: (p.abs() + 1).pow(p)
    pow_scalar_base: 2.0 ** p
    pow3: p ** 3
    rsqrt: (p ** 2 + 1).rsqrt()
    erf: p.erf()
    erfc: torch.erfc(p)
    erfinv: torch.erfinv(p.tanh() * 0.9)
    lgamma: torch.lgamma(p.abs() + 1)
    digamma: torch.digamma(p.abs() + 1)
    sinc: p.sinc()
    i0: torch.i0(p)
    logit: p.sigmoid().logit(1e-3)
    expm1: p.expm1()
    log1p: p.abs().log1p()
    logaddexp: torch.logaddexp(p, p * 2)
    hypot: torch.hypot(p, p + 1)
    fmod: p.fmod(0.7)
    remainder: p.remainder(0.7)
    frac: p.frac()
    round: p.round() + p
    sign: p.sign() * p
    copysign: torch.copysign(p, p.flip(0))
    nan_to_num: p.nan_to_num()
    maximum: torch.maximum(p, p * 0.5)
    fmin: torch.fmin(p, p * 0.5)
    glu: F.glu(p)
    softshrink: F.softshrink(p)
    hardshrink: F.hardshrink(p)
    tanhshrink: F.tanhshrink(p)
    threshold: F.threshold(p, 0.1, 0.0)
    celu: F.celu(p)
    selu: F.selu(p)
    hardtanh: F.hardtanh(p)
    hardsigmoid: F.hardsigmoid(p)
    softplus: F.softplus(p)
    logsigmoid: F.logsigmoid(p)
    softsign: F.softsign(p)
    rrelu: F.rrelu(p, training=True)
    dropout: F.dropout(p, 0.1, True)
    alpha_dropout: F.alpha_dropout(p, 0.1, True)
    feature_alpha_dropout: F.feature_alpha_dropout(p, 0.1, True)
    dropout1d: F.dropout1d(p, 0.1, True)
    bernoulli: p * torch.bernoulli(p.sigmoid().detach())
    normal_like: p + torch.randn_like(p) * 0.1
    rand_mask: p * (torch.rand(p.shape[:2], device=p.device) > 0.2)[..., None]
    cov: torch.cov(p[0])
    corrcoef: torch.corrcoef(p[0])
    trace: p[0, :40, :40].trace()
    kron: torch.kron(p[0, :8, :8], p[1, :9, :9])
    matrix_exp: torch.matrix_exp(p[:, :16, :16].float())
    det: torch.det(p[:, :16, :16].float())
    slogdet: torch.slogdet(p[:, :16, :16].float())[1]
    inverse: torch.inverse(p[:, :16, :16].float() + 20 * torch.eye(16, device=p.device))
    inverse_one: torch.inverse(p[0, :40, :40].float() + 20 * torch.eye(40, device=p.device))
    cholesky: torch.linalg.cholesky(p[:, :16].float() @ p[:, :16].float().mT + 20 * torch.eye(16, device=p.device))
    solve: torch.linalg.solve(p[:, :16, :16].float() + 20 * torch.eye(16, device=p.device), p[:, :16, 16:20].float())
    qr: torch.linalg.qr(p[:, :, :16].float())[0]
    svd: torch.linalg.svdvals(p[:, :20, :16].float())
    eigh: torch.linalg.eigvalsh(p[:, :16, :16].float())
    triangular: torch.linalg.solve_triangular(p[:, :16, :16].float() + 20 * torch.eye(16, device=p.device), p[:, :16, 16:20].float(), upper=True)
    fft: torch.fft.fft(p.float(), dim=1).abs()
    ifft: torch.fft.ifft(torch.complex(p.float(), p.float())).real
    rfft: torch.view_as_real(torch.fft.rfft(p.float(), dim=1))
    rfft_last: torch.fft.rfft(p.float()).abs()
    irfft: torch.fft.irfft(torch.complex(p.float(), p.float()))
    irfft_middle: torch.fft.irfft(torch.complex(p.float(), p.float()), n=p.size(1), dim=1)
    fft2: torch.fft.fft2(p.float()).real
    rfft2: torch.fft.rfft2(p.float()).abs()
    irfft2: torch.fft.irfft2(torch.complex(p.float(), p.float()))
    fftn: torch.fft.fftn(p.float(), dim=(0, 1, 2)).real
    rfft_three: torch.fft.rfftn(p.float(), dim=(0, 1, 2)).abs()
    fft_prime: torch.fft.rfft(p[:, :, :61].float(), n=4099).abs()
    hfft: torch.fft.hfft(torch.complex(p.float(), p.float()))
    fftshift: torch.fft.fftshift(p, dim=1)
    correlation: torch.fft.irfft(torch.fft.rfft(p.float(), dim=1) * torch.conj(torch.fft.rfft(p.float().flip(0), dim=1)), dim=1)
    angle: torch.complex(p.float(), p.float()).angle()
    polar: torch.polar(p.float().abs(), p.float()).imag
    complex_matmul: (torch.complex(p.float(), p.float()) @ torch.complex(p.float(), p.float()).mT).abs()
    view_as_complex: torch.view_as_real(torch.view_as_complex(p.float().unflatten(-1, (-1, 2))) * 2j)
    embedding_like: F.linear(p, p[0])
    einsum_outer: torch.einsum("nld,nmd->nlm", p, p)
    einsum_sum: torch.einsum("nld->d", p)
    einsum_three: torch.einsum("nld,nmd,nme->nle", p, p, p)
    tensordot: torch.tensordot(p, p, dims=([1, 2], [1, 2]))
    bmm_self: torch.bmm(p, p.transpose(1, 2))
    matmul_vector: p @ p[0, 0]
    inner: torch.inner(p, p[0])
    cdist: torch.cdist(p, p)
    cdist1: torch.cdist(p, p, p=1)
    cdist_small: torch.cdist(p[:, :20], p[:, :20])
    pdist: torch.pdist(p[0])
    cross: torch.linalg.cross(p[..., :3], p[..., 3:6])
    cosine_similarity: F.cosine_similarity(p, p.flip(1), dim=-1)
    pairwise_distance: F.pairwise_distance(p, p.flip(1))
    sdpa: F.scaled_dot_product_attention(p[:, None], p[:, None], p[:, None])
    sdpa_mask: F.scaled_dot_product_attention(p.unflatten(-1, (4, -1)).transpose(1, 2), p.unflatten(-1, (4, -1)).transpose(1, 2), p.unflatten(-1, (4, -1)).transpose(1, 2), attn_mask=torch.zeros(p.size(1), p.size(1), device=p.device))
    checkpointed: torch.utils.checkpoint.checkpoint(lambda x: (x.sin() * 2).exp(), p, use_reentrant=False)
    mse_self: F.mse_loss(p, p.flip(0).detach(), reduction="none")
    to_half_and_back: p.half().float() * 2
    outer: torch.outer(p[0, 0], p[0, 1])
    addr: torch.addr(p[0], p[0, :, 0], p[0, 0])
    mv: torch.mv(p[0], p[1, 0])
    dot: torch.dot(p[0, 0], p[0, 1])
    addbmm: torch.addbmm(p[0, :40, :40], p[:, :40], p[:, :40].mT)
    baddbmm: torch.baddbmm(p[:, :40, :40], p[:, :40], p[:, :40].mT)
    index_slice_assign: torch.zeros_like(p).index_copy(1, torch.arange(5, device=p.device), p[:, :5])
    inplace_chain: p.clone().mul_(2).add_(1).relu_()
    assign: assigned(p)
    bincount_like: p * (p > 0).any(-1, keepdim=True)
    count_nonzero: p * p.count_nonzero(1)[:, None]
    split_cat: torch.cat(p.split(16, -1)[::-1], -1)
    chunk_three: torch.cat([x.tanh() for x in p.chunk(3, 1)], 1)
    unbind_stack: torch.stack([x * 2 for x in p.unbind(0)])
    list_comprehension: sum(p[:, i] for i in range(6))
    vander: p[..., None] ** torch.arange(4, device=p.device)
    histogram_soft: torch.exp(-(p[..., None] - torch.linspace(-1, 1, 8, device=p.device)) ** 2).mean((0, 1))
""")
of("two operands", {"p": "ld", "q": "kd", "r": "d"}, """
    bilinear: F.bilinear(p[:10], q[:10] if q.size(0) >= 10 else p[10:20], torch.outer(r, r)[None] * 0.01)
    addmm: torch.addmm(p[:, :q.size(0)], p, q.t())
    addmv: torch.addmv(p[:, 0], p, r)
    linear_vector: F.linear(p, q, r[:q.size(0)])
    prelu_channels: F.prelu(p, r)
    prelu_one: F.prelu(p, r[:1])
    group_scale: p * r + r
    weight_norm_like: p / p.norm(dim=1, keepdim=True) * p[:, :1]
    cosine_matrix: F.normalize(p) @ F.normalize(q).t()
    outer_difference: (p[:, None] - q[None]).abs().sum(-1)
    logsumexp_pairs: torch.logsumexp(p[:, None] * q[None], -1)
    clamp_tensor: torch.clamp(p, q[0], q[1])
    where_two: torch.where(p > 0, p, r)
    lerp_tensor: torch.lerp(p, p * 2, r)
    kl: F.kl_div(F.log_softmax(p, -1), F.softmax(p * 2, -1), reduction="batchmean")
    kl_log: F.kl_div(F.log_softmax(p, -1), F.log_softmax(p * 2, -1), log_target=True, reduction="sum")
    gaussian_nll: F.gaussian_nll_loss(p, p.flip(0), p.exp())
    poisson_nll: F.poisson_nll_loss(p, p.detach().abs())
    smooth_l1: F.smooth_l1_loss(p, p.flip(0))
    huber: F.huber_loss(p, p.detach() * 2)
    l1_none: F.l1_loss(p, p.detach() * 2, reduction="none")
    soft_margin: F.soft_margin_loss(p, p.detach().sign())
    triplet: F.triplet_margin_loss(p, p.flip(0), p.roll(1, 0))
    margin_ranking: F.margin_ranking_loss(p[:, 0], p[:, 1], p[:, 2].detach().sign(), margin=0.1)
    multilabel_soft_margin: F.multilabel_soft_margin_loss(p, (p.detach() > 0).float())
    cosine_embedding: F.cosine_embedding_loss(p, p.flip(0), p[:, 2].detach().sign())
    hinge_embedding: F.hinge_embedding_loss(p, p.detach().sign())
    bce: F.binary_cross_entropy(p.float().sigmoid(), p.detach().float().sigmoid()) if not torch.is_autocast_enabled() else p.sum()
    bce_logits: F.binary_cross_entropy_with_logits(p, (p.detach() > 0).float(), pos_weight=r.detach().exp())
    batch_norm1d: M: nn.BatchNorm1d({d}): self.m(p)
    embedding_renorm: p.renorm(1, 1, 2.0)
""")
of("with indices", {"p": "ed"}, """
    index_select: p.index_select(0, i)
    index_rows: p[i]
    index_pairs: p[i, j]
    embedding: F.embedding(i, p)
    embedding_padding: F.embedding(i, p, padding_idx=0)
    embedding_frequency: F.embedding(i, p, scale_grad_by_freq=True)
    embedding_norm: F.embedding(i, p * 1.0, max_norm=1.0) if False else F.embedding(i, p)
    embedding_bag_sum: F.embedding_bag(i.view(-1, 10), p, mode="sum")
    embedding_bag_mean: F.embedding_bag(i.view(-1, 10), p, mode="mean")
    embedding_bag_max: F.embedding_bag(i.view(-1, 10), p, mode="max")
    gather_rows: p.gather(0, i[:, None].expand(-1, p.size(1)))
    gather_columns: p[:400].gather(1, j[:400, None])
    take: p.take(i)
    take_along: p.take_along_dim(i[:, None], 0)
    index_add: torch.zeros_like(p).index_add(0, i, p[:i.numel()])
    index_add_columns: torch.zeros_like(p[:400]).index_add(1, j, p[:400, :1].expand(-1, j.numel()))
    index_copy: torch.zeros_like(p).index_copy(0, k, p[:k.numel()])
    index_fill: p.index_fill(0, k, 0.0)
    index_put: (p * 1).index_put((k,), p[:k.numel()] * 2)
    index_put_sum: (p * 1).index_put((i,), p[:i.numel()] * 2, accumulate=True)
    scatter: torch.zeros_like(p).scatter(0, i[:, None].expand(-1, p.size(1)), p[:i.numel()])
    scatter_add: torch.zeros_like(p).scatter_add(0, i[:, None].expand(-1, p.size(1)), p[:i.numel()])
    scatter_amax: torch.zeros_like(p).scatter_reduce(0, i[:, None].expand(-1, p.size(1)), p[:i.numel()], "amax")
    scatter_mean: torch.zeros_like(p).scatter_reduce(0, i[:, None].expand(-1, p.size(1)), p[:i.numel()], "mean", include_self=False)
    scatter_sum: torch.zeros_like(p).scatter_reduce(0, i[:, None].expand(-1, p.size(1)), p[:i.numel()], "sum")
    segment: torch.segment_reduce(p[:500].float(), "mean", lengths=torch.full((100,), 5, device=p.device), axis=0)
    masked_fill: p.masked_fill(m[:, None], 0.0)
    masked_scatter: p.masked_scatter(m[:, None].expand_as(p), p.flip(0))
    where_mask: torch.where(m[:, None], p, -1e4)
    mask_assign: mask_assigned(p, m)
    nll: F.nll_loss(F.log_softmax(p[:400], -1), j[:400])
    cross_entropy: F.cross_entropy(p[:400], j[:400])
    cross_entropy_smooth: F.cross_entropy(p[:400], j[:400], label_smoothing=0.1)
    cross_entropy_ignore: F.cross_entropy(p[:400], j[:400], ignore_index=0, reduction="sum")
    cross_entropy_weighted: F.cross_entropy(p[:400], j[:400], weight=p[0].detach().abs())
    cross_entropy_shares: F.cross_entropy(p[:400], p[:400].detach().softmax(-1))
    multi_margin: F.multi_margin_loss(p[:400].float(), j[:400])
    one_hot_product: (F.one_hot(j[:400], p.size(1)) * p[:400]).sum(-1)
    one_hot_float: F.one_hot(j[:400], p.size(1)).float() @ p[:p.size(1)]
    repeat_interleave_counts: p[:400].repeat_interleave(2, 0, output_size=800)
    searchsorted: p[0] * torch.searchsorted(p[1].detach().contiguous(), p[0].detach().contiguous())
    bucketize: p * torch.bucketize(p.detach(), torch.linspace(-1, 1, 9, device=p.device))
    ctc: F.ctc_loss(p[:480].view(120, 4, -1).log_softmax(-1), j[:80].view(4, 20) % (p.size(1) - 1) + 1, torch.full((4,), 120), torch.full((4,), 20))
    ctc_card: F.ctc_loss(p[:480].view(120, 4, -1).log_softmax(-1), j[:80].view(4, 20) % (p.size(1) - 1) + 1, torch.full((4,), 120, device=p.device), torch.full((4,), 20, device=p.device))
""", i=("500", "e"), j=("500", "d"), k=("unique", "e"), m=("mask", "e"))
of("images", {"p": "nchw"}, """
    batch_norm: M: nn.BatchNorm2d({c}): self.m(p)
    batch_norm_plain: M: nn.BatchNorm2d({c}, affine=False): self.m(p)
    batch_norm_batch: M: nn.BatchNorm2d({c}, track_running_stats=False): self.m(p)
    batch_norm_eval: M: nn.BatchNorm2d({c}).eval(): self.m(p)
    batch_norm_last: M: nn.BatchNorm2d({c}): self.m(p.contiguous(memory_format=torch.channels_last))
    instance_norm: M: nn.InstanceNorm2d({c}): self.m(p)
    instance_norm_affine: M: nn.InstanceNorm2d({c}, affine=True): self.m(p)
    instance_norm_track: M: nn.InstanceNorm2d({c}, track_running_stats=True): self.m(p)
    group_norm: M: nn.GroupNorm(8, {c}): self.m(p)
    group_norm_plain: M: nn.GroupNorm(4, {c}, affine=False): self.m(p)
    group_norm_one: M: nn.GroupNorm(1, {c}): self.m(p)
    group_norm_last: M: nn.GroupNorm(8, {c}): self.m(p.contiguous(memory_format=torch.channels_last))
    local_response_norm: F.local_response_norm(p, 5)
    max_pool: F.max_pool2d(p, 2)
    max_pool_overlap: F.max_pool2d(p, 3, 2, 1)
    max_pool_last: F.max_pool2d(p.contiguous(memory_format=torch.channels_last), 3, 2, 1)
    max_pool_ceil: F.max_pool2d(p, 3, 2, ceil_mode=True)
    avg_pool: F.avg_pool2d(p, 2)
    avg_pool_padded: F.avg_pool2d(p, 3, 1, 1, count_include_pad=False)
    adaptive_avg: F.adaptive_avg_pool2d(p, 7)
    adaptive_avg_one: F.adaptive_avg_pool2d(p, 1)
    adaptive_avg_last: F.adaptive_avg_pool2d(p.contiguous(memory_format=torch.channels_last), 5)
    adaptive_max: F.adaptive_max_pool2d(p, 5)
    lp_pool: F.lp_pool2d(p, 2, 2)
    fractional: F.fractional_max_pool2d(p, 2, output_ratio=(0.6, 0.6))
    max_unpool: F.max_unpool2d(*F.max_pool2d(p, 2, return_indices=True), 2)
    nearest: F.interpolate(p, scale_factor=2, mode="nearest")
    nearest_down: F.interpolate(p, scale_factor=0.5, mode="nearest")
    nearest_exact: F.interpolate(p, size=(50, 50), mode="nearest-exact")
    bilinear_up: F.interpolate(p, scale_factor=2, mode="bilinear")
    bilinear_corners: F.interpolate(p, size=(60, 50), mode="bilinear", align_corners=True)
    bilinear_last: F.interpolate(p.contiguous(memory_format=torch.channels_last), scale_factor=2, mode="bilinear")
    bilinear_antialias: F.interpolate(p, size=(20, 20), mode="bilinear", antialias=True)
    bicubic: F.interpolate(p, scale_factor=2, mode="bicubic")
    bicubic_antialias: F.interpolate(p, size=(20, 20), mode="bicubic", antialias=True)
    area: F.interpolate(p, size=(7, 7), mode="area")
    grid_sample: F.grid_sample(p, torch.zeros(p.size(0), 20, 20, 2, device=p.device, dtype=p.dtype), align_corners=False)
    grid_sample_grad: F.grid_sample(p, p[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False)
    grid_sample_bicubic: F.grid_sample(p, p[:, :2].permute(0, 2, 3, 1).tanh(), mode="bicubic", padding_mode="reflection", align_corners=False)
    grid_sample_nearest: F.grid_sample(p, p[:, :2].permute(0, 2, 3, 1).tanh().detach(), mode="nearest", padding_mode="border", align_corners=False)
    affine_grid: F.grid_sample(p, F.affine_grid(p[:, :6, 0, 0].reshape(-1, 2, 3), p.size(), align_corners=False).to(p.dtype), align_corners=False)
    reflect: F.pad(p, (1, 1, 2, 2), mode="reflect")
    replicate: F.pad(p, (1, 1, 2, 2), mode="replicate")
    circular: F.pad(p, (1, 1, 2, 2), mode="circular")
    constant: F.pad(p, (1, 1, 2, 2), value=1.0)
    zero_pad_negative: F.pad(p, (-1, -1, 2, 2))
    pixel_shuffle: F.pixel_shuffle(p, 2)
    pixel_unshuffle: F.pixel_unshuffle(p[:, :, :14, :14], 2)
    channel_shuffle: F.channel_shuffle(p, 4)
    unfold: F.unfold(p, 3, padding=1)
    unfold_patches: F.unfold(p[:, :, :12, :12], 4, stride=4)
    fold: F.fold(p[:, :, :4, :4].reshape(p.size(0), -1, 16)[:, :16 * (p.size(1) // 16)], (5, 5), 2) if p.size(1) % 4 == 0 else p
    dropout2d: F.dropout2d(p, 0.1, True)
    total_variation: (p[:, :, 1:] - p[:, :, :-1]).abs().mean() + (p[..., 1:] - p[..., :-1]).abs().mean()
    gram: p.flatten(2) @ p.flatten(2).mT
    softmax_channels: p.softmax(1)
    log_softmax_channels: F.log_softmax(p, 1)
    logsumexp_channels: p.logsumexp(1)
    mean_places: p.mean((2, 3))
    std_places: p.std((2, 3))
    max_channels: torch.cat([p.max(1, keepdim=True)[0], p.mean(1, keepdim=True)], 1)
    layer_norm_channels: F.layer_norm(p.permute(0, 2, 3, 1), (p.size(1),)).permute(0, 3, 1, 2)
    cross_entropy_places: F.cross_entropy(p, y)
    cross_entropy_places_smooth: F.cross_entropy(p, y, label_smoothing=0.1, ignore_index=0)
    cross_entropy_places_weighted: F.cross_entropy(p, y, weight=p[0, :, 0, 0].detach().abs())
    nll_places: F.nll_loss(F.log_softmax(p, 1), y, reduction="none")
    dice: (p.softmax(1) * F.one_hot(y, p.size(1)).permute(0, 3, 1, 2)).sum((2, 3))
    prelu: M: nn.PReLU({c}): self.m(p)
    squeeze_excite: p * p.mean((2, 3), keepdim=True).sigmoid()
    hardswish_inplace: F.hardswish(p * 1, inplace=True)
    to_channels_last: p.contiguous(memory_format=torch.channels_last) * 2
    windows: p[:, :, :12, :12].unflatten(2, (3, 4)).unflatten(4, (3, 4)).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, p.size(1)) * 2
    conv_depthwise: M: nn.Conv2d({c}, {c}, 3, padding=1, groups={c}): self.m(p)
    conv_depthwise_large: M: nn.Conv2d({c}, {c}, 7, padding=3, groups={c}): self.m(p)
    conv_point: M: nn.Conv2d({c}, 48, 1): self.m(p)
    conv_dilated: M: nn.Conv2d({c}, 32, 3, padding=2, dilation=2): self.m(p)
    conv_valid: M: nn.Conv2d({c}, 32, 3): self.m(p)
    conv_rectangular: M: nn.Conv2d({c}, 32, (1, 7), padding=(0, 3)): self.m(p)
    conv_stride: M: nn.Conv2d({c}, 64, 3, 2, 1, bias=False): self.m(p)
    conv_groups: M: nn.Conv2d({c}, 64, 3, padding=1, groups=8): self.m(p)
    conv_transposed: M: nn.ConvTranspose2d({c}, 32, 2, 2): self.m(p)
    conv_transposed_overlap: M: nn.ConvTranspose2d({c}, 32, 4, 2, 1): self.m(p)
    conv_last: M: nn.Conv2d({c}, 32, 3, padding=1).to(memory_format=torch.channels_last): self.m(p.contiguous(memory_format=torch.channels_last))
    conv_reflect: M: nn.Conv2d({c}, 32, 3, padding=1, padding_mode="reflect"): self.m(p)
    conv_same: M: nn.Conv2d({c}, 32, 4, padding="same"): self.m(p)
    roi_align: __import__("torchvision").ops.roi_align(p, [torch.tensor([[1.0, 1.0, 9.0, 9.0], [0.0, 2.0, 8.0, 12.0]], device=p.device).to(p.dtype)] * p.size(0), 7)
    deform: __import__("torchvision").ops.deform_conv2d(p.float(), p[:, :1].float().expand(-1, 18, -1, -1) * 0.1, torch.ones(16, p.size(1), 3, 3, device=p.device), padding=1)
    stochastic_depth: __import__("torchvision").ops.stochastic_depth(p, 0.2, "row", True)
    focal: __import__("torchvision").ops.sigmoid_focal_loss(p.float(), (p.detach() > 0).float(), reduction="mean")
    giou: __import__("torchvision").ops.generalized_box_iou_loss(p[:, :4, 0, 0].float(), p[:, :4, 1, 1].float())
""", y=("nhw", "c"))
of("volumes", {"p": "nczhw"}, """
    batch_norm3d: M: nn.BatchNorm3d({c}): self.m(p)
    instance_norm3d: M: nn.InstanceNorm3d({c}, affine=True): self.m(p)
    group_norm3d: M: nn.GroupNorm(8, {c}): self.m(p)
    max_pool3d: F.max_pool3d(p, 2)
    max_pool3d_flat: F.max_pool3d(p, (1, 3, 3), (1, 2, 2), (0, 1, 1))
    avg_pool3d: F.avg_pool3d(p, 2)
    adaptive_avg3d: F.adaptive_avg_pool3d(p, (1, 4, 4))
    adaptive_avg3d_one: F.adaptive_avg_pool3d(p, 1)
    adaptive_max3d: F.adaptive_max_pool3d(p, 2)
    trilinear: F.interpolate(p, scale_factor=2, mode="trilinear")
    nearest3d: F.interpolate(p, scale_factor=2)
    grid_sample3d: F.grid_sample(p, p[:, :3].permute(0, 2, 3, 4, 1).tanh(), align_corners=True)
    replicate3d: F.pad(p, (1,) * 6, mode="replicate")
    reflect3d: F.pad(p, (1,) * 6, mode="reflect")
    dropout3d: F.dropout3d(p, 0.1, True)
    conv3d: M: nn.Conv3d({c}, 32, 3, padding=1): self.m(p)
    conv3d_valid: M: nn.Conv3d({c}, 32, 3): self.m(p)
    conv3d_point: M: nn.Conv3d({c}, 32, 1): self.m(p)
    conv3d_flat: M: nn.Conv3d({c}, 32, (1, 3, 3), padding=(0, 1, 1)): self.m(p)
    conv3d_stride: M: nn.Conv3d({c}, 32, 3, 2, 1): self.m(p)
    conv3d_depthwise: M: nn.Conv3d({c}, {c}, 3, padding=1, groups={c}): self.m(p)
    conv3d_transposed: M: nn.ConvTranspose3d({c}, 16, 2, 2): self.m(p)
""")
of("series", {"p": "ncl"}, """
    batch_norm_series: M: nn.BatchNorm1d({c}): self.m(p)
    batch_norm_turned: M: nn.BatchNorm1d({c}): self.m(p.mT.contiguous().mT)
    instance_norm1d: M: nn.InstanceNorm1d({c}): self.m(p)
    group_norm1d: M: nn.GroupNorm(4, {c}): self.m(p)
    max_pool1d: F.max_pool1d(p, 2)
    avg_pool1d: F.avg_pool1d(p, 5, 1, 2)
    adaptive_avg1d: F.adaptive_avg_pool1d(p, 10)
    adaptive_max1d: F.adaptive_max_pool1d(p, 10)
    linear_up: F.interpolate(p, scale_factor=2, mode="linear")
    nearest1d: F.interpolate(p, size=77)
    reflect1d: F.pad(p, (5, 5), mode="reflect")
    replicate1d: F.pad(p, (5, 5), mode="replicate")
    circular1d: F.pad(p, (5, 5), mode="circular")
    conv1d: M: nn.Conv1d({c}, 64, 3, padding=1): self.m(p)
    conv1d_wide: M: nn.Conv1d({c}, 64, 9, padding=4): self.m(p)
    conv1d_stride: M: nn.Conv1d({c}, 64, 8, 4, 2): self.m(p)
    conv1d_dilated: M: nn.Conv1d({c}, 64, 3, padding=4, dilation=4): self.m(p)
    conv1d_point: M: nn.Conv1d({c}, 64, 1): self.m(p)
    conv1d_depthwise: M: nn.Conv1d({c}, {c}, 5, padding=2, groups={c}): self.m(p)
    conv1d_causal: M: nn.Conv1d({c}, {c}, 4, padding=3, groups={c}): self.m(p)[..., :p.size(2)]
    conv1d_circular: M: nn.Conv1d({c}, 64, 3, padding=1, padding_mode="circular"): self.m(p)
    conv1d_turned: M: nn.Conv1d({c}, 64, 3, padding=1): self.m(p.mT.contiguous().mT)
    conv1d_transposed: M: nn.ConvTranspose1d({c}, 32, 4, 2, 1): self.m(p)
    weight_norm_old: M: nn.utils.weight_norm(nn.Conv1d({c}, 64, 3, padding=1)): self.m(p)
    weight_norm_new: M: nn.utils.parametrizations.weight_norm(nn.Conv1d({c}, 64, 3, padding=1)): self.m(p)
    spectral_norm_new: M: nn.utils.parametrizations.spectral_norm(nn.Conv1d({c}, 64, 3, padding=1)): self.m(p)
    lstm: M: nn.LSTM({c}, 64, batch_first=True): self.m(p.mT)[0]
    lstm_two: M: nn.LSTM({c}, 48, 2, batch_first=True, dropout=0.2): self.m(p.mT)[0]
    lstm_both: M: nn.LSTM({c}, 64, bidirectional=True): self.m(p.permute(2, 0, 1))[0]
    lstm_last: M: nn.LSTM({c}, 64, batch_first=True): self.m(p.mT)[1][0][-1]
    lstm_projected: M: nn.LSTM({c}, 64, batch_first=True, proj_size=32): self.m(p.mT)[0]
    lstm_state: M: nn.LSTM({c}, 64, batch_first=True): self.m(p.mT, (p.new_zeros(1, p.size(0), 64), p.new_zeros(1, p.size(0), 64)))[0]
    gru: M: nn.GRU({c}, 64, batch_first=True): self.m(p.mT)[0]
    gru_both: M: nn.GRU({c}, 40, 2, bidirectional=True): self.m(p.permute(2, 0, 1))[0]
    gru_last: M: nn.GRU({c}, 64, batch_first=True): self.m(p.mT)[1]
    rnn_tanh: M: nn.RNN({c}, 64, batch_first=True): self.m(p.mT)[0]
    rnn_relu: M: nn.RNN({c}, 64, 2, nonlinearity="relu"): self.m(p.permute(2, 0, 1))[0]
    lstm_cell: M: nn.LSTMCell({c}, 64): self.m(p[..., 0])[0]
    gru_cell: M: nn.GRUCell({c}, 64): self.m(p[..., 0])
    rnn_cell: M: nn.RNNCell({c}, 64): self.m(p[..., 0])
    attention: M: nn.MultiheadAttention({c}, 4, batch_first=True): self.m(p.mT, p.mT, p.mT)[0]
    attention_plain: M: nn.MultiheadAttention({c}, 4): self.m(p.permute(2, 0, 1), p.permute(2, 0, 1), p.permute(2, 0, 1), need_weights=False)[0]
    attention_drop: M: nn.MultiheadAttention({c}, 4, dropout=0.1, batch_first=True): self.m(p.mT, p.mT, p.mT)[0]
    attention_padded: M: nn.MultiheadAttention({c}, 4, batch_first=True): self.m(p.mT, p.mT, p.mT, key_padding_mask=p[:, 0].detach() > 1, need_weights=False)[0]
    attention_bias_kv: M: nn.MultiheadAttention({c}, 4, batch_first=True, add_bias_kv=True, kdim={c}, vdim={c}): self.m(p.mT, p.mT, p.mT)[0]
    encoder_layer: M: nn.TransformerEncoderLayer({c}, 4, 128, batch_first=True): self.m(p.mT)
    decoder_layer: M: nn.TransformerDecoderLayer({c}, 4, 128, batch_first=True): self.m(p.mT, p.mT)
    bilinear_layer: M: nn.Bilinear({c}, {c}, 10): self.m(p.mT, p.mT)
    stft: torch.stft(p.flatten(0, 1).float().repeat(1, 5), 128, 32, window=torch.hann_window(128, device=p.device), return_complex=True).abs()
    stft_plain: torch.view_as_real(torch.stft(p.flatten(0, 1).float().repeat(1, 5), 100, return_complex=True, center=False))
    istft: torch.istft(torch.stft(p.flatten(0, 1).float().repeat(1, 5), 64, 16, window=torch.hann_window(64, device=p.device), return_complex=True) * 2, 64, 16, window=torch.hann_window(64, device=p.device))
""")


# Since seed 11021: all losses of torch.nn that are not above, linear algebra, norms of other orders.
of("losses", {"p": "ld"}, """
    loss_l1: nn.L1Loss()(p, p.detach() * 2)
    loss_l1_sum: nn.L1Loss(reduction="sum")(p, p.flip(0))
    loss_mse: nn.MSELoss()(p, p.flip(0))
    loss_mse_target: nn.MSELoss()(p, p.detach() * 2)
    loss_mse_half: nn.MSELoss()(p, (p.detach() * 2).half())
    loss_smooth_l1_sum: nn.SmoothL1Loss(reduction="sum", beta=0.3)(p, p.detach() * 2)
    loss_smooth_l1_none: nn.SmoothL1Loss(reduction="none")(p, p.flip(1))
    loss_huber_none: nn.HuberLoss(reduction="none", delta=0.5)(p, p.flip(1))
    loss_huber: nn.HuberLoss()(p, p.flip(1))
    loss_kl_mean: nn.KLDivLoss()(p.log_softmax(-1), p.detach().softmax(-1))
    loss_kl_none: nn.KLDivLoss(reduction="none")(p.log_softmax(-1), p.flip(0).softmax(-1))
    loss_bce_weight: nn.BCEWithLogitsLoss(weight=p.detach().abs())(p, (p.detach() > 0).float())
    loss_bce_none: nn.BCEWithLogitsLoss(reduction="none")(p, (p.detach() > 0).float())
    loss_bce_sum: nn.BCEWithLogitsLoss(reduction="sum")(p, p.flip(0).sigmoid())
    loss_bce_plain: nn.BCELoss(reduction="none")(p.float().sigmoid(), (p.detach() > 0).float()) if not torch.is_autocast_enabled() else p.mean()
    loss_hinge_none: nn.HingeEmbeddingLoss(margin=0.5, reduction="none")(p, p.detach().sign())
    loss_soft_margin_none: nn.SoftMarginLoss(reduction="none")(p, p.detach().sign())
    loss_soft_margin_sum: nn.SoftMarginLoss(reduction="sum")(p, p.detach().sign())
    loss_margin_ranking_mean: nn.MarginRankingLoss()(p, p.flip(0), p.detach().sign())
    loss_multilabel_soft: nn.MultiLabelSoftMarginLoss(weight=p[0].detach().abs(), reduction="sum")(p, (p.detach() > 0).float())
    loss_multilabel_margin: nn.MultiLabelMarginLoss()(p.float(), torch.arange(p.numel(), device=p.device).view_as(p) % p.size(1))
    loss_cosine_embedding: nn.CosineEmbeddingLoss(margin=0.2, reduction="none")(p, p.flip(0), p[:, 0].detach().sign())
    loss_gaussian_full: nn.GaussianNLLLoss(full=True)(p, p.detach() * 2, p.exp()[:, :1])
    loss_gaussian_none: nn.GaussianNLLLoss(reduction="none")(p, p.detach() * 2, torch.ones_like(p))
    loss_poisson_full: nn.PoissonNLLLoss(full=True)(p, p.detach().abs() * 4)
    loss_poisson_plain: nn.PoissonNLLLoss(log_input=False, reduction="sum")(p.exp(), p.detach().abs())
    loss_triplet_swap: nn.TripletMarginLoss(swap=True)(p, p.flip(0), p.roll(1, 0))
    loss_triplet_own: nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance())(p, p.flip(0), p.roll(1, 0))
    loss_triplet_sum: nn.TripletMarginLoss(p=1, reduction="sum")(p, p.flip(0), p.roll(1, 0))
    loss_multi_margin_p2: nn.MultiMarginLoss(p=2)(p.float(), torch.arange(p.size(0), device=p.device) % p.size(1))
    loss_multi_margin_none: nn.MultiMarginLoss(reduction="none")(p.float(), torch.arange(p.size(0), device=p.device) % p.size(1))
    loss_nll_weight: nn.NLLLoss(weight=p[0].detach().abs())(p.log_softmax(-1), torch.arange(p.size(0), device=p.device) % p.size(1))
    loss_nll_none: nn.NLLLoss(reduction="none")(p.log_softmax(-1), torch.arange(p.size(0), device=p.device) % p.size(1))
    loss_cross_none: nn.CrossEntropyLoss(reduction="none")(p, torch.arange(p.size(0), device=p.device) % p.size(1))
    loss_cross_smooth_weight: nn.CrossEntropyLoss(label_smoothing=0.1, weight=p[0].detach().abs())(p, torch.arange(p.size(0), device=p.device) % p.size(1))
    loss_cross_shares_smooth: nn.CrossEntropyLoss(label_smoothing=0.1, reduction="sum")(p, p.detach().softmax(-1))
    loss_cross_shares_weight: nn.CrossEntropyLoss(weight=p[0].detach().abs(), reduction="none")(p, p.detach().softmax(-1))
    loss_adaptive: M: nn.AdaptiveLogSoftmaxWithLoss({d}, 300, [20, 100]): self.m(p, torch.arange(p.size(0), device=p.device) % 300).loss
    loss_linear_cross: M: nn.Linear({d}, 300): F.cross_entropy(self.m(p), torch.arange(p.size(0), device=p.device) % 300)
    bilinear_layer_flat: M: nn.Bilinear({d}, {d}, 20): self.m(p, p)
    bilinear_layer_plain: M: nn.Bilinear({d}, {d}, 3, bias=False): self.m(p, p.flip(0))
    pdist1: torch.pdist(p, 1)
    pdist_inf: torch.pdist(p, float("inf"))
    cdist_large: torch.cdist(p, p.flip(0))
    cdist_exact: torch.cdist(p, p.flip(0), compute_mode="donot_use_mm_for_euclid_dist")
    cdist_three: torch.cdist(p, p[:30], p=3)
    cosine_pairs: F.cosine_similarity(p[:, None], p[None, :20], dim=-1)
    norm0: p.norm(0, -1) + p.sum(-1)
    norm_all: p.norm()
    norm_three_all: p.norm(3)
    norm_minus: p.norm(-1, 1)
    norm_minus_inf: p.norm(-float("inf"), -1)
    norm_half: p.norm(0.5, -1)
    norm_frobenius: torch.linalg.norm(p)
    norm_nuclear: torch.linalg.norm(p.float()[:30, :20], "nuc")
    norm_spectral: torch.linalg.norm(p.float()[:30, :20], 2)
    norm_matrix_one: torch.linalg.norm(p, 1)
    norm_matrix_inf: torch.linalg.norm(p, float("inf"))
    norm_float: torch.linalg.vector_norm(p, 2, -1, dtype=torch.float32)
    norm_keep: p / p.norm(p=2, dim=-1, keepdim=True).clamp(min=1e-6)
    norm_keep1: p / p.norm(p=1, dim=0, keepdim=True)
    prod_keep: p.prod(0, keepdim=True)
    prod_float: torch.prod(p, 1, dtype=torch.float32)
    median_middle: p.median(0)[0]
    median_keep: p.median(1, keepdim=True)[0] * p
    nanmedian_all: p.nanmedian()
    quantile_several: p.float().quantile(torch.tensor([0.1, 0.5, 0.9], device=p.device), dim=0)
    quantile_all: p.float().quantile(0.5)
    quantile_nearest: p.float().quantile(0.5, dim=1, interpolation="nearest", keepdim=True)
    nanquantile: p.float().nanquantile(0.5, 1)
    nansum_all: p.nansum()
    nansum_float: torch.nansum(p, 0, dtype=torch.float32)
    nanmean_all: p.nanmean()
    cumsum_flip: p.flip(0).cumsum(0).flip(0)
    logcumsumexp_last: p.logcumsumexp(-1)
    aminmax: torch.aminmax(p, dim=1).max - torch.aminmax(p, dim=1).min
    std_all: p.std()
    std_keep: (p - p.mean(1, keepdim=True)) / (p.std(1, keepdim=True) + 1e-5)
    var_plain: p.var(1, unbiased=False)
    zscore: (p - p.mean(0)) / p.var(0).add(1e-5).sqrt()
    dist: torch.dist(p, p.flip(0))
    dist1: torch.dist(p, p.flip(0), 1)
    clip_norm_like: p * (1 / (p.norm() + 1e-6)).clamp(max=1)
    cholesky_one: torch.linalg.cholesky(p[:40].float() @ p[:40].float().mT + 300 * torch.eye(40, device=p.device))
    cholesky_upper: torch.linalg.cholesky(p[:40].float() @ p[:40].float().mT + 300 * torch.eye(40, device=p.device), upper=True)
    cholesky_solve: torch.cholesky_solve(p[:40, :4].float(), torch.linalg.cholesky(p[:40].float() @ p[:40].float().mT + 300 * torch.eye(40, device=p.device)))
    cholesky_inverse: torch.cholesky_inverse(torch.linalg.cholesky(p[:40].float() @ p[:40].float().mT + 300 * torch.eye(40, device=p.device)))
    solve_one: torch.linalg.solve(p[:40, :40].float() + 30 * torch.eye(40, device=p.device), p[:40, 40:50].float())
    solve_vector: torch.linalg.solve(p[:40, :40].float() + 30 * torch.eye(40, device=p.device), p[:40, 40].float())
    inverse_layer: torch.linalg.inv(p[:48, :48].float() + 30 * torch.eye(48, device=p.device)) @ p[:48].float()
    det_one: torch.linalg.det(p[:8, :8].float())
    slogdet_one: torch.linalg.slogdet(p[:40, :40].float())[1]
    logdet: torch.logdet(p[:40].float() @ p[:40].float().mT + 300 * torch.eye(40, device=p.device))
    lu: torch.linalg.lu(p[:40, :40].float())[2]
    lu_factor: torch.linalg.lu_factor(p[:40, :40].float())[0]
    qr_one: torch.linalg.qr(p[:50, :20].float())[0]
    qr_both: sum(x.sum() for x in torch.linalg.qr(p[:50, :20].float()))
    svd_one: torch.linalg.svd(p[:30, :20].float(), full_matrices=False)[0]
    svd_values: torch.linalg.svdvals(p[:30, :20].float())
    svd_square: torch.linalg.svd(p[:16, :16].float())[2]
    eigh_one: torch.linalg.eigh(p[:30, :30].float())[1]
    eigh_values: torch.linalg.eigvalsh(p[:30, :30].float())
    eig_values: torch.linalg.eigvals(p[:12, :12].float()).abs()
    pinv: torch.linalg.pinv(p[:30, :20].float())
    lstsq: torch.linalg.lstsq(p[:50, :20].float(), p[:50, 20:24].float()).solution
    matrix_power: torch.linalg.matrix_power(p[:20, :20].float(), 3)
    matrix_exp_one: torch.linalg.matrix_exp(p[:20, :20].float() * 0.1)
    triangular_one: torch.linalg.solve_triangular(p[:40, :40].float().triu() + 30 * torch.eye(40, device=p.device), p[:40, 40:50].float(), upper=True)
    householder: torch.linalg.householder_product(p[:40, :10].float(), p[0, :10].float())
    multi_dot: torch.linalg.multi_dot([p[:40], p[:60].mT, p[:60]])
    chain: torch.chain_matmul(p[:40], p[:60].mT, p[:60]) if hasattr(torch, "chain_matmul") else p
    vecdot: torch.linalg.vecdot(p, p.flip(0))
    einsum_bilinear: torch.einsum("ld,de,me->lm", p, p.new_ones(p.size(1), p.size(1)), p[:20])
    einsum_three_two: torch.einsum("ld,md,ne->lmn", p[:30], p[:20], p[:10])
    einsum_four: torch.einsum("ld,md,me,ne->ln", p[:30], p[:20], p[:20], p[:10])
    einsum_diagonal: torch.einsum("ii->i", p[:40, :40])
    einsum_trace: torch.einsum("ij,ij->", p, p)
    einsum_ellipsis: torch.einsum("...d,d->...", p, p[0])
    einsum_outer_three: torch.einsum("l,m,n->lmn", p[:30, 0], p[:20, 1], p[:10, 2])
    trapezoid: torch.trapezoid(p, dim=1)
    logaddexp2: torch.logaddexp2(p, p * 2)
    softmax_where: torch.where(p > 0, p, -math.inf).softmax(-1).nan_to_num()
    masked_softmax: p.masked_fill(p.detach() < -1, -1e9).softmax(-1)
    gumbel_by_hand: (p - torch.empty_like(p).exponential_().log()).softmax(-1)
    straight_through: p.round() - p.detach() + p
    straight_hard: (p.softmax(-1) > 0.5).float() - p.softmax(-1).detach() + p.softmax(-1)
    grad_reverse: p * 1.0 - 2 * (p * 1.0).detach()
    unique_pairs: p[torch.triu_indices(20, 20, 1, device=p.device)[0]] * p[torch.triu_indices(20, 20, 1, device=p.device)[1]]
    meshgrid: torch.stack(torch.meshgrid(p[0], p[1], indexing="ij"), -1)
    cartesian: torch.cartesian_prod(p[0, :30], p[1, :20])
    combinations: torch.combinations(p[0, :30])
    block_diag: torch.block_diag(p[:10, :10], p[:20, :5])
    tensor_split: torch.cat([x * 2 for x in p.tensor_split(3, 0)])
    scatter_softmax: torch.zeros(10, p.size(1), device=p.device).index_reduce(0, torch.arange(p.size(0), device=p.device) % 10, p.float(), "amax")
    put: p.clone().put(torch.arange(20, device=p.device), p[0, :20])
    swapaxes: p.swapaxes(0, 1).contiguous() * 2
    erf_gelu: 0.5 * p * (1 + torch.erf(p / 1.41421))
    tanh_gelu: F.gelu(p, approximate="tanh")
    mish: F.mish(p)
    logit_clip: torch.special.logit(p.sigmoid(), 1e-4)
    entropy: -(p.softmax(-1) * p.log_softmax(-1)).sum(-1)
    entr: torch.special.entr(p.softmax(-1))
    xlog1py: torch.special.xlog1py(p, p.abs())
    polygamma: torch.polygamma(1, p.abs() + 1)
    ndtr: torch.special.ndtr(p)
    log_ndtr: torch.special.log_ndtr(p)
    i1: torch.special.i1(p)
    float_power: torch.float_power(p.abs() + 1, 1.5).float()
    deg2rad: p.deg2rad().sin()
    heaviside: p * torch.heaviside(p.detach(), p.new_tensor(0.5).expand_as(p))
    distribution_normal: -torch.distributions.Normal(p, p.exp(), validate_args=False).log_prob(p.detach() * 2)
    distribution_sample: torch.distributions.Normal(p, p.exp(), validate_args=False).rsample()
    distribution_kl: torch.distributions.kl_divergence(torch.distributions.Normal(p, p.exp(), validate_args=False), torch.distributions.Normal(0.0, 1.0))
    distribution_categorical: torch.distributions.Categorical(logits=p, validate_args=False).entropy()
    distribution_beta: -torch.distributions.Beta(p.exp(), p.exp() + 1, validate_args=False).log_prob(torch.full_like(p, 0.3))
    distribution_mixture: torch.logsumexp(p[:, :10, None].log_softmax(1) - 0.5 * (p[:, :10, None] - p[:, None, 10:20]) ** 2, 1)
""")
of("series of seed 11021", {"p": "ncl"}, """
    conv1d_same_even: M: nn.Conv1d({c}, 32, 4, padding="same"): self.m(p)
    conv1d_same_dilated: M: nn.Conv1d({c}, 32, 4, padding="same", dilation=3): self.m(p)
    conv1d_same_odd: M: nn.Conv1d({c}, 32, 5, padding="same"): self.m(p)
    lstm_projected_both: M: nn.LSTM({c}, 64, 2, bidirectional=True, proj_size=24): self.m(p.permute(2, 0, 1))[0]
    lstm_projected_state: M: nn.LSTM({c}, 64, batch_first=True, proj_size=32): self.m(p.mT)[1][0]
    lstm_plain: M: nn.LSTM({c}, 64, bias=False, batch_first=True): self.m(p.mT)[0]
    gru_plain: M: nn.GRU({c}, 64, bias=False, batch_first=True): self.m(p.mT)[0]
    lstm_packed: M: nn.LSTM({c}, 64, batch_first=True): nn.utils.rnn.pad_packed_sequence(self.m(nn.utils.rnn.pack_padded_sequence(p.mT, [p.size(2)] * p.size(0), batch_first=True))[0], batch_first=True)[0]
    lstm_one_sequence: M: nn.LSTM({c}, 64): self.m(p[0].mT)[0]
    istft_plain: torch.istft(torch.stft(p.flatten(0, 1).float().repeat(1, 5), 64, 16, window=torch.ones(64, device=p.device), return_complex=True) * 2, 64, 16, window=torch.ones(64, device=p.device), length=p.size(2) * 5 - 16)
    stft_mel: torch.log(torch.stft(p[:, 0].float().repeat(1, 5), 128, 32, window=torch.hann_window(128, device=p.device), return_complex=True).abs().pow(2).mT @ torch.ones(65, 20, device=p.device) + 1e-5)
    embedding_positions: p + torch.arange(p.size(2), device=p.device).to(p.dtype)
    unfold_windows: p.unfold(-1, 16, 8).mean(-1)
    cumulative_mean: p.cumsum(-1) / torch.arange(1, p.size(2) + 1, device=p.device)
    detrend: p - F.avg_pool1d(F.pad(p, (12, 12), mode="replicate"), 25, 1)
    spectral_norm_linear: M: nn.utils.parametrizations.spectral_norm(nn.Linear({c}, 32)): self.m(p.mT)
    orthogonal: M: nn.utils.parametrizations.orthogonal(nn.Linear({c}, {c})): self.m(p.mT)
    weight_norm_linear: M: nn.utils.parametrizations.weight_norm(nn.Linear({c}, 32)): self.m(p.mT)
    encoder: M: nn.TransformerEncoder(nn.TransformerEncoderLayer({c}, 4, 64, batch_first=True, norm_first=True), 2): self.m(p.mT)
    attention_causal: M: nn.MultiheadAttention({c}, 4, batch_first=True): self.m(p.mT, p.mT, p.mT, attn_mask=nn.Transformer.generate_square_subsequent_mask(p.size(2), device=p.device), need_weights=False)[0]
    attention_weights: M: nn.MultiheadAttention({c}, 4, batch_first=True): self.m(p.mT, p.mT, p.mT, average_attn_weights=False)[1]
    attention_other: M: nn.MultiheadAttention({c}, 4, batch_first=True, kdim=16, vdim=16): self.m(p.mT, p[:, :16].mT, p[:, :16].mT)[0]
    transformer: M: nn.Transformer({c}, 4, 1, 1, 64, batch_first=True): self.m(p.mT, p.mT)
""")
of("images of seed 11021", {"p": "nchw"}, """
    conv_same_even: M: nn.Conv2d({c}, 32, (4, 3), padding="same"): self.m(p)
    conv_same_dilated: M: nn.Conv2d({c}, 32, 2, padding="same", dilation=3): self.m(p)
    conv_replicate: M: nn.Conv2d({c}, 32, 5, padding=2, padding_mode="replicate"): self.m(p)
    conv_circular: M: nn.Conv2d({c}, 32, 3, padding=1, padding_mode="circular"): self.m(p)
    conv_transposed_output: M: nn.ConvTranspose2d({c}, 32, 3, 2, 1, 1): self.m(p)
    conv_transposed_groups: M: nn.ConvTranspose2d({c}, {c}, 4, 2, 1, groups={c}): self.m(p)
    rms_norm_channels: F.rms_norm(p.permute(0, 2, 3, 1), (p.size(1),))
    layer_norm_image: F.layer_norm(p, p.shape[1:])
    softmax2d: nn.Softmax2d()(p)
    ssim_like: F.conv2d(p, torch.ones(p.size(1), 1, 7, 7, device=p.device), padding=3, groups=p.size(1)).square()
    sobel: F.conv2d(p.flatten(0, 1)[:, None], torch.ones(2, 1, 3, 3, device=p.device), padding=1)
    bilinear_sizes: F.interpolate(p, size=(33, 47), mode="bilinear")
    adaptive_avg_uneven: F.adaptive_avg_pool2d(p, (3, 5))
    lp_pool_one: F.lp_pool2d(p, 1, 3)
    gem: p.clamp(min=1e-6).pow(3).mean((2, 3)).pow(1 / 3)
    crop: p[..., 2:-2, 2:-2]
    patches: p.unfold(2, 4, 4).unfold(3, 4, 4).flatten(-2).mean(-1)
    soft_argmax: (p.flatten(2).softmax(-1) * torch.arange(p[0, 0].numel(), device=p.device)).sum(-1)
    nms_free: (p == F.max_pool2d(p, 3, 1, 1)).float() * p
    tv_norm: (p.diff(dim=2).pow(2).sum((1, 2, 3)) + p.diff(dim=3).pow(2).sum((1, 2, 3))).sqrt()
    chamfer: torch.cdist(p.flatten(2).mT[:, :200], p.flatten(2).mT[:, 20:120]).min(-1)[0]
    gumbel_places: F.gumbel_softmax(p.flatten(2), dim=-1)
    attention_pool: (p.flatten(2) * p.mean(1, keepdim=True).flatten(2).softmax(-1)).sum(-1)
""")


# ---- since seed 12021: what transformers, timm, torchvision, torchaudio and diffusers call and no table had ----------------------------
of("of seed 12021", {"p": "ld"}, """
    counts_of_experts: p * torch.bincount((p.detach().abs() * 3).long().clamp(max=7).flatten(), minlength=8).float().sum()
    bincount_few: p * torch.bincount((p[:, 0].detach().abs() * 3).long().clamp(max=7), minlength=64)[0]
    bincount_weighted: p * torch.bincount((p[:, 0].detach().abs() * 3).long().clamp(max=7), weights=p[:, 0].detach().float()).sum()
    isin_few: p.masked_fill(torch.isin((p.detach() * 3).long(), torch.tensor([1, 2, 3], device=p.device)), 0)
    isin_number: p.masked_fill(torch.isin((p.detach() * 3).long(), 2), 0)
    isin_many: p.masked_fill(torch.isin((p.detach() * 3).long(), torch.arange(500, device=p.device)), 0)
    greater: p * torch.greater(p.detach(), 0)
    less_equal: p * p.detach().less_equal(p.detach().flip(0))
    randint_made: p[torch.randint(0, p.size(0), (30,), device=p.device)]
    randint_like: p * torch.randint_like(p, 3)
    multinomial_one: p[torch.multinomial(p.detach().float().softmax(-1), 1)[:, 0] % p.size(0)]
    multinomial_several: p.gather(1, torch.multinomial(p.detach().float().softmax(-1), 5))
    multinomial_again: p.gather(1, torch.multinomial(p.detach().float().softmax(-1), 5, replacement=True))
    bernoulli_mask: p * torch.bernoulli(torch.full_like(p, 0.9))
    bernoulli_own: p * p.detach().sigmoid().bernoulli()
    exponential_noise: p + torch.empty_like(p).exponential_()
    gumbel_soft: F.gumbel_softmax(p.float(), tau=0.7, hard=False, dim=-1)
    gumbel_straight: F.gumbel_softmax(p, hard=True)
    normal_noise: p + torch.normal(0.0, 1.0, size=p.shape, device=p.device)
    normal_tensors: p + torch.normal(p.detach(), 0.1)
    random_ints: p * torch.empty_like(p, dtype=torch.long).random_(0, 3)
    kaiser: p * torch.kaiser_window(p.size(1), device=p.device)
    blackman: p * torch.blackman_window(p.size(1), device=p.device)
    bartlett: p * torch.bartlett_window(p.size(1), device=p.device)
    triu_in_place: p * torch.ones(p.size(1), p.size(1), device=p.device).triu_(1)[0]
    tril_in_place: (p * 1).tril_()
    cumsum_in_place: (p * 2).cumsum_(0)
    fill_diagonal: (p @ p.mT).fill_diagonal_(0)
    argwhere: p * (p.detach() > 5).argwhere().numel()
    logspace: p * torch.logspace(0, 1, p.size(1), device=p.device)
    clamp_both: torch.clamp(p, p.detach().min(), p.detach().max())
    floor_divide_in_place: p * (p.detach() * 7).floor_divide_(2)
    lerp_in_place: (p * 1).lerp_(p.flip(0), 0.1)
    addcdiv_in_place: (p * 1).addcdiv_(p.flip(0), p.detach().abs() + 1, value=0.1)
    sub_scaled: torch.sub(p, p.flip(0), alpha=2)
    rsub_number: torch.rsub(p, 1.0)
    rot_half: torch.cat((-p[:, p.size(1) // 2:], p[:, :p.size(1) // 2]), -1)
    square_root_norm: p * torch.rsqrt(p.square().mean(-1, keepdim=True) + 1e-6)
    affine_grid: F.grid_sample(p[None, None], F.affine_grid(torch.eye(2, 3, device=p.device)[None] * p[0, 0], (1, 1, 20, 30), align_corners=False), align_corners=False)
    equal_host: p * float(torch.equal(p, p))
    amin_amax: p.amax(-1) - p.amin(-1)
    scatter_mean: torch.zeros(10, p.size(1), device=p.device).index_reduce(0, torch.arange(p.size(0), device=p.device) % 10, p.float(), "mean")
    scatter_reduce_mean: torch.zeros(10, p.size(1), device=p.device).scatter_reduce(0, (torch.arange(p.size(0), device=p.device) % 10)[:, None].expand(-1, p.size(1)), p.float(), "mean")
    prod_all: p[:4, :4].prod()
    prod_zero_free: p.abs().add(1).prod(0)
    median_columns: p.median(0)[0]
    det_large: torch.linalg.slogdet(p[:50, :50].float())[1]
    whitened: torch.linalg.solve_triangular(torch.linalg.cholesky(p[:, :40].float().mT @ p[:, :40].float() + torch.eye(40, device=p.device)), p[:, :40].float().mT, upper=False)
    gaussian_process: torch.distributions.MultivariateNormal(p[:, 0].float()[:40], covariance_matrix=p[:40].float() @ p[:40].float().mT + 300 * torch.eye(40, device=p.device), validate_args=False).log_prob(p[:40, 1].float())
    low_rank: torch.linalg.svd(p[:48, :48].float())[0]
    inverse_large: torch.linalg.inv(p[:50, :50].float() + 30 * torch.eye(50, device=p.device))
    matrix_rank_free: torch.linalg.matrix_norm(p)
    tensordot_two: torch.tensordot(p.view(p.size(0), 4, -1), p.view(p.size(0), 4, -1)[:10], dims=([1, 2], [1, 2]))
    kron_small: torch.kron(p[:5, :5], p[:4, :4])
    nan_sum: p.nansum(-1)
    unique_counts: p * torch.unique((p.detach() * 2).long(), return_counts=True)[1].numel()
    histogram: p * torch.histc(p.detach().float(), 20, -3, 3).max()
    channel_shuffle: F.channel_shuffle(p[None, :48, :16, None], 4)
    local_response: F.local_response_norm(p[None, :, :, None], 5)
    pixel_norm: p[None] / (p[None].pow(2).mean(1, keepdim=True) + 1e-8).sqrt()
    logsumexp_pair: torch.logaddexp(p, p.flip(0)).logsumexp((0, 1))
    sin_positions: torch.cat([p.sin(), p.cos()], -1)
    complex_rotation: torch.view_as_real(torch.view_as_complex(p.float().view(p.size(0), -1, 2).contiguous()) * torch.polar(torch.ones(p.size(0), p.size(1) // 2, device=p.device), p.detach().float()[:, ::2])).flatten(1)
    istft_long: torch.istft(torch.stft(p.float().repeat(1, 20), 64, 16, window=torch.hann_window(64, device=p.device), return_complex=True) * 2, 64, 16, window=torch.hann_window(64, device=p.device))
    stft_magnitude: torch.stft(p.float().repeat(1, 20), 64, 16, return_complex=True).abs()
    phase: torch.stft(p.float().repeat(1, 20), 64, 16, window=torch.hann_window(64, device=p.device), return_complex=True).angle().cos()
""")
of("series of 12021", {"p": "ncl"}, """
    conv_groups_one: M: nn.Conv1d({c}, {c}, 3, padding=1, groups=2): self.m(p)
    conv_groups_many: M: nn.Conv1d({c}, {c}, 5, padding=2, groups=8): self.m(p)
    conv_depthwise_long: M: nn.Conv1d({c}, {c}, 31, padding=15, groups={c}): self.m(p)
    conv_weight_norm: M: nn.utils.parametrizations.weight_norm(nn.Conv1d({c}, 32, 7, padding=3)): self.m(p)
    conv_transposed_series: M: nn.ConvTranspose1d({c}, 32, 16, 8, 4): self.m(p)
    lstm_long: M: nn.LSTM({c}, 64, 2, bidirectional=True, batch_first=True): self.m(p.mT)[0]
    lstm_projection_one: M: nn.LSTM({c}, 96, proj_size=40): self.m(p.permute(2, 0, 1))[0]
    gru_long: M: nn.GRU({c}, 64, 2, batch_first=True, dropout=0.1): self.m(p.mT)[0]
    glu_series: F.glu(p, 1)
    snake: p + torch.sin(p * 2).pow(2) / 2
    group_norm_one: F.group_norm(p, 1)
""")
of("images of 12021", {"p": "nchw"}, """
    conv_groups_two: M: nn.Conv2d({c}, {c}, 3, padding=1, groups=2): self.m(p)
    conv_groups_eight: M: nn.Conv2d({c}, {c}, 3, padding=1, groups=8): self.m(p)
    conv_groups_stride: M: nn.Conv2d({c}, {c}, 3, 2, 1, groups=4): self.m(p)
    conv_groups_wide: M: nn.Conv2d({c}, {c}, 5, padding=2, groups={c}): self.m(p)
    conv_same_uneven: M: nn.Conv2d({c}, 32, 4, padding="same"): self.m(p)
    max_unpool: F.max_unpool2d(*F.max_pool2d(p, 2, return_indices=True), 2)
    blur_pool: F.conv2d(F.pad(p, (1, 1, 1, 1), mode="reflect"), torch.ones(p.size(1), 1, 3, 3, device=p.device) / 9, stride=2, groups=p.size(1))
    weight_standardised: F.conv2d(p, F.batch_norm(torch.ones(16, p.size(1) * 9, device=p.device)[None] * p.mean(), None, None, training=True).view(16, p.size(1), 3, 3), padding=1)
    attention_of_channels: p * p.mean((2, 3), keepdim=True).sigmoid()
    unfold_shifts: F.unfold(p, 3, padding=1).mean(1)
    grid_warp: F.grid_sample(p, p.mean(1)[..., None].expand(-1, -1, -1, 2).tanh(), align_corners=False)
""")


# ---- since seed 13021: factorisations of one matrix, small and large, and of several; recurrent layers and pairs ----------------------
of("factorisations of 13021: one", {"p": "hh"}, """
    small_cholesky: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)))
    small_cholesky_upper: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)), upper=True)
    small_solve: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5])
    small_solve_right: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5, :], left=False)
    small_inv: torch.linalg.inv((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    small_det: torch.linalg.det((p.float() + 40 * torch.eye(p.size(-1), device=p.device)) / 40)
    small_slogdet: torch.linalg.slogdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    small_logdet: torch.logdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    small_eigh: sum(x.square().mean() for x in torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device))))
    small_eigh_vectors: torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    small_eigvalsh: torch.linalg.eigvalsh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    small_qr: torch.linalg.qr(p.float())[0]
    small_qr_thin: sum(x.square().mean() for x in torch.linalg.qr(p.float()[..., :9]))
    small_svd: sum(x.square().mean() for x in torch.linalg.svd(p.float()[..., :12], full_matrices=False))
    small_svd_square: torch.linalg.svd(p.float(), full_matrices=False)[0]
    small_svdvals: torch.linalg.svdvals(p.float()[..., :12, :])
    small_cholesky_solve: torch.cholesky_solve(p.float()[..., :3], torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    small_cholesky_inverse: torch.cholesky_inverse(torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    small_triangular: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).tril(), p.float()[..., :6], upper=False)
    small_triangular_right: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).triu(), p.float()[..., :6, :], upper=True, left=False)
    small_matrix_exp: torch.linalg.matrix_exp(p.float() * 0.01)
    small_pinv: torch.linalg.pinv(p.float()[..., :12])
    small_lstsq: torch.linalg.lstsq(p.float()[..., :12], p.float()[..., 12:14]).solution
    small_lu_factor: torch.linalg.lu_factor((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[0]
""")
of("factorisations of 13021: one", {"p": "ll"}, """
    large_cholesky: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)))
    large_cholesky_upper: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)), upper=True)
    large_solve: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5])
    large_solve_right: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5, :], left=False)
    large_inv: torch.linalg.inv((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    large_det: torch.linalg.det((p.float() + 40 * torch.eye(p.size(-1), device=p.device)) / 40)
    large_slogdet: torch.linalg.slogdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    large_logdet: torch.logdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    large_eigh: sum(x.square().mean() for x in torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device))))
    large_eigh_vectors: torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    large_eigvalsh: torch.linalg.eigvalsh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    large_qr: torch.linalg.qr(p.float())[0]
    large_qr_thin: sum(x.square().mean() for x in torch.linalg.qr(p.float()[..., :9]))
    large_svd: sum(x.square().mean() for x in torch.linalg.svd(p.float()[..., :12], full_matrices=False))
    large_svd_square: torch.linalg.svd(p.float(), full_matrices=False)[0]
    large_svdvals: torch.linalg.svdvals(p.float()[..., :12, :])
    large_cholesky_solve: torch.cholesky_solve(p.float()[..., :3], torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    large_cholesky_inverse: torch.cholesky_inverse(torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    large_triangular: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).tril(), p.float()[..., :6], upper=False)
    large_triangular_right: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).triu(), p.float()[..., :6, :], upper=True, left=False)
    large_matrix_exp: torch.linalg.matrix_exp(p.float() * 0.01)
    large_pinv: torch.linalg.pinv(p.float()[..., :12])
    large_lstsq: torch.linalg.lstsq(p.float()[..., :12], p.float()[..., 12:14]).solution
    large_lu_factor: torch.linalg.lu_factor((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[0]
""")
of("factorisations of 13021: several", {"p": "nhh"}, """
    batch_cholesky: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)))
    batch_cholesky_upper: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)), upper=True)
    batch_solve: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5])
    batch_solve_right: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5, :], left=False)
    batch_inv: torch.linalg.inv((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    batch_det: torch.linalg.det((p.float() + 40 * torch.eye(p.size(-1), device=p.device)) / 40)
    batch_slogdet: torch.linalg.slogdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    batch_logdet: torch.logdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    batch_eigh: sum(x.square().mean() for x in torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device))))
    batch_eigh_vectors: torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    batch_eigvalsh: torch.linalg.eigvalsh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    batch_qr: torch.linalg.qr(p.float())[0]
    batch_qr_thin: sum(x.square().mean() for x in torch.linalg.qr(p.float()[..., :9]))
    batch_svd: sum(x.square().mean() for x in torch.linalg.svd(p.float()[..., :12], full_matrices=False))
    batch_svd_square: torch.linalg.svd(p.float(), full_matrices=False)[0]
    batch_svdvals: torch.linalg.svdvals(p.float()[..., :12, :])
    batch_cholesky_solve: torch.cholesky_solve(p.float()[..., :3], torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    batch_cholesky_inverse: torch.cholesky_inverse(torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    batch_triangular: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).tril(), p.float()[..., :6], upper=False)
    batch_triangular_right: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).triu(), p.float()[..., :6, :], upper=True, left=False)
    batch_matrix_exp: torch.linalg.matrix_exp(p.float() * 0.01)
    batch_pinv: torch.linalg.pinv(p.float()[..., :12])
    batch_lstsq: torch.linalg.lstsq(p.float()[..., :12], p.float()[..., 12:14]).solution
    batch_lu_factor: torch.linalg.lu_factor((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[0]
""")
of("factorisations of 13021: several, large", {"p": "nll"}, """
    stack_cholesky: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)))
    stack_cholesky_upper: torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device)), upper=True)
    stack_solve: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5])
    stack_solve_right: torch.linalg.solve((p.float() + 40 * torch.eye(p.size(-1), device=p.device)), p.float()[..., :5, :], left=False)
    stack_inv: torch.linalg.inv((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    stack_det: torch.linalg.det((p.float() + 40 * torch.eye(p.size(-1), device=p.device)) / 40)
    stack_slogdet: torch.linalg.slogdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    stack_logdet: torch.logdet((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    stack_eigh: sum(x.square().mean() for x in torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device))))
    stack_eigh_vectors: torch.linalg.eigh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[1]
    stack_eigvalsh: torch.linalg.eigvalsh((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))
    stack_qr: torch.linalg.qr(p.float())[0]
    stack_qr_thin: sum(x.square().mean() for x in torch.linalg.qr(p.float()[..., :9]))
    stack_svd: sum(x.square().mean() for x in torch.linalg.svd(p.float()[..., :12], full_matrices=False))
    stack_svd_square: torch.linalg.svd(p.float(), full_matrices=False)[0]
    stack_svdvals: torch.linalg.svdvals(p.float()[..., :12, :])
    stack_cholesky_solve: torch.cholesky_solve(p.float()[..., :3], torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    stack_cholesky_inverse: torch.cholesky_inverse(torch.linalg.cholesky((p.float() @ p.float().mT + 300 * torch.eye(p.size(-1), device=p.device))))
    stack_triangular: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).tril(), p.float()[..., :6], upper=False)
    stack_triangular_right: torch.linalg.solve_triangular((p.float() + 40 * torch.eye(p.size(-1), device=p.device)).triu(), p.float()[..., :6, :], upper=True, left=False)
    stack_matrix_exp: torch.linalg.matrix_exp(p.float() * 0.01)
    stack_pinv: torch.linalg.pinv(p.float()[..., :12])
    stack_lstsq: torch.linalg.lstsq(p.float()[..., :12], p.float()[..., 12:14]).solution
    stack_lu_factor: torch.linalg.lu_factor((p.float() + 40 * torch.eye(p.size(-1), device=p.device)))[0]
""")
of("layers of 13021", {"p": "nld"}, """
    lstm_no_bias: M: nn.LSTM({d}, 80, bias=False, batch_first=True): self.m(p)[0]
    lstm_no_bias_both: M: nn.LSTM({d}, 48, 2, bias=False, bidirectional=True): self.m(p)[0]
    lstm_projection_deep: M: nn.LSTM({d}, 96, 2, proj_size=32, batch_first=True): self.m(p)[0]
    lstm_projection_both: M: nn.LSTM({d}, 64, proj_size=24, bidirectional=True): self.m(p)[0]
    gru_no_bias: M: nn.GRU({d}, 72, bias=False): self.m(p)[0]
    rnn_no_bias: M: nn.RNN({d}, 72, bias=False): self.m(p)[0]
    bilinear_pairs: M: nn.Bilinear({d}, {d}, 12): self.m(p, p.flip(1))
    bilinear_no_bias: M: nn.Bilinear({d}, {d}, 7, bias=False): self.m(p[:, :9], p[:, 9:18])
    bilinear_one: M: nn.Bilinear({d}, 20, 5): self.m(p, p[..., :20])
""")


def assigned(p):
    out = p.clone()
    out[:, 1:4] = p[:, :3] * 2
    out[:, 0] = 0
    return out


def mask_assigned(p, m):
    out = p.clone()
    out[m] = 0
    return out


def cases(seed=SEED):
    """Of each operator its sizes."""
    for name, (parameters, inputs, code) in OPERATORS.items():
        chooser = random.Random(f"{seed} {name}")
        yield name, {letter: chooser.choice(known) for letter, known in SIZES.items()}


def later_first(of_all):
    """Those of the last seed before the others."""
    of_all = list(of_all)
    first = list(OPERATORS).index("counts_of_experts")
    return of_all[first:] + of_all[:first]


def made(name, sizes, torch):
    """A module, and what else it takes."""
    nn, F = torch.nn, torch.nn.functional
    parameters, inputs, code = OPERATORS[name]
    shape = lambda word: [sizes[letter] for letter in word]
    names = dict(torch=torch, nn=nn, F=F, math=math, assigned=assigned, mask_assigned=mask_assigned)
    made_of, code = (re.match(r"M: (.*?\)): (.*)", code).groups()) if code.startswith("M: ") else (None, code)
    if made_of: made_of = re.sub(r"\{(\w)\}", lambda found: str(sizes[found[1]]), made_of)

    class Operator(nn.Module):
        def __init__(self):
            super().__init__()
            for key, word in parameters.items(): setattr(self, key, nn.Parameter(torch.randn(shape(word))))
            if made_of: self.m = eval(made_of, names)

        def forward(self, batch=None, **given):
            known = dict(names, self=self, **{key: getattr(self, key) for key in parameters}, **given)
            out = eval(code, known)
            return out.float().square().mean()

    def values(batch=None):
        found = {}
        for key, (word, most) in inputs.items():
            if word == "500": found[key] = torch.arange(500) * 7 % sizes[most]
            elif word == "unique": found[key] = torch.arange(min(200, sizes[most])) * 2
            elif word == "mask": found[key] = torch.arange(sizes[most]) % 3 == 0
            else: found[key] = torch.arange(1).expand(shape(word)).contiguous()
        return found

    return Operator, values


# ---- on a card --------------------------------------------------------------------------------------------------------
def stream_of(events, live):
    out = []
    for event in events:
        if event["action"] == "alloc":
            out.append(event["size"])
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed": out.append(-live.pop(event["addr"], 0))
    return out


def measure(a):
    import torch
    began, rows = time.time(), []
    on_card = a.device == "cuda"
    warnings.simplefilter("ignore")
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, False

    def taken():
        if not on_card: return []
        torch.cuda.synchronize()
        events = torch.cuda.memory._snapshot()["device_traces"][0]
        torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=100000, clear_history=True)
        return events

    def head():
        if on_card: rows.append(dict(gpu=torch.cuda.get_device_name(0), torch=torch.__version__))
        else: rows.append(dict(gpu=None))

    if on_card:  # both threads' workspaces of cuBLAS
        for dtype in (torch.float32, torch.bfloat16):
            w = torch.randn(256, 256, device="cuda", dtype=dtype, requires_grad=True)
            (w @ w + torch.nn.functional.linear(w, w, w[0])).sum().backward()
        del w
    head()
    for name, sizes in later_first(cases(a.seed)):
        if not re.search(a.only, name): continue
        for precision in ("fp32", "amp-bf16"):
            row = dict(id=name, precision=precision)
            if time.time() - began > a.seconds:
                row["error"] = "no time"
                rows.append(row)
                continue
            try:
                torch.manual_seed(0)
                kind, values = made(name, sizes, torch)
                module = kind().to(a.device)
                given = {key: value.to(a.device) for key, value in values().items()}
                live = {}
                for step in range(2):
                    for parameter in module.parameters(): parameter.grad = None
                    taken()
                    with torch.autocast(a.device, torch.bfloat16, enabled=precision != "fp32"): loss = module(**given)
                    row["forward"] = stream_of(taken(), live)
                    loss.backward()
                    row["backward"] = stream_of(taken(), live)
                    del loss
            except Exception as error: row = dict(id=name, precision=precision, error=repr(error)[:300])
            module = given = loss = None
            rows.append(row)
            if on_card and "CUDA error" in row.get("error", ""): break
            if not on_card and "error" in row: print(row, flush=True)
            if on_card and torch.cuda.memory_reserved() > 4e9: torch.cuda.empty_cache()
    with gzip.open(a.out, "wt") as out: out.write("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    print(len(rows), "rows in", round(time.time() - began, 1), "s;", sum("error" in row for row in rows), "errors", flush=True)


# ---- without one --------------------------------------------------------------------------------------------------------
def record(a):
    from programs import loaded
    warnings.simplefilter("ignore")
    sources = loaded(ROOT / "scripts/record_programs", "record_programs").recorder()
    import torch
    from memcalc.record import Variant
    Path(a.folder).mkdir(parents=True, exist_ok=True)
    part, parts = map(int, a.part.split("/"))
    for name, sizes in list(cases(a.seed))[part::parts]:
        path = Path(a.folder, name + ".json.gz")
        if path.exists() or not re.search(a.only, name): continue
        kind, values = made(name, sizes, torch)
        def example(batch): return {"batch": torch.empty(batch), **values()}  # the batch has no part in it
        try: sources.Source(kind, example, {"batch": 4}, [Variant("train")], name, "other", precisions=("float32", "autocast"), not_compiled="not asked").record(name).save(path)
        except BaseException as error: path.with_name(name + ".failed").write_text(traceback.format_exc())
        print(name, "" if path.exists() else "FAILED", flush=True)


def told(memcalc, path, precision):
    """The last step's requests: forward, backward; sizes as they are asked for (a block can be larger)."""
    from programs import PRECISIONS
    words = [memcalc, "trace", "--model", str(path), "--gpu", "h200-sxm", "--loop", "bare", "--bs", "4", "--optimizer", "sgd", *PRECISIONS[precision]]
    answer = subprocess.run([*words, "--events", "all", "--format", "tsv"], capture_output=True, text=True)
    if answer.returncode > 1: return answer.stderr.strip()
    sizes, asked = {}, []
    for line in subprocess.run([*words, "--format", "replay"], capture_output=True, text=True).stdout.splitlines():
        kind, *rest = line.split()
        if kind == "a": sizes[rest[0]] = int(rest[1])
        if kind in "af": asked.append(sizes[rest[0]] if kind == "a" else -sizes[rest[0]])
    found, last = {"forward": [], "backward": []}, None
    events = [line.split("\t") for line in answer.stdout.splitlines() if not line.startswith("#")]
    for (phase, _, *rest), size in zip(events, asked):
        if phase in found:
            if phase != last: found[phase] = []
            found[phase].append((size, rest[2] if len(rest) > 2 else ""))
        last = phase
    return found


def compare(a):
    """Sizes as the allocator rounds them, each phase."""
    import difflib
    rounded = lambda size: (abs(size) + 511) // 512 * 512 * (1 if size > 0 else -1)
    with gzip.open(a.measured, "rt") as lines: rows = [json.loads(line) for line in lines][1:]
    equal, same, asked, opaque = 0, 0, 0, []
    for row in rows:
        if "error" in row or not re.search(a.only, row["id"]): continue
        path = Path(a.folder, row["id"] + ".json.gz")
        asked += 1
        if not path.exists():
            print(f"{row['id']:28} {row['precision']:9} not recorded")
            continue
        names = json.loads(gzip.decompress(path.read_bytes())).get("opaque")
        said = told(a.memcalc, path, row["precision"])
        if isinstance(said, str):
            print(f"{row['id']:28} {row['precision']:9} {said[:160]}")
            continue
        wrong = []
        for phase in ("forward", "backward"):
            real, ours = [rounded(size) for size in row[phase]], [rounded(size) for size, _ in said[phase]]
            for tag, i, j, k, m in difflib.SequenceMatcher(None, real, ours, autojunk=False).get_opcodes():
                if tag != "equal": wrong.append(f"{phase} {i}: {real[i:j][:6]} told {[(size, said[phase][at][1][:40]) for at, size in zip(range(k, m), ours[k:m])][:5]}")
        def peak(sizes, start=0):
            most = now = start
            for size in sizes:
                now += rounded(size)
                most = max(most, now)
            return most, now
        real, ours = ([size for phase in ("forward", "backward") for size in sizes[phase]] for sizes in (row, {phase: [size for size, _ in said[phase]] for phase in said}))
        equal += not wrong
        same += peak(real) == peak(ours)
        if wrong: print(f"{row['id']:28} {row['precision']:9} peak {peak(real)[0]:>10} told {peak(ours)[0] - peak(real)[0]:+d} {names or ''}\n    " + "\n    ".join(wrong[: a.most]))
    print(asked, "asked;", equal, "with the same requests;", same, "with the same peak")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measured = command = commands.add_parser("measure")
    command.add_argument("out")
    command.add_argument("--seconds", type=float, default=60)
    command.add_argument("--device", default="cuda")
    command.set_defaults(call=measure)
    command = commands.add_parser("record")
    command.add_argument("folder")
    command.add_argument("--part", default="0/1")
    command.set_defaults(call=record)
    other = commands.add_parser("compare")
    for name in ("memcalc", "folder", "measured"): other.add_argument(name)
    other.add_argument("--most", type=int, default=4)
    other.set_defaults(call=compare)
    for each in (measured, command, other): each.add_argument("--only", default="")
    for each in (measured, command): each.add_argument("--seed", type=int, default=SEED)
    a = parser.parse_args()
    a.call(a)


if __name__ == "__main__": main()
