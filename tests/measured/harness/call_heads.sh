#!/bin/bash
# one device call: histories and rows of mT5 and of heads that had none, 8 at a time; workspaces of Whisper's convolutions. Everything under $1
cd "$(dirname "$0")"; export OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1 TORCH_SYMBOLIZE_MODE=dladdr HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
T=$(mktemp -d); mkdir $T/hist $T/conv; S=$SECONDS
timeout 80 python3 history.py history_cases_heads.jsonl $T/hist --jobs 8 --budget 70 > $1/hist.log 2>&1
(cd $T && tar cf - --exclude='*.frames.txt' hist | xz -T8 -6 > $1/hist.tar.xz)
echo "histories done at $((SECONDS-S))"; grep -c "rc 0" $1/hist.log; grep -n "rror\|FAILED\|deadline" $1/hist.log | cut -c1-400 | tail -20
timeout 75 python3 rows.py rows_cases_heads.jsonl $T/rows.jsonl --jobs 8 --budget 65 > $1/rows.log 2>&1; gzip -n9c $T/rows.jsonl > $1/rows.jsonl.gz
echo "rows done at $((SECONDS-S))"; grep -n "rror\|FAILED\|deadline" $1/rows.log | cut -c1-400 | tail -20
timeout 45 python3 vision.py sequences $T/conv --jobs 6 --budget 35 > $1/conv.log 2>&1; cat $T/conv/*.jsonl | gzip -n9c > $1/conv.jsonl.gz
echo "convolutions done at $((SECONDS-S))"; grep -n "rror\|FAILED\|deadline" $1/conv.log | cut -c1-400 | tail; rm -rf $T; ls -la $1
