"""The ranking next to a question: what has no room is left out with a sign."""

import pytest
from ddpwizard.app.evidence import Diagnosis, RankedCause, ReasonLine
from ddpwizard.screens.widgets.cause_ranking import CauseRanking
from textual.geometry import Size

CAUSES = [
    RankedCause(
        id=f"cause-{number}",
        title=f"The link between GPUs or machines {number} is far slower than it should be",
        confidence=0.2,
        because=[ReasonLine("answer", f"{number}: what was seen takes more than one row here", "", 1.0)] * 3,
        against=[],
        fixes=[],
    )
    for number in range(4)
]


@pytest.mark.parametrize(("height", "titles", "cut"), [(40, 4, False), (18, 3, True), (14, 2, True), (10, 1, True)])
def test_reasons_have_room_and_what_is_left_out_has_a_sign(
    monkeypatch: pytest.MonkeyPatch, height: int, titles: int, cut: bool
) -> None:
    monkeypatch.setattr(CauseRanking, "size", Size(28, height))
    ranking = CauseRanking()
    ranking.show(Diagnosis(in_scope=True, causes=CAUSES, other=0.2, several=False, support="log", next=[], evidence=[]))
    rows = ranking.render().plain.split("\n")
    assert len(rows) <= height
    assert sum("20%" in row for row in rows[: rows.index("Because")]) - (titles == 4) == titles, rows
    assert rows[rows.index("Because") + 1].startswith("answer")
    assert any(row.startswith("…") for row in rows) is cut
