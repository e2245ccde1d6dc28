"""Not distributed at all: waits for signals and ends with 10 + how often SIGINT came, 30 + for SIGTERM."""

import signal

TAKEN = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
print("ready", flush=True)
first = signal.sigwait(TAKEN)
count = 1
while signal.sigtimedwait(TAKEN, 1.0):
    count += 1
raise SystemExit((10 if first == signal.SIGINT else 30) + count)
