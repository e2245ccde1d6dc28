"""The steps of context managers around those of their bodies."""

from collections.abc import Sequence

from .function_steps import Attempt, Branch, Item, Leave, Noted, Pause, Rounds

LEFT_BY = ("return", "next", "break")


def with_body(items: list[Item], body: list[Item], behind: Sequence[Item] = ()) -> list[Item]:
    """Return the steps of a context manager around those of a body, which may leave it early.

    ``behind``: the steps of the context manager after these.
    """
    found: list[Item] = []
    for place, item in enumerate(items):
        later = [*items[place + 1 :], *behind]
        match item:
            case Pause():
                found += before_leaving(body, later) if later else body
            case Branch(then=then, other=other):
                found.append(item._replace(then=with_body(then, body, later), other=with_body(other, body, later)))
            case Attempt(body=tried, handler=handler):
                found.append(item._replace(body=with_body(tried, body, later), handler=handler))
            case _:
                found.append(item)
    return found


def before_leaving(items: list[Item], steps: list[Item], kinds_left: Sequence[str] = LEFT_BY) -> list[Item]:
    """Return items with further steps before ranks leave them."""
    found: list[Item] = []
    for item in items:
        match item:
            case Leave(kind=kind) if kind in kinds_left:
                found += [*steps, item]
            case Branch(then=then, other=other):
                then, other = (before_leaving(each, steps, kinds_left) for each in (then, other))
                found.append(item._replace(then=then, other=other))
            case Attempt(body=tried, handler=handler):
                tried, handler = (before_leaving(each, steps, kinds_left) for each in (tried, handler))
                found.append(item._replace(body=tried, handler=handler))
            case Rounds(body=inner, rest=rest):
                inner, rest = before_leaving(inner, steps, ("return",)), before_leaving(rest, steps, kinds_left)
                found.append(item._replace(body=inner, rest=rest))
            case _:
                found.append(item)
    return found


def has_notes(items: list[Item]) -> bool:
    """Return whether a rule may ask for one of these steps, which only the conditions of a function are around."""
    for item in items:
        match item:
            case Noted():
                return True
            case Branch(then=first, other=second):
                if has_notes(first) or has_notes(second):
                    return True
            case _:
                pass
    return False


def count_leaves(items: list[Item]) -> int:
    """Return how often steps leave a function before its end."""
    count = 0
    for item in items:
        match item:
            case Leave(kind="return"):
                count += 1
            case Branch(then=first, other=second) | Attempt(first, second):
                count += count_leaves(first) + count_leaves(second)
            case _:
                pass
    return count
