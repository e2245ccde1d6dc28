"""Which entries answer which topic: the table behind ``ddpwizard kb coverage`` and ``knowledge/COVERAGE.md``."""

from collections import defaultdict

from ...knowledge.schema import Knowledge
from ..text.markup import Document, Section, Table, to_markdown

ABOUT = (
    "Made by ddpwizard kb coverage from what the entries say they cover and from topics.yaml; a test fails when this "
    "file is not what that prints, or when a topic has no entry."
)


def entries_by_topic(knowledge: Knowledge) -> dict[str, list[str]]:
    """For every topic, the ids of the entries that answer it, sorted."""
    found: dict[str, list[str]] = {topic: [] for topic in knowledge.topics}
    for cause in knowledge.causes.values():
        for topic in cause.covers:
            found[topic].append(cause.id)
    return {topic: sorted(ids) for topic, ids in found.items()}


def coverage_table(knowledge: Knowledge) -> str:
    """The table as Markdown: topics with their entries, then every entry by family."""
    rows = [[topic, knowledge.topics[topic], ", ".join(ids)] for topic, ids in entries_by_topic(knowledge).items()]
    families: dict[str, list[str]] = defaultdict(list)
    for cause in sorted(knowledge.causes.values(), key=lambda cause: cause.id):
        families[cause.family].append(cause.id)
    sections = [
        Section("Topics", [Table(["Topic", "What it is about", "Entries"], rows)]),
        Section(
            "Entries by family", [Table(["Family", "Entries"], [[f, ", ".join(families[f])] for f in sorted(families)])]
        ),
    ]
    return to_markdown(Document("What the knowledge base covers", [ABOUT], sections))
