"""One process, no process group."""

total = 0
while True:
    total = (total * 3 + 1) % 1000003  # WORK
