"""The text of ``triage``: sentences fit the terminal, and the way to a fix is named."""

from ddpwizard.app.commands.triage import report_lines
from ddpwizard.app.diagnosis.reviewed_job import explain_by_review
from helpers.built_in_knowledge import built_in_knowledge
from helpers.diverged_jobs import SKIPPED, hung_report

KNOWLEDGE = built_in_knowledge()


def test_sentences_are_wrapped_between_words_and_the_source_is_not() -> None:
    report = explain_by_review(hung_report(SKIPPED), KNOWLEDGE)
    whole, narrow = report_lines(report, KNOWLEDGE), report_lines(report, KNOWLEDGE, 60)
    verdict = narrow[: narrow.index("")]
    assert max(map(len, verdict)) <= 60
    assert " ".join(" ".join(verdict).split()) == " ".join(" ".join(whole[: whole.index("")]).split())
    assert narrow[narrow.index("") :] == whole[whole.index("") :]


def test_the_way_to_a_fix_is_named() -> None:
    report = explain_by_review(hung_report(SKIPPED), KNOWLEDGE)
    assert report_lines(report, KNOWLEDGE)[-1] == "  ddpwizard shows the fixes for this job: choose it, then press f."
    assert "press f" not in report_lines(hung_report(SKIPPED), KNOWLEDGE)[-1]
