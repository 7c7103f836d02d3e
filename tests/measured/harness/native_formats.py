"""Peaks of models that are stored in FP8 blocks or MXFP4, on one card: a checkpoint with random values is written in that format and
loaded by from_pretrained, which calls the Triton kernels of the hub. Those travel as source, since the card has no network:
$KERNELS holds the folders finegrained_fp8 and gpt_oss_triton_kernels of github.com/huggingface/kernels-community (torch-ext of
finegrained-fp8 and gpt-oss-triton-kernels; finegrained_fp8/_ops.py, which its build makes, is written here). DeepGEMM is switched off.

usage: KERNELS=DIR OUT=DIR native_formats.py MODEL   (appends to $OUT/rows.jsonl: load, forward and generate are max allocated, max reserved,
allocated and reserved; writes the allocator's history of two of the models)
"""
import gc, json, os, shutil, sys, tempfile, time
K = os.environ["KERNELS"]
with open(os.path.join(K, "finegrained_fp8/_ops.py"), "w") as f:
    f.write("import torch\nops = torch.ops.local_fp8\ndef add_op_namespace_prefix(name): return 'local_fp8::' + name\n")
sys.path.insert(0, K)
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import torch, transformers as tf
from safetensors.torch import load_file, save_file
import transformers.integrations.finegrained_fp8 as ff
import transformers.integrations.hub_kernels as hk
import transformers.quantizers.quantizer_mxfp4 as qm
import finegrained_fp8, gpt_oss_triton_kernels
ff.is_kernels_available = lambda *a, **k: True
ff.lazy_load_kernel = lambda n: finegrained_fp8
ff.is_deepgemm_loadable = lambda *a, **k: False
hk.get_kernel = lambda *a, **k: gpt_oss_triton_kernels
qm.is_kernels_available = lambda *a, **k: True
out = os.environ.get("OUT", "/tmp")
CASES = {
  "qwen3-small": dict(model_type="qwen3", vocab_size=32000, hidden_size=2048, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=4, head_dim=128, intermediate_size=4096, tie_word_embeddings=False, max_position_embeddings=4096),
  "qwen3-moe-small": dict(model_type="qwen3_moe", vocab_size=32000, hidden_size=1024, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=4, head_dim=64, intermediate_size=2048, moe_intermediate_size=512, num_experts=16, num_experts_per_tok=4, norm_topk_prob=True, tie_word_embeddings=False, max_position_embeddings=4096),
  "deepseek-v3-4l": dict(model_type="deepseek_v3", vocab_size=32000, hidden_size=1024, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=16, intermediate_size=2816, moe_intermediate_size=512, n_routed_experts=16, n_shared_experts=1, num_experts_per_tok=4, first_k_dense_replace=1, kv_lora_rank=128, q_lora_rank=384, qk_rope_head_dim=32, qk_nope_head_dim=64, v_head_dim=64, n_group=4, topk_group=2, max_position_embeddings=4096),
  "gpt-oss-4l": dict(model_type="gpt_oss", vocab_size=32000, hidden_size=1024, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=4, head_dim=64, intermediate_size=1024, num_local_experts=8, num_experts_per_tok=4, sliding_window=128, max_position_embeddings=4096),
}
FP8 = dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[128, 128])
MX = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])
def is_linear(n, t):
    return t.ndim == 2 and n.endswith("_proj.weight") or n.endswith("_proj_with_mqa.weight") or n.split(".")[-2] in ("q_a_proj", "q_b_proj", "kv_b_proj")
def checkpoint(name, d):
    c = dict(CASES[name]); t = c.pop("model_type")
    cfg = tf.AutoConfig.for_model(t, **c)
    m = tf.AutoModelForCausalLM.from_config(cfg, dtype=torch.bfloat16); m.save_pretrained(d); del m
    new = {}
    for k, v in load_file(d + "/model.safetensors").items():
        if name == "gpt-oss-4l" and k.endswith("experts.gate_up_proj") or name == "gpt-oss-4l" and k.endswith("experts.down_proj"):
            e, i, o = v.shape
            new[k + "_blocks"] = torch.randint(0, 255, (e, o, i // 32, 16), dtype=torch.uint8)
            new[k + "_scales"] = torch.full((e, o, i // 32), 118, dtype=torch.uint8)
        elif name != "gpt-oss-4l" and is_linear(k, v):
            new[k] = v.to(torch.float8_e4m3fn).contiguous()
            new[k + "_scale_inv"] = torch.ones(-(-v.shape[0] // 128), -(-v.shape[1] // 128))
        else: new[k] = v.contiguous()
    save_file(new, d + "/model.safetensors", metadata={"format": "pt"})
    j = json.load(open(d + "/config.json")); j["quantization_config"] = MX if name == "gpt-oss-4l" else FP8
    json.dump(j, open(d + "/config.json", "w"))
    shutil.copy(d + "/config.json", out + "/%s.config.json" % name)
def run(name):
    d = tempfile.mkdtemp(); checkpoint(name, d)
    torch.cuda.reset_peak_memory_stats(); r = {"model": name}
    st = lambda: (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
    if name in ("qwen3-moe-small", "gpt-oss-4l"): torch.cuda.memory._record_memory_history(max_entries=200000, stacks="python")
    m = tf.AutoModelForCausalLM.from_pretrained(d, dtype=torch.bfloat16, device_map={"": 0}, attn_implementation="eager" if name == "gpt-oss-4l" else "sdpa")
    m.eval(); gc.collect(); r["load"] = st()
    r["kept"] = sum(p.numel() * p.element_size() for p in m.parameters())
    r["cls"] = sorted({type(x).__name__ for x in m.modules()})
    ids = torch.randint(5, 30000, (2, 512), device="cuda")
    with torch.no_grad():
        o = m(input_ids=ids); del o
        gc.collect(); torch.cuda.synchronize(); torch.cuda.reset_peak_memory_stats()
        o = m(input_ids=ids); torch.cuda.synchronize(); r["forward"] = st(); del o
        try:
            g = m.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, min_new_tokens=8, do_sample=False, pad_token_id=0); del g
            gc.collect(); torch.cuda.synchronize(); torch.cuda.reset_peak_memory_stats()
            g = m.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, min_new_tokens=8, do_sample=False, pad_token_id=0)
            torch.cuda.synchronize(); r["generate"] = st(); del g
        except Exception as e: r["generate_error"] = repr(e)[:300]
    if name in ("qwen3-moe-small", "gpt-oss-4l"):
        ev = torch.cuda.memory._snapshot()["device_traces"][0]
        with open(out + "/%s.events.txt" % name, "w") as f:
            for e in ev:
                fr = [x for x in e.get("frames", []) if "transformers" in x["filename"] or "kernels" in x["filename"] or "fp8" in x["filename"]][:2]
                f.write("%s %d %s\n" % (e["action"], e["size"], " < ".join("%s:%d" % (os.path.basename(x["filename"]), x["line"]) for x in fr)))
        torch.cuda.memory._record_memory_history(None)
    shutil.rmtree(d); return r
if __name__ == "__main__":
    if len(sys.argv) > 1:
        t = time.time(); r = run(sys.argv[1]); r["s"] = time.time() - t
        print(json.dumps(r), flush=True); open(out + "/rows.jsonl", "a").write(json.dumps(r) + "\n")
