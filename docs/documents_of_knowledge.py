"""Types of the JSON documents about the knowledge base and the labs that a command builds as a dictionary."""

import msgspec
from ddpwizard.app.diagnosis.coverage import TopicCoverage
from ddpwizard.app.labs.course import ListedChapter
from ddpwizard.app.labs.quiz import ListedQuestion
from ddpwizard.knowledge.labs import Failure
from ddpwizard.knowledge.schema import Rule, Term
from msgspec import UNSET, UnsetType


class RuleDocument(Rule, frozen=True, kw_only=True):
    """A rule of the review (``explain DW401``)."""

    id: str  # type: ignore[misc]


class ChapterLab(msgspec.Struct):
    """A lab of a chapter by its number and title; its cause is the answer."""

    number: str
    title: str


class ChapterDocument(msgspec.Struct):
    """A chapter (``explain CHAPTER``)."""

    id: str
    order: int
    title: str
    summary: str
    pages: list[str]
    labs: list[ChapterLab]


class LabDocument(msgspec.Struct):
    """A lab by its number (``explain LAB``); its cause is the answer."""

    id: str
    title: str
    story: str
    failure: Failure


class TermDocument(Term, frozen=True, kw_only=True):
    """A term of the field (``explain TERM``)."""

    id: str  # type: ignore[misc]


class TitledEntry(msgspec.Struct):
    """An entry and its title."""

    id: str
    title: str


class ExplainSearchDocument(msgspec.Struct):
    """The causes and rules that have all words that were given (``explain WORDS``)."""

    term: str
    entries: list[TitledEntry]


class LearnDocument(msgspec.Struct):
    """The chapters, labs and questions of the quiz, with what is done."""

    chapters: list[ListedChapter]
    quiz: list[ListedQuestion]


class EntryProblem(msgspec.Struct):
    """An error in an entry, a chapter or a lab."""

    path: str
    line: int
    problem: str


class KbCheckDocument(msgspec.Struct):
    """The result of ``kb check``."""

    ok: bool
    problems: list[EntryProblem]


class ListedCause(msgspec.Struct):
    """A cause in the list."""

    id: str
    family: str
    title: str
    summary: str


class KbListDocument(msgspec.Struct):
    """The causes (``kb list``)."""

    causes: list[ListedCause]


class GraphNode(msgspec.Struct):
    """A node of the decision graph."""

    id: str
    kind: str
    text: str


class GraphEdge(msgspec.Struct, rename={"start": "from", "end": "to"}):
    """An edge of the decision graph; ``nats`` is its weight where it supports or refutes a cause."""

    start: str
    end: str
    relation: str
    nats: float | UnsetType = UNSET


class KbGraphDocument(msgspec.Struct):
    """The decision graph (``kb graph``)."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]


class KbCoverageDocument(msgspec.Struct):
    """Coverage of each topic (``kb coverage``)."""

    topics: list[TopicCoverage]


class DraftedFile(msgspec.Struct):
    """A file that was drafted."""

    path: str
    text: str


class KbNewDocument(msgspec.Struct):
    """A drafted entry or lab (``kb new``): the first file, and all of them."""

    id: str
    path: str
    text: str
    files: list[DraftedFile]
