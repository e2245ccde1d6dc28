"""A small knowledge base for the tests of log reading, which stays as it is while the real one grows."""

from typing import Any, get_origin

import msgspec
from ddpwizard.knowledge.schema import Cause, FixSpec, Knowledge, Message, Reference, Signature, Verification


def cause(id_: str, *signatures: Signature, generic: bool = False) -> Cause:
    """A cause with nothing but its signatures."""
    return Cause(
        id=id_,
        title=id_,
        family="hang",
        summary="x",
        symptoms=["x"],
        explain="x",
        fixes=[FixSpec(id="repair", kind="text", title="Repair it")],
        verify=Verification(probe="limits"),
        holds_for={"torch": ">=2.1"},
        sources=[Reference(title="t", url="https://example.org", checked="2.13")],
        signatures=list(signatures),
        generic=generic,
    )


def knowledge(**given: Any) -> Knowledge:
    """A knowledge base in which everything that is not given is empty."""
    empty = {field.name: (get_origin(field.type) or field.type)() for field in msgspec.structs.fields(Knowledge)}
    return Knowledge(**{**empty, **given})


KNOWLEDGE = knowledge(
    causes={
        "odd": cause("odd", Signature(pattern=r"odd thing (?P<n>\d+) of \d+$", literal="odd thing", weight="strong")),
        "oom": cause("oom", Signature(pattern="CUDA out of memory", literal="CUDA out of memory", weight="strong")),
        "deep": cause("deep", Signature(pattern=r"first half\s+second half", literal="first half", weight="strong")),
        "timed-out": cause(
            "timed-out",
            Signature(pattern="Watchdog caught", literal="Watchdog caught", weight="moderate", role="symptom"),
        ),
    },
    messages={
        "closed": Message(pattern="Connection closed", literal="Connection closed", kind="consequence", says="x"),
        "sigterm": Message(pattern="closing signal SIGTERM", literal="signal SIGTERM", kind="consequence", says="x"),
        "child": Message(pattern="ChildFailedError", literal="ChildFailedError", kind="consequence", says="x"),
    },
    in_scope_words=["nccl", "torchrun"],
)
