"""DW401 and DW404: programs that end with the result of their main function, which a rank may leave early."""

import pytest
from helpers.review_snippets import lines

PROGRAM = """
import sys
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    EARLY
    dist.barrier()
    return LAST
if __name__ == "__main__":
    END
"""
LEFT = "if rank == 0:\n        if os.path.exists('done'):\n            return {}"
ENDS = {
    "with the result": "sys.exit(main())",
    "as an error that is none": "raise SystemExit(main())",
    "with a name": "code = main()\n    sys.exit(code)",
    "afterwards": "main()\n    sys.exit(0)",
    "without a number": "main()\n    sys.exit()",
    "by exit": "exit(main())",
}


def program(early: str, end: str, last: str = "0") -> str:
    return PROGRAM.replace("EARLY", early).replace("END", ENDS.get(end, end)).replace("LAST", last)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("code", ("0", "None"))
def test_a_rank_that_ends_without_an_error_is_missed(end: str, code: str) -> None:
    assert lines(program(LEFT.format(code), end), "DW404") == ["dist.barrier()"]


@pytest.mark.parametrize("end", ENDS)
def test_an_end_of_all_ranks_is_not_missed(end: str) -> None:
    for early in (
        "if not os.path.exists('data'):\n        return 0",
        "if not os.path.exists('data'):\n        if rank == 0:\n            print('no data')\n        return 0",
        "if not os.path.exists('data'):\n        if rank == 0:\n            print('no data')\n        sys.exit(0)",
    ):
        assert lines(program(early, end), "DW404") == []


@pytest.mark.parametrize("end", ("with the result", "as an error that is none", "with a name", "by exit"))
def test_a_number_that_says_error_ends_all_ranks(end: str) -> None:
    assert lines(program(LEFT.format(2), end), "DW404") == []
    assert lines(program(LEFT.format("'failed'"), end), "DW404") == []


def test_a_call_in_the_middle_of_main_is_found_behind_it() -> None:
    early = "if rank == 0:\n        dist.barrier()"
    assert lines(program(early, "with the result", "None"), "DW401") == ["dist.barrier()"]
