"""The host's milliseconds of forward, backward and optimizer, each from an idle card, of one LLaMA alone and wrapped, on two GPUs of
one host: tiny (16 and 4 layers, bf16) and Llama-3.2-1B. usage: layout_phases.py OUT.jsonl [--budget SECONDS]"""
import argparse, json, os, statistics, time, traceback, warnings
warnings.filterwarnings("ignore")
ap = argparse.ArgumentParser(); ap.add_argument("out"); ap.add_argument("--budget", type=float, default=90); a = ap.parse_args(); T0 = time.time()
middle = statistics.median
BIG = dict(vocab_size=128256, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64, intermediate_size=8192, tie_word_embeddings=True)
def tiny(layers): return dict(vocab_size=99, hidden_size=64, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=128)


def wrap(model, mode, world, torch):
    if mode == "ddp": return torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    if mode == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        for layer in model.model.layers: fully_shard(layer)
        return fully_shard(model)
    if mode == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({type(model.model.layers[0])}), device_id=torch.cuda.current_device(), use_orig_params=True)
    if mode == "tp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        plan = {f"self_attn.{k}_proj": ColwiseParallel() for k in "qkv"} | {"self_attn.o_proj": RowwiseParallel(), "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel()}
        mesh = init_device_mesh("cuda", (world,))
        for layer in model.model.layers: parallelize_module(layer, mesh, plan)
    return model


def run(rank, world, size, mode, port):
    import torch, torch.distributed as dist, transformers as tf
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank); dist.init_process_group("nccl", device_id=torch.device("cuda", rank)); dist.barrier()
    config = BIG if size == "1b" else tiny(int(size[4:]))
    with torch.device("cuda"): model = tf.LlamaForCausalLM._from_config(tf.LlamaConfig(**config), dtype=torch.bfloat16, attn_implementation="sdpa").train()
    shape = (8 if mode == "tp" else 4, 1024) if size == "1b" else (1, 16)
    ids = torch.randint(1, 90, shape, device="cuda")
    module = wrap(model, mode, world, torch)
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=1e-5, **(dict(foreach=False) if mode == "tp" else {}))
    f, b, s, whole = [], [], [], []
    for i in range(10):
        optimizer.zero_grad(set_to_none=True); torch.cuda.synchronize(); t0 = time.perf_counter()
        loss = module(input_ids=ids, labels=ids).loss
        t1 = time.perf_counter(); torch.cuda.synchronize(); t2 = time.perf_counter()
        loss.backward(); t3 = time.perf_counter(); torch.cuda.synchronize(); t4 = time.perf_counter()
        optimizer.step(); t5 = time.perf_counter(); del loss
        if i > 2: f.append(t1 - t0); b.append(t3 - t2); s.append(t5 - t4)
    torch.cuda.synchronize(); dist.barrier()
    for i in range(6):
        t = time.perf_counter(); optimizer.zero_grad(set_to_none=True); loss = module(input_ids=ids, labels=ids).loss; loss.backward(); optimizer.step(); del loss; torch.cuda.synchronize(); whole.append(time.perf_counter() - t)
    row = dict(size=size, mode=mode, rank=rank, forward_ms=round(1e3 * middle(f), 2), backward_ms=round(1e3 * middle(b), 2), optimizer_ms=round(1e3 * middle(s), 2), least_ms=[round(1e3 * min(x), 2) for x in (f, b, s)], step_ms=round(1e3 * middle(whole), 2), gpu=torch.cuda.get_device_name(0))
    with open(a.out, "a") as out: out.write(json.dumps(row) + "\n")
    if rank == 0: print(row, flush=True)


def main():
    import torch, transformers, torch.distributed.fsdp, torch.distributed.tensor.parallel
    import transformers.models.llama.modeling_llama
    cases = [(size, mode) for size in ("tiny16", "1b", "tiny4") for mode in ("none", "fsdp2", "tp", "fsdp1", "ddp")]
    for i, (size, mode) in enumerate(cases):
        if time.time() - T0 > a.budget: break
        pids = []
        for rank in range(2):
            pid = os.fork()
            if pid == 0:
                try: run(rank, 2, size, mode, 29700 + i)
                except BaseException: print(size, mode, traceback.format_exc()[-400:], flush=True)
                os._exit(0)
            pids.append(pid)
        end = time.time() + 40; left = set(pids)
        while left and time.time() < end:
            for p in list(left):
                if os.waitpid(p, os.WNOHANG)[0]: left.discard(p)
            time.sleep(.05)
        for p in left: os.kill(p, 9); os.waitpid(p, 0)


if __name__ == "__main__": main()
