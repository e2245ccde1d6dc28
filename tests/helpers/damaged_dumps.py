"""Dumps that were damaged or made to do harm."""

import pickle
import random
import struct
from typing import Any

from helpers.flight_recorder_dumps import dump, entry, in_json, pickled

OPCODES = b"cRibo\x81\x93\x92r\x8b\x8aJXB\x94]}(te2"
LARGE = [0, 1, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1]


def wholesome() -> list[bytes]:
    """A dump of each form, with most of what dumps hold."""
    entries = [entry(number, op=f"nccl:{op}", done=number < 18) for number, op in enumerate(["all_reduce"] * 16)]
    entries += [entry(16, op="nccl:send 0->1", p2p=True, done=False), entry(17, op="nccl:_all_gather_base", done=False)]
    whole = dump(entries, {"0": range(4)})
    gloo = dump([entry(number, op="gloo:all_reduce", done=number < 5) for number in range(6)])
    return [pickled(whole), in_json(whole), pickled(gloo), in_json(gloo)]


def with_shared_values(random_: random.Random) -> bytes:
    """A dump in which containers hold references to others, in any field."""
    made: list[Any] = [[random_.choice(LARGE)], "x" * random_.choice([1, 10_000])]
    for _ in range(random_.randrange(1, 20)):
        inside = [random_.choice(made) for _ in range(random_.choice([1, 2, 10, 100]))]
        made.append(random_.choice([list, tuple])(inside))
    content = dump([entry(number) for number in range(random_.choice([1, 2, 50]))], {"0": range(4)})
    for _ in range(random_.randrange(1, 4)):
        where = random_.choice([content, content["pg_config"]["0"], *content["entries"]])
        where[random_.choice([*where])] = random_.choice(made)
        if where is content:
            break
    return pickle.dumps(content, random_.choice([2, 4]))


def mutated(random_: random.Random, data: bytes) -> bytes:
    """The same with one to eight changes of any kind."""
    changed = bytearray(data)
    for _ in range(random_.choice([1, 1, 2, 3, 8])):
        at = random_.randrange(len(changed) or 1)
        match random_.randrange(9):
            case 0:
                changed[at : at + 1] = bytes([random_.randrange(256)])
            case 1:
                changed[at : at + 1] = bytes([random_.choice(OPCODES)])
            case 2:
                del changed[at:]
            case 3:
                del changed[at : at + random_.choice([1, 4, 100])]
            case 4:
                changed[at:at] = changed[at // 2 : at // 2 + random_.choice([1, 5, 300])]
            case 5:
                changed[at : at + 4] = struct.pack("<I", random_.choice(LARGE))
            case 6:
                changed[at:at] = random_.randbytes(random_.choice([1, 4, 64]))
            case 7:
                changed[at:at] = random_.choice([b"(", b"]", b"}", b"[", b'{"a":', b"9" * 40]) * random_.choice(
                    [1, 5000]
                )
            case _:
                changed[at : at + 2] = b"r" + struct.pack("<I", random_.choice(LARGE))
        if not changed:
            return b""
    return bytes(changed)
