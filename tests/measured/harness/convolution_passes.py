"""Times convolutions of networks, one pass at a time, on a card.

usage: convolution_passes.py shapes OUT.jsonl                       the convolutions of 360 networks of timm and torchvision (meta device)
       convolution_passes.py networks OUT.jsonl NAME[@SIZE] ...         the convolutions of these networks of torchvision, of images of SIZE [224]
       convolution_passes.py time SHAPES.jsonl OUT.jsonl SECONDS SEED [images] [lock=FILE]
                                                                        `images`: without groups, a third channels last; `lock`: of several
                                                                        processes one at a time runs kernels, while others plan (cuDNN plans on the host)

A row: [layout, type, N, [C, ...], [K, C / groups, ...], stride, padding, dilation, groups, transposed, us of forward, input gradient,
weight gradient]. Each call stands behind others, so that no launch is waited for; what comes before has written the pass's own
operand, all else is out of the cache. Two events around a kernel add 2.4 us (operator_times.py, element-wise operators of 64).
"""
import json, multiprocessing, random, sys, time, warnings
warnings.filterwarnings("ignore")


def convolutions_of(job):
    import torch; torch.set_num_threads(1)
    kind, name, size = job
    found = []
    try:
        with torch.device("meta"):
            if kind == "timm": import timm; m = timm.create_model(name)
            elif kind == "tv": import torchvision; m = getattr(torchvision.models, name)(weights=None)
            elif kind == "seg": import torchvision; m = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None)
            else: import torchvision; m = getattr(torchvision.models.video, name)(weights=None)
        def hook(mod, args, out):
            x = args[0]
            found.append([x.dim() - 2, list(x.shape[1:]), list(mod.weight.shape), list(mod.stride), list(mod.padding) if not isinstance(mod.padding, str) else [((k - 1) * d) // 2 for k, d in zip(mod.kernel_size, mod.dilation)], list(mod.dilation), mod.groups, getattr(mod, "transposed", False)])
        for mod in m.modules():
            if isinstance(mod, torch.nn.modules.conv._ConvNd): mod.register_forward_hook(hook)
        m.eval()
        x = torch.empty(1, 3, 16, 112, 112, device="meta") if kind == "video" else torch.empty(1, 3, size, size, device="meta")
        with torch.no_grad(): m(x)
    except Exception as e:
        if not found: return name, []
    return name, found


def shapes(out):
    import timm, torchvision, random
    r = random.Random(22)
    names = [n for n in timm.list_models() if not any(w in n for w in ("vit_", "deit", "giant", "eva", "beit", "huge", "gmlp", "mixer", "_test"))]
    r.shuffle(names)
    jobs = []
    for n in names[:330]:
        try: size = timm.get_pretrained_cfg(n).input_size[-1] if timm.get_pretrained_cfg(n) else 224
        except Exception: size = 224
        jobs.append(("timm", n, min(size, 384)))
    jobs += [("tv", n, 224) for n in ("resnet18", "resnet50", "vgg11", "vgg16_bn", "alexnet", "squeezenet1_0", "densenet121", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_v2_s", "regnet_y_800mf", "regnet_x_3_2gf", "resnext50_32x4d", "wide_resnet50_2", "shufflenet_v2_x1_0", "mnasnet1_0", "convnext_tiny", "inception_v3", "googlenet")]
    jobs += [("seg", n, s) for n in ("fcn_resnet50", "deeplabv3_resnet50", "lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large") for s in (256, 320, 512)]
    jobs += [("video", n, 0) for n in ("r3d_18", "mc3_18", "r2plus1d_18")]
    with multiprocessing.Pool(10) as pool, open(out, "w") as f:
        for name, found in pool.imap_unordered(convolutions_of, jobs):
            if found: f.write(json.dumps([name, found], separators=(",", ":")) + "\n")


def networks(out, *names):
    with open(out, "w") as file:
        for name, _, size in (each.partition("@") for each in names):
            file.write(json.dumps(convolutions_of(("tv", name, int(size or 224))), separators=(",", ":")) + "\n")


def measure(source, out, seconds, seed, *options):
    import contextlib, fcntl, torch
    images, lock = "images" in options, next((open(o[5:], "w") for o in options if o.startswith("lock=")), None)

    @contextlib.contextmanager
    def alone():
        if lock: fcntl.flock(lock, fcntl.LOCK_EX)
        try: yield
        finally:
            if lock: fcntl.flock(lock, fcntl.LOCK_UN)
    R = random.Random(seed); A = torch.ops.aten
    pool = {}
    for line in open(source):
        name, found = json.loads(line)
        for s in found: pool.setdefault(json.dumps(s), name)
    names, pool = pool, [json.loads(s) for s in pool]
    def is_depthwise(s): return s[6] > 1 and s[2][1] == 1 and s[6] == s[1][0]
    classes = {"depthwise": [], "groups": [], "3d": [], "dilated": [], "few": [], "1x1": [], "dense": []}
    for s in pool:
        classes["3d" if s[0] == 3 else "depthwise" if is_depthwise(s) else "groups" if s[6] > 1 else "dilated" if max(s[5]) > 1 else "few" if s[1][0] <= 4 else "1x1" if all(k == 1 for k in s[2][2:]) else "dense"].append(s)
    print({k: len(v) for k, v in classes.items()})
    by_network = {}
    for each in pool:
        if not is_depthwise(each): by_network.setdefault(names[json.dumps(each)], []).append(each)
    def speech():
        r = R.random()
        if r < .4:  # relative positions of wav2vec2 and others
            c = R.choice((384, 512, 768, 1024)); g = R.choice((8, 16, 16, 16, 32)); k = R.choice((31, 64, 128, 128, 128))
            return [1, [c, R.choice((49, 99, 149, 249, 399, 499, 749, 999))], [c, c // g, k], [1], [k // 2], [1], g, False]
        if r < .7:
            c = R.choice((80, 128, 384, 512, 768, 1024)); l = R.choice((500, 1000, 1500, 3000, 1599, 7999, 15999)); k = R.choice((3, 3, 2, 5, 10, 1))
            return [1, [c, l], [R.choice((256, 384, 512, 768)), c, k], [R.choice((1, 2, 2))], [R.choice((0, k // 2))], [1], 1, False]
        c = R.choice((512, 1024, 1536, 2048, 2304)); k = R.choice((3, 4, 4, 7, 9, 31))  # of states, of conformers
        return [1, [c, R.choice((256, 512, 1024, 2048))], [c, 1, k], [1], [R.choice((k // 2, k - 1))], [1], c, False]
    def volume():
        c, k = R.choice((1, 4, 16, 32, 64, 128)), R.choice((3, 16, 32, 64, 128)); d = R.choice((16, 24, 32, 48, 64, 96)); w = R.choice((1, 2, 3, 3, 3)); s = 2 if w == 2 else R.choice((1, 1, 2))
        if R.random() < .25: return [3, [c, d // 2, d // 2, d // 2], [c, k, 2, 2, 2], [2] * 3, [0] * 3, [1] * 3, 1, True]
        return [3, [c, d, d, d], [k, c] + [w] * 3, [s] * 3, [w // 2] * 3, [1] * 3, 1, False]
    def transposed():
        c, k = R.choice((32, 64, 128, 256, 512)), R.choice((3, 16, 32, 64, 128, 256)); h = R.choice((7, 14, 28, 32, 56, 64)); w = R.choice((2, 2, 3, 4, 4))
        return [2, [c, h, h], [c, k, w, w], [2, 2], [(w - 1) // 2 if w > 2 else 0] * 2, [1, 1], 1, True]
    def draw():
        if lock: return R.choice(by_network[R.choice(sorted(by_network))])
        if images: return R.choice(classes[R.choices(("few", "1x1", "dense"), (4, 36, 60))[0]])
        r = R.random()
        if r < .06: return speech()
        if r < .10: return volume()
        if r < .125: return transposed()
        kind = R.choices(list(classes), (18, 22, 4, 6, 4, 18, 28))[0]
        return R.choice(classes[kind]) if classes[kind] else draw()
    EVICT = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    def clock(fn, touched, times=3):
        fn(); marks = []
        torch.cuda.synchronize()
        with alone():
            torch.cuda._sleep(600_000)
            for _ in range(times):
                EVICT.zero_(); touched.add_(0)
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record(); fn(); b.record(); marks.append((a, b))
            torch.cuda.synchronize()
        return round(min(a.elapsed_time(b) for a, b in marks) * 1e3, 2)
    f = open(out, "w"); t0 = time.time(); count = 0
    TYPE = {"bf16": torch.bfloat16, "fp16": torch.float16}
    while time.time() - t0 < seconds:
        dims, x0, w0, stride, pad, dil, g, tr = draw()
        n = R.choice((1, 2, 4, 8, 8, 16, 16, 32, 32, 64, 64, 128, 256) if lock is None else (8, 16, 32, 32, 48, 64, 64, 96, 96, 112, 128, 128, 160, 192, 256))
        if dims == 3: n = min(n, 8)
        size = n
        for v in x0: size *= v
        outs = [(i - 1) * s - 2 * p + d * (k - 1) + 1 if tr else (i + 2 * p - d * (k - 1) - 1) // s + 1 for i, s, p, d, k in zip(x0[1:], stride, pad, dil, w0[2:])]
        if min(outs) < 1: continue
        ko = w0[1] * g if tr else w0[0]; osize = n * ko; flops = 2 * n * (x0[0] if tr else ko) * w0[1]
        for v in (x0[1:] if tr else outs): flops *= v
        for v in outs: osize *= v
        for v in w0[2:]: flops *= v
        if size > (1.6e8 if lock is None else 4e8) or osize > (1.6e8 if lock is None else 4e8) or flops > (1.5e11 if lock is None else 3e11): continue
        for kind in R.sample(("bf16", "tf32", "fp32", "bf16", "fp16"), 2) if lock is None else ("fp32", R.choice(("bf16", "fp16", "tf32"))):
            layout = "nhwc" if dims == 2 and R.random() < (.33 if images else .18 if lock is None else .1) else "nchw"
            dt = TYPE.get(kind, torch.float32); torch.backends.cudnn.allow_tf32 = kind != "fp32"
            mf = torch.channels_last if layout == "nhwc" else torch.contiguous_format
            try:
                x = torch.randn(n, *x0, device="cuda", dtype=dt).contiguous(memory_format=mf); w = (torch.randn(w0, device="cuda", dtype=dt) * .05).contiguous(memory_format=mf)
                args = (None, stride, pad, dil, tr, [0] * dims, g)
                with torch.no_grad():
                    fw = lambda: A.convolution(x, w, *args)
                    dy = torch.randn_like(fw())
                    bw = lambda m: A.convolution_backward(dy, x, w, None, *args[1:], m)
                    us = [clock(fw, x), clock(lambda: bw([True, False, False]), dy), clock(lambda: bw([False, True, False]), dy)]
                f.write(json.dumps([layout, kind, n, x0, w0, stride, pad, dil, g, tr, *us], separators=(",", ":")) + "\n"); count += 1
                del x, w, dy
            except RuntimeError as e: print("failed", layout, kind, n, x0, w0, str(e)[:80]); torch.cuda.empty_cache()
        if count % 200 == 0: f.flush()
    f.close(); print(out, count, "rows")


if __name__ == "__main__":
    if sys.argv[1] == "shapes": shapes(sys.argv[2])
    elif sys.argv[1] == "networks": networks(*sys.argv[2:])
    else: measure(sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5]), *sys.argv[6:])
