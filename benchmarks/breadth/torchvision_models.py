"""Models of torchvision: one or two of each family for classification, segmentation, detection, video and flow."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .row import Made, Mode, Place, Row
from .zoo import entries, kinds, library, mode_of, numbers, steady

MODELS = """
# model                          mode   on GPUs        images, clips: CPU   GPU
alexnet                          train  float32        2x3x128x128          64x3x224x224
convnext_tiny                    infer  bfloat16       1x3x128x128          32x3x224x224
densenet121                      train  auto:bfloat16  2x3x96x96            32x3x224x224
efficientnet_b1                  infer  float16        2x3x128x128          64x3x224x224
efficientnet_v2_s                train  float32        1x3x96x96            32x3x224x224
googlenet                        train  float32        2x3x128x128          64x3x224x224
inception_v3                     infer  auto:float16   1x3x299x299          32x3x299x299
maxvit_t                         infer  float32        1x3x224x224          16x3x224x224
mnasnet1_0                       train  auto:bfloat16  2x3x128x128          64x3x224x224
mobilenet_v2                     infer  float32        2x3x128x128          64x3x224x224
mobilenet_v3_small               train  bfloat16       4x3x128x128          64x3x224x224
regnet_x_400mf                   train  float32        2x3x128x128          64x3x224x224
regnet_y_400mf                   infer  bfloat16       2x3x128x128          64x3x224x224
resnet18                         train  auto:bfloat16  2x3x128x128          64x3x224x224
resnet50                         infer  float32        2x3x128x128          64x3x224x224
resnext50_32x4d                  train  float32        1x3x128x128          32x3x224x224
shufflenet_v2_x1_0               infer  float16        4x3x128x128          64x3x224x224
squeezenet1_1                    train  float32        2x3x128x128          64x3x224x224
swin_t                           train  bfloat16       1x3x128x128          32x3x224x224
swin_v2_t                        infer  float32        1x3x128x128          32x3x224x224
vgg11                            infer  bfloat16       1x3x64x64            32x3x224x224
vgg11_bn                         train  auto:bfloat16  1x3x64x64            32x3x224x224
vit_b_32                         infer  float32        1x3x224x224          64x3x224x224
wide_resnet50_2                  infer  auto:bfloat16  1x3x128x128          32x3x224x224
fcn_resnet50                     train  auto:bfloat16  2x3x48x48            8x3x256x256
deeplabv3_mobilenet_v3_large     train  float32        2x3x96x96            16x3x256x256
deeplabv3_resnet50               infer  auto:bfloat16  1x3x64x64            8x3x256x256
lraspp_mobilenet_v3_large        infer  float32        2x3x160x160          32x3x256x256
fasterrcnn_resnet50_fpn          train  bfloat16       1x3x96x96            8x3x512x512     backbone
fasterrcnn_mobilenet_v3_large_fpn  infer  float32      1x3x160x160          16x3x512x512    backbone
retinanet_resnet50_fpn           infer  float16        1x3x64x64            8x3x512x512     head
fcos_resnet50_fpn                train  float32        1x3x64x64            8x3x512x512     head
ssd300_vgg16                     infer  bfloat16       1x3x300x300          16x3x300x300    backbone
ssdlite320_mobilenet_v3_large    train  float32        2x3x160x160          32x3x320x320    head
r3d_18                           infer  auto:bfloat16  1x3x4x48x48          8x3x16x112x112
mc3_18                           train  float32        1x3x4x40x40          8x3x16x112x112
r2plus1d_18                      train  auto:bfloat16  1x3x4x40x40          8x3x16x112x112
swin3d_t                         infer  bfloat16       1x3x4x64x64          8x3x8x224x224
raft_small                       infer  float32        1x3x128x128          4x3x256x256     pair
"""


class Head(nn.Module):
    """A detector's tensors: backbone and head, without the boxes that are made of them image by image."""

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.backbone, self.head = detector.backbone, detector.head

    def forward(self, images: Tensor) -> Any:
        return self.head(list(self.backbone(images).values()))


class Pair(nn.Module):
    """Optical flow between the images and others."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, others: Tensor) -> Any:
        return self.model(images, others, num_flow_updates=3)


PARTS: dict[str, Callable[[Any], nn.Module]] = {
    "backbone": lambda detector: detector.backbone,
    "head": Head,
    "pair": Pair,
}


def make(name: str, mode: Mode, part: str, cpu: str, cuda: str, place: Place) -> Made:
    """The model with random weights, and images."""
    models = library("torchvision.models")
    options: dict[str, Any] = {"weights": None}
    for folder in ("segmentation", "detection"):
        if hasattr(getattr(models, folder), name):
            options["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    model = models.get_model(name, **options)
    model = steady(PARTS[part](model) if part else model, mode).to(place.device)
    shape = numbers(cuda if place.device == "cuda" else cpu)
    return model, tuple(place.randn(*shape) for _ in range(2 if part == "pair" else 1))


def rows(device: str) -> tuple[Row, ...]:
    """The table's."""
    found = []
    for name, word, dtype, cpu, cuda, *part in entries(MODELS):
        mode = mode_of(word)
        build = functools.partial(make, name, mode, part[0] if part else "", cpu, cuda)
        found.append(Row(f"torchvision/{name}", build, mode, **kinds(dtype, device)))
    return tuple(found)
