import pytest
from ddpwizard.app.text.units import (
    GIB,
    MIB,
    bytes_text,
    gbps_text,
    gib_number,
    gib_text,
    percent_text,
    probability_text,
    ratio_text,
    round_seconds,
    seconds_text,
    signed_text,
    speed_gain_text,
)


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (64 * 1024, "64 KiB"),
        (150.4 * MIB, "150 MiB"),
        (79.15 * GIB, "79.2 GiB"),
        (1536 * GIB, "1.5 TiB"),
    ],
)
def test_bytes_in_the_fitting_unit(size_bytes: float, expected: str) -> None:
    assert bytes_text(size_bytes) == expected


@pytest.mark.parametrize(
    ("size_bytes", "decimals", "expected"),
    [
        (12.34 * GIB, 1, "12.3 GiB"),
        (3.744 * GIB, 2, "3.74 GiB"),
        (0.5 * GIB, 2, "0.50 GiB"),
        (0.05 * GIB, 1, "51.2 MiB"),
        (1536 * GIB, 2, "1,536 GiB"),
        (2.4 * GIB, 0, "2 GiB"),
        (0.3 * GIB, 0, "307.2 MiB"),
    ],
)
def test_gib(size_bytes: float, decimals: int, expected: str) -> None:
    assert gib_text(size_bytes, decimals) == expected


def test_gib_number_has_no_unit() -> None:
    assert (gib_number(0.04 * GIB), gib_number(12.34 * GIB), gib_number(1536 * GIB)) == ("0.0", "12.3", "1,536")


@pytest.mark.parametrize(
    ("seconds", "expected", "whole"),
    [
        (0, "0 µs", "0 s"),
        (0.00012, "120 µs", "0 s"),
        (0.0009996, "1 ms", "0 s"),
        (0.0042, "4.2 ms", "0 s"),
        (0.01814, "18.1 ms", "0 s"),
        (0.1, "0.10 s", "0 s"),
        (0.4321, "0.43 s", "0 s"),
        (2.7, "2.70 s", "3 s"),
        (9.996, "10.0 s", "10 s"),
        (12.34, "12.3 s", "12 s"),
        (42, "42.0 s", "42 s"),
        (99, "99.0 s", "99 s"),
        (100, "1.67 min", "2 min"),
        (660, "11 min", "11 min"),
        (1240, "20.7 min", "21 min"),
        (3600, "60 min", "60 min"),
        (7200, "2 h", "2 h"),
        (90_000, "25 h", "25 h"),
        (400_000, "4.63 days", "5 days"),
        (None, "–", "–"),
    ],
)
def test_seconds_in_the_fitting_unit(seconds: float | None, expected: str, whole: str) -> None:
    assert seconds_text(seconds) == expected
    assert seconds_text(seconds, whole=True) == whole


@pytest.mark.parametrize("seconds", [0.00012, 0.01814, 0.4321, 9.996, 12.34, 1240.0, 90_001.0])
def test_rounded_seconds_are_those_shown(seconds: float) -> None:
    assert seconds_text(round_seconds(seconds)) == seconds_text(seconds)
    assert round_seconds(seconds) == pytest.approx(seconds, rel=0.006)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0, "0%"),
        (0.004, "<1%"),
        (0.005, "<1%"),
        (0.0051, "1%"),
        (0.05, "5%"),
        (0.992, "99%"),
        (0.994, "99%"),
        (0.9951, ">99%"),
        (0.9999, ">99%"),
        (1, "100%"),
        (1.37, "137%"),
    ],
)
def test_percent_claims_no_false_certainty(share: float, expected: str) -> None:
    assert percent_text(share) == expected


def test_difference_has_a_sign() -> None:
    assert signed_text(-12.34 * GIB, gib_text) == "-12.3 GiB"
    assert signed_text(0.0042, seconds_text) == "+4.2 ms"


def test_probability_is_never_certain() -> None:
    assert [probability_text(share) for share in (0, 0.004, 0.62, 0.996, 1)] == ["<1%", "<1%", "62%", ">99%", ">99%"]


def test_ratio_and_bandwidth_have_three_digits() -> None:
    assert [ratio_text(ratio) for ratio in (2.44, 12.34, 314.2)] == ["2.4", "12.3", "310"]
    assert [speed_gain_text(ratio) for ratio in (1.004, 1.04, 1.994, 2.0, 4.05)] == [
        "<1% faster",
        "4% faster",
        "99% faster",
        "2.0 × as fast",
        "4.0 × as fast",
    ]
    assert [gbps_text(gbps) for gbps in (0.0001, 0.3279, 12.5, 360, 1800)] == [
        "<0.001 GB/s",
        "0.328 GB/s",
        "12.5 GB/s",
        "360 GB/s",
        "1,800 GB/s",
    ]
