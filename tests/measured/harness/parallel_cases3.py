"""Cases on 4 GPUs, two dimensions of the mesh each: what runs of one dimension do not show."""
import json
L=dict(model="llama-3.2-1b",batch=2,seq=1024,world=4); H=dict(layers=2,history=True,stacks=True); MP=dict(mp=True,precision="fp32")
P=dict(L,batch=8,micro_batches=4,schedule="1f1b",config=dict(tie_word_embeddings=False)); H4=dict(layers=4,history=True,stacks=True,ranks=[0,2])
X=dict(model="mixtral-8x0.3b",batch=2,seq=1024,world=4,precision="bf16",mode="ep",optimizer="adamw-for")
rows=[
 dict(L,**H,**MP,id="llama-2l-fsdp2-tp2-mp-w4",mode="fsdp2",tp=2),
 dict(L,**H,id="llama-2l-ddp-tp2-bf16-w4",mode="ddp",tp=2,precision="bf16"),
 dict(P,**H4,**MP,id="llama-4l-fsdp2-pp2-mp-w4",mode="fsdp2",pp=2),
 dict(P,**H4,id="llama-4l-ddp-pp2-bf16-w4",mode="ddp",pp=2,precision="bf16"),
 dict(X,**H,id="mixtral-2l-ep4-bf16-w4"),
 dict(L,**H,**MP,id="llama-2l-fsdp2-cp2-mp-w4",mode="fsdp2",cp=2),
 dict(L,**H,**MP,id="llama-2l-hsdp2-mp-w4",mode="fsdp2",hsdp=2),
 dict(L,**H,id="llama-2l-tp2-cp2-bf16-w4",mode="cp",tp=2,cp=2,precision="bf16",optimizer="adamw-for"),
 dict(L,**MP,id="llama1b-fsdp2-tp2-mp-w4",mode="fsdp2",tp=2),
 dict(L,id="llama1b-ddp-tp2-bf16-w4",mode="ddp",tp=2,precision="bf16"),
 dict(P,**MP,id="llama1b-fsdp2-pp2-mp-w4",mode="fsdp2",pp=2),
 dict(P,id="llama1b-ddp-pp2-bf16-w4",mode="ddp",pp=2,precision="bf16"),
 dict(X,id="mixtral-ep4-bf16-w4"),
 dict(L,**MP,id="llama1b-fsdp2-tp2-mp-ckpt-w4",mode="fsdp2",tp=2,ckpt="full"),
 dict(dict(L,seq=4096),**MP,id="llama1b-fsdp2-cp2-s4096-mp-w4",mode="fsdp2",cp=2),
 dict(L,**MP,id="llama1b-hsdp2-mp-w4",mode="fsdp2",hsdp=2),
 dict(dict(P,config=dict(tie_word_embeddings=False)),**MP,id="llama1b-fsdp2-pp2-gpipe-noreshard-mp-w4",mode="fsdp2",pp=2,reshard=False) | dict(schedule="gpipe"),
 dict(P,id="llama1b-tp2-pp2-bf16-w4",mode="pp",tp=2,pp=2,precision="bf16",optimizer="adamw-for"),
 dict(L,id="llama1b-tp2-cp2-bf16-w4",mode="cp",tp=2,cp=2,precision="bf16",optimizer="adamw-for"),
 dict(dict(L,seq=2048),id="llama1b-fsdp2-tp2-bf16-w4",mode="fsdp2",tp=2,precision="bf16"),
]
print("\n".join(json.dumps(r) for r in rows))
