"""Runs of model families, drawn and predicted before they are measured. A case is a line {"id", "config", "run"}: a
config.json and memcalc's record of a run.

usage: families.py draw SEED N CASES OUT              N more cases of the configurations in CASES
       families.py predict MEMCALC CASES OUT [--gpu NAME]
       families.py measure CASES OUT [--budget SECONDS] [--jobs N]        on a card; several at a time are not timed
       families.py history CASES OUT [--budget SECONDS]        on a card
       families.py compare CASES PREDICTED MEASURED [--rows OUT]
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
EAGER = ("mamba", "gptj", "mpnet", "deberta-v2", "bloom", "mpt", "mimo_v2_flash", "deepseek_v4")  # which have no other attention
# Classes of the checkpoint's own, which are those but for Qwen's reward models' score.
BUILT_AS = {"kimi_k2": "deepseek_v3", "qwen2_reward": "qwen2", "internlm2_reward": "llama"}


def lines_of(path): return [json.loads(line) for line in Path(path).read_text().splitlines()]


def write_lines(path, rows): Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def draw(a):
    r = random.Random(a.seed)
    cases = lines_of(a.cases)
    drawn = []
    for i in range(a.n):
        case = cases[i % len(cases)]
        has_cache = {"use_cache": True} if case["run"].get("use_cache", True) else {}
        run = dict(task=case["run"]["task"], loop="bare", **has_cache, precision=r.choice(["bf16", "bf16", "amp-bf16", "fp32", "amp-fp16"]),
                   batch_size=r.choice([1, 2, 3, 5, 8]), sequence_length=r.choice([100, 197, 333, 512, 777]),
                   optimizer=r.choice(["adamw", "adamw", "adamw-fused", "sgdm", "adafactor-torch"]))
        for key in ("images", "image_size"):
            if key in case["run"]: run[key] = case["run"][key]
        if "images" in run: run["sequence_length"] += case["run"]["sequence_length"]  # the text behind the images
        run["weights_dtype"] = "bf16" if run["precision"] == "bf16" else "fp32"
        if r.random() < 0.3: run["checkpointing"] = "full"
        if r.random() < 0.2: run["accumulation_steps"] = 2
        if r.random() < 0.2: run["max_grad_norm"] = 1.0
        drawn.append(dict(id=f"drawn-{a.seed}-{i}-{case['id']}", config=case["config"], run=run))
    write_lines(a.out, drawn)


def predict(a):
    sys.path.insert(0, str(HERE.parents[2] / "scripts"))
    import memcalc_rows
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for case in lines_of(a.cases):
            path = Path(folder, "config.json")
            path.write_text(json.dumps(case["config"]))
            words = ["--model", str(path), *memcalc_rows.words_of(case["run"]), "--gpu", a.gpu]
            answer = subprocess.run([a.memcalc, *words, "--format", "json"], capture_output=True, text=True)
            row = dict(id=case["id"])
            if answer.returncode > 1: row["refused"] = answer.stderr.strip()
            else:
                report = json.loads(answer.stdout)
                row.update(allocated=report["memory"]["peak_allocated_bytes"], reserved=report["memory"]["peak_reserved_bytes"],
                           ms=1e3 * (report.get("time") or {}).get("step_seconds", 0))
            said.append(row)
    write_lines(a.out, said)


def of_the_hub(model_type):
    """Classes of the hub's own code: LLaDA's and Dream's as github.com/ZHZisZZ/dllm at ca176752 has them, whose folder
    dllm/pipelines is HUB_CODE."""
    import importlib
    import os

    import torch
    import transformers
    from transformers import modeling_rope_utils
    sys.path.insert(0, os.environ["HUB_CODE"])
    if model_type == "llada":
        code = importlib.import_module("llada.models.modeling_llada")

        class WithLoss(code.LLaDAModelLM):
            def forward(self, input_ids, labels, attention_mask=None):
                outputs = super().forward(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
                loss = torch.nn.functional.cross_entropy(outputs.logits.view(-1, outputs.logits.shape[-1]), labels.view(-1))
                return transformers.modeling_outputs.MaskedLMOutput(loss=loss, logits=outputs.logits)

            def _set_gradient_checkpointing(self, enable=True, gradient_checkpointing_func=None, **_):
                super()._set_gradient_checkpointing(enable, gradient_checkpointing_func)

        config = code.LLaDAConfig
    else:
        def default_rope(config, device=None, **_):  # transformers 5 has it in each class
            dim = config.hidden_size // config.num_attention_heads
            return 1.0 / (config.rope_theta ** (torch.arange(0, dim, 2, dtype=torch.int64).to(device=device, dtype=torch.float) / dim)), 1.0

        modeling_rope_utils.ROPE_INIT_FUNCTIONS.setdefault("default", default_rope)
        modeling_rope_utils.rope_config_validation = lambda *_, **__: None
        code = importlib.import_module("dream.models.modeling_dream")
        code.DreamConfig.use_return_dict = True
        config, WithLoss = code.DreamConfig, code.DreamModel
    transformers.AutoConfig.register(model_type, config)
    transformers.AutoModelForMaskedLM._model_mapping._extra_content[config] = WithLoss


def register_texts(model_type):
    """Text models whose configuration no Auto class takes, with the head that their models of images and text have; Mllama
    and Mistral 4 have classes of their own. That experts may be grouped transformers finds by the word @use_experts_implementation in the
    file of the class, which is this one."""
    import torch
    import transformers
    if model_type in ("llada", "Dream"): return of_the_hub(model_type)
    known = transformers.AutoModelForCausalLM._model_mapping._extra_content  # register() leaves transformers' own configurations out
    if model_type == "mllama_text_model":
        from transformers.models.mllama.configuration_mllama import MllamaTextConfig
        known[MllamaTextConfig] = transformers.MllamaForCausalLM
        return
    if model_type == "mistral4":
        known[transformers.Mistral4Config] = transformers.models.mistral4.Mistral4ForCausalLM
        return
    if model_type == "deepseek_ocr2_text":
        from transformers.models.deepseek_ocr2 import modeling_deepseek_ocr2 as of
        base, inner, forward = of.DeepseekOcr2TextPreTrainedModel, of.DeepseekOcr2TextModel, transformers.DeepseekV2ForCausalLM.forward
    elif model_type == "muse_glimmer_text":
        from transformers.models.muse_glimmer import modeling_muse_glimmer as of
        base, inner = of.MuseGlimmerPreTrainedModel, of.MuseGlimmerTextModel

        def forward(self, input_ids, labels):
            """MuseGlimmerForConditionalGeneration.forward from its text model on."""
            outputs = self.model(input_ids=input_ids)
            hidden_states = outputs.last_hidden_state
            logits = self.lm_head(hidden_states[:, slice(0, None), :])
            logits = logits * self.config.output_multiplier
            logits = logits / self.config.final_logit_softcapping
            logits = torch.tanh(logits)
            logits = logits * self.config.final_logit_softcapping
            loss = self.loss_function(logits, labels, self.config.vocab_size)
            return of.MuseGlimmerCausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=outputs.past_key_values)
    else: return

    class WithHead(base):
        config_class = inner.config_class
        _can_set_experts_implementation_cached_value = model_type != "muse_glimmer_text"  # which has no experts

        def __init__(self, config):
            super().__init__(config)
            self.model, self.vocab_size = inner(config), config.vocab_size
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self.post_init()

    WithHead.forward = forward
    known[inner.config_class] = WithHead


def import_early():
    """What transformers imports as it builds its first model would make a tensor on the device of the moment."""
    import transformers  # noqa: F401
    try: import torchaudio.compliance.kaldi  # noqa: F401
    except ImportError: pass


def asked_of(case):
    """A case as measure.py and history.py take it; its model is registered."""
    import models
    config = {k: v for k, v in case["config"].items() if k not in ("torch_dtype", "architectures", "dtype")}
    if config["model_type"] in ("gemma3", "mistral3") and "images" not in case["run"]:
        text = dict(config.get("text_config", config))
        text["model_type"] = text.get("model_type", {"gemma3": "gemma3_text", "mistral3": "mistral"}[config["model_type"]])
        config = text if text["model_type"] != "gemma3" else dict(text, model_type="gemma3_text")
    more = {"scores_by_two_layers": True} if config["model_type"] == "qwen2_reward" else {}
    config["model_type"] = BUILT_AS.get(config["model_type"], config["model_type"])
    register_texts(config["model_type"])
    models.MODELS[case["id"]] = (case["run"]["task"], config)
    asked = dict(case["run"], id=case["id"], model=case["id"], time_s=0.4, **more)
    # LLaDA's class calls SDPA by itself, and says of none that it has it.
    if config["model_type"] in (*EAGER, "llada"): asked["attention"] = "eager"
    return asked


def one_case(case):
    import measure as one
    row = one.run_case(asked_of(case), None)
    row["id"], row["run"] = case["id"], case["run"]
    for key in ("flops_by_op",): row.pop(key, None)
    return row


def history(a):
    """The allocator's requests with their operators (history.py), in the folder OUT."""
    import os
    os.environ.setdefault("TORCH_SYMBOLIZE_MODE", "dladdr")
    import history as recorded
    import transformers.models.auto.modeling_auto  # noqa: F401
    import_early()
    from op_requests import pool
    os.makedirs(a.out, exist_ok=True)
    pool([(case["id"], (lambda case=case: recorded.run(asked_of(case), a.out, False))) for case in lines_of(a.cases)], 6, print, time.time() + a.budget)


def measure(a):
    import os

    import measure as one
    import torch
    import_early()  # before the children are made
    del torch
    from op_requests import pool
    one.TIMING = a.jobs == 1

    def run(case):
        try: row = one_case(case)
        except Exception as error:
            import traceback
            row = dict(id=case["id"], run=case["run"], error=repr(error)[:400] + traceback.format_exc()[-600:])
        if a.jobs > 1: row = {key: value for key, value in row.items() if not key.startswith("nvml")}
        with open(a.out, "a") as out: out.write(json.dumps(row) + "\n")
        print(case["id"], row.get("peak_allocated"), row.get("step_ms_median"), row.get("error", "")[:200], flush=True)
        os._exit(0)

    pool([(case["id"], lambda case=case: run(case)) for case in lines_of(a.cases)], a.jobs, lambda _: None, time.time() + a.budget)


def compare(a):
    cases, said = {c["id"]: c for c in lines_of(a.cases)}, {p["id"]: p for p in lines_of(a.predicted)}
    rows, errors = [], []
    for row in lines_of(a.measured):
        p = said[row["id"]]
        if "error" in row or "refused" in p:
            print(f"{row['id']:56} {row.get('error', p.get('refused'))[:160]}")
            continue
        found = [100 * (p["allocated"] / row["peak_allocated"] - 1), 100 * (p["reserved"] / row["peak_reserved"] - 1),
                 100 * (p["ms"] / row["step_ms_median"] - 1) if p["ms"] and row.get("step_ms_median") else None]
        errors.append(found)
        print(f"{row['id']:56} {p['allocated'] - row['peak_allocated']:+12d} {found[0]:+8.3f} % {found[1]:+8.3f} % " +
              (f"{found[2]:+.0f} %" if found[2] is not None else "-"))
        kept = {key: value for key, value in {**cases[row["id"]], **row}.items() if key in ("id", "gpu", "config", "run", "params")}
        kept.update({k: row[k] for k in ("peak_allocated", "peak_reserved", "step_ms_median") if k in row})
        rows.append(dict(kept, predicted=dict(allocated=p["allocated"], reserved=p["reserved"], ms=round(p["ms"], 2))))
    for i, name in enumerate(("allocated", "reserved", "time")):
        sizes = sorted(abs(e[i]) for e in errors if e[i] is not None)
        if sizes:
            print(f"{name}: exact {sum(s == 0 for s in sizes)} of {len(sizes)}, median {sizes[len(sizes) // 2]:.3f} %, "
                  f"p90 {sizes[len(sizes) * 9 // 10]:.3f} %, worst {sizes[-1]:.2f} %")
    if a.rows: write_lines(a.rows, rows)


def main(usage, functions, budget):
    """`functions`: each with the names of its arguments. `budget`: seconds that measure() has unless it is told."""
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function, names in functions:
        command = commands.add_parser(function.__name__)
        for name in names: command.add_argument(name, type=int if name in ("seed", "n") else str)
        if function.__name__ in ("measure", "history"): command.add_argument("--budget", type=float, default=budget)
        if function.__name__ == "measure": command.add_argument("--jobs", type=int, default=1)
        if function is predict: command.add_argument("--gpu", default="NVIDIA H200")
        if function is compare: command.add_argument("--rows")
        command.set_defaults(call=function)
    a = parser.parse_args()
    a.call(a)


if __name__ == "__main__":
    main(__doc__, ((draw, ("seed", "n", "cases", "out")), (predict, ("memcalc", "cases", "out")), (measure, ("cases", "out")),
                   (history, ("cases", "out")), (compare, ("cases", "predicted", "measured"))), 500)
