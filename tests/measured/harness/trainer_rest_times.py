"""CPU milliseconds of the Trainer's own Python in a step: all but forward, backward, clipping and optimizer.step. No card."""
import pathlib, sys, tempfile, time
import torch, transformers as tf
torch.set_num_threads(1)
src=open(pathlib.Path(__file__).with_name("host_wrappers.py")).read()
src=src.replace(".cuda()","").replace('device="cuda"','device="cpu"')
g={"__name__":"hw"}; sys.argv=["x","/dev/null","1"]; exec(compile(src,"hw","exec"),g)
build=g["build"]
mid=lambda v: sorted(v)[len(v)//2]
for family,layers,accum in (("bert",4,1),("bert",16,1),("bert",16,4),("llama",4,1),("llama",16,1)):
    model,batch=build(family,layers); n=sum(1 for _ in model.parameters()); mods=sum(1 for _ in model.modules())
    items=[dict(input_ids=torch.randint(1,90,(16,)),labels=torch.tensor(0) if family=="bert" else torch.randint(1,90,(16,))) for _ in range(200)]
    marks=[]
    class M(tf.TrainerCallback):
        def on_step_end(self,*a,**k): marks.append((time.thread_time(), opt_time[0], fb[0]))
    # time inside forward, backward and the optimizer, which are counted elsewhere
    opt_time=[0.0]; fb=[0.0]
    fwd=model.forward
    def timed(f,acc):
        def g(*a,**k):
            t=time.thread_time(); r=f(*a,**k); acc[0]+=time.thread_time()-t; return r
        return g
    import functools
    model.forward=functools.wraps(fwd)(timed(fwd,fb))
    back=torch.Tensor.backward; torch.Tensor.backward=timed(back,fb)
    clip=torch.nn.utils.clip_grad_norm_; torch.nn.utils.clip_grad_norm_=timed(clip,opt_time)
    args=tf.TrainingArguments(output_dir=tempfile.mkdtemp(),use_cpu=True,per_device_train_batch_size=1,gradient_accumulation_steps=accum,max_steps=40,report_to="none",logging_strategy="no",save_strategy="no",disable_tqdm=True,dataloader_num_workers=0,remove_unused_columns=False,optim="adamw_torch")
    class T(tf.Trainer):
        def create_optimizer(self,*a,**k):
            o=super().create_optimizer(*a,**k); o.step=timed(o.step,opt_time); return o
    t=T(model=model,args=args,train_dataset=items,data_collator=tf.default_data_collator,callbacks=[M()])
    t.train()
    torch.Tensor.backward=back; torch.nn.utils.clip_grad_norm_=clip
    d=[(b[0]-a[0])-(b[1]-a[1])-(b[2]-a[2]) for a,b in zip(marks[5:],marks[6:])]
    mt=[]
    for _ in range(20):
        q=time.thread_time(); model.train(); mt.append(time.thread_time()-q)
    print(family,layers,accum,"params",n,"modules",mods,"rest ms %.2f"%(1e3*mid(d)),"train() ms %.3f"%(1e3*mid(mt)),flush=True)
