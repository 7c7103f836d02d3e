# On a card: jobs of jobs.py. usage: OUT=DIR STAGED=DIR call_jobs.sh measure|time JOBS [jobs.py's options]
# STAGED has what the machine lacks: whl (trl 1.16, datasets, peft, sentence-transformers … to be installed), and folders
# that a process anew has on its path: bnb (bitsandbytes), torchao, tf_5_5_4 (transformers), trl_old (TRL 0.24) with llamafactory; cce is axolotl's
# fork of cut_cross_entropy. torchao and bitsandbytes start CUDA as they are imported: before the jobs fork that must not be.
H=$(cd "$(dirname "$0")" && pwd)
STAGED=$(cd "$STAGED" && pwd)
export PYTHONUNBUFFERED=1 TORCHINDUCTOR_COMPILE_THREADS=4 EVENTS=/tmp/events JOBS_NOISE=/tmp/noise.txt
if [ ! -e /tmp/site/trl ]; then
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site "$STAGED"/whl/*.whl || exit 3
fi
export PYTHONPATH=$STAGED/cce:/tmp/site LLAMA_FACTORY=$STAGED/llamafactory
for name in bnb torchao trl_old tf_4_57_6 tf_5_5_4; do
  if [ -e "$STAGED/$name" ]; then export "${name^^}=$STAGED/$name"; fi
done
mkdir -p /tmp/events
mode=$1
jobs=$2
shift 2
python3 "$H/jobs.py" "$mode" "$jobs" "$OUT/$mode.jsonl" "$@"
if [ "$mode" = measure ]; then tar cf "$OUT/events.tar" -C /tmp events; fi
tail -c 20000 /tmp/noise.txt > "$OUT/noise_$mode.txt"
