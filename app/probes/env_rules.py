"""Checks of the launch contract: the variables of one process, and their agreement between ranks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ..evidence import Check, Status
from ..launchers.known_variables import parse_integer
from ..launchers.rank_variables import CONTRACT
from ..snapshot import EnvSection
from ..text.units import ranks_text

NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_PORT")
BELOW = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("GROUP_RANK", "GROUP_WORLD_SIZE"))
BREAKS = {
    "RANK": "init_process_group fails, or waits for a rank that does not exist.",
    "LOCAL_RANK": 'torch.cuda.set_device(LOCAL_RANK) fails ("invalid device ordinal") or takes another rank\'s GPU.',
    "GROUP_RANK": "Code that identifies nodes by it confuses two nodes, or waits for a missing one.",
}
LAUNCHED = ("RANK", "LOCAL_RANK")  # set by launchers only; MASTER_* is also exported by hand
SAME_EVERYWHERE = ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
USE_TORCHRUN = "torchrun --nproc-per-node=N train.py"


def contract_checks(env: EnvSection) -> list[Check]:
    """Check the launch contract of the shell's variables."""
    variables = env.variables
    missing = _missing(variables)
    if len(missing) == len(CONTRACT) + 1:
        return [
            Check(
                "env.absent",
                "skip",
                f"{env.owner}: no launch variables",
                "Normal for a shell: torchrun sets RANK, WORLD_SIZE and MASTER_* for each rank it starts. A script "
                "started here with plain python has none and runs alone, or fails in init_process_group.",
                fix=USE_TORCHRUN,
            )
        ]
    broken = _broken(env.owner, variables)
    if missing:
        launched = any(name in variables for name in LAUNCHED)
        broken.insert(0, _incomplete(env.owner, missing, "fail" if launched else "warn"))
    return broken or [_complete(env.owner, variables)]


def job_checks(env: EnvSection) -> list[Check]:
    """Check the launch contract of each rank of a running job, and the agreement between the ranks."""
    launched = {pid: variables for pid, variables in env.ranks.items() if "RANK" in variables}
    if not launched:
        return [_no_rank_variable(env)]
    checks: list[Check] = []
    for pid, variables in sorted(launched.items()):
        owner = f"rank {variables['RANK']} (pid {pid})"
        if missing := _missing(variables):
            checks.append(_incomplete(owner, missing, "fail"))
        checks += _broken(owner, variables)
    checks = _once_each(checks)
    checks += _duplicates(launched)
    checks += _differences(launched)
    checks += _local_count(env, launched)
    if any(check.finding for check in checks):
        return checks
    ranks = ranks_text([int(variables["RANK"]) for variables in launched.values()])
    first = next(iter(launched.values()))
    return [_complete(f"{ranks} of {first['WORLD_SIZE']} on this host", first), *checks]


def _missing(variables: Mapping[str, str]) -> list[str]:
    return [name for name in (*CONTRACT, "LOCAL_RANK") if not variables.get(name)]


def _incomplete(owner: str, missing: list[str], status: Status) -> Check:
    fatal = [name for name in missing if name in CONTRACT]
    breaks = (
        f'init_process_group fails with "environment variable {fatal[0]} expected, but not set".'
        if fatal
        else "Code that picks its GPU by LOCAL_RANK falls back to GPU 0 on every rank."
    )
    return Check(
        "env.incomplete",
        status,
        f"{owner}: {', '.join(missing)} not set",
        f"Other launch variables are set. {breaks}",
        "env.incomplete",
        where=missing[0],
        fix=f"start with {USE_TORCHRUN}, which sets them all, or export {' '.join(f'{name}=…' for name in missing)}",
    )


def _broken(owner: str, variables: Mapping[str, str]) -> list[Check]:
    """Values that are not numbers or out of range."""
    no_number = [name for name in NUMBERS if variables.get(name) and parse_integer(variables[name]) is None]
    checks = [
        Check(
            "env.not-a-number",
            "fail",
            f"{owner}: {name}={variables[name]!r} is not an integer",
            "torch reads it with int(): init_process_group raises a ValueError.",
            "env.not-a-number",
            where=name,
            fix=f"unset {name}, and let torchrun set it",
        )
        for name in no_number
    ]
    for name, bound in BELOW:
        value, limit = parse_integer(variables.get(name)), parse_integer(variables.get(bound))
        if value is not None and (value < 0 or (limit is not None and value >= limit)):
            allowed = f"0 to {limit - 1}" if limit else "0 or more"
            checks.append(
                Check(
                    "env.rank-out-of-range",
                    "fail",
                    f"{owner}: {name}={value}, but {bound} is {variables.get(bound, 'not set')}",
                    f"{name} must be {allowed}. {BREAKS[name]}",
                    "env.rank-out-of-range",
                    where=name,
                    fix=f"set {name} from {allowed}, each value once; torchrun does that",
                )
            )
    port = parse_integer(variables.get("MASTER_PORT"))
    if port is not None and not 0 < port < 65536:
        checks.append(
            Check(
                "env.port-out-of-range",
                "fail",
                f"{owner}: MASTER_PORT={port} is not a TCP port",
                "Ports are 1 to 65535; rank 0 cannot listen there and no rank can join.",
                "env.port-out-of-range",
                where="MASTER_PORT",
                fix="export MASTER_PORT=29500, or any free port above 1023",
            )
        )
    return checks


def _complete(owner: str, variables: Mapping[str, str]) -> Check:
    values = ", ".join(f"{name}={variables[name]}" for name in (*CONTRACT, "LOCAL_RANK"))
    return Check("env.complete", "ok", f"{owner}: launch variables complete", values, "env.complete")


def _no_rank_variable(env: EnvSection) -> Check:
    if len(env.ranks) > 1:
        return Check(
            "env.absent",
            "unknown",
            f"{len(env.ranks)} processes, none started with RANK",
            "They may have set it themselves later (torch.multiprocessing.spawn): /proc shows only the environment "
            "that a process was started with.",
        )
    return Check(
        "env.absent",
        "warn",
        f"{env.owner} was started without launch variables",
        "No launcher set RANK, WORLD_SIZE and MASTER_*: it runs alone on one GPU, or init_process_group fails. "
        "(Variables that a process sets itself later are not visible here.)",
        "env.absent",
        fix=USE_TORCHRUN,
    )


def _once_each(checks: Iterable[Check]) -> list[Check]:
    """Report the same problem of several ranks once, for its first rank."""
    first: dict[tuple[str, str], Check] = {}
    for check in checks:
        first.setdefault((check.id, check.where), check)
    return list(first.values())


def _duplicates(ranks: Mapping[int, Mapping[str, str]]) -> list[Check]:
    pids: dict[str, list[int]] = defaultdict(list)
    for pid, variables in sorted(ranks.items()):
        pids[variables["RANK"]].append(pid)
    return [
        Check(
            "env.rank-duplicated",
            "fail",
            f"RANK={rank} on {len(same)} processes",
            f"pids {', '.join(map(str, same))} have the same rank: another rank is missing, so the group waits for it "
            "or mixes up messages.",
            "env.rank-duplicated",
            where=f"pid {same[-1]}",
            fix=f"give each process its own RANK: {USE_TORCHRUN} does; on several nodes give each its own --node-rank",
        )
        for rank, same in pids.items()
        if len(same) > 1
    ]


def _differences(ranks: Mapping[int, Mapping[str, str]]) -> list[Check]:
    checks: list[Check] = []
    for name in SAME_EVERYWHERE:
        having: dict[str, list[str]] = defaultdict(list)
        for variables in ranks.values():
            having[variables.get(name, "not set")].append(variables["RANK"])
        if len(having) > 1:
            values = "; ".join(f"{value}: RANK {', '.join(sorted(who))}" for value, who in having.items())
            checks.append(
                Check(
                    "env.world-size-differs",
                    "fail",
                    f"{name} differs between the ranks of this host",
                    f"{values}. Ranks that disagree form separate groups, each waiting for the other's ranks.",
                    "env.world-size-differs",
                    where=name,
                    fix="start all ranks with the same launcher command on each node",
                )
            )
    return checks


def _local_count(env: EnvSection, ranks: Mapping[int, Mapping[str, str]]) -> list[Check]:
    wanted = {size for variables in ranks.values() if (size := parse_integer(variables.get("LOCAL_WORLD_SIZE")))}
    have = len(ranks)
    if env.unreadable or len(wanted) != 1 or have == (want := wanted.pop()):
        return []
    title = f"LOCAL_WORLD_SIZE={want}, but {have} ranks of the job run on this host"
    why = "A rank has ended or was never started; the others wait for it." if have < want else "Two jobs are mixed."
    return [
        Check(
            "env.local-world-mismatch",
            "fail",
            title,
            why,
            "env.local-world-mismatch",
            where="LOCAL_WORLD_SIZE",
            fix="find the error of the missing rank: ddpwizard triage",
        )
    ]
