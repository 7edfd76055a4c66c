"""One model of each family of timm."""

from __future__ import annotations

import functools

from .row import Made, Mode, Place, Row
from .zoo import NotInstalled, entries, kinds, library, mode_of, numbers, steady

MODELS = """
# model                          mode   on GPUs        images x pixels: CPU, GPU
resnet50                         train  float32        1x128    32x224
resnetv2_50                      infer  bfloat16       2x128    32x224
seresnext26d_32x4d               train  auto:bfloat16  2x128    32x224
skresnet18                       infer  float32        2x128    32x224
resnest26d                       train  bfloat16       2x128    32x224
res2net50_26w_4s                 infer  float32        2x128    32x224
ecaresnet26t                     train  float32        2x128    32x224
legacy_seresnet18                infer  float16        2x128    64x224
densenet121                      train  float32        2x128    32x224
dla34                            infer  bfloat16       2x128    32x224
dpn68                            train  auto:bfloat16  2x128    32x224
regnety_016                      infer  float32        2x128    32x224
rexnet_100                       train  bfloat16       2x128    64x224
efficientnet_b0                  infer  float32        2x128    64x224
tf_efficientnetv2_b0             train  float32        2x128    64x224
mixnet_s                         infer  float16        2x128    64x224
mobilenetv2_100                  train  float32        2x128    64x224
mnasnet_100                      infer  bfloat16       2x128    64x224
fbnetc_100                       train  auto:bfloat16  2x128    64x224
mobilenetv3_large_100            infer  float32        2x128    64x224
hardcorenas_a                    train  bfloat16       2x128    64x224
lcnet_100                        infer  float32        2x128    64x224
tinynet_c                        train  float32        2x128    64x224
ghostnetv2_100                   infer  float16        2x128    64x224
repghostnet_100                  train  float32        2x128    64x224
mobileone_s1                     infer  bfloat16       2x128    32x224
repvgg_a0                        train  auto:bfloat16  2x128    64x224
gernet_s                         infer  float32        2x128    64x224
halonet26t                       train  bfloat16       1x256    32x256
lambda_resnet26t                 infer  float32        2x128    32x224
eca_botnext26ts_256              train  float32        1x256    32x256
cspresnet50                      infer  float16        2x128    32x224
cspdarknet53                     train  float32        1x128    32x224
darknet53                        infer  bfloat16       2x128    32x224
selecsls42b                      train  auto:bfloat16  1x128    32x224
hrnet_w18_small                  infer  float32        2x128    32x224
ese_vovnet19b_dw                 train  bfloat16       2x128    64x224
tresnet_m                        infer  float32        2x128    32x224
inception_v3                     train  float32        2x128    32x224
inception_v4                     infer  float16        2x128    16x224
inception_resnet_v2              train  float32        1x128    16x224
inception_next_tiny              infer  bfloat16       2x128    32x224
xception41                       train  auto:bfloat16  1x128    32x224
xception                         infer  float32        2x128    32x224
nf_resnet50                      train  bfloat16       1x128    32x224
nf_regnet_b1                     infer  float32        2x128    64x224
eca_nfnet_l0                     train  float32        1x128    16x224
convnext_tiny                    infer  float16        2x128    32x224
convnextv2_tiny                  train  float32        1x128    32x224
convmixer_1024_20_ks9_p14        infer  bfloat16       2x128    32x224
rdnet_tiny                       train  auto:bfloat16  1x128    32x224
mambaout_femto                   infer  float32        2x128    64x224
poolformer_s12                   train  bfloat16       2x128    32x224
caformer_s18                     infer  float32        2x128    32x224
convformer_s18                   train  float32        1x128    32x224
hgnetv2_b0                       infer  float16        2x128    64x224
fasternet_t0                     train  float32        2x128    64x224
starnet_s1                       infer  bfloat16       2x128    64x224
shvit_s1                         train  auto:bfloat16  2x128    64x224
swiftformer_xs                   infer  float32        2x128    64x224
vit_small_patch16_224            train  bfloat16       1x224    32x224
deit3_small_patch16_224          infer  float32        2x224    32x224
beitv2_base_patch16_224          train  float32        1x224    16x224
eva02_tiny_patch14_224           infer  float16        2x224    64x224
vit_relpos_small_patch16_224     train  float32        1x224    32x224
vit_tiny_r_s16_p8_224            infer  bfloat16       2x224    64x224
samvit_base_patch16_224          train  auto:bfloat16  1x128    16x224
cait_xxs24_224                   infer  float32        2x224    32x224
xcit_tiny_12_p16_224             train  bfloat16       2x128    32x224
convit_tiny                      infer  float32        2x224    64x224
crossvit_tiny_240                train  float32        1x128    32x240
coat_tiny                        infer  float16        1x224    32x224
coat_lite_mini                   train  float32        1x224    32x224
tnt_s_patch16_224                infer  bfloat16       1x224    32x224
pit_ti_224                       train  auto:bfloat16  2x224    64x224
levit_128                        infer  float32        2x224    64x224
visformer_tiny                   train  bfloat16       2x224    64x224
volo_d1_224                      infer  float32        1x224    32x224
vitamin_small_224                train  float32        1x224    32x224
mvitv2_tiny                      infer  float16        2x128    32x224
hiera_tiny_224                   train  float32        1x224    32x224
naflexvit_base_patch16_gap       infer  bfloat16       1x128    16x224
swin_tiny_patch4_window7_224     train  auto:bfloat16  1x224    32x224
swinv2_tiny_window8_256          infer  float32        1x256    32x256
swinv2_cr_tiny_ns_224            train  bfloat16       1x224    32x224
twins_svt_small                  infer  float32        2x128    32x224
twins_pcpvt_small                train  float32        1x128    32x224
nest_tiny                        infer  float16        1x224    32x224
davit_tiny                       train  float32        1x128    32x224
focalnet_tiny_srf                infer  bfloat16       2x128    32x224
gcvit_xxtiny                     train  auto:bfloat16  1x224    32x224
maxvit_tiny_rw_224               infer  float32        1x224    32x224
coatnet_0_rw_224                 train  bfloat16       1x224    32x224
pvt_v2_b0                        infer  float32        2x128    64x224
nextvit_small                    train  float32        1x128    32x224
edgenext_small                   infer  float16        2x128    64x224
mobilevit_s                      train  float32        2x128    32x224
mobilevitv2_100                  infer  bfloat16       2x128    32x224
efficientformer_l1               train  auto:bfloat16  1x224    64x224
efficientformerv2_s0             infer  float32        2x224    64x224
efficientvit_b1                  train  bfloat16       2x128    64x224
efficientvit_m2                  infer  float32        2x128    64x224
fastvit_t8                       train  float32        2x128    32x224
repvit_m1                        infer  float16        2x128    32x224
tiny_vit_5m_224                  train  float32        2x128    32x224
sequencer2d_s                    infer  bfloat16       2x128    16x224
mixer_s32_224                    train  auto:bfloat16  2x224    64x224
gmlp_s16_224                     infer  float32        1x224    32x224
resmlp_12_224                    train  bfloat16       1x224    32x224
sam2_hiera_tiny                  infer  float32        2x128    32x256
iformer_s                        train  float32        2x128    64x224
lowformer_b0                     infer  float16        2x128    64x224
efficientvim_m1                  train  float32        2x128    64x224
"""


def make(name: str, mode: Mode, cpu: str, cuda: str, place: Place) -> Made:
    """The model with random weights, and square images."""
    timm = library("timm")
    if not timm.is_model(name):
        raise NotInstalled(f"timm {timm.__version__} has no {name}")
    batch, pixels = numbers(cuda if place.device == "cuda" else cpu)
    model = steady(timm.create_model(name, pretrained=False), mode).to(place.device)
    return model, (place.randn(batch, 3, pixels, pixels),)


def rows(device: str) -> tuple[Row, ...]:
    """The table's."""
    found = []
    for name, word, dtype, cpu, cuda in entries(MODELS):
        build = functools.partial(make, name, mode_of(word), cpu, cuda)
        found.append(Row(f"timm/{name}", build, mode_of(word), **kinds(dtype, device)))
    return tuple(found)
