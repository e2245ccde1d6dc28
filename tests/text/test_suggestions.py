"""Suggestions for mistyped names."""

from ddpwizard.app.text.suggestions import closest, did_you_mean


def test_closest_ignores_case_and_punctuation():
    assert closest("zero3", ["ZeRO-2", "ZeRO-3", "FSDP2"])[0] == "ZeRO-3"
    assert closest("nothing like it", ["ZeRO-3", "FSDP2"]) == []


def test_closest_takes_names_from_a_ratio_on():
    assert closest("NCCL_DEBG", ["NCCL_DEBUG", "NCCL_DIR"], cutoff=0.85) == ["NCCL_DEBUG"]
    assert closest("NCCL_DR", ["NCCL_DEBUG"], cutoff=0.85) == []
    assert closest("NCCL_DR", ["NCCL_DEBUG"]) == ["NCCL_DEBUG"]


def test_suggestions_are_one_question():
    assert did_you_mean([]) == ""
    assert did_you_mean(["A"]) == "did you mean A?"
    assert did_you_mean(["A", "B", "C"]) == "did you mean A, B or C?"
