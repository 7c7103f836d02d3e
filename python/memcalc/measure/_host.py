"""How fast this machine's host issues operators: `python -m memcalc.measure --host FILE` writes it for `--host FILE`.

Every clock runs on the host while the card is never waited for, so a card as small as any will do. It takes about half a
minute. What needs no card of its own (Python around operators, loops, wrappers) is scaled by how long tiny models of
transformers take to be issued, over what they took on the host of specs/measured/h100-sxm/rates.json.
"""
from __future__ import annotations

import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any, Callable

SCHEMA_VERSION = 1
# Microseconds of forward and backward of the tiny models below on the reference host (eight layers, float32).
REFERENCE_MODELS = {"bert": (3264.0, 7981.0), "llama": (10009.0, 13513.0), "gpt2": (5792.0, 7098.0)}
# Rates of Python that is not an operator: they go with the tiny models' forward.
PYTHON_RATES = ("python_us", "forward_us", "checkpoint_forward_us", "checkpoint_backward_us", "packed_tensor_us", "unpacked_tensor_us",
                "trainer_step_us", "trainer_batch_us", "trainer_tensor_us", "vmapped_index_us", "model_call_us", "generate_us", "generated_token_us",
                "generate_encoder_us", "packed_linear_us", "int8_linear_us", "int8_warning_us")


def _median_us(call: Callable[[], Any], calls: int) -> float:
    import torch
    call()
    torch.cuda.synchronize()
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        for _ in range(calls): call()
        times.append((time.perf_counter() - begin) / calls * 1e6)
        torch.cuda.synchronize()
    return statistics.median(times)


def _operators() -> dict[str, float]:
    import torch
    from torch.nn import functional
    def random(*shape: int) -> Any: return torch.randn(*shape, device="cuda", requires_grad=True)
    x, y, x4 = random(8, 64), random(8, 64), random(2, 16, 4, 64)
    linear, norm = torch.nn.Linear(64, 64, device="cuda"), torch.nn.LayerNorm(64, device="cuda")
    query = torch.randn(2, 4, 16, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    image = random(2, 16, 8, 8)
    convolution, batch_norm = torch.nn.Conv2d(16, 16, 3, padding=1, device="cuda"), torch.nn.BatchNorm2d(16, device="cuda")
    host = torch.zeros(8, 64)
    calls: dict[str, Callable[[], Any]] = {
        "add": lambda: x + y, "scale": lambda: x * 0.5, "gelu": lambda: functional.gelu(x), "view": lambda: x4.view(2, 16, 256),
        "transpose": lambda: x4.transpose(1, 2), "layer_norm": lambda: norm(x), "linear": lambda: linear(x),
        "attention": lambda: functional.scaled_dot_product_attention(query, query, query), "convolution": lambda: convolution(image),
        "batch_norm": lambda: batch_norm(image), "copy": lambda: host.cuda(),
        "cast": lambda: x.to(torch.bfloat16), "matmul": lambda: x @ y.t(), "max_pool": lambda: functional.max_pool2d(image, 2)}
    return {name: _median_us(call, 200) for name, call in calls.items()}


def _backward(step: Callable[[Any], Any]) -> float:
    """Microseconds of a node of backward with what it launches."""
    import torch
    times = {}
    for length in (50, 150):
        each = []
        for _ in range(9):
            first = torch.randn(8, 64, device="cuda", requires_grad=True)
            value = first
            for _ in range(length): value = step(value)
            loss = value.sum()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            loss.backward()
            each.append((time.perf_counter() - begin) * 1e6)
            torch.cuda.synchronize()
        times[length] = statistics.median(each)
    return (times[150] - times[50]) / 100


def _optimizer(make: Callable[[Any], Any]) -> tuple[float, float]:
    """Microseconds of each parameter in a step, and of each in zero_grad."""
    import torch
    steps, zeros = {}, {}
    for count in (50, 250):
        parameters = [torch.nn.Parameter(torch.randn(64, device="cuda")) for _ in range(count)]
        gradients = [torch.randn_like(each) for each in parameters]
        for parameter, gradient in zip(parameters, gradients): parameter.grad = gradient
        optimizer = make(parameters)
        optimizer.step()
        steps[count] = _median_us(optimizer.step, 8)
        each = []
        for _ in range(9):
            for parameter in parameters: parameter.grad = torch.empty_like(parameter)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            each.append((time.perf_counter() - begin) * 1e6)
        zeros[count] = statistics.median(each)
    return (steps[250] - steps[50]) / 200, (zeros[250] - zeros[50]) / 200


def _tiny_models() -> dict[str, tuple[float, float]]:
    """(forward, backward) microseconds of the host."""
    import torch
    import transformers
    torch.manual_seed(0)
    ids = torch.randint(0, 90, (1, 16), device="cuda")
    small = dict(vocab_size=99, hidden_size=64, num_hidden_layers=8, num_attention_heads=4, intermediate_size=128)
    models: dict[str, Callable[[], tuple[Any, Any]]] = {
        "bert": lambda: (transformers.BertForSequenceClassification(transformers.BertConfig(**small)), ids[:, 0] * 0),
        "llama": lambda: (transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **small)), ids),
        "gpt2": lambda: (transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=99, n_embd=64, n_layer=8, n_head=4)), ids)}
    measured = {}
    for name, make in models.items():
        model, labels = make()
        model = model.cuda().train()
        forward, backward = [], []
        for _ in range(24):
            model.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            loss = model(input_ids=ids, labels=labels).loss
            middle = time.perf_counter()
            torch.cuda.synchronize()
            again = time.perf_counter()
            loss.backward()
            end = time.perf_counter()
            forward.append((middle - begin) * 1e6)
            backward.append((end - again) * 1e6)
        measured[name] = (statistics.median(forward[6:]), statistics.median(backward[6:]))
    return measured


def _queue() -> int:
    """Launches that fit behind a long kernel before the host has to wait."""
    import torch
    long, short = torch.randn(8192, 8192, device="cuda"), torch.randn(8, device="cuda")
    torch.cuda.synchronize()
    for _ in range(24): long @ long
    times = []
    for _ in range(3000):
        begin = time.perf_counter()
        short.add_(1)
        times.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
    return next((number for number, each in enumerate(times) if each > 1e-3), 0)


def host_rates(operators: dict[str, float], nodes: dict[str, float], optimizer: tuple[float, float], python_scale: float, queue: int,
               reference: dict[str, float]) -> dict[str, float]:
    """The rates of a host file, in microseconds. `optimizer`: of each parameter in AdamW's step and in zero_grad."""
    pointwise = statistics.median([operators["add"], operators["scale"], operators["gelu"], operators["cast"]])
    passes = 18  # of AdamW over its lists
    of_list = reference["tensor_us"] * python_scale
    rates = dict(
        pointwise_us=pointwise, normalization_us=operators["layer_norm"], image_us=operators["batch_norm"],
        product_us=operators["linear"] - operators["view"],  # a Linear passes a transposed weight
        attention_us=operators["attention"], convolution_us=operators["convolution"],
        view_us=statistics.median([operators["view"], operators["transpose"]]),
        node_us=statistics.median([nodes["scale"] - pointwise, nodes["gelu"] - pointwise, nodes["view"]]),
        copy_us=operators["copy"], tensor_us=of_list, optimizer_tensor_us=max(optimizer[0] - passes * of_list, 0.5),
        zeroed_tensor_us=max(optimizer[1], 0.1))
    rates.update({name: reference[name] * python_scale for name in PYTHON_RATES})
    if queue > 0: rates["queue_kernels"] = queue
    return {name: round(value, 3) for name, value in rates.items()}


def measure_host(reference: dict[str, float]) -> dict[str, Any]:
    """The content of a host file. `reference`: the host's rates in specs/measured/h100-sxm/rates.json."""
    import torch
    from torch.nn import functional
    if not torch.cuda.is_available(): raise RuntimeError("--host: found no CUDA device; accepted: a machine with one, to which operators are issued")
    torch.cuda.init()
    operators, models = _operators(), _tiny_models()
    scale = statistics.median([models[name][0] / forward for name, (forward, _) in REFERENCE_MODELS.items()])
    norm = torch.nn.LayerNorm(64, device="cuda")
    nodes = {"scale": _backward(lambda value: value * 0.5), "gelu": _backward(functional.gelu), "layer_norm": _backward(norm),
             "view": _backward(lambda value: value.view(64, 8).view(8, 64)), "add": _backward(lambda value: value + 1)}
    optimizer = _optimizer(lambda parameters: torch.optim.AdamW(parameters, foreach=True))
    return dict(schema_version=SCHEMA_VERSION, name=platform.node() or "host", cpu=_cpu(), gpu=torch.cuda.get_device_name(0),
                torch=torch.__version__, python=platform.python_version(), date=time.strftime("%Y-%m-%d"),
                rates=host_rates(operators, nodes, optimizer, scale, _queue(), reference),
                measured=dict(operators_us=_rounded(operators), nodes_us=_rounded(nodes),
                              models_us={name: [round(each) for each in both] for name, both in models.items()},
                              adamw_us=[round(each, 2) for each in optimizer], python_scale=round(scale, 3)))


def _rounded(values: dict[str, float]) -> dict[str, float]: return {name: round(value, 2) for name, value in values.items()}


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def write_host(path: str, specs: str) -> str:
    """Measures this machine and writes its file; what to say of it."""
    reference = json.loads((Path(specs) / "measured/h100-sxm/rates.json").read_text())["host"]
    host = measure_host(reference)
    Path(path).write_text(json.dumps(host, indent=2) + "\n")
    measured = host["measured"]
    return (f"{path}: {host['cpu']}, an operator {host['rates']['pointwise_us']:.1f} us, a node of backward "
            f"{host['rates']['node_us']:.1f} us, Python {measured['python_scale']:.2f} times the reference host's")
