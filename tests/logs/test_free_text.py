"""Phrases that are not searched, because the text lacks one of their stems, would not have matched."""

import re
import time

import msgspec
import pytest
from ddpwizard.app.evidence import answer_id
from ddpwizard.app.logs.free_text import match_free_text, mentions_multiple_ranks
from ddpwizard.app.logs.prose import prose_of, without_expectations, without_options
from ddpwizard.knowledge.stemming import clue_stems
from helpers.built_in_knowledge import built_in_knowledge
from hypothesis import given, settings
from hypothesis import strategies as st

KNOWLEDGE = built_in_knowledge()
CLUES = [clue.all for cause in KNOWLEDGE.causes.values() for clue in cause.clues]
ANSWERS = [terms for asked in KNOWLEDGE.questions.values() for ways in asked.heard.values() for terms in ways]
SYNONYMS = [word for group in KNOWLEDGE.synonyms for word in group]
PHRASES = sorted({phrase for terms in (*CLUES, *ANSWERS, SYNONYMS) for term in terms for phrase in term.split("|")})
SEARCHES_EVERYTHING = msgspec.structs.replace(KNOWLEDGE, stems={})

ended = st.sampled_from(["", "s", "ed", "ing", "ation", "ies", "ly", "-wise", "_id", "\u0301", "'s", "*", '"'])
cased = st.sampled_from([str.lower, str.upper, str.title])
between = st.sampled_from([" ", " the ", "\n", ", ", "-", "\x00", "\u3000", " one ", " on "])
written = st.builds(
    lambda phrase, end, case, after: case(phrase.strip().removesuffix("*") + end) + after,
    st.sampled_from(PHRASES),
    ended,
    cased,
    between,
)
whole = st.sampled_from([*CLUES, *ANSWERS]).map(
    lambda terms: "".join(f"{term.split('|')[-1].strip().removesuffix('*')} " for term in terms)
)


@settings(max_examples=settings().max_examples // 12)
@given(st.lists(written | whole, max_size=20).map("".join))
def test_matches_are_the_same_as_with_every_search(text: str) -> None:
    assert match_free_text(text, "x", KNOWLEDGE) == match_free_text(text, "x", SEARCHES_EVERYTHING)


def test_stems_of_all_phrases_are_known() -> None:
    unknown = [phrase for phrase in PHRASES if phrase not in KNOWLEDGE.stems and re.search(r"[a-z0-9]", phrase)]
    assert unknown == []


def test_clue_stems_are_those_of_the_full_text_search() -> None:
    found = clue_stems([], [], [["one GPU", "allocates memory*", 'so-called "hang"', "--"]])
    assert found == {
        "one GPU": "onn gpu",
        "allocates memory*": "alloc memori|memory",
        'so-called "hang"': "so call hang",
    }


TORCHRUN_LOG = """\
W1123 00:09:40.012000 3194 torch/distributed/run.py:874] Setting OMP_NUM_THREADS environment variable for each process \
to be 1 in default, to avoid your system being overloaded, please further tune the variable for optimal performance in \
your application as needed.
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/pool/popen pipe/hang lock/train.py", line 15, in <module>
[rank0]:     loss.backward()
[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] {message}
E1123 00:09:43.865000 3194 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0 \
(pid: 3198) of binary: /home/pool/popen/bin/python3.11
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
/home/pool/popen/hang/lock/train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_00:09:43
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 3198)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
PEER_GONE = (
    "Connection closed by peer [127.0.0.1]:9949. This is typically caused by a remote worker crashing. Check the logs "
    "of the remote worker before reporting an error. GLHF!",
    "Read error [127.0.0.1]:9949: Connection reset by peer. This is typically caused by a remote worker hanging or "
    "bugs in the application. Check the logs of the remote worker before reporting an error. GLHF!",
    "writev [127.0.0.1]:9949: Broken pipe. This is typically caused by a remote worker hanging or bugs in the "
    "application. Check the logs of the remote worker before reporting an error. GLHF!",
)


@pytest.mark.parametrize("message", PEER_GONE)
def test_lines_of_torchrun_describe_nothing(message: str) -> None:
    assert match_free_text(TORCHRUN_LOG.format(message=message), "x", KNOWLEDGE) == []


def test_a_notice_of_a_library_describes_nothing_to_the_end_of_its_line() -> None:
    notice = TORCHRUN_LOG.split("] ", 1)[1].split("\n")[0]
    assert prose_of(f"*** {notice}\nRank 1 hangs.", KNOWLEDGE).split() == ["Rank", "1", "hangs."]


@pytest.mark.parametrize(
    "line",
    [
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1)",
        "[rankN] Watchdog caught collective operation timeout:\nWorkNCCL(SeqNum=..., OpType=ALLGATHER, ...)",
    ],
)
def test_message_of_the_watchdog_describes_nothing_where_a_person_has_shortened_it(line: str) -> None:
    kept = prose_of(f"Validation stops:\n\n{line}\n\nOnly with the large set.", KNOWLEDGE)
    assert "timeout" not in kept and "WorkNCCL(SeqNum" not in kept
    assert "Validation stops:" in kept and "Only with the large set." in kept


def test_variables_of_a_command_describe_nothing_unless_they_are_few() -> None:
    command = "I set MASTER_ADDR=10.0.0.1, NNODES=2, NODE_RANK=1 and start it"
    assert without_options(command).split() == ["I", "set", ",", ",", "and", "start", "it"]
    few = "hangs with NCCL_P2P_DISABLE=0, not with NCCL_P2P_DISABLE=1"
    assert without_options(few) == few


def test_directories_of_a_script_describe_nothing() -> None:
    plain = "my training hangs, see train.py"
    assert match_free_text(plain.replace("train.py", "/tmp/popen/filelock/fork/train.py"), "x", KNOWLEDGE) == (
        match_free_text(plain, "x", KNOWLEDGE)
    )


RULED_OUT = [
    ("The shared memory is as it should be (64 GB), yet", "shared memory"),
    ("P2P is fine, the bandwidth test passes.", "bandwidth"),
    ("find_unused_parameters is not the problem,", "unused"),
    ("It has nothing to do with the DataLoader workers:", "DataLoader"),
    ("I thought it was the learning rate, which", "learning rate"),
    ("Neither InfiniBand nor RoCE is involved,", "RoCE"),
    ("I suspected the network, but it was not:", "network"),
    ("The disk isn't the bottleneck,", "disk"),
    ("It is not memory,", "memory"),
    ("Not the data loader;", "loader"),
    ("The GPUs wait, not kernel-launch or tokenizer bound (ruled out).", "tokenizer"),
    ("The cables have been ruled out,", "cables"),
    ("A swap rules out the switch,", "switch"),
    ("The download was not the hold-up.", "download"),
    ("Host memory is sufficient,", "memory"),
    ("The disk space and the quota are enough.", "quota"),
]


@pytest.mark.parametrize(("clause", "thing"), RULED_OUT)
def test_what_a_person_has_ruled_out_is_not_prose(clause: str, thing: str) -> None:
    kept = prose_of(f"{clause} two ranks hang in all_reduce.", KNOWLEDGE)
    assert thing not in kept and "two ranks hang in all_reduce" in kept


def test_lines_of_numbers_and_of_an_aborted_program_are_not_prose() -> None:
    text = "Both ranks print the same loss.\n0.6931\n 12 | 34.5 %\n"
    text += "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    text += "  what():  [enforce fail at pair.cc:1]\n"
    assert prose_of(text, KNOWLEDGE).split("\n") == ["Both ranks print the same loss.", *[""] * 5]
    assert "enforce fail" in prose_of(text, KNOWLEDGE, errors=True)


@pytest.mark.parametrize(
    "phrase",
    [
        "On one GPU everything is fine, on two it hangs.",
        "The first epoch is fine, then rank 1 waits.",
        "Training without DDP is fine.",
        "It is not responding after step 3.",
        "The loss is not correct.",
        "It hangs on GPUs. Not on CPUs.",
        "It works with one GPU, not with 4 GPUs.",
        "Host memory is not enough for both.",
        "One card is enough for the model.",
    ],
)
def test_when_it_works_is_prose(phrase: str) -> None:
    assert prose_of(phrase, KNOWLEDGE) == phrase


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("I expect fewer batches per GPU, but each GPU has all.", ", but each GPU has all."),
        ("With 8 GPUs, which should result in fewer steps, it is slow.", "With 8 GPUs,  ."),
        ("We hoped for a speedup. It is slower.", ". It is slower."),
        ("## Expected behavior\n\nTraining ends.\n\n## Actual\nIt hangs.", "## Actual\nIt hangs."),
        ("Each rank should see its part; it sees all.", "Each rank should see its part; it sees all."),
    ],
)
def test_what_a_person_expected_is_no_observation(text: str, kept: str) -> None:
    assert without_expectations(text).strip() == kept
    assert without_expectations(text).count("\n") == text.count("\n")


def test_an_expectation_answers_no_question() -> None:
    expected, seen = (
        {item.id for item in match_free_text(f"Two ranks, DDP. {sentence}", "x", KNOWLEDGE)}
        for sentence in ("I expected fewer batches per rank.", "Rank 1 has fewer batches.")
    )
    assert answer_id("samples-seen", "unequal-counts") in seen - expected


LONG = ["\n" * 8000, "a b c d e f " * 600, "the x " * 1300, "not the " * 1000, "is " * 2600, "I expect " * 900]


@pytest.mark.parametrize("text", LONG)
def test_long_texts_without_a_clause_take_no_time(text: str) -> None:
    started = time.thread_time()
    without_expectations(prose_of(text, KNOWLEDGE))
    assert time.thread_time() - started < 2


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("Training on two GPUs ends with\nRuntimeError: out of cards", True),
        ("One card.\nRuntimeError: this kernel needs newer GPUs", False),
        ("CUDA_VISIBLE_DEVICES=3, job 334542 on A100", False),
        ("64 A100 in all", True),
        ("RuntimeError: Timed out initializing process group in store based barrier on rank: 7", True),
        ("Do I have to call model_engine.backward(loss), or is loss.backward() enough?", True),
        ("hvd.init() hangs", True),
        ("With pipeline parallelism the first stage waits for ever", True),
        ("tensor_parallel_size=4, the server does not answer", True),
        ("tensor_parallel_size=1, the server does not answer", False),
        ("joblib.Parallel of scikit-learn uses no core", False),
        ("TP=4, PP=2: the loss is wrong", True),
        ("top_p=0.9, temp=2", False),
        ("torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients", True),
        ("RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 30000 ms", True),
        ("RuntimeError: Expected a tensor of rank 3 but got rank 2", False),
    ],
)
def test_several_ranks_are_mentioned_by_a_person_or_by_an_exception_of_communication(text: str, mentions: bool):
    assert mentions_multiple_ranks(text, KNOWLEDGE) == mentions


METRICS = "".join(f"epoch {number} acc {90 + number / 8} lr 3e-4\n" for number in range(4))


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        (METRICS, False),
        ("\n".join(METRICS.split("\n")[:2]), True),
        (f"Accuracy falls behind the run on one GPU by a whole point.\n\n{METRICS}", True),
        (METRICS.replace("3e-4", "nan"), True),
        ("".join(f"packing acc shard {number} of 9\n" for number in range(4)), True),
        (
            METRICS + "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-20T12:00:00 DUE TO TIME LIMIT ***\n",
            False,
        ),
    ],
    ids=["metrics", "too few", "shown by a person", "not finite", "progress", "and the end of the job"],
)
def test_lines_that_differ_in_numbers_only_describe_nothing_unless_a_person_shows_them(text: str, is_kept: bool):
    assert ("acc" in prose_of(text, KNOWLEDGE)) is is_kept
