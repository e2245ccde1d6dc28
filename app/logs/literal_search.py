"""One pass over a text of any size: where may something known stand?

All literals of the knowledge base are looked for at once by an Aho-Corasick automaton; what asks the regular
expressions is left to ``collect``. A literal that stands on very many lines leaves the automaton and is looked for
at both ends of each block only, so that no text can make this slow: its first and last places count, not all.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick

SMALL_BYTES = 96 << 10  # below, plain searches are quicker than building the automaton
SLICE_BYTES = 256 << 10  # what one call of the automaton sees; more, as long as it finds little
LARGEST_SLICE_BYTES = 4 << 20
LITTLE = 4000  # places in one slice
BACK_BYTES = 64 << 10  # what stays in sight before a block …
AHEAD_BYTES = 192 << 10  # … and behind it
MOST_PER_BLOCK = 400  # places of one literal in a block, half from its start, half from its end
FREQUENT = 60  # places in ``SLICE_BYTES`` that make a literal frequent
RARE = 20  # places in one block that make it rare again
MOST_BUILDS = 48
STRIPE_BYTES = 16 << 10


class TextBlock(msgspec.Struct):
    """A part of a text: ``data[begin:end]`` is new, the rest is what stands around it.

    ``offset`` is the place of ``data[0]`` in the text, ``line`` the number of the line that ``data[begin]`` is in.
    """

    data: bytes
    begin: int
    end: int
    offset: int
    line: int
    last: bool
    _stripes: list[int] = msgspec.field(default_factory=list)  # numbers of the lines at every ``STRIPE_BYTES``

    def number(self, at: int) -> int:
        """The number of the line that ``data[at]`` is in."""
        if at < self.begin:
            return self.line - self.data.count(b"\n", at, self.begin)
        if not self._stripes:
            self._stripes.append(self.line)
        stripe = (at - self.begin) // STRIPE_BYTES
        while len(self._stripes) <= stripe:
            start = self.begin + (len(self._stripes) - 1) * STRIPE_BYTES
            self._stripes.append(self._stripes[-1] + self.data.count(b"\n", start, start + STRIPE_BYTES))
        return self._stripes[stripe] + self.data.count(b"\n", self.begin + stripe * STRIPE_BYTES, at)


def overlapping_blocks(chunks: Iterable[bytes]) -> Iterator[TextBlock]:
    """Chunks as blocks that overlap, so that nothing is cut at their borders."""
    data, begin, offset, line = b"", 0, 0, 1
    for chunk in chunks:
        data += chunk
        end = len(data) - AHEAD_BYTES
        if end - begin < AHEAD_BYTES:
            continue
        end = max(begin, data.rfind(b"\n", begin, end) + 1) or end
        end = end if end > begin else len(data) - AHEAD_BYTES
        block = TextBlock(data, begin, end, offset, line, last=False)
        yield block
        line = block.number(end)
        cut = max(0, end - BACK_BYTES)
        data, begin, offset = data[cut:], end - cut, offset + cut
    if data:
        yield TextBlock(data, begin, len(data), offset, line, last=True)


class LiteralScanner:
    """Looks for literals in block after block; ``watch`` adds one while it runs."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        self._literals = set(literals)
        self._frequent: set[bytes] = set()
        self._built: list[bytes] = []
        self._automaton: BytesAhoCorasick | None = None
        self._longest = 0
        self._builds = 0
        self._seen_bytes = 0
        self._slice = SLICE_BYTES
        self._asked: list[tuple[bytes, bool]] = []

    def watch(self, literal: bytes) -> None:
        """Look for one more literal, from the next block on that is not looked at yet."""
        self._asked.append((literal, True))

    def forget(self, literal: bytes) -> None:
        """Look for a watched literal no more."""
        self._asked.append((literal, False))

    def ahead(self, blocks: Iterable[TextBlock]) -> Iterator[tuple[TextBlock, dict[bytes, list[int]]]]:
        """Blocks with their places; of a long text the next block is looked at meanwhile, in a thread."""
        coming = iter(blocks)
        block = next(coming, None)
        if block is not None and block.last:
            yield block, self.places(block)
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as other:
            future = other.submit(self.places, block) if block is not None else None
            while block is not None and future is not None:
                found = future.result()
                following = next(coming, None)
                future = other.submit(self.places, following) if following is not None else None
                yield block, found
                block = following

    def places(self, block: TextBlock) -> dict[bytes, list[int]]:
        """Where in ``block.data`` each literal begins, in order; of frequent ones the first and last few."""
        self._answer()
        self._seen_bytes += block.end - block.begin
        if self._automaton is None and self._seen_bytes <= SMALL_BYTES:
            return self._plainly(block, self._literals)
        found = self._at_once(block)
        frequent = self._plainly(block, self._frequent)
        for literal, places in frequent.items():
            if len(places) < RARE and self._builds < MOST_BUILDS:
                self._frequent.discard(literal)
                self._automaton = None
            found[literal] = places
        return found

    def _answer(self) -> None:
        """Take up what was asked for meanwhile. What is forgotten stays in the automaton until it is built anew."""
        while self._asked:
            literal, watch = self._asked.pop(0)
            if watch and literal not in self._built:
                self._automaton = None
            (self._literals.add if watch else self._literals.discard)(literal)
            self._frequent.discard(literal)

    def _at_once(self, block: TextBlock) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = defaultdict(list)
        view = memoryview(block.data)
        at = block.begin
        while at < block.end:
            automaton = self._automaton or self._build()
            end = min(at + self._slice, block.end)
            sight = min(end + self._longest, len(block.data))
            here: dict[int, list[int]] = defaultdict(list)
            for index, start, _ in automaton.find_matches_as_indexes(view[at:sight], overlapping=True):
                if start < end - at:
                    here[index].append(at + start)
            for index, places in here.items():
                found[self._built[index]] += _both_ends(places)
            many = FREQUENT * max(1, (end - at) // SLICE_BYTES)
            often = [self._built[index] for index, places in here.items() if len(places) > many]
            if often and self._builds < MOST_BUILDS:
                self._frequent.update(self._literals.intersection(often))
                self._automaton = None
            little = sum(map(len, here.values())) < LITTLE
            self._slice = min(2 * self._slice, LARGEST_SLICE_BYTES) if little else SLICE_BYTES
            at = end
        return {literal: _both_ends(places) for literal, places in found.items() if literal in self._literals}

    def _build(self) -> "BytesAhoCorasick":
        from ahocorasick_rs import BytesAhoCorasick, Implementation

        self._built = sorted(self._literals - self._frequent)
        self._automaton = BytesAhoCorasick(self._built or [b"\0\0no literal\0\0"], implementation=Implementation.DFA)
        self._longest = max(map(len, self._built), default=1) - 1
        self._builds += 1
        return self._automaton

    @staticmethod
    def _plainly(block: TextBlock, literals: Iterable[bytes]) -> dict[bytes, list[int]]:
        """The first and the last places of each literal, by a plain search from both ends."""
        found: dict[bytes, list[int]] = {}
        for literal in literals:
            sight = min(len(block.data), block.end + len(literal) - 1)
            places: list[int] = []
            at = block.data.find(literal, block.begin, sight)
            while at >= 0 and len(places) < MOST_PER_BLOCK // 2:
                places.append(at)
                at = block.data.find(literal, at + 1, sight)
            if at >= 0:
                ends: list[int] = []
                floor, at = places[-1], block.data.rfind(literal, block.begin, sight)
                while at > floor and len(ends) < MOST_PER_BLOCK // 2:
                    ends.append(at)
                    at = block.data.rfind(literal, floor, at + len(literal) - 1)
                places += reversed(ends)
            if places:
                found[literal] = places
        return found


def _both_ends(places: list[int]) -> list[int]:
    half = MOST_PER_BLOCK // 2
    return places if len(places) <= MOST_PER_BLOCK else places[:half] + places[-half:]
