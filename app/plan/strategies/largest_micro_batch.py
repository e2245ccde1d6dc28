"""Find the largest micro-batch that fits."""

from math import ceil

import msgspec

from ..memory.peak import excess_bytes
from ..types import TrainingSetup

MOST_SEQUENCES = 512  # largest micro-batch that is tried


def largest_micro_batch(setting: TrainingSetup) -> int:
    """Return the most sequences per GPU and step that fit, at most ``MOST_SEQUENCES``; 0 if not even one fits."""

    def over(count: int) -> float:
        train = msgspec.structs.replace(setting.train, micro_batch=count)
        return excess_bytes(msgspec.structs.replace(setting, train=train))

    if over(1) > 0:
        return 0
    most = over(MOST_SEQUENCES)
    if most <= 0:
        return MOST_SEQUENCES
    # Memory grows linearly until another phase becomes the peak: start from the line through the top, then search.
    each = most - over(MOST_SEQUENCES - 1)
    guess = MOST_SEQUENCES - ceil(most / each) if each > 0 else 1
    low, high, width = 1, MOST_SEQUENCES, 1
    guess = min(max(guess, low), high - 1)
    if over(guess) <= 0:
        low = guess
        while low + width < high and over(low + width) <= 0:
            low, width = low + width, 2 * width
        high = min(high, low + width)
    else:
        high = guess
        while high - width > low and over(high - width) > 0:
            high, width = high - width, 2 * width
        low = max(low, high - width)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if over(middle) <= 0 else (low, middle)
    return low
