"""Profiles steps of networks: operators by shape, as profile_steps.py does. any_module.py and any_module_more.py (shared/truth/harness)
stand beside it. usage: profile_networks.py OUT.jsonl SECONDS"""
import gc, json, os, sys, time, traceback, warnings
warnings.filterwarnings("ignore")
os.environ["TRANSFORMERS_VERBOSITY"] = "error"; os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch, any_module as U
BASE = dict(U.CASES)
import any_module_more as M2, profile_steps as P
C = dict(BASE); C.update(M2.C)
P.DEVICE = "cuda"
def timm_case(name, b, s): C["timm-" + name] = dict(kind="timm", name=name, inputs={"x": ("float", 0, (b, 3, s, s)), "y": ("int", 999, (b,))}, precs=())
for n, b, s in (("efficientformerv2_l", 16, 224), ("beit_large_patch16_512", 4, 512), ("volo_d5_512", 4, 512), ("rdnet_large", 4, 224), ("mobilevitv2_125", 32, 256), ("resnet34d", 8, 224), ("ghostnetv2_100", 8, 224), ("starnet_s3", 8, 224), ("swinv2_tiny_window8_256", 16, 256), ("gcresnet50t", 16, 256), ("coatnet_0_rw_224", 16, 224), ("maxvit_tiny_rw_224", 16, 224), ("res2net50_26w_4s", 16, 224), ("skresnet34", 32, 224), ("nfnet_l0", 16, 224), ("cspdarknet53", 16, 224), ("poolformer_s12", 32, 224), ("xcit_tiny_12_p16_224", 32, 224)): timm_case(n, b, s)
for mt, auto, inputs in (("unispeech", "SequenceClassification", {"input_values": ("float", 0, (1, 32000)), "labels": ("int", 2, (1,))}), ("sew-d", "CTC", {"input_values": ("float", 0, (8, 16000)), "labels": ("int", 28, (8, 20))}), ("rembert", "CausalLM", U.lm(8, 384)), ("roformer", "CausalLM", U.lm(4, 512)), ("whisper", "SpeechSeq2Seq", {"input_features": ("float", 0, (4, 80, 3000)), "labels": ("int", 1000, (4, 100))}), ("t5", "Seq2SeqLM", dict(U.lm(8, 256)))):
    C[mt] = U.tf_case(mt, "AudioClassification" if mt == "unispeech" else auto, dict(decoder_start_token_id=0, d_model=768, num_layers=12, num_heads=12, d_ff=3072) if mt == "t5" else {}, inputs)
def tv(name, b, s):
    C["tv-" + name] = dict(kind="tvx", name=name, inputs={"x": ("float", 0, (b, 3, s, s)), "y": ("int", 999, (b,))}, precs=())
for n, b, s in (("swin_t", 16, 224), ("efficientnet_v2_m", 4, 224), ("vgg11", 64, 224), ("regnet_y_3_2gf", 32, 224), ("resnext50_32x4d", 32, 224), ("shufflenet_v2_x1_0", 64, 224), ("googlenet", 32, 224)): tv(n, b, s)
ORDER = [("wav2vec2", "bf16"), ("wav2vec2", "amp-bf16"), ("own-conv3d", "fp32"), ("own-conv3d", "amp-bf16"), ("timm-regnety_032", "fp32"), ("timm-regnety_032", "amp-bf16"), ("own-lstm", "fp32"), ("own-lstm", "amp-bf16"), ("seg-fcn_resnet50", "fp32"), ("seg-fcn_resnet50", "amp-bf16"), ("timm-resnest50d", "fp32"), ("timm-beit_large_patch16_512", "amp-bf16"), ("timm-efficientformerv2_l", "amp-bf16"), ("unispeech", "amp-bf16"), ("sew-d", "amp-bf16"), ("timm-volo_d5_512", "fp32"), ("rembert", "bf16"), ("tv-efficientnet_v2_m", "fp32"), ("tv-swin_t", "fp32"), ("diff-unet2d-sd15", "amp-bf16"), ("diff-unet2d-sd15", "bf16"), ("tv-vgg11", "fp32"), ("t5", "amp-bf16"), ("timm-vit_small_patch16_224", "amp-bf16"), ("llama4_text", "bf16"), ("glm4_moe_lite", "amp-bf16"), ("m2m_100", "amp-bf16"), ("timm-rdnet_large", "amp-bf16"), ("timm-mobilevitv2_125", "amp-bf16"), ("whisper", "amp-bf16"), ("tv-regnet_y_3_2gf", "amp-bf16"), ("tv-resnext50_32x4d", "fp32"), ("timm-swinv2_tiny_window8_256", "amp-bf16"), ("timm-coatnet_0_rw_224", "fp32"), ("timm-maxvit_tiny_rw_224", "amp-bf16"), ("timm-res2net50_26w_4s", "fp32"), ("timm-skresnet34", "amp-bf16"), ("timm-nfnet_l0", "amp-bf16"), ("timm-cspdarknet53", "amp-bf16"), ("timm-poolformer_s12", "amp-bf16"), ("timm-xcit_tiny_12_p16_224", "fp32"), ("tv-shufflenet_v2_x1_0", "amp-bf16"), ("tv-googlenet", "fp32"), ("timm-gcresnet50t", "amp-bf16"), ("timm-ghostnetv2_100", "amp-bf16"), ("timm-starnet_s3", "fp32"), ("mamba2", "bf16")]
def build(case, prec):
    if case["kind"] != "tvx": return U.build(case, prec, "cuda")
    import torchvision
    kw = dict(aux_logits=False, init_weights=False) if case["name"] == "googlenet" else {}
    with torch.device("cuda"): net = getattr(torchvision.models, case["name"])(weights=None, **kw).to(getattr(torch, U.DT[prec]))
    class W(torch.nn.Module):
        def __init__(s): super().__init__(); s.m = net
        def forward(s, x, y): return torch.nn.functional.cross_entropy(s.m(x), y)
    b = case["inputs"]["x"][2]
    return W(), {"x": torch.randn(b, device="cuda", dtype=getattr(torch, U.DT[prec])), "y": torch.randint(0, 999, b[:1], device="cuda")}, None
def one(name, prec):
    torch.manual_seed(0); torch.backends.cuda.matmul.allow_tf32 = False; torch.backends.cudnn.allow_tf32 = prec != "fp32"
    m, batch, loss_of = build(C[name], prec); m.train()
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-6)
    amp = prec == "amp-bf16"
    def full():
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp): o = m(**batch)
        loss = loss_of(o) if loss_of is not None else o if torch.is_tensor(o) else o.loss
        loss.backward(); opt.step()
    full(); full(); torch.cuda.synchronize()
    ts = []
    for _ in range(4):
        t = time.perf_counter(); full(); torch.cuda.synchronize(); ts.append(time.perf_counter() - t)
    from torch.profiler import ProfilerActivity as PA, profile
    with profile(activities=[PA.CPU, PA.CUDA], record_shapes=True) as p: full(); torch.cuda.synchronize()
    return dict(id=name, precision=prec, gpu=torch.cuda.get_device_name(0), step_ms=round(sorted(ts)[1] * 1e3, 3), **P.operators(p))
if __name__ == "__main__":
    end = time.time() + float(sys.argv[2])
    with open(sys.argv[1], "w") as f:
        for name, prec in ORDER:
            if time.time() > end: print("budget over at", name); break
            t = time.time()
            try: row = one(name, prec)
            except Exception as e: row = dict(id=name, precision=prec, error=repr(e)[:300]); traceback.print_exc(limit=-2)
            f.write(json.dumps(row, separators=(",", ":")) + "\n"); f.flush()
            print(name, prec, row.get("busy_ms"), row.get("step_ms"), round(time.time() - t, 1), flush=True)
            gc.collect(); torch.cuda.empty_cache()
