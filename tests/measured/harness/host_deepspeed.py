"""Microseconds of the host that DeepSpeed's ZeRO takes around a model, without a card: tiny models on the CPU, rank 0 of two in torch's
fake process group, plain and in the engine, in turns; processor time. What counts is each over what the plain LLaMA takes.
usage: host_deepspeed.py OUT.jsonl [ROUNDS]   (DS_ACCELERATOR=cpu)"""
import json, os, sys, time, warnings, logging
warnings.filterwarnings("ignore")
os.environ.update(DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29555")
import torch, torch.distributed as dist, transformers as tf
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.set_num_threads(1)
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
import deepspeed
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
from deepspeed.utils import logger; logger.setLevel(logging.ERROR)
CONFIGS = {"llama": ("AutoModelForCausalLM", dict(model_type="llama", vocab_size=99, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128)),
           "bert": ("AutoModelForSequenceClassification", dict(model_type="bert", vocab_size=99, hidden_size=64, num_attention_heads=4, intermediate_size=128))}


def made(family, layers, stage, ckpt=False):
    kind, config = CONFIGS[family]
    m = getattr(tf, kind).from_config(tf.AutoConfig.for_model(**config, num_hidden_layers=layers), dtype=torch.bfloat16, attn_implementation="sdpa").train()
    if ckpt: m.gradient_checkpointing_enable()
    counts = dict(parameters=sum(1 for _ in m.parameters()), modules=sum(1 for _ in m.modules()))
    if stage is None: return m, None, counts
    config = dict(train_micro_batch_size_per_gpu=1, bf16=dict(enabled=True), zero_allow_untested_optimizer=True, zero_force_ds_cpu_optimizer=False, steps_per_print=1000000,
                  zero_optimization=dict(stage=stage, reduce_bucket_size=500000000, **(dict(stage3_param_persistence_threshold=0) if stage == 3 else {})))
    engine, *_ = deepspeed.initialize(model=m, model_parameters=list(m.parameters()), optimizer=torch.optim.AdamW(m.parameters(), lr=1e-5), config=config, dist_init_required=False)
    return engine, engine, counts


def main():
    ids = torch.randint(1, 90, (1, 16)); clock = time.thread_time; took = {}; all_ = {}
    ways = [(f, n, s, False) for f in CONFIGS for n in (2, 8) for s in (None, 1, 2, 3)] + [("llama", 8, None, True), ("llama", 8, 3, True), ("llama", 8, 1, True)]
    for w in ways: all_[w] = made(*w)
    for r in range(int((sys.argv[2:] + ["8"])[0]) + 3):
        for w, (run, engine, _) in all_.items():
            labels = ids if w[0] == "llama" else ids[:, 0] * 0
            optimizer = None
            t0 = clock(); loss = run(input_ids=ids, labels=labels).loss; t1 = clock()
            (engine or loss).backward(*([loss] if engine else [])); t2 = clock()
            if engine: engine.step()
            else: run.zero_grad()
            t3 = clock()
            if r > 2: took.setdefault(w, []).append((t1 - t0, t2 - t1, t3 - t2))
    for w, times in took.items():
        low = [round(1e6 * sorted(t[i] for t in times)[len(times) // 4], 1) for i in range(3)]
        with open(sys.argv[1], "a") as out: out.write(json.dumps(dict(family=w[0], layers=w[1], stage=w[2] or 0, checkpointing=w[3], **all_[w][2], forward_us=low[0], backward_us=low[1], step_us=low[2])) + "\n")


main()
