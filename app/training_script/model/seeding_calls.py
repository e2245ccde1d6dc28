"""The calls in the text of a program that seed what its processes draw random numbers from."""

import re

SEEDING = re.compile(r"(?<![\w.])([\w.]*seed\w*)\(")  # calls by name
OF_MODULES = {"torch.manual_seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "random.seed"}
OF_MODULES |= {"np.random.seed", "numpy.random.seed"}  # calls that seed one module


def seeding_calls(text: str) -> set[str]:
    """Return the names of the calls that seed what a process draws from; those of a generator of its own are none."""
    if "seed" not in text:
        return set()
    names = {each[1] for line in text.splitlines() if "seed" in line for each in SEEDING.finditer(line)}
    return {each for each in names if each in OF_MODULES or not each.endswith(".manual_seed")}
