"""The JSON documents that commands print with ``--json``: their types, and the JSON Schema of each.

Types that the code has are used as they are; those of documents that a command builds as a dictionary are in the
modules ``documents_of_…``. The field names of a schema are final: fields may be added, none is renamed or removed.
"""

from typing import Any, Literal, NamedTuple

import msgspec
from ddpwizard.app.evidence import Evidence
from ddpwizard.app.fixes.records import AppliedFix
from ddpwizard.app.fixes.undo import ListedFix
from ddpwizard.knowledge.schema import Cause
from documents_of_jobs import DiagnosisDocument, DoctorDocument, ExportDocument, SessionsDocument, TriageDocument
from documents_of_knowledge import (
    ChapterDocument,
    ExplainSearchDocument,
    KbCheckDocument,
    KbCoverageDocument,
    KbGraphDocument,
    KbListDocument,
    KbNewDocument,
    LabDocument,
    LearnDocument,
    RuleDocument,
    TermDocument,
)
from documents_of_scripts import AgreementDocument, MigrationDocument, PlanDocument, ReviewDocument, RulesDocument

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class UndoListDocument(msgspec.Struct):
    """The applied fixes, newest first (``undo --list``)."""

    fixes: list[ListedFix]


class CompletionDocument(msgspec.Struct):
    """The completion script of a shell."""

    shell: Literal["bash", "zsh", "fish"]
    script: str


class ServeDocument(msgspec.Struct):
    """The address of the server, with its token."""

    url: str


class ErrorDocument(msgspec.Struct):
    """The reason why a command has failed (exit codes 2 and 3), and what to do next."""

    message: str
    next: str


class PublicDocument(NamedTuple):
    """A kind of document: the command that prints it, and the type of its body."""

    command: str
    body: Any


DOCUMENTS = {
    "agreement": PublicDocument("review --launch-files", AgreementDocument),
    "cause": PublicDocument("explain CAUSE", Cause),
    "chapter": PublicDocument("explain CHAPTER", ChapterDocument),
    "completion": PublicDocument("completion", CompletionDocument),
    "diagnosis": PublicDocument("diagnose", DiagnosisDocument),
    "doctor": PublicDocument("doctor", DoctorDocument),
    "error": PublicDocument("any command", ErrorDocument),
    "explain-search": PublicDocument("explain WORDS", ExplainSearchDocument),
    "export": PublicDocument("sessions export", ExportDocument),
    "kb-check": PublicDocument("kb check", KbCheckDocument),
    "kb-coverage": PublicDocument("kb coverage", KbCoverageDocument),
    "kb-graph": PublicDocument("kb graph", KbGraphDocument),
    "kb-list": PublicDocument("kb list", KbListDocument),
    "kb-new": PublicDocument("kb new", KbNewDocument),
    "lab": PublicDocument("explain LAB", LabDocument),
    "learn": PublicDocument("learn", LearnDocument),
    "migration": PublicDocument("review --to", MigrationDocument),
    "plan": PublicDocument("plan", PlanDocument),
    "review": PublicDocument("review", ReviewDocument),
    "rule": PublicDocument("explain RULE", RuleDocument),
    "rules": PublicDocument("review --rules", RulesDocument),
    "serve": PublicDocument("serve", ServeDocument),
    "sessions": PublicDocument("sessions list", SessionsDocument),
    "term": PublicDocument("explain TERM", TermDocument),
    "triage": PublicDocument("triage", TriageDocument),
    "undo": PublicDocument("undo", AppliedFix),
    "undo-list": PublicDocument("undo --list", UndoListDocument),
}
OMIT_DEFAULTS = {Evidence.__name__}
HEAD = {
    "schema": {"const": ""},
    "ddpwizard_version": {"type": "string"},
    "knowledge_version": {"type": "string", "description": "Empty if the command reads no entries."},
}


def json_schema(kind: str, *, closed: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document. ``closed``: properties that it does not name are errors."""
    document = DOCUMENTS[kind]
    (reference,), types = msgspec.json.schema_components([document.body], ref_template="#/$defs/{name}")
    types = {name: _object(each, closed) for name, each in types.items()}
    body = types.pop(reference["$ref"].rpartition("/")[2])
    head = HEAD | {"schema": {"const": f"ddpwizard.{kind}/1"}}
    if kind == "error":
        del head["ddpwizard_version"], head["knowledge_version"]
    return {
        "$schema": DIALECT,
        "title": f"ddpwizard.{kind}/1",
        "description": body.get("description", ""),
        **{key: value for key, value in body.items() if key not in ("title", "description")},
        "properties": head | body["properties"],
        "required": [*head, *body["required"]],
        "$defs": types,
    }


def _object(schema: dict[str, Any], closed: bool) -> dict[str, Any]:
    """Return the schema of an object as it is printed: with all its fields, those with defaults among them."""
    if schema.get("type") != "object" or "properties" not in schema:
        return schema
    names = schema["properties"]
    printed = [] if schema.get("title") in OMIT_DEFAULTS else [name for name in names if "default" in names[name]]
    required = [name for name in names if name in (*schema.get("required", []), *printed)]
    return schema | {"required": required, "additionalProperties": not closed}
