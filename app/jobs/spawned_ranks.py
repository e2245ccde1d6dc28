"""Ranks without RANK in their environment: of ``mp.spawn``, of multiprocessing, or with the rank as an argument.

They are recognised by their connections to each other, by their stack frames and by the order of their start.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from ..launchers.rank_variables import integer_variable, rendezvous_address
from ..launchers.recognise import is_multiprocessing_spawn, is_wizard
from ..system import proc_files, procfs, sockets
from ..system.procfs import Proc
from ..text.numbers import MOST_RANKS, parse_count
from . import ranks_from_locals
from .ranks_from_locals import RankHints

RankFrom = Literal["spawn", "frames", "command", "order"]
RANK_OPTION = re.compile(r"^--?(?:global[-_])?rank(?:=(\d{1,9}))?$")
SAMPLED = 4  # siblings without connections that are sampled first
WORLD_OPTION = re.compile(r"^--?world[-_]size(?:=(\d{1,9}))?$")


class RankedProcess(NamedTuple):
    """A process and its inferred rank."""

    proc: Proc
    rank: int
    local_rank: int | None
    rank_from: RankFrom


class SpawnedRanks(NamedTuple):
    """Ranks that belong together; ``parent`` is the process that started them all."""

    members: list[RankedProcess]
    parent: Proc | None
    world_size: int
    master: str


class _Ends(NamedTuple):
    """Connections of a process: both addresses of each."""

    pairs: frozenset[tuple[str, sockets.Address, sockets.Address]]  # with the network namespace

    def reaches(self, other: "_Ends") -> bool:
        return any((network, peer, local) in other.pairs for network, local, peer in self.pairs)


def group_spawned_ranks(
    candidates: Sequence[Proc], processes: Mapping[int, Proc], assigned: Collection[int]
) -> list[SpawnedRanks]:
    """Group Python processes into jobs. Those in ``assigned`` have a rank in their environment: they count only as
    children of one parent, from which they may have inherited it."""
    torch_loaded = {proc.pid for proc in candidates if _may_be_rank(proc, processes)}
    families = _families([processes[pid] for pid in torch_loaded], processes)
    ends = _connection_ends(sorted(torch_loaded), processes)
    found: list[SpawnedRanks] = []
    taken: set[int] = set()
    for parent, siblings in families.items():
        for members in _related(processes[parent], siblings, ends):
            if _takes_part(processes[parent], members, ends):
                members = [processes[parent], *members]
            found.append(_group(members, processes[parent], ends, processes))
            taken |= {proc.pid for proc in members}
    taken |= {below for below in torch_loaded if any(a.pid in taken for a in procfs.ancestors(below, processes))}
    taken |= {group.parent.pid for group in found if group.parent}
    alone = [processes[pid] for pid in sorted(torch_loaded - taken - set(assigned))]
    for members in _connected_ranks(alone, ends):
        found.append(_group(members, None, ends, processes))
    return found


def _may_be_rank(proc: Proc, processes: Mapping[int, Proc]) -> bool:
    if proc.state == "Z":
        return False
    parent = processes.get(proc.parent)
    starting = is_multiprocessing_spawn(proc.command) and parent is not None and procfs.has_torch(parent.pid)
    return starting or procfs.has_torch(proc.pid)


def _families(found: Iterable[Proc], processes: Mapping[int, Proc]) -> dict[int, list[Proc]]:
    """The children of multiprocessing by their parent: spawned ones, and forked ones with the parent's command line."""
    families: dict[int, list[Proc]] = defaultdict(list)
    for proc in found:
        parent = processes.get(proc.parent)
        # If the parent has ended, init or our supervisor is the new parent.
        if not parent or not parent.is_python or is_wizard(parent.command):
            continue
        if is_multiprocessing_spawn(proc.command) or (proc.command == parent.command and proc.command):
            families[parent.pid].append(proc)
    return {parent: sorted(children, key=_age) for parent, children in families.items()}


def _related(parent: Proc, siblings: list[Proc], ends: Mapping[int, _Ends]) -> list[list[Proc]]:
    """Group the siblings that are ranks by job.

    Connected siblings are ranks, and so are those that run the same function. Without any connection (during start-up,
    or while they wait for each other) the frames decide: mp.spawn in the parent, or torch.distributed.
    """
    connected = [
        part
        for part in _components(siblings, ends)
        if len(part) > 1
        or any(ends[part[0].pid].reaches(end) for end in (ends[part[0].pid], ends.get(parent.pid)) if end)
    ]
    if len(connected) > 1:
        return connected
    sampled = ranks_from_locals.read_locals([*siblings[:SAMPLED], parent])
    first = [sampled[proc.pid] for proc in siblings[:SAMPLED] if proc.pid in sampled]
    spawns = parent.pid in sampled and sampled[parent.pid].spawns
    if not connected and not spawns and not any(_is_rank(hints) for hints in first):
        return []
    sampled = ranks_from_locals.read_locals(siblings)
    sure = {proc.pid for part in connected for proc in part}
    sure |= {pid for pid, hints in sampled.items() if _is_rank(hints)}
    entries = {sampled[pid].entry for pid in sure if pid in sampled} - {""}
    members = [
        proc
        for proc in siblings
        if proc.pid in sure
        or (proc.pid in sampled and not sampled[proc.pid].loader and sampled[proc.pid].entry in {"", *entries})
    ]
    return [members] if members else []


def _takes_part(parent: Proc, members: Sequence[Proc], ends: Mapping[int, _Ends]) -> bool:
    """Return whether the parent is a rank itself: connected with its children, and in torch.distributed, with a rank
    of its own or the missing one."""
    own = ends.get(parent.pid)
    if own is None or not any(own.reaches(ends[proc.pid]) for proc in members):
        return False
    hints = ranks_from_locals.read_locals([parent]).get(parent.pid)
    worlds = {hints.world_size for hints in ranks_from_locals.read_locals(members).values()}
    return (hints is not None and (hints.distributed or hints.rank is not None)) or worlds == {len(members) + 1}


def _is_rank(hints: RankHints) -> bool:
    return not hints.loader and (hints.distributed or hints.index is not None)


def _connected_ranks(alone: list[Proc], ends: Mapping[int, _Ends]) -> list[list[Proc]]:
    """Connected processes without a common parent whose frames or command line show that they are ranks."""
    found: list[list[Proc]] = []
    for part in _components(alone, ends):
        own = ends[part[0].pid]
        if len(part) == 1 and not own.pairs:
            continue
        sampled = ranks_from_locals.read_locals(part)
        if any(_is_rank(hints) for hints in sampled.values()) or all(
            _option(proc.command, RANK_OPTION) is not None for proc in part
        ):
            found.append(part)
    return found


def _components(procs: Sequence[Proc], ends: Mapping[int, _Ends]) -> list[list[Proc]]:
    """Connected components of the processes."""
    holders = {pair: proc.pid for proc in procs for pair in ends[proc.pid].pairs}
    part_of = {proc.pid: [proc] for proc in procs}
    for (network, local, peer), pid in holders.items():
        one, other = part_of[pid], part_of[holders.get((network, peer, local), pid)]
        if one is not other:
            one += other
            part_of |= {proc.pid: one for proc in other}
    return list({id(part): sorted(part, key=_age) for part in part_of.values()}.values())


def _connection_ends(pids: Sequence[int], processes: Mapping[int, Proc]) -> dict[int, _Ends]:
    tables: dict[str, dict[int, sockets.TcpSocket]] = {}
    held: dict[int, frozenset[int]] = {}

    def sockets_of(pid: int) -> frozenset[int]:
        if pid not in held:
            held[pid] = procfs.open_sockets(pid)
        return held[pid]

    ends: dict[int, _Ends] = {}
    for pid in pids:
        # Sockets that a fork inherited are its parent's.
        own = sockets_of(pid) - sockets_of(processes[pid].parent)
        network = procfs.network_namespace(pid) if own else ""
        if own and network not in tables:
            tables[network] = sockets.read_tcp_sockets(pid)
        found = [each for inode in own if (each := tables[network].get(inode)) and each.state == sockets.ESTABLISHED]
        ends[pid] = _Ends(frozenset((network, each.local, each.peer) for each in found))
    return ends


def _group(
    procs: Sequence[Proc], parent: Proc | None, ends: Mapping[int, _Ends], processes: Mapping[int, Proc]
) -> SpawnedRanks:
    procs = sorted(procs, key=_age)
    ended = _zombie_siblings(procs, parent, processes)
    sampled = ranks_from_locals.read_locals(procs)
    parents = ranks_from_locals.read_locals([parent]).get(parent.pid) if parent else None
    worlds = [
        integer_variable(procs[0].environ, "WORLD_SIZE"),
        *(hints.world_size for hints in sampled.values()),
        *(_option(proc.command, WORLD_OPTION) for proc in procs),
        parents.spawns if parents else None,
    ]
    world_size = next((world for world in worlds if world and len(procs) <= world <= MOST_RANKS), 0)
    if not world_size and ended:
        world_size = len(procs) + len(ended)
    started = sorted([*procs, *ended], key=_age) if world_size == len(procs) + len(ended) else procs
    numbers, rank_from = _numbers(started, sampled, world_size)
    indices = {proc.pid: hints.index for proc in procs if (hints := sampled.get(proc.pid))}
    members = [
        RankedProcess(
            proc=proc,
            rank=numbers[proc.pid],
            local_rank=index if (index := indices.get(proc.pid)) is not None else (at if parent else None),
            rank_from=rank_from.get(proc.pid, "order"),
        )
        for at, proc in enumerate(procs)
    ]
    return SpawnedRanks(
        members=sorted(members, key=lambda member: member.rank),
        parent=parent,
        world_size=max(world_size, *(member.rank + 1 for member in members)),
        master=rendezvous_address(procs[0].environ) or _store(procs, ends),
    )


def _zombie_siblings(procs: Sequence[Proc], parent: Proc | None, processes: Mapping[int, Proc]) -> list[Proc]:
    """Zombies of the parent that have the same process name as the living ranks."""
    names = {proc_files.read_text_of(proc.pid, "comm") for proc in procs}
    return [
        proc
        for proc in processes.values()
        if parent
        and proc.state == "Z"
        and proc.parent == parent.pid
        and proc_files.read_text_of(proc.pid, "comm") in names
    ]


def _numbers(
    procs: Sequence[Proc], sampled: Mapping[int, RankHints], world_size: int
) -> tuple[dict[int, int], dict[int, RankFrom]]:
    """The rank of each process and its source. Sources are tried in order and used if their numbers do not contradict
    each other; the remaining ranks are assigned in the order of the start."""
    by_frames = {proc.pid: hints.rank for proc in procs if (hints := sampled.get(proc.pid))}
    by_index = {proc.pid: hints.index for proc in procs if (hints := sampled.get(proc.pid))}
    by_option = {proc.pid: _option(proc.command, RANK_OPTION) for proc in procs}
    sources: list[tuple[RankFrom, Mapping[int, int | None]]] = [
        ("frames", by_frames),
        ("spawn", by_index),
        ("command", by_option),
    ]
    ranks: dict[int, int] = {}
    source: dict[int, RankFrom] = {}
    for name, numbers in sources:
        new = {pid: rank for pid, rank in numbers.items() if rank is not None and pid not in ranks}
        values = [*ranks.values(), *new.values()]
        if len(set(values)) == len(values) and all(value < (world_size or MOST_RANKS) for value in new.values()):
            ranks |= new
            source |= dict.fromkeys(new, name)
    source |= {pid: "spawn" for pid, rank in ranks.items() if by_index.get(pid) == rank}
    left = iter(sorted(set(range(world_size + len(procs))) - set(ranks.values())))
    return {proc.pid: ranks[proc.pid] if proc.pid in ranks else next(left) for proc in procs}, source


def _store(procs: Sequence[Proc], ends: Mapping[int, _Ends]) -> str:
    """The address that all of them are connected to: the store's."""
    peers: dict[sockets.Address, set[int]] = defaultdict(set)
    for proc in procs:
        for _, _, peer in ends[proc.pid].pairs:
            peers[peer].add(proc.pid)
    best = max(peers, key=lambda address: (len(peers[address]), -address[1]), default=None)
    return f"{best[0]}:{best[1]}" if best and len(peers[best]) == len(procs) else ""


def _option(command: Sequence[str], option: re.Pattern[str]) -> int | None:
    for at, word in enumerate(command):
        if found := option.match(word):
            return parse_count(found[1] or (command[at + 1] if at + 1 < len(command) else ""))
    return None


def _age(proc: Proc) -> tuple[float, int]:
    return proc.started_s, proc.pid
