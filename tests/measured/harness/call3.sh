#!/bin/bash
# one device call: histories of the cases file $1 ($3 jobs), then rows of the cases file $2; everything under $OUT
cd "$(dirname "$0")"; export SITE="$(pwd)/../../../.site" OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1 TORCH_SYMBOLIZE_MODE=dladdr HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false TORCHINDUCTOR_COMPILE_THREADS=1
T=/tmp/mc; rm -rf $T; mkdir -p $T/hist; S=$SECONDS
python3 history.py $1 $T/hist --jobs ${3:-7} --budget 400 > $OUT/hist.log 2>&1 & P2=$!
for i in $(seq 1 28); do
  sleep 15
  [ $((i % 4)) = 0 ] && (cd $T && tar cf - --exclude='*.frames.txt' hist | xz -T4 -2 > $OUT/.h.xz && mv $OUT/.h.xz $OUT/hist.tar.xz)
  kill -0 $P2 2>/dev/null || break
done
wait $P2
(cd $T && tar cf - --exclude='*.frames.txt' hist | xz -T8 -6 > $OUT/.h.xz && mv $OUT/.h.xz $OUT/hist.tar.xz)
echo "histories done at $((SECONDS-S))"; grep -c "rc 0" $OUT/hist.log; grep -n "rror\|FAILED\|deadline" $OUT/hist.log | cut -c1-400 | tail -20
python3 rows.py $2 $OUT/rows.jsonl --budget $((560-SECONDS+S)) 2>&1 | tee $OUT/rows.log
ls -la $OUT
