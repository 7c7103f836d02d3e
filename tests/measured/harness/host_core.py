"""Why the same call takes 7 ms in one moment and 11 in the next: what a core does beside it.

usage: host_core.py OUT.jsonl [--seconds N] [--dry]
core_clock.c (gcc -O2 -shared -fPIC -o core_clock.so core_clock.c -ldl; beside this file) has the loops. Each round times, one after the other on one
thread: a tiny LLaMA's call without autograd, a loop of Python, launches of an empty kernel, dependent additions (the core's clock), independent
ones (its width: half is left when the core's other thread is busy), dependent loads of 256 KiB, 8 MiB and 128 MiB (caches and memory), and now and then
the gaps in a loop that reads the clock alone (somebody else has the core). Parts: free (not bound), bound (to each core in turn), beside (bound, a
neighbour fills each other core in turn), filled (n other cores are filled), free again. Nothing profiles.
"""
import argparse, ctypes, json, os, signal, statistics, subprocess, time
from pathlib import Path

clock = ctypes.CDLL(str(Path(__file__).resolve().parent / "core_clock.so"))
for name in ("chain", "wide", "tsc_ghz", "launches", "chase"): getattr(clock, name).restype = ctypes.c_double
clock.ring.restype = ctypes.c_void_p


def shell(command):
    try: return subprocess.run(command, shell=True, capture_output=True, text=True, timeout=5).stdout.strip()
    except Exception as error: return repr(error)


def steal():
    fields = Path("/proc/stat").read_text().splitlines()
    return {line.split()[0]: [int(x) for x in line.split()[1:9]] for line in fields if line.startswith("cpu")}


def run_delay():
    got = Path("/proc/self/schedstat").read_text().split()
    return [int(x) for x in got]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out"); parser.add_argument("--seconds", type=float, default=42); parser.add_argument("--dry", action="store_true")
    a = parser.parse_args()
    import torch, transformers as tf
    begin = time.time()
    device = "cpu" if a.dry else "cuda"

    def emit(kind, **values):
        with open(a.out, "a") as out: out.write(json.dumps(dict(kind=kind, **values)) + "\n")

    everywhere = sorted(os.sched_getaffinity(0))
    emit("machine", lscpu=shell("lscpu"), lscpu_e=shell("lscpu -e"), siblings=shell("grep . /sys/devices/system/cpu/cpu*/topology/thread_siblings_list"),
         l3=shell("grep . /sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list"), nodes=shell("grep . /sys/devices/system/node/node*/cpulist /sys/devices/system/node/node*/distance"),
         gpu_node=shell("for d in /sys/bus/pci/devices/*; do echo $d $(cat $d/class) $(cat $d/numa_node); done"), smi=shell("nvidia-smi topo -m; nvidia-smi -q -d CLOCK | head -30"),
         mhz=shell("grep MHz /proc/cpuinfo"), clocksource=shell("cat /sys/devices/system/clocksource/clocksource0/current_clocksource"), huge=shell("cat /sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/transparent_hugepage/defrag"),
         bugs=shell("grep . /sys/devices/system/cpu/vulnerabilities/*"), flags=shell("grep -m1 flags /proc/cpuinfo"), idle=shell("grep . /sys/devices/system/cpu/cpuidle/current_driver /sys/devices/system/cpu/cpuidle/current_governor /sys/module/haltpoll/parameters/* /sys/devices/system/cpu/cpufreq/policy0/scaling_governor"),
         cmdline=shell("cat /proc/cmdline; uname -a"), load=shell("uptime; ps -eo pid,psr,pcpu,comm --sort=-pcpu | head -15"), memory=shell("grep -E 'MemTotal|MemFree|AnonHuge|HugePages' /proc/meminfo"))
    small = dict(vocab_size=99, hidden_size=64, num_hidden_layers=8, num_attention_heads=4, intermediate_size=128)
    model = tf.LlamaForCausalLM(tf.LlamaConfig(num_key_value_heads=2, **small)).to(device).eval()
    ids = torch.randint(0, 90, (1, 16), device=device)
    wait = (lambda: None) if a.dry else torch.cuda.synchronize
    torch.set_num_threads(1)
    rings = {name: ctypes.c_void_p(clock.ring(ctypes.c_long(size))) for name, size in (("l2", 256 << 10), ("l3", 8 << 20), ("dram", 128 << 20))}
    loads = dict(l2=20000, l3=5000, dram=2000)
    with torch.no_grad():
        for _ in range(10): model(input_ids=ids)
    wait()
    if not a.dry: emit("prepared", code=clock.prepare())
    emit("tsc", ghz=clock.tsc_ghz(ctypes.c_double(0.02)), setup_s=round(time.time() - begin, 2), parent=os.getpid())

    def python():
        t = time.perf_counter(); x = 0
        for i in range(30000): x += i & 7
        return 1e6 * (time.perf_counter() - t)

    def call():
        wait(); t = time.perf_counter(); u = time.thread_time()
        model(input_ids=ids)
        t, u = 1e3 * (time.perf_counter() - t), 1e3 * (time.thread_time() - u)
        wait()
        return t, u

    def round_of(values):
        row = dict(at=round(time.time() - begin, 3), core=clock.where())
        t, u = call()
        row.update(tiny=round(t, 3), tiny_thread=round(u, 3), python=round(python(), 1))
        if not a.dry: row["launch"] = round(clock.launches(ctypes.c_long(300)), 1)
        row.update(chain=round(clock.chain(ctypes.c_long(300000)), 4), wide=round(clock.wide(ctypes.c_long(800000)), 4))
        for name, place in rings.items(): row[name] = round(clock.chase(ctypes.byref(place), ctypes.c_long(loads[name])), 2)
        row["core_after"] = clock.where()
        values.append(row)

    def rounds(seconds, **words):
        values, end, n = [], time.time() + seconds, 0
        before, delayed = steal(), run_delay()
        with torch.no_grad():
            while time.time() < end:
                round_of(values)
                if n % 8 == 0:
                    out = (ctypes.c_double * 3)()
                    clock.gaps(ctypes.c_double(0.004), out)
                    values[-1]["gaps"] = [round(x, 1) for x in out]
                n += 1
        after = steal()
        emit("rounds", **words, rows=values, steal=after["cpu"][7] - before["cpu"][7], ticks={k: [y - x for x, y in zip(before[k], after[k])] for k in after if any(y != x for x, y in zip(before[k], after[k]))},
             schedstat=[y - x for x, y in zip(delayed, run_delay())], mhz=sorted({line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "MHz" in line}))
        mid = lambda key: round(statistics.median(v[key] for v in values), 3)
        print(words, len(values), {k: mid(k) for k in ("tiny", "tiny_thread", "python", "chain", "wide", "l2", "l3", "dram", *(() if a.dry else ("launch",)))}, flush=True)

    def neighbour(core):
        child = os.fork()
        if child == 0:
            os.sched_setaffinity(0, {core}); clock.fill(); os._exit(0)
        return child

    unit = a.seconds / 42
    rounds(11 * unit, part="free")
    for turn in range(2):
        for core in everywhere:
            os.sched_setaffinity(0, {core}); rounds(8 * unit / 2 / len(everywhere), part="bound", turn=turn, to=core)
    home = everywhere[min(4, len(everywhere) - 1)]
    os.sched_setaffinity(0, {home})
    rounds(0.6 * unit, part="beside", to=home, neighbour=None)
    for core in everywhere:
        if core == home: continue
        child = neighbour(core); time.sleep(0.01)
        rounds(6 * unit / len(everywhere), part="beside", to=home, neighbour=core)
        os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
    rounds(0.6 * unit, part="beside", to=home, neighbour=None)
    for n in (4, 8, len(everywhere) - 1):
        others = [neighbour(core) for core in [c for c in everywhere if c != home][:n]]
        rounds(1.3 * unit, part="filled", to=home, others=n)
        for child in others: os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
    os.sched_setaffinity(0, set(everywhere))
    rounds(10 * unit, part="free")


if __name__ == "__main__": main()
