"""JSON documents of the public interface."""

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from ... import __version__

if TYPE_CHECKING:
    from ...knowledge.schema import Knowledge


def public_document(kind: str, knowledge: "Knowledge | None", body: Any) -> dict[str, Any]:
    """A JSON document of the public face: schema, versions, then the body; secrets taken out."""
    from . import redact

    head = {
        "schema": f"ddpwizard.{kind}/1",
        "ddpwizard_version": __version__,
        "knowledge_version": knowledge.version if knowledge else "",
    }
    return head | redact.redact_record(msgspec.to_builtins(body))


def json_bytes(doc: dict[str, Any]) -> bytes:
    """A JSON document as it is printed and saved, in UTF-8 whatever the terminal takes (JSON knows no other)."""
    return msgspec.json.format(msgspec.json.encode(doc), indent=2) + b"\n"


def print_json(doc: dict[str, Any]) -> None:
    """One document on stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(json_bytes(doc))
    sys.stdout.buffer.flush()
