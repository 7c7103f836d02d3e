"""How fast this machine's host issues operators: `python -m memcalc.measure --host FILE` writes it for `--host FILE`.

Every clock runs on the host while the card is never waited for, so a card as small as any will do. What is timed is whole
models: tiny ones of transformers, which take turns for some seconds. Each rate of the host file is the reference host's
(specs/measured/h100-sxm/rates.json) times what their forward took over what those rates say of it; `backward_ratio` is what backward, which another
thread issues, took over what its operators say, over that. Last an optimizer steps in host memory, with the threads that this process has. Loops of one
operator are not timed: their code and data stay in the processor's caches, which a model's do not, and a machine that was 1.42
times as slow in such loops was as quick in models (specs/measured/hosts.json). A process in which torch.profiler has been at work
is slower than others (docs/time.md): take a fresh one, as `python -m memcalc.measure` does.

Calls of a model that does not train are timed first, without autograd, before any backward pass has run in the process: between
backward passes, whose thread wakes and sleeps, forward takes longer (docs/time.md). What they are of the reference host's calls, over
what forward in training is of its training, is the file's `call_ratio`.

Beside each round of them runs a loop of Python. Where the other thread of a processor's core is busy, which a virtual machine does not see,
such a loop takes 1.9 times as long, and a call 1.55 times (docs/time.md): the file says in how many rounds that was so (`core_shared`), and what
calls took in the two states.
"""
from __future__ import annotations

import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any, Callable

SCHEMA_VERSION = 1
# Tiny models, whose kernels take no time, and the class each is made as.
TINY_MODELS = {
    "bert": ("AutoModelForSequenceClassification", dict(model_type="bert", vocab_size=99, hidden_size=64, num_hidden_layers=8, num_attention_heads=4,
                                                        intermediate_size=128)),
    "llama": ("AutoModelForCausalLM", dict(model_type="llama", vocab_size=99, hidden_size=64, num_hidden_layers=8, num_attention_heads=4,
                                           num_key_value_heads=2, intermediate_size=128)),
    "gpt2": ("AutoModelForCausalLM", dict(model_type="gpt2", vocab_size=99, n_embd=64, n_layer=8, n_head=4))}
LENGTH = 16  # of one sequence
# Microseconds of their forward and backward in float32, as memcalc predicts them with the reference host's rates; decoders have a cache.
REFERENCE_MODELS = {"bert": (7800.0, 7196.0), "llama": (11536.0, 14031.0), "gpt2": (7741.0, 6583.0)}
# And of a call without autograd: what it took on an H200's host over its forward in training (three files of 2026-11-29, geometric means),
# so that call_ratio was 1 there. memcalc, whose rates are those of later tokens of generate(), says 14 % less of BERT, 9 % less of LLaMA and 8 % more of GPT-2.
REFERENCE_CALLS = {"bert": 3607.0, "llama": 8966.0, "gpt2": 4529.0}
SHARED = 1.5  # a loop of Python took 1.05 ms or 1.9 to 2.1 ms on an H200's host (tests/measured/host_core_h200.jsonl.gz)
ROUNDS, STEPS = 40, 4  # the models take turns: a machine is quick in one second and slow in the next
BACKWARD_RATES = ("backward_us",)  # a call of backward(); what it issues goes with forward and `backward_ratio`
NO_TIMES = ("queue_kernels", "gap_us", "launch_latency_us", "rank_spread", "call_ratio", "backward_ratio", "memory_bytes_per_second",
            "looped_bytes_per_second")  # of the driver, the card, ranks and memory; ratios
LIST_PASSES = 18  # of AdamW over its lists
HOST_TENSORS, HOST_ELEMENTS = 8, 4 << 20  # of an optimizer in host memory: 512 MiB with its states, which no cache holds
FUSED_PASSES, LOOPED_PASSES = 7, 18  # over them: parameters, gradients and two states read, three written; a loop of operators


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


def _memory_rates() -> tuple[float, float]:
    """Bytes a second of AdamW in host memory with this process's threads (OMP_NUM_THREADS): fused, and as a loop of operators."""
    import torch
    rates = []
    parameters = [torch.nn.Parameter(torch.zeros(HOST_ELEMENTS)) for _ in range(HOST_TENSORS)]
    for parameter in parameters: parameter.grad = torch.full_like(parameter, 1e-3)
    for fused, passes in ((True, FUSED_PASSES), (False, LOOPED_PASSES)):
        optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=fused, foreach=False)
        optimizer.step()
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            optimizer.step()
            times.append(time.perf_counter() - begin)
        rates.append(passes * 4 * HOST_TENSORS * HOST_ELEMENTS / statistics.median(times))
    return rates[0], rates[1]


def tiny_models() -> dict[str, tuple[Any, Any, Any]]:
    """The tiny models by name, with inputs and labels."""
    import torch
    import transformers
    torch.manual_seed(0)
    ids = torch.randint(0, 90, (1, LENGTH), device="cuda")
    made = {}
    for name, (kind, config) in TINY_MODELS.items():
        model = getattr(transformers, kind).from_config(transformers.AutoConfig.for_model(**config))
        made[name] = (model.cuda().train(), ids, ids[:, 0] * 0 if kind == "AutoModelForSequenceClassification" else ids)
    return made


def timed(model: Any, ids: Any, labels: Any, steps: int) -> list[tuple[float, float]]:
    """(forward, backward) of each step: microseconds of the host from an idle card."""
    import torch
    times = []
    for _ in range(steps):
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = model(input_ids=ids, labels=labels).loss
        middle = time.perf_counter()
        torch.cuda.synchronize()
        again = time.perf_counter()
        loss.backward()
        end = time.perf_counter()
        times.append(((middle - begin) * 1e6, (end - again) * 1e6))
    return times


def timed_calls(model: Any, ids: Any, calls: int) -> list[float]:
    """Microseconds of the host for each call without autograd, from an idle card."""
    import torch
    times = []
    model.eval()
    with torch.no_grad():
        for _ in range(calls):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            model(input_ids=ids)
            times.append((time.perf_counter() - begin) * 1e6)
    torch.cuda.synchronize()
    model.train()
    return times


def _loop_us() -> float:
    """Microseconds of a loop of Python, of a millisecond or two."""
    begin, total = time.perf_counter(), 0
    for number in range(30_000): total += number & 7
    return (time.perf_counter() - begin) * 1e6


def _call_rounds(models: dict[str, tuple[Any, Any, Any]]) -> tuple[list[dict[str, float]], list[float]]:
    """Of each model a call in each round in which all take their turn, and a loop of Python in each. Pre: no backward pass has run in this process."""
    for model, ids, _ in models.values(): timed_calls(model, ids, 6)
    calls, loops = [], []
    for _ in range(ROUNDS):
        calls.append({name: statistics.median(timed_calls(model, ids, STEPS)) for name, (model, ids, _) in models.items()})
        loops.append(_loop_us())
    return calls, loops


def core_states(loops: list[float], calls: list[float]) -> dict[str, float]:
    """`core_shared`: the share of rounds whose loop of Python took more than SHARED times the least one; and the median of `calls` in these and in the
    others. Where the core was shared in all rounds, or in none, this cannot tell which."""
    least = min(loops)
    shared = [loop > SHARED * least for loop in loops]
    of = {name: [call for call, each in zip(calls, shared) if each == state] for name, state in (("call_alone", False), ("call_shared", True))}
    return dict(core_shared=round(sum(shared) / len(shared), 3), python_loop_us=round(least),
                **{name: round(statistics.median(values), 3) for name, values in of.items() if values})


def _rounds(models: dict[str, tuple[Any, Any, Any]]) -> list[dict[str, tuple[float, float]]]:
    """(forward, backward) of each model in each round in which all take their turn; the first steps are not in them."""
    for each in models.values(): timed(*each, 6)
    return [{name: middle(timed(*each, STEPS)) for name, each in models.items()} for _ in range(ROUNDS)]


def middle(times: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(each[0] for each in times), statistics.median(each[1] for each in times)


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


def factors_of(models: dict[str, tuple[float, float]]) -> tuple[float, float]:
    """How many times as long as on the reference host forward and backward took: of the models the medians."""
    forward = statistics.median(models[name][0] / there for name, (there, _) in REFERENCE_MODELS.items())
    backward = statistics.median(models[name][1] / there for name, (_, there) in REFERENCE_MODELS.items())
    return forward, backward


def call_factor_of(models: dict[str, float]) -> float:
    """How many times as long as on the reference host a call without autograd took: of the models the median."""
    return statistics.median(models[name] / there for name, there in REFERENCE_CALLS.items())


def host_rates(forward: float, backward: float, call: float, optimizer: tuple[float, float], queue: int, reference: dict[str, float],
               memory: tuple[float, float] | None = None) -> dict[str, float]:
    """The rates of a host file, in microseconds, and what calls and backward take of them. `optimizer`: of each parameter in AdamW's step and in
    zero_grad. `memory`: bytes a second of an optimizer in host memory, fused and as a loop."""
    rates = {name: value * (backward if name in BACKWARD_RATES else forward) for name, value in reference.items() if name not in NO_TIMES}
    rates.update(optimizer_tensor_us=max(optimizer[0] - LIST_PASSES * rates["tensor_us"], 0.5), zeroed_tensor_us=max(optimizer[1], 0.1),
                 call_ratio=call / forward, backward_ratio=backward / forward)
    if memory is not None: rates.update(memory_bytes_per_second=memory[0], looped_bytes_per_second=memory[1])
    if queue > 0: rates["queue_kernels"] = queue
    return {name: round(value, 3) for name, value in rates.items()}


def measure_host(reference: dict[str, float]) -> dict[str, Any]:
    """The content of a host file. `reference`: the host's rates in specs/measured/h100-sxm/rates.json."""
    import torch
    if not torch.cuda.is_available(): raise RuntimeError("--host: found no CUDA device; accepted: a machine with one, to which operators are issued")
    torch.cuda.init()
    made = tiny_models()
    calls, loops = _call_rounds(made)
    call = call_factor_of({name: statistics.median(each[name] for each in calls) for name in REFERENCE_CALLS})
    rounds = _rounds(made)
    models = {name: middle([each[name] for each in rounds]) for name in REFERENCE_MODELS}
    forward, backward = factors_of(models)
    quartiles = statistics.quantiles([factors_of(each)[0] for each in rounds], n=4)
    call_quartiles = statistics.quantiles([call_factor_of(each) for each in calls], n=4)
    optimizer = _optimizer(lambda parameters: torch.optim.AdamW(parameters, foreach=True))
    memory = _memory_rates()
    return dict(schema_version=SCHEMA_VERSION, name=platform.node() or "host", cpu=_cpu(), gpu=torch.cuda.get_device_name(0),
                torch=torch.__version__, python=platform.python_version(), date=time.strftime("%Y-%m-%d"),
                rates=host_rates(forward, backward, call, optimizer, _queue(), reference, memory),
                measured=dict(models_us={name: [round(each) for each in both] for name, both in models.items()},
                              adamw_us=[round(each, 2) for each in optimizer], host_threads=torch.get_num_threads(), forward=round(forward, 3), backward=round(backward, 3),
                              forward_quartiles=[round(each, 3) for each in quartiles], call=round(call, 3),
                              calls_us={name: round(statistics.median(each[name] for each in calls)) for name in REFERENCE_CALLS},
                              call_quartiles=[round(each, 3) for each in call_quartiles], **core_states(loops, [call_factor_of(each) for each in calls])))


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
    least, _, most = measured["forward_quartiles"]
    shared = 100 * measured["core_shared"]
    words = f"; in {shared:.0f} % of the rounds somebody else kept the core's other thread busy" if shared > 0 else ""
    return (f"{path}: {host['cpu']}, forward {measured['forward']:.2f} times as long as on the reference host ({least:.2f} to {most:.2f} in "
            f"half of the rounds), backward {measured['backward']:.2f} times, a call without autograd {measured['call']:.2f} times{words}")
