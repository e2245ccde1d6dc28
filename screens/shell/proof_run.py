"""A run for proof in the background: it goes on, and its result is kept, when the screen of the fix is left."""

import time
from typing import TYPE_CHECKING

from ...app.errors import UserError
from ...app.fixes.types import Fix

if TYPE_CHECKING:
    from textual.worker import Worker

    from ...app.fixes.flow import FixFlow
    from ...app.fixes.proof import ProofResult
    from ...app.fixes.proof_plan import ProofPlan
    from ...app.probes.context import ProbeContext
    from ...knowledge.schema import Intrusiveness


class ProofRun:
    """The proof of one fix: ``text`` is what happens now; ``result`` or ``error`` is set when it has ended."""

    def __init__(self, limit_s: float) -> None:
        self.text = "proving"
        self.limit_s = limit_s
        self.since = time.monotonic()
        self.result: ProofResult | None = None
        self.error: UserError | None = None
        self.worker: Worker[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.worker is not None and not self.worker.is_finished

    async def prove(
        self,
        flow: "FixFlow",
        fix: Fix,
        plan: "ProofPlan | None",
        context: "ProbeContext",
        granted: "Intrusiveness",
    ) -> None:
        """Run the proof and keep its result."""
        try:
            self.result = await flow.prove(fix, context, granted, plan=plan, progress=self.show_progress)
        except UserError as error:
            self.error = error

    def show_progress(self, text: str) -> None:
        self.text = f"proving: {text}"
