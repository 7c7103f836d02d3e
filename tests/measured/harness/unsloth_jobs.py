"""SFT of Unsloth's FastLanguageModel with random weights: peaks and every request of the allocator.

usage: unsloth_jobs.py FOLDER [--only NAME,...] [--steps 4]
Writes FOLDER/rows.jsonl and FOLDER/NAME.gz (as jobs_card.write_events). All jobs run at once, a process each: the
peaks are torch's, of a process. Needs unsloth and unsloth_zoo 2026.10.9 and trl 1.15.0 (PYTHONPATH). Models are written to
disk first, since FastLanguageModel reads them from there; nothing of a hub."""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import traceback

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", UNSLOTH_DISABLE_STATISTICS="1",
                  UNSLOTH_COMPILE_LOCATION=tempfile.mkdtemp(), TORCHINDUCTOR_COMPILE_THREADS="2")
LLAMA = dict(model_type="llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=6,
             num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072,
             tie_word_embeddings=True, architectures=["LlamaForCausalLM"])
QWEN2 = dict(model_type="qwen2", vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=8,
             num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=32768, tie_word_embeddings=True,
             architectures=["Qwen2ForCausalLM"])
QWEN3 = dict(model_type="qwen3", vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=8,
             num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960,
             tie_word_embeddings=True, architectures=["Qwen3ForCausalLM"])
MISTRAL = dict(model_type="mistral", vocab_size=32768, hidden_size=2048, intermediate_size=7168, num_hidden_layers=6,
               num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=32768,
               sliding_window=None, tie_word_embeddings=False, architectures=["MistralForCausalLM"])
FAMILIES = dict(llama=LLAMA, qwen2=QWEN2, qwen3=QWEN3, mistral=MISTRAL)
# family, base, checkpointing, compiled blocks, batch, tokens
LIST = (("llama", "bf16", "unsloth", False, 4, 512), ("llama", "bf16", "unsloth", True, 4, 512),
        ("llama", "nf4", "unsloth", False, 4, 1024), ("llama", "nf4", "unsloth", True, 4, 1024),
        ("llama", "bf16", "none", False, 2, 512), ("llama", "bf16", "torch", False, 2, 512),
        ("qwen2", "bf16", "unsloth", False, 4, 512), ("qwen3", "nf4", "unsloth", False, 2, 1024),
        ("mistral", "bf16", "none", True, 2, 1024), ("mistral", "nf4", "none", False, 2, 1024))


def job(family, bits, checkpointing, blocks, bs, seq, **more):
    return dict(config=FAMILIES[family], in_4bit=bits == "nf4", rank=16, bs=bs, seq=seq, checkpointing=checkpointing,
                blocks=blocks, accum=2, optim="adamw_8bit", **more)


def drawn(seed, count):
    """Jobs drawn at random, to be predicted before they are measured; the last one's blocks are compiled."""
    r = random.Random(seed)
    jobs = {}
    for i in range(count):
        family, bits = r.choice(list(FAMILIES)), r.choice(["bf16", "nf4"])
        made = job(family, bits, r.choice(["none", "unsloth", "unsloth"]), i == count - 1, r.choice([1, 2, 3, 4, 8]),
                   r.choice([256, 400, 768, 1024, 2048]))
        made.update(rank=r.choice([8, 16, 32, 64]), accum=r.choice([1, 2, 4]), optim=r.choice(["adamw_8bit", "adamw_torch_fused"]))
        jobs[f"u{seed}-{i:02}-{family}-{bits}-{made['checkpointing']}"] = made
    return jobs


JOBS = {f"{f}-{bits}-{checkpointing}-{'blocks' if blocks else 'eager'}-b{bs}-s{seq}":
        job(f, bits, checkpointing, blocks, bs, seq) for f, bits, checkpointing, blocks, bs, seq in LIST} | drawn(19, 9)


def arguments(j):
    """memcalc's, of the same job."""
    said = ["--loop", "trl-sft", "--unsloth", "--bs", str(j["bs"]), "--seq", str(j["seq"]), "--accum", str(j["accum"]),
            "--precision", "amp-bf16", "--weights-dtype", "bf16", "--lora", str(j["rank"]), "--optimizer",
            dict(adamw_8bit="adamw-8bit", adamw_torch_fused="adamw-fused")[j["optim"]],
            "--checkpointing", "none" if j["checkpointing"] == "none" else "full"]
    if j["checkpointing"] == "torch": said.append("--reentrant")
    return said + (["--quantize", "nf4-double"] if j["in_4bit"] else [])


def tokenizer(size):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i + 3 for i in range(size - 3)}}
    t = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
                                   bos_token="<eos>", model_max_length=1 << 20)


def run(name, job, folder_out, steps):
    from unsloth import FastLanguageModel  # before transformers, as it asks
    import datasets
    import torch
    import transformers as tf
    import trl
    import jobs_card
    folder = tempfile.mkdtemp()
    config = dict(job["config"])
    config = tf.AutoConfig.for_model(config.pop("model_type"), **config)
    config.pad_token_id, config.eos_token_id, config.bos_token_id, config.dtype = 0, 1, 1, torch.bfloat16
    tf.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    tokenizer(2000).save_pretrained(folder)
    torch.zeros(1, device="cuda")
    base = torch.cuda.memory_allocated()
    model, tok = FastLanguageModel.from_pretrained(folder, max_seq_length=job["seq"], dtype=torch.bfloat16,
                                                   load_in_4bit=job["in_4bit"])
    checkpointing = dict(none=False, torch=True, unsloth="unsloth")[job["checkpointing"]]
    model = FastLanguageModel.get_peft_model(
        model, r=job["rank"], lora_alpha=16, lora_dropout=0, bias="none", use_gradient_checkpointing=checkpointing,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
    data = [dict(input_ids=[3 + (7 * i + j) % 1900 for j in range(job["seq"])]) for i in range(job["bs"] * job["accum"] * steps)]
    args = trl.SFTConfig(output_dir=tempfile.mkdtemp(), max_steps=steps, per_device_train_batch_size=job["bs"],
                         gradient_accumulation_steps=job["accum"], bf16=True,
                         max_length=job["seq"], report_to="none", save_strategy="no", logging_strategy="no",
                         disable_tqdm=True, optim=job["optim"], packing=False,
                         padding_free=False, dataset_num_proc=1)
    trainer = trl.SFTTrainer(model=model, args=args, train_dataset=datasets.Dataset.from_list(data), processing_class=tok)
    marks = []

    class Marks(tf.TrainerCallback):
        def on_step_end(self, *a, **k):
            torch.cuda.synchronize()
            marks.append([torch.cuda.max_memory_allocated() - base, torch.cuda.memory_reserved(),
                          torch.cuda.memory_allocated() - base])

    trainer.add_callback(Marks())
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() - base
    torch.cuda.memory._record_memory_history(max_entries=4_000_000, context="alloc", stacks="python")
    trainer.train()
    torch.cuda.synchronize()
    jobs_card.write_events(os.path.join(folder_out, name + ".gz"))
    import unsloth
    return dict(name=name, **{k: v for k, v in job.items() if k != "config"}, before_training=before, marks=marks,
                allocated=torch.cuda.max_memory_allocated() - base, reserved=torch.cuda.max_memory_reserved(),
                versions={m.__name__: m.__version__ for m in (torch, tf, trl, unsloth)},
                trainable=sum(p.numel() for p in model.parameters() if p.requires_grad),
                adapters=sorted({str(p.dtype) for p in model.parameters() if p.requires_grad}))


def child(name, folder, steps):
    try:
        row = run(name, JOBS[name], folder, steps)
    except BaseException as error:
        row = dict(name=name, error=repr(error)[:600], traceback=traceback.format_exc()[-3000:])
    with open(os.path.join(folder, "rows.jsonl"), "a") as lines: lines.write(json.dumps(row) + "\n")
    print(name, row.get("traceback") or (row["before_training"], row["allocated"], row["reserved"], row["marks"]), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--only", default="")
    parser.add_argument("--child", default="")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=170)
    a = parser.parse_args()
    if a.child:
        child(a.child, a.folder, a.steps)
        os._exit(0)
    names = [n for n in JOBS if not a.only or any(n.startswith(each) for each in a.only.split(","))]
    processes = []
    for name in names:
        blocks = "1" if JOBS[name]["blocks"] else "0"
        log = open(os.path.join(a.folder, name + ".log"), "w")
        processes.append((name, subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), a.folder, "--child", name, "--steps", str(a.steps)],
            env=dict(os.environ, UNSLOTH_BLOCK_COMPILE_LEGACY=blocks, UNSLOTH_BLOCK_COMPILE=blocks), stdout=log, stderr=log)))
    import time
    end = time.time() + a.seconds
    for name, process in processes:
        try:
            process.wait(max(1, end - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()
        lines = open(os.path.join(a.folder, name + ".log")).read().splitlines()
        print(name, process.returncode, *lines[-6:], sep="\n  ", flush=True)
