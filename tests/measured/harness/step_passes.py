"""How far a step's time repeats itself: runs of blind_steps.py, each timed in several passes on one card.

usage: step_passes.py BUDGET_S OUT.jsonl MODULES CASES.jsonl [once]      (MODULES: any_module.py, which builds cases of kind "any")
       step_passes.py rows CASES.jsonl PASSES.jsonl                      prints the rows of steps_clean_h200.jsonl that OUT.jsonl makes

No profiler. Processes make their context, their model and two steps beside each other, as many as the card holds; then each is timed alone, the others asleep. What the
host decides or nearly does (kernels below NEAR times the host) is timed in a process of its own (pass 1), twice more in the same process, half a minute and more apart, its
cached memory given back between, and in a fresh process last of all; what the card decides in a fresh process, and as many as there is time for in another one. `once`: all in one pass first, then as many as there is time for in another process (seed 12001).
A line is one run of one pass: `at` (seconds since the start), `fresh`, `steps_ms`, `phases` of forward, backward and optimizer, each from an idle card, each behind a loop of Python
(`loop_us`), `tiny`: before and after, forward and backward of each of five steps of a tiny LLaMA. Milliseconds. The first line of a process has its peaks, without the tiny LLaMA's.
"""
import gc
import json
import os
import random
import select
import signal
import statistics
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.append(str(ROOT / "tests/measured/harness"))  # this file may travel by itself
import blind_steps  # noqa: E402

sys.path.insert(0, str(HERE))

NEAR = 1.5
AT_ONCE, BESIDE_HELD = 115e9, 60e9  # bytes reserved of the processes that begin together; beside those that wait for their next pass
PROCESSES = 7
WARMING, TIMING, COMPILING = 60, 40, 150  # seconds
LAST = 12  # seconds before the end nothing begins
TINY_STEPS = 5


def by_host(case): return case["predicted"]["bound"] != "card" or case["predicted"]["kernel_ms"] < NEAR * case["predicted"]["host_ms"]


class Work:
    """A case in its process."""

    def __init__(self, case, any_module, of_host):
        self.case, self.any_module, self.of_host, self.llama, self.loop, self.row = case, any_module, of_host, None, None, {}

    def warm(self):
        import profile_steps
        import torch
        begin = time.time()
        if self.case["run"]["loop"] == "trainer":
            trained = self.trained(2)
            self.row = {key: trained[key] for key in ("peak_allocated", "peak_reserved", "transformers", "optim")}
        else:
            case = dict(self.case, harness=dict(self.case["harness"]))
            if case["harness"].get("kind") == "any":
                profile_steps.vision = blind_steps.program_of(self.any_module, profile_steps)
                case["harness"]["kind"] = "tv"
            self.loop = profile_steps.Loop(case)
            for _ in range(2): self.loop.full(); profile_steps.synchronize()
            self.row = dict(n_param_tensors=sum(1 for _ in self.loop.model.parameters()))
            if profile_steps.DEVICE == "cuda": self.row |= dict(peak_allocated=torch.cuda.max_memory_allocated(), peak_reserved=torch.cuda.max_memory_reserved())
        self.row["warm_s"] = round(time.time() - begin, 2)

    def trained(self, steps):
        import measure_trainer
        gc.collect()
        return measure_trainer.run_case(dict(id=self.case["id"], **self.case["run"], **self.case["harness"], steps=steps))

    def tiny(self):
        import profile_steps
        if profile_steps.DEVICE != "cuda": return []
        if self.llama is None:
            self.of_host.TINY_MODELS = dict(llama=self.of_host.TINY_MODELS["llama"])
            (self.llama,) = self.of_host.tiny_models().values()
            self.of_host.timed(*self.llama, 3)
        return [[round(each / 1e3, 3) for each in both] for both in self.of_host.timed(*self.llama, TINY_STEPS)]

    def timed(self):
        """The steps of one pass."""
        import profile_steps
        begin, host, row = time.time(), by_host(self.case) or self.case["run"].get("compile"), self.row
        self.row = {}
        if self.case["run"]["loop"] == "trainer":
            row["tiny"] = [self.tiny()]
            row["steps_ms"] = self.trained(8 if self.case["predicted_ms"] < 300 else 6)["steps_ms"][2:]  # the first two are the Trainer's own warming
        else:
            loop, sync = self.loop, profile_steps.synchronize
            if not row: loop.full(); sync()  # what it held was given back
            row["tiny"] = [self.tiny()]
            once = time.time(); loop.full(); sync(); once = time.time() - once
            least = 5 if once < 0.2 else 3
            count = max(least, min(30, int(0.8 / once))) if host else max(least, min(12, int(0.4 / once)))
            row["steps_ms"] = [round(each, 3) for each in loop.steps(count)] if profile_steps.DEVICE == "cuda" else [1e3 * once]
            if host:
                row["loop_us"], row["phases"] = [], []
                for _ in range(4 if once < 0.1 else 2 if once < 0.4 else 1):
                    row["loop_us"].append(round(self.of_host._loop_us()))
                    row["phases"].append([round(1e3 * each, 3) for each in loop.phases()])
        row["tiny"].append(self.tiny())
        return dict(row, wall_s=round(time.time() - begin, 2))

    def hold(self):
        """Gives back what a process that waits need not have."""
        import torch
        if self.loop: self.loop.zero_grad()
        gc.collect()
        if torch.cuda.is_initialized(): torch.cuda.empty_cache()


class Process:
    """One process of a case, as its parent sees it. Letters: c (a context), w (warm), p (timed), h (held), e (it failed)."""

    def __init__(self, case, out, begin, modules):
        (said, say), (told, tell) = os.pipe(), os.pipe()
        self.case, self.said, self.tell, self.passes, self.gone = case, said, tell, 0, False
        self.number = os.fork()
        if not self.number: self.serve(case, say, told, out, begin, modules)
        os.close(say); os.close(told)

    def serve(self, case, say, told, out, begin, modules):
        work, number = Work(case, *modules), 0

        def write(**row):
            with open(out, "a") as file: file.write(json.dumps(dict(id=case["id"], **row), separators=(",", ":")) + "\n")
        try:
            import torch
            if os.environ.get("DEVICE", "cuda") == "cuda": torch.zeros(1, device="cuda"); torch.cuda.synchronize()
            os.write(say, b"c")
            while letter := os.read(told, 1):
                if letter == b"w": work.warm()
                elif letter == b"h": work.hold()
                else:
                    at = round(time.time() - begin, 1)
                    write(of=letter.decode(), fresh=number == 0, at=at, **work.timed())
                    number += 1
                os.write(say, letter)
        except BaseException as error:
            write(error=repr(error)[:300], where=traceback.format_exc()[-500:])
            os.write(say, b"e")
        os._exit(0)

    def ask(self, letter): os.write(self.tell, letter)

    def heard(self, letter, seconds):
        """Whether it said the letter in time; else it is ended."""
        if self.gone: return False
        if select.select([self.said], [], [], max(0.1, seconds))[0] and os.read(self.said, 1) == letter: return True
        self.end()
        return False

    def does(self, letter, seconds): self.ask(letter); return self.heard(letter, seconds)

    def end(self):
        if self.gone: return
        self.gone = True
        os.kill(self.number, signal.SIGKILL)
        os.waitpid(self.number, 0)
        os.close(self.said); os.close(self.tell)


def batches(cases, room):
    """The cases in groups that the card holds at once."""
    groups = []
    for case in cases:
        size = case["predicted"]["reserved"] + 1e9
        if groups and len(groups[-1][1]) < PROCESSES and groups[-1][0] + size <= room: groups[-1][0] += size; groups[-1][1].append(case)
        else: groups.append([size, [case]])
    return [group for _, group in groups]


def main(budget, out, modules, path, *once):
    begin, draws = time.time(), random.Random(11002)
    end = begin + float(budget)
    import torch
    import profile_steps
    profile_steps.DEVICE = os.environ.get("DEVICE", "cuda")
    cases = [json.loads(line) for line in Path(path).read_text().splitlines()]
    blind_steps.import_ahead(cases)
    import measure_trainer  # noqa: F401
    loaded = blind_steps.loaded(modules, "any_module"), blind_steps.loaded(ROOT / "python/memcalc/measure/_host.py", "of_host")
    said = lambda *words: print(round(time.time() - begin, 1), *words, flush=True)
    said("imported")
    late = lambda: time.time() > end - LAST

    def started(group, warming=WARMING):
        """Processes of these cases that are warm."""
        made = [Process(case, out, begin, loaded) for case in group]
        made = [each for each in made if each.heard(b"c", 30)]
        for each in made: each.ask(b"w")
        last = min(time.time() + warming, end)
        return [each for each in made if each.heard(b"w", last - time.time())]

    def passed(processes, letter):
        """One pass over them, each alone; those that are left gave back what they need not hold (seed 11001: only behind the pass, so that eight found the card full)."""
        for each in processes:
            if late(): break
            if each.does(letter, min(TIMING, end - time.time())): each.does(b"h", 20)
            said(letter.decode(), each.case["id"], "gone" if each.gone else "")
        return [each for each in processes if not each.gone]

    def shuffled(cases): return draws.sample(cases, len(cases))

    def fresh(group, letter):
        """The cases in processes of their own, which end."""
        processes = started(group)
        passed(processes, letter)
        for each in processes: each.end()

    compiled = [case for case in cases if case["run"].get("compile")]
    host = shuffled([case for case in cases if by_host(case) and case not in compiled])
    card = shuffled([case for case in cases if not by_host(case) and case not in compiled])
    said(len(host), "of the host,", len(card), "of the card,", len(compiled), "compiled")
    held = []
    for group in batches(host, AT_ONCE if once else BESIDE_HELD):
        if late(): break
        if once: fresh(group, b"1")
        else: held += passed(started(group), b"1")
    held = passed(shuffled(held), b"2")
    compiled = started(compiled, COMPILING) if compiled and not late() else []
    said("compiled", len(compiled))
    compiled = passed(compiled, b"1")
    passed(shuffled(held), b"3")
    for each in held: each.end()
    if not once: compiled = passed(compiled, b"2")
    for group in batches(card, AT_ONCE):
        if not late(): fresh(group, b"1")
    passed(compiled, b"2" if once else b"3")
    for each in compiled: each.end()
    left = [(group, b"4") for group in batches(shuffled(host), AT_ONCE)]
    of_card = [(group, b"2") for group in batches(shuffled(card), AT_ONCE)]
    while left or of_card:  # a batch of the host's, two of the card's
        for group, letter in (left[:1] + of_card[:2]):
            if not late(): fresh(group, letter)
        left, of_card = left[1:], of_card[2:]
    said("over")


def rows(cases, passes):
    """A row for each case: the mean of its passes' medians, and what a tiny LLaMA took around each over the reference host's."""
    of_host = blind_steps.loaded(ROOT / "python/memcalc/measure/_host.py", "of_host")
    reference = [each / 1e3 for each in of_host.REFERENCE_MODELS["llama"]]  # milliseconds
    medians = lambda several: [statistics.median(each) for each in zip(*several)]
    passes = [json.loads(line) for line in Path(passes).read_text().splitlines()]
    for case in map(json.loads, Path(cases).read_text().splitlines()):
        of = [each for each in passes if each["id"] == case["id"] and each.get("steps_ms")]
        if not of: continue
        told = [dict(at=each["at"], fresh=each["fresh"], step_ms=round(statistics.median(each["steps_ms"]), 3),
                     tiny=[[round(took / there, 3) for took, there in zip(medians(tiny), reference)] for tiny in each["tiny"]]) for each in of]
        first = of[0]
        row = dict(case, gpu="NVIDIA H200", torch="2.11.0+cu130", step_ms_median=round(statistics.fmean(each["step_ms"] for each in told), 3), step_n=len(first["steps_ms"]))
        if "phases" in first: row["host_ms"] = [round(each, 2) for each in medians(first["phases"])]
        row |= {key: first[key] for key in ("peak_allocated", "peak_reserved", "n_param_tensors", "transformers", "optim") if key in first} | dict(tiny=told[0]["tiny"], passes=told)
        print(json.dumps(row, separators=(",", ":")))


if __name__ == "__main__":
    if sys.argv[1:2] == ["rows"]: rows(*sys.argv[2:])
    else: main(*sys.argv[1:])
