"""Read the statements of a job's files on its sizes.

The files are a DeepSpeed JSON, an Accelerate YAML, a run manifest, a PyTorchJob, a JobSet, launch scripts and
hostfiles (``launchers.launch_scripts``), recognised by their content. Only plain numbers
count, not "auto" or variables.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...launchers.launch_scripts import JobFile, Statement, parse_hostfile, parse_shell_script
from ...system.files import read_regular_file
from ...text.numbers import parse_count

SCHEMA = "ddpwizard.run/1"  # of a run manifest
LIMIT_BYTES = 1_000_000
NEXT_STEP = "name the files of one job, or their directory"
MOST_FILES = 200
PLAIN_DATA = (".json", ".yaml", ".yml")
SUFFIXES = (*PLAIN_DATA, ".sh", ".slurm", ".sbatch", ".bash")
ZERO_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization", "zero_stage", "bf16", "fp16")
NAMES = ("ds_config", "deepspeed", "accelerate")  # in the name of a job file, whatever its content
OF_A_JOB = (*ZERO_KEYS, SCHEMA, "distributed_type", "num_processes", "PyTorchJob", "JobSet")


def read_job_files(paths: Iterable[Path]) -> list[JobFile]:
    """Read files, and those of directories; files of no known kind are left out.

    Raises:
        UserError: A named file cannot be read or parsed, or a job file in a directory cannot be parsed.
    """
    found: list[JobFile] = []
    for path in paths:
        for each in _files(path):
            text = read_regular_file(each, LIMIT_BYTES, NEXT_STEP).decode("utf-8", "replace")
            named = any(word in each.name.lower() for word in NAMES)
            if each == path or named or each.suffix not in PLAIN_DATA or any(word in text for word in OF_A_JOB):
                parsed = parse_job_file(str(each), text)
                found += [parsed] if parsed else []
    return [_by_hostfile(file, found) for file in found]


def _by_hostfile(file: JobFile, files: Sequence[JobFile]) -> JobFile:
    """Add the ranks of a hostfile to the launch script that refers to it."""
    named = file.of("hostfile")
    other = next(
        (each for each in files if named and each.kind == "hostfile" and Path(each.path).name == named.value), None
    )
    if named is None or other is None:
        return file
    statements = [
        Statement(statement.name, statement.value, f"{named.words}, {statement.words}", named.where)
        for statement in other.facts
    ]
    return file._replace(facts=[*file.facts, *statements])


def parse_job_file(path: str, text: str) -> JobFile | None:
    """Parse one file; None if it is of no known kind.

    Raises:
        UserError: It is invalid JSON or YAML.
    """
    suffix = Path(path).suffix
    if suffix == ".json":
        return _json(path, text)
    if suffix in (".yaml", ".yml"):
        return _yaml(path, text)
    if Path(path).name.startswith("hostfile") or re.search(
        r"^[ \t]*[^#\s]+[ \t]+slots[ \t]*=[ \t]*\d+", text, re.MULTILINE
    ):
        return parse_hostfile(path, text)
    return parse_shell_script(path, text)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        entries = sorted(path.iterdir())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "name the files themselves") from error
    return [each for each in entries if _may_be_job_file(each)][:MOST_FILES]


def _may_be_job_file(path: Path) -> bool:
    """Return whether the name and the size are those of a job file; a tokenizer's JSON is longer."""
    if path.suffix not in SUFFIXES and path.name != "hostfile":
        return False
    try:
        return path.is_file() and path.stat().st_size <= LIMIT_BYTES
    except OSError:
        return False


def _json(path: str, text: str) -> JobFile | None:
    repeated: list[Statement] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                lines = [number for number, line in enumerate(text.splitlines(), 1) if f'"{name}"' in line]
                repeated.append(
                    Statement(name, names.count(name), f"{name} is set twice", f"{path}:{(lines or [1])[-1]}")
                )
        return dict(pairs)

    try:
        plain = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON: {error}", "correct it") from error
    if not isinstance(plain, dict):
        return None
    if plain.get("schema") == SCHEMA:
        return _manifest(path, text, plain)
    if not any(key in plain for key in ZERO_KEYS):
        return None
    names = {
        "batch": "train_batch_size",
        "micro_batch": "train_micro_batch_size_per_gpu",
        "accumulation": "gradient_accumulation_steps",
    }
    statements = [_statement(name, plain.get(key), key, path, text) for name, key in names.items()]
    for key in ("zero_optimization", "bf16", "fp16"):
        if not isinstance(plain.get(key), (dict, bool, type(None))):
            raise UserError(f"{path}:{_line(text, key)}: {key} is not an object", "correct it")
    zero = plain.get("zero_optimization")
    statements.append(_statement("stage", zero.get("stage") if isinstance(zero, dict) else None, "stage", path, text))
    widths = [width for width in ("bf16", "fp16") if _enabled(plain.get(width))]
    stated = any(isinstance(_enabled_word(plain.get(width)), bool) for width in ("bf16", "fp16"))
    if widths or not any(_enabled_word(plain.get(width)) == "auto" for width in ("bf16", "fp16")):
        width = widths[0] if widths else "no"
        where = f"{path}:{_line(text, widths[0] if widths else 'bf16' if stated else 'zero_optimization')}"
        statements.append(Statement("precision", width, f"{width} precision" if widths else "float32", where))
    return JobFile("deepspeed", path, [statement for statement in statements if statement], plain, repeated)


def _manifest(path: str, text: str, plain: dict[str, Any]) -> JobFile:
    names = {"batch": "effective_batch", "micro_batch": "micro_batch", "accumulation": "grad_accum"}
    names |= {"ranks": "world_size", "nodes": "nodes", "data_parallel": "data_parallel_ranks"}
    statements = [_statement(name, plain.get(key), key, path, text) for name, key in names.items()]
    strategy = plain.get("strategy")
    stage = strategy.get("stage") if isinstance(strategy, dict) else None
    statements.append(_statement("stage", stage, "stage", path, text))
    dtype = plain.get("precision")
    if isinstance(dtype, str) and not dtype.endswith("-pure"):
        width = dtype.partition("-")[0]
        value = "no" if width == "fp32" else width
        statements.append(Statement("precision", value, f"precision {dtype}", f"{path}:{_line(text, 'precision')}"))
    return JobFile("manifest", path, [statement for statement in statements if statement], plain)


def _yaml(path: str, text: str) -> JobFile | None:
    import yaml  # takes longer than the rest of this module, which a plan imports for its manifest

    try:
        plain = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise UserError(f"{path}:{line} is not valid YAML", "correct it") from error
    if not isinstance(plain, dict):
        return None
    if plain.get("kind") in ("PyTorchJob", "JobSet"):
        return _kubernetes(path, text, plain)
    if "distributed_type" not in plain and "num_processes" not in plain:
        return None
    statements = [
        _statement("ranks", plain.get("num_processes"), "num_processes", path, text),
        _statement("nodes", plain.get("num_machines"), "num_machines", path, text),
    ]
    section = plain.get("deepspeed_config")
    section = section if isinstance(section, dict) else {}
    if "deepspeed_config_file" not in section:
        statements.append(_statement("stage", section.get("zero_stage"), "zero_stage", path, text))
        accumulation = section.get("gradient_accumulation_steps")
        statements.append(_statement("accumulation", accumulation, "gradient_accumulation_steps", path, text))
        precision = plain.get("mixed_precision")
        precision = "no" if precision is False else precision  # a bare no is false in YAML
        if precision in ("no", "bf16", "fp16"):
            where = f"{path}:{_line(text, 'mixed_precision')}"
            statements.append(Statement("precision", precision, f"mixed_precision {precision}", where))
    return JobFile("accelerate", path, [statement for statement in statements if statement], plain)


def _kubernetes(path: str, text: str, plain: dict[str, Any]) -> JobFile:
    """Read pods and ranks: replicas and nprocPerNode of a PyTorchJob; completions and torchrun's count of a JobSet."""
    nodes, per_node, line = None, None, 1
    spec = plain.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    if plain["kind"] == "PyTorchJob":
        replicas = spec.get("pytorchReplicaSpecs")
        replicas = replicas.values() if isinstance(replicas, dict) else []
        counts = [_number(each.get("replicas", 1)) for each in replicas if isinstance(each, dict)]
        nodes = sum(each or 0 for each in counts) if None not in counts else None
        per_node, line = _number(spec.get("nprocPerNode")), _line(text, "nprocPerNode")
    elif found := re.search(r"^[ \t]*completions:[ \t]*(\d+)", text, re.MULTILINE):
        nodes, line = int(found[1]), text[: found.start(1)].count("\n") + 1
        started = re.search(r"--nproc[-_]per[-_]node[=\s]+(\d+)", text)
        per_node = int(started[1]) if started else None
    where = f"{path}:{line}"
    statements = [Statement("nodes", nodes, f"{nodes} pods", where)] if nodes else []
    if nodes and per_node:
        statements.append(
            Statement("ranks", nodes * per_node, f"{nodes} pods × {per_node} = {nodes * per_node} ranks", where)
        )
    if per_node:
        statements.append(Statement("pod_ranks", per_node, f"{per_node} processes", where))
    for name, key in (("pod_gpus", "nvidia.com/gpu"), ("parallelism", "parallelism"), ("completions", "completions")):
        if found := re.search(rf"""^[ \t]*["']?{re.escape(key)}["']?:[ \t]*["']?(\d+)""", text, re.MULTILINE):
            at = text[: found.start(1)].count("\n") + 1
            statements.append(Statement(name, int(found[1]), f"{key} {found[1]}", f"{path}:{at}"))
    return JobFile("kubernetes", path, statements, plain)


def _statement(name: str, value: Any, key: str, path: str, text: str) -> Statement | None:
    if not isinstance(value, (int, float, str, type(None))):
        raise UserError(f"{path}:{_line(text, key)}: {key} is not a number", "correct it")
    number = _number(value)
    return None if number is None else Statement(name, number, f"{key} {number}", f"{path}:{_line(text, key)}")


def _number(value: Any) -> int | None:
    if isinstance(value, str):
        return parse_count(value, 15)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _enabled_word(section: Any) -> Any:
    return section.get("enabled") if isinstance(section, dict) else None


def _enabled(section: Any) -> bool:
    return _enabled_word(section) is True


def _line(text: str, key: str) -> int:
    """Return the first line that sets ``key``; 1 if there is none."""
    pattern = re.compile(rf"""(?:^|[\s{{,"'-]){re.escape(key)}["']?\s*:""")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)), 1)
