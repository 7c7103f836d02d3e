#!/bin/bash
# one device call (the second): operator requests and histories side by side, then validation rows; everything under $OUT
cd "$(dirname "$0")"; export OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1 TORCH_SYMBOLIZE_MODE=dladdr HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
T=/tmp/mc; mkdir -p $T/ops $T/hist; S=$SECONDS
python3 op_requests.py $T/ops --only extra --jobs 1 --budget 330 > $OUT/ops.log 2>&1 & P1=$!
python3 history.py history_cases2.jsonl $T/hist --jobs 3 --budget 320 > $OUT/hist.log 2>&1 & P2=$!
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do
  sleep 30
  (cd $T/ops && cat *.jsonl 2>/dev/null | gzip -6 > $OUT/.ops.gz && mv $OUT/.ops.gz $OUT/ops.jsonl.gz); (cd $T && tar czf $OUT/.h.gz hist && mv $OUT/.h.gz $OUT/hist.tar.gz)
  kill -0 $P1 2>/dev/null || kill -0 $P2 2>/dev/null || break
done
wait $P1 $P2
(cd $T/ops && cat *.jsonl | gzip -9 > $OUT/ops.jsonl.gz); (cd $T && tar czf $OUT/hist.tar.gz hist)
echo "stage 1 done at $((SECONDS-S))"; tail -5 $OUT/ops.log $OUT/hist.log
python3 rows.py rows_cases2.jsonl $OUT/rows.jsonl --budget $((550-SECONDS+S)) 2>&1 | tee $OUT/rows.log
ls -la $OUT
