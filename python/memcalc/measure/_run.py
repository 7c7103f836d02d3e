"""Runs one real training step on this machine's GPU and writes down its memory. A script of its own, without memcalc:

    python _run.py CASES.jsonl ROWS.jsonl

Every case runs in a forked child, so that each starts with an empty card; a row is appended per case. What is built,
in which order, and what Python holds while the peaks are read is that of tests/measured/harness/measure.py (plain loop)
and measure_trainer.py (Trainer): one tensor more of any size would show, 512 bytes at least. A case is {"id", "run",
"harness"}: a run record (docs/run.schema.json) with every key that is read here, and `harness.config`, a config.json or
{"model_type": "torchvision", "architecture": …}. The row has the same and what was measured.
"""
from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import tempfile
import time
import traceback
from typing import Any, Callable

DROPOUT_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "resid_pdrop", "embd_pdrop", "attn_pdrop",
                "dropout", "attention_dropout", "hidden_dropout", "dropout_rate")
STEPS = 3        # the second and third differ: blocks that the first leaves behind decide where theirs go
TIMED_STEPS = 5
TRAINER_SAMPLES, TRAINER_STEPS = 64, 8

Case = dict[str, Any]
Run = dict[str, Any]  # a run record
Row = dict[str, Any]


def build(case: Case) -> tuple[Any, dict[str, Any], Any]:
    """The model on the card, a batch, and the configuration (None: torchvision)."""
    import torch

    run = case["run"]
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}
    dtype = half.get(run["precision"], torch.float32)
    count, length = run["batch_size"], run.get("sequence_length", 0)
    generator = torch.Generator(device="cuda").manual_seed(0)

    def integers(high: int, *shape: int) -> Any:
        return torch.randint(5, high, shape, device="cuda", generator=generator)

    config = dict(case["harness"]["config"])
    model_type, task = config.pop("model_type"), run["task"]
    if model_type == "torchvision":
        import torchvision

        with torch.device("cuda"):
            classifier = getattr(torchvision.models, config["architecture"])()
        classifier = classifier.to(dtype)
        side = run.get("image_size", 224)
        x = torch.randn(count, 3, side, side, device="cuda", dtype=dtype)
        y = integers(999, count)

        class WithLoss(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.m = classifier

            def forward(self, x: Any, y: Any) -> Any:
                return torch.nn.functional.cross_entropy(self.m(x), y)

        return WithLoss(), {"x": x, "y": y}, None

    import transformers

    if run.get("dropout") is not None:
        for key in DROPOUT_KEYS: config[key] = run["dropout"]
    config.pop("torch_dtype", None)
    config.pop("dtype", None)
    built = transformers.AutoConfig.for_model(model_type, **config)
    if model_type == "whisper": built.decoder_start_token_id = 1
    if model_type in ("t5", "mt5"): built.decoder_start_token_id = built.pad_token_id = 0
    if run["loop"] == "bare" and hasattr(built, "use_cache"): built.use_cache = run.get("use_cache", False)
    auto = {"seqcls": "SequenceClassification", "mlm": "MaskedLM", "causal": "CausalLM", "seq2seq": "Seq2SeqLM",
            "speech": "SpeechSeq2Seq", "image": "ImageClassification", "tokcls": "TokenClassification",
            "qa": "QuestionAnswering"}[task]
    with torch.device("cuda"):
        model = getattr(transformers, "AutoModelFor" + auto).from_config(
            built, dtype=dtype, attn_implementation=run.get("attention", "sdpa"))
    words = config.get("vocab_size", 1000)
    if task == "seqcls":
        batch = {"input_ids": integers(words, count, length), "labels": integers(6, count) * 0}
    elif task in ("mlm", "causal"):
        ids = integers(words, count, length)
        batch = {"input_ids": ids, "labels": ids.clone()}
    elif task == "tokcls":
        batch = {"input_ids": integers(words, count, length), "labels": integers(6, count, length) * 0}
    elif task == "qa":
        batch = {"input_ids": integers(words, count, length), "start_positions": integers(length, count),
                 "end_positions": integers(length, count)}
    elif task == "seq2seq":
        batch = {"input_ids": integers(words, count, length),
                 "labels": integers(words, count, run.get("target_sequence_length", length))}
    elif task == "speech":
        batch = {"input_features": torch.randn(count, config.get("num_mel_bins", 80), 3000, device="cuda", dtype=dtype),
                 "labels": integers(words, count, length)}
    else:
        side = run.get("image_size", 224)
        batch = {"pixel_values": torch.randn(count, 3, side, side, device="cuda", dtype=dtype),
                 "labels": integers(6, count) * 0}
    if run.get("checkpointing") == "full": model.gradient_checkpointing_enable(**_checkpointing_arguments(run))
    return model, batch, built


def _checkpointing_arguments(run: Run) -> dict[str, Any]:
    """Where the run says it; else the version's own default."""
    return {"gradient_checkpointing_kwargs": {"use_reentrant": run["reentrant"]}} if "reentrant" in run else {}


def with_adapters(model: Any, run: Run) -> Any:
    if "lora" not in run: return model
    from peft import LoraConfig, get_peft_model

    targets = run["lora_targets"]
    model = get_peft_model(model, LoraConfig(r=run["lora"], lora_alpha=16,
                                             target_modules="all-linear" if targets == ["all-linear"] else targets,
                                             lora_dropout=run.get("lora_dropout", 0.0)))
    if run.get("checkpointing") == "full": model.enable_input_require_grads()
    return model


def make_optimizer(name: str, parameters: list[Any]) -> Any:
    from torch import optim

    made: dict[str, tuple[Any, dict[str, Any]]] = {
        "adamw": (optim.AdamW, {}),
        "adamw-fused": (optim.AdamW, {"fused": True}),
        "adamw-for": (optim.AdamW, {"foreach": False}),
        "adam": (optim.Adam, {}),
        "nadam": (optim.NAdam, {}),
        "radam": (optim.RAdam, {}),
        "adamax": (optim.Adamax, {}),
        "sgd": (optim.SGD, {}),
        "sgdm": (optim.SGD, {"momentum": 0.9}),
        "adagrad": (optim.Adagrad, {}),
        "rmsprop": (optim.RMSprop, {}),
        "adafactor-torch": (optim.Adafactor, {}),
    }
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(parameters, lr=1e-5, relative_step=False, scale_parameter=False)
    optimizer, options = made[name]
    return optimizer(parameters, lr=1e-5, **options)


def device_memory_in_use() -> int | None:
    """Of the whole card, as nvidia-smi shows it; None without pynvml."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)
    except Exception:
        return None


def start_row(case: Case) -> Row:
    import torch

    row: Row = {"id": case["id"], "gpu": "", **case, "torch": torch.__version__}
    row["nvml_before_context"] = device_memory_in_use()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    row["gpu"] = torch.cuda.get_device_name(0)
    row["gpu_total"] = torch.cuda.get_device_properties(0).total_memory
    row["nvml_after_context"] = device_memory_in_use()
    gc.collect()
    torch.cuda.empty_cache()
    return row


def count_parameters(row: Row, model: Any) -> None:
    row["params"] = sum(p.numel() for p in model.parameters())
    row["trainable"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    row["n_param_tensors"] = sum(1 for _ in model.parameters())
    row["buffer_bytes"] = sum(b.numel() * b.element_size() for b in model.buffers())


def run_bare(case: Case) -> Row:
    """A plain loop: zero_grad, forward, backward, (clip,) step; three times, then a few for the clock."""
    import torch

    row, run = start_row(case), case["run"]
    precision = run["precision"]
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    cast = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(precision)
    allocated, reserved = torch.cuda.memory_allocated, torch.cuda.memory_reserved
    peak = torch.cuda.max_memory_allocated
    base = allocated()
    model, batch, config = build(case)
    gc.collect()
    torch.cuda.empty_cache()
    row["attn_impl"] = getattr(config, "_attn_implementation", None)
    row["batch_bytes"] = sum(v.numel() * v.element_size() for v in batch.values())
    row["alloc_after_model_and_batch"] = allocated() - base
    row["reserved_after_model"] = reserved()
    row["nvml_after_model"] = device_memory_in_use()
    model = with_adapters(model, run)
    count_parameters(row, model)
    model.train()
    optimizer = make_optimizer(run["optimizer"], [p for p in model.parameters() if p.requires_grad])
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "amp-fp16")
    micro_batches = run["accumulation_steps"]
    clip_at = run["max_grad_norm"]

    def forward() -> Any:
        if cast is not None:
            with torch.autocast("cuda", dtype=cast): output = model(**batch)
        else:
            output = model(**batch)
        return output if torch.is_tensor(output) else output.loss

    def backward(loss: Any) -> None:
        scaler.scale(loss / micro_batches if micro_batches > 1 else loss).backward()

    def clip() -> None:
        if not clip_at: return
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip_at)

    def step() -> None:
        scaler.step(optimizer)
        scaler.update()

    phases: list[list[Any]] = []
    overall = 0

    def phase(name: str, run: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal overall
        torch.cuda.reset_peak_memory_stats()
        before = allocated()
        result = run(*arguments)
        torch.cuda.synchronize()
        phases.append([number, name, before - base, peak() - base, allocated() - base, reserved()])
        overall = max(overall, peak() - base)
        return result

    torch.cuda.reset_peak_memory_stats()
    last = 0.0
    for number in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        for _ in range(micro_batches):
            loss = phase("forward", forward)
            phase("backward", backward, loss)
            last = float(loss.detach())
            del loss
        if clip_at: phase("clip", clip)
        phase("optimizer", step)
    statistics = torch.cuda.memory_stats()
    row.update(phases=phases, peak_allocated=overall, peak_reserved=torch.cuda.max_memory_reserved(), loss=last,
               nvml_after_train=device_memory_in_use(), alloc_retries=statistics["num_alloc_retries"],
               segments=statistics["segment.all.peak"],
               inactive_split_peak=statistics["inactive_split_bytes.all.peak"])

    def whole_step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for _ in range(micro_batches):
            loss = forward()
            backward(loss)
            del loss
        clip()
        step()

    whole_step()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(TIMED_STEPS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        whole_step()
        mark.record()
    torch.cuda.synchronize()
    row["step_ms_median"] = sorted(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))[TIMED_STEPS // 2]
    return row


def run_trainer(case: Case) -> Row:
    """transformers' Trainer with its defaults over random sequences."""
    import torch
    import transformers

    row, run = start_row(case), case["run"]
    row["transformers"] = transformers.__version__
    allocated = torch.cuda.memory_allocated
    base = allocated()
    weights = {"amp-fp16": "fp32", "amp-bf16": "fp32"}.get(run["precision"], run["precision"])
    model, batch, config = build({**case, "run": {**run, "precision": weights, "checkpointing": "none"}})
    words, length = config.vocab_size, run["sequence_length"]
    generator = torch.Generator().manual_seed(0)
    samples = []
    for _ in range(TRAINER_SAMPLES):
        ids = torch.randint(5, words, (length,), generator=generator)
        labels = torch.tensor(0) if run["task"] == "seqcls" else ids.clone()
        samples.append({"input_ids": ids, "labels": labels})
    del batch
    gc.collect()
    torch.cuda.empty_cache()
    model = with_adapters(model, run)
    count_parameters(row, model)
    row["alloc_after_model"] = allocated() - base
    options: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(prefix="memcalc_measure_"), "per_device_train_batch_size": run["batch_size"],
        "max_steps": TRAINER_STEPS, "gradient_accumulation_steps": run["accumulation_steps"],
        "gradient_checkpointing": run.get("checkpointing") == "full", "fp16": run["precision"] == "amp-fp16",
        "bf16": run["precision"] == "amp-bf16", "report_to": "none", "logging_strategy": "no", "save_strategy": "no",
        "disable_tqdm": True, "dataloader_num_workers": 0, "remove_unused_columns": False, **_checkpointing_arguments(run)}
    names = {"adamw": "adamw_torch", "adamw-fused": "adamw_torch_fused"}
    options["optim"] = names.get(run["optimizer"], run["optimizer"])
    options["max_grad_norm"] = run["max_grad_norm"]
    arguments = transformers.TrainingArguments(**options)
    row["optim"] = str(arguments.optim)
    stamps: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            torch.cuda.synchronize()
            stamps.append(time.perf_counter())

    torch.cuda.reset_peak_memory_stats()
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=samples,
                                   data_collator=transformers.default_data_collator, callbacks=[Clock()])
    trainer.train()
    row.update(peak_allocated=torch.cuda.max_memory_allocated() - base,
               peak_reserved=torch.cuda.max_memory_reserved(), alloc_end=allocated() - base,
               nvml_after_train=device_memory_in_use())
    durations = sorted(b - a for a, b in zip(stamps[1:], stamps[2:]))
    row["step_ms_median"] = 1e3 * durations[len(durations) // 2]
    return row


def run_case(case: Case) -> Row:
    """The row; where the run failed, with `error` instead of figures."""
    try:
        return run_trainer(case) if case["run"]["loop"] == "trainer" else run_bare(case)
    except BaseException as error:  # the child has nothing else to do than to say so
        return {**case, "error": repr(error)[:400], "tb": traceback.format_exc()[-800:]}


def import_everything(cases: list[Case]) -> None:
    """Once, before any fork, and outside of any `torch.device("cuda")`: a library that is imported while a model is
    built there leaves a small tensor on the card (measured: 512 bytes where transformers' modules were)."""
    import torch  # noqa: F401  no CUDA call here

    for name in ("torchvision", "peft"):
        with contextlib.suppress(ImportError): importlib.import_module(name)
    if all(case["harness"]["config"]["model_type"] == "torchvision" for case in cases): return
    import transformers.models.auto.modeling_auto

    with contextlib.suppress(ImportError): from transformers import Trainer  # noqa: F401
    for case in cases:
        if case["harness"]["config"]["model_type"] == "torchvision": continue
        importlib.import_module(f"transformers.models.{module_name(case['harness']['config']['model_type'])}")


def module_name(model_type: str) -> str:
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    return str(model_type_to_module_name(model_type))


def main(cases_path: str, rows_path: str) -> None:
    with open(cases_path) as file: cases = [json.loads(line) for line in file if line.strip()]
    import_everything(cases)
    for case in cases:
        child = os.fork()
        if child == 0:
            row = run_case(case)
            with open(rows_path, "a") as file: file.write(json.dumps(row) + "\n")
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
