"""Architectures of transformers, small, from configurations: nothing is downloaded."""

from __future__ import annotations

import functools
import os
from typing import Any

from torch import nn

from .row import Made, Place, Row
from .zoo import NotInstalled, entries, kinds, library, mode_of, numbers, steady

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Sizes are layers x width x heads, and batch x tokens.
TEXT = """
# class                           style   mode   on GPUs        on the CPU      on a GPU
BertForMaskedLM                   bert    train  auto:bfloat16  2x256x4  2x96   4x768x12   32x512
RobertaForSequenceClassification  bert    train  float32        2x256x4  2x128  4x768x12   16x512
CamembertForTokenClassification   bert    infer  bfloat16       2x256x4  4x128  4x768x12   32x512
DebertaV2ForMaskedLM              bert    infer  float32        2x256x4  2x96   4x768x12   16x512
DebertaForSequenceClassification  bert    train  auto:bfloat16  2x256x4  2x96   4x768x12   16x512
ElectraForPreTraining             bert    train  bfloat16       2x256x4  2x128  4x768x12   32x512
AlbertForMaskedLM                 bert    infer  bfloat16       2x256x4  2x128  4x768x12   32x512
DistilBertForMaskedLM             distil  train  float32        2x256x4  2x96   4x768x12   32x512
MobileBertForMaskedLM             bert    train  float32        2x128x4  2x96   4x512x4    32x512
XLNetLMHeadModel                  xlnet   infer  float32        2x256x4  2x96   4x768x12   16x512
FunnelForMaskedLM                 funnel  infer  bfloat16       2x256x4  2x128  4x768x12   32x512
LongformerForMaskedLM             bert    train  float32        2x256x4  1x256  4x768x12   8x2048
BigBirdForMaskedLM                bert    infer  bfloat16       2x256x4  1x192  4x768x12   8x2048
MPNetForMaskedLM                  bert    infer  float16        2x256x4  2x96   4x768x12   32x512
ConvBertForMaskedLM               bert    train  float32        2x256x4  2x96   4x768x12   16x512
SqueezeBertForMaskedLM            bert    infer  float32        2x256x4  2x96   4x768x12   16x512
FNetForMaskedLM                   bert    train  float32        2x256x4  2x96   4x768x12   16x512
RoFormerForMaskedLM               bert    train  auto:float16   2x256x4  2x96   4x768x12   32x512
ModernBertForMaskedLM             bert    infer  bfloat16       3x256x4  2x96   6x768x12   32x512
YosoForMaskedLM                   bert    infer  float32        2x256x4  2x64   4x768x12   8x512
GPT2LMHeadModel                   gpt2    train  auto:bfloat16  2x256x4  2x96   4x768x12   16x512
GPTJForCausalLM                   gpt2    infer  float16        2x256x4  2x96   2x2048x16  16x512
GPTNeoXForCausalLM                bert    train  bfloat16       2x256x4  2x96   4x1024x16  16x512
GPTNeoForCausalLM                 gptneo  infer  float32        2x256x4  2x96   4x768x12   16x512
LlamaForCausalLM                  llama   train  bfloat16       2x256x4  2x96   2x2048x16  8x512
MistralForCausalLM                llama   infer  bfloat16       2x256x4  2x96   2x2048x16  16x512
Qwen2ForCausalLM                  llama   train  float32        2x256x4  2x96   2x1024x16  8x512
Qwen3ForCausalLM                  llama   infer  float16        2x256x4  2x96   2x2048x16  16x512
GemmaForCausalLM                  llama   train  bfloat16       2x256x4  2x96   2x2048x8   8x512
Gemma2ForCausalLM                 llama   infer  float32        2x256x4  2x96   2x1024x8   8x512
PhiForCausalLM                    bert    infer  bfloat16       2x256x4  2x96   2x2048x32  16x512
Phi3ForCausalLM                   llama   train  auto:bfloat16  2x256x4  2x96   2x2048x16  8x512
OPTForCausalLM                    opt     train  float32        2x256x4  2x96   4x768x12   16x512
BloomForCausalLM                  bloom   infer  float32        2x256x4  2x96   4x1024x16  16x512
MptForCausalLM                    mpt     train  bfloat16       2x256x4  2x96   4x1024x16  16x512
FalconForCausalLM                 bert    infer  bfloat16       2x256x4  2x96   2x2048x32  16x512
StableLmForCausalLM               llama   train  float32        2x256x4  2x96   2x1024x16  16x512
Olmo2ForCausalLM                  llama   infer  float32        2x256x4  2x96   2x1024x16  16x512
CohereForCausalLM                 llama   infer  float16        2x256x4  2x96   2x2048x16  16x512
CodeGenForCausalLM                gpt2    infer  float32        2x256x4  2x96   2x1024x16  16x512
BioGptForCausalLM                 bert    train  float32        2x256x4  2x96   4x768x12   16x512
CTRLLMHeadModel                   ctrl    infer  float32        2x256x4  2x96   4x768x12   16x512
MixtralForCausalLM                llama   infer  bfloat16       2x128x4  2x64   2x1024x16  8x512
Qwen2MoeForCausalLM               llama   train  bfloat16       2x128x4  2x64   2x512x8    8x512
MambaForCausalLM                  bert    infer  float32        2x128x4  1x48   2x768x12   8x128
Mamba2ForCausalLM                 bert    train  float32        2x128x8  1x64   2x512x32   4x512
RwkvForCausalLM                   bert    infer  float32        2x128x4  1x48   2x768x12   8x128
"""

PAIRS = """
# class                             style    mode   on GPUs        on the CPU      on a GPU
T5ForConditionalGeneration          t5       train  float32        2x192x4  2x64   4x512x8   16x512
MT5ForConditionalGeneration         t5       infer  bfloat16       2x192x4  2x96   4x512x8   32x512
BartForConditionalGeneration        bart     train  auto:bfloat16  2x192x4  2x64   4x768x12  16x512
MBartForConditionalGeneration       bart     infer  bfloat16       2x192x4  2x96   4x768x12  16x512
PegasusForConditionalGeneration     bart     infer  float32        2x192x4  2x96   4x768x12  16x512
M2M100ForConditionalGeneration      bart     train  float32        2x192x4  2x64   4x768x12  16x512
MarianMTModel                       bart     infer  float16        2x192x4  2x96   4x512x8   32x512
BlenderbotForConditionalGeneration  bart     train  bfloat16       2x192x4  2x64   4x768x12  16x512
LEDForConditionalGeneration         bart     infer  float32        2x192x4  1x128  4x768x12  8x1024
ProphetNetForConditionalGeneration  prophet  infer  float32        2x192x4  2x48   4x512x8   8x256
"""

# Sizes are layers x width x heads, and batch x channels x pixels.
IMAGES = """
# class                                    style  mode   on GPUs        on the CPU            on a GPU
ViTForImageClassification                  vit   train  bfloat16       2x192x4  2x3x128x128  4x768x12  64x3x224x224
DeiTForImageClassification                 vit   infer  float32        2x192x4  2x3x128x128  4x768x12  64x3x224x224
BeitForImageClassification                 vit   train  float32        2x192x4  2x3x128x128  4x768x12  32x3x224x224
Dinov2ForImageClassification               vit   infer  auto:bfloat16  2x192x4  2x3x112x112  4x768x12  64x3x224x224
Dinov2WithRegistersForImageClassification  vit   train  float32        2x192x4  2x3x112x112  4x768x12  32x3x224x224
SwinForImageClassification                 none  infer  bfloat16       1x1x1    1x3x224x224  1x1x1     32x3x224x224
Swinv2ForImageClassification               none  train  float32        1x1x1    1x3x128x128  1x1x1     16x3x256x256
ConvNextForImageClassification             none  train  auto:bfloat16  1x1x1    1x3x96x96    1x1x1     64x3x224x224
ResNetForImageClassification               none  infer  float32        1x1x1    2x3x128x128  1x1x1     64x3x224x224
RegNetForImageClassification               none  train  float32        1x1x1    2x3x96x96    1x1x1     64x3x224x224
SegformerForSemanticSegmentation           none  train  bfloat16       1x1x1    1x3x128x128  1x1x1     16x3x256x256
PoolFormerForImageClassification           none  infer  float32        1x1x1    1x3x128x128  1x1x1     32x3x224x224
MobileViTForImageClassification            none  train  float32        1x1x1    1x3x128x128  1x1x1     32x3x256x256
MobileNetV2ForImageClassification          none  infer  bfloat16       1x1x1    2x3x128x128  1x1x1     64x3x224x224
LevitForImageClassification                none  infer  float32        1x1x1    2x3x224x224  1x1x1     64x3x224x224
CvtForImageClassification                  none  infer  float32        1x1x1    1x3x96x96    1x1x1     32x3x224x224
PvtForImageClassification                  none  train  float32        1x1x1    1x3x128x128  1x1x1     32x3x224x224
FocalNetForImageClassification             none  infer  float16        1x1x1    1x3x128x128  1x1x1     32x3x224x224
DPTForDepthEstimation                      vit   infer  float32        4x192x4  1x3x64x64    4x768x12  16x3x224x224
DetrForObjectDetection                     detr  infer  float32        1x128x4  1x3x96x96    3x256x8   8x3x512x512
CLIPVisionModelWithProjection              vit   train  bfloat16       2x192x4  2x3x128x128  4x768x12  64x3x224x224
SiglipVisionModel                          vit   infer  bfloat16       2x192x4  2x3x128x128  4x768x12  64x3x224x224
SamVisionModel                             vit   infer  float32        2x192x4  1x3x128x128  4x768x12  4x3x512x512
"""

SOUND = """
# class                          style    mode   on GPUs   on the CPU       on a GPU
WhisperForConditionalGeneration  whisper  infer  float16   2x128x4  1x200   4x512x8   8x1500
Wav2Vec2ForCTC                   bert     infer  float32   2x128x4  1x8000  4x768x12  8x80000
HubertForSequenceClassification  bert     train  float32   2x128x4  1x4000  4x768x12  4x80000
ASTForAudioClassification        bert     train  bfloat16  2x128x4  2x200   4x768x12  16x1024
"""
# Settings beyond the size: a number, a word, a list as 1|2, or what `setting` derives from the size.
MORE = """
DebertaV2ForMaskedLM                       relative_attention=True pos_att_type=p2c|c2p
DebertaForSequenceClassification           relative_attention=True pos_att_type=p2c|c2p
RobertaForSequenceClassification           max_position_embeddings=514
CamembertForTokenClassification            max_position_embeddings=514
MPNetForMaskedLM                           max_position_embeddings=514
ElectraForPreTraining                      embedding_size=128
AlbertForMaskedLM                          embedding_size=128
MobileBertForMaskedLM                      embedding_size=64 true_hidden_size=64 intra_bottleneck_size=64
FunnelForMaskedLM                          block_sizes=2|2
LongformerForMaskedLM                      attention_window=64 max_position_embeddings=4098
BigBirdForMaskedLM                         attention_type=original_full
ConvBertForMaskedLM                        embedding_size=128
SqueezeBertForMaskedLM                     embedding_size=:width
RoFormerForMaskedLM                        embedding_size=:width
YosoForMaskedLM                            use_expectation=True max_position_embeddings=514
GPTJForCausalLM                            rotary_dim=32
GPTNeoForCausalLM                          attention_types=:local
MistralForCausalLM                         sliding_window=64
Qwen3ForCausalLM                           head_dim=64
GemmaForCausalLM                           head_dim=64
Gemma2ForCausalLM                          head_dim=64 sliding_window=64
Phi3ForCausalLM                            pad_token_id=0
FalconForCausalLM                          new_decoder_architecture=False
CodeGenForCausalLM                         rotary_dim=32
MixtralForCausalLM                         num_local_experts=4
Qwen2MoeForCausalLM                        num_experts=4 num_experts_per_tok=2 moe_intermediate_size=128
Qwen2MoeForCausalLM                        shared_expert_intermediate_size=256
MambaForCausalLM                           use_mambapy=False
Mamba2ForCausalLM                          head_dim=32 num_heads=:twice expand=4 n_groups=1 state_size=32
Mamba2ForCausalLM                          chunk_size=32
RwkvForCausalLM                            attention_hidden_size=:width
LEDForConditionalGeneration                attention_window=64
BeitForImageClassification                 use_relative_position_bias=True use_mean_pooling=True
Dinov2ForImageClassification               patch_size=14
Dinov2WithRegistersForImageClassification  patch_size=14
SwinForImageClassification                 depths=1|1|2|1
Swinv2ForImageClassification               depths=1|1|1|1 embed_dim=48 window_size=8
ConvNextForImageClassification             depths=1|1|2|1
ResNetForImageClassification               depths=1|1|2|1
RegNetForImageClassification               depths=1|1|2|1
SegformerForSemanticSegmentation           depths=1|1|1|1
PoolFormerForImageClassification           depths=1|1|2|1
CvtForImageClassification                  depth=1|2|3
FocalNetForImageClassification             depths=1|1|2|1
DPTForDepthEstimation                      backbone_out_indices=0|1|2|3 neck_hidden_sizes=48|96|192|192
DPTForDepthEstimation                      fusion_hidden_size=64
SamVisionModel                             global_attn_indexes=1 window_size=7
ASTForAudioClassification                  max_length=:length
"""

WORDS = 4096  # in every vocabulary


def sized(style: str, layers: int, width: int, heads: int) -> dict[str, Any]:
    """What a family of configurations calls them."""
    both = {"encoder_attention_heads": heads, "decoder_attention_heads": heads, "d_model": width}
    both |= {"encoder_layers": layers, "decoder_layers": layers}
    wide = {"encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width}
    bert = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    bert["intermediate_size"] = 4 * width
    gpt = {"n_embd": width, "n_layer": layers, "n_head": heads}
    styles: dict[str, dict[str, Any]] = {
        "none": {},
        "bert": bert,
        "vit": bert,
        "llama": bert | {"num_key_value_heads": heads // 2, "intermediate_size": 3 * width},
        "distil": {"dim": width, "n_layers": layers, "n_heads": heads, "hidden_dim": 4 * width},
        "xlnet": {"d_model": width, "n_layer": layers, "n_head": heads, "d_inner": 4 * width},
        "funnel": {"d_model": width, "n_head": heads, "d_head": width // heads, "d_inner": 4 * width},
        "gpt2": gpt,
        "ctrl": {"n_embd": width, "n_layer": layers, "n_head": heads, "dff": 4 * width},
        "gptneo": {"hidden_size": width, "num_layers": layers, "num_heads": heads},
        "opt": {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
        | {"ffn_dim": 4 * width, "word_embed_proj_dim": width},
        "bloom": {"hidden_size": width, "n_layer": layers, "n_head": heads},
        "mpt": {"d_model": width, "n_layers": layers, "n_heads": heads},
        "t5": {"d_model": width, "num_layers": layers, "num_heads": heads}
        | {"d_kv": width // heads, "d_ff": 4 * width},
        "bart": both | wide,
        "whisper": both | wide,
        "prophet": {"hidden_size": width, "num_encoder_layers": layers, "num_decoder_layers": layers}
        | {"num_encoder_attention_heads": heads, "num_decoder_attention_heads": heads}
        | {"encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width},
        "detr": both | wide,
    }
    return styles[style]


def setting(word: str, size: tuple[int, ...], shape: tuple[int, ...]) -> tuple[str, Any]:
    """``key=value`` of a table: numbers, True, lists as ``1|2``, and values that follow from the size."""
    key, _, value = word.partition("=")
    layers, width, heads = size
    follows: dict[str, Any] = {
        ":width": width,
        ":twice": 2 * heads,
        ":length": shape[-1],
        ":local": [[["global", "local"], layers // 2]],
    }
    if value in follows:
        return key, follows[value]
    found = [_plain(part) for part in value.split("|")]
    alone = "|" not in value and key != "global_attn_indexes"
    return key, found[0] if alone else found


def _plain(word: str) -> Any:
    """A number, True, False, or the word."""
    if word in ("True", "False"):
        return word == "True"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


class Named(nn.Module):
    """A model whose arguments have names."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args: Any) -> Any:
        return self.model(**dict(zip(self.names, args, strict=True)))


def configured(name: str, settings: dict[str, Any]) -> nn.Module:
    """A model with random weights in which nothing is random."""
    transformers = library("transformers")
    kind = getattr(transformers, name, None)
    if kind is None:
        raise NotInstalled(f"transformers has no {name}")
    config = kind.config_class(**settings)
    for key, value in vars(config).items():
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)
    for key in ("apply_spec_augment", "use_cache"):
        if hasattr(config, key):
            setattr(config, key, False)
    model: nn.Module = kind(config)
    return model


def make(kind: str, line: tuple[str, ...], place: Place) -> Made:
    """A model of a table's line, and its arguments."""
    name, style, word, _dtype, *rest = line
    size, shape = map(numbers, rest[2:4] if place.device == "cuda" else rest[:2])
    more = [word for known, *words in entries(MORE) if known == name for word in words]
    settings = sized(style, *size) | dict(setting(one, size, shape) for one in more)
    args, general = ARGUMENTS[kind](name, word == "train", shape, place)
    model = configured(name, general | settings)
    mode = mode_of(word)
    return steady(Named(model, tuple(args)), mode).to(place.device), tuple(args.values())


def text(name: str, train: bool, shape: tuple[int, ...], place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """Token numbers; in training the loss of labels."""
    args = {"input_ids": 3 + place.randint(WORDS - 3, *shape)}
    labels: dict[str, Any] = {}
    if train:
        each = "SequenceClassification" not in name
        high = 2 if "Classification" in name or "PreTraining" in name else WORDS
        labels = {"labels": place.randint(high, *shape) if each else place.randint(high, shape[0])}
    more = {"vocab_size": WORDS, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    return args | labels, more


def pair(name: str, train: bool, shape: tuple[int, ...], place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """Token numbers of an encoder and a decoder."""
    args, more = text(name, False, shape, place)
    words = {"labels" if train else "decoder_input_ids": 3 + place.randint(WORDS - 3, *shape)}
    return args | words, more | {"decoder_start_token_id": 2, "max_position_embeddings": 1024}


def images(name: str, train: bool, shape: tuple[int, ...], place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pixels; in training the loss of labels, where there are some."""
    args: dict[str, Any] = {"pixel_values": place.randn(*shape)}
    if train and name.endswith("ImageClassification"):
        args["labels"] = place.randint(2, shape[0])
    return args, {"image_size": shape[-1]}


def sound(name: str, train: bool, shape: tuple[int, ...], place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """Samples, or frames of a spectrogram."""
    batch, length = shape
    if name.startswith("Whisper"):
        args = {
            "input_features": place.randn(batch, 80, 2 * length),
            "decoder_input_ids": place.randint(WORDS, batch, 32),
        }
        return args, {"vocab_size": WORDS, "max_source_positions": length, "pad_token_id": 0}
    args = {"input_values": place.randn(batch, length, 128) if name.startswith("AST") else place.randn(batch, length)}
    return args | ({"labels": place.randint(2, batch)} if train else {}), {}


ARGUMENTS = {"text": text, "pair": pair, "images": images, "sound": sound}
TABLES = {"text": TEXT, "pair": PAIRS, "images": IMAGES, "sound": SOUND}


def rows(device: str) -> tuple[Row, ...]:
    """Those of all tables."""
    found = []
    for kind, table in TABLES.items():
        for line in entries(table):
            build = functools.partial(make, kind, tuple(line))
            found.append(Row(f"transformers/{line[0]}", build, mode_of(line[2]), **kinds(line[3], device)))
    return tuple(found)
