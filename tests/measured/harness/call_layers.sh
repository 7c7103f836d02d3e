#!/bin/bash
# one device call: histories of the models of layers, then the workspaces of small networks' convolutions; everything under $OUT
cd "$(dirname "$0")"; export OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1 TORCH_SYMBOLIZE_MODE=dladdr HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
T=/tmp/mc; rm -rf $T; mkdir -p $T/hist $T/conv
python3 layers.py mlp | tail -1
python3 history.py history_cases_layers.jsonl $T/hist --jobs 7 --budget 120 > $OUT/hist.log 2>&1
(cd $T && tar cf - --exclude='*.frames.txt' hist | xz -T8 -6 > $OUT/hist.tar.xz)
grep -c "rc 0" $OUT/hist.log; grep -n "rror\|FAILED\|deadline" $OUT/hist.log | cut -c1-600
(cd ../../.. && python3 tests/measured/harness/vision.py small $T/conv --jobs 10 --budget ${1:-150}) > $OUT/conv.log 2>&1
cat $T/conv/*.jsonl | gzip -9 > $OUT/small.jsonl.gz; tail -3 $OUT/conv.log; zcat $OUT/small.jsonl.gz | wc -l
