#!/usr/bin/env bash
# Measures drawn networks (collector/drawn_networks), each in a file of its own: those of development and calibration
# seeds from FIRST to END, without END. A network is expected to take 30 s of a quiet machine. The plan goes on where it was
# interrupted: what a file holds is not measured again.
#
#     collector/drawn_plan.sh FOLDER FIRST END [--threads 1,2] [--quiet] [--dry-run]
#
# With KINDS=test it measures test seeds, for `benchmarks/held_out_models.py --final`. Networks that fail are listed at
# the end; the others go on.
[ $# -ge 3 ] || { sed -n '2,9p' "$0" >&2; exit 2; }
here=$(dirname "$(realpath "$0")")
source "$here/collect_each.sh"
folder=$1 first=$2 end=$3
shift 3
options=("$@")
mkdir -p "$folder"
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}
names=$(python -m drawn_networks "$first" "$end" --kinds ${KINDS:-development calibration})
collect file $names
report
