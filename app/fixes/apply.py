"""Apply a fix: all its files, or none. The original of each file is kept, and ``undo`` restores it.

A file that differs from the original of the fix is never touched.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..errors import UserError
from ..system.atomic_files import FileWrite, backup_lock, write_all
from ..training_script.source import read_source
from .records import AppliedFix, clean_after_kill, create_record, record_write, remove_record
from .types import Fix


def apply_fix(fix: Fix, directory: Path) -> AppliedFix:
    """Write the patches of ``fix`` (a relative path counts from ``directory``) and its new files in ``directory``.

    Raises:
        UserError: A file is missing, changed since the fix was made, or cannot be written; or a new file exists with
            other content. No file is changed then.
    """
    writes = [*_patched(fix, directory), *_new(fix, directory)]
    paths = [write.path for write in writes]
    if len(set(paths)) != len(paths):
        raise UserError(f"the fix {fix.id} changes one file twice", "apply its parts one after the other")
    if not writes:
        raise UserError(f"the fix {fix.id} changes no file here", "it is there already, or is to be done by hand")
    with backup_lock() as home:
        clean_after_kill(home)
        folder, record = create_record(home, fix, writes)
        try:
            write_all([*writes, record_write(folder, msgspec.structs.replace(record, finished=True))])
        except BaseException:
            remove_record(folder, record.made_directories)
            raise
    return record.applied


def _patched(fix: Fix, directory: Path) -> Iterator[FileWrite]:
    for patch in fix.patches:
        path = (directory / Path(patch.path).expanduser()).resolve()
        data, text, encoding = read_source(path)
        if text != patch.before:
            raise UserError(f"{path} is not what the fix was made for: it changed since", "look again, then apply")
        try:
            after = patch.after.encode(encoding)
        except UnicodeEncodeError as error:
            raise UserError(
                f"{path}: the fix has a character that {encoding} cannot hold", "save the file as UTF-8, then apply"
            ) from error
        if after != data:
            yield FileWrite(path=path, before=data, after=after)


def _new(fix: Fix, directory: Path) -> Iterator[FileWrite]:
    root = directory.resolve()
    if fix.files and not root.is_dir():
        raise UserError(f"{directory}: no such directory", "make it, or give another")
    for name, content in fix.files.items():
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise UserError(f"{name} would be written outside {root}", "give the directory it belongs in")
        after = content.encode()
        if path.exists():
            if path.is_file() and path.read_bytes() == after:
                continue
            raise UserError(
                f"{path} is there already, with other content", "move it away, or write to another directory"
            )
        yield FileWrite(path=path, before=None, after=after)
