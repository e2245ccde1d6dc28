"""The output of programs that train nothing: it is out of scope by itself, and no evidence in the log of a job."""

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.intake import add_to_case
from ddpwizard.app.evidence import Diagnosis
from ddpwizard.app.logs.programs import is_line_of_other_program, other_program_in
from ddpwizard.app.logs.read import source_of_text
from helpers.built_in_knowledge import built_in_knowledge

WEB_SERVER = """\
caddy: [error] listening on :443: bind: Address already in use
Dec 01 08:00:11 www1 systemd[1]: caddy.service: Main process exited, code=exited, status=1/FAILURE
Dec 01 08:00:11 www1 systemd[1]: caddy.service: Failed with result 'exit-code'.
"""
DATABASE = """\
Dec 01 09:30:40 db1 kernel: mariadbd invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
Dec 01 09:30:40 db1 kernel: Out of memory: Killed process 702 (mariadbd) total-vm:9211220kB, anon-rss:8012220kB
Dec 01 09:30:41 db1 systemd[1]: mariadb.service: Main process exited, code=killed, status=9/KILL
"""
POD = """\
Name:         basket-5f7d
Status:       Running
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
  Warning  BackOff    2m    kubelet   Back-off restarting failed container basket in pod basket-5f7d
"""
WEB_APPLICATION = """\
[2026-12-01 10:00:00 +0000] [12] [ERROR] Exception on /pay [POST]
Traceback (most recent call last):
  File "/srv/pay/views.py", line 12, in pay
    return charge(request)
requests.exceptions.ConnectionError: HTTPSConnectionPool(host='bank', port=443): Max retries exceeded with url: /charge
[2026-12-01 10:00:30 +0000] [1] [CRITICAL] WORKER TIMEOUT (pid:12)
"""
KILLED_RANK = """\
[  812.001201] Out of memory: Killed process 4410 (python3) total-vm:81220044kB, anon-rss:60112204kB
[  812.001899] oom_reaper: reaped process 4410 (python3), now anon-rss:0kB, file-rss:0kB
"""
UNUSED = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/user/train.py", line 40, in <module>
[rank1]:     loss.backward()
[rank1]: RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.
"""


def diagnose(text: str, **answers: str) -> Diagnosis:
    case = Case(built_in_knowledge())
    found = add_to_case(case, [source_of_text(text, "<text>")])
    for question, answer in answers.items():
        case.answer(question.replace("_", "-"), answer)
    return case.diagnosis(in_scope=found.in_scope or bool(answers))


@pytest.mark.parametrize("text", [WEB_SERVER, DATABASE, POD, WEB_APPLICATION])
def test_other_programs_are_out_of_scope(text: str):
    found = diagnose(text)
    assert not found.in_scope
    assert found.other > 0.95
    assert not found.named(3)


def test_a_long_log_of_another_program_is_out_of_scope():
    assert not diagnose(WEB_SERVER * 400).in_scope


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (KILLED_RANK, "host-ram-oom"),
        ("RuntimeError: Address already in use", "port-in-use"),
        (WEB_SERVER + "Our 4 ranks cannot start any more, the master port is said to be taken.", "port-in-use"),
        (UNUSED + WEB_SERVER + DATABASE, "unused-parameters"),
        (DATABASE + UNUSED, "unused-parameters"),
        (DATABASE + KILLED_RANK, "host-ram-oom"),
    ],
)
def test_a_training_job_among_other_programs_is_diagnosed(text: str, cause: str):
    found = diagnose(text)
    assert found.in_scope
    assert found.causes[0].id == cause
    assert found.causes[0].confidence > 0.5


def test_an_answer_shows_a_training_job():
    assert diagnose(POD, symptom="crashes").causes[0].id == "host-ram-oom"


@pytest.mark.parametrize(
    ("line", "is_other"),
    [
        ("Dec  1 08:00:11 login sshd[811]: error: kex_exchange_identification: Connection reset by peer", True),
        ("2026-12-01T08:00:11+01:00 www1 haproxy[90]: backend has no server available!", True),
        ("caddy: [error] bind: Address already in use", True),
        ("Out of memory: Killed process 702 (mariadbd) total-vm:9211220kB", True),
        ("Out of memory: Killed process 702 (pt_data_worker) total-vm:9211220kB", False),
        ("Dec  1 08:00:11 node7 slurmstepd[811]: error: Detected 1 oom_kill event", False),
        ("Dec  1 08:00:11 node7 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", False),
        ("node7[12]: RuntimeError: Address already in use", False),
        ("[rank3]: RuntimeError: Address already in use", False),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:83] DefaultCPUAllocator: can't allocate memory", False),
    ],
)
def test_lines_of_other_programs(line: str, is_other: bool):
    assert is_line_of_other_program(line) is is_other


@pytest.mark.parametrize(
    "text",
    [
        "One of our five MongoDB nodes does not come back, the others report that its heartbeat timed out.",
        "gmx_mpi on two machines: GROMACS stops, fatal error in domain decomposition of rank-free groups.",
        "ComfyUI, a picture of 2048 pixels:\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ],
)
def test_a_description_that_names_a_program_that_trains_nothing_is_about_something_else(text: str):
    found = diagnose(text)
    assert found.causes[0].confidence < 0.3


@pytest.mark.parametrize(
    "text",
    [
        "torchrun with the etcd rendezvous: one of our five nodes does not come back, its heartbeat timed out.",
        "Rendezvous over etcd is closed when the second node joins.",
        "Each of the 4 ranks reads its shard from Redis, rank 2 hangs.",
        "The data loader of our training reads from Kafka and stalls on one of two machines.",
    ],
)
def test_a_job_that_uses_another_program_is_a_training_job(text: str):
    assert not other_program_in(text, built_in_knowledge())
