"""Messages of the job of a lab to its screen."""

from textual.message import Message

from ...app.errors import UserError
from ...app.labs.lab_diagnosis import Repair
from ...app.labs.lab_proof import LabProof
from ...app.triage.types import JobReport


class LogRead(Message):
    """The log of a lab that runs nothing is diagnosed."""


class OriginalRan(Message):
    """The run of the original before a proof has ended: the next lines are of the learner's copy."""


class Printed(Message):
    """The job has printed a line."""

    def __init__(self, line: str) -> None:
        super().__init__()
        self.line = line


class Sampled(Message):
    """The ranks of the job were sampled."""

    def __init__(self, report: JobReport) -> None:
        super().__init__()
        self.report = report


class RepairMade(Message):
    """The fix of the wizard was made for the learner's copy, or could not be."""

    def __init__(self, repair: Repair | UserError) -> None:
        super().__init__()
        self.repair = repair


class RunEnded(Message):
    """A run has ended: ``shown`` as the lab describes it, or with ``proof`` the result of the repaired job."""

    def __init__(self, shown: bool = False, proof: LabProof | None = None, error: UserError | None = None) -> None:
        super().__init__()
        self.shown, self.proof, self.error = shown, proof, error
