#!/bin/bash
# On a card: programs that memcalc does not bring along and LoRA runs (programs.py, with steps each alone on the machine), single
# operators' requests (operator_streams.py) and cuDNN's plans (convolution_plans.cc of convolution_shapes.py's) beside their first part.
# usage: OUT=DIR STAGED=DIR call4.sh CASES SEED SECONDS_OF_PLANS SECONDS
cd "$(dirname "$0")" || exit 1
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=2 PYTHONPATH=/tmp/site PROGRAMS_GATE=/tmp/gate
mkdir -p /tmp/site /tmp/hist /tmp/plans /tmp/turns
began=$SECONDS
for each in "$STAGED"/*.whl; do python3 -m zipfile -e "$each" /tmp/site || exit 3; done
packages=$(python3 -c "import os, nvidia; print(list(nvidia.__path__)[0])")
cuda=$(dirname "$(find "$packages" /usr/local -name cuda_runtime_api.h 2> /dev/null | head -1)")
(g++ -O2 -std=c++17 convolution_plans.cc -o /tmp/plans/plans -I"$packages/cudnn/include" -I"$cuda" -L"$packages/cudnn/lib" -l:libcudnn.so.9 || cp "$STAGED/plans" /tmp/plans/plans) 2>&1 | head -5
export LD_LIBRARY_PATH="$packages/cudnn/lib:$packages/cu13/lib:$LD_LIBRARY_PATH" PLANS_ALONE=1
for ((i = 0; i < 13; ++i)); do
  (python3 convolution_shapes.py "$2$i" 60000 | nice -n 5 /tmp/plans/plans 1 "/tmp/plans/out$i" "$3" 2>> /tmp/plans/log; nice xz -3 "/tmp/plans/out$i".*) &
  last[i]=$!
done
(timeout $(($3 + 25)) python3 operator_streams.py measure "$OUT/operators.jsonl.gz" --seed "$2" --seconds $(($3 + 8)) > /tmp/operators.log 2>&1) &
last[13]=$!
(timeout $(($4 - (SECONDS - began))) python3 programs.py measure "$1" "$OUT/programs.jsonl" /tmp/hist --keep all --budget $(($4 - 6 - (SECONDS - began))) --jobs 44 --memory 126 --turns /tmp/turns > /tmp/programs.log 2>&1) &
programs=$!
wait "${last[@]}"
touch /tmp/gate
echo "gate at $((SECONDS - began))"; cat /tmp/plans/log | tail -3; tail -3 /tmp/operators.log
tar cf "$OUT/plans.tar" -C /tmp/plans --exclude=plans --exclude='*.cc' .
wait $programs
find /tmp/hist -name '*.history.tsv' -print0 | xargs -0 -r -P 14 -n 1 xz -T1 -3
tar cf - -C /tmp hist | split -b 15M -d - "$OUT/hist.tar."
echo "done at $((SECONDS - began))"
cat /tmp/programs.log > "$OUT/programs.log"; tail -5 /tmp/programs.log
grep -h "rror" /tmp/programs.log | cut -c1-220 | tail -15
cat /proc/cpuinfo | grep 'model name' | head -1
ls -la "$OUT"
