#!/usr/bin/env bash
# Runs op_profiler on a GPU host without network, from the root of its source tree.
# usage: bash PACKED/run.sh STAGE ...        stages: smoke tests bench relax tune streams counters sample
#   OUT       folder for the results (default gpu-out): table.txt, logs.tar.gz, gpu.db (gpu.db.gz where it is large)
#   BUDGET    seconds for all stages together (default 530); a step that is running then is interrupted, which keeps
#             what it has measured, and the others are not started
#   GPU_STEPS regular expression: run only the steps whose names match
#   TRIALS    of tune, for each operator (default 64); TUNED: its models (default resnet-18 bert mobilenet)
#   PLANS     options of streams: --models ... --streams ...
#   ONLY      regular expression: cases of bench ("bert 1 float16"); the figures of the others stay as they are
#   JOBS      models of bench that are built at once (default three quarters of the cores; more disturb what is measured,
#             and 1 is best for models that wait for launches)
# What a step measures goes into one dataset; PACKED/gpu.db, where there is one, is that of an earlier run to go on from.
set -uo pipefail
packed=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$PWD
if [ $# -eq 0 ] || [ ! -f "$root/python/op_profiler/targets/cuda/tvm_build.py" ]; then
  sed -n '2,13p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
out=${OUT:-$root/gpu-out}
budget=${BUDGET:-530}
only=${GPU_STEPS:-.}
cache=$HOME/.cache/op_profiler-gpu
work=$cache/work
results=$work/logs
schedules=$work/logs/schedules
db=$work/gpu.db
mkdir -p "$out" "$results" "$schedules"
# shellcheck disable=SC1091
. "$packed/unpack.sh" "$cache" || { echo "run.sh: $packed cannot be unpacked into $cache" >&2; exit 1; }
export PYTHONPATH="$root/python${PYTHONPATH:+:$PYTHONPATH}"
export OP_PROFILER_CACHE="$work/cache" OP_PROFILER_PATIENCE_SECONDS=${OP_PROFILER_PATIENCE_SECONDS:-5}
if [ ! -e "$db" ] && [ -f "$packed/gpu.db" ]; then
  cp "$packed/gpu.db" "$db"
fi
# The benchmarks ask git which commit they measure; a copied tree has no history, and commit.txt may tell instead.
if [ -f "$packed/commit.txt" ] || ! git -C "$root" describe --always >/dev/null 2>&1; then
  printf '#!/bin/sh\n[ "$1" != describe ] || echo "%s"\n' "$(cat "$packed/commit.txt" 2>/dev/null)" > "$cache/bin/git"
  chmod +x "$cache/bin/git"
fi
collector=collector/op_performance_collector.py
rows=()

keep() { # what there is so far goes to $out after every step, in case this is killed
  printf '%s\n' "${rows[@]}" > "$out/table.txt"
  tar -C "$work" -czf "$out/.logs" logs && mv "$out/.logs" "$out/logs.tar.gz"
  [ ! -e "$db" ] || python3 - "$db" "$out" <<'PY'
import gzip
import pathlib
import sqlite3
import sys

source, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
copy, packed = folder / "gpu.db", folder / "gpu.db.gz"
copy.unlink(missing_ok=True)
packed.unlink(missing_ok=True)
found, made = sqlite3.connect(source), sqlite3.connect(copy)
found.backup(made)
made.execute("VACUUM")
made.close()
if copy.stat().st_size > 15 << 20:
    packed.write_bytes(gzip.compress(copy.read_bytes()))
    copy.unlink()
PY
}

step() { # NAME SECONDS COMMAND...: at most so many seconds; the log under the name; its end on the screen
  local name=$1 limit=$2 code left begun
  shift 2
  [[ $name =~ $only ]] || return 0
  left=$((budget - SECONDS))
  if ((left < 20)); then
    rows+=("$(printf '%-26s %5s %6s' "$name" - "no time")")
    return 0
  fi
  begun=$SECONDS
  printf '\n== %s\n' "$name"
  timeout --signal=INT --kill-after=10 "$((limit < left ? limit : left))" "$@" >"$results/$name.log" 2>&1 </dev/null
  code=$?
  tail -n "${LINES_SHOWN:-8}" "$results/$name.log" | cut -c1-300
  rows+=("$(printf '%-26s %5d %4d s' "$name" "$code" "$((SECONDS - begun))")")
  keep
}

collection() { # NAME SECONDS ARGUMENTS...: one run of the collector for cuda, with a summary beside its log
  local name=$1 limit=$2
  shift 2
  LINES_SHOWN=4 step "$name" "$limit" python3 "$collector" "$@" --target cuda --db "sqlite:///$db" \
    --summary-json "$results/$name.json"
}

# shellcheck disable=SC2016  # expanded by the shell that runs it
host='nvidia-smi; nvidia-smi -q -d CLOCK,POWER,MEMORY | head -60; nvcc --version; cc --version; lscpu; free -g
  uname -a; ldconfig -p | grep -E "libcuda\.|libnvrtc|libtinfo|libnvidia-ml"; command -v python3 git nvcc ncu xz
  python3 -V; env | grep -E "^(PATH|LD_LIBRARY_PATH|CUDA|PYTHON)"; python3 -m pip list 2>/dev/null
  echo; nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm --format=csv,noheader
  nvcc --version | tail -2'

smoke() {
  local pytest=(python3 -m pytest -o addopts= --import-mode=importlib -p no:cacheprovider -p no:xdist -v --tb=short)
  step host 60 bash -c "$host"
  step devices 60 op-profiler devices --local
  LINES_SHOWN=20 step numbers 150 "${pytest[@]}" tests/gpu/test_numbers.py
  LINES_SHOWN=20 step mlp 120 python3 "$collector" --modelname mlp --target cuda --db "sqlite:///$db" \
    --summary-json "$results/mlp.json"
}

tests() {
  local pytest=(python3 -m pytest -o addopts= --strict-markers --import-mode=importlib -p no:cacheprovider -m gpu
    -v -rfEs --tb=short --durations=0)
  local several=(-p no:xdist)
  python3 -c 'import xdist' 2>/dev/null && several=(-n 4)
  # Times are asserted in the first; what the others assert holds beside each other too.
  LINES_SHOWN=25 step tests-device 300 "${pytest[@]}" -p no:xdist tests/gpu/test_device.py
  LINES_SHOWN=25 step tests-others 450 "${pytest[@]}" "${several[@]}" tests/gpu --ignore=tests/gpu/test_device.py
}

relax() { # today's TVM: smallest first
  local model
  for model in mlp resnet-18 mobilenet; do
    collection "relax-$model" 200 --compiler relax --modelsource local --modelname "$model"
  done
}

tune() { # trials are kept, so a second call on the same machine goes on; nothing else may use the GPU meanwhile
  LINES_SHOWN=14 step tune 520 python3 benchmarks/gpu_tuning.py --trials "${TRIALS:-64}" --db "$db" \
    --schedules "$schedules" --keep "$results/tuning" --models ${TUNED:-resnet-18 bert mobilenet}
}

bench() { # models are built side by side, and measured in turn
  local jobs=${JOBS:-$(($(nproc) * 3 / 4))}
  LINES_SHOWN=12 step bench 530 python3 benchmarks/gpu.py --db "$db" --jobs $((jobs > 0 ? jobs : 1)) --only "${ONLY:-}"
  cp benchmarks/results/gpu.json "$results/" 2>/dev/null
}

streams() {
  LINES_SHOWN=12 step streams 520 python3 benchmarks/gpu_streams.py --keep "$results/streams" \
    ${PLANS:-}
  LINES_SHOWN=14 step llvm-cuda 240 op-profiler corun resnet-18 mobilenet --target llvm,cuda --policy nash \
    --json "$results/corun-llvm-cuda.json"
}

counters() {
  LINES_SHOWN=12 step counters 200 python3 benchmarks/gpu_counters.py --db "$db"
}

sample() { # the builds of several seeds at once; the GPU is taken in turn. What a shell starts behind it ignores SIGINT.
  # shellcheck disable=SC2016  # expanded by the shell that runs it
  step sample 520 bash -c 'trap "kill -TERM \$(jobs -p) 2>/dev/null; wait" INT TERM
  for seed in $(seq 0 7); do
    op-profiler sample --target cuda --seed "$seed" --count 200 --rounds 9 --schedules none --quiet --db "sqlite:///$0" &
  done; wait' "$db"
}

for stage in "$@"; do
  case $stage in
    smoke | tests | bench | relax | tune | streams | counters | sample) "$stage" ;;
    *) rows+=("$(printf '%-26s %5d %6s' "$stage" 2 "unknown")") ;;
  esac
done
keep
printf '\n== what the summaries say\n'
python3 - "$results" <<'PY'
import json
import pathlib
import sys

for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
    found = json.loads(path.read_text())
    for entry in found if isinstance(found, list) else [found]:
        if "sequential_us" in entry:
            names = "policy sequential_us plan_us speedup outputs_equal largest_difference".split()
        elif "whole_model_us" in entry:
            names = "model batch_size whole_model_us sum_of_operators_us ratio failed settled energy_mj error".split()
        else:
            continue
        values = (entry.get(name) for name in names)
        print(f"{path.stem}:", ", ".join(f"{n} {v:.4g}" if isinstance(v, float) else f"{n} {v}" for n, v in
                                         zip(names, values)))
PY
printf '\n%-26s %5s %6s\n' step code time
printf '%s\n' "${rows[@]}"
