"""How many tokens of a micro-batch each kind of layer sees: of text, of an encoder and its decoder, and of pictures."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from ..model.shape import is_encoder_decoder
from ..types import Setting, Train

# Tokens of a target over those of its input, for encoder-decoders (T5's own training: 114 to 512, arXiv 1910.10683).
TARGET_SHARE = 0.25


def tokens(train: Train) -> float:
    """Tokens of one micro-batch."""
    return float((train.micro_batch or 1) * (train.seq_len or 1))


class Layers(NamedTuple):
    """Layers of one kind: how many, the tokens of one of their sequences, and of the encoder's that they attend too."""

    layers: float
    length: float
    attended: float = 0.0


@lru_cache(maxsize=256)
def kinds(setting: Setting) -> list[Layers]:
    """The layers of a model by kind: those of an encoder-decoder are of two."""
    model, length = setting.model, float(setting.train.seq_len or 1)
    layers = float(model.layers or 1)
    if not is_encoder_decoder(model):
        return [Layers(layers, length)]
    decoders = model.decoder_layers or layers / 2
    return [Layers(layers - decoders, length), Layers(decoders, target_tokens(setting) / rows(setting), length)]


def rows(setting: Setting) -> int:
    """Sequences of one micro-batch."""
    return setting.train.micro_batch or 1


def target_tokens(setting: Setting) -> float:
    """Tokens of one micro-batch that have logits: of an encoder-decoder those that it writes."""
    train = setting.train
    if not is_encoder_decoder(setting.model):
        return tokens(train)
    return rows(setting) * train.target_len if train.target_len else tokens(train) * TARGET_SHARE


def of_a_layer(setting: Setting, of_sequence: Callable[[Layers], float]) -> float:
    """What a layer has of one micro-batch, on average over encoder and decoder; ``of_sequence``: of one sequence."""
    each = kinds(setting)
    whole = sum(kind.layers * of_sequence(kind) for kind in each)
    return rows(setting) * whole / sum(kind.layers for kind in each)


def layer_tokens(setting: Setting) -> float:
    """Tokens of one micro-batch that a layer sees."""
    return of_a_layer(setting, lambda kind: kind.length)


def pictures(setting: Setting) -> Setting | None:
    """The part of a setting that sees the pictures, as one of its own: a sequence of it is a picture. None where there
    is no such part."""
    tower, train = setting.model.tower, setting.train
    images = rows(setting) * (1 if train.images is None else train.images)
    if tower is None or not images:
        return None
    seen = msgspec.structs.replace(train, micro_batch=images, seq_len=tower.positions, images=None)
    return msgspec.structs.replace(setting, model=tower, train=seen)
