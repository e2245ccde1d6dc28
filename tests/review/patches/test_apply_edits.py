"""Edits change nothing but the characters they name."""

import ast

import pytest
from ddpwizard.app.review.patches.apply_edits import OverlappingEdits, apply_edits, edits_between, shifts_lines_of
from ddpwizard.app.review.review import review_text
from ddpwizard.app.training_script.edits import Edit
from ddpwizard.app.training_script.source import BOM
from helpers.review_snippets import KNOWLEDGE, apply_fixes
from hypothesis import given
from hypothesis import strategies as st


def test_offsets_of_edits_refer_to_the_original() -> None:
    assert apply_edits("abcdef", [Edit(4, 5, "X"), Edit(0, 1, ""), Edit(2, 2, "--")]) == "b--cdXf"


def test_insertions_at_one_place_keep_their_order_without_duplicates() -> None:
    assert apply_edits("ab", [Edit(1, 1, "1"), Edit(1, 1, "2"), Edit(1, 1, "1")]) == "a12b"


@pytest.mark.parametrize("edits", [[Edit(0, 3, ""), Edit(2, 4, "")], [Edit(3, 9, "")], [Edit(2, 1, "")]])
def test_overlapping_and_impossible_edits_are_refused(edits: list[Edit]) -> None:
    with pytest.raises(OverlappingEdits):
        apply_edits("abcdef", edits)


@given(st.text(), st.data())
def test_text_outside_the_edits_is_never_touched(text: str, data: st.DataObject) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), unique=True).filter(lambda p: len(p) % 2 == 0)))
    spans = list(zip(places[::2], places[1::2], strict=True))
    after = apply_edits(text, [Edit(start, end, "\0") for start, end in spans])
    kept = [text[start:end] for start, end in zip([0, *places[1::2]], [*places[::2], len(text)], strict=True)]
    assert after == "\0".join(kept)


NAMES = st.sampled_from(["x", "größe", "变量", "loss_1"])
COMMENTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20)
STRINGS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=20)


@given(
    newline=st.sampled_from(["\n", "\r\n"]),
    indent=st.sampled_from(["  ", "    ", "\t"]),
    name=NAMES,
    comment=COMMENTS,
    string=STRINGS,
    bom=st.booleans(),
    tail=st.booleans(),
)
def test_patched_script_parses_and_keeps_its_other_lines(
    newline: str, indent: str, name: str, comment: str, string: str, bom: bool, tail: bool
) -> None:
    body = [
        "import torch.distributed as dist",
        f"def f({name}, rank):  # {comment}",
        f"{indent}text = {string!r}, '''{comment.replace(chr(39), '').replace(chr(92), '')} '''",
        f"{indent}if rank == 0:  # {comment}",
        f"{indent}{indent}print({name})",
        f"{indent}{indent}{name} = {name}.sum()  # {comment}",
        f"{indent}{indent}dist.all_reduce({name})",
        f"{indent}{indent}print(text, {name})",
        f"{indent}return {name}",
    ]
    before = (BOM if bom else "") + newline.join(body) + (newline if tail else "")
    after, done = apply_fixes(before, ["DW401"], ["unsafe"])
    assert len(done) == 1
    ast.parse(after.removeprefix(BOM))
    assert review_text(after, "t.py", KNOWLEDGE, ["DW401"]) == []
    expected = list(body)
    expected[5:7] = [line[len(indent) :] for line in expected[5:7]]
    expected.insert(7, f"{indent}if rank == 0:")
    assert after == (BOM if bom else "") + newline.join(expected) + (newline if tail else "")


def test_edits_between_two_texts_are_whole_lines() -> None:
    before, after = "a\r\nb\r\n\tc\nd", "new\na\r\n\tc\nD\n"
    edits = edits_between(before, after)
    assert apply_edits(before, edits) == after
    assert [edit.text for edit in edits] == ["new\n", "", "D\n"]


def test_patch_inserts_a_line_among_lines_that_another_patch_shifts() -> None:
    before = (
        "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"
        "def f(model, x):\n    if rank == 0:\n        with torch.no_grad():\n            loss = model(x).mean()\n"
        "        dist.all_reduce(loss)\n        print('loss', loss)\nf(torch.nn.Linear(1, 1), torch.ones(2, 1))\n"
    )
    after, done = apply_fixes(before)
    assert [finding.rule for finding in done] == ["DW401", "DW497"]
    assert after.endswith(
        "def f(model, x):\n    with torch.no_grad():\n        loss = model(x).mean()\n    dist.all_reduce(loss)\n"
        "    loss /= dist.get_world_size()\n    if rank == 0:\n        print('loss', loss)\n"
        "f(torch.nn.Linear(1, 1), torch.ones(2, 1))\n"
    )


@pytest.mark.parametrize(("place", "shifted"), [(2, False), (4, True), (12, True), (15, False)])
def test_lines_next_to_shifted_ones(place: int, shifted: bool) -> None:
    text = "a\nb\n  c\n  d\nee\nf\n"
    edits = [Edit(4, 6, ""), Edit(8, 10, "")]
    assert shifts_lines_of(edits, [Edit(place, place, "new\n")], text) is shifted
