"""Answers to questions: each counts as the texts of the causes say, and sentences are heard as they are meant."""

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.evidence_weights import weight_table
from ddpwizard.app.evidence import answer_id
from ddpwizard.app.logs.free_text import match_free_text
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
WEIGHTS = weight_table(KNOWLEDGE)
DECISIVE = sorted(
    (question, answer)
    for question, spec in KNOWLEDGE.questions.items()
    for answer in spec.answers
    if any(cause.questions.get(question, {}).get(answer) == "decisive" for cause in KNOWLEDGE.causes.values())
)


@pytest.mark.parametrize(("question", "answer"), DECISIVE)
def test_a_decisive_answer_puts_its_cause_first(question: str, answer: str):
    meant = {c.id for c in KNOWLEDGE.causes.values() if c.questions.get(question, {}).get(answer) == "decisive"}
    case = Case(KNOWLEDGE)
    case.answer(question, answer)
    assert case.diagnosis().causes[0].id in meant


# What the text of a cause says of an answer: it is a sign of the cause, it excludes it, or it tells nothing.
FOR, AGAINST, NEITHER = 1, -1, 0
EFFECTS = [
    ("which-gpu-full=one", "heterogeneous-gpus", FOR),  # "only the ranks on the smaller ones run out of memory"
    ("which-gpu-full=one", "local-rank-device", FOR),  # "several processes share the first GPU"
    ("which-gpu-full=one", "zombie-vram", FOR),  # "out of memory on one GPU; a colleague runs something there"
    ("which-gpu-full=all", "heterogeneous-gpus", AGAINST),
    ("which-gpu-full=all", "local-rank-device", AGAINST),
    ("which-gpu-full=held-before", "one-rank-oom", AGAINST),
    ("samples-seen=same-each-epoch", "missing-sampler", AGAINST),  # each rank has other samples
    ("samples-seen=same-randomness", "missing-sampler", AGAINST),
    ("samples-seen=stream-repeats", "iterable-not-sharded", FOR),
    ("compared-with-one-gpu=ranks-drift", "batchnorm-unsynced", FOR),  # "parameters are equal … but buffers are not"
    ("compared-with-one-gpu=ranks-drift", "accumulate-without-no-sync", FOR),  # "weights differ … after no_sync"
    ("compared-with-one-gpu=ranks-drift", "effective-batch-lr", AGAINST),
    ("memory-kind=shared", "shm-too-small", FOR),
    ("memory-kind=gpu", "shm-too-small", AGAINST),
    ("link-measured=one-is-slow", "straggler-rank", FOR),
    ("other-job=alone", "port-in-use", AGAINST),
    ("other-job=alone", "zombie-vram", NEITHER),
    ("device-choice=library", "local-rank-device", AGAINST),
    ("how-launched=torchrun", "cuda-before-fork", NEITHER),  # a loader's workers are forked under any launcher
]


@pytest.mark.parametrize(("given", "cause", "sign"), EFFECTS)
def test_an_answer_counts_as_the_text_of_the_cause_says(given: str, cause: str, sign: int):
    question, _, answer = given.partition("=")
    nats = WEIGHTS.get(answer_id(question, answer), {}).get(cause, 0.0)
    assert (nats > 0) - (nats < 0) == sign


@pytest.mark.parametrize(
    ("sentence", "given", "is_heard"),
    [
        ("GPU 0 needs much more memory than the other GPUs.", "which-gpu-full=one", True),
        ("Rank 0 is out of memory while the other ranks have plenty left.", "which-gpu-full=one", True),
        ("The loss is much higher than on the other ranks.", "which-gpu-full=one", False),
        ("Throughput of the other GPUs is higher.", "which-gpu-full=one", False),
        ("I killed the job and the GPU memory is still occupied.", "which-gpu-full=held-before", True),
        ("The memory of the activations is not freed between the steps.", "which-gpu-full=held-before", False),
        ("I printed the indices: every rank gets the same samples.", "samples-seen=same-on-ranks", True),
        ("Each process reads the same data on each GPU.", "samples-seen=same-on-ranks", True),
        ("We use the same batch size on every GPU.", "samples-seen=same-on-ranks", False),
        ("All ranks have a copy of the same dataset.", "samples-seen=same-on-ranks", False),
        ("The samples come in the same order in each epoch.", "samples-seen=same-each-epoch", True),
        ("All ranks call the collectives in the same order in each epoch.", "samples-seen=same-each-epoch", False),
        ("After 100 steps the weights differ between the ranks.", "compared-with-one-gpu=ranks-drift", True),
        ("The ranks get out of sync and wait for each other.", "compared-with-one-gpu=ranks-drift", False),
        ("It gets stuck after epoch 0 with the GPUs at 100 %.", "when-it-stops=epoch-end", True),
        ("The job hangs at the end of every epoch.", "when-it-stops=epoch-end", True),
        ("After each epoch we save, and it hangs somewhere in the middle.", "when-it-stops=epoch-end", False),
        ("It is stuck at the beginning of epoch 2.", "when-it-stops=at-start", False),
        ("It hangs before training starts.", "when-it-stops=at-start", True),
        ("It crashed after a few steps.", "when-it-stops=first-steps", True),
        ("The loss settles after a few steps, and then it hangs.", "when-it-stops=first-steps", False),
        ("It freezes during validation.", "when-it-stops=validation", True),
        ("Validation is skipped, and it freezes.", "when-it-stops=validation", False),
        ("All processes hang at exit.", "when-it-stops=at-exit", True),
        ("It hangs after training for three hours.", "when-it-stops=at-exit", False),
    ],
)
def test_a_sentence_is_heard_as_it_is_meant(sentence: str, given: str, is_heard: bool):
    found = {item.id for item in match_free_text(f"Training with DDP on 4 GPUs. {sentence}", "x", KNOWLEDGE)}
    assert (f"answer:{given}" in found) is is_heard
