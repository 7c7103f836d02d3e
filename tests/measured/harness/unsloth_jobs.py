"""SFT of Unsloth's FastLanguageModel with random weights: peaks and, with --stream FOLDER, every request of the allocator.

usage: unsloth_jobs.py OUT.jsonl [--only NAME,...] [--stream FOLDER] [--steps 4]
Needs unsloth, unsloth_zoo 2026.10.9 and trl 1.15.0 in front of trl 1.16 (PYTHONPATH). Models are written to disk first, since
FastLanguageModel reads them from there; nothing of a hub. NOT RUN YET by anybody."""
import argparse
import json
import os
import sys
import tempfile
import time
import traceback

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", UNSLOTH_DISABLE_STATISTICS="1",
                  UNSLOTH_COMPILE_LOCATION=tempfile.mkdtemp())
LLAMA = dict(model_type="llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=6,
             num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072,
             tie_word_embeddings=True, architectures=["LlamaForCausalLM"])
QWEN = dict(model_type="qwen2", vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=12,
            num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=32768, tie_word_embeddings=True,
            architectures=["Qwen2ForCausalLM"])
MISTRAL = dict(model_type="mistral", vocab_size=32768, hidden_size=2048, intermediate_size=7168, num_hidden_layers=6,
               num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=32768,
               sliding_window=None, tie_word_embeddings=False, architectures=["MistralForCausalLM"])
JOBS = {f"{family}-{bits}-{checkpointing}-b{bs}-s{seq}": dict(config=config, in_4bit=bits == "nf4", rank=16, bs=bs, seq=seq,
                                                              checkpointing=checkpointing)
        for family, config in (("llama", LLAMA), ("qwen2", QWEN), ("mistral", MISTRAL))
        for bits, checkpointing, bs, seq in (("bf16", "unsloth", 4, 1024), ("nf4", "unsloth", 4, 1024),
                                             ("bf16", "none", 2, 512), ("bf16", "unsloth", 8, 2048))}


def tokenizer(size):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i + 3 for i in range(size - 3)}}
    t = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
                                   bos_token="<eos>", model_max_length=1 << 20)


def run(name, job, stream, steps):
    from unsloth import FastLanguageModel  # before transformers, as it asks
    import datasets
    import torch
    import transformers as tf
    import trl
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
    checkpointing = False if job["checkpointing"] == "none" else job["checkpointing"]
    model = FastLanguageModel.get_peft_model(
        model, r=job["rank"], lora_alpha=16, lora_dropout=0, bias="none", use_gradient_checkpointing=checkpointing,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
    data = [dict(input_ids=[3 + (7 * i + j) % 1900 for j in range(job["seq"])]) for i in range(job["bs"] * steps)]
    args = trl.SFTConfig(output_dir=tempfile.mkdtemp(), max_steps=steps, per_device_train_batch_size=job["bs"], bf16=True,
                         max_length=job["seq"], report_to="none", save_strategy="no", logging_strategy="no",
                         disable_tqdm=True, optim="adamw_torch_fused", packing=False)
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
    if stream: torch.cuda.memory._record_memory_history(max_entries=4_000_000, context="alloc", stacks="python")
    trainer.train()
    torch.cuda.synchronize()
    if stream:
        os.makedirs(stream, exist_ok=True)
        torch.cuda.memory._dump_snapshot(os.path.join(stream, name + ".pickle"))
    import unsloth
    return dict(name=name, **{k: v for k, v in job.items() if k != "config"}, before_training=before, marks=marks,
                allocated=torch.cuda.max_memory_allocated() - base, reserved=torch.cuda.max_memory_reserved(),
                versions={m.__name__: m.__version__ for m in (torch, tf, trl, unsloth)},
                trainable=sum(p.numel() for p in model.parameters() if p.requires_grad),
                adapters=sorted({str(p.dtype) for p in model.parameters() if p.requires_grad}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--only", default="")
    parser.add_argument("--stream", default="")
    parser.add_argument("--steps", type=int, default=4)
    a = parser.parse_args()
    for name, job in JOBS.items():
        if a.only and name not in a.only.split(","): continue
        process = os.fork()
        if process == 0:
            try:
                row = run(name, job, a.stream, a.steps)
            except BaseException as error:
                row = dict(name=name, error=repr(error)[:600], traceback=traceback.format_exc()[-3000:])
            with open(a.out, "a") as lines: lines.write(json.dumps(row) + "\n")
            print(name, row.get("error") or (row["allocated"], row["reserved"]), flush=True)
            os._exit(0)
        os.waitpid(process, 0)
