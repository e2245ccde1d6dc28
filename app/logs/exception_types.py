"""The origin of a Python exception by its type: the script, or libraries, the network and the other ranks."""

# Exceptions of torch.distributed, of the network and of memory: their cause is not a line of the script.
NOT_OF_A_SCRIPT = (
    "Dist",
    "Nccl",
    "NCCL",
    "Connection",
    "Timeout",
    "OutOfMemory",
    "Memory",
    "URL",
    "HTTP",
    "Accelerator",
)
GENERAL = ("RuntimeError", "OSError", "Exception", "DeepSpeedError")  # raised by libraries for any reason
OWN_FAULTS = (
    "ArithmeticError",
    "AssertionError",
    "AttributeError",
    "FileExistsError",
    "FileNotFoundError",
    "FloatingPointError",
    "ImportError",
    "IndexError",
    "IsADirectoryError",
    "KeyError",
    "LookupError",
    "ModuleNotFoundError",
    "NameError",
    "NotADirectoryError",
    "OverflowError",
    "PermissionError",
    "TypeError",
    "UnboundLocalError",
    "ZeroDivisionError",
)


def is_own_fault(exception: str) -> bool:
    """Return whether a type of exception shows a fault of the process that raised it, whatever other ranks did."""
    return exception.rpartition(".")[2] in OWN_FAULTS
