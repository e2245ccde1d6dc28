# transformers imports all of its models for type checkers: to read them takes 25 s of CPU time of `make lint`.
from typing import Any

def __getattr__(name: str) -> Any: ...
