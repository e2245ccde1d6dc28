"""A launcher that received a signal: the log names no cause, unless something had failed before."""

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.dialogue import STOPPED_JOB, no_cause_text
from ddpwizard.app.diagnosis.intake import add_to_case
from ddpwizard.app.evidence import STOPPED, Diagnosis
from ddpwizard.app.logs.read import source_of_text
from helpers.built_in_knowledge import built_in_knowledge

AGENT = "torch/distributed/elastic"


def stop(signal: int, name: str) -> str:
    return f"""\
W1126 20:44:37.735000 430 {AGENT}/agent/server/api.py:753] Received {signal} death signal, shutting down workers
W1126 20:44:37.735000 430 {AGENT}/multiprocessing/api.py:1028] Sending process 449 closing signal {name}
W1126 20:44:37.745000 430 {AGENT}/multiprocessing/api.py:1028] Sending process 450 closing signal {name}
"""


def end(signal: int) -> str:
    return f"""\
Traceback (most recent call last):
  File "/opt/env/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/env/lib/python3.11/site-packages/{AGENT}/multiprocessing/api.py", line 86, in _terminate_process_handler
    raise SignalException(f"Process {{os.getpid()}} got signal: {{sigval}}", sigval=sigval)
torch.distributed.elastic.multiprocessing.api.SignalException: Process 430 got signal: {signal}
"""


INTERRUPTED = "".join(
    f"""\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/home/u/train.py", line 19, in main
[rank{rank}]:     model = DDP(net)
[rank{rank}]: KeyboardInterrupt
"""
    for rank in (1, 0)
)
ERROR = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/u/train.py", line 12, in <module>
[rank1]:     raise ValueError("row 41: expected 8 columns, got 7")
[rank1]: ValueError: row 41: expected 8 columns, got 7
"""
SIGTERM, SIGINT = stop(15, "SIGTERM") + end(15), stop(2, "SIGINT") + INTERRUPTED + end(2)


def diagnose(text: str) -> Diagnosis:
    case = Case(built_in_knowledge())
    return case.diagnosis(in_scope=add_to_case(case, [source_of_text(text, "/x.log")]).in_scope)


@pytest.mark.parametrize("text", [SIGTERM, SIGINT])
def test_a_signal_to_the_launcher_names_no_cause(text: str):
    diagnosis = diagnose(text)
    assert diagnosis.was_stopped
    assert diagnosis.named(3) == []
    assert no_cause_text(diagnosis) == STOPPED_JOB


def test_an_error_before_the_signal_ranks_as_without_it():
    found, alone = diagnose(ERROR + SIGTERM), diagnose(ERROR + stop(15, "SIGTERM").partition("\n")[2])
    assert not found.was_stopped
    assert found.named(1)[0].id == alone.named(1)[0].id == "script-error"


def test_a_closed_terminal_is_a_cause():
    diagnosis = diagnose(stop(1, "SIGHUP") + end(1))
    assert diagnosis.named(1)[0].id == "worker-exit-no-traceback"


def test_the_scheduler_that_stopped_the_job_is_a_cause():
    why = "slurmstepd: error: *** JOB 4711 ON c12 CANCELLED AT 2026-03-02T04:11:09 DUE TO PREEMPTION ***\n"
    assert diagnose(why + SIGTERM).named(1)[0].id == "node-preempted"


def test_the_finding_names_the_line_of_the_signal():
    found = {item.id: item for item in diagnose("epoch 1\n" + SIGTERM).evidence}
    assert found[STOPPED].where == "/x.log:2"
    assert "log.only-consequences" not in found
