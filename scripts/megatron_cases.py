"""The rows of tests/measured/published/megatron_*.jsonl as memcalc's options: (config, argv) of each."""
import json

from memcalc_pages import GIB, PUBLISHED, ROOT, Refused, json_lines

LEAST_GOLDEN = 1.5 * GIB  # below it, what Megatron takes beside the model counts

DEEPSEEK = {"num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 1,
            "max_position_embeddings": 131072}
B200_MODELS = {  # as the launch scripts of the source set them
    "llama3_70b": {"model_type": "llama", "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8,
                   "intermediate_size": 28672, "vocab_size": 128256, "max_position_embeddings": 131072},
    "llama3_405b": {"model_type": "llama", "hidden_size": 16384, "num_attention_heads": 128, "num_key_value_heads": 16,
                    "intermediate_size": 53248, "vocab_size": 128256, "max_position_embeddings": 131072},
    "deepseekv2": {"model_type": "deepseek_v2", "hidden_size": 5120, "intermediate_size": 12288,
                   "n_routed_experts": 160, "num_experts_per_tok": 6, "moe_intermediate_size": 1536,
                   "n_shared_experts": 2, "vocab_size": 102400, **DEEPSEEK},
    "deepseekv3": {"model_type": "deepseek_v2", "hidden_size": 7168, "intermediate_size": 18432,
                   "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
                   "n_shared_experts": 1, "vocab_size": 129280, **DEEPSEEK},
}
# Arguments of the golden cases that change no memory of a rank at its peak, or are what is modelled anyway.
NO_MEMORY = {
    "adam-beta1", "adam-beta2", "async-strategy", "attention-softmax-in-fp32", "calculate-per-token-loss",
    "check-weight-hash-across-dp-replicas-interval", "ddp-average-in-collective", "deterministic-mode",
    "disable-gloo-process-groups", "distributed-backend", "fim-data", "fim-rate", "fim-spm-rate", "finetune",
    "manual-gc", "manual-gc-interval", "mock-data", "no-check-for-nan-in-loss-and-grad", "no-mmap-bin-files",
    "norm-epsilon", "num-workers", "overlap-param-gather", "override-opt_param-scheduler", "rerun-mode", "split",
    "train-iters", "train-samples", "use-checkpoint-opt_param-scheduler", "use-mcore-models", "verify-integrity",
    "no-create-attention-mask-in-dataloader", "tokenizer-type", "adam-eps", "rotary-base",
    # distrib_optimizer.py: the same optimizer, cut by model chunk, whose gather runs beside the next one's step
    "overlap-param-gather-with-optimizer-step",
}
SIZES = {"num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "seq-length", "max-position-embeddings",
         "micro-batch-size", "global-batch-size", "tensor-model-parallel-size", "pipeline-model-parallel-size",
         "context-parallel-size", "num-layers-per-virtual-pipeline-stage", "recompute-granularity", "bf16", "fp16",
         "sequence-parallel", "use-distributed-optimizer", "group-query-attention", "num-query-groups", "kv-channels",
         "vocab-size", "num-distributed-optimizer-instances", "num-virtual-stages-per-pipeline-rank",
         "step-batch-size-schedule"}
PASSED_ON = {"attention-backend", "transformer-impl", "no-gradient-accumulation-fusion", "cross-entropy-loss-fusion",
             "cross-entropy-fusion-impl", "overlap-grad-reduce", "disable-bias-linear", "swiglu",
             "position-embedding-type", "normalization", "untie-embeddings-and-output-weights", "hidden-dropout",
             "attention-dropout", "recompute-method", "recompute-num-layers", "make-vocab-size-divisible-by",
             "apply-query-key-layer-scaling", "apply-layernorm-1p", "no-rope-fusion", "rotary-percent", "squared-relu",
             "microbatch-group-size-per-virtual-pipeline-stage", "account-for-embedding-in-pipeline-split",
             "account-for-loss-in-pipeline-split", "defer-embedding-wgrad-compute", "wgrad-deferral-limit"}
# Of models with experts: what gives the model its shape, what memcalc is told by the same name, and what changes no
# memory or only the router's scores, a few bytes a token.
EXPERT_SIZES = {"num-experts", "moe-router-topk", "moe-ffn-hidden-size", "expert-model-parallel-size",
                "moe-token-dispatcher-type", "moe-grouped-gemm", "moe-permute-fusion", "moe-router-dtype"}
EXPERT_PASSED_ON = {"expert-tensor-parallel-size", "moe-shared-expert-intermediate-size"}
EXPERT_NO_MEMORY = {"moe-aux-loss-coeff", "moe-router-load-balancing-type", "use-tp-pp-dp-mapping",
                    "use-flash-attn", "no-bias-gelu-fusion"}  # GELU of experts is never fused (experts.py, bias_act_func)
# Of hybrid models; their stack (spec) is Megatron-LM's own.
HYBRID = {"hybrid-layer-pattern", "spec"}
# Of Muon, of which the memory of a step is far below the peak. --optimizer says which one it is.
MUON_NO_MEMORY = {"optimizer", "muon-momentum", "muon-extra-scale-factor", "muon-scale-mode"}
GPT2_VOCABULARY = 50257  # GPT2BPETokenizer, which the functional tests use where nothing else is said


def micro_batches_option(stages):
    """A pipeline runs its step's micro-batches; without one they accumulate."""
    return "--micro-batches" if int(stages) > 1 else "--accum"


def b200_case(row):
    config = {**B200_MODELS[row["model"]], "num_hidden_layers": row["layers"], "tie_word_embeddings": False}
    megatron = ["cross-entropy-loss-fusion", "cross-entropy-fusion-impl=te"]
    if "deepseek" in row["model"]: megatron += ["expert-tensor-parallel-size=1", "moe-expert-capacity-factor=1"]
    argv = ["--gpu", "b200-sxm-180gb", "--gpus", "8", "--bs", "1", "--seq", str(row["sequence"]), "--precision", "bf16",
            "--parallel", "megatron-dist", "--tp", str(row["tp"]), "--pp", str(row["pp"]), "--cp", str(row["cp"]),
            "--ep", str(row["ep"]), micro_batches_option(row["pp"]), str(row["micro_batches"]), "--megatron", ",".join(megatron)]
    if row["tp"] > 1: argv.append("--sp")
    if row["cp"] > 1: argv += ["--cp-type", "ulysses"]
    return config, argv


def not_understood(case):
    """Why a golden case cannot be asked, or None."""
    given = case["arguments"]
    if case["family"] not in ("gpt", "moe", "mixtral", "hybrid"): return f"family {case['family']}"
    known = NO_MEMORY | SIZES | PASSED_ON
    if "num-experts" in given: known |= EXPERT_SIZES | EXPERT_PASSED_ON | EXPERT_NO_MEMORY
    if given.get("optimizer") == "muon": known |= MUON_NO_MEMORY
    if "hybrid-layer-pattern" in given: known |= HYBRID
    unknown = sorted(set(given) - known)
    if unknown: return ", ".join(unknown)
    if "release" in case["case"]: return "how many GPUs ran is not told: its recipe is not public"
    null = given.get("tokenizer-type") == "NullTokenizer" and "vocab-size" in given
    if not null and given.get("tokenizer-type") not in (None, "GPT2BPETokenizer"): return "vocabulary of " + given["tokenizer-type"]
    if "num-layers" not in given and "hybrid-layer-pattern" not in given: return "no num-layers"
    whole = lambda key: int(given.get(key, 1))
    model_ranks = whole("tensor-model-parallel-size") * whole("pipeline-model-parallel-size") * whole("context-parallel-size")
    least = whole("micro-batch-size") * (4 if case["case"].endswith("_1node") else 8) // model_ranks
    if int(given.get("global-batch-size", least)) < least: return "a global batch too small for all GPUs: how many ran is not told"
    return None


def feed_forward_width(given, hidden):
    """arguments.py: where nothing is said four times the width, and two thirds of that, in steps of 64, for the two
    products of a gated layer."""
    if "ffn-hidden-size" in given: return int(given["ffn-hidden-size"])
    return int(4 * hidden * 2 / 3) // 64 * 64 if "swiglu" in given else 4 * hidden


def hybrid_sections(given):
    """The layers of each chunk of a hybrid model (hybrid_layer_allocation.py: "|" between the chunks)."""
    return given["hybrid-layer-pattern"].split("|") if "hybrid-layer-pattern" in given else []


def golden_model(given, number):
    """The model's config and, where a GPT-2 cannot have its shape (grouped queries, heads of another width), what makes
    a LLaMA of that shape Megatron's GPT with its defaults."""
    hidden = number("hidden-size", 0)
    sizes = {"vocab_size": number("vocab-size", GPT2_VOCABULARY)}
    if given.get("tokenizer-type") == "NullTokenizer": sizes["vocab_size"] += 1  # its end of document
    experts = "num-experts" in given
    if "group-query-attention" not in given and not experts and "hybrid-layer-pattern" not in given:
        return {"model_type": "gpt2", "n_layer": number("num-layers", 0), "n_embd": hidden,
                "n_head": number("num-attention-heads", 0), "n_inner": feed_forward_width(given, hidden),
                "n_positions": number("max-position-embeddings", 0), **sizes}, []
    heads = number("num-attention-heads", 0)
    groups = number("num-query-groups", 1) if "group-query-attention" in given else heads
    config = {"model_type": "llama", "num_hidden_layers": number("num-layers", 0), "hidden_size": hidden,
              "num_attention_heads": heads, "num_key_value_heads": groups,
              "head_dim": number("kv-channels", hidden // heads), "tie_word_embeddings": True,
              "intermediate_size": feed_forward_width(given, hidden),
              "max_position_embeddings": number("max-position-embeddings", 0), **sizes}
    defaults = {"position-embedding-type": "learned_absolute", "normalization": "LayerNorm", "swiglu": "false",
                "disable-bias-linear": "false", "hidden-dropout": "0.1", "attention-dropout": "0.1"}
    told = [f"{name}={value}" for name, value in defaults.items() if name not in given]
    sections = hybrid_sections(given)
    if sections:  # transformer_config.py, mamba_mixer.py: sizes of the Mamba mixers where nothing is said
        config.update({"model_type": "nemotron_h", "hybrid_override_pattern": "".join(sections), "num_hidden_layers": len("".join(sections)),
                       "mlp_hidden_act": "gelu", "mamba_head_dim": 64, "mamba_num_heads": 2 * hidden // 64,
                       "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "chunk_size": 128})
    if not experts: return config, told
    config.update({"model_type": "mixtral", "num_local_experts": number("num-experts", 0),
                   "num_experts_per_tok": number("moe-router-topk", 2),
                   "intermediate_size": number("moe-ffn-hidden-size", config["intermediate_size"])})
    # arguments.py: what is not asked for is not so, and tokens are gathered.
    told += [f"{name}=false" for name in ("moe-grouped-gemm", "moe-permute-fusion") if name not in given]
    told += [f"moe-token-dispatcher-type={given.get('moe-token-dispatcher-type', 'allgather')}",
             f"moe-router-dtype={given.get('moe-router-dtype', 'none')}"]
    return config, told


def attention_that_ran(given, environment, platform):
    """TransformerEngine's choice where the arguments leave it open (dot_product_attention/utils.py, get_attention_backend):
    in deterministic mode cuDNN's is left out before compute capability 9.0 and on Blackwell, which leaves flash-attn."""
    if "attention-backend" in given or given.get("transformer-impl") == "local": return []
    deterministic = environment.get("NVTE_ALLOW_NONDETERMINISTIC_ALGO") == "0"
    return ["attention-backend=flash"] if deterministic and "h100" not in platform else []


def golden_case(case, platform, card):
    given = case["arguments"]
    number = lambda key, default: int(given.get(key, default))
    gpus = 4 if case["case"].endswith("_1node") else 8  # a node of GB200 has 4; the other tests take 8 GPUs
    tp, pp = number("tensor-model-parallel-size", 1), number("pipeline-model-parallel-size", 1)
    cp = number("context-parallel-size", 1)
    layers = number("num-layers", 0)
    config, shape = golden_model(given, number)
    batch = number("micro-batch-size", 1)
    replicas = gpus // (tp * pp * cp)
    instances = number("num-distributed-optimizer-instances", 1)  # each shares out the states among its own replicas
    micro_batches = max(number("global-batch-size", batch * replicas) // (batch * replicas), 1)
    precision = "bf16" if "bf16" in given else "fp16" if "fp16" in given else "fp32"
    by_name = PASSED_ON | EXPERT_PASSED_ON
    passed = shape + attention_that_ran(given, case["environment"], platform)
    passed += [name if value == "true" else f"{name}={value}" for name, value in given.items() if name in by_name]
    gpu = {"a100": "a100-sxm4-80gb", "h100": "h100-sxm", "b200": "gb200-186gb"}
    name = next((name for key, name in gpu.items() if key in platform), "a100-sxm4-80gb")
    argv = ["--gpu", card(name, case["environment"]),
            "--gpus", str(gpus // instances), "--framework", "megatron", "--bs", str(batch), "--seq", given["seq-length"],
            "--precision", precision, "--tp", str(tp), "--pp", str(pp), "--cp", str(cp),
            micro_batches_option(pp), str(micro_batches)]
    if passed: argv += ["--megatron", ",".join(passed)]
    if number("expert-model-parallel-size", 1) > 1: argv += ["--ep", given["expert-model-parallel-size"]]
    if "use-distributed-optimizer" in given: argv += ["--parallel", "megatron-dist"]
    if "optimizer" in given: argv += ["--optimizer", given["optimizer"]]
    if "sequence-parallel" in given and tp > 1: argv.append("--sp")
    if "recompute-granularity" in given: argv += ["--checkpointing", given["recompute-granularity"]]
    if "hybrid-layer-pattern" in given:
        virtual = max(len(hybrid_sections(given)) // pp, 1)
    elif "num-layers-per-virtual-pipeline-stage" in given:
        virtual = layers // pp // number("num-layers-per-virtual-pipeline-stage", 1)
    else:
        virtual = number("num-virtual-stages-per-pipeline-rank", 1)
    if virtual > 1: argv += ["--virtual-stages", str(virtual), "--schedule", "interleaved"]
    return config, argv


def card(name, environment, memcalc):
    """A card as the run's environment sets it: CUBLAS_WORKSPACE_CONFIG=:KiB:count… sizes PyTorch's workspace."""
    setting = environment.get("CUBLAS_WORKSPACE_CONFIG")
    if setting is None: return name
    spec = json.loads((ROOT / "specs/gpus" / f"{name}.json").read_text())
    numbers = [int(part) for part in setting.split(":") if part]
    spec["cublas_workspace_bytes"] = sum(1024 * size * count for size, count in zip(numbers[::2], numbers[1::2]))
    return str(memcalc.file(spec, f"{name}.json"))


def asked(memcalc, cases):
    """The answers to (config, argv), rank by rank."""
    return memcalc.all([["--model", memcalc.file(config), *argv, "--per-rank"] for config, argv in cases])


def golden_rows(memcalc):
    """Megatron-LM's functional tests: what its file says of its source, rows (case, platform, question, measured, found) of
    allocated bytes on the last rank, and {case: why it was left out}."""
    source, *cases = json_lines(PUBLISHED / "megatron_golden.jsonl")
    wanted, left_out = [], {}
    for case in cases:
        reason = not_understood(case)
        for platform, measured in case["max_allocated_bytes_last_rank"].items():
            if measured < LEAST_GOLDEN: continue
            if reason: left_out[case["case"]] = reason
            else:
                of_platform = lambda name, environment: card(name, environment, memcalc)
                wanted.append((case["case"], platform, golden_case(case, platform, of_platform), measured))
    rows = []
    for (name, platform, question, measured), answer in zip(wanted, asked(memcalc, [each[2] for each in wanted])):
        if isinstance(answer, Refused): left_out[name] = str(answer)
        else: rows.append((name, platform, question, measured, answer["ranks"][-1]["peak_allocated_bytes"]))
    return source, rows, left_out
