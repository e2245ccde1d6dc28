"""Number the starts of a job in one text."""

MOST_ATTEMPTS = 99


class AttemptCounter:
    """Counts the starts of the job in a text. Several agents may report the same restart; it counts once.

    A text may be the logs of several nodes, one after the other: a launcher that started while the one before it still
    ran is that of another node, not a new start of the job.
    """

    def __init__(self, current: int = 0) -> None:
        self.current = current
        self._first = current  # attempt of the last start of the job
        self._began_s: float | None = None
        self._ended_s: float | None = None
        self._ended = False
        self._left: set[str] = set()

    def restart(self, values: dict[str, str]) -> None:
        """Count a restart of the workers reported by an agent."""
        if "count" in values:
            self.current = max(self.current, int(values["count"]))
        elif values["left"] not in self._left:
            self._left.add(values["left"])
            self.current += 1
        self.current = min(self.current, MOST_ATTEMPTS)
        self._ended = False

    def start(self, time_s: float | None) -> None:
        """Count the start of a launcher as a new attempt if the job has ended before."""
        if not self._ended:
            self._began_s = time_s if self._began_s is None else self._began_s
            return
        if self._is_of_another_node(time_s):
            self.current = self._first
        else:
            self._first = self.current = min(self.current + 1, MOST_ATTEMPTS)
            self._began_s = time_s
        self._ended = False
        self._left.clear()

    def end(self, time_s: float | None) -> None:
        """Note that a launcher has reported its end."""
        self._ended, self._ended_s = True, time_s

    def _is_of_another_node(self, time_s: float | None) -> bool:
        """Return whether a launcher started in the first half of the time in which the one before it ran."""
        if time_s is None or self._began_s is None or self._ended_s is None:
            return False
        return time_s < (self._began_s + self._ended_s) / 2
