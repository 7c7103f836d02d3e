"""Jobs of a plain loop for jobs_run.py: forward, backward and the optimizer's step, or with --optimizer-in-backward an optimizer
for each parameter that steps when its gradient has come, as torchtune's OptimizerInBackwardWrapper and register_optim_in_bwd_hooks
do. One batch of ids lies on the card; peaks begin with the first step. Without torch.compile or a scaler."""
import gc
import os
import time

import jobs_run


def make_optimizer(job, parameters):
    import torch
    name = job.options["--optimizer"]
    if name == "sgd": return torch.optim.SGD(parameters, lr=1e-5)
    return torch.optim.AdamW(parameters, lr=1e-5, **(dict(fused=True) if name == "adamw-fused" else {}))


def run(job, wants_events, wants_stacks, wait=lambda: None):
    import accelerate
    import torch
    import transformers
    import jobs_card
    torch.set_num_threads(2)
    torch.manual_seed(0)
    cuda, on_card = torch.cuda, not jobs_run.ON_CPU
    if on_card: torch.zeros(1, device="cuda")
    base = cuda.memory_allocated() if on_card else 0
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = jobs_run.make_model(job, job.options.get("--task", "causal"))
    ids = torch.randint(3, 2000, (job.bs, job.seq), device=jobs_run.DEVICE)
    batch = dict(input_ids=ids, labels=ids.clone())
    model.config.use_cache = "--use-cache" in job.options
    if job.options.get("--checkpointing") == "full": model.gradient_checkpointing_enable()
    model.train()
    each_alone = "--optimizer-in-backward" in job.options
    if each_alone:
        optimizers = {p: make_optimizer(job, [p]) for p in model.parameters()}

        def step(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in model.parameters(): parameter.register_post_accumulate_grad_hook(step)
    else: whole = make_optimizer(job, list(model.parameters()))
    gc.collect()
    result = dict(versions={m.__name__: m.__version__ for m in (torch, transformers, accelerate)})
    events = os.environ.get("EVENTS") if wants_events and on_card else None
    if on_card:
        cuda.empty_cache()
        cuda.reset_peak_memory_stats()
        result.update(gpu=cuda.get_device_name(0), before_training=cuda.memory_allocated() - base)
    if events:
        os.makedirs(events, exist_ok=True)
        cuda.memory._record_memory_history(enabled="all", context="alloc" if wants_stacks else None, stacks="python",
                                          max_entries=4000000)
    marks, seconds, requests = [], [], []
    count = lambda: cuda.memory_stats()["allocation.all.allocated"] if on_card else 0  # noqa: E731
    requests.append(count())
    wait()
    for _ in range(job.number("--steps", 3)):
        begin = time.perf_counter()
        if not each_alone: whole.zero_grad(set_to_none=True)
        loss = model(**batch).loss
        loss.backward()
        del loss
        if not each_alone: whole.step()
        if on_card: cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        requests.append(count())
        marks.append(["step", cuda.max_memory_allocated() - base, cuda.max_memory_reserved()] if on_card else ["step", 0, 0])
    result.update(allocated=max(m[1] for m in marks), reserved=max(m[2] for m in marks), marks=marks, step_s=sorted(seconds)[len(seconds) // 2],
                  seconds=seconds, steps=len(marks), parameters=sum(p.numel() for p in model.parameters()))
    if events: result["requests"] = [each - requests[0] for each in requests[1:]]
    if events: jobs_card.write_events(os.path.join(events, job.name + ".tsv.gz"))
    return result
