#!/usr/bin/env bash
# Measures the networks that a predictor of one machine is learned from, each in a file of its own. It takes one to two
# hours of a quiet machine, and goes on where it was interrupted: what a file holds is not measured again.
#
#     collector/networks_plan.sh FOLDER [--threads 1,2] [--quiet] [--dry-run]
#
# Quick ones first. Beside other work on the machine, times are marked and teach nothing. What fails is told at the end;
# the others go on. yolov3-tiny needs source ./env_var.sh yolo.
[ $# -ge 1 ] || { sed -n '2,8p' "$0" >&2; exit 2; }
source "$(dirname "$(realpath "$0")")/collect_each.sh"
folder=$1
shift
options=("$@")
mkdir -p "$folder"
collect local mlp rnn gru lstm shufflenet_v2_x0_5 mnasnet0_5 mobilenet_v3_small shufflenet_v2_x1_0 squeezenet_v1.1 \
  mnasnet1_0 mobilenet_v2 mobilenet regnet_y_400mf regnet_x_800mf squeezenet1_0 alexnet nasnetamobile googlenet \
  resnet-18 densenet-121 bninception efficientnet_b0 yolov3-tiny dpn68 resnet-50 dcgan randwire-0 \
  resnext50_32x4d inception_v3 vgg-11 convnext_tiny swin_v2_t xception inceptionresnetv2 swin_t \
  efficientnet_v2_s inceptionv4 maxvit_t senet154
collect transformers glpn segformer levit pvt_v2 hgnet_v2 swiftformer poolformer electra t5-encoder mobilebert clip_vision_model \
  convnextv2 donut-swin distilbert dinov3_convnext focalnet gpt_bigcode squeezebert ibert roformer luke imagegpt \
  openai-gpt nomic_bert opt bert bloom mpnet deberta textnet gpt2
collect remoteonnx light_shufflenet light_inception_v1 light_inception_v2 light_zfnet512

# Half a second and more a run.
collect local pnasnet5large polynet resnet3d-18 vit_b_16
collect transformers hiera lilt nystromformer cvt deit biogpt beit data2vec-vision mobilevit mgp-str convbert \
  mobilevitv2 wav2vec2 hubert

report
