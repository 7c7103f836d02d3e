"""What training takes the host for, by family and by mode: tiny models whose kernels take no time take turns in one process.

usage: host_turns.py OUT.jsonl [--seconds N] [--device cuda] [--parts turns,regions,masks,passes]
Each part runs in a process of its own and appends lines; no profiler is at work in any of them.
  turns    families at two depths, plain, under autocast, with checkpoints (not reentrant; re: reentrant), with both, with LoRA: forward, backward,
           optimizer and zero_grad by the host's clock, each from an idle card; before each a loop of Python and forward and backward of a LLaMA of
           two layers, so that every number has the machine's state beside it. "ms": {phase: one of each round}, "beside": [loop us, forward, backward]
  regions  what one region of a checkpoint takes around its function: forward and backward of 20 regions in a row, by what is in them
  masks    a mask by torch.vmap, as transformers 4.57.6 makes it: microseconds, by what it looks up
  passes   AdamW's step over lists of parameters in host memory, by their size and by threads: milliseconds
"""
import argparse, json, os, sys, time, traceback, warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
DEPTHS = (2, 6)
# A library of DeepSpeed's csrc/includes/cpu_adam.h (0.18.5): Step_AVX<8> of floats, compiled with -O3 -march=skylake-avx512 -D__AVX512__ -fopenmp.
ADAM = os.environ.get("ADAM_LIBRARY")
FAMILIES = ("llama", "gpt2", "gpt_neox", "opt", "qwen3", "phi", "gemma2", "gemma3_text", "granitemoe", "t5", "bart", "whisper", "bert", "vit")
CHECKPOINTED = ("llama", "gpt2", "gpt_neox", "opt", "gemma3_text", "t5", "bart", "whisper", "bert", "vit")
MODES = (*(("plain", f) for f in FAMILIES), *(("amp", f) for f in FAMILIES), *(("ckpt", f) for f in CHECKPOINTED), *(("ckpt-re", f) for f in ("llama", "gpt2", "gemma3_text", "vit", "bert")),
         *(("ckpt-amp", f) for f in ("llama", "gpt2", "bert")), *(("lora", f) for f in ("llama", "qwen3", "gemma3_text", "gpt2", "opt", "bart", "bert", "vit")))


def spin():
    begin, x = time.perf_counter(), 0
    for i in range(20000): x += i & 3
    return round(1e6 * (time.perf_counter() - begin), 1)


def build(family, layers, mode, device):
    """(call, parameters, batch) of a tiny model."""
    import torch
    from inference_host import tiny
    torch.manual_seed(0)
    model = tiny(family, layers)
    if family == "whisper":
        import transformers as tf
        model = tf.AutoModelForSpeechSeq2Seq.from_config(type(model.config)(**dict(model.config.to_dict(), max_source_positions=20)), attn_implementation="sdpa")
    amp = mode.endswith("amp")
    dtype = torch.float32 if amp else torch.bfloat16
    model = model.to(dtype)
    if mode == "lora":
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear"))
    if mode.startswith("ckpt"): model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant="re" in mode))
    model = model.to(device).train()
    ids = torch.randint(5, 90, (1, 16), device=device)
    if family == "vit": batch = dict(pixel_values=torch.randn(1, 3, 32, 32, device=device, dtype=dtype), labels=ids[:, 0] * 0)
    elif family == "whisper": batch = dict(input_features=torch.randn(1, 80, 40, device=device, dtype=dtype), labels=ids)
    else: batch = dict(input_ids=ids, labels=ids)
    params = [p for p in model.parameters() if p.requires_grad]

    def call():
        if not amp: return model(**batch).loss
        with torch.autocast(device, dtype=torch.bfloat16): return model(**batch).loss
    return call, params


def turns(emit, device, seconds):
    import torch, transformers
    sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    clock, todo = time.perf_counter, {}
    for mode, family in MODES:
        for layers in DEPTHS:
            try:
                call, params = build(family, layers, mode, device)
                todo[mode, family, layers] = (call, params, torch.optim.AdamW(params, lr=1e-5))
            except Exception as error: emit(kind="error", mode=mode, family=family, layers=layers, error=repr(error)[:300])
    beside, beside_params = build("llama", 2, "plain", device)
    emit(kind="machine", gpu=torch.cuda.get_device_name(0) if device == "cuda" else "none", torch=torch.__version__, transformers=transformers.__version__,
         python=sys.version.split()[0], cores=os.cpu_count(), cpu=next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), ""))
    names = ("forward", "backward", "optimizer", "zero")

    def once(call, params, optimizer=None):
        sync(); t = [clock()]
        loss = call(); t.append(clock()); sync(); s = [clock()]
        loss.backward(); s.append(clock()); del loss; sync()
        got = [t[1] - t[0], s[1] - s[0]]
        if optimizer is not None:
            o = clock(); optimizer.step(); got.append(clock() - o); sync(); o = clock()
            optimizer.zero_grad(); got.append(clock() - o)
        else:
            for p in params: p.grad = None
        return [round(1e3 * x, 3) for x in got]

    rows, sides, end, rounds = {}, {}, None, 0
    for round_ in range(200):
        if round_ == 1: end = clock() + seconds
        if end and round_ > 2 and clock() > end: break
        for key, one in list(todo.items()):
            try:
                state = [spin(), *once(beside, beside_params)]
                got = once(*one)
            except Exception:
                emit(kind="error", mode=key[0], family=key[1], layers=key[2], error=traceback.format_exc()[-500:])
                del todo[key]
                continue
            if round_ >= 2:
                for name, value in zip(names, got): rows.setdefault(key, {}).setdefault(name, []).append(value)
                sides.setdefault(key, []).append(state)
        rounds += 1
    for key, row in rows.items():
        emit(kind="turn", mode=key[0], family=key[1], layers=key[2], tensors=len(todo[key][1]) if key in todo else 0, ms=row, beside=sides[key])
    print("rounds", rounds, flush=True)


def regions(emit, device, seconds):
    import torch
    from torch.utils.checkpoint import checkpoint
    sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    clock = time.perf_counter
    x = torch.randn(16, 64, device=device, requires_grad=True)
    w = torch.nn.Parameter(torch.randn(64, 64, device=device) * 0.1)
    linear = torch.nn.Linear(64, 64, device=device)

    def chain(n):
        def run(y):
            for _ in range(n): y = torch.nn.functional.linear(y, w)
            return y
        return run

    def plain(f): return f
    def wrapped(re, **more): return lambda f: (lambda y: checkpoint(f, y, use_reentrant=re, **more))
    ways = {"plain": plain, "not": wrapped(False), "re": wrapped(True), "not-no-rng": wrapped(False, preserve_rng_state=False), "re-no-rng": wrapped(True, preserve_rng_state=False)}
    bodies = {"linear x1": chain(1), "linear x4": chain(4), "linear x8": chain(8), "module": linear}
    beside, beside_params = build("llama", 2, "plain", device)
    got, sides, end = {}, [], clock() + seconds

    def of(f, amp):
        sync(); t = clock(); y = x
        with torch.autocast(device, dtype=torch.bfloat16, enabled=amp):
            for _ in range(20): y = f(y)
        a = clock() - t; loss = y.sum(); sync(); t = clock(); loss.backward(); b = clock() - t; sync()
        x.grad = w.grad = linear.weight.grad = linear.bias.grad = None
        return [round(1e6 * a / 20, 1), round(1e6 * b / 20, 1)]

    for round_ in range(60):
        if clock() > end: break
        for way, wrap in ways.items():
            for name, body in bodies.items():
                for amp in (False, True):
                    if amp and name not in ("linear x4",): continue
                    value = of(wrap(body), amp)
                    if round_ > 1: got.setdefault((way, name, amp), []).append(value)
        sync(); t = clock(); loss = beside(); f = clock() - t; sync(); t = clock(); loss.backward(); b = clock() - t; sync()
        for p in beside_params: p.grad = None
        if round_ > 1: sides.append([spin(), round(1e3 * f, 3), round(1e3 * b, 3)])
    for (way, name, amp), us in got.items(): emit(kind="region", way=way, of=name, amp=amp, us=us)
    emit(kind="region", way="beside", ms=sides)


def masks(emit, device, seconds):
    """As transformers 4.57.6 makes a mask (masking_utils.py, sdpa_mask_recent_torch): the pattern under four vmaps, and with one or two indices of
    a padding mask or of packed sequences; a LLaMA's step stands before each."""
    import torch
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    clock = time.perf_counter
    beside, beside_params = build("llama", 2, "plain", device)
    length = 16
    place, row = torch.arange(length, device=device), torch.zeros(1, length, dtype=torch.long, device=device)
    keep = row == 0

    def both(*functions):
        def mask(batch, head, query, key):
            result = query.new_ones((), dtype=torch.bool)
            for function in functions: result = result & function(batch, head, query, key).to(result.device)
            return result
        return mask

    def causal(batch, head, query, key): return key <= query
    def packed(batch, head, query, key): return row[batch, query] == row[batch, key]
    def padded(batch, head, query, key): return keep[batch, key]

    def make(function):
        for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)): function = torch.vmap(function, in_dims=dims, out_dims=0)
        keys, batch, head = torch.arange(length, device=device), torch.arange(1, device=device), torch.arange(1, device=device)
        with TransformGetItemToIndex(): return function(batch, head, place, keys)

    ways = {"causal": causal, "causal and causal": both(causal, causal), "padded": both(causal, padded), "packed": both(causal, packed)}
    got, sides, end = {}, {}, clock() + seconds
    for round_ in range(100):
        if clock() > end: break
        for name, function in ways.items():
            sync(); t = clock(); loss = beside(); f = clock() - t; sync(); t = clock(); loss.backward(); b = clock() - t; sync()
            for p in beside_params: p.grad = None
            state = [spin(), round(1e3 * f, 3), round(1e3 * b, 3)]
            sync(); t = clock(); make(function); us = round(1e6 * (clock() - t), 1); sync()
            if round_ > 1: got.setdefault(name, []).append(us); sides.setdefault(name, []).append(state)
    for name, us in got.items(): emit(kind="mask", of=name, us=us, beside=sides[name])


def passes(emit, device, seconds):
    import torch
    clock, end = time.perf_counter, time.perf_counter() + seconds
    emit(kind="cpu", threads=torch.get_num_threads(), cores=os.cpu_count(), capability=torch.backends.cpu.get_cpu_capability())
    cores = torch.get_num_threads()
    lists = {(count, numel, dtype): None for count, numel, dtype in ((8, 16 << 20, "float32"), (64, 2 << 20, "float32"), (512, 64 << 10, "float32"), (8, 16 << 20, "bfloat16"), (512, 2048, "float32"))}
    for (count, numel, dtype) in lists:
        params = [torch.nn.Parameter(torch.zeros(numel, dtype=getattr(torch, dtype))) for _ in range(count)]
        for p in params: p.grad = torch.full_like(p, 1e-3)
        a, b = params[0].detach(), params[1].detach()
        ways = {"adamw": torch.optim.AdamW(params, lr=1e-5), "adamw-fused": torch.optim.AdamW(params, lr=1e-5, fused=True)}
        if dtype == "float32" and numel >= 1 << 20:  # a pass by itself, over tensors that no cache holds
            ways |= {"sgd": torch.optim.SGD(params, lr=1e-5), "foreach": torch.optim.AdamW(params, lr=1e-5, foreach=True)}
        for name, optimizer in ways.items():
            optimizer.step()
            for threads in dict.fromkeys((cores, max(1, cores // 2), max(1, cores // 4), 1)):
                if clock() > end: return
                if threads == 1 and (name not in ("adamw", "adamw-fused") or numel == 16 << 20 and dtype == "bfloat16"): continue
                torch.set_num_threads(threads)
                ms = []
                for _ in range(1 if threads == 1 and numel >= 1 << 20 else 4):
                    t = clock(); optimizer.step(); ms.append(round(1e3 * (clock() - t), 3))
                emit(kind="passes", optimizer=name, tensors=count, numel=numel, dtype=dtype, threads=threads, ms=ms)
        if ADAM and dtype == "float32":
            import ctypes
            from glob import glob
            openmp = ctypes.CDLL((glob(os.path.join(os.path.dirname(torch.__file__), "lib", "libgomp*")) + glob("/usr/lib/*/libgomp.so.1"))[-1], mode=ctypes.RTLD_GLOBAL)
            step = ctypes.CDLL(ADAM).step
            state = [[torch.zeros_like(p) for p in params] for _ in range(2)]
            place = lambda tensor: ctypes.c_void_p(tensor.data_ptr())
            for threads in dict.fromkeys((cores, max(1, cores // 2), max(1, cores // 4), 1)):
                if clock() > end: return
                openmp.omp_set_num_threads(threads)
                ms = []
                for number in range(2 if threads == 1 else 5):
                    t = clock()
                    for p, m, v in zip(params, *state): step(place(p), place(p.grad), place(m), place(v), ctypes.c_size_t(numel), ctypes.c_size_t(number + 1))
                    ms.append(round(1e3 * (clock() - t), 3))
                emit(kind="passes", optimizer="deepspeed", tensors=count, numel=numel, dtype=dtype, threads=threads, ms=ms[1:])
            del state
        torch.set_num_threads(cores)
        if numel >= 1 << 20:
            for name, run in {"add_": lambda p: p.detach().add_(p.grad), "copy_": lambda p: p.grad.copy_(p.detach()), "norm": lambda p: p.grad.norm(), "cast": lambda p: p.detach().to(torch.bfloat16)}.items():
                ms = []
                for _ in range(3):
                    t = clock()
                    for p in params: run(p)
                    ms.append(round(1e3 * (clock() - t), 3))
                emit(kind="passes", optimizer=name, tensors=count, numel=numel, dtype=dtype, threads=cores, ms=ms)
        del params, ways, a, b


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out"); parser.add_argument("--seconds", type=float, default=90); parser.add_argument("--device", default="cuda"); parser.add_argument("--parts", default="turns"); parser.add_argument("--every", type=int, default=1, help="of the turns only each so-manieth: to try it out")
    a = parser.parse_args()
    global MODES
    MODES = MODES[::a.every]
    warnings.filterwarnings("ignore")

    def emit(**values):
        with open(a.out, "a") as out: out.write(json.dumps(values, separators=(",", ":")) + "\n")
    share = dict(turns=1, regions=0.1, masks=0.05, passes=0.3)
    for part in a.parts.split(","):
        child = os.fork()
        if child == 0:
            begin = time.time()
            try: dict(turns=turns, regions=regions, masks=masks, passes=passes)[part](emit, a.device, max(4.0, a.seconds * share[part]))
            except BaseException: emit(kind="error", part=part, error=traceback.format_exc()[-700:])
            print(part, round(time.time() - begin, 1), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__": main()
