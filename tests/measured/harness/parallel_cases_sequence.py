"""Tensor parallelism with the sequence split, in torch's fake process group: rank 0 of each mesh, on one GPU."""
import json
T=dict(tie_word_embeddings=False); F=dict(fake=True,ranks=[0],limit=40); H=dict(history=True,stacks=True); MP=dict(mp=True,precision="fp32")
L=dict(F,model="llama-3.2-1b",batch=2,seq=1024,config=T); S=dict(tp_plan="sequence"); X=dict(tp_plan="sequence-loss")
rows=[
 dict(L,**H,**S,id="llama-2l-sp-tp4-bf16",layers=2,mode="tp",world=4,precision="bf16"),
 dict(L,**H,**X,id="llama-2l-sploss-tp4-bf16",layers=2,mode="tp",world=4,precision="bf16"),
 dict(L,**H,**S,**MP,id="llama-2l-sp-fsdp2-tp2-mp-w8",layers=2,mode="fsdp2",tp=2,world=8),
 dict(L,**H,**X,**MP,id="llama-2l-sploss-fsdp2-tp4-mp-w8",layers=2,mode="fsdp2",tp=4,world=8),
 dict(L,**H,id="llama-2l-auto-tp4-bf16",layers=2,mode="tp",world=4,precision="bf16",tp_plan="auto",optimizer="adamw-for"),
 dict(L,**H,**S,id="llama-2l-sp-tp2-amp",layers=2,mode="tp",world=2,precision="amp-bf16"),
 dict(L,**H,**X,id="llama-2l-sploss-tp8-b1-fp32",layers=2,mode="tp",world=8,precision="fp32") | dict(batch=1),
 dict(L,**S,id="llama1b-sp-tp4-bf16",mode="tp",world=4,precision="bf16"),
 dict(L,**X,id="llama1b-sploss-tp4-bf16",mode="tp",world=4,precision="bf16"),
 dict(L,**X,id="llama1b-sploss-tp8-ckpt-bf16",mode="tp",world=8,precision="bf16",ckpt="full"),
 dict(L,**S,**MP,id="llama1b-sp-fsdp2-tp2-mp-w8",mode="fsdp2",tp=2,world=8),
 dict(L,**X,**MP,id="llama1b-sploss-fsdp2-tp8-mp-ckpt-w64",mode="fsdp2",tp=8,world=64,ckpt="full"),
 dict(L,**S,id="llama1b-tied-sp-tp4-bf16",mode="tp",world=4,precision="bf16") | dict(config={}),
 dict(L,**X,id="llama1b-sploss-tp2-s4096-bf16",mode="tp",world=2,precision="bf16") | dict(seq=4096),
 dict(L,id="llama1b-auto-tp4-bf16",mode="tp",world=4,precision="bf16",tp_plan="auto",optimizer="adamw-for"),
 dict(L,**X,id="qwen2-2l-sploss-tp2-bf16",layers=2,mode="tp",world=2,precision="bf16") | dict(model="qwen2.5-1.5b"),
 dict(L,**X,**MP,id="llama8b-4l-sploss-fsdp2-tp8-mp-w32",layers=4,mode="fsdp2",tp=8,world=32) | dict(model="llama-3-8b",batch=1,seq=8192),
]
print("\n".join(json.dumps(r) for r in rows))
