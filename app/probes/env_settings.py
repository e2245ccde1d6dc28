"""Checks of single settings: selectors, visible devices, unread, old and costly names, nccl.conf."""

import shlex
from collections import defaultdict
from collections.abc import Mapping

from ..evidence import Check
from ..launchers.known_variables import COSTLY, NO_OP, RENAMED, closest_known_name, parse_integer
from ..snapshot import EnvSection, GpuSection
from ..text.suggestions import did_you_mean
from .ifname_selectors import GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, selector_problem


def setting_checks(env: EnvSection, gpus: GpuSection | None) -> list[Check]:
    """Check single variables: misread selectors, invalid devices, unread names, old names, costly ones, nccl.conf."""
    everywhere = [env.variables, *env.ranks.values()]
    values: dict[str, set[str]] = defaultdict(set)
    for variables in everywhere:
        for name, value in (env.nccl_conf | variables).items():
            values[name].add(value)
    return [
        *_selectors(values),
        *_visible_devices(values.get("CUDA_VISIBLE_DEVICES", set()), gpus),
        *_unread_names(values, env.nccl_conf),
        *_old_names(values),
        *_costly(values),
        *_conf(env),
    ]


def _selectors(values: Mapping[str, set[str]]) -> list[Check]:
    return [
        Check(
            "env.selector-misread",
            "fail",
            f"{name}={value!r} is parsed differently than it looks",
            f"{wrong[0].upper()}{wrong[1:]}. The library finds no interface, or another one than intended.",
            "env.selector-misread",
            where=name,
            fix=f"export {name}=eth0"
            + (" (a prefix; =eth0: the exact name; ^docker,lo: all but these)" if name == NCCL_SOCKET_IFNAME else ""),
        )
        for name in (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)
        for value in sorted(values.get(name, ()))
        if (wrong := selector_problem(name, value))
    ]


def _visible_devices(values: set[str], gpus: GpuSection | None) -> list[Check]:
    if gpus is not None and not gpus.gpus:
        return []
    checks: list[Check] = []
    for value in sorted(values):
        if wrong := _odd_devices(value, len(gpus.gpus) if gpus else None):
            checks.append(
                Check(
                    "env.visible-devices-odd",
                    "warn",
                    f"CUDA_VISIBLE_DEVICES={value!r}",
                    f"{wrong[0].upper()}{wrong[1:]}.",
                    "env.visible-devices-odd",
                    where="CUDA_VISIBLE_DEVICES",
                    fix="unset CUDA_VISIBLE_DEVICES, or list each GPU once: 0,1,2,3",
                )
            )
    return checks


def _odd_devices(value: str, count: int | None) -> str:
    entries = [entry.strip() for entry in value.split(",")]
    if entries[0] in ("", "-1", "NoDevFiles"):
        return "it hides all GPUs from CUDA"
    if twice := sorted({entry for entry in entries if entries.count(entry) > 1}):
        return f"{', '.join(twice)} is listed twice: CUDA then shows no GPU at all, or fewer than listed"
    for at, entry in enumerate(entries):
        named = entry.startswith(("GPU-", "MIG-"))
        if not named and (parse_integer(entry) is None or (count is not None and not 0 <= int(entry) < count)):
            there = f" (it has GPUs 0 to {count - 1})" if count else ""
            return f"{entry!r} is not a GPU of this machine{there}: CUDA shows only the {at} before it"
    return ""


def _unread_names(values: Mapping[str, set[str]], conf: Mapping[str, str]) -> list[Check]:
    checks: list[Check] = []
    for name in sorted(values):
        near = closest_known_name(name)
        if name not in NO_OP and not near:
            continue
        why = NO_OP.get(name) or f"neither NCCL, gloo nor torch reads it; {did_you_mean([near])}"
        instead = f"; export {near}={shlex.quote(min(values[name]))}" if near else ""
        checks.append(
            Check(
                "env.no-op-variable",
                "warn",
                f"{name} has no effect",
                f"{why[0].upper()}{why[1:]}",
                "env.no-op-variable",
                where=name,
                fix=(f"remove it from nccl.conf{instead}" if name in conf else f"unset {name}{instead}"),
            )
        )
    return checks


def _old_names(values: Mapping[str, set[str]]) -> list[Check]:
    return [
        Check(
            "env.old-name",
            "warn",
            f"{name} is an old name",
            f"Since torch {since} its name is {new}; 2.13 still reads the old one, with a warning on every rank.",
            where=name,
            fix=f"export {new}={shlex.quote(min(values[name]))}; unset {name}",
        )
        for name, (new, since) in RENAMED.items()
        if name in values
    ]


def _costly(values: Mapping[str, set[str]]) -> list[Check]:
    return [
        Check(
            "env.costly",
            "warn",
            f"{name}={value} is left on",
            f"{cost[0].upper()}{cost[1:]}.",
            where=name,
            fix=f"unset {name}",
        )
        for (name, value), cost in COSTLY.items()
        if value in values.get(name, ())
    ]


def _conf(env: EnvSection) -> list[Check]:
    checks = [
        Check(
            "env.conf-file-unreadable",
            "warn",
            "nccl.conf is parsed differently than it looks",
            f"{problem}.",
            "env.conf-file-unreadable",
            where=problem.partition(": ")[0],
            fix="write each line as NAME=value, in a file that every rank can read",
        )
        for problem in env.nccl_conf_problems
    ]
    if env.nccl_conf:
        settings = ", ".join(f"{name}={value}" for name, value in sorted(env.nccl_conf.items()))
        checks.append(
            Check(
                "env.conf-file-in-force",
                "warn",
                f"{' and '.join(env.nccl_conf_files)} set {len(env.nccl_conf)} variables",
                f"{settings}. NCCL uses them although no shell shows them; nodes with another file behave differently.",
                "env.conf-file-in-force",
                where=env.nccl_conf_files[0],
                fix="edit that file, or export the variable: the environment has precedence",
            )
        )
    return checks
