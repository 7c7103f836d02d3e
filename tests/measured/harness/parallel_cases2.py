"""Cases of the call of issue 5's last session: what no recording of before holds."""
import json
L=dict(model="llama-3.2-1b",batch=2,seq=1024,world=2); B=dict(model="bert-large",batch=4,seq=512,world=2,precision="fp32")
H=dict(layers=2,history=True,stacks=True); P=dict(L,batch=8,mode="pp",precision="bf16",micro_batches=8,config=dict(tie_word_embeddings=False))
rows=[
 dict(dict(P,batch=4,micro_batches=4),layers=4,history=True,ranks=[0,1],stacks=True,id="llama-4l-pp-1f1b-own-bf16-w2",schedule="1f1b"),
 dict(dict(P,batch=4,micro_batches=4),layers=4,history=True,ranks=[0,1],id="llama-4l-pp-gpipe-own-bf16-w2",schedule="gpipe"),
 dict(P,layers=8,history=True,ranks=[0,1],stacks=True,id="llama-8l-pp-interleaved-bf16-w2",schedule="interleaved",chunks=2),
 dict(P,layers=8,history=True,ranks=[0,1],stacks=True,id="llama-8l-pp-zerobubble-bf16-w2",schedule="zero-bubble",chunks=2),
 dict(B,**H,id="bertL-2l-dp-w2",mode="dp",ranks=[0,1]),
 dict(B,**H,id="trainer-bertL-2l-ddp-w2",mode="ddp",loop="trainer"),
 dict(B,**H,id="trainer-bertL-2l-dp-w2",mode="dp",loop="trainer",ranks=[0,1]),
 dict(B,**H,id="trainer-bertL-2l-fsdp2-w2",mode="fsdp2",loop="trainer"),
 dict(L,**H,id="trainer-llama-2l-fsdp2-ampbf16-w2",mode="fsdp2",loop="trainer",precision="amp-bf16"),
 dict(L,**H,id="trainer-llama-2l-fsdp2-bf16-w2",mode="fsdp2",loop="trainer",precision="bf16"),
 dict(L,**H,id="trainer-llama-2l-fsdp1-ampbf16-w2",mode="fsdp1",loop="trainer",precision="amp-bf16"),
 dict(B,id="bertL-dp-w2",mode="dp"),
 dict(B,id="trainer-bertL-ddp-w2",mode="ddp",loop="trainer"),
 dict(B,id="trainer-bertL-dp-w2",mode="dp",loop="trainer"),
 dict(B,id="trainer-bertL-fsdp2-w2",mode="fsdp2",loop="trainer"),
 dict(L,id="trainer-llama1b-fsdp2-ampbf16-w2",mode="fsdp2",loop="trainer",precision="amp-bf16"),
 dict(L,id="trainer-llama1b-fsdp2-ampbf16-ckpt-w2",mode="fsdp2",loop="trainer",precision="amp-bf16",ckpt="full"),
 dict(L,id="trainer-llama1b-fsdp1-ampbf16-w2",mode="fsdp1",loop="trainer",precision="amp-bf16"),
 dict(P,id="llama1b-pp-1f1b-own-bf16-w2",schedule="1f1b"),
 dict(P,id="llama1b-pp-gpipe-bf16-w2",schedule="gpipe"),
 dict(P,id="llama1b-pp-interleaved-bf16-w2",schedule="interleaved",chunks=2),
 dict(P,id="llama1b-pp-zerobubble-bf16-w2",schedule="zero-bubble",chunks=2),
 dict(dict(L,seq=4096),id="llama1b-cp-alltoall-s4096-bf16-w2",mode="cp",precision="bf16",rotate="alltoall"),
 dict(dict(L,seq=4096),id="llama1b-cp-allgather-s4096-bf16-w2",mode="cp",precision="bf16",rotate="allgather"),
 dict(L,id="llama1b-cp-allgather-ampbf16-w2",mode="cp",precision="amp-bf16",rotate="allgather"),
 dict(B,id="bertL-zero1-w2",mode="zero1"),
 dict(L,layers=4,id="llama-4l-fsdp2-offload-mp-w2",mode="fsdp2",mp=True,offload=True,precision="fp32",limit=40),
]
print("\n".join(json.dumps(r) for r in rows))
