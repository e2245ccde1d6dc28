# transformers imports all of its models here for type checkers: to read them took a fifth of the time of `make lint`.
from typing import Any

def __getattr__(name: str) -> Any: ...
