#!/bin/bash
# On a card: runs of shipped programs (programs.py) beside LoRA runs of denoisers (diffusion.py), with the allocator's histories.
# usage: OUT=DIR STAGED=DIR call_programs.sh PROGRAMS LORAS SECONDS [GiB of the programs [GiB of the LoRA runs]]
# STAGED has what the machine lacks, to be unpacked: wheels of diffusers, timm, ultralytics, bitsandbytes.
cd "$(dirname "$0")" || exit 1
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=2 YOLO_CONFIG_DIR=/tmp YOLO_OFFLINE=1 PYTHONPATH=/tmp/site
mkdir -p /tmp/site /tmp/hist
for each in "$STAGED"/*.whl "$STAGED"/*.zip; do python3 -m zipfile -e "$each" /tmp/site || exit 3; done
began=$SECONDS
(timeout $(($3 + 10)) python3 programs.py measure "$1" "$OUT/programs.jsonl" /tmp/hist --keep all --untimed --budget "$3" --jobs 9 --memory "${4:-72}" > "$OUT/programs.log" 2>&1) &
one=$!
(timeout $(($3 + 10)) python3 diffusion.py measure "$2" "$OUT/diffusion.jsonl" --histories /tmp/hist --budget "$3" --jobs 3 --card "${5:-60}" > "$OUT/diffusion.log" 2>&1) &
other=$!
collect() {
  find /tmp/hist -name '*.history.tsv' -mmin +0.05 -print0 | xargs -0 -r -P 4 xz -T1 -3
  tar cf - -C /tmp hist --exclude='*.tsv' | split -b 15M -d - "$OUT/hist.tar."
}
while kill -0 $one 2>/dev/null || kill -0 $other 2>/dev/null; do
  sleep 1
  if [ $(((SECONDS - began) % 45)) = 44 ]; then collect; fi
done
wait $one $other
sleep 4
collect
echo "done at $((SECONDS - began))"
tail -3 "$OUT/programs.log" "$OUT/diffusion.log"
grep -h "rror" "$OUT/programs.log" "$OUT/diffusion.log" | cut -c1-300 | tail -30
ls -la "$OUT"
