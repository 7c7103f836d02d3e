"""What other ways to know say of the runs of a file of measured rows, beside what was measured (peak_allocated).

usage: rivals.py ROWS.jsonl OUT.jsonl [--memtracker] [--every N]      (transformers, torchvision; a card for --memtracker)

Rows are of shared/truth/single_gpu.jsonl's form: training steps with AdamW in a plain loop.
- accelerate 1.15.0 estimate-memory, "Training using Adam (Peak vRAM)" (commands/estimate.py, estimate_training_usage).
- DeepSpeed 0.19.8, estimate_zero2_model_states_mem_needs on one GPU without offload (runtime/zero/stage_1_and_2.py).
- PyTorch 2.11's MemTracker (torch/distributed/_tools/mem_tracker.py) over two steps on fake tensors of a card; it
  needs one, because autograd's engine asks for it.
"""
import argparse
import json
import time
from pathlib import Path

AMP = {"amp-bf16": "bfloat16", "amp-fp16": "float16"}
TYPE = {"bf16": "bfloat16", "fp16": "float16"}


def is_asked(case):
    return not (case.get("mode") == "infer" or case.get("compile") or case.get("lora") or "layers" in case
                or case.get("optimizer", "adamw") not in ("adamw", "adamw-fused", "adamw-for"))


def accelerate(row):
    """Bytes; its --dtypes: float32, or the 16-bit type where the run has one."""
    fp32 = 4 * row["params"]
    return 4 * fp32 if row["case"]["precision"] in ("fp32", "tf32") else 2 * fp32


def deepspeed(row): return 2 * row["params"] + 18 * row["params"]


def memtracker(case):
    """(bytes, seconds)"""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    import models
    task, spec = models.MODELS[case["model"]]
    batch, length = case["batch"], case.get("seq", 0)
    start = time.perf_counter()
    with FakeTensorMode(), torch.device("cuda"):
        dtype = getattr(torch, TYPE.get(case["precision"], "float32"))
        ids = lambda *shape: torch.zeros(*shape, dtype=torch.long)
        if task == "tv":
            import torchvision
            module = getattr(torchvision.models, spec)()
            inputs = {"x": torch.zeros(batch, 3, 224, 224, dtype=dtype)}
            loss_of = lambda: torch.nn.functional.cross_entropy(module(**inputs), ids(batch))
        else:
            import transformers
            spec = dict(spec)
            config = transformers.AutoConfig.for_model(spec.pop("model_type"), **spec)
            if task == "seq2seq": config.decoder_start_token_id = config.pad_token_id = 0
            kind = {"seqcls": "SequenceClassification", "mlm": "MaskedLM", "causal": "CausalLM", "seq2seq": "Seq2SeqLM",
                    "image": "ImageClassification"}[task]
            module = getattr(transformers, f"AutoModelFor{kind}").from_config(config, dtype=dtype,
                                                                             attn_implementation=case.get("attn", "sdpa"))
            module.train()
            if case.get("ckpt"): module.gradient_checkpointing_enable()
            inputs = {"pixel_values": torch.zeros(batch, 3, 224, 224, dtype=dtype)} if task == "image" else {"input_ids": ids(batch, length)}
            inputs["labels"] = ids(batch) if task in ("seqcls", "image") else ids(batch, length)
            loss_of = lambda: module(**inputs).loss
        optimizer = torch.optim.AdamW(module.parameters(), foreach=case.get("optimizer", "adamw") == "adamw",
                                      fused=case.get("optimizer") == "adamw-fused")
        tracker = MemTracker()
        tracker.track_external(module, optimizer, *inputs.values())
        with tracker:
            for step in range(2):
                for _ in range(case.get("accum", 1)):
                    with torch.autocast("cuda", getattr(torch, AMP.get(case["precision"], "bfloat16")), enabled=case["precision"] in AMP):
                        loss = loss_of()
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 0: tracker.reset_mod_stats()
        peak = tracker.get_tracker_snapshot("peak")
        return max(sum(v for k, v in each.items() if "Total" in str(k)) for each in peak.values()), time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--memtracker", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="ask MemTracker of every N-th row alone")
    arguments = parser.parse_args()
    rows = [row for row in map(json.loads, arguments.rows.read_text().splitlines()) if is_asked(row["case"])]
    with arguments.out.open("w") as out:
        for i, row in enumerate(rows):
            made = {"id": row["case"]["id"], "measured": row["peak_allocated"], "accelerate": accelerate(row), "deepspeed": deepspeed(row)}
            if arguments.memtracker and i % arguments.every == 0:
                try:
                    made["memtracker"], made["memtracker_s"] = memtracker(row["case"])
                    made["memtracker_s"] = round(made["memtracker_s"], 2)
                except Exception as error:
                    made["memtracker_error"] = f"{type(error).__name__}: {error}"[:200]
            out.write(json.dumps(made) + "\n")
            out.flush()
            print(made, flush=True)


if __name__ == "__main__": main()
