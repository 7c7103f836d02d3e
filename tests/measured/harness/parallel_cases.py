import json
L=dict(model="llama-3.2-1b",batch=2,seq=1024,world=2); B=dict(model="bert-large",batch=4,seq=512,world=2,precision="fp32")
H=dict(layers=2,history=True)
rows=[
 dict(L,**H,id="llama-2l-fsdp2-mp-w2",mode="fsdp2",mp=True,precision="fp32",stacks=True),
 dict(L,**H,id="llama-2l-tp-bf16-w2",mode="tp",precision="bf16",optimizer="adamw-for",stacks=True),
 dict(L,**H,id="llama-2l-fsdp1-mp-w2",mode="fsdp1",mp=True,precision="fp32",stacks=True,ranks=[0,1]),
 dict(L,**H,id="llama-2l-ddp-bf16-w2",mode="ddp",precision="bf16",stacks=True),
 dict(L,**H,id="llama-2l-cp-allgather-bf16-w2",mode="cp",precision="bf16",rotate="allgather",stacks=True),
 dict(L,**H,id="llama-2l-cp-alltoall-bf16-w2",mode="cp",precision="bf16",rotate="alltoall",stacks=True),
 dict(dict(L,batch=4),history=True,layers=4,id="llama-4l-pp-1f1b-bf16-w2",mode="pp",precision="bf16",schedule="1f1b",micro_batches=4,ranks=[0,1],stacks=True,config=dict(tie_word_embeddings=False)),
 dict(dict(L,batch=4),history=True,layers=4,id="llama-4l-pp-gpipe-bf16-w2",mode="pp",precision="bf16",schedule="gpipe",micro_batches=4,ranks=[0,1],config=dict(tie_word_embeddings=False)),
 dict(L,**H,id="llama-2l-fsdp2-lora-bf16-w2",mode="fsdp2",precision="bf16",lora=8,mp=True,stacks=True),
 dict(L,**H,id="llama-2l-fsdp2-offload-mp-w2",mode="fsdp2",mp=True,offload=True,precision="fp32"),
 dict(B,**H,id="bertL-2l-ddp-static-w2",mode="ddp",static_graph=True),
 dict(B,**H,id="bertL-2l-ddp-bucketview-w2",mode="ddp",bucket_view=True),
 dict(B,**H,id="bertL-2l-zero1-w2",mode="zero1",ranks=[0,1]),
 dict(B,**H,id="bertL-2l-ddp-accum2-w2",mode="ddp",accum=2),
 dict(L,**H,id="llama-2l-fsdp2-mp-accum2-w2",mode="fsdp2",mp=True,precision="fp32",accum=2),
 dict(L,**H,id="llama-2l-fsdp2-mp-bf16reduce-w2",mode="fsdp2",mp=True,reduce="bf16",precision="fp32"),
 dict(L,id="llama1b-fsdp2-lora-bf16-w2",mode="fsdp2",precision="bf16",lora=8,mp=True),
 dict(L,id="llama1b-fsdp2-offload-mp-w2",mode="fsdp2",mp=True,offload=True,precision="fp32"),
 dict(L,id="llama1b-cp-allgather-bf16-w2",mode="cp",precision="bf16",rotate="allgather"),
 dict(L,id="llama1b-tp-bf16-w2",mode="tp",precision="bf16",optimizer="adamw-for"),
 dict(B,id="bertL-ddp-static-w2",mode="ddp",static_graph=True),
 dict(dict(B,precision="amp-bf16"),id="bertL-ddp-ampbf16-w2",mode="ddp"),
 dict(dict(B,precision="amp-bf16"),id="bertL-fsdp2-ampbf16-w2",mode="fsdp2"),
 dict(dict(L,batch=4),id="llama1b-pp-1f1b-bf16-w2",mode="pp",precision="bf16",schedule="1f1b",micro_batches=4,config=dict(tie_word_embeddings=False)),
]
print("\n".join(json.dumps(r) for r in rows))
