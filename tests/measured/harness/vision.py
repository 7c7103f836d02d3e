"""Vision on one GPU: allocator histories of torchvision and ViT models, and the workspace that cuDNN takes for every
distinct convolution of torchvision's classifiers, by batch size and dtype.

usage: vision.py history | convolutions | channels_last | small | sequences OUT_DIR     (--jobs N --budget SECONDS)
convolutions: one line each, [mode, batch, in, H, W, out, groups, kh, kw, stride, padding, backends, forward, dgrad, wgrad]: bytes
requested beyond the result (-1: refused, -2: out of memory). sequences: Whisper's, over 3,000 frames, as images of one row (H and kh are 1).
"""
import argparse, json, os, sys, time, types
os.environ.setdefault("TORCH_SYMBOLIZE_MODE", "dladdr")
T0 = time.time()
sys.path.insert(0, os.path.join(os.getcwd(), "tests/measured/harness"))

TV = "resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d resnext101_32x8d wide_resnet50_2 wide_resnet101_2 vgg16 vgg16_bn vgg11 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small efficientnet_b0 efficientnet_b1 efficientnet_b3 convnext_tiny convnext_base convnext_large swin_t swin_b densenet121 densenet169".split()
BATCHES = (8, 32, 64, 16, 128, 1, 4, 2, 256, 24, 48, 96, 3)
MODES = ("fp32", "fp16", "tf32", "bf16")


def cases():
    full = []
    def add(model, batch, precision="fp32", **k):
        full.append(dict(id="%s-b%d-%s%s" % (model, batch, precision, k.pop("tag", "")), task="image", model=model, batch_size=batch, precision=precision, **k))
    add("vit-base", 16, layers=2, tag="-2l"); add("vit-large", 8, "amp-bf16", layers=2, tag="-2l"); add("deit-base", 8, "bf16", layers=2, tag="-2l")
    add("vit-base", 8, "amp-fp16", layers=2, tag="-2l-eager", attention="eager"); add("vit-base", 8, "fp32", layers=2, tag="-2l-ckpt", checkpointing="full")
    add("mobilenet_v3_large", 32); add("efficientnet_b0", 32); add("vgg16", 16); add("convnext_tiny", 16); add("swin_t", 16); add("densenet121", 16)
    add("resnet18", 32); add("resnet50", 8, "amp-fp16"); add("resnet50", 8, "bf16"); add("resnext50_32x4d", 8); add("wide_resnet50_2", 8)
    add("mobilenet_v2", 32); add("vgg11_bn", 8)
    for m in ("mobilenet_v3_large", "efficientnet_b0", "convnext_tiny", "swin_t", "densenet121", "vgg16", "mobilenet_v2"): add(m, 16, "amp-bf16")
    for m in ("swin_t", "convnext_tiny", "mobilenet_v3_large"): add(m, 8, "bf16")
    add("resnet50", 8, "tf32")
    light = []
    for m, b, p in (("vgg16", 32, "fp32"), ("vgg16", 64, "amp-fp16"), ("convnext_base", 32, "fp32"), ("convnext_base", 64, "amp-bf16"), ("swin_t", 64, "fp32"), ("swin_t", 64, "amp-fp16"),
                    ("efficientnet_b0", 64, "fp32"), ("efficientnet_b0", 128, "amp-fp16"), ("mobilenet_v3_large", 128, "fp32"), ("mobilenet_v3_large", 64, "amp-fp16"), ("resnet50", 64, "bf16"),
                    ("densenet121", 32, "fp32"), ("resnet18", 64, "fp32"), ("resnext50_32x4d", 32, "fp32"), ("mobilenet_v2", 64, "fp32"), ("resnet101", 32, "amp-bf16")):
        light.append(dict(id="%s-b%d-%s-full" % (m, b, p), task="image", model=m, batch_size=b, precision=p, light=True))
    return full + light


def histories(out, jobs, budget):
    import torch, torchvision, transformers, transformers.models.auto.modeling_auto
    import measure as M, history, models
    from op_requests import pool
    for name in TV + ["vgg11_bn"]: models.MODELS.setdefault(name, ("tv", name))
    models.MODELS["deit-base"] = ("image", dict(model_type="deit", hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, image_size=224, patch_size=16))
    build = M.build
    def wrapped(case):
        m, batch, cfg, task = build(case)
        if task == "tv":
            class Loss(torch.nn.Module):
                def __init__(s): super().__init__(); s.w = m
                def forward(s, x, y): return types.SimpleNamespace(loss=s.w(x, y))
            return Loss(), batch, cfg, task
        return m, batch, cfg, task
    M.build = wrapped
    print("imports %.1f" % (time.time() - T0), flush=True)
    pool([(c["id"], (lambda c=c: history.run(c, out, False))) for c in cases()], jobs, lambda s: print(s, flush=True), T0 + budget)


def shapes():
    """Distinct convolutions at batch 1, 224 pixels: (in, H, W, out, groups, kh, kw, stride, padding)."""
    import torch, torchvision
    seen = {}
    for name in TV:
        with torch.device("meta"):
            m = getattr(torchvision.models, name)().eval()
        def hook(mod, args, output):
            x = args[0]
            key = (x.shape[1], x.shape[2], x.shape[3], mod.out_channels, mod.groups, *mod.kernel_size, mod.stride[0], mod.padding[0])
            seen.setdefault(key, name)
        for mod in m.modules():
            if isinstance(mod, torch.nn.Conv2d): mod.register_forward_hook(hook)
        with torch.no_grad(): m(torch.empty(1, 3, 224, 224, device="meta"))
    for width, patch in ((384, 16), (768, 16), (1024, 16), (768, 32), (1280, 14)): seen.setdefault((3, 224, 224, width, 1, patch, patch, patch, 0), "vit")
    return list(seen)


def channels_last_shapes():
    """ConvNeXt's convolutions behind the stem, which see images that went through permute."""
    keys = []
    for widths in ((96, 192, 384, 768), (128, 256, 512, 1024), (192, 384, 768, 1536)):
        for i, c in enumerate(widths):
            size = 56 >> i
            keys.append((c, size, size, c, c, 7, 7, 1, 3))
            if i < 3: keys.append((c, size, size, 2 * c, 1, 2, 2, 2, 0))
    return keys


def small_shapes():
    """Layers of small networks: what people write for MNIST, CIFAR, 64 and 224 pixels."""
    keys = []
    def add(ci, size, co, k, s=1, p=0, g=1): keys.append((ci, size, size, co, g, k, k, s, p))
    sizes = {1: (28, 32, 64), 3: (32, 64, 128, 224), 16: (14, 16, 28, 32, 64, 112), 32: (14, 16, 28, 32, 56, 64, 112), 64: (7, 8, 14, 16, 28, 32, 64), 128: (4, 7, 8, 14, 16, 32), 256: (2, 4, 8, 16), 512: (2, 4, 8)}
    for ci, outs in ((1, (8, 16, 32, 64)), (3, (16, 32, 64)), (16, (16, 32)), (32, (32, 64)), (64, (64, 128)), (128, (128, 256)), (256, (256, 512)), (512, (512,))):
        for size in sizes[ci]:
            for co in outs: add(ci, size, co, 3, 1, 1)
            if ci >= 16: add(ci, size, outs[-1], 3, 2, 1); add(ci, size, outs[-1], 1, 2); add(ci, size, outs[-1], 1)
    for size, ci, co, p in ((28, 1, 6, 0), (28, 1, 6, 2), (32, 1, 6, 0), (32, 3, 6, 0), (14, 6, 16, 0), (12, 6, 16, 0), (28, 1, 32, 2), (14, 32, 64, 2), (32, 3, 32, 2), (16, 32, 64, 2), (16, 64, 64, 2)): add(ci, size, co, 5, 1, p)
    for size, ci, co in ((28, 1, 32), (26, 32, 64), (13, 32, 64), (32, 3, 32), (30, 32, 64), (15, 32, 64), (13, 64, 64), (6, 64, 64), (4, 64, 64)): add(ci, size, co, 3)
    for size, co, k in ((32, 192, 4), (32, 384, 4), (64, 192, 8), (64, 384, 8), (224, 192, 16)): add(3, size, co, k, k)
    add(128, 8, 128, 3, 1, 1, 128)
    return list(dict.fromkeys(keys))


def sequence_shapes():
    """Whisper's two convolutions over the frames, of all its widths, and a few of other lengths."""
    keys = [(mel, 1, 3000, d, 1, 1, 3, 1, 1) for mel, widths in ((80, (384, 512, 768, 1024, 1280)), (128, (1280,))) for d in widths]
    keys += [(d, 1, 3000, d, 1, 1, 3, 2, 1) for d in (384, 512, 768, 1024, 1280)]
    return keys + [(c, 1, length, c, 1, 1, k, 1, k // 2) for c in (128, 256) for length in (128, 512) for k in (3, 5)]


def convolutions(out, jobs, budget, which):
    import torch
    from op_requests import pool
    channels_last = which == "channels_last"; line = which == "sequences"
    layout = torch.channels_last if channels_last else torch.contiguous_format
    keys = dict(convolutions=shapes, channels_last=channels_last_shapes, small=small_shapes, sequences=sequence_shapes)[which]()
    print(len(keys), "shapes, imports %.1f" % (time.time() - T0), flush=True)
    jobs_list = [(b, mode) for mode in MODES for b in BATCHES]
    jobs_list.sort(key=lambda j: BATCHES.index(j[0]) + 3 * MODES.index(j[1]))
    def one(b, mode):
        torch.backends.cudnn.allow_tf32 = mode != "fp32"; torch.backends.cuda.matmul.allow_tf32 = mode == "tf32"
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(mode, torch.float32); size = 2 if mode in ("fp16", "bf16") else 4
        req = lambda peak: torch.cuda.memory_stats()["requested_bytes.all." + ("peak" if peak else "current")]
        def beyond(f, result_bytes):
            try:
                torch.cuda.synchronize(); before = req(False); torch.cuda.reset_peak_memory_stats(); r = f(); n = req(True) - before - result_bytes(r); del r
                return n
            except torch.OutOfMemoryError: torch.cuda.empty_cache(); return -2
            except RuntimeError as e: return -1
        with open(os.path.join(out, "%s-%d.jsonl" % (mode, b)), "w") as f:
            torch.zeros(1, device="cuda")
            for k in keys:
                ci, h, w, co, g, kh, kw, s, p = k
                if b * max(ci * h * w, co * h * w // (s * s)) * size > 3.4e9: continue
                if time.time() - T0 > budget: break
                images, kernel = ((b, ci, w), (kw,)) if line else ((b, ci, h, w), (kh, kw)); n = len(kernel)
                x = torch.zeros(images, device="cuda", dtype=dtype); wt = torch.zeros(co, ci // g, *kernel, device="cuda", dtype=dtype)
                if not line: x = x.to(memory_format=layout)
                backend = str(torch._C._select_conv_backend(x, wt, None, (s,) * n, (p,) * n, (1,) * n, False, (0,) * n, g)).split(".")[-1]
                convolve = torch.nn.functional.conv1d if line else torch.nn.functional.conv2d
                fw = beyond(lambda: convolve(x, wt, None, s, p, 1, g), lambda r: r.numel() * size)
                dy = torch.zeros(b, co, *((i + 2 * p - k) // s + 1 for i, k in zip(images[2:], kernel)), device="cuda", dtype=dtype)
                if not line: dy = dy.to(memory_format=layout)
                bw = lambda mask: beyond(lambda: torch.ops.aten.convolution_backward(dy, x, wt, None, (s,) * n, (p,) * n, (1,) * n, False, (0,) * n, g, mask), lambda r: sum(t.numel() for t in r if t is not None) * size)
                f.write(json.dumps([mode, b, *k, backend, fw, bw((True, False, False)), bw((False, True, False))]) + "\n"); del x, wt, dy
    pool([("%s-%d" % (m, b), (lambda b=b, m=m: one(b, m))) for b, m in jobs_list], jobs, lambda s: print(s, flush=True), T0 + budget + 10)


if __name__ == "__main__":
    ap = argparse.ArgumentParser(); ap.add_argument("what"); ap.add_argument("out"); ap.add_argument("--jobs", type=int, default=6); ap.add_argument("--budget", type=float, default=300)
    a = ap.parse_args(); os.makedirs(a.out, exist_ok=True)
    if a.what == "history": histories(a.out, a.jobs, a.budget)
    else: convolutions(a.out, a.jobs, a.budget, a.what)
