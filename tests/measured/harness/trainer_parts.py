"""Where the Trainer's step spends the host's time beyond a bare loop's: the same model in turns, bare, Trainer, bare, each case in a process of its own.

usage: trainer_parts.py OUT.jsonl SECONDS
A row: bare [step, forward, backward, optimizer] milliseconds before and after (the three from an idle card), Trainer's step with and without a wait
for the card at its end, and the milliseconds a step within parts of the Trainer (a part that waits for the card has the wait in it).
"""
import functools, json, os, sys, tempfile, time, traceback, warnings
warnings.filterwarnings("ignore"); os.environ.setdefault("HF_HUB_OFFLINE", "1"); os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error"); os.environ["TOKENIZERS_PARALLELISM"] = "false"
OUT, BUDGET = sys.argv[1], float(sys.argv[2]); T0 = time.time()
import torch, transformers as tf
from transformers import Trainer, TrainingArguments, TrainerCallback, default_data_collator  # noqa: F401
import transformers.models.auto.modeling_auto, transformers.models.bert.modeling_bert, transformers.models.llama.modeling_llama, transformers.models.gpt2.modeling_gpt2  # noqa: E401
import transformers.optimization  # noqa: F401
try: import accelerate, peft  # noqa: E401
except Exception as e: print(e)
torch.set_num_threads(1)
DEV = os.environ.get("DEV", "cuda"); SMALL = DEV == "cpu"
AMP = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}
TINY = dict(bert=dict(model_type="bert", vocab_size=99, hidden_size=64, num_attention_heads=4, intermediate_size=128), llama=dict(model_type="llama", vocab_size=99, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128),
            gpt2=dict(model_type="gpt2", vocab_size=99, n_embd=64, n_head=4))
FULL = dict(bert=dict(model_type="bert", hidden_size=1024, num_attention_heads=16, intermediate_size=4096, num_hidden_layers=24),
            llama=dict(model_type="llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072, tie_word_embeddings=True, rope_theta=5e5))
CASES = [dict(family="bert", layers=12, precision="fp32"), dict(family="bert", layers=12, precision="amp-fp16"), dict(family="bert", layers=12, precision="amp-bf16"),
         dict(family="bert", layers=12, precision="amp-fp16", ckpt=True), dict(family="bert", layers=12, precision="fp32", ckpt=True), dict(family="bert", layers=12, precision="amp-fp16", ckpt=True, accum=4),
         dict(family="llama", layers=12, precision="bf16"), dict(family="llama", layers=12, precision="amp-bf16", ckpt=True), dict(family="llama", layers=12, precision="bf16", accum=4), dict(family="gpt2", layers=12, precision="amp-bf16"),
         dict(family="bert", full=True, precision="fp32", batch=4, seq=512), dict(family="bert", full=True, precision="amp-fp16", batch=1, seq=512, accum=4, ckpt=True), dict(family="bert", full=True, precision="amp-bf16", batch=4, seq=512),
         dict(family="llama", full=True, precision="bf16", batch=2, seq=2048), dict(family="bert", full=True, precision="fp32", batch=4, seq=512, ckpt=True),
         dict(family="bert", layers=4, precision="fp32"), dict(family="llama", layers=12, precision="bf16", lora=16)]
sync = torch.cuda.synchronize if not SMALL else (lambda: None)
mid = lambda v: round(sorted(v)[len(v) // 2] * 1e3, 3) if v else None

def bare(model, batch, case, steps):
    amp, accum = AMP.get(case["precision"]), case.get("accum", 1)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, fused=True)
    scaler = torch.amp.GradScaler(DEV, enabled=case["precision"] == "amp-fp16")
    def forward():
        with torch.autocast(DEV, dtype=amp or torch.bfloat16, enabled=amp is not None): return model(**batch).loss
    def step():
        for _ in range(accum): scaler.scale(forward() / accum).backward()
        scaler.unscale_(optimizer); torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); scaler.step(optimizer); scaler.update(); optimizer.zero_grad(set_to_none=True)
    for _ in range(3): step()
    sync(); marks = [time.perf_counter()]
    for _ in range(steps): step(); sync(); marks.append(time.perf_counter())
    parts = [[], [], []]
    for _ in range(max(3, steps // 2)):
        sync(); t = time.perf_counter(); loss = forward(); parts[0].append(time.perf_counter() - t); sync(); t = time.perf_counter()
        scaler.scale(loss).backward(); parts[1].append(time.perf_counter() - t); sync(); t = time.perf_counter()
        scaler.unscale_(optimizer); torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); scaler.step(optimizer); scaler.update(); optimizer.zero_grad(set_to_none=True); parts[2].append(time.perf_counter() - t)
    sync()
    return [mid([b - a for a, b in zip(marks, marks[1:])]), *map(mid, parts)]

def in_trainer(model, items, case, steps, waits):
    spent = {}; stamps = []; rows = []
    def timed(name, f):
        @functools.wraps(f)
        def g(*a, **k):
            t = time.perf_counter()
            try: return f(*a, **k)
            finally: spent[name] = spent.get(name, 0) + time.perf_counter() - t
        return g
    class CB(TrainerCallback):
        def on_train_begin(self, args, state, control, **k):
            for name in ("zero_grad", "train"): setattr(k["model"], name, timed(name, getattr(k["model"], name)))
            k["optimizer"].step = timed("optimizer_step", k["optimizer"].step)
            k["lr_scheduler"].step = timed("lr_scheduler", k["lr_scheduler"].step)
            t.accelerator.backward = timed("backward", t.accelerator.backward)
        def on_step_end(self, *a, **k):
            if waits: sync()
            stamps.append(time.perf_counter()); rows.append(dict(spent)); spent.clear()
    class T(Trainer): pass
    for name in ("get_batch_samples", "training_step", "_prepare_inputs", "compute_loss", "_clip_grad_norm", "_get_grad_norm", "floating_point_ops", "_maybe_log_save_evaluate", "_get_num_items_in_batch"):
        setattr(T, name, timed(name, getattr(Trainer, name)))
    kw = dict(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=case.get("batch", 1), max_steps=steps + 3, gradient_accumulation_steps=case.get("accum", 1), gradient_checkpointing=bool(case.get("ckpt")), fp16=case["precision"] == "amp-fp16" and not SMALL,
              bf16=case["precision"] == "amp-bf16", report_to="none", logging_strategy="no", save_strategy="no", disable_tqdm=True, dataloader_num_workers=0, remove_unused_columns=False, use_cpu=SMALL)
    t = T(model=model, args=TrainingArguments(**kw), train_dataset=items, data_collator=default_data_collator, callbacks=[CB()])
    t.callback_handler.call_event = timed("callbacks", t.callback_handler.call_event)
    t.train(); sync()
    for name in ("zero_grad", "train"): model.__dict__.pop(name, None)
    parts = {name: mid([row.get(name, 0) for row in rows[3:]]) for name in rows[-1]}
    return mid([b - a for a, b in zip(stamps[2:], stamps[3:])]), parts

def run(case):
    torch.manual_seed(0)
    config = dict((FULL if case.get("full") else TINY)[case["family"]])
    if case.get("layers"): config["n_layer" if case["family"] == "gpt2" else "num_hidden_layers"] = case["layers"]
    kind = "AutoModelForSequenceClassification" if case["family"] == "bert" else "AutoModelForCausalLM"
    with torch.device(DEV): model = getattr(tf, kind).from_config(tf.AutoConfig.for_model(**config), dtype=torch.bfloat16 if case["precision"] == "bf16" else torch.float32)
    model.train()
    if case.get("lora"):
        from peft import LoraConfig, get_peft_model
        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", lora_dropout=0.0)).to(DEV)
    if case.get("ckpt"): model.gradient_checkpointing_enable()
    seq, batch, accum = case.get("seq", 16), case.get("batch", 1), case.get("accum", 1)
    items = [dict(input_ids=torch.randint(5, 90, (seq,)), labels=torch.tensor(0) if case["family"] == "bert" else torch.randint(5, 90, (seq,))) for _ in range(64)]
    given = {k: v.to(DEV) for k, v in default_data_collator(items[:batch]).items()}
    n = 6 if case.get("full") else 16
    r = dict(case=case, parameters=sum(1 for _ in model.parameters()), modules=sum(1 for _ in model.modules()), torch=torch.__version__, gpu="cpu" if SMALL else torch.cuda.get_device_name(0))
    n = max(4, n // accum)
    r["bare"] = [bare(model, given, case, n)]
    r["trainer"], r["parts"] = in_trainer(model, items, case, n, False)
    r["trainer_waits"], r["parts_waits"] = in_trainer(model, items, case, n, True)
    r["bare"].append(bare(model, given, case, n))
    return r

for case in CASES:
    if time.time() - T0 > BUDGET: print("no time for", case); break
    t = time.time(); pid = os.fork()
    if pid == 0:
        import signal; signal.alarm(int(os.environ.get("ALARM", 30)))
        try: row = run(case)
        except BaseException as e: row = dict(case=case, error=repr(e)[:300], tb=traceback.format_exc()[-500:])
        with open(OUT, "a") as f: f.write(json.dumps(row) + "\n")
        os._exit(0)
    os.waitpid(pid, 0); print(case, "%.1f s" % (time.time() - t), flush=True)
