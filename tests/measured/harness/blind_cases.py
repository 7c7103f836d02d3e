"""Runs drawn at random over specs/models and options that no row has: what memcalc says of them is compared blind.

    blind_cases.py SEED                 training, both loops
    blind_cases.py SEED --techniques    fine-tuning, quantisation, saving, optimizers, inference

The rows of rows_blind_h200.jsonl began with seeds 20261122, 4242 and 77, before this script took its present form: other
runs come out today. A Trainer's batch divides its 64 samples, so that no epoch ends with a smaller one.
"""
import glob, json, random, sys
from pathlib import Path

from cases import write

R = random.Random(int(sys.argv[1]))
reg = {}
for f in sorted(glob.glob(str(Path(__file__).resolve().parents[3] / "specs/models/*.json"))):
    j = json.load(open(f)); reg[j["name"]] = j


def training():
    """Every model up to 3.3 billion parameters."""
    def small(name):
        p = reg[name].get('published_parameters')
        return p is not None and p < 3.3e9
    TASK = {'bert': ['seqcls','mlm','tokcls'], 'roberta': ['seqcls','mlm','tokcls'], 'distilbert': ['seqcls','mlm','tokcls'], 'electra': ['seqcls','mlm','tokcls'],
            't5': ['seq2seq'], 'mt5': ['seq2seq'], 'bart': ['seq2seq'], 'whisper': ['whisper'], 'vit': ['image'], 'clip': ['contrastive'], 'torchvision': ['tv']}
    names = sorted(n for n in reg if small(n))
    cases = []
    def pick(name, loop):
        cfg = reg[name]['config']; mt = cfg['model_type']
        if name.startswith('whisper-large'): return None
        task = R.choice(TASK.get(mt, ['causal','causal','causal','seqcls']))
        p = reg[name]['published_parameters']
        prec = R.choice(['fp32','tf32','amp-fp16','amp-bf16','amp-bf16','bf16','bf16'])
        if loop == 'trainer' and prec == 'tf32': prec = 'fp32'
        if p > 1.6e9: prec = 'bf16'
        c = dict(loop=loop, model=name, precision=prec)
        if task in ('image','tv','contrastive'):
            c['batch_size'] = R.choice([1, 2, 4, 8, 16, 32] if loop == 'trainer' else [1, 2, 3, 5, 6, 7, 9, 12, 16, 20, 24, 33, 48])
            if task == 'contrastive': c['sequence_length'] = R.choice([16,32,50,77])
            if task == 'tv' and loop == 'bare' and R.random() < .25 and not name.startswith('swin'): c['image_size'] = R.choice([128,160,192,256,288])
        elif task == 'whisper':
            c['batch_size'] = R.choice([1,2,3,4,6]); c['sequence_length'] = R.choice([32,64,100,128,200])
        else:
            mx = cfg.get('max_position_embeddings') or cfg.get('n_positions') or 1024
            if mt == 'roberta': mx = 512
            tok = R.choice([256,512,1024,1500,2048,4096,6000] if p < 1e9 else [256,512,1024,2048])
            s = R.choice([x for x in [48,64,100,128,197,256,300,384,500,512,640,777,1000,1024,1500,2048] if x <= mx])
            c['sequence_length'] = s; c['batch_size'] = max(1, round(tok / s))
            if task == 'seq2seq' and R.random() < .4: c['target_sequence_length'] = R.choice([32,64,100,128])
        if loop == 'trainer' and 'target_sequence_length' in c: del c['target_sequence_length']
        if task not in ('tv',) and R.random() < .22: c['checkpointing'] = 'full'
        if task not in ('tv','image','contrastive','whisper'):
            if R.random() < .15: c['attention'] = 'eager'
            if R.random() < .2 and c['batch_size'] > 2: c['padding'] = True
        if R.random() < .2: c['accumulation_steps'] = R.choice([2,3,4])
        if loop == 'bare':
            if R.random() < .15: c['max_grad_norm'] = 1.0
            o = R.choice(['adamw']*6 + ['adamw-fused','sgd','sgdm','adagrad','adafactor','adafactor-torch','rmsprop','adamw-for'])
            if o != 'adamw': c['optimizer'] = o
            if task not in ('tv',) and mt in ('llama','qwen2','qwen3','gemma','gemma2','opt','gpt2','mistral','phi3') and R.random() < .2: c['lora'] = R.choice([4,8,16,64])
        else:
            if R.random() < .2: c['optimizer'] = R.choice(['adafactor','sgd'])
        if task not in ('tv','image') and task != TASK.get(mt, ['causal'])[0]: c['task'] = task
        parts = [name.replace('patch','p')] + (['trainer'] if loop == 'trainer' else []) + ['b%d' % c['batch_size']] + (['s%d' % c['sequence_length']] if 'sequence_length' in c else []) + [prec]
        for k in ('checkpointing','attention','padding','accumulation_steps','max_grad_norm','optimizer','lora','task','image_size','target_sequence_length'):
            if k in c: parts.append({'checkpointing':'ckpt','attention':'eager','padding':'padding','max_grad_norm':'clip'}.get(k) or (k + str(c[k]) if k in ('accumulation_steps','lora','image_size','target_sequence_length') else str(c[k])))
        c['id'] = 'blind-' + '-'.join(parts)
        return c
    for name in names:
        for loop in ['bare'] + (['trainer'] if R.random() < .45 else []) + (['bare'] if R.random() < .25 else []):
            c = pick(name, loop)
            if c and c['id'] not in [x['id'] for x in cases]: cases.append(c)
    return cases


def techniques():
    """What does not fit is made to fit."""
    size = lambda n: reg[n].get('published_parameters') or 9e9
    DEC = ['llama-3.2-1b','llama-3.2-3b','tinyllama-1.1b','smollm2-135m','smollm2-360m','smollm2-1.7b','qwen2.5-0.5b','qwen2.5-1.5b','qwen2.5-3b','qwen3-0.6b','qwen3-1.7b','qwen3-4b','gemma-2b','gemma-2-2b','gemma-3-1b','gemma-3-4b','phi-2','phi-3-mini-4k','opt-125m','opt-350m','opt-1.3b','opt-2.7b','gpt2','gpt2-medium','gpt2-large','pythia-160m','pythia-410m','pythia-1.4b','pythia-2.8b','mistral-7b','llama-2-7b','llama-3-8b','qwen2.5-7b','olmo-2-7b','phi-4-mini']
    ENC = ['bert-base','bert-large','roberta-base','roberta-large','distilbert-base','electra-base-discriminator','electra-large-discriminator']
    OTH = ['t5-small','t5-base','bart-base','bart-large','vit-small-patch16-224','vit-large-patch16-224','whisper-tiny','whisper-base']
    LIG = ['llama-3.2-1b','tinyllama-1.1b','smollm2-360m','qwen2.5-0.5b','mistral-7b','llama-3.2-3b','qwen2.5-1.5b']
    SEQ = [64,100,128,200,256,333,384,500,512,700,1000,1024]
    cases = []
    def add(c, kind):
        c['id'] = 'blind2-%s-%s' % (kind, '-'.join(str(v).replace('patch','p') if k in ('model','precision','optimizer','quantize','checkpointing','attention','task') else k + str(v).replace(' ','').replace("'",'') for k, v in c.items() if k != 'loop'))[:110] + ('-T' if c.get('loop') == 'trainer' else '')
        if c['id'] not in [x['id'] for x in cases]: cases.append(c)
    def base(models, budget=2048, precs=('bf16','amp-bf16','fp32'), loop=None):
        m = R.choice(models); s = R.choice(SEQ)
        mt = reg[m]['config']['model_type']
        if mt in ('roberta',) or 'bert' in m or mt == 'electra': s = min(s, 512)
        if mt == 'gpt2': s = min(s, 1024)
        p = R.choice(precs) if size(m) < 1.6e9 else 'bf16'
        c = dict(loop=loop or 'bare', model=m, batch_size=max(1, R.choice([256, 512, 1024, budget]) // s), precision=p)
        if mt != 'vit': c['sequence_length'] = min(s, 128) if mt == 'whisper' else s
        return c
    for i in range(14):  # optimizers
        c = base([m for m in DEC + ENC + OTH if size(m) < 1e9]); c['optimizer'] = R.choice(['adamw-8bit','paged-adamw-8bit','paged-adamw','adamw-bnb','lion','lion-8bit','paged-lion','rmsprop-8bit','sgdm-8bit','adam','adamw-amsgrad','muon','nadam','radam','adamax']); add(c, 'opt')
    for i in range(10):
        c = base([m for m in DEC + ENC if size(m) < 1e9], loop='trainer', precs=('bf16','amp-bf16','amp-fp16','fp32')); c['optimizer'] = R.choice(['adamw-8bit','paged-adamw-8bit','lion-8bit','lion','paged-lion','adamw-fused','adagrad','rmsprop','adafactor']); add(c, 'optim')
    for i in range(24):  # LoRA
        c = base(DEC, loop=R.choice(['bare','bare','trainer']), precs=('bf16','amp-bf16','fp32')); c['lora'] = R.choice([2,8,16,32,64])
        if R.random() < .4: c['lora_targets'] = R.choice([['q_proj','v_proj'],['q_proj','k_proj','v_proj','o_proj'],['gate_proj','up_proj','down_proj']]) if reg[c['model']]['config']['model_type'] in ('llama','mistral','qwen2','qwen3','gemma','gemma2') else 'all-linear'
        if c.get('lora_targets') == 'all-linear': del c['lora_targets']
        if R.random() < .4: c['lora_dropout'] = 0.1
        if R.random() < .3: c['lora_dtype'] = 'base'
        if R.random() < .35: c['checkpointing'] = 'full'
        if R.random() < .2: c['accumulation_steps'] = 2
        add(c, 'lora')
    for i in range(16):  # QLoRA
        c = base([m for m in DEC if size(m) < 8.5e9], precs=('bf16',), loop=R.choice(['bare','trainer'])); c['quantize'] = R.choice(['nf4','nf4','nf4-double','int8']); c['lora'] = R.choice([8,16,64])
        c['prepare_kbit'] = R.random() < .7
        if c.get('prepare_kbit') or R.random() < .4: c['checkpointing'] = 'full'
        if R.random() < .4:
            c['optimizer'] = 'paged-adamw-8bit'
        add(c, 'qlora')
    for i in range(8):
        c = base(LIG, precs=('bf16',)); c['liger'] = True
        if R.random() < .4: c['checkpointing'] = 'full'
        add(c, 'liger')
    for i in range(14):
        c = base([m for m in DEC + ENC if size(m) < 2e9]); k = R.choice(['every','selective','offload','freeze'])
        if k == 'every': c['checkpointing'] = 'every-%d' % R.choice([2,3,4])
        if k == 'selective': c['checkpointing'] = 'selective'; c['precision'] = 'bf16'
        if k == 'offload': c['activation_offload'] = True
        if k == 'freeze': c['freeze'] = R.choice([['embed'],['layer.0.','layers.0.','h.0.'],['bias'],['embed','layers.1']])
        add(c, 'save')
    for i in range(34):  # inference
        c = base(DEC + ENC + ['t5-small','t5-base','bart-base','bart-large','vit-large-patch16-224','clip-vit-base-patch32'][:5], precs=('bf16','fp16','fp32','amp-bf16')); c['infer'] = True; del c['loop']
        mt = reg[c['model']]['config']['model_type']
        if R.random() < .65 and mt not in ('bert','roberta','distilbert','electra','vit','clip'):
            c['new_tokens'] = R.choice([8,20,50,100]); c['sequence_length'] = min(c['sequence_length'], 900 if mt == 'gpt2' else 1024)
            if R.random() < .35: c['beams'] = R.choice([2,3,4])
        if R.random() < .15 and 'new_tokens' not in c: c['attention'] = 'eager'
        add(c, 'infer')
    return cases


if __name__ == "__main__":
    cases = techniques() if "--techniques" in sys.argv else training()
    R.shuffle(cases)
    write(cases)
