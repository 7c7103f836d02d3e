"""Steps drawn at random, predicted, then timed on a card, each in a process of its own; then the worst of them are profiled.

usage: blind_steps.py draw OUT.jsonl MEMCALC GPU SEED [GROUP=COUNT …]   draws the runs and predicts them on the middle host; two of three are bound by the
                                                               card, and of the texts and images every second one is of a model that no row has;
                                                               with counts only these groups, else QUOTAS
       blind_steps.py predict CASES.jsonl OUT.jsonl MEMCALC    the same runs, predicted anew
       blind_steps.py split CASES.jsonl FOLDER                 card.jsonl, host.jsonl and compiled.jsonl of them, by what is told to bind each
       blind_steps.py beside MEASURED.jsonl OUT.jsonl MEMCALC  the measured ones told with a host as fast as the tiny LLaMA around each run
       blind_steps.py run BUDGET_S FOLDER MODULES CASES.jsonl … [--profiled CASES.jsonl …]      on the card; MODULES: any_module.py, which builds cases
                                                               of kind "any"; FOLDER/host.json is made first, where it is not there: measure --host

On the card a run whose `harness` says no_profile is only timed, which took seed 9001 all of its runs; those behind --profiled are profiled, not timed, once
all others have ended, and after them those of the card that were told worst. The next process makes its context while one ends and begins when the card is empty. Two
processes with a card each (CUDA_VISIBLE_DEVICES) may be given the same FOLDER and cases: each takes what the other has not taken. Compiled runs of a
file compile beside each other, alone on their card, and are timed one by one when all have.

A tiny LLaMA's steps are timed in each process just before and just after the run (`tiny`: forward and backward over the reference host's, each time), and, where the host is told to
decide, between steps of one more loop (`paired`: its forward, its backward, the step from an idle card to an idle card, milliseconds).

Until seed 9001 three tiny models were timed before some of the runs (`beside`). Until seed 8001 each run was profiled after it was timed. Seeds 2929 and 3001 were drawn by this script as it was before 2026-11-29, 15:00, without the Trainer, of one share of large batches; seed 4001 as
it was before 18:40, every second one bound by the card; seed 5001 before 2026-11-30, without eager attention and encoder-decoders of their own, compiled
runs beside others. Until seed 13002 compiled runs were of BERT, GPT-2, LLaMA 3.2 and Qwen3 alone, in bf16 and amp-bf16.
"""
import fcntl
import gc
import json
import os
import random
import select
import signal
import sys
import time
import traceback
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT / "scripts")]
EXPERTS = ("mixtral", "moe", "gpt-oss", "deepseek")
ROWS = ("single_gpu.jsonl", "trainer.jsonl", "rows_h100.jsonl", "rows_h200.jsonl", "rows_families_h100.jsonl", "rows_experts_h200.jsonl", "rows_blind_h200.jsonl",
        "rows_finetuning_h200.jsonl")
IMAGES = ["resnet18", "resnet50", "resnet101", "densenet169", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_b3",
          "efficientnet_v2_s", "convnext_tiny", "convnext_base", "vgg16", "vgg19_bn", "swin_s", "swin_v2_t",
          "wide_resnet101_2", "resnext50_32x4d"]
NEW_IMAGES = ["convnext_large", "densenet201", "efficientnet_b1", "efficientnet_b4", "efficientnet_b5", "efficientnet_v2_l", "resnext101_64x4d", "swin_b",
              "vgg11_bn", "vgg13_bn", "vgg19"]
# Families whose models of the registry are drawn where no row has them, and the tasks of each.
NEW_TEXT = dict(albert=("seqcls", "mlm"), bert=("seqcls", "mlm"), bloom=("causal",), camembert=("mlm", "tokcls"), ernie4_5=("causal",), gemma3_text=("causal",),
                granite=("causal",), hunyuan_v1_dense=("causal",), llama=("causal",), mbart=("seq2seq",), mt5=("seq2seq",), pegasus=("seq2seq",), marian=("seq2seq",),
                olmo=("causal",), gpt_neox=("causal",), qwen2=("causal",), stablelm=("causal",), electra=("seqcls",), distilbert=("seqcls",), mpnet=("mlm",),
                roberta=("mlm", "seqcls"), starcoder2=("causal",), m2m_100=("seq2seq",), **{"deberta-v2": ("seqcls",), "xlm-roberta": ("mlm", "tokcls")})
LARGEST_MODEL = 2.6e9  # parameters
PROGRAMS = ["stablelm", "granite", "gptj", "swinv2", "beit", "deberta-v2", "segformer", "olmoe", "wav2vec2", "albert", "falcon", "m2m_100",
            "convnextv2", "llama4_text", "own-lstm", "own-transformer", "mamba2"]
SPEECH = ("whisper-tiny", "whisper-base", "whisper-small", "whisper-medium", "whisper-large-v2")
QUOTAS = dict(text=13, seq2seq=5, trainer=6, experts=5, lora=6, speech=5, compile=3, image=11, program=6)
EAGER = 0.2  # of the texts and of Whisper: attention of their own code
PRECISIONS = dict(bf16="bf16", fp16="fp16", tf32="fp32", fp32="fp32", **{"amp-bf16": "fp32", "amp-fp16": "fp32"})  # of the weights
WEIGHED = ["bf16"] * 5 + ["amp-bf16"] * 4 + ["amp-fp16"] * 3 + ["fp32"] * 4 + ["tf32"] * 4
OPTIMIZERS = ["adamw"] * 5 + ["adamw-fused"] * 2 + ["adafactor"] * 3 + ["sgdm", "sgd", "adamw-for", "rmsprop"]
LENGTHS = (100, 144, 200, 224, 288, 300, 360, 400, 500, 576, 720, 896, 1000, 1280, 2000)
BATCHES, LARGE = (1, 2, 3, 5, 7, 8, 10, 14, 20, 28), (10, 18, 20, 28, 40, 56, 80)
LARGEST, LARGEST_COMPILED, SHORTEST, LONGEST = 100e9, 12e9, 30, 1400  # bytes reserved, milliseconds of a step
CLEARLY = 1.3  # times as long as the host needs, the kernels take: the card decides
PATIENCE, COMPILE_PATIENCE, COMPILING, RESERVED = 40, 400, 150, 15  # seconds of a case, of a compiled one with its waiting; of compiling; for those at the end
TRAINER_OPTIMIZERS = ["adamw-fused"] * 4 + ["adamw", "adafactor"]
NOT_BUILT = ("compile", "quantize", "freeze", "liger", "offload_optimizer", "activation_offload", "layers")  # by profile_steps.py, or elsewhere


def groups(models, read):
    """The rows that runs are drawn from, by group."""
    rows = [row for file in ROWS for row in read(file)]
    rows = [row for row in rows if row["run"].get("gpus", 1) == 1 and not row.get("rank")
            and not row.get("not_modelled") and "images" not in row["run"] and not row["run"].get("infer")
            and row["run"]["model"] in models and not row["run"]["model"].startswith("custom")
            and not any(row["run"].get(key) for key in NOT_BUILT) and "8bit" not in row["run"].get("optimizer", "")]
    trainer = [row for row in rows if row["run"].get("loop") == "trainer" and row["run"].get("task") in ("causal", "seqcls", "mlm", "seq2seq")]
    rows = [row for row in rows if row["run"].get("loop") == "bare"]
    of_experts = lambda row: any(each in row["run"]["model"] for each in EXPERTS)
    full = [row for row in rows if not row["run"].get("lora")]
    text = [row for row in full if not of_experts(row) and row["run"]["task"] in ("causal", "seqcls", "mlm", "seq2seq", "tokcls")
            and row["run"].get("checkpointing", "none") in ("none", "full")]
    decoders = [row for row in text if row["run"]["task"] == "seq2seq"]
    return {"text": [row for row in text if row not in decoders], "seq2seq": decoders, "trainer": trainer, "experts": [row for row in full if of_experts(row)], "lora": [row for row in rows if row["run"].get("lora")],
            "compile": [row for row in text if row["run"]["task"] in ("causal", "seqcls", "mlm") and row["run"].get("checkpointing", "none") == "none"
                        and row["run"].get("attention") == "sdpa"]}


def fresh(models):
    """Rows of the registry's models that no row has, as the harness would write them."""
    have = {row["run"]["model"] for file in ROWS for row in models["read"](file)} | set(models["known"])
    for path in sorted((ROOT / "specs/models").glob("*.json")):
        entry = json.loads(path.read_text())
        config = entry.get("config") or {}
        if entry["name"] in have or not (entry.get("published_parameters") or 9e9) < LARGEST_MODEL: continue
        for task in NEW_TEXT.get(config.get("model_type"), ()):
            run = dict(model=entry["name"], task=task, loop="bare", sequence_length=1, accumulation_steps=1, max_grad_norm=0.0, attention="sdpa")
            if task in ("causal", "seq2seq"): run["use_cache"] = True
            yield dict(run=run, harness=dict(config={key: value for key, value in config.items() if key not in ("torch_dtype", "architectures")}))


def one_of(rows, pick):
    """A row, each model as likely as any other."""
    name = pick.choice(sorted({row["run"]["model"] for row in rows}))
    return pick.choice([row for row in rows if row["run"]["model"] == name])


def speech(pick):
    """A row of Whisper, its config from the registry."""
    name = pick.choice(SPEECH)
    config = json.loads((ROOT / f"specs/models/{name}.json").read_text())["config"]
    return dict(run=dict(model=name, task="speech", loop="bare", use_cache=True, sequence_length=1), harness=dict(config=config))


def changed(group, run, pick, large):
    """The run with another batch, length, precision, optimizer. `large`: the share of large batches."""
    if group == "trainer":  # a batch divides the 64 samples
        run = dict(run, batch_size=pick.choice((16, 32) if pick.random() < large else (1, 2, 4, 8)), sequence_length=pick.choice(LENGTHS),
                   precision=pick.choice(("bf16", "amp-bf16", "amp-fp16", "fp32")), optimizer=pick.choice(TRAINER_OPTIMIZERS),
                   checkpointing=pick.choice(("none", "none", "full")), accumulation_steps=pick.choice((1, 1, 2)))
        return dict(run, weights_dtype=PRECISIONS[run["precision"]])
    run = dict(run, batch_size=pick.choice(LARGE if pick.random() < large else BATCHES))
    run.pop("skipped_steps", None)
    if "sequence_length" in run: run["sequence_length"] = pick.choice(LENGTHS)
    if group == "lora": return run  # the adapter's type goes with the precision
    run["precision"] = pick.choice(["bf16", "amp-bf16"] if group == "experts" else WEIGHED)
    run["weights_dtype"] = PRECISIONS[run["precision"]]
    run["optimizer"] = "adamw" if group == "compile" else pick.choice(OPTIMIZERS)
    if group in ("text", "seq2seq", "speech"): run["attention"] = "eager" if pick.random() < EAGER else "sdpa"
    if group == "compile": run |= dict(compile=True, compile_parts="model", accumulation_steps=1)
    return run


def question(case, write):
    """The words that ask memcalc for a case."""
    import memcalc_rows
    run, how = case["run"], case["harness"]
    if how.get("kind") == "tv": return ["--model", how["name"], *memcalc_rows.words_of(run), "--gpu", case["gpu"]]
    if how.get("kind") == "any":
        return ["--model", ROOT / "tests/measured/any_module" / f"{how['name']}.json.gz", *memcalc_rows.words_of(run), "--gpu", case["gpu"]]
    return memcalc_rows.question_of(case, write)


def answer_of(memcalc, case, *more):
    """What memcalc says of a case: (predicted_ms, predicted, bytes reserved)."""
    answer = memcalc.json(*question(case, memcalc.file), *more, "--no-remedies")
    step = answer["time"]
    told = dict(kernel_ms=round(1e3 * step["kernel_seconds"], 3), host_ms=round(1e3 * step["host_seconds"], 3), bound=step["bound_by"],
                allocated=answer["memory"]["peak_allocated_bytes"], reserved=answer["memory"]["peak_reserved_bytes"])
    return round(1e3 * step["step_seconds"], 3), told, answer["memory"]["peak_reserved_bytes"]


def draw(out, executable, gpu, seed, *counts):
    import memcalc_rows
    import models
    from memcalc_pages import Memcalc, Refused
    memcalc, pick, cases, of = Memcalc(executable), random.Random(int(seed)), [], f"blind{seed}"
    drawn = groups(models.MODELS, memcalc_rows.read)
    new = list(fresh(dict(read=memcalc_rows.read, known=models.MODELS)))
    quotas = dict.fromkeys(QUOTAS, 0) | {group: int(count) for group, count in (each.split("=") for each in counts)} if counts else QUOTAS

    def taken(case, by_card):
        case["gpu"] = gpu
        try: case["predicted_ms"], case["predicted"], reserved = answer_of(memcalc, case)
        except Refused as refused: return print(case["id"], refused)
        if reserved > (LARGEST_COMPILED if case["run"].get("compile") else LARGEST) or not SHORTEST <= case["predicted_ms"] <= LONGEST or case["id"] in {each["id"] for each in cases}: return None
        if by_card and case["predicted"]["kernel_ms"] < CLEARLY * case["predicted"]["host_ms"]: return None
        cases.append(case)
        print(len(cases), case["id"], case["predicted_ms"], case["predicted"]["bound"], flush=True)
        return case

    def named(group, name, run):
        length = f"-s{run['sequence_length']}" if "sequence_length" in run else ""
        kept = "-ckpt" if run.get("checkpointing", "none") != "none" else ""
        eager = "-eager" if run.get("attention") == "eager" else ""
        return f"{of}-{group}-{name}-b{run['batch_size']}{length}-{run['precision']}-{run.get('optimizer', 'adamw')}{eager}{kept}"

    for group in ("text", "seq2seq", "trainer", "experts", "lora", "speech", "compile"):
        left = quotas[group]
        while left:
            by_card = left % 3 != 0
            rows = drawn.get(group)
            if group in ("text", "seq2seq"):
                kept = "full" if pick.random() < 0.25 else "none"
                rows = [row for row in rows if row["run"].get("checkpointing", "none") == kept] or rows
                if left % 2 == 0: rows = [row for row in new if (row["run"]["task"] == "seq2seq") == (group == "seq2seq")]
            row = speech(pick) if group == "speech" else one_of(rows, pick)
            run = changed(group, row["run"], pick, 0.8 if by_card else 0.2)
            if group in ("text", "seq2seq") and left % 2 == 0 and pick.random() < 0.25:
                run["checkpointing"] = "full"
                run.pop("use_cache", None)
            most = (row.get("harness", {}).get("config") or {}).get("max_position_embeddings") or 10**9
            if run.get("sequence_length", 0) > most - 4: continue  # roberta's positions begin at 2
            how = {"of": of, "no_profile": True, **{key: value for key, value in row.get("harness", {}).items() if key in ("config", "task", "padding")}}
            left -= taken(dict(id=named(group, run["model"], run), run=run, harness=how), by_card) is not None
    left, names = quotas["image"], list(IMAGES)
    while left:
        name, by_card = pick.choice(NEW_IMAGES if left % 2 == 0 else names), left % 3 != 0
        run = dict(model=name, task="image", batch_size=pick.choice((48, 64, 80, 112, 160) if by_card else (4, 8, 16, 32, 48, 64, 96, 128)), image_size=pick.choice((192, 224, 224, 256)), loop="bare")
        run["precision"], run["optimizer"] = pick.choice(WEIGHED), pick.choice(("adamw", "adamw", "sgdm", "sgd", "rmsprop"))
        run["weights_dtype"] = PRECISIONS[run["precision"]]
        if taken(dict(id=named("image", name, run), run=run, harness=dict(kind="tv", name=name, of=of, no_profile=True)), by_card) is None: continue
        (names if name in names else NEW_IMAGES).remove(name)
        left -= 1
    left, names = quotas["program"], list(PROGRAMS)
    while left:
        name, by_card = pick.choice(names), left % 3 != 0
        run = dict(model=name, loop="bare", batch_size=pick.choice((14, 20, 24, 28, 40) if by_card else (3, 6, 12, 16)), precision=pick.choice(("bf16", "amp-bf16")), optimizer="adamw")
        run["weights_dtype"] = PRECISIONS[run["precision"]]
        if taken(dict(id=named("program", name, run), run=run, harness=dict(kind="any", name=name, batch=run["batch_size"], of=of, no_profile=True)), by_card) is None: continue
        names.remove(name)
        left -= 1
    last = [case for case in cases if case["run"].get("compile")]  # compiling takes longest
    cases = [case for case in cases if not case["run"].get("compile")]
    pick.shuffle(cases)
    Path(out).write_text("".join(json.dumps(case) + "\n" for case in cases + last))


def loaded(path, name):
    spec = spec_from_file_location(name, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def predict(cases, out, executable):
    """The same cases with what this memcalc says of them."""
    from memcalc_pages import Memcalc, in_parallel
    memcalc = Memcalc(executable)

    def told(line):
        case = json.loads(line)
        case["predicted_ms"], case["predicted"], _ = answer_of(memcalc, case)
        return case

    Path(out).write_text("".join(json.dumps(case) + "\n" for case in in_parallel(told, Path(cases).read_text().splitlines())))


def import_ahead(cases):
    """What each child would import: seconds of device time. What starts CUDA as it is imported is left to them."""
    import torch
    import models
    kinds = {"bert", "gpt2", "llama"}
    for case in cases:
        config = case["harness"].get("config") or models.MODELS.get(case["run"]["model"], (None, {}))[1]
        named = case["harness"].get("name", "").replace("-", "_")
        kinds.add(config.get("model_type", named) if isinstance(config, dict) else named)
    names = ["torchvision", "accelerate", "transformers.modeling_utils", "transformers.models.auto.modeling_auto",
             *(f"transformers.models.{kind}.modeling_{kind}" for kind in sorted(kinds)), "peft", "transformers.trainer"]

    def imported(name):
        try: import_module(name)
        except ImportError: pass
    said, say = os.pipe()
    probe = os.fork()
    if not probe:
        for name in names:
            imported(name)
            if torch.cuda.is_initialized(): break
            os.write(say, b"x")
        os._exit(0)
    os.close(say)
    with os.fdopen(said, "rb") as file: fit = len(file.read())
    os.waitpid(probe, 0)
    print("imported ahead:", fit, "of", len(names), "then", names[fit:fit + 1], flush=True)
    for name in names[:fit]: imported(name)


def program_of(any_module, profile_steps):
    """What builds a case of kind "any", as profile_steps.vision does others."""
    import torch

    def program(case):
        how, known = case["harness"], dict(any_module.CASES[case["harness"]["name"]])
        if how.get("batch"): known["inputs"] = {key: (kind, most, (how["batch"], *shape[1:])) for key, (kind, most, shape) in known["inputs"].items()}
        model, batch, loss = any_module.build(known, case["run"]["precision"], profile_steps.DEVICE)
        if how["name"].startswith("own-"): batch = {key: value[:how["batch"]].contiguous() for key, value in batch.items()}

        def loss_of(**batch):
            result = model(**batch)
            if loss is not None: return loss(result)
            return result if torch.is_tensor(result) else result.loss
        return model, batch, loss_of
    return program


def run(budget, folder, modules, *cases):
    folder, end = Path(folder), time.time() + float(budget)
    cases, profiled = (cases[:cases.index("--profiled")], cases[cases.index("--profiled") + 1:]) if "--profiled" in cases else (cases, ())
    import profile_steps
    import torch  # never asked for its cards here: forked children could not take one
    import_ahead([json.loads(line) for path in (*cases, *profiled) for line in Path(path).read_text().splitlines()])
    any_module, of_host = loaded(modules, "any_module"), loaded(ROOT / "python/memcalc/measure/_host.py", "of_host")
    measured = profile_steps.one

    def tiny_llama():
        """Steps of a tiny LLaMA: milliseconds of forward and backward, each from an idle card."""
        of_host.TINY_MODELS = dict(llama=of_host.TINY_MODELS["llama"])
        (llama,) = of_host.tiny_models().values()
        of_host.timed(*llama, 3)
        return lambda steps: [round(each / 1e3, 3) for each in of_host.middle(of_host.timed(*llama, steps))]

    def around(clear=False):
        """How many times as long as on the reference host they take now: forward, backward. `clear`: what they held is given back."""
        if profile_steps.DEVICE != "cuda": return None
        took = tiny_llama()(7)
        gc.collect()
        if clear:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        return [round(1e3 * each / there, 3) for each, there in zip(took, of_host.REFERENCE_MODELS["llama"])]

    def pairs(full, sync):
        """Of six steps the milliseconds of each, and of a tiny LLaMA's just before it."""
        llama, found = tiny_llama(), []
        for _ in range(6):
            found.append(llama(1))
            sync()
            begin = time.perf_counter()
            full()
            sync()
            found[-1].append(round(1e3 * (time.perf_counter() - begin), 3))
        return found

    def one(case, wait):
        """The case in this process, which begins when `wait` returns."""
        def too_long(*_): raise TimeoutError(f"longer than {COMPILE_PATIENCE if case['run'].get('compile') else PATIENCE} s")

        if profile_steps.DEVICE == "cuda": torch.zeros(1, device="cuda")
        wait()
        signal.signal(signal.SIGALRM, too_long)
        signal.alarm(COMPILE_PATIENCE if case["run"].get("compile") else PATIENCE)
        try: return timed(case)
        finally: signal.alarm(0)

    def timed(case):
        how = dict(case["harness"])
        if not how.get("untimed") and not case["run"].get("compile"): now["tiny"] = [around(clear=True)]
        if case["predicted"]["kernel_ms"] < 1.2 * case["predicted"]["host_ms"]: profile_steps.MORE = lambda row, full, sync: row.update(paired=pairs(full, sync))
        if case["run"]["loop"] == "trainer":
            row = trained(case)
            now["tiny"].append(around())
            return dict(case, **row, **now)
        if how.get("kind") == "any":
            profile_steps.vision = program_of(any_module, profile_steps)
            how["kind"] = "tv"
        return dict(measured(dict(case, harness=how)), harness=case["harness"], **now)

    def trained(case):
        import measure_trainer
        row = measure_trainer.run_case(dict(id=case["id"], **case["run"], **case["harness"]))
        return {key: value for key, value in row.items() if key not in ("id", "run", "harness")}

    def append(name, row):
        text = (json.dumps(row, separators=(",", ":")) + "\n").encode()
        with (folder / name).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(text)

    def child(case, said, told):
        """Forks; the child writes a letter to `said`: t when its step is timed, f when the card is empty. It begins when it reads one of `told`."""
        process = os.fork()
        if process: return process
        begin = time.time()
        timed_only = case["harness"].get("no_profile")


        def when_timed(row):
            if not case["harness"].get("untimed"): now["tiny"].append(around())
            if not timed_only and not case["harness"].get("untimed"): append("measured.jsonl", dict(row, harness=case["harness"], **now, wall_s=round(time.time() - begin, 2)))
            os.write(said, b"t")

        profile_steps.TIMED = when_timed
        profile_steps.CARD_FREE = lambda row: os.write(said, b"f")
        if case["run"].get("compile"): profile_steps.WARM = lambda: (os.write(said, b"w"), os.read(waits[case["id"]], 1), now.update(tiny=[around()]))
        try: row = one(case, lambda: os.read(told, 1))
        except BaseException as error: row = dict(case, error=repr(error)[:300], where=traceback.format_exc()[-600:])
        row["wall_s"] = round(time.time() - begin, 2)
        if row.get("ops") or case["harness"].get("untimed"): append("profiled.jsonl", row)
        else: append("measured.jsonl", row)
        print(case["id"], row.get("step_ms_median"), case["predicted_ms"], row.get("busy_ms"), row["wall_s"], row.get("error", "")[:200], flush=True)
        os._exit(0)

    def heard(said, process, letters, seconds):
        """Whether the child wrote one of the letters before it ended."""
        last = time.time() + seconds
        while time.time() < last:
            if select.select([said], [], [], 0.02)[0] and os.read(said, 1) in letters: return True
            if os.waitpid(process, os.WNOHANG)[0]: return ended.add(process) or False
        return False

    def taken(path):
        """The cases of a file that no process with this folder has taken."""
        lines = Path(path).read_text().splitlines()
        with (folder / f"{Path(path).name}.taken").open("a+") as file:
            while True:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                place = len(file.read())
                if place < len(lines): file.write("x")
                file.flush()
                fcntl.flock(file, fcntl.LOCK_UN)
                if place >= len(lines): return
                yield json.loads(lines[place])

    def begun(case):
        (said, say), (told, tell) = os.pipe(), os.pipe()
        return child(case, say, told), said, tell

    ended, waits, waking, now = set(), {}, {}, {}
    profile_steps.DEVICE = os.environ.get("DEVICE", "cuda")  # cpu: to try this script
    if profile_steps.DEVICE == "cuda" and not (folder / "host.json").exists():
        process = os.fork()
        if not process:
            try: print(of_host.write_host(str(folder / "host.json"), str(ROOT / "specs")), flush=True)
            except BaseException: traceback.print_exc()
            os._exit(0)
        os.waitpid(process, 0)
    def worst_of_card():
        """A file of what the card binds and was told worst, the worst first, to be profiled."""
        rows = [json.loads(line) for line in (folder / "measured.jsonl").read_text().splitlines()]
        rows = [row for row in rows if row.get("step_ms_median") and row["predicted"]["bound"] == "card" and row["run"]["loop"] == "bare" and not row["run"].get("compile")]
        rows.sort(key=lambda row: -abs(row["predicted_ms"] / row["step_ms_median"] - 1))
        kept = [{key: row[key] for key in ("run", "gpu", "predicted_ms", "predicted")} | dict(id=f"profiled-{row['id']}", harness=untimed(row["harness"])) for row in rows]
        (folder / "worst.jsonl").write_text("".join(json.dumps(case) + "\n" for case in kept))
        return folder / "worst.jsonl"

    def untimed(how): return {key: value for key, value in how.items() if key != "no_profile"} | dict(untimed=True)

    def files():
        yield from cases
        if profiled:
            yield from profiled
            yield worst_of_card()

    for path in files():
        compiling, left = [], taken(path)
        current = None
        for case in left:
            if not case["run"].get("compile"):
                current = begun(case)
                break
            waits[case["id"]], waking[case["id"]] = os.pipe()
            process, said, tell = begun(case)
            compiling.append((process, said, case["id"]))
            os.write(tell, b"g")
        last = min(end, time.time() + COMPILING)
        warm = [each for each in compiling if heard(each[1], each[0], (b"w",), max(1, last - time.time()))]
        for each in compiling:
            if each not in warm and each[0] not in ended: os.kill(each[0], signal.SIGKILL)
        for process, said, name in warm:
            os.write(waking[name], b"g")
            heard(said, process, (b"f",), 20)
        while current:
            process, said, tell = current
            os.write(tell, b"g")
            timed_now = heard(said, process, (b"t",), PATIENCE + 20)
            case = next(left, None) if time.time() < end - RESERVED else None
            following = begun(case) if case else None
            if timed_now: heard(said, process, (b"f",), 20)
            current = following
    while time.time() < end:
        try: os.waitpid(-1, 0)
        except ChildProcessError: break


def beside(measured, out, executable):
    """The measured runs with what this memcalc says of each on a host as fast as the tiny LLaMA around it was (`with_tiny`)."""
    from memcalc_pages import Memcalc, in_parallel
    memcalc, of_host = Memcalc(executable), loaded(ROOT / "python/memcalc/measure/_host.py", "of_host")
    reference = json.loads((ROOT / "specs/measured/h100-sxm/rates.json").read_text())["host"]

    def told(line):
        case = json.loads(line)
        if not case.get("tiny") or not case.get("step_ms_median"): return case
        forward, backward = (sum(each) / len(each) for each in zip(*case["tiny"]))
        rates = {name: value * (backward if name in of_host.BACKWARD_RATES else forward) for name, value in reference.items() if name not in of_host.NO_TIMES}
        rates |= dict(backward_ratio=backward / forward, queue_kernels=reference["queue_kernels"])
        case["with_tiny"], _, _ = answer_of(memcalc, case, "--host", memcalc.file(dict(schema_version=1, name="tiny", rates=rates)))
        return case

    Path(out).write_text("".join(json.dumps(case) + "\n" for case in in_parallel(told, Path(measured).read_text().splitlines())))


def split(cases, folder):
    """Files of the compiled cases, of those that the card is told to bind and of the others."""
    files = {"compiled": [], "card": [], "host": []}
    for line in Path(cases).read_text().splitlines():
        case = json.loads(line)
        files["compiled" if case["run"].get("compile") else "card" if case["predicted"]["bound"] == "card" else "host"].append(line + "\n")
    for name, lines in files.items(): (Path(folder) / f"{name}.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    os.environ.setdefault("MEMCALC_SPEC_PATH", str(ROOT / "specs"))
    {"draw": draw, "predict": predict, "split": split, "beside": beside, "run": run}[sys.argv[1]](*sys.argv[2:])
