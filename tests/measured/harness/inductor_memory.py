"""The memory of a compiled training step by inductor's own code, without a card: inductor_kernels.py's lowering, whose generated code is then
run on fake tensors (kernels do nothing), forward, loss and backward, each storage counted from its first use to its last.

usage: inductor_memory.py '{"model": "gpt2", "layers": 2, "batch": 20, "seq": 224, "precision": "fp32"}' [--events FILE] [--code FILE]
Prints the peak above what lived before the step (parameters, buffers, inputs), in bytes as the allocator rounds them (512), and what
lives at it. FILE of --events gets a line for each request: sign, bytes, live bytes, where (graph's line, or the operator outside of one).
"""
import collections, json, re, sys, types, weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import inductor_kernels as kernels


def rounded(bytes_):
    return -(-bytes_ // 512) * 512


class Live(TorchDispatchMode):
    """Counts the storages of fake tensors."""

    def __init__(self):
        super().__init__()
        self.seen, self.live, self.peak, self.at_peak, self.events = {}, 0, 0, {}, []
        self.alive, self.where = {}, ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.look(result, str(func))
        return result

    def look(self, value, name):
        for tensor in torch.utils._pytree.tree_leaves(value):
            if isinstance(tensor, torch.Tensor):
                self.add(tensor, name)

    def add(self, tensor, name):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.seen:
            return
        bytes_ = rounded(storage.nbytes())
        self.seen[key] = bytes_
        weakref.finalize(storage, self.gone, key)
        if bytes_:
            self.live += bytes_
            where = self.where or name
            self.alive[key] = (bytes_, where)
            self.events.append(("+", bytes_, self.live, where))
            if self.live > self.peak:
                self.peak, self.at_peak = self.live, dict(self.alive)

    def take_as_given(self, tensor):
        """Parameters, inputs and what other graphs have handed over."""
        if not isinstance(tensor, torch.Tensor) or tensor.untyped_storage()._cdata in self.seen:
            return
        storage = tensor.untyped_storage()
        self.seen[storage._cdata] = 0
        weakref.finalize(storage, self.gone, storage._cdata)

    def gone(self, key):
        bytes_ = self.seen.pop(key, 0)
        if bytes_:
            self.live -= bytes_
            _, where = self.alive.pop(key)
            self.events.append(("-", bytes_, self.live, where))


LIVE = Live()


class Nothing:
    """Kernels do nothing."""

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **kwargs):
        return None


def runner_of(code, part):
    """The call() of generated code, its kernels left out; each line says where it stands before it runs."""
    body = code[code.index("class Runner"):code.index("\nrunner = Runner")]
    lines = []
    for number, line in enumerate(body.split("\n")):
        found = re.match(r"^( {12})(buf\d+) = (?!buf|reinterpret)", line)
        if found:
            lines.append(f"{found.group(1)}LIVE.where = {part + ' ' + line.strip()[:90]!r}")
        lines.append(line)
    names = set(re.findall(r"\b(triton_\w+)\.run", body))
    space = dict(torch=torch, aten=torch.ops.aten, extern_kernels=Nothing(), LIVE=LIVE, inductor_ops=torch.ops.inductor,
                 get_raw_stream=lambda i: 0, assert_size_stride=lambda *a: None, assert_alignment=lambda *a: None,
                 empty_strided_cuda=lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype),
                 reinterpret_tensor=lambda t, size, stride, offset=0: t.as_strided(size, stride, t.storage_offset() + offset),
                 run_intermediate_hooks=lambda *a: None, device=torch.device, empty_strided=torch.empty_strided,
                 **{name: Nothing() for name in names})
    exec("\n".join(lines), space)
    runner = space["Runner"](partitions=[])

    def call(args):
        for tensor in args:
            LIVE.take_as_given(tensor)
        with LIVE:  # Dynamo traces nothing under a mode of dispatch
            return runner.call(args)
    return call


def main():
    case = json.loads(sys.argv[1])
    kernels.patch_device()
    kernels.patch_inductor()
    from torch._inductor.graph import GraphLowering
    from torch._subclasses.fake_tensor import FakeTensorMode
    codes = []

    def lines(self, wrapper_code):
        part = ("backward" if self.is_backward else "forward") + str(len(codes))
        codes.append((part, wrapper_code.value))
        return types.SimpleNamespace(call=runner_of(wrapper_code.value, part), __file__="/tmp/x.py", runner=None,
                                     benchmark_compiled_module=None)
    GraphLowering._compile_to_module_lines = lines
    torch.nn.functional.scaled_dot_product_attention = kernels.attention
    torch.cuda._DeviceGuard = lambda i: __import__("contextlib").nullcontext()
    torch.cuda.device = lambda i: __import__("contextlib").nullcontext()
    cfg, cls = kernels.build(case)
    dtype = dict(bf16=torch.bfloat16, fp32=torch.float32)[case["precision"]]
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = cls._from_config(cfg, dtype=dtype)
        model.train()
        batch = kernels.batch_of(case, dtype)
        compiled = torch.compile(model)
        loss = compiled(**batch).loss
        LIVE.events.append(("=", 0, LIVE.live, "backward begins"))
        loss.backward()
        LIVE.events.append(("=", 0, LIVE.live, "backward has ended"))
    print("peak", LIVE.peak, "at the end", LIVE.live)
    for bytes_, where in sorted(LIVE.at_peak.values(), reverse=True)[:40]:
        print(f"{bytes_:>14,} {where}")
    if "--events" in sys.argv:
        with open(sys.argv[sys.argv.index("--events") + 1], "w") as f:
            for sign, bytes_, live, where in LIVE.events:
                f.write(f"{sign}\t{bytes_}\t{live}\t{where}\n")
    if "--code" in sys.argv:
        with open(sys.argv[sys.argv.index("--code") + 1], "w") as f:
            for part, code in codes:
                f.write("#" * 30 + part + "\n" + code)


if __name__ == "__main__":
    main()
