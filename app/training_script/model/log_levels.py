"""Levels of loggers: what a rank logs, and whether it computes something for that, may depend on the rank."""

from .keys import Key, Keys

LEVELS = {"NOTSET": 0, "DEBUG": 10, "INFO": 20, "WARNING": 30, "WARN": 30, "ERROR": 40, "CRITICAL": 50, "FATAL": 50}
LOGGER = "logger"  # with its name
GET_LOGGER = "logging.getLogger"
SETS_ROOT = "logging.basicConfig"


class LogLevels:
    """The levels of the loggers of a program, as far as it sets them."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._set: dict[Key, Key] = {}
        self._root = self.logger(keys.none)

    def logger(self, name: Key) -> Key:
        """Return the logger of a name, that of the root without one."""
        return self._keys.make(LOGGER, self._keys.none if name.is_constant and not name.value else name)

    def store(self, logger: Key | None, level: Key, condition: Key) -> None:
        """Keep the level that a logger gets under a condition, None for that of the root."""
        logger = logger or self._root
        before = self._set.get(logger) or self._keys.make("level", logger)
        self._set[logger] = self._keys.either(condition, self._number(level), before)

    def of(self, logger: Key) -> Key | None:
        """Return the level of a logger, that of the root if it has none of its own; None if the program sets none."""
        return self._set.get(logger) or self._set.get(self._root)

    def is_enabled(self, logger: Key, level: Key) -> Key | None:
        """Return whether a logger shows messages of a level."""
        own = self.of(logger)
        return own and self._keys.make("compare", "LtE", own, self._number(level))

    def _number(self, level: Key) -> Key:
        """Return a level as the number of each of its choices."""
        name = str(level.args[0]) if level.op == "library" or level.is_constant else ""
        known = LEVELS.get(name.removeprefix("logging."))
        if known is not None:
            return self._keys.constant(known)
        if level.op != "if":
            return level
        test, *sides = level.args
        return self._keys.either(test, *map(self._number, sides))
