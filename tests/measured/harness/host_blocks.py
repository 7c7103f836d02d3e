"""What training takes the host where its code is warm, as in a loop of one model: tiny models in blocks of steps; adapters beside the same
models without; compiled ones by what their code calls; optimizers in host memory by the number of threads.

usage: host_blocks.py OUT.jsonl --parts blocks|compiled|passes [--seconds N] [--device cuda]
No profiler is at work in any process. Lines:
  block     of a model (mode, family, layers) a block of steps: milliseconds of forward, backward, optimizer and zero_grad of each, each from an idle
            card, and a loop of Python at each step ("loop", microseconds). Blocks of all models take turns
  compiled  the same of a tiny model under torch.compile, one process each: they compile beside each other and are timed one after the other; "code":
            of the code of each graph how often it launches a Triton kernel, calls a product (extern_kernels), an operator of PyTorch, makes a
            buffer, checks one
  passes    a step of AdamW in host memory: milliseconds by kind of loop, by OMP_NUM_THREADS (a process for each) and by the lists' size
"""
import argparse, json, os, re, sys, time, traceback, warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
ADAM = os.environ.get("ADAM_LIBRARY")  # as in host_turns.py
BLOCKS = ([("plain", family, 8) for family in ("llama", "bert", "gpt2", "vit", "qwen3", "gemma3_text", "opt", "bart", "gpt_neox", "phi", "granitemoe", "t5", "whisper", "gemma2")]
          + [("lora", family, 8) for family in ("llama", "bert", "gpt2", "qwen3")] + [("plain", family, 2) for family in ("llama", "bert", "vit", "opt")])
COMPILED = [("gpt2", 4), ("gpt2", 12), ("bert", 4), ("bert", 12), ("llama", 4), ("llama", 12)]
STEPS, NAMES = 7, ("forward", "backward", "optimizer", "zero")
CALLS = dict(triton=r"\.run\(", product=r"extern_kernels\.", operator=r"torch\.ops\.", buffer=r"= empty_strided_cuda\(|= empty_strided\(", check=r"assert_size_stride\(",
             view=r"reinterpret_tensor\(", drop=r"^\s*del ")


def spin():
    begin, x = time.perf_counter(), 0
    for i in range(20000): x += i & 3
    return round(1e6 * (time.perf_counter() - begin), 1)


def made(mode, family, layers, device):
    """(call, parameters) of a tiny model that trains."""
    import torch
    from host_turns import build
    if mode != "fp32": return build(family, layers, mode, device)
    from inference_host import tiny
    model = tiny(family, layers).to(device).train()
    ids = torch.randint(5, 90, (1, 16), device=device)
    return (lambda: model(input_ids=ids, labels=ids).loss), list(model.parameters())


def timed(call, parameters, optimizer, steps, sync):
    clock, rows = time.perf_counter, {name: [] for name in (*NAMES, "loop")}
    for _ in range(steps):
        rows["loop"].append(spin())
        sync(); t = [clock()]
        loss = call(); t.append(clock()); sync(); t.append(clock())
        loss.backward(); t.append(clock()); del loss; sync(); t.append(clock())
        if optimizer: optimizer.step()
        t.append(clock()); sync(); t.append(clock())
        if optimizer: optimizer.zero_grad()
        else:
            for each in parameters: each.grad = None
        t.append(clock())
        for i, name in enumerate(NAMES): rows[name].append(round(1e3 * (t[2 * i + 1] - t[2 * i]), 3))
    return rows


def blocks(emit, device, seconds):
    import torch
    sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    begin = time.time()
    todo, end = [], begin + seconds  # what making the models takes is in them
    for key in BLOCKS:
        try:
            call, parameters = made(*key, device)
            todo.append((key, call, parameters, torch.optim.AdamW(parameters, lr=1e-5)))
        except Exception: emit(kind="error", of=key, error=traceback.format_exc()[-400:])
    for number in range(60):
        for key, *one in todo:
            if number > 1 and time.time() > end: return
            try: rows = timed(*one, 4 if number == 0 else STEPS, sync)
            except Exception:
                emit(kind="error", of=key, error=traceback.format_exc()[-400:])
                todo = [each for each in todo if each[0] != key]
                continue
            if number: emit(kind="block", mode=key[0], family=key[1], layers=key[2], tensors=len(one[1]), ms={name: values[2:] for name, values in rows.items()})


def compiled(emit, device, seconds):
    import torch  # never asked for its cards here
    import transformers
    from inference_host import tiny
    children = []
    for family, layers in COMPILED:
        (said, say), (told, tell) = os.pipe(), os.pipe()
        process = os.fork()
        if process == 0:
            code = []
            from torch._inductor.graph import GraphLowering
            GraphLowering.save_output_code = staticmethod(code.append)
            try:
                sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)
                torch.manual_seed(0)
                model = tiny(family, layers).to(device, torch.bfloat16).train()
                run = torch.compile(model)
                ids = torch.randint(5, 90, (2, 64), device=device)
                call, parameters = (lambda: run(input_ids=ids, labels=ids).loss), list(model.parameters())
                begin = time.time()
                timed(call, parameters, None, 4, sync)
                took = round(time.time() - begin, 1)
                counts = [{name: len(re.findall(pattern, text, re.M)) for name, pattern in CALLS.items()} for text in code]
                os.write(say, b"w"); os.read(told, 1)
                rows = timed(call, parameters, None, 40, sync)
                eager = timed(lambda: model(input_ids=ids, labels=ids).loss, parameters, None, 20, sync)
                emit(kind="compiled", family=family, layers=layers, compile_s=took, tensors=len(parameters), code=counts,
                     ms={name: values[3:] for name, values in rows.items()}, eager={name: values[3:] for name, values in eager.items()})
            except BaseException: emit(kind="error", part=f"compiled {family} {layers}", error=traceback.format_exc()[-700:])
            os.write(say, b"e")
            os._exit(0)
        os.close(say)
        children.append((process, said, tell))
    for process, said, tell in children:
        os.read(said, 1)  # compiled, or failed
    for process, said, tell in children:
        os.write(tell, b"g")
        os.waitpid(process, 0)


def pass_times(emit, threads):
    import torch
    clock = time.perf_counter
    emit(kind="cpu", threads=torch.get_num_threads(), asked=threads, cores=os.cpu_count(), capability=torch.backends.cpu.get_cpu_capability())
    for count, numel, dtype in ((8, 8 << 20, "float32"), (64, 1 << 20, "float32"), (8, 8 << 20, "bfloat16"), (400, 16 << 10, "float32")):
        parameters = [torch.nn.Parameter(torch.zeros(numel, dtype=getattr(torch, dtype))) for _ in range(count)]
        for each in parameters: each.grad = torch.full_like(each, 1e-3)
        ways = {"adamw-fused": torch.optim.AdamW(parameters, lr=1e-5, fused=True).step, "adamw": torch.optim.AdamW(parameters, lr=1e-5).step}
        if ADAM and dtype == "float32":
            import ctypes
            step = ctypes.CDLL(ADAM).step
            state = [[torch.zeros_like(each) for each in parameters] for _ in range(2)]
            place = lambda tensor: ctypes.c_void_p(tensor.data_ptr())

            def deepspeed():
                for p, m, v in zip(parameters, *state): step(place(p), place(p.grad), place(m), place(v), ctypes.c_size_t(numel), ctypes.c_size_t(2))
            ways["deepspeed"] = deepspeed
        if count == 8:
            ways["scale"] = lambda: [each.grad.mul_(0.5) for each in parameters]
            ways["norm"] = lambda: [each.grad.norm() for each in parameters]
            if dtype == "float32":
                narrow = [torch.zeros(numel, dtype=torch.bfloat16) for _ in parameters]
                ways["narrow"] = lambda: [to.copy_(each.detach()) for to, each in zip(narrow, parameters)]
        for name, run in ways.items():
            run()
            ms = []
            for _ in range(2 if threads == 1 and name == "adamw" else 4):
                t = clock(); run(); ms.append(round(1e3 * (clock() - t), 3))
            emit(kind="passes", of=name, tensors=count, numel=numel, dtype=dtype, threads=threads, ms=ms)


def passes(emit, device, seconds):
    end = time.time() + seconds
    for threads in (16, 1, 8, 4, 2):
        if time.time() > end: return
        process = os.fork()
        if process == 0:
            os.environ["OMP_NUM_THREADS"] = str(threads)
            try: pass_times(emit, threads)
            except BaseException: emit(kind="error", part="passes", error=traceback.format_exc()[-500:])
            os._exit(0)
        os.waitpid(process, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out"); parser.add_argument("--parts", required=True); parser.add_argument("--seconds", type=float, default=30); parser.add_argument("--device", default="cuda")
    a = parser.parse_args()
    warnings.filterwarnings("ignore")

    def emit(**values):
        with open(a.out, "a") as out: out.write(json.dumps(values, separators=(",", ":")) + "\n")
    for part in a.parts.split(","):
        begin = time.time()
        try: dict(blocks=blocks, compiled=compiled, passes=passes)[part](emit, a.device, a.seconds)
        except BaseException: emit(kind="error", part=part, error=traceback.format_exc()[-700:])
        print(part, round(time.time() - begin, 1), flush=True)


if __name__ == "__main__": main()
