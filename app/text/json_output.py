"""JSON documents of the public interface."""

import re
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from ... import __version__

if TYPE_CHECKING:
    from ...knowledge.schema import Knowledge


# Control characters of 8 bits (C1), and characters that change the direction of the text around them.
INVISIBLE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def public_document(kind: str, knowledge: "Knowledge | None", body: Any) -> dict[str, Any]:
    """Return a JSON document of the public interface: schema, versions, then the body, without secrets."""
    from . import redact

    head = {
        "schema": f"ddpwizard.{kind}/1",
        "ddpwizard_version": __version__,
        "knowledge_version": knowledge.version if knowledge else "",
    }
    return head | redact.redact_record(msgspec.to_builtins(body))


def json_bytes(doc: dict[str, Any]) -> bytes:
    """Return a JSON document as it is printed and saved: in UTF-8, whatever the terminal's encoding."""
    text = msgspec.json.format(msgspec.json.encode(doc), indent=2).decode()
    return INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode() + b"\n"


def print_json(doc: dict[str, Any]) -> None:
    """Print one document on stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(json_bytes(doc))
    sys.stdout.buffer.flush()


def fields_from(source: Any, document: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the fields that a document takes from an object with attributes of the same names.

    A field that may be missing in the document is left out where the object has None.
    """
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(document):
        value = getattr(source, field.name, None)
        if hasattr(source, field.name) and not (value is None and field.default is msgspec.UNSET):
            values[field.name] = value
    return values
