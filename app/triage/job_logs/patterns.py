"""Log patterns of distributed jobs, in addition to those of the knowledge base.

The wording is that of torch 2.13 on gloo (from real runs); for NCCL that of torch's ProcessGroupNCCL.cpp (2.13 and
earlier) and TraceUtils.h, and of NCCL's init.cc, bootstrap.cc and transport/generic.cc (2.18, 2.21, 2.27 and 2.30).
"""

from ...logs.patterns import Pattern
from ..types import LogEventKind

NUMBER = r"\d{1,18}"
RANKS = r"\d{1,9}(?:, ?\d{1,9}){0,4000}"
GROUP = (
    r"\[PG (?:ID )?(?P<pg>\d{1,9})(?: PG GUID (?P<group>[\w-]{1,80})(?:\((?P<about>[^)\n]{0,80})\))?)? "
    r"Rank \d{1,9}\]"
)
FINGERPRINT = (
    rf"CollectiveFingerPrint\((?:SequenceNumber=(?P<@seq>{NUMBER}),? ?)?OpType=(?P<@op>\w{{1,60}})"
    r"(?:, ?TensorShape=\[(?P<@shape>[^\]\n]{0,200})\])?"
    r"(?:, ?TensorDtypes=(?P<@dtype>[\w, ]{0,80}?)(?=, TensorDevice|\)))?"
)
LATER_INIT = r"comm 0x[\da-f]{1,16} rank (?P<member>\d{1,9}) nranks (?P<of>\d{1,9}) [^\n]{0,300}?"
COMM = r"(?:commId 0x(?P<comm>[\da-f]{1,16})|color (?P<color>-?\d{1,18}) key -?\d{1,18}) ?- Init "

STAGES = ("bootstrap", "start", "topology", "rings", "trees", "complete")  # in the order NCCL prints them

PATTERNS: tuple[tuple[LogEventKind, str, str], ...] = (
    ("nccl-init", "NCCL INFO Bootstrap", r"NCCL INFO (?P<bootstrap>Bootstrap) ?: Using"),
    ("nccl-init", "Init START", LATER_INIT + COMM + "(?P<start>START)"),
    ("nccl-init", "NCCL INFO Trees [", r"NCCL INFO (?P<topology>Trees) \["),
    ("nccl-init", "Connected all rings", r"Connected all (?P<rings>rings)"),
    ("nccl-init", "Connected all trees", r"Connected all (?P<trees>trees)"),
    ("nccl-init", "Init COMPLETE", LATER_INIT + rf"(?:{COMM}|- Init )(?P<complete>COMPLETE)"),
    ("nccl-version", "NCCL version ", r"NCCL version (?P<version>\d{1,9}\.\d{1,9}[\w.+]{0,40})"),
    (
        "watchdog",
        "Watchdog caught collective operation timeout",
        rf"(?:{GROUP} {{0,2}})?(?:\[Rank \d{{1,9}}\] )?Watchdog caught collective operation timeout: "
        rf"WorkNCCL\((?:SeqNum=(?P<seq>{NUMBER}), ?)?OpType=(?P<op>\w{{1,60}})"
        rf"(?:, NumelIn=(?P<numel_in>{NUMBER}), NumelOut=(?P<numel_out>{NUMBER}))?"
        rf"(?:[^\n)]{{0,200}}Timeout\(ms\)=(?P<timeout_ms>{NUMBER}))?",
    ),
    (
        "work",
        "ast enqueued NCCL work: ",
        rf"(?:{GROUP}(?:[^\n]{{0,80}}at work: (?P<seq>{NUMBER}),)?[^\n]{{0,240}}?)?"
        r"[Ll]ast enqueued NCCL work: (?P<enqueued>-?\d{1,18}), last completed NCCL work: (?P<completed>-?\d{1,18})",
    ),
    (
        "work",
        "last enqueued work: ",
        rf"(?:{GROUP}(?:[^\n]{{0,80}}at work sequence id: (?P<seq>{NUMBER}) )?[^\n]{{0,240}}?)?"
        r"last enqueued work: (?P<enqueued>-?\d{1,18}), last completed work: (?P<completed>-?\d{1,18})",
    ),
    (
        "signal-from",
        "Received a dump signal due to a collective timeout from",
        r"Received a dump signal due to a collective timeout from {1,2}rank (?P<from>\d{1,9})",
    ),
    ("stuck", "watchdog got stuck for", r"watchdog got stuck for (?P<seconds>\d{1,9}) seconds"),
    ("stuck", "Could not acquire GIL within", r"Could not acquire (?P<what>GIL) within"),
    ("nccl-error", "remote process exited or there was a network error", r"(?P<error>ncclRemoteError)"),
    ("nccl-error", "Connection closed by remote peer", r"Connection closed by remote peer (?P<peer>[^\s<]{1,100})"),
    (
        "gloo-timeout",
        "Timed out waiting ",
        r"Timed out waiting (?P<timeout_ms>\d{1,12})ms for (?P<operation>recv|send) operation to complete",
    ),
    (
        "peer-closed",
        "Connection closed by peer",
        r"Connection (?P<how>closed) by peer \[?(?P<peer>[\da-fA-F.:]{3,60})\]?",
    ),
    (
        "peer-closed",
        "Connection reset by peer",
        r"(?:Read|Write) error \[(?P<peer>[\da-fA-F.:]{3,60})\](?::\d{1,5})?: Connection (?P<how>reset) by peer",
    ),
    ("size", "op.preamble.length <= op.nbytes", rf"op\.nbytes\. (?P<got>{NUMBER}) vs (?P<expected>{NUMBER})"),
    (
        "mismatch",
        "Detected mismatch between collectives on ranks",
        r"Detected mismatch between collectives on ranks\. Rank (?P<one>\d{1,9}) is running collective: "
        + FINGERPRINT.replace("@", "")
        + r"[^\n]{0,1500}?, but Rank (?P<other>\d{1,9}) is running collective: "
        + FINGERPRINT.replace("@", "other_"),
    ),
    (
        "absent",
        "failed to pass monitoredBarrier",
        r"Ranks? (?P<absent>" + RANKS + r") failed to pass monitoredBarrier in "
        r"(?P<timeout_ms>\d{1,12}) ms",
    ),
    (
        "desync",
        "are the lagging ranks that caused this timeout",
        rf"ranks \[(?P<never>{RANKS})\] are the lagging ranks that caused this timeout",
    ),
    (
        "desync",
        "ranks that caused the desync are:",
        rf"ranks that caused the desync are:(?:\s{{1,20}}- \[(?P<started>{RANKS})\] joined but didn't finish "
        rf"collective #(?P<seq>{NUMBER}) \(count from 1\))?"
        rf"(?:\s{{1,20}}\[(?P<ended>{RANKS})\] finished collective #(?P<last>{NUMBER}), but didn't join)?",
    ),
    (
        "store-timeout",
        "wait timeout after ",
        r"wait timeout after (?P<timeout_ms>\d{1,12})ms, keys: (?P<key>\S{1,120})",
    ),
    ("store-timeout", "clients joined", r"(?P<joined>\d{1,9})/(?P<of>\d{1,9}) clients joined"),
    (
        "exit",
        "(local_rank:",
        r"rank\s{0,8}: (?P<rank>\d{1,9}) \(local_rank: \d{1,9}\)\s{1,40}exitcode\s{0,8}: (?P<code>-?\d{1,9}) "
        r"\(pid: (?P<pid>\d{1,10})\)",
    ),
    (
        "exit",
        "failed (exitcode:",
        r"failed \(exitcode: (?P<code>-?\d{1,9})\) local_rank: (?P<local>\d{1,9}) \(pid: (?P<pid>\d{1,10})\)",
    ),
    ("killed", "Killed process ", r"Killed process (?P<pid>\d{1,10})"),
)
PREFIX = "job:"
KIND_OF: dict[str, LogEventKind] = {f"{PREFIX}{index}": kind for index, (kind, _, _) in enumerate(PATTERNS)}
LOG_PATTERNS = [
    Pattern(f"{PREFIX}{index}", literal, pattern, "exit" if kind == "exit" else "note", evidence=False)
    for index, (kind, literal, pattern) in enumerate(PATTERNS)
]
