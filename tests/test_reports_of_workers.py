"""Reports of tests are sent to the process that runs the workers, whatever is in their texts."""

import execnet
import pytest


def test_report_with_lone_surrogates(pytestconfig: pytest.Config) -> None:
    where = ("tests/test_path.py", 1, "test_path")
    sections = [("Captured stdout", "a name: \udcff"), ("Captured stderr", "résumé")]
    report = pytest.TestReport("test_path", where, {}, "failed", "no such file: caf\udce9", "call", sections)
    data = pytestconfig.hook.pytest_report_to_serializable(config=pytestconfig, report=report)
    received = pytestconfig.hook.pytest_report_from_serializable(
        config=pytestconfig, data=execnet.loads(execnet.dumps(data))
    )
    assert received.longrepr == "no such file: caf\\udce9"
    assert received.sections == [("Captured stdout", "a name: \\udcff"), ("Captured stderr", "résumé")]
