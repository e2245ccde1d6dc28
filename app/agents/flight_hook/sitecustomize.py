"""Start-up hook of ``ddpwizard run``: wait for torch.distributed, then run ``ddpwizard_rank`` from this directory; an
error that ends the process before is recorded.

Python imports this module before any script, in every Python process of the job. So it does next to nothing, works in
any Python, leaves sys.path as it would be without it, and then runs the user's own sitecustomize.
"""

import os
import sys

TARGET = "torch.distributed.distributed_c10d"
HERE = os.path.dirname(os.path.abspath(__file__))


class ImportWatcher(object):
    """A finder that finds nothing itself: on the first import of TARGET it calls the hook after the real one."""

    def find_spec(self, name, path=None, target=None):
        if name != TARGET:
            return None
        sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            try:
                _then(spec.loader)
            except Exception as error:
                _log_error(error)
        return spec


def _then(loader):
    execute = loader.exec_module

    def exec_module(module):
        del loader.exec_module
        execute(module)
        _imported(module)

    loader.exec_module = exec_module


def _imported(module):
    try:
        _rank_module().imported(module)
    except Exception as error:
        _log_error(error)


def _record_errors():
    """Record the error that ends this process as well; it is printed as before."""
    show = sys.excepthook

    def excepthook(kind, value, trace):
        show(kind, value, trace)
        try:
            _rank_module().failed(kind, value, trace)
        except Exception as error:
            _log_error(error)

    sys.excepthook = excepthook


def _rank_module():
    sys.path.insert(0, HERE)
    try:
        import ddpwizard_rank
    finally:
        sys.path.remove(HERE)
    return ddpwizard_rank


def _log_error(error):
    """Write an error into the run's directory: for the job the hook is always silent."""
    try:
        with open(os.path.join(os.environ["DDPWIZARD_FLIGHT_DIR"], "hook.log"), "a") as log:
            log.write("pid %d: %s: %s\n" % (os.getpid(), type(error).__name__, error))
    except Exception:
        pass


if sys.version_info >= (3, 9) and os.path.isdir(os.environ.get("DDPWIZARD_FLIGHT_DIR", "")):
    sys.meta_path.insert(0, ImportWatcher())
    _record_errors()

sys.path[:] = [entry for entry in sys.path if entry != HERE]
sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402, F401  # the user's own; site handles its absence
