"""What peft's Python takes around the operators of an adapted Linear, by a loop of Python that runs beside it. No card is needed.

usage: adapter_times.py [ROUNDS]
Each round times, by the thread's own clock, the loop of memcalc.measure, 100 calls of a lora.Linear, 100 of the same operators without modules, and
100 of the base layer as a module and as a function. Printed are quartiles of (module - operators - (base as a module - as a function)) over the
loop, times what the loop takes on the reference host (1,337 us): a processor's clock and its other thread divide out.
"""
import sys, time, warnings

warnings.filterwarnings("ignore")
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model

REFERENCE_LOOP, CALLS, WIDTH = 1337, 100, 64


def loop():
    begin, total = time.thread_time(), 0
    for number in range(30_000): total += number & 7
    return (time.thread_time() - begin) * 1e6


def per_call(call):
    begin = time.thread_time()
    for _ in range(CALLS): call()
    return (time.thread_time() - begin) / CALLS * 1e6


def main():
    torch.set_num_threads(1)
    model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH, bias=False)), LoraConfig(r=8, target_modules=["0"])).train()
    adapted = model.base_model.model[0]
    base, a, b = adapted.base_layer, adapted.lora_A["default"].weight, adapted.lora_B["default"].weight
    x = torch.randn(1, 16, WIDTH, requires_grad=True)
    parts = dict(module=lambda: adapted(x), operators=lambda: F.linear(x, base.weight) + F.linear(F.linear(x, a), b) * 2.0,
                 base=lambda: base(x), function=lambda: F.linear(x, base.weight))
    found = []
    for _ in range(int(sys.argv[1]) if sys.argv[1:] else 120):
        before, took = loop(), {name: per_call(call) for name, call in parts.items()}
        found.append(REFERENCE_LOOP * (took["module"] - took["operators"] - (took["base"] - took["function"])) / ((before + loop()) / 2))
    found.sort()
    print(*(f"{found[int(share * (len(found) - 1))]:.1f}" for share in (0.25, 0.5, 0.75)), "us on the reference host")


if __name__ == "__main__": main()
