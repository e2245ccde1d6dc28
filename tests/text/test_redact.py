"""Removal of secrets from environments, command lines, URLs, headers and logs."""

import ast
import time

import msgspec
import pytest
from ddpwizard.app.text import redact

SECRET = "s3cr3tV4lue.x-9"
HF = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWx"


@pytest.mark.parametrize(
    "line",
    [
        f"HF_TOKEN={SECRET} torchrun train.py",
        f"export WANDB_API_KEY={SECRET}",
        f"AWS_SECRET_ACCESS_KEY = {SECRET}",
        f"a=b c=d MY_PASSWORD='{SECRET} and more'",
        f"DB_PASS={SECRET}",
        f"PGPASSWORD={SECRET}",
        f"train.py --token {SECRET} --lr 0.1",
        f"train.py --hf-token={SECRET}",
        f"train.py -token '{SECRET}'",
        f"train.py --api_key {SECRET}",
        f'{{"password": "{SECRET}", "user": "me"}}',
        f"{{'access_key': '{SECRET}'}}",
        f"password: {SECRET}",
        f"https://me:{SECRET}@example.org/repo.git",
        f"git clone https://{SECRET}@example.org/repo.git",
        f"redis://:{SECRET}@cache:6379/0",
        f"https://example.org/data?token={SECRET}&x=1",
        f"https://bucket.example.org/k?X-Amz-Signature={SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"authorization: Basic {SECRET}",
        f"'Authorization': 'Bearer {SECRET}'",
        f"sent header Bearer {SECRET} to the server",
        f"Cookie: session={SECRET}; other=1",
        f"curl -u me:{SECRET} https://example.org",
        f"https://hooks.slack.com/services/T0/B0/{SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}",
        f"azure AccountKey={SECRET};EndpointSuffix=x",
    ],
)
def test_secret_is_removed_from_a_line(line: str) -> None:
    cleaned = redact.redact_text(line)
    assert SECRET not in cleaned
    assert "and more" not in cleaned
    assert redact.HIDDEN in cleaned
    assert redact.redact_text(cleaned).count(redact.HIDDEN) == cleaned.count(redact.HIDDEN), (
        "cleaning twice adds nothing"
    )


@pytest.mark.parametrize(
    "key",
    [
        HF,
        "ghp_" + "a" * 36,
        "github_pat_" + "A1" * 15,
        "glpat-" + "x" * 20,
        "sk-" + "proj-" + "a1" * 12,
        "AKIA" + "ABCD" * 4,
        "xoxb-" + "1234567890-abc",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.abcdefghij",
        "0123456789abcdef0123456789abcdef01234567",
    ],
)
def test_well_known_key_is_removed_anywhere(key: str) -> None:
    for line in (key, f"login({key!r})", f"failed: {key}, again", f"path/{key}/x", f'"{key}"'):
        assert key not in redact.redact_text(line)


@pytest.mark.parametrize(
    "line",
    [
        "tokens = tokenizer(batch['text'])",
        "tokens = batch['tokens'].to(device)",
        "loss = step(token=args.token)",
        "max_tokens=4096 num_tokens: 12 tokens: 4096",
        "TOKENIZERS_PARALLELISM=false",
        "tokens per second 1234",
        "Token indices sequence length is longer than 1024",
        "the token is missing",
        "PWD=/home/x SSH_AUTH_SOCK=/tmp/a",
        "RuntimeError: Expected to have finished reduction in the prior iteration",
        "[rank1]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691",
        "http://10.0.0.1:29500/path?x=1",
        "scp user@node-07:/data/x .",
        "forward_pass: slow",
        "sampler.set_epoch(epoch)  # passes the epoch on",
    ],
)
def test_other_values_stay(line: str) -> None:
    assert redact.redact_text(line) == line


def test_environment_hides_values_by_name() -> None:
    cleaned = redact.redact_environment(
        {"HF_TOKEN": SECRET, "WANDB_API_KEY": SECRET, "TOKENIZERS_PARALLELISM": "false", "NCCL_DEBUG": "INFO"}
        | {"EXTRA_ARGS": f"--token {SECRET}"}
    )
    assert SECRET not in str(cleaned)
    assert cleaned["NCCL_DEBUG"] == "INFO"
    assert cleaned["TOKENIZERS_PARALLELISM"] == "false"


def test_command_line_given_as_words_is_cleaned() -> None:
    words = ["python", "train.py", "--token", SECRET, "--lr", "0.1", "--api-key=" + SECRET, "--password", SECRET]
    cleaned = redact.redact_data({"argv": [*words, "-u", f"me:{SECRET}"]})
    assert SECRET not in str(cleaned)
    assert isinstance(cleaned, dict)
    assert cleaned["argv"][:6] == ["python", "train.py", "--token", redact.HIDDEN, "--lr", "0.1"]


def test_a_flag_without_a_value_hides_no_other_flag() -> None:
    assert redact.redact_command(["run", "--use-auth-token", "--lr", "1"]) == ["run", "--use-auth-token", "--lr", "1"]


def test_data_hides_all_text_under_a_secret_key() -> None:
    value = {"a": [{"credentials": {"user": "x", "list": [SECRET]}}], "token_count": 3, "token": None, "n": [1, 2.5]}
    cleaned = redact.redact_data(value)
    assert SECRET not in str(cleaned)
    assert isinstance(cleaned, dict)
    assert (cleaned["token_count"], cleaned["token"], cleaned["n"]) == (3, None, [1, 2.5])


def test_knowledge_entry_is_unchanged() -> None:
    entry = {
        "signatures": [{"pattern": "Address already in use", "literal": "already in use"}],
        "questions": {"a": "b"},
    }
    assert redact.redact_data(entry) == entry


@pytest.mark.parametrize("text", ["key=" * 10_000, "-eyJaaaaaaaaaa" * 6000])
def test_names_and_keys_one_after_the_other_take_linear_time(text: str) -> None:
    started = time.thread_time()
    redact.redact_text(text)
    redact.redact_source(f"x = '{text}'\n")
    assert time.thread_time() - started < 2


@pytest.mark.parametrize("text", ["a" * 1_000_000, "a b " * 250_000, " " * 1_000_000, "x=" * 500_000, '"' * 500_000])
def test_time_is_linear_in_the_length(text: str) -> None:
    started = time.thread_time()
    redact.redact_text(text)
    whole_s = time.thread_time() - started
    started = time.thread_time()
    redact.redact_text(text[: len(text) // 10])
    tenth_s = time.thread_time() - started
    assert whole_s < 40 * tenth_s + 0.5


SOURCE = '''import os
API_KEY = "abcdefgh"
os.environ["HF_TOKEN"] = "hf_abcdefghijklmnopqrstuvwx"
def login(password="hunter2", n=3):
    """Use it so:
    token=abcdefghijk
    end"""
    x = tokenizer(password)
    if rank == 0:
        dist.barrier()
    return {"secret": 'xx', "name": 'yy'}
tokens_per_step = 5  # password: hunter3'''


def test_source_keeps_its_lines_and_its_meaning() -> None:
    clean = redact.redact_source(SOURCE)
    assert not any(secret in clean for secret in ("abcdefgh", "hunter", "'xx'"))
    assert "'yy'" in clean
    before, after = ast.walk(ast.parse(SOURCE)), ast.walk(ast.parse(clean))
    assert [n.lineno for n in before if isinstance(n, ast.Call)] == [n.lineno for n in after if isinstance(n, ast.Call)]
    assert len(clean.split("\n")) == len(SOURCE.split("\n"))


@pytest.mark.parametrize("code", ["", "if (", "x = 'open\n", "a\x0cb = 'c'\r\n", 'x = """a\n  b"""', "\tif x:\n  y"])
def test_source_without_secrets_is_unchanged(code: str) -> None:
    assert redact.redact_source(code) == code


def test_source_with_a_syntax_error_is_cleaned_line_by_line() -> None:
    assert "hunter2" not in redact.redact_source("if (\npassword=hunter2\n")


def test_bytes_of_a_name_that_are_not_utf_8_become_replacement_characters() -> None:
    name = "run\udcff.log"
    cleaned = redact.redact_record({name: name, "command": ["cat", name], "more": {"path": [1, name]}})
    assert msgspec.json.decode(msgspec.json.encode(cleaned)) == {
        "run\ufffd.log": "run\ufffd.log",
        "command": ["cat", "run\ufffd.log"],
        "more": {"path": [1, "run\ufffd.log"]},
    }
