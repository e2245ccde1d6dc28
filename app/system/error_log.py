"""The log file of errors of our own."""

import logging
import os
import traceback

from ..text.redact import redact_text
from .paths import log_file


def log_traceback() -> str:
    """Append the traceback of the exception that is being handled to the log file, and return where it is."""
    path = log_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as log:
            os.fchmod(log.fileno(), 0o600)
            log.write(redact_text(traceback.format_exc()) + "\n")
    except OSError as error:
        logging.getLogger(__name__).debug("no log file: %s", error)
        return "no file: the state directory cannot be written"
    return str(path)
