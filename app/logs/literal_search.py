"""Search a text of any size for many literals in one pass.

An Aho-Corasick automaton searches for all literals of the knowledge base at once; ``matcher`` applies the regular
expressions. A literal that occurs on very many lines leaves the automaton and is searched at both ends of each block
only, so that no text can make the search slow: its first and last occurrences count.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick

SMALL_BYTES = 96 << 10  # below, plain searches are faster than building the automaton
SLICE_BYTES = 256 << 10  # searched by one call of the automaton; grows while there are few matches
LARGEST_SLICE_BYTES = 4 << 20
LITTLE = 4000  # matches in one slice
BACK_BYTES = 64 << 10  # kept before a block …
AHEAD_BYTES = 192 << 10  # … and after it
MOST_PER_BLOCK = 400  # matches of one literal in a block, half from either end
FREQUENT = 60  # matches in ``SLICE_BYTES`` that make a literal frequent
RARE = 20  # matches in one block that make it rare again
MOST_BUILDS = 48
STRIPE_BYTES = 16 << 10


class TextBlock(msgspec.Struct):
    """A part of a text: ``data[begin:end]`` is new, the rest is its surroundings.

    ``offset`` is the position of ``data[0]`` in the text, ``line`` the number of the line of ``data[begin]``.
    """

    data: bytes
    begin: int
    end: int
    offset: int
    line: int
    last: bool
    _stripes: list[int] = msgspec.field(default_factory=list)  # line numbers at every ``STRIPE_BYTES``

    def number(self, at: int) -> int:
        """Return the number of the line that contains ``data[at]``."""
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
    """Yield the chunks as overlapping blocks, so that no match is cut at their borders."""
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
    """Searches blocks for literals; ``watch`` adds a literal between blocks."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        self._literals = set(literals)
        self._frequent: set[bytes] = set()
        self._built: list[bytes] = []
        self._automaton: BytesAhoCorasick | None = None
        self._longest = 0
        self._builds = 0
        self._seen_bytes = 0
        self._slice = SLICE_BYTES
        self._requests: list[tuple[bytes, bool]] = []

    def watch(self, literal: bytes) -> None:
        """Search for one more literal, from the next block that is not scanned yet."""
        self._requests.append((literal, True))

    def forget(self, literal: bytes) -> None:
        """Stop searching for a watched literal."""
        self._requests.append((literal, False))

    def look_ahead(self, blocks: Iterable[TextBlock]) -> Iterator[tuple[TextBlock, dict[bytes, list[int]]]]:
        """Yield blocks with their matches; in a long text a thread scans the next block meanwhile."""
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
        """Return the offsets of each literal in ``block.data`` in order; of frequent ones the first and last few."""
        self._apply_requests()
        self._seen_bytes += block.end - block.begin
        if self._automaton is None and self._seen_bytes <= SMALL_BYTES:
            return self._find_each(block, self._literals)
        found = self._find_all(block)
        frequent = self._find_each(block, self._frequent)
        for literal, places in frequent.items():
            if len(places) < RARE and self._builds < MOST_BUILDS:
                self._frequent.discard(literal)
                self._automaton = None
            found[literal] = places
        return found

    def _apply_requests(self) -> None:
        """Apply the requests since the last block. Forgotten literals stay in the automaton until it is rebuilt."""
        while self._requests:
            literal, watch = self._requests.pop(0)
            if watch and literal not in self._built:
                self._automaton = None
            (self._literals.add if watch else self._literals.discard)(literal)
            self._frequent.discard(literal)

    def _find_all(self, block: TextBlock) -> dict[bytes, list[int]]:
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
                found[self._built[index]] += _first_and_last(places)
            many = FREQUENT * max(1, (end - at) // SLICE_BYTES)
            often = [self._built[index] for index, places in here.items() if len(places) > many]
            if often and self._builds < MOST_BUILDS:
                self._frequent.update(self._literals.intersection(often))
                self._automaton = None
            little = sum(map(len, here.values())) < LITTLE
            self._slice = min(2 * self._slice, LARGEST_SLICE_BYTES) if little else SLICE_BYTES
            at = end
        return {literal: _first_and_last(places) for literal, places in found.items() if literal in self._literals}

    def _build(self) -> "BytesAhoCorasick":
        from ahocorasick_rs import BytesAhoCorasick, Implementation

        self._built = sorted(self._literals - self._frequent)
        self._automaton = BytesAhoCorasick(self._built or [b"\0\0no literal\0\0"], implementation=Implementation.DFA)
        self._longest = max(map(len, self._built), default=1) - 1
        self._builds += 1
        return self._automaton

    @staticmethod
    def _find_each(block: TextBlock, literals: Iterable[bytes]) -> dict[bytes, list[int]]:
        """Find the first and last offsets of each literal by plain searches from both ends."""
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


def _first_and_last(places: list[int]) -> list[int]:
    half = MOST_PER_BLOCK // 2
    return places if len(places) <= MOST_PER_BLOCK else places[:half] + places[-half:]
