"""version_streams_diff.py NAME [A B ...], RECORDINGS=DIR of version_streams.py: do two versions make the same storages in the same order? Prints 'same requests' or the first differences."""
import sys,os,difflib
name=sys.argv[1]; vs=sys.argv[2:] or ['4.57.6','5.5.4','5.12.1','5.17.0','5.23.0']
def load(v):
    p=os.path.join(os.environ['RECORDINGS'],f'{name}-{v}.txt')
    if not os.path.exists(p): return None
    t=open(p).read(); f=t.index('\nFORWARD'); b=t.index('\nBACKWARD'); o=t.index('\nOPS FORWARD')
    def norm(ls):
        out=[];run=[]
        for l in ls:
            if l.startswith('- '): run.append(l)
            else: out+=sorted(run)+[l]; run=[]
        return out+sorted(run)
    return norm(t[f:b].split('\n')[2:]), norm(t[b:o].split('\n')[2:])
for a,b in zip(vs,vs[1:]):
    x,y=load(a),load(b)
    if not x or not y: print(name,a,'->',b,'no recording'); continue
    out=[]
    for k,(p,q) in (('fwd',(x[0],y[0])),('bwd',(x[1],y[1]))):
        d=[l for l in difflib.unified_diff(p,q,lineterm='',n=0) if l[0] in '+-' and not l.startswith(('+++','---'))]
        if d: out.append(f'{k}: {len(d)} lines differ; '+' | '.join(d[:int(os.environ.get("N","8"))]))
    print(name,a,'->',b,'same requests' if not out else '\n     '.join(out))
