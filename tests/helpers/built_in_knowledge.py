"""The built-in knowledge base, read once per test process: reading it takes half a second."""

import functools

from ddpwizard.knowledge.loader import read_knowledge
from ddpwizard.knowledge.schema import Knowledge


@functools.cache
def built_in_knowledge() -> Knowledge:
    """Return the built-in knowledge base; tests must not change it."""
    return read_knowledge()
