"""The two kinds of errors of the wizard: what happened and where, and what to do next, in one line."""

from .exit_codes import ExitCode


class UserError(Exception):
    """A request that cannot be met as given: bad usage, unreadable input, a target that is gone.

    ``message`` describes the problem and its place, ``next_step`` what the user can do about it.
    """

    exit_code: int = ExitCode.USAGE

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message} → {self.next_step}" if self.next_step else self.message


class InspectionError(UserError):
    """The request is valid, but the machine cannot be inspected (permission, missing tool, no /proc)."""

    exit_code = ExitCode.NOT_INSPECTED
