"""What people change about a training run: adapters, quantised bases, frozen parts, what is saved, optimizers. Keys of a case:
quantize, prepare_kbit, lora, lora_targets, lora_dropout, lora_dtype, lora_head, dora, freeze, checkpointing, activation_offload, liger,
optimizer, offload_optimizer, offload_gradients."""
import contextlib, os, tempfile

import cases


def load_quantized(case, cfg, cls, dtype):
    """A model is saved with random weights and loaded as users load one: from_pretrained with a BitsAndBytesConfig."""
    import torch, transformers as tf
    d = os.path.join(tempfile.gettempdir(), "q_%s_%d" % (case["id"], os.getpid()))
    torch.set_num_threads(4)
    cls.from_config(cfg, dtype=torch.bfloat16).save_pretrained(d)
    q = case["quantize"]
    bnb = tf.BitsAndBytesConfig(load_in_8bit=True) if q == "int8" else tf.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=q == "nf4-double", bnb_4bit_compute_dtype=torch.bfloat16)
    m = cls.from_pretrained(d, quantization_config=bnb, dtype=dtype, device_map={"": 0}, attn_implementation=case.get("attention", "sdpa"))
    import shutil; shutil.rmtree(d)
    return m


def apply(m, case):
    """After the base stands on the card."""
    import torch
    if case.get("liger"):
        from liger_kernel.transformers import _apply_liger_kernel_to_instance
        _apply_liger_kernel_to_instance(model=m)
    if case.get("prepare_kbit"):
        from peft import prepare_model_for_kbit_training
        m = prepare_model_for_kbit_training(m, use_gradient_checkpointing=case.get("checkpointing") == "full")
    if case.get("freeze"):
        for n, p in m.named_parameters():
            if any(k in n for k in case["freeze"]): p.requires_grad_(False)
    if case.get("lora"):
        from peft import LoraConfig, get_peft_model
        from jobs_run import HEADS
        kw = dict(task_type=HEADS[case.get("task", "seqcls")]) if case.get("lora_head") else {}
        targets = case.get("lora_targets", ["all-linear"])
        parameters = [t for t in targets if t.startswith("experts.")]
        if parameters: kw["target_parameters"] = parameters
        targets = [t for t in targets if t not in parameters]
        m = get_peft_model(m, LoraConfig(r=case["lora"], lora_alpha=16, target_modules="all-linear" if targets == ["all-linear"] else targets, lora_dropout=case.get("lora_dropout", 0.0), use_dora=case.get("dora", False), **kw), autocast_adapter_dtype=case.get("lora_dtype") != "base")
        if case.get("checkpointing") == "full" and not case.get("prepare_kbit"): m.enable_input_require_grads()
    c = case.get("checkpointing", "none")
    if c.startswith("every-"):
        m.gradient_checkpointing_enable(); i = 0
        from transformers.modeling_layers import GradientCheckpointingLayer
        for x in m.modules():
            if isinstance(x, GradientCheckpointingLayer):
                if i % int(c[6:]): x.gradient_checkpointing = False
                i += 1
    if c == "selective":
        from functools import partial
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
        from transformers.modeling_layers import GradientCheckpointingLayer
        a = torch.ops.aten; counts = {}
        save = {a.mm.default, a._scaled_dot_product_efficient_attention.default, a._scaled_dot_product_flash_attention.default, a._scaled_dot_product_cudnn_attention.default}
        def contexts():
            meta = {}
            def policy(ctx, func, *args, **kwargs):  # torchtitan: every second matrix product is computed again
                k = "recompute" if ctx.is_recompute else "forward"
                if func == a.mm.default: meta[k] = meta.get(k, 0) + 1
                ok = func in save and not (func == a.mm.default and meta[k] % 2 == 0)
                return CheckpointPolicy.MUST_SAVE if ok else CheckpointPolicy.PREFER_RECOMPUTE
            return create_selective_checkpoint_contexts(policy)
        for parent in list(m.modules()):
            if isinstance(parent, torch.nn.ModuleList):
                for i, x in enumerate(parent):
                    if isinstance(x, GradientCheckpointingLayer): parent[i] = checkpoint_wrapper(x, context_fn=contexts, preserve_rng_state=False)
    return m


def saving(case):
    import torch
    return torch.autograd.graph.save_on_cpu(pin_memory=True) if case.get("activation_offload") else contextlib.nullcontext()


class Both:
    """Two optimizers as one."""
    def __init__(self, *o): self.o = o; self.param_groups = [g for x in o for g in x.param_groups]
    def step(self, *a, **k):
        for x in self.o: x.step()
    def zero_grad(self, set_to_none=True):
        for x in self.o: x.zero_grad(set_to_none=set_to_none)


def optimizer(o, params, case):
    import torch
    if o == "adamw-offload":  # torchao: states, gradients and step on the host
        from torchao.optim import CPUOffloadOptimizer
        return CPUOffloadOptimizer(params, torch.optim.AdamW, offload_gradients=case.get("offload_gradients", False), lr=1e-5)
    if o == "adam": return torch.optim.Adam(params, lr=1e-5)
    if o == "adamw-amsgrad": return torch.optim.AdamW(params, lr=1e-5, amsgrad=True)
    if o == "muon": return Both(torch.optim.Muon([p for p in params if p.ndim == 2], lr=1e-5), torch.optim.AdamW([p for p in params if p.ndim != 2], lr=1e-5))
    if o == "nadam": return torch.optim.NAdam(params, lr=1e-5)
    if o == "radam": return torch.optim.RAdam(params, lr=1e-5)
    if o == "adamax": return torch.optim.Adamax(params, lr=1e-5)
    if o == "adagrad-for": return torch.optim.Adagrad(params, lr=1e-5, foreach=False)
    if o == "sgd-wd": return torch.optim.SGD(params, lr=1e-5, weight_decay=0.01)
    if o == "adafactor-hf-relative":
        from transformers.optimization import Adafactor
        return Adafactor(params)
    import bitsandbytes as bnb
    B = bnb.optim
    return {"adamw-8bit": B.AdamW8bit, "paged-adamw-8bit": B.PagedAdamW8bit, "paged-adamw": B.PagedAdamW32bit, "adamw-bnb": B.AdamW32bit, "lion": B.Lion32bit, "lion-8bit": B.Lion8bit,
            "paged-lion-8bit": B.PagedLion8bit, "paged-lion": B.PagedLion32bit, "rmsprop-8bit": B.RMSprop8bit, "sgdm-8bit": B.SGD8bit}[o](params, lr=1e-5, **({"momentum": 0.9} if o == "sgdm-8bit" else {}))


def elsewhere(case, script, arguments):
    """bitsandbytes, Liger and torchao start CUDA as they are imported, so a case that needs them gets a process of its own: replaces this
    (forked) one by `script --direct CASE`, with $SITE on its path."""
    import json, sys
    bnb = ("8bit", "8-bit", "paged", "lion", "bnb")
    if os.environ.get("PYTHONPATH") or not (case.get("quantize") or case.get("liger") or case.get("offload_optimizer") or any(k in case.get("optimizer", "") for k in bnb)): return
    os.environ["PYTHONPATH"] = os.environ["SITE"]
    os.execv(sys.executable, [sys.executable, script, *arguments, "--direct", json.dumps(cases.head(case))])
