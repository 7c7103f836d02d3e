"""Pipelines of torch: schedules of several stages a rank beside other ways to use GPUs, uneven stages, adapters. One GPU
runs each listed rank alone ("fake"); the first few were measured on real GPUs before."""
import json
U = dict(tie_word_embeddings=False)
P = dict(model="llama-3.2-1b", seq=1024, config=U, fake=True, limit=40)
H8 = dict(P, layers=8, history=True, stacks=True)
B = dict(mode="pp", precision="bf16", batch=8, micro_batches=8, world=2, ranks=[0, 1])
D = dict(batch=4, micro_batches=4, world=4, pp=2, ranks=[0, 2])
MP = dict(mode="fsdp2", mp=True, precision="fp32")
I2, ZB, ZBV = dict(schedule="interleaved", chunks=2), dict(schedule="zero-bubble", chunks=2), dict(schedule="zbv", chunks=2)
TP = dict(mode="pp", tp=2, precision="bf16", optimizer="adamw-for")
first = [
 # measured before on two and four H200s
 dict(H8, **B, **I2, id="llama-8l-pp-own-interleaved-bf16-w2"),
 dict(H8, **B, **ZB, id="llama-8l-pp-own-zerobubble-bf16-w2"),
 dict(H8, **D, **MP, id="llama-4l-fsdp2-pp2-mp-w4") | dict(layers=4, batch=8, schedule="1f1b"),
 dict(H8, **D, mode="ddp", precision="bf16", id="llama-4l-ddp-pp2-bf16-w4") | dict(layers=4, batch=8, schedule="1f1b"),
 # several stages a rank beside data-parallel ranks
 dict(H8, **D, **MP, **I2, id="llama-8l-fsdp2-interleaved-mp-w4"),
 dict(H8, **D, **MP, **I2, id="llama-8l-fsdp2-interleaved-noreshard-mp-w4", reshard=False),
 dict(H8, **D, **MP, id="llama-8l-fsdp2-interleaved4-noreshard-mp-w4", reshard=False, schedule="interleaved", chunks=4),
 dict(H8, **D, **MP, id="llama-8l-fsdp2-interleaved4-mp-w4", schedule="interleaved", chunks=4),
 dict(H8, **D, **I2, id="llama-8l-ddp-interleaved-bf16-w4", mode="ddp", precision="bf16"),
 # context parallelism
 dict(H8, **D, id="llama-8l-pp2-cp2-1f1b-bf16-w4", mode="pp", cp=2, precision="bf16", schedule="1f1b") | dict(ranks=[0, 3]),
 dict(H8, **D, **I2, id="llama-8l-pp2-cp2-ring-interleaved-bf16-w4", mode="pp", cp=2, rotate="alltoall", precision="bf16") | dict(ranks=[1, 2]),
 dict(H8, **D, **MP, id="llama-8l-fsdp2-pp2-cp2-mp-w8", cp=2, schedule="1f1b") | dict(world=8, ranks=[0, 4]),
 # zero bubble
 dict(H8, **D, **MP, **ZB, id="llama-8l-fsdp2-zerobubble-noreshard-mp-w4", reshard=False),
 dict(H8, **D, **TP, **ZB, id="llama-8l-tp2-zerobubble-bf16-w4"),
 dict(H8, **B, **ZB, id="llama-8l-zerobubble-ckpt-bf16-w2", ckpt="full") | dict(batch=4, micro_batches=4),
 dict(H8, **B, **ZBV, id="llama-8l-zbv-bf16-w2"),
 dict(H8, **B, **ZBV, id="llama-8l-zbv-bf16-w4") | dict(world=4, ranks=[0, 1, 2, 3]),
 dict(H8, **D, **MP, **ZBV, id="llama-8l-fsdp2-zbv-noreshard-mp-w4", reshard=False),
 # uneven stages
 dict(H8, **B, id="llama-8l-pp2-uneven-1f1b-bf16-w2", schedule="1f1b", stage_layers=[5, 3]),
 dict(H8, **B, **I2, id="llama-8l-pp2-uneven-interleaved-bf16-w2", stage_layers=[1, 3, 3, 1]),
 # adapters
 dict(H8, **B, id="llama-8l-pp2-lora-1f1b-bf16-w2", schedule="1f1b", lora=16),
 dict(H8, **D, **MP, **I2, id="llama-8l-fsdp2-interleaved-lora-mp-w4", lora=16),
 # rounds of other than pp micro-batches
 dict(H8, **B, **I2, id="llama-8l-pp4-interleaved-m10-bf16-w4") | dict(batch=10, micro_batches=10, world=4, ranks=[0, 3]),
 dict(H8, **B, **ZB, id="llama-8l-pp4-zerobubble-m6-bf16-w4") | dict(batch=6, micro_batches=6, world=4, ranks=[0, 3]),
 # three dimensions
 dict(H8, **D, **MP, **I2, id="llama-8l-fsdp2-tp2-interleaved-mp-w8", tp=2) | dict(world=8, ranks=[0, 4]),
 dict(H8, **D, **TP, **I2, id="llama-8l-tp2-interleaved-bf16-w4"),
 # recomputation
 dict(H8, **D, **MP, **I2, id="llama-8l-fsdp2-interleaved-ckpt-mp-w4", ckpt="full"),
 # whole models
 dict(P, **MP, **I2, id="llama1b-fsdp2-interleaved-noreshard-mp-w8", reshard=False, batch=8, micro_batches=8, world=8, pp=4, ranks=[0, 2, 6]),
 dict(P, **MP, **I2, id="llama3-8b-fsdp2-interleaved-mp-w32", batch=8, micro_batches=8, world=32, pp=4, ranks=[0, 24], ckpt="full") | dict(model="llama-3-8b", seq=4096, limit=60),
]
second = [
 dict(H8, **D, mode="ddp", precision="bf16", id="llama-4l-ddp-pp2-bf16-w4") | dict(layers=4, batch=8, schedule="1f1b"),
 dict(H8, **D, **I2, id="llama-8l-ddp-interleaved-bf16-w4", mode="ddp", precision="bf16"),
 *[r for r in first if r["id"] in ("llama-8l-pp2-uneven-1f1b-bf16-w2", "llama-8l-pp2-uneven-interleaved-bf16-w2", "llama-8l-pp2-lora-1f1b-bf16-w2", "llama-8l-fsdp2-interleaved-lora-mp-w4",
   "llama-8l-pp4-interleaved-m10-bf16-w4", "llama-8l-pp4-zerobubble-m6-bf16-w4", "llama-8l-fsdp2-tp2-interleaved-mp-w8", "llama-8l-tp2-interleaved-bf16-w4", "llama-8l-fsdp2-interleaved-ckpt-mp-w4")],
 # adapters on split layers, as peft splits them
 dict(H8, id="llama-2l-lora-tp2-bf16-w2", mode="tp", precision="bf16", optimizer="adamw-for", lora=16, batch=2, world=2, ranks=[0]) | dict(layers=2),
 dict(H8, **MP, id="llama-2l-lora-fsdp2-tp2-mp-w4", tp=2, lora=16, batch=2, world=4, ranks=[0]) | dict(layers=2),
 dict(H8, **D, **TP, id="llama-8l-lora-tp2-pp2-1f1b-bf16-w4", lora=16, schedule="1f1b"),
 dict(H8, **B, **ZB, id="llama-8l-lora-zerobubble-bf16-w2", lora=16) | dict(batch=4, micro_batches=4),
 # autocast around the schedule's step
 dict(H8, **B, id="llama-4l-pp2-1f1b-ampbf16-w2", schedule="1f1b") | dict(layers=4, precision="amp-bf16", batch=4, micro_batches=4),
 dict(H8, **B, **I2, id="llama-4l-interleaved-ckpt-ampbf16-w2", ckpt="full") | dict(layers=4, precision="amp-bf16", batch=4, micro_batches=4),
 dict(H8, **D, mode="ddp", precision="amp-bf16", id="llama-4l-ddp-pp2-gpipe-ampbf16-w4", schedule="gpipe") | dict(layers=4),
 # stages without embedding and head, other families
 dict(H8, id="tp-pp-llama-4l-gpipe-ckpt-bf16-w8", mode="pp", tp=2, pp=4, precision="bf16", optimizer="adamw-for", schedule="gpipe", ckpt="full", batch=4, micro_batches=4, world=8, ranks=[2, 6]) | dict(layers=4),
 dict(H8, id="qwen2.5-4l-ddp-pp4-1f1b-bf16-w16", mode="ddp", pp=4, precision="bf16", schedule="1f1b", batch=8, micro_batches=8, world=16, ranks=[4]) | dict(model="qwen2.5-0.5b", layers=4, seq=256),
 dict(H8, **MP, id="qwen2.5-4l-fsdp2-pp4-1f1b-fused-mp-w16", pp=4, optimizer="adamw-fused", schedule="1f1b", batch=4, micro_batches=4, world=16, ranks=[0, 12]) | dict(model="qwen2.5-1.5b", layers=4, seq=512),
 dict(H8, id="mistral-2l-pp2-gpipe-ckpt-sgd-bf16-w2", mode="pp", precision="bf16", optimizer="sgd", schedule="gpipe", ckpt="full", batch=4, micro_batches=4, world=2, ranks=[1]) | dict(model="mistral-7b", layers=2),
 # zero bubble and context parallelism
 dict(H8, **D, **ZB, id="llama-8l-cp2-zerobubble-bf16-w4", mode="pp", cp=2, precision="bf16") | dict(ranks=[0, 3]),
 dict(H8, **D, id="llama-8l-ddp-pp2-cp2-1f1b-bf16-w8", mode="ddp", cp=2, precision="bf16", schedule="1f1b") | dict(world=8, ranks=[0, 4]),
 dict(H8, **D, **TP, **ZBV, id="llama-8l-tp2-zbv-bf16-w4"),
 dict(H8, **B, **ZBV, id="llama-8l-zbv-ckpt-m3-bf16-w2", ckpt="full") | dict(batch=3, micro_batches=3),
 dict(H8, **D, **MP, **ZBV, id="llama-8l-fsdp2-cp2-zbv-noreshard-mp-w8", cp=2, reshard=False) | dict(world=8, ranks=[0, 4]),
 # HSDP, a bf16 reduction and parameters in bf16 around several stages
 dict(H8, **D, **MP, **I2, id="llama-8l-hsdp2-interleaved-mp-w8", hsdp=2) | dict(world=8, ranks=[0, 4]),
 dict(H8, **D, **I2, id="llama-8l-fsdp2-interleaved-bf16-w4", mode="fsdp2", precision="bf16"),
 dict(H8, **D, **MP, **I2, id="llama-8l-fsdp2-interleaved-bf16reduce-mp-w4", reduce="bf16"),
 # whole models
 dict(P, **MP, **I2, id="llama1b-fsdp2-interleaved-noreshard-mp-w8", reshard=False, batch=8, micro_batches=8, world=8, pp=4, ranks=[0, 2, 6], gib=50),
 dict(P, **MP, **I2, id="llama3-8b-fsdp2-interleaved-mp-w32", batch=8, micro_batches=8, world=32, pp=4, ranks=[0, 24], ckpt="full", gib=110) | dict(model="llama-3-8b", seq=4096, limit=90),
 dict(P, **MP, id="llama3-8b-fsdp2-tp4-pp4-1f1b-mp-w64", tp=4, batch=8, micro_batches=8, world=64, pp=4, ranks=[0, 48], schedule="1f1b", gib=110) | dict(model="llama-3-8b", seq=4096, limit=90),
 dict(P, **MP, **ZBV, id="llama3-8b-fsdp2-cp2-zbv-noreshard-mp-w32", cp=2, reshard=False, batch=8, micro_batches=8, world=32, pp=4, ranks=[0, 24], gib=120) | dict(model="llama-3-8b", seq=4096, limit=90),
]
if __name__ == "__main__":
    import sys
    print("\n".join(json.dumps(r) for r in (second if sys.argv[1:] == ["second"] else first)))
