"""The rows of tests/measured/published/*_blind.jsonl and their like as memcalc's options: what others published and was
predicted before anyone here looked at the results. cases(memcalc): [(group, row, words)]."""
import json
from pathlib import Path

from megatron_cases import b200_case, micro_batches_option
from memcalc_pages import PUBLISHED, ROOT, json_lines, specs_with
from throughput_cases import gpt, mpt_case, specs_of_triton

NETWORKS = ("FMS", "INTERNEVO")


def specs_of_network(memcalc, card, bytes_per_second):
    """A directory like specs/ in which a host of this card has other adapters: so many bytes a second for each card."""
    path = Path("networks.json")
    networks = json.loads((ROOT / "specs" / path).read_text())
    for system in networks["systems"]:
        if card in system["cards"]: system["cards"].remove(card)
    networks["systems"].append({"cards": [card], "bytes_per_second": bytes_per_second, "gpus_per_host": 8,
                                "source": "what published the run"})
    return specs_with(memcalc, {path: json.dumps(networks)})


def bigscience_case(row, specs):
    config = {"model_type": "gpt2", "n_layer": row["layers"], "n_embd": row["hidden"], "n_head": row["heads"],
              "vocab_size": 250880, "n_positions": 2048, "activation_function": "gelu"}
    gpus, micro_batches = row["tp"] * row["pp"] * row["dp"], row["global_batch"] // (row["dp"] * row["micro_batch"])
    megatron = ["attention-backend=unfused"]
    if row["precision"] == "bf16" and row["pp"] > 1:  # --pp-partition-method 'type:transformer|embedding'
        ends = (row["layers"] + 2) // row["pp"] - 1
        megatron += [f"decoder-first-pipeline-num-layers={ends}", f"decoder-last-pipeline-num-layers={ends}"]
    argv = ["--parallel", "megatron-dist", "--precision", row["precision"], "--gpu", "a100-sxm4-80gb", "--gpus", gpus,
            "--tp", row["tp"], "--pp", row["pp"], "--bs", row["micro_batch"], "--seq", 2048,
            micro_batches_option(row["pp"]), micro_batches, "--checkpointing", "full", "--megatron", ",".join(megatron),
            "--specs", specs]
    return config, argv


# Of BERT run_squad.py counts --max_steps steps (Lambda's scripts: 100) but runs one more, and makes each batch in the
# training process while the card waits (DataLoader without workers, loss.item() in each step): five tensors a sample.
# Timed in a loop of the same loader on a processor of ours, 96 and 320 samples a batch, 2026-11-30.
SQUAD_STEPS, SQUAD_SAMPLE_S = 101 / 100, 29e-6


def is_squad(row): return row["id"].startswith("LAMBDA-") and "_squad" in row["id"]


def lambda_case(row):
    """float32 of NGC's PyTorch is TF32 from Ampere on (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE)."""
    turing = row["gpu"] in ("v100-sxm2-16gb", "quadro-rtx-8000")
    common = ["--gpu", row["gpu"], "--bs", row["batch"]]
    if row["model"] == "resnet50":
        precision = "amp-fp16" if row["precision"] == "fp16" else "fp32" if turing else "tf32"
        return "resnet50", [*common, "--task", "image", "--loop", "bare", "--precision", precision, "--optimizer", "sgdm"]
    model = {"bert_base_squad": "bert-base", "bert_large_squad": "bert-large"}[row["model"]]
    asked = [*common, "--task", "tokcls", "--seq", 384, "--attn", "eager", "--clip-grad", 1]
    if row["precision"] == "fp16":  # apex O2: 16-bit weights, float32 masters, as bare DeepSpeed's fp16
        return model, [*asked, "--loop", "bare", "--framework", "deepspeed", "--parallel", "ds-zero1", "--precision", "fp16", "--optimizer", "adamw-fused"]
    return model, [*asked, "--loop", "bare", "--precision", "fp32" if turing else "tf32", "--optimizer", "adamw-fused"]


def rows_of(name): return json_lines(PUBLISHED / name)[1:]


def with_options(name):
    """[(row, its config or None)] of a file whose rows have their own options; configs by name are in its first line."""
    head, *rows = json_lines(PUBLISHED / name)
    config_of = lambda told: head["configs"][told] if isinstance(told, str) else told
    return [(row, config_of(row.get("config"))) for row in rows]


def model_and_options(row, config, memcalc):
    """`again`: what is asked today, where the options that were asked first are not what the source ran."""
    now = row.get("again", row)
    if "program" in now: return ["--model", PUBLISHED / "programs" / now["program"], *now["argv"]]
    return [*(["--model", memcalc.file(config)] if config else []), *now["argv"]]


def cases(memcalc, with_mpt=False):
    """[(group, row, words)] of every row but MPT's, which take longer than all others and differ little from those of
    published-throughput.md. `memcalc` writes the files that the questions need."""
    other = lambda: type(memcalc)(memcalc.executable)  # with a folder of its own for other specs
    folders = {name: other() for name in ("triton", "jean-zay", "fms-a100", "fms-h100", "internevo")}
    triton = specs_of_triton(folders["triton"])
    jean_zay = specs_of_network(folders["jean-zay"], "a100-sxm4-80gb", 6.25e9)  # 4 x 100 Gb/s for eight cards
    networks = {  # of a source whose hosts' adapters are told, by card
        ("FMS", "a100-sxm4-80gb"): specs_of_network(folders["fms-a100"], "a100-sxm4-80gb", 6.25e9),  # 400 Gb/s a host
        ("FMS", "h100-sxm"): specs_of_network(folders["fms-h100"], "h100-sxm", 12.5e9),  # 800 Gb/s
        ("INTERNEVO", "a800-sxm4-80gb"): specs_of_network(folders["internevo"], "a800-sxm4-80gb", 6.25e9)}  # 4 x 100 Gb/s
    asked = []
    sources = [("SimuMax, B200", "megatron_b200_blind.jsonl", b200_case),
               ("Megatron-DeepSpeed, A100", "megatron_bigscience.jsonl", lambda row: bigscience_case(row, jean_zay)),
               ("one card", "lambda_one_card.jsonl", lambda_case)]
    if with_mpt: sources.append(("MPT", "mpt_throughput_blind.jsonl", lambda row: mpt_case(row, triton)))
    for group, name, case_of in sources:
        for row in rows_of(name):
            model, argv = case_of(row)
            asked.append((group, row, ["--model", model if isinstance(model, str) else memcalc.file(model), *argv]))
    for group, name in (("others", "steps_blind.jsonl"), ("second round", "steps_later.jsonl"), ("third round", "steps_third.jsonl"),
                        ("fourth round", "steps_fourth.jsonl")):
        for row, config in with_options(name):
            network = ["--specs", networks[row["id"].split("-")[0], row["gpu"]]] if row["id"].startswith(NETWORKS) else []
            asked.append((group, row, [*model_and_options(row, config, memcalc), *network]))
    memcalc.kept = folders  # as long as the questions
    loaded = lambda row: ["--sample-seconds", SQUAD_SAMPLE_S] if is_squad(row) else []
    return [(group, row, [*words, *loaded(row)]) for group, row, words in asked]
