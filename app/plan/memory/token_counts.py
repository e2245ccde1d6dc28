"""Tokens of a micro-batch that each kind of layer processes: text, encoder, decoder, and vision."""

from functools import lru_cache
from typing import NamedTuple

import msgspec

from ..model.parameter_counts import is_encoder_decoder
from ..types import TrainingOptions, TrainingSetup

# Ratio of target tokens to input tokens of encoder-decoders (T5's own training: 114 to 512, arXiv 1910.10683).
TARGET_SHARE = 0.25


def batch_tokens(train: TrainingOptions) -> float:
    """Return the tokens of one micro-batch."""
    return float((train.micro_batch or 1) * (train.seq_len or 1))


class LayerGroup(NamedTuple):
    """Layers of one kind: their number, the tokens per sequence, and the encoder's tokens that they attend to."""

    layers: float
    length: float
    attended: float = 0.0


@lru_cache(maxsize=256)
def layer_groups(setting: TrainingSetup) -> list[LayerGroup]:
    """Return the layers of a model by kind; an encoder-decoder has two kinds."""
    model, length = setting.model, float(setting.train.seq_len or 1)
    layers = float(model.layers or 1)
    if not is_encoder_decoder(model):
        return [LayerGroup(layers, length)]
    decoders = model.decoder_layers or layers / 2
    return [
        LayerGroup(layers - decoders, length),
        LayerGroup(decoders, target_tokens(setting) / sequences(setting), length),
    ]


def sequences(setting: TrainingSetup) -> int:
    """Return the sequences of one micro-batch."""
    return setting.train.micro_batch or 1


def target_tokens(setting: TrainingSetup) -> float:
    """Return the tokens of one micro-batch that have logits: those of the decoder in an encoder-decoder."""
    train = setting.train
    if not is_encoder_decoder(setting.model):
        return batch_tokens(train)
    return sequences(setting) * train.target_len if train.target_len else batch_tokens(train) * TARGET_SHARE


def layer_tokens(setting: TrainingSetup) -> float:
    """Return the tokens of one micro-batch that a layer processes, on average over encoder and decoder."""
    each = layer_groups(setting)
    return sequences(setting) * sum(kind.layers * kind.length for kind in each) / sum(kind.layers for kind in each)


def vision_setting(setting: TrainingSetup) -> TrainingSetup | None:
    """Return the setting of the vision tower, in which one sequence is one image, or None without a vision tower."""
    tower, train = setting.model.tower, setting.train
    images = sequences(setting) * (1 if train.images is None else train.images)
    if tower is None or not images:
        return None
    seen = msgspec.structs.replace(train, micro_batch=images, seq_len=tower.positions, images=None)
    return msgspec.structs.replace(setting, model=tower, train=seen)
