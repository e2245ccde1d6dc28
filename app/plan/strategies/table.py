"""The candidates of a plan as lines of text: a table, and what the best of them is made of."""

from ...errors import UserError
from ...text.suggestions import closest, did_you_mean, normalise
from ...text.units import gib_number, percent_text, seconds_text
from ..memory.peak import SPARE, peak_parts_text
from ..model.parameter_counts import parameter_count_text
from ..types import Candidate, PlanRow, TrainingSetup
from .evaluate import NOT_IN_PRACTICE, exceeds_gpu, round_to_three_digits
from .largest_micro_batch import MOST_SEQUENCES
from .what_if import ratio_text

SHOWN = 12
SIGNS = {True: "✓", "tight": "~", False: "✗", None: "?"}
ASCII_SIGNS = {True: "OK", "tight": "~", False: "FAIL", None: "?"}
SLOW = "!"  # it fits, but not in practice
LEGEND = {
    True: "✓ fits",
    "tight": f"~ tight (under {SPARE:.0%} of the GPU may be left)",
    False: "✗ does not fit",
    None: "? not known",
}
RECOMPUTED = {"none": "no", "full": "all", "selective-op": "some", "selective-layer": "some"}
HEAD = ("", "strategy", "recompute", "on GPU", "most", "step", "tokens/s", "slower")
SHORTER = {
    " without resharding": ", no reshard",
    " resharding to ": ", reshard to ",
    "ZeroRedundancyOptimizer": "ZeRO optimizer",
    " + optimizer on ": ", optim. on ",
}
RIGHT = range(3, len(HEAD))  # columns of numbers
STEP = HEAD.index("step")
HOST = "host"  # in place of times, where it is the host that has no room


def visible_candidates(candidates: list[Candidate]) -> list[Candidate]:
    """What a table shows: the best ones, without those that another of their family beats in time and in memory."""
    return [each for each in candidates if not each.dominated_by or each is candidates[0]][:SHOWN]


def rows_of_strategy(rows: list[PlanRow], name: str) -> list[PlanRow]:
    """Those of one strategy, by its name in full or as the table has it, whatever its case and signs.

    Raises:
        UserError: None is called so.
    """
    found = [
        row for row in rows if normalise(name) in (normalise(row.candidate.strategy), normalise(_short(row.candidate)))
    ]
    if not found:
        names = list(dict.fromkeys(_short(row.candidate) for row in rows))
        raise UserError(
            f"--strategy is {name or 'empty'}: not one for this box",
            did_you_mean(closest(name, names)) or f"one of: {'; '.join(names)}",
        )
    return found


def render_table(
    setting: TrainingSetup, candidates: list[Candidate], assumed: list[str], ascii_only: bool = False
) -> list[str]:
    """The table of the candidates and what the best is made of, as lines."""
    signs = ASCII_SIGNS if ascii_only else SIGNS
    model = setting.model
    memory = f" of {setting.gpu_memory_gib:.0f} GiB" if setting.gpu_memory_gib else ""
    gpus = f"{setting.gpus} GPU{'s' if setting.gpus > 1 else ''}"
    lines = [f"{model.name or 'model'} · {parameter_count_text(model.params, '.2f')} parameters · {gpus}{memory}", ""]
    best = candidates[0]
    nothing_fits = best.fits is False or not best.in_practice
    if nothing_fits:
        nothing = "Nothing fits" if best.fits is False else "Nothing fits in practice"
        lines += [f"{nothing}. Nearest to it: {best.strategy}, {best.why.removeprefix('not in practice: ')}.", ""]
    listed = visible_candidates(candidates)
    rows = [HEAD, *(_row(each, setting, SLOW if _is_slow(each) else signs[each.fits], ascii_only) for each in listed)]
    used = [column for column in range(len(HEAD)) if column < 2 or any(row[column] for row in rows[1:])]
    widths = {column: max(len(row[column]) for row in rows) for column in used}
    for row in rows:
        cells = (row[at].rjust(widths[at]) if at in RIGHT else row[at].ljust(widths[at]) for at in used)
        sign, *rest = cells
        lines.append(f"  {sign} {'  '.join(rest)}".rstrip())
    if len(candidates) > len(listed):
        lines.append(f"  … {len(candidates) - len(listed)} more that are slower or need more, all of them with --json")
    told = {each.fits for each in listed if not _is_slow(each)}
    legend = [words for fits, words in LEGEND.items() if fits in told]
    legend += [f"{SLOW} over {NOT_IN_PRACTICE:.0f} times the ideal step"] if any(map(_is_slow, listed)) else []
    legend += [f"{HOST}: its memory is full"] if any(row[STEP] == HOST for row in rows) else []
    lines.append(f"  {', '.join(legend)}; memory in GiB")
    if best.slower_than_ideal is not None:
        lines.append("  most: sequences per GPU that fit; slower: than the arithmetic alone, each once, without a wait")
    lines += ["", *([] if nothing_fits else [f"{best.strategy}: {best.why}."])]
    lever, split, further = best.lever.partition(". ")  # what comes after sharding is a sentence of its own
    lines += [f"GiB at the peak: {peak_parts_text(best)}.", f"The peak is at the {best.peak_phase}; {lever}."]
    lines += [f"{further}."] if split else []
    lines += [f"assumed {line}" for line in assumed]
    return [*lines, "Memory is computed, times are estimated; one real step tells more than both."]


def _is_slow(each: Candidate) -> bool:
    return each.fits is not False and not each.in_practice


def _row(each: Candidate, setting: TrainingSetup, sign: str, ascii_only: bool) -> tuple[str, ...]:
    most = each.largest_micro_batch
    searched = ("" if most != MOST_SEQUENCES else ">=" if ascii_only else "≥") if most is not None else ""
    return (
        sign,
        _short(each),
        RECOMPUTED[each.recompute],
        gib_number(each.device_used_bytes_per_gpu),
        f"{searched}{most}" if most is not None else "",
        *_times(each, setting),
    )


def _short(each: Candidate) -> str:
    name = each.strategy
    for long, short in SHORTER.items():
        name = name.replace(long, short)
    return name


def _times(each: Candidate, setting: TrainingSetup) -> tuple[str, str, str]:
    """Of a step, tokens per second, and how far from the ideal; or that it is the host that has no room."""
    if each.fits is False and not exceeds_gpu(each, setting):
        return HOST, "", ""
    return (
        seconds_text(each.step_seconds) if each.step_seconds is not None else "",
        f"{round_to_three_digits(each.tokens_per_s):,.0f}" if each.tokens_per_s is not None else "",
        _slower(each),
    )


def _slower(each: Candidate) -> str:
    if each.slower_than_ideal is None:
        return ""
    slower = each.slower_than_ideal
    return f"{ratio_text(1 + slower)} x" if slower >= 1 else percent_text(slower)
