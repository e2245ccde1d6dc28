"""Memory of the loss: logits, their copies, and the inputs of the output head."""

from functools import lru_cache

from ..model.parameter_counts import upcasts_loss
from ..types import TrainingSetup
from .block_tensors import norm_bytes, saved
from .computation import batch_tokens, compute_dtype_bytes, residual_stream_bytes, target_tokens
from .formula import Factor, Term, term

# Copies (torch 2.13, live storages counted over forward and backward): log-softmax, its gradient and that of the
# logits, in fp32 in most models. A compiled loss keeps the logits as computed and their gradient: 4 bytes per logit in
# 16 bit, as in torchtitan, 8 in fp32, as in torchtune without chunks. In 8 chunks the log-softmax of all chunks stays,
# with the gradients of one; compiled, one chunk in fp32. A fused linear loss has chunks of about as many logits as
# tokens times hidden size (Liger's ``fused_linear_cross_entropy``).
LOGITS_COPIES = {"eager": 3, "compiled": 1.5, "chunked": 1 + 1 / 8, "fused-linear": 0.0}
CHUNKED_COMPILED = 1 / 8
# torch's loss_parallel computes the gradient in elementary operations: zeros with the labels, the exponential, and
# their sum, next to the log-softmax (``torch/distributed/tensor/parallel/loss.py``, 2.13).
LOSS_PARALLEL_COPIES = 4
LOGITS = "logits"
COPIES = {
    "eager": "log-softmax and gradients, in fp32",
    "compiled": "logits and their gradient",
    "chunked": "log-softmax, and one chunk's gradients",
}


def head_input_terms(setting: TrainingSetup) -> tuple[Term, ...]:
    """Return what the last norm and the output head save, which is freed before the blocks run backward."""
    model = setting.model
    if not model.vocab or not model.hidden:
        return ()
    each = norm_bytes(setting, residual_stream_bytes(setting)) + compute_dtype_bytes(setting.train)
    width = Factor(each * model.hidden, "bytes")
    return (saved("inputs of the last norm and of the head", Factor(target_tokens(setting), "tokens"), width),)


@lru_cache(maxsize=256)
def logits_terms(setting: TrainingSetup, loss_parallel: bool = False) -> tuple[Term, ...]:
    """Return the logits and their copies at the peak of the loss: as computed, and in fp32.

    ``loss_parallel``: ranks share the vocabulary.
    """
    model, train = setting.model, setting.train
    if "no LM head" in model.note or not model.vocab:
        return ()
    loss = train.loss or "eager"
    tokens, vocab = Factor(target_tokens(setting), "tokens"), Factor(model.vocab, "logits a token")

    def copies(what: str, each: float) -> Term:
        return term("loss", what, tokens, vocab, Factor(each, "bytes"))

    if loss == "fused-linear":
        of_chunk = min(tokens.value * vocab.value, batch_tokens(train) * (model.hidden or 0))
        return (
            term("loss", "logits of a chunk and their gradients", Factor(of_chunk, "logits"), Factor(4 + 2, "bytes")),
        )
    wide = CHUNKED_COMPILED if loss == "chunked" and train.compile else LOGITS_COPIES[loss]
    if loss == "eager" and loss_parallel:
        wide = LOSS_PARALLEL_COPIES
    held, width, what = held_bytes_per_logit(setting), 4, COPIES[loss]
    if _has_16_bit_loss(setting):
        width, what = 2, what.replace("fp32", "16 bit")
    of_reference = (copies("logits of the reference model", 2 + 4),) if train.reference_model else ()
    return (copies(what, width * wide), *of_reference, *((copies(LOGITS, held),) if held else ()))


def _has_16_bit_loss(setting: TrainingSetup) -> bool:
    """Return whether an eager loss is computed in 16 bit: by a model with 16-bit weights that does not convert.

    autocast computes each log-softmax in fp32 (the list of operations in torch's docs).
    """
    is_16_bit = (setting.train.dtype or "").endswith(("-deepspeed", "-pure"))
    return is_16_bit and not upcasts_loss(setting.model) and (setting.train.loss or "eager") == "eager"


def held_logits_terms(setting: TrainingSetup) -> tuple[Term, ...]:
    """Return the logits that the training loop holds until the end of the backward pass."""
    return tuple(each for each in logits_terms(setting) if each.what == LOGITS and setting.train.keeps_logits)


def held_bytes_per_logit(setting: TrainingSetup) -> int:
    """Return the bytes per logit in addition to those copies: held by the loop, or the source of chunks.

    A loop holds the output of the model while its loss is alive, unless it deletes it. FSDP1 dates from transformers
    before 4.45, whose output holds the logits in fp32.
    """
    loss, width = setting.train.loss or "eager", compute_dtype_bytes(setting.train)
    if loss == "eager":
        return 0 if not setting.train.keeps_logits else 4 if setting.layout.kind == "fsdp1" else width
    return width if loss == "chunked" else 0
