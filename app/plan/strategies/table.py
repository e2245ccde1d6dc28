"""Render the candidates of a plan as text: a table, and the memory of the best one."""

from collections.abc import Sequence

from ...errors import UserError
from ...text.suggestions import closest, did_you_mean, normalise
from ...text.units import GIB, gib_number, gib_text, percent_text, ratio_text, seconds_text
from ..memory.peak import SPARE, peak_parts_text
from ..model.parameter_counts import parameter_count_text
from ..types import Candidate, PlanRow, TrainingSetup
from .evaluate import MOST_SEQUENCES, NOT_IN_PRACTICE, exceeds_gpu, rate_text

SHOWN = 12
MOST_CHOICES = 6  # strategies with a reason against them, and the first
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
HEAD = ("", "strategy", "recompute", "batch", "on GPU", "most", "step", "tokens/s", "slower")
SHORTER = {
    " without resharding": ", no reshard",
    " resharding to ": ", reshard to ",
    "ZeroRedundancyOptimizer": "ZeRO optimizer",
    " + optimizer on ": ", optim. on ",
    "tensor parallel": "TP",
    "pipeline parallel": "PP",
    "context parallel": "CP",
    "expert parallel": "EP",
}
SPLITS = (
    "  TP, PP, CP, EP: tensor, pipeline, context, expert parallelism;",
    "    they need a plan for your modules, and come after the others with the same sign, also slower ones",
)
RIGHT = range(3, len(HEAD))  # columns of numbers
STEP = HEAD.index("step")
HOST = "host"  # instead of a time, if the memory of the host is full


def visible_candidates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates of the table: the best ones, without those dominated by another of their family."""
    return [each for each in candidates if not each.dominated_by or each is candidates[0]][:SHOWN]


def rows_of_strategy(rows: list[PlanRow], name: str) -> list[PlanRow]:
    """Return the rows of one strategy, by its full name or that of the table; case and punctuation do not matter.

    Raises:
        UserError: There is no strategy of that name.
    """
    found = [
        row for row in rows if normalise(name) in (normalise(row.candidate.strategy), normalise(_short(row.candidate)))
    ]
    if not found:
        names = list(dict.fromkeys(_short(row.candidate) for row in rows))
        raise UserError(
            f"--strategy is {name or 'empty'}: not one for this machine",
            did_you_mean(closest(name, names)) or f"one of: {'; '.join(names)}",
        )
    return found


def render_table(
    setting: TrainingSetup,
    candidates: list[Candidate],
    assumed: list[str],
    ascii_only: bool = False,
    more: str = "",
    has_reasons: bool = True,
) -> list[str]:
    """Return the table of the candidates and the memory of the best one, as lines; ``more``: on more GPUs."""
    signs = ASCII_SIGNS if ascii_only else SIGNS
    model = setting.model
    memory = f" of {gib_text(setting.gpu_memory_gib * GIB, 0)}" if setting.gpu_memory_gib else ""
    gpus = f"{setting.gpus} GPU{'s' if setting.gpus > 1 else ''}"
    lines = [f"{model.name or 'model'} · {parameter_count_text(model.params, '.2f')} parameters · {gpus}{memory}", ""]
    best = candidates[0]
    if not best.works:
        nothing = "Nothing fits" if best.fits is False else "What fits is too slow"
        lines += [f"{nothing}. Closest: {best.strategy}, {best.why.removeprefix('too slow: ')}.", ""]
    else:
        lines.append(f"Use {best.strategy}: {best.why}.")
        most = best.largest_micro_batch or 0
        if any(line.startswith("micro_batch:") for line in assumed) and most > best.micro_batch:
            batch = f"{best.micro_batch} sequence per GPU in each step, as no batch is given, though {most} fit"
            lines.append(f"All figures are for {batch}: set --micro-batch, or --global-batch to have it chosen.")
        lines.append("")
    listed = visible_candidates(candidates)
    several = len({each.micro_batch for each in listed}) > 1
    marks = [SLOW if _is_slow(each) else signs[each.fits] for each in listed]
    rows = [HEAD, *(_row(each, setting, mark, ascii_only, several) for each, mark in zip(listed, marks, strict=True))]
    used = [column for column in range(len(HEAD)) if column < 2 or any(row[column] for row in rows[1:])]
    widths = {column: max(len(row[column]) for row in rows) for column in used}
    for row in rows:
        cells = (row[at].rjust(widths[at]) if at in RIGHT else row[at].ljust(widths[at]) for at in used)
        sign, *rest = cells
        lines.append(f"  {sign} {'  '.join(rest)}".rstrip())
    if any(" parallel " in each.strategy for each in listed):
        lines += SPLITS
    lacking = dict.fromkeys(f"{_short(each)} ({each.without_files})" for each in listed if each.without_files)
    lines += [f"  no files yet: {', '.join(lacking)}"] if lacking else []
    if len(candidates) > len(listed):
        lines.append(f"  … {len(candidates) - len(listed)} more that are slower or need more, all of them with --json")
    fits_shown = {each.fits for each in listed if not _is_slow(each)}
    legend = [words for fits, words in LEGEND.items() if fits in fits_shown]
    legend += [f"{SLOW} over {NOT_IN_PRACTICE:.0f} times the compute time"] if any(map(_is_slow, listed)) else []
    legend += [f"{HOST}: its memory is full"] if any(row[STEP] == HOST for row in rows) else []
    lines.append(f"  {', '.join(legend)}; memory in GiB")
    lines += ["  batch: sequences per GPU x micro-batches of a step"] if several else []
    lines.append("  most: sequences per GPU that fit")
    lines.append("  slower: over the compute time of a step, with no recomputation and no waiting")
    lines += ["", *(_reasons(listed) if has_reasons else ())]
    lines += [f"GiB at the peak: {peak_parts_text(best)}.", f"The peak is at the {best.peak_phase}; {best.lever}."]
    lines += [more] if more else []
    lines += [f"assumed {line}" for line in assumed]
    return [*lines, "Memory is computed, times are estimated. Measure one real step before you rely on them."]


def worth_choosing(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the strategies of the table worth choosing, each once: the best row of each."""
    once: dict[str, Candidate] = {}
    for each in visible_candidates(candidates):
        once.setdefault(each.strategy, each)
    return list(once.values())[:MOST_CHOICES]


def _reasons(listed: Sequence[Candidate]) -> list[str]:
    """Return why the other strategies are not the first choice, and that of the first row if it is another one."""
    best, *others = worth_choosing(listed)
    lines = [f"Not the first choice: {best.why_not}."] if best.why_not else []
    lines += [f"Why not another, compared with {best.full_name}:"] if others else []
    return [*lines, *(f"  {each.full_name}: {each.why_not}" for each in others), *([""] if lines else [])]


def _is_slow(each: Candidate) -> bool:
    return each.fits is not False and not each.in_practice


def _row(each: Candidate, setting: TrainingSetup, sign: str, ascii_only: bool, shows_batch: bool) -> tuple[str, ...]:
    most = each.largest_micro_batch
    searched = ("" if most != MOST_SEQUENCES else ">=" if ascii_only else "≥") if most is not None else ""
    return (
        sign,
        _short(each),
        RECOMPUTED[each.recompute],
        f"{each.micro_batch} x {each.grad_accum}" if shows_batch else "",
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
    """Return the step time, tokens per second and slowdown; or that the memory of the host is full."""
    if each.fits is False and not exceeds_gpu(each, setting):
        return HOST, "", ""
    slower = each.slower_than_ideal
    return (
        seconds_text(each.step_seconds),
        rate_text(each.tokens_per_s),
        f"{ratio_text(1 + slower)} x" if slower >= 1 else percent_text(slower),
    )
