#!/usr/bin/env bash
# Measures what a predictor of one machine is learned from: about 20,000 distinct operators, in the order in which they
# tell most. It takes days of a quiet machine, and goes on where it was interrupted: what the dataset holds is not
# measured again. One dataset may hold several machines; their times are never mixed.
#
#     collector/sampling_plan.sh --db sqlite:///results/op_profiler.db [--threads 1,2] [--cluster local:2] [--quiet] [--dry-run]
#
# Run it on other days with REPEAT=1 and another --db: the first 500 operators are measured anew, and how far the days
# differ is the floor that the machine sets.
#
# float16 and int8 are measured as sampled operators, and in whole networks at the end.
set -euo pipefail
collect() { echo "op-profiler collect $*" >&2; op-profiler collect "$@" || [ $? -eq 1 ]; }
sample() { echo "op-profiler sample $*" >&2; op-profiler sample "$@" || [ $? -eq 1 ]; }  # 1: some failed, and are recorded

if [ -n "${REPEAT:-}" ]; then
  sample --count 500 --seed 31 --rounds 15 "$@"
  exit
fi

# Everything, in the proportions in which it matters to networks; the first 500 are those that REPEAT measures again.
sample --count 500 --seed 31 --rounds 15 "$@"
sample --count 6000 --seed 32 --rounds 15 "$@"

# What predictors were farthest off on: transposed convolutions, rows that no tile divides, products, repacking.
sample --kinds transformer --count 700 --seed 47 --rounds 15 "$@"
sample --kinds gates,lrn,conv2d_grouped --count 400 --seed 48 --rounds 15 "$@"
sample --kinds activation,conv2d_wide_groups --count 600 --seed 49 --rounds 15 "$@"
sample --kinds conv2d_transpose --count 800 --seed 33 --rounds 15 "$@"
sample --kinds dense --count 1500 --seed 34 --rounds 15 "$@"
sample --kinds batch_matmul --count 1200 --seed 35 --rounds 15 "$@"
sample --kinds transpose,concatenate --count 600 --seed 36 --rounds 15 "$@"
sample --kinds softmax,layer_norm,mean,pool2d --count 900 --seed 37 --rounds 15 "$@"

sample --kinds conv1d --count 300 --seed 50 --rounds 15 "$@"

# Operators that stand alone in odd graphs: functions, resizes, look-ups, large windows, few outputs or channels.
sample --kinds functions --count 900 --seed 51 --rounds 9 "$@"
sample --kinds resize --count 300 --seed 52 --rounds 9 "$@"
sample --kinds gather --count 300 --seed 53 --rounds 9 "$@"
sample --kinds large_windows --count 300 --seed 54 --rounds 9 "$@"
sample --kinds long_conv1d --count 200 --seed 55 --rounds 9 "$@"
sample --kinds few_outputs --count 300 --seed 56 --rounds 9 "$@"
sample --kinds few_channels --count 300 --seed 57 --rounds 9 "$@"

# What the usual kinds do not hold: other layouts, windows with gaps, video, attention, one new token, float16, int8.
sample --kinds all --count 6000 --seed 42 --rounds 15 "$@"
sample --kinds int8 --count 500 --seed 43 --rounds 15 "$@"
sample --kinds float16 --count 400 --seed 44 --rounds 15 "$@"

# Weights that stay in the cache, as those of recurrent cells do.
sample --cached --count 800 --seed 46 --rounds 15 "$@"

# Operators of networks at other sizes. What is held out with a family leaves out what was sampled from it.
sample --models transformers:mobilebert,transformers:albert,transformers:roberta --sequence-lengths 1,16,33,64,128,197,384 \
  --rounds 15 "$@"
sample --models local:mobilenet_v3_large,local:efficientnet_b0,local:mnasnet0_5,local:regnet_y_400mf,local:convnext_tiny \
  --resolutions 160,192,224,256 --rounds 15 "$@"
sample --models local:vgg11,local:wide_resnet50_2,local:densenet121,local:vit_l_16 --rounds 15 "$@"

# The rest where the predictor is least sure.
sample --adaptive --count 5000 --seed 38 --rounds 15 "$@"

# Other precisions, in networks.
for model in resnet-18 mobilenet mobilenet_v2 squeezenet_v1.1 googlenet shufflenet_v2_x1_0; do
  collect --modelname "$model" --precision float16,int8 --schedules none "$@"
done
for model in bert electra; do
  collect --modelsource transformers --modelname "$model" --precision float16,int8 --schedules none "$@"
done
