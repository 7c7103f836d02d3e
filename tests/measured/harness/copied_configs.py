"""What a forward pass of an encoder-decoder that makes its own cache takes for its configuration, which is copied: milliseconds of processor time, over a loop of Python in turns.

usage: copied_configs.py        prints a line for each model (no card); then the bytecode instructions of each
"""
import sys,time,random,statistics as st
import torch,warnings; warnings.filterwarnings('ignore'); torch.set_num_threads(1)
import transformers as tf
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
c=time.thread_time
def spin():
    b=c(); x=0
    for i in range(20000): x+=i&3
    return c()-b
def t5(cfg): return EncoderDecoderCache(DynamicCache(config=cfg),DynamicCache(config=cfg))
def whisper(cfg):
    d=cfg.get_text_config(decoder=True)
    return EncoderDecoderCache(DynamicCache(config=d),DynamicCache(config=d))
cases={'t5':(t5,tf.T5Config(num_layers=6)),'mt5':(t5,tf.MT5Config()),'m2m_100':(t5,tf.M2M100Config()),'whisper':(whisper,tf.WhisperConfig()),'bart':(t5,tf.BartConfig()),'llama':(lambda g:DynamicCache(config=g),tf.LlamaConfig(num_hidden_layers=8)),'llama2':(lambda g:DynamicCache(config=g),tf.LlamaConfig(num_hidden_layers=2))}
got={k:[] for k in cases}; loops=[]
for r in range(60):
    loops.append(spin())
    for k,(f,g) in random.sample(list(cases.items()),len(cases)):
        f(g); b=c(); f(g); got[k].append(c()-b)
q=lambda v:sorted(v)[len(v)//5]
L=q(loops)
for k,v in got.items(): print(k,'%.0f us; over loop %.3f; on reference host %.0f us'%(1e6*q(v),q(v)/L,1337*q(v)/L))
print('loop',1e6*L)
import inspect
def count(f,g):
    n=0
    def tr(fr,e,a):
        nonlocal n
        fr.f_trace_opcodes=True; fr.f_trace_lines=False
        if e=='opcode': n+=1
        return tr
    sys.settrace(tr); f(g); sys.settrace(None); return n
for k,(f,g) in cases.items(): print(k,count(f,g))
