"""The rules with their texts: those of the knowledge base, and the one about the comments of review itself."""

from ...knowledge.schema import Knowledge, Rule

UNUSED_IGNORE = "DW001"
UNUSED_IGNORE_RULE = Rule(
    title="A `# ddpwizard: ignore` comment without effect",
    cause="",
    severity="info",
    why="The finding that it suppressed is gone, or never was there; left in place it may hide a later one.",
    symptom="none",
    fix="remove the comment, or the rule from its brackets",
    safety="display",
)


def rules_with_texts(knowledge: Knowledge) -> dict[str, Rule]:
    """Return every rule that review can report, by id."""
    return {UNUSED_IGNORE: UNUSED_IGNORE_RULE, **knowledge.rules}
