"""Agent: the peak memory of a user's own model in training, on fake tensors, by torch's own trackers.

Started as ``exact_peak.py REQUEST``, a JSON object (written by ``app/plan/exact_memory.py``). The user's module is
imported, built, wrapped and trained for two steps under FakeTensorMode: weights take no memory, nothing is computed,
and nothing is sent (a fake process group). The tensors claim to be on "cpu", as FSDP's streams need a real GPU for
anything else (torch 2.13); ``ddpwizard_model.fake_tensors`` applies the rules of a GPU. The answer is one JSON object
on the descriptor named by DDPWIZARD_ANSWER_FD; on failure its ``problem`` contains the reason.
"""

import json
import os
import resource
import sys
import warnings

AGENTS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, AGENTS)

from ddpwizard_model import protocol, tracking  # noqa: E402

MEMORY_LIMIT_BYTES = 12 * 2**30


def refuse_network(event, args):
    """Raise in an audit hook with the requested host instead of connecting to it."""
    if event == "socket.getaddrinfo" or (event == "socket.connect" and not isinstance(args[1], (str, bytes))):
        host = args[0] if event == "socket.getaddrinfo" else args[1][0]
        raise protocol.RequestRefused("it asks for %s over the network" % host)


def describe_error(error):
    """Describe an error in one line."""
    line = protocol.one_line(error)
    if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
        return "its code reads a value or a size that only real tensors have (%s)" % line
    if isinstance(error, ImportError) and "torch" in str(error):
        return "this torch lacks what tracking needs, 2.13 has it (%s)" % line
    return line


def main():
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    warnings.simplefilter("ignore")
    protocol.use_user_import_path(AGENTS)
    sys.addaudithook(refuse_network)
    answer = {}
    try:
        answer.update(tracking.track(json.loads(sys.argv[1])))
    except protocol.RequestRefused as refusal:
        answer["problem"] = str(refusal)
    except BaseException as error:  # whatever the user's code raises, including SystemExit
        answer["problem"] = describe_error(error)
    answer["used"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    protocol.send_answer(answer)


if __name__ == "__main__":
    main()
