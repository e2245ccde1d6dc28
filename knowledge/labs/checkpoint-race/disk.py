"""The disk of this machine, which keeps a list of the files that were opened to be written."""

import os
import sys

OPENED = "opened.txt"


def record_writes(suffix):
    """Record from now on each file with this suffix that this process opens to write it."""

    def record(event, arguments):
        if event == "open" and str(arguments[0]).endswith(suffix) and arguments[2] & os.O_WRONLY:
            with open(OPENED, "a") as opened:
                opened.write(f"{arguments[0]}\n")

    sys.addaudithook(record)


def count_writes():
    with open(OPENED) as opened:
        return len(opened.readlines())
