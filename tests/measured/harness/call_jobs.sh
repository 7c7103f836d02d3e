# On a card: jobs of jobs.py, then the host's rates and calls of generate(). Beside this folder's files: WHEELS (trl, datasets, …), TORCHAO_WHEELS apart,
# since torchao starts CUDA as it is imported, before the jobs fork; CCE, axolotl's fork of cut_cross_entropy; JOBS and CALLS, what was drawn.
H=$(cd "$(dirname "$0")" && pwd)
export PYTHONUNBUFFERED=1 TORCHINDUCTOR_COMPILE_THREADS=4 EVENTS=/tmp/events
install() { python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$1" "$2"/*.whl; }
install /tmp/site "$WHEELS" && install /tmp/site_torchao "$TORCHAO_WHEELS" || exit 3
export PYTHONPATH=$CCE:/tmp/site TORCHAO=/tmp/site_torchao
timeout 110 python3 "$H/jobs.py" measure "$JOBS" "$OUT/measured.jsonl" --at-once 7 --budget 70 --limit 75
tar cf "$OUT/events.tar" -C /tmp events
timeout 40 python3 "$H/inference_times.py" measure "$CALLS" "$OUT/inference.jsonl" --quick --budget 30
