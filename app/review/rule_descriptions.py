"""Descriptions of the rules, those of the knowledge base and the one about the comments of review itself, as text."""

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


def rule_lines(id_: str, rule: Rule) -> list[str]:
    """Return a rule as plain lines with headings in capitals."""
    fix = f"{rule.fix} ({rule.safety}: {rule.why_unsafe})" if rule.why_unsafe else rule.fix
    parts = {"WHAT HAPPENS": rule.why, "HOW IT SHOWS": rule.symptom, "WHAT FIXES IT": fix}
    lines = [rule.title, f"rule of the review / {id_}, {rule.severity}"]
    for heading, text in parts.items():
        lines += ["", heading, f"  {text}"]
    return [*lines, "", "SEE ALSO", f"  ddpwizard explain {rule.cause}", f"  ddpwizard review --rule {id_} train.py"]
