"""How many tokens of a micro-batch each kind of layer sees: of text, of an encoder and its decoder, and of pictures."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from ..model.parameter_counts import is_encoder_decoder
from ..types import TrainingOptions, TrainingSetup

# Tokens of a target over those of its input, for encoder-decoders (T5's own training: 114 to 512, arXiv 1910.10683).
TARGET_SHARE = 0.25


def batch_tokens(train: TrainingOptions) -> float:
    """Tokens of one micro-batch."""
    return float((train.micro_batch or 1) * (train.seq_len or 1))


class LayerGroup(NamedTuple):
    """Layers of one kind: how many, the tokens of one of their sequences, and of the encoder's that they attend too."""

    layers: float
    length: float
    attended: float = 0.0


@lru_cache(maxsize=256)
def layer_groups(setting: TrainingSetup) -> list[LayerGroup]:
    """The layers of a model by kind: those of an encoder-decoder are of two."""
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
    """Sequences of one micro-batch."""
    return setting.train.micro_batch or 1


def target_tokens(setting: TrainingSetup) -> float:
    """Tokens of one micro-batch that have logits: of an encoder-decoder those that it writes."""
    train = setting.train
    if not is_encoder_decoder(setting.model):
        return batch_tokens(train)
    return sequences(setting) * train.target_len if train.target_len else batch_tokens(train) * TARGET_SHARE


def average_per_layer(setting: TrainingSetup, of_sequence: Callable[[LayerGroup], float]) -> float:
    """What a layer has of one micro-batch, on average over encoder and decoder; ``of_sequence``: of one sequence."""
    each = layer_groups(setting)
    whole = sum(kind.layers * of_sequence(kind) for kind in each)
    return sequences(setting) * whole / sum(kind.layers for kind in each)


def layer_tokens(setting: TrainingSetup) -> float:
    """Tokens of one micro-batch that a layer sees."""
    return average_per_layer(setting, lambda kind: kind.length)


def vision_setting(setting: TrainingSetup) -> TrainingSetup | None:
    """The part of a setting that sees the pictures, as one of its own: a sequence of it is a picture. None where there
    is no such part."""
    tower, train = setting.model.tower, setting.train
    images = sequences(setting) * (1 if train.images is None else train.images)
    if tower is None or not images:
        return None
    seen = msgspec.structs.replace(train, micro_batch=images, seq_len=tower.positions, images=None)
    return msgspec.structs.replace(setting, model=tower, train=seen)
