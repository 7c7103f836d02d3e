#!/bin/bash
# one device call: histories of the families without one, then rows at full size, 8 at a time; everything under $1
cd "$(dirname "$0")"; export OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1 TORCH_SYMBOLIZE_MODE=dladdr HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
T=$(mktemp -d); mkdir $T/hist; S=$SECONDS
timeout ${2:-110} python3 history.py history_cases_families.jsonl $T/hist --jobs 8 --budget ${3:-90} > $1/hist.log 2>&1
(cd $T && tar cf - --exclude='*.frames.txt' hist | xz -T8 -6 > $1/hist.tar.xz)
echo "histories done at $((SECONDS-S))"; grep -c "rc 0" $1/hist.log; grep -n "rror\|FAILED\|deadline" $1/hist.log | cut -c1-400 | tail -20
timeout ${4:-100} python3 rows.py rows_cases_families.jsonl $T/rows.jsonl --jobs 8 --budget ${5:-80} > $1/rows.log 2>&1; gzip -n9c $T/rows.jsonl > $1/rows.jsonl.gz
echo "rows done at $((SECONDS-S))"; grep -n "rror\|FAILED\|deadline" $1/rows.log | cut -c1-400 | tail -20; rm -rf $T; ls -la $1
