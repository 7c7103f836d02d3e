"""What a training step takes the host, by architecture, optimizer and loop: tiny models, whose kernels take no time, in turns with a tiny LLaMA.

usage: host_drawn.py draw CASES.jsonl                                  architectures, depths, precisions and the Trainer's optimizer, drawn with seed 9011
       host_drawn.py predict CASES.jsonl MEMCALC OUT.jsonl             what memcalc tells of each (without a card; models are their config.json)
       host_drawn.py run CASES.jsonl OUT.jsonl SECONDS [--device cpu]  rounds over all cases until the time is over; a line for each block of steps
No profiler is at work. A round times of each case: "beside", steps of the LLaMA of eight layers (bfloat16, foreach AdamW); "phases": forward, backward and step() of
each optimizer, one after the other on the same parameters, each from an idle card; "step": whole steps of a plain loop with foreach AdamW, the card waited for at
the end alone; "trainer": whole steps of transformers' Trainer from one's end to the next's, nothing waited for. Milliseconds.
"""
import json, os, random, subprocess, sys, tempfile, time, traceback, warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
warnings.filterwarnings("ignore")
os.environ.setdefault("HF_HUB_OFFLINE", "1"); os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error"); os.environ["TOKENIZERS_PARALLELISM"] = "false"
SEED, BATCH, TOKENS = 9011, 1, 16
# Kinds, of which so many are drawn: encoders are what is looked for.
KINDS = {"encoder": (7, ("bert", "roberta", "camembert", "xlm-roberta", "electra", "distilbert", "albert", "mpnet", "modernbert", "deberta-v2", "nomic_bert")),
         "image": (2, ("vit", "deit")),
         "encoder-decoder": (4, ("t5", "bart", "marian", "mbart", "pegasus", "m2m_100")),
         "decoder": (9, ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "gpt2", "gpt_neox", "opt", "phi", "olmo2", "stablelm", "bloom", "falcon", "phi3", "cohere", "starcoder2", "gptj", "mpt")),
         "experts": (3, ("mixtral", "granitemoe", "qwen2_moe", "qwen3_moe", "olmoe"))}
ENDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
SMALL = dict(vocab_size=99, hidden_size=64, num_attention_heads=4, intermediate_size=128)
SIDES = dict(encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, d_model=64, vocab_size=99)
KV = dict(num_key_value_heads=2)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2)
CONFIGS = {"qwen3": dict(**SMALL, **KV, head_dim=16), "gemma2": dict(**SMALL, **KV, head_dim=16), "gemma3_text": dict(**SMALL, **KV, head_dim=16),
           "gpt2": dict(vocab_size=99, n_embd=64, n_head=4), "gptj": dict(vocab_size=99, n_embd=64, n_head=4, rotary_dim=8), "opt": dict(vocab_size=99, hidden_size=64, ffn_dim=128, num_attention_heads=4, word_embed_proj_dim=64),
           "bloom": dict(vocab_size=99, hidden_size=64, n_head=4), "falcon": dict(vocab_size=99, hidden_size=64, num_attention_heads=4), "mpt": dict(vocab_size=99, d_model=64, n_heads=4, max_seq_len=512),
           "distilbert": dict(vocab_size=99, dim=64, n_heads=4, hidden_dim=128), "albert": dict(**SMALL, embedding_size=32), "electra": dict(**SMALL, embedding_size=64), "modernbert": dict(**SMALL),
           "nomic_bert": dict(**SMALL), "t5": dict(vocab_size=99, d_model=64, d_kv=16, d_ff=128, num_heads=4), **{name: SIDES for name in ("bart", "marian", "mbart", "pegasus", "m2m_100")},
           "vit": dict(hidden_size=64, num_attention_heads=4, intermediate_size=128, image_size=32, patch_size=8), "deit": dict(hidden_size=64, num_attention_heads=4, intermediate_size=128, image_size=32, patch_size=8),
           "mixtral": dict(**SMALL, **KV, num_local_experts=4), "granitemoe": dict(**SMALL, **KV, num_local_experts=4), "olmoe": dict(**SMALL, **KV, **EXPERTS),
           "qwen2_moe": dict(**SMALL, **KV, **EXPERTS, moe_intermediate_size=32, shared_expert_intermediate_size=64), "qwen3_moe": dict(**SMALL, **KV, **EXPERTS, moe_intermediate_size=32, head_dim=16),
           **{name: dict(**SMALL, **KV) for name in ("llama", "mistral", "qwen2", "starcoder2", "phi3", "cohere", "stablelm")}, "olmo2": SMALL}
DEPTH = {"gpt2": "n_layer", "gptj": "n_layer", "bloom": "n_layer", "mpt": "n_layers", "distilbert": "n_layers", "t5": "num_layers"}
OPTIMIZERS = {"adamw": ["adamw"], "adamw-fused": ["adamw-fused"], "adafactor": ["adafactor"], "adafactor-relative": ["adafactor-hf-relative"], "adafactor-torch": ["adafactor-torch"]}
BESIDE = dict(family="llama", kind="decoder", layers=8, precision="bf16", trainer="adamw_torch_fused")


def draw(path):
    draws = random.Random(SEED)
    cases = []
    for kind, (count, names) in KINDS.items():
        for family in draws.sample(names, count):
            layers = draws.choice((3, 4, 6) if kind in ("encoder-decoder", "experts") else (4, 6, 8, 12))
            cases.append(dict(family=family, kind=kind, layers=layers, precision=draws.choice(("bf16", "amp-bf16", "fp32")), trainer=draws.choice(("adamw_torch_fused", "adamw_torch_fused", "adafactor"))))
    draws.shuffle(cases)
    Path(path).write_text("".join(json.dumps(dict(case, id=f"h9011-{number:02}-{case['family']}-{case['layers']}-{case['precision']}")) + "\n" for number, case in enumerate(cases)))


def config_of(case):
    import transformers as tf
    family, layers = case["family"], case["layers"]
    own = dict(CONFIGS.get(family, SMALL))
    if case["kind"] == "encoder-decoder" and family != "t5": own.update(encoder_layers=layers, decoder_layers=layers)
    else: own[DEPTH.get(family, "num_hidden_layers")] = layers
    if case["kind"] == "encoder-decoder": own.update(decoder_start_token_id=0)
    if case["kind"] != "image": own.update(ENDS)
    return tf.AutoConfig.for_model(family, **own)


def class_of(case, config):
    import transformers as tf
    auto = {"encoder": tf.AutoModelForMaskedLM, "image": tf.AutoModelForImageClassification, "encoder-decoder": tf.AutoModelForSeq2SeqLM}.get(case["kind"], tf.AutoModelForCausalLM)
    found = auto._model_mapping[type(config)]
    return found[0] if isinstance(found, tuple) else found


def maker(device, config_of, class_of):
    """A case's model on the device, with the same weights each time."""
    import torch

    def made(case):
        torch.manual_seed(0)
        config = config_of(case)
        dtype = torch.bfloat16 if case["precision"] == "bf16" else torch.float32
        with torch.device(device): return class_of(case, config)._from_config(config).to(device, dtype).train()

    return made


def items_of(case, model):
    """One row of the batch that a model is given."""
    import torch
    ids, size = torch.randint(5, 90, (TOKENS,)), getattr(model.config, "image_size", None)
    if case["kind"] != "image": return dict(input_ids=ids, labels=ids.clone())
    return dict(pixel_values=torch.randn(3, size, size, dtype=next(model.parameters()).dtype), labels=torch.tensor(0))


def predict(cases, memcalc, out):
    cases = [BESIDE | dict(id="beside"), *map(json.loads, Path(cases).read_text().splitlines())]
    tasks = {"encoder": "mlm", "image": "image", "encoder-decoder": "seq2seq"}

    def ask(*words):
        got = subprocess.run([memcalc, *map(str, words), "--gpu", "h200-sxm", "--no-remedies", "--format", "json"], capture_output=True, text=True)
        try: answer = json.loads(got.stdout)
        except ValueError: return dict(refused=got.stderr[-200:])
        times = answer.get("time")
        return {"refused": "no time"} if not times else {key: round(1e3 * times[key + "_seconds"], 4) for key in ("step", "host", "kernel")} | {"phases": [round(1e3 * times["by_phase"][key + "_seconds"], 4) for key in ("forward", "backward", "optimizer")]}

    with open(out, "w") as file, tempfile.TemporaryDirectory() as folder:
        for case in cases:
            config = config_of(case)
            content = dict(config.to_diff_dict(), model_type=config.model_type, architectures=[class_of(case, config).__name__])
            path = Path(folder) / "config.json"
            path.write_text(json.dumps(content, default=str))
            words = ["--model", path, "--bs", BATCH, "--task", tasks.get(case["kind"], "causal"), *(["--seq", TOKENS] if case["kind"] != "image" else []), "--precision", case["precision"]]
            if case["precision"] != "bf16": words += ["--weights-dtype", "fp32"]
            cache = ["--use-cache"] if case["kind"] not in ("encoder", "image") else []  # the first prediction, before the run, forgot it
            row = dict(id=case["id"], told={name: ask(*words, "--loop", "bare", *cache, "--optimizer", *option) for name, option in OPTIMIZERS.items()})
            row["told"]["trainer"] = ask(*words, "--loop", "trainer", *(["--optimizer", "adafactor"] if case["trainer"] == "adafactor" else []))
            file.write(json.dumps(row) + "\n"); file.flush()
            print(row["id"], {name: each.get("step") or each for name, each in row["told"].items()}, flush=True)


def trained_loops(device, made):
    """A class of Trainers over made(case), each of whose steps() times whole steps from one's end to the next's, in milliseconds."""
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments, default_data_collator
    clock = time.perf_counter

    class Ends(TrainerCallback):
        def __init__(self): self.at = []
        def on_step_end(self, *_, **__): self.at.append(clock())

    class Trained:
        def __init__(self, case):
            self.case, self.model = case, made(case)
            self.items = [items_of(case, self.model) for _ in range(8)] * 8

        def steps(self, count, skip=3):
            ends = Ends()
            arguments = TrainingArguments(output_dir=tempfile.gettempdir(), per_device_train_batch_size=BATCH, max_steps=count + skip + 1, bf16=self.case["precision"] == "amp-bf16", tf32=None, optim=self.case["trainer"], report_to="none",
                                          save_strategy="no", disable_tqdm=True, use_cpu=device == "cpu")
            trainer = Trainer(model=self.model, args=arguments, train_dataset=self.items, data_collator=default_data_collator, callbacks=[ends])
            trainer.remove_callback(PrinterCallback)
            trainer.train()
            for name in ("forward", "_original_forward"): self.model.__dict__.pop(name, None)
            return [round(1e3 * (b - a), 3) for a, b in zip(ends.at[skip:], ends.at[skip + 1:])]

    return Trained


def machine(device):
    import torch
    import transformers as tf
    return dict(gpu=torch.cuda.get_device_name(0) if device == "cuda" else "none", torch=torch.__version__, transformers=tf.__version__, python=sys.version.split()[0], cores=os.cpu_count(),
                cpu=next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), ""))


def timed(calls, row, number, emit):
    """What each call returns, in the row; round 0, in which kernels are loaded, tells its errors alone."""
    for key, call in calls.items():
        try: row[key] = call()
        except Exception: row[key], row["error"] = None, traceback.format_exc()[-400:]
    if number: emit(**row)
    elif row.get("error"): emit(kind="error", id=row["id"], error=row["error"]); print(row["id"], row["error"][-200:], flush=True)


def run(cases, out, seconds, device):
    begin = time.time()
    import torch
    from transformers import default_data_collator
    from transformers.optimization import Adafactor
    clock, sync = time.perf_counter, torch.cuda.synchronize if device == "cuda" else (lambda: None)
    file = open(out, "a")

    def emit(**row): file.write(json.dumps(row, separators=(",", ":")) + "\n"); file.flush()

    made = maker(device, config_of, class_of)

    class Loop:
        def __init__(self, case):
            self.case, self.model = case, made(case)
            self.parameters = list(self.model.parameters())
            self.amp = case["precision"] == "amp-bf16"
            self.batch = {key: value.to(device) for key, value in default_data_collator([items_of(case, self.model)] * BATCH).items()}
            make = lambda: self.parameters
            self.optimizers = {"adamw": torch.optim.AdamW(make(), lr=1e-6), "adamw-fused": torch.optim.AdamW(make(), lr=1e-6, fused=True),
                               "adafactor": Adafactor(make(), lr=1e-6, scale_parameter=False, relative_step=False), "adafactor-relative": Adafactor(make()), "adafactor-torch": torch.optim.Adafactor(make(), lr=1e-6)}

        def forward(self):
            if not self.amp: return self.model(**self.batch).loss
            with torch.autocast(device, dtype=torch.bfloat16): return self.model(**self.batch).loss

        def whole(self):
            self.forward().backward(); self.optimizers["adamw"].step(); self.optimizers["adamw"].zero_grad()

        def steps(self, count, skip=1):
            got = []
            for _ in range(count + skip):
                sync(); t = clock(); self.whole(); sync(); got.append(round(1e3 * (clock() - t), 3))
            return got[skip:]

        def phases(self, count, skip=1):
            got = {}
            for number in range(count + skip):
                sync(); t = clock(); loss = self.forward(); row = dict(forward=clock() - t)
                sync(); t = clock(); loss.backward(); row["backward"] = clock() - t; del loss
                names = list(self.optimizers); names = names[number % 5:] + names[:number % 5]
                for name in names: sync(); t = clock(); self.optimizers[name].step(); row[name] = clock() - t
                sync(); t = clock(); self.optimizers["adamw"].zero_grad(); row["zero"] = clock() - t
                if number >= skip:
                    for name, value in row.items(): got.setdefault(name, []).append(round(1e3 * value, 3))
            return got

    Trained = trained_loops(device, made)
    emit(kind="machine", **machine(device))
    beside, beside_trained, todo = Loop(BESIDE), Trained(BESIDE), []
    for case in map(json.loads, Path(cases).read_text().splitlines()):
        try: todo.append((case, Loop(case), Trained(case)))
        except Exception: emit(kind="error", id=case["id"], error=traceback.format_exc()[-500:])
    print("made", len(todo), round(time.time() - begin, 1), flush=True)
    order = random.Random(SEED + 1)
    for number in range(1000):
        for case, loop, trained in order.sample(todo, len(todo)):
            if time.time() - begin > seconds: return
            row = dict(kind="block", round=number, id=case["id"])
            calls = dict(beside=lambda: beside.steps(4), phases=lambda: loop.phases(5), step=lambda: loop.steps(4), trainer=lambda: trained.steps(9), beside_phases=lambda: beside.phases(2),
                         beside_trainer=lambda: beside_trained.steps(5) if number % 2 else None)
            if number == 0: calls = dict(phases=lambda: loop.phases(2), trainer=lambda: trained.steps(2), beside=lambda: beside.phases(1))  # kernels are loaded
            timed(calls, row, number, emit)
        print("round", number, round(time.time() - begin, 1), flush=True)


if __name__ == "__main__":
    what, path, *rest = sys.argv[1:]
    device = rest.pop(rest.index("--device") + 1) if "--device" in rest else "cuda"
    if what == "draw": draw(path)
    elif what == "predict": predict(path, *rest[:2])
    else: run(path, rest[0], float(rest[1]), device)
