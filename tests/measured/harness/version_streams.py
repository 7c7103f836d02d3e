"""Records every storage that one training step of a model makes: fake CPU tensors (real widths, no memory) or real CPU tensors.
usage: MODELS=DIR version_streams.py JOB.json > DIR/NAME-VERSION.txt   (under the transformers of a version: PYTHONPATH)   JOB: model (name in $MODELS/models.py) or config; batch, seq, precision, ckpt, layers, mask, real, trainer, list(bool)
Bytes are rounded up to 512 as the caching allocator does. CPU's SDPA and autocast lists stand for CUDA's: read differences between versions, not absolute figures."""
import sys, json, weakref, gc, collections, warnings, os
warnings.filterwarnings("ignore"); os.environ["TRANSFORMERS_VERBOSITY"]="error"
sys.path.insert(0,os.environ['MODELS'])  # a folder with models.py: MODELS = {name: (task, spec)}
import torch, transformers as tf
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch._subclasses.fake_tensor import FakeTensorMode
job=json.loads(sys.argv[1]) if sys.argv[1].startswith('{') else json.load(open(sys.argv[1]))
class Rec(TorchDispatchMode):
    def __init__(s): super().__init__(); s.live={}; s.cur=0; s.peak=0; s.log=[]; s.phase=''; s.marks=[]; s.ops=[]
    def see(s,t,name):
        st=t.untyped_storage(); k=st._cdata
        if k in s.live: return
        n=(st.nbytes()+511)//512*512
        if n==0: return
        s.live[k]=(n,name,tuple(t.shape),str(t.dtype)[6:],len(s.log)); s.cur+=n; s.log.append(('+',n,name,tuple(t.shape),str(t.dtype)[6:]))
        if s.cur>s.peak: s.peak=s.cur; s.at=len(s.log)
        def gone(k=k,n=n):
            v=s.live.pop(k,None)
            if v: s.cur-=n; s.log.append(('-',n)+v[1:4])
        weakref.finalize(st,gone)
    def __torch_dispatch__(s,f,types,args=(),kw=None):
        out=f(*args,**(kw or {})); name=str(f).replace('aten.','').replace('.default','')
        s.ops.append((name,[tuple(a.shape) for a in tree_flatten((args,kw))[0] if isinstance(a,torch.Tensor)]))
        for t in tree_flatten(out)[0]:
            if isinstance(t,torch.Tensor): s.see(t,name)
        return out
def build():
    from models import MODELS
    task,spec=MODELS[job['model']] if 'model' in job else (job['task'],job['spec']); spec=dict(spec); mt=spec.pop('model_type')
    if 'layers' in job:
        for k in ("num_hidden_layers","n_layer","num_layers","num_decoder_layers","encoder_layers","decoder_layers"):
            if k in spec: spec[k]=job['layers']
    spec.update(job.get('config',{})); V0=spec.pop('vocab_size',1000) if mt=='clip' else None
    cfg=tf.AutoConfig.for_model(mt,**spec)
    if mt in("whisper","t5"):
        cfg.decoder_start_token_id=1 if mt=="whisper" else 0
        if mt=="t5": cfg.pad_token_id=0
    cls={"seqcls":tf.AutoModelForSequenceClassification,"mlm":tf.AutoModelForMaskedLM,"causal":tf.AutoModelForCausalLM,"seq2seq":tf.AutoModelForSeq2SeqLM,"whisper":tf.AutoModelForSpeechSeq2Seq,"image":tf.AutoModelForImageClassification,"clip":tf.AutoModel}[task]
    wd={"bf16":torch.bfloat16,"fp16":torch.float16}.get(job.get('precision'),torch.float32)
    m=cls.from_config(cfg,dtype=wd,attn_implementation=job.get('attn','sdpa'))
    B,S=job['batch'],job.get('seq',0); V=spec.get('vocab_size',V0 or 1000)
    ri=lambda hi,*sh: torch.randint(5,hi,sh)
    if task=='seqcls': b=dict(input_ids=ri(V,B,S),labels=ri(6,B)*0)
    elif task in('mlm','causal'): ids=ri(V,B,S); b=dict(input_ids=ids,labels=ids.clone())
    elif task=='seq2seq': b=dict(input_ids=ri(V,B,S),labels=ri(V,B,job.get('target_seq',S)))
    elif task=='whisper': b=dict(input_features=torch.randn(B,80,3000,dtype=wd),labels=ri(V,B,S))
    elif task=='clip': b=dict(input_ids=ri(V,B,S),pixel_values=torch.randn(B,3,224,224,dtype=wd),attention_mask=torch.ones(B,S,dtype=torch.long),return_loss=True)
    else: b=dict(pixel_values=torch.randn(B,3,224,224,dtype=wd),labels=ri(6,B)*0)
    if job.get('mask'): b['attention_mask']=torch.ones(B,S,dtype=torch.long)
    if job.get('packed'): b['position_ids']=torch.cat([torch.arange(S//2)]*2).unsqueeze(0).expand(B,S).contiguous()
    if job.get('pad'):
        am=torch.ones(B,S,dtype=torch.long); am[1::2,S//2:]=0; b['attention_mask']=am
    if job.get('ckpt'): m.gradient_checkpointing_enable(**({'gradient_checkpointing_kwargs':{'use_reentrant':job['reentrant']}} if 'reentrant' in job else {}))
    m.train(); return m,b
r=Rec()
def run():
    m,b=build(); amp={"amp-fp16":torch.float16,"amp-bf16":torch.bfloat16}.get(job.get('precision'))
    gc.collect()
    base=[]
    for t in list(m.parameters())+list(m.buffers())+[x for x in b.values() if isinstance(x,torch.Tensor)]: base.append(t)
    for mod in m.modules():
        for k,v in vars(mod).items():
            if isinstance(v,torch.Tensor): base.append(v)
    with r:
        if job.get('gen'):
            m.eval(); b.pop('labels',None)
            for t in base: r.see(t,'base')
            with torch.no_grad():
                m.generate(**b,max_new_tokens=job['gen'],min_new_tokens=job['gen'],do_sample=False,pad_token_id=0,num_beams=job.get('beams',1))
                gc.collect(); r.peak=r.cur; b0=r.cur; n0=len(r.log); o0=len(r.ops)
                m.generate(**b,max_new_tokens=job['gen'],min_new_tokens=job['gen'],do_sample=False,pad_token_id=0,num_beams=job.get('beams',1))
            return dict(base=b0,fwd_peak=r.peak,after_fwd=r.cur),[],r.log[n0:],[],r.ops[o0:],[],m
        for step in range(job.get('steps',2)):
            for p in m.parameters(): p.grad=None
            for t in base: r.see(t,'base')
            r.peak=r.cur; b0=r.cur; n0=len(r.log); o0=len(r.ops)
            if amp is not None:
                with torch.autocast('cpu',dtype=amp): o=m(**b)
            else: o=m(**b)
            loss=o.loss if job.get('keep_output') else o.loss; del o
            f=(b0,r.peak,r.cur); live=[v for v in r.live.values() if v[1]!='base']; n1=len(r.log); o1=len(r.ops); r.peak=r.cur
            loss.backward(); del loss
            bw=(r.peak,r.cur); n2=len(r.log); o2=len(r.ops)
            res=dict(base=b0,fwd_peak=f[1],after_fwd=f[2],bwd_peak=bw[0],after_bwd=bw[1])
    return res,live,r.log[n0:n1],r.log[n1:n2],r.ops[o0:o1],r.ops[o1:o2],m
from torch._subclasses.fake_tensor import FakeTensor
if not job.get('real'):
    FakeTensor.__contains__=lambda s,x: False; FakeTensor.__bool__=lambda s: True   # every check of a mask's values says: nothing is padded, nothing packed
    import transformers.masking_utils as mu
    if hasattr(mu,'is_tracing'): mu.is_tracing=lambda *a,**k: False
if job.get('real'): out=run()
else:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    with FakeTensorMode(allow_non_fake_inputs=True): out=run()
res,live,fl,bl,fo,bo,m=out
print(tf.__version__,json.dumps(res))
if len(sys.argv)>2:
    with open(sys.argv[2]+'-'+tf.__version__+'.txt','w') as f:
        print(json.dumps(res),file=f)
        c=collections.Counter((v[0],v[1],v[2],v[3]) for v in live)
        print('KEPT AFTER FORWARD',file=f)
        for k,n in sorted(c.items(),key=lambda kv:str(kv[0])): print(n,*k,file=f)
        print('FORWARD',file=f)
        for e in fl: print(*e,file=f)
        print('BACKWARD',file=f)
        for e in bl: print(*e,file=f)
        print('OPS FORWARD',file=f)
        for e in fo: print(*e,file=f)
        print('OPS BACKWARD',file=f)
        for e in bo: print(*e,file=f)
