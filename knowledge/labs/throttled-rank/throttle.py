"""Keep the machine cool. On the old cluster a daemon watched the temperature and continued what was stopped."""

import os
import signal

HOT = 90  # degrees Celsius
COLDEST, HOTTEST = 38, 94  # of the second socket, without work and under full load


def temperature(step):
    """Return the temperature of the second socket after a step; it rises until the cooling keeps up."""
    return min(COLDEST + 5 * step, HOTTEST)


def after_step(rank, step):
    """Stop this process while its socket is too hot."""
    if rank == 1 and temperature(step) > HOT:
        os.kill(os.getpid(), signal.SIGSTOP)
