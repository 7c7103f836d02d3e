"""What torch 2.11's inductor makes of a training graph, without a card: it lowers forward and backward of a model of transformers with
fake tensors and the properties of an H200 in place of a device, and prints how many kernels and calls the code has. About 30 s a case.

usage: inductor_kernels.py '{"model": "gpt2", "layers": 2, "batch": 8, "seq": 1024, "precision": "bf16"}' [--code FILE]
model: gpt2, bert, llama, qwen3, gpt_neox or vit; precision: bf16 or fp32. FILE gets the generated code. Each part of the step is a line: its
Triton kernels, by kind, and its calls of PyTorch's own kernels; then all counts, with the sums of workspaces that Python calls.
Attention is chosen by hand (flash without a mask in 16 bits, else the memory-efficient one); the timing that decides about padded
products (pad_mm) is not reached, nor is a loss that is a graph of its own.
"""
import collections, json, re, sys, types

import torch

PROPS = types.SimpleNamespace(
    name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32, total_memory=150109880320,
    shared_memory_per_block_optin=232448, shared_memory_per_block=49152, shared_memory_per_multiprocessor=233472,
    L2_cache_size=62914560, gcnArchName="", uuid="")


class Done(Exception):
    pass


def patch_device():
    c = torch.cuda
    import torch._subclasses.fake_tensor as ft
    ft.init_gpu_context = lambda device: None
    for name, value in dict(
            is_available=lambda: True, device_count=lambda: 1, current_device=lambda: 0, set_device=lambda d: None,
            get_device_properties=lambda d=None: PROPS, get_device_capability=lambda d=None: (9, 0),
            get_device_name=lambda d=None: PROPS.name, is_bf16_supported=lambda *a, **k: True, init=lambda: None,
            is_tf32_supported=lambda: True, _lazy_init=lambda: None, synchronize=lambda d=None: None,
            is_initialized=lambda: True, _exchange_device=lambda d: 0, _maybe_exchange_device=lambda d: 0,
            current_stream=lambda d=None: types.SimpleNamespace(stream_id=0, device_index=0, device_type=1,
                                                                 cuda_stream=0, device=torch.device("cuda:0")),
            get_rng_state=lambda d=None: torch.zeros(16, dtype=torch.uint8),
            set_rng_state=lambda *a, **k: None, memory_allocated=lambda *a: 0).items():
        setattr(c, name, value)
    from torch._dynamo import device_interface as di
    C = di.CudaInterface
    C.current_device = staticmethod(lambda: 0)
    C.get_device_properties = staticmethod(lambda d=None: PROPS)
    C.is_available = staticmethod(lambda: True)
    C.get_compute_capability = staticmethod(lambda d=None: 90)
    C.get_raw_stream = staticmethod(lambda d=None: 0)
    C.device_count = staticmethod(lambda: 1)
    C.current_stream = staticmethod(c.current_stream)
    C.synchronize = staticmethod(lambda d=None: None)
    C.Worker.current_device = staticmethod(lambda: 0)
    C.Worker.get_device_properties = staticmethod(lambda d=None: PROPS)
    import torch.utils._triton as t
    import torch._inductor.scheduler as its
    import torch._inductor.utils as itu
    for module in (t, itu, its):
        for n in ("has_triton", "has_triton_package"):
            if hasattr(module, n):
                setattr(module, n, lambda *a, **k: True)
    t.triton_hash_with_backend = t.triton_key = lambda: 'x'
    itu.get_gpu_type = lambda: "cuda"
    itu.get_max_numwarps = lambda: 32
    itu.get_gpu_shared_memory = lambda: 232448
    import torch._inductor.codecache as cc
    cc.CacheBase.get_system = staticmethod(lambda: {"device": {"name": "H200"}, "version": {}, "hash": "x"})


CODES = []


def patch_inductor():
    from torch._dynamo.variables.streams import SymbolicStreamState
    SymbolicStreamState.__init__ = lambda self: setattr(self, "cur_stream_stack", collections.deque())
    torch.accelerator.current_device_index = lambda: 0
    from torch._inductor.graph import GraphLowering
    import torch._inductor.config as config

    def lines(self, wrapper_code):
        CODES.append(("backward" if self.is_backward else "forward", wrapper_code.value))

        def call(args):
            raise Done
        return types.SimpleNamespace(call=call, __file__="/tmp/x.py", runner=None, benchmark_compiled_module=None)
    GraphLowering._compile_to_module_lines = lines
    init = GraphLowering.__init__

    def moved_init(self, gm, example_inputs=None, *args, **kwargs):
        move_graph(gm)
        move(example_inputs)
        return init(self, gm, example_inputs, *args, **kwargs)
    GraphLowering.__init__ = moved_init
    config.fx_graph_cache = config.fx_graph_remote_cache = False
    config.compile_threads = 1
    import torch._functorch.config as f
    f.enable_autograd_cache = False
    f.force_non_lazy_backward_lowering = True


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, **kw):
    if enable_gqa and k.size(1) != q.size(1):
        k = k.repeat_interleave(q.size(1) // k.size(1), 1)
        v = v.repeat_interleave(q.size(1) // v.size(1), 1)
    if attn_mask is None and q.dtype != torch.float32:
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
    if attn_mask is None or attn_mask.stride(-1) == 1:
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:  # convert_boolean_attn_mask, before it is expanded
                attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(q.dtype)
            attn_mask = attn_mask.expand(q.size(0), q.size(1), q.size(2), k.size(2))
        return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, attn_mask, True, dropout_p, is_causal,
                                                                       scale=scale)[0]
    return torch.ops.aten._scaled_dot_product_attention_math(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)[0]


def build(case):
    import transformers as tf
    m, n = case["model"], case.get("layers", 2)
    kw = dict(case.get("config", {}))
    if m == "gpt2":
        cfg = tf.GPT2Config(n_layer=n, **kw); cls = tf.GPT2LMHeadModel
    elif m == "bert":
        cfg = tf.BertConfig(num_hidden_layers=n, **kw); cls = tf.BertForSequenceClassification
    elif m == "llama":
        cfg = tf.LlamaConfig(num_hidden_layers=n, hidden_size=2048, intermediate_size=8192, num_attention_heads=32,
                             num_key_value_heads=8, vocab_size=128256, head_dim=64, tie_word_embeddings=True, **kw)
        cls = tf.LlamaForCausalLM
    elif m == "qwen3":
        cfg = tf.Qwen3Config(num_hidden_layers=n, hidden_size=1024, intermediate_size=3072, num_attention_heads=16,
                             num_key_value_heads=8, vocab_size=151936, head_dim=128, tie_word_embeddings=True, **kw)
        cls = tf.Qwen3ForCausalLM
    elif m == "gpt_neox":  # pythia-410m's
        cfg = tf.GPTNeoXConfig(num_hidden_layers=n, hidden_size=1024, intermediate_size=4096, num_attention_heads=16,
                               vocab_size=50304, **kw)
        cls = tf.GPTNeoXForCausalLM
    elif m == "vit":
        cfg = tf.ViTConfig(num_hidden_layers=n, num_labels=1000, **kw); cls = tf.ViTForImageClassification
    else:
        raise SystemExit("model: gpt2, bert, llama, qwen3, gpt_neox or vit, found " + m)
    cfg.use_cache = case.get("cache", False)
    cfg._attn_implementation = case.get("attention", "sdpa")
    return cfg, cls


def batch_of(case, dtype):
    b, s = case["batch"], case.get("seq", 0)
    if case["model"] == "vit":
        return dict(pixel_values=torch.empty(b, 3, 224, 224, dtype=dtype), labels=torch.zeros(b, dtype=torch.long))
    ids = torch.zeros(b, s, dtype=torch.long)
    batch = dict(input_ids=ids, labels=ids if case["model"] != "bert" else torch.zeros(b, dtype=torch.long))
    if case["model"] == "bert" or case.get("mask"):
        batch["attention_mask"] = torch.ones(b, s, dtype=torch.long)
    return batch


CARD = torch.device("cuda:0")


def move(value):
    """Fake tensors of the host are fake tensors of the card from here on."""
    import torch._subclasses.fake_tensor as ft
    for t in torch.utils._pytree.tree_leaves(value):
        if isinstance(t, ft.FakeTensor):
            t.fake_device = CARD


def move_graph(gm):
    for node in gm.graph.nodes:
        for key in ("val", "tensor_meta"):
            if key in node.meta:
                move(node.meta[key])
        if node.op == "call_function":
            swap = lambda a: CARD if isinstance(a, torch.device) else a
            node.args = tuple(swap(a) for a in node.args)
            node.kwargs = {k: swap(a) for k, a in node.kwargs.items()}
        if node.op == "get_attr":
            move(getattr(gm, node.target, None))
    for module in gm.children():
        if isinstance(module, torch.fx.GraphModule):
            move_graph(module)


def main():
    case = json.loads(sys.argv[1])
    patch_device()
    patch_inductor()
    from torch._subclasses.fake_tensor import FakeTensorMode
    torch.nn.functional.scaled_dot_product_attention = attention
    cfg, cls = build(case)
    if case["precision"] not in ("bf16", "fp32"):
        raise SystemExit("precision: bf16 or fp32, found " + case["precision"])
    dtype = torch.bfloat16 if case["precision"] == "bf16" else torch.float32
    with FakeTensorMode(allow_non_fake_inputs=True):
        torch.set_default_device(None)
        model = cls._from_config(cfg, dtype=dtype)
        model.train()
        batch = batch_of(case, dtype)
        compiled = torch.compile(model)
        try:
            compiled(**batch)
        except Done:
            pass
    total = collections.Counter()
    for part, code in CODES:
        body = code[code.rindex("def call("):]
        calls = re.findall(r"^\s+(?:buf\d+ = )?(?:extern_kernels|torch\.ops|aten)\.([\w.]+)\(", body, re.M)
        kernels = re.findall(r"^\s+(triton_\w+?)\.run\(", body, re.M)
        kinds = collections.Counter(re.match(r"triton_[a-z]+", k).group(0) for k in kernels)
        sums = re.findall(r"^\s+buf\d+ = workspace_\d+\[.*\.sum\(dim=0\)(\.to\()?", body, re.M)  # of mixed-order reductions
        for what, found in dict(kernels=kernels, calls=calls, sums=sums, casts=list(filter(None, sums))).items():
            total[part + " " + what] += len(found)
        print(part, dict(kinds), dict(collections.Counter(calls)))
    print(dict(total))
    if "--code" in sys.argv:
        with open(sys.argv[sys.argv.index("--code") + 1], "w") as f:
            for part, code in CODES:
                f.write("#" * 30 + part + "\n" + code)


if __name__ == "__main__":
    main()
