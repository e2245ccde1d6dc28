"""Writing fixes to disk: completely or not at all, with undo, never over the changes of others."""

import hashlib
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.apply import apply_fix
from ddpwizard.app.fixes.types import FilePatch, Fix
from ddpwizard.app.fixes.undo import applied_fixes, undo_fix
from ddpwizard.app.system import atomic_files, paths
from ddpwizard.app.training_script.source import read_source


def fix(patches: list[FilePatch] | None = None, files: dict[str, str] | None = None) -> Fix:
    return Fix(
        id="hoist-collective",
        cause="rank-conditional-collective",
        title="Hoist it",
        safety="unsafe",
        patches=patches or [],
        files=files or {},
    )


def patch_of(path: Path, old: str, new: str) -> FilePatch:
    text = read_source(path)[1]
    assert old in text
    return FilePatch(path=str(path), before=text, after=text.replace(old, new))


def tree(root: Path) -> dict[str, bytes]:
    """Return every file below a directory with its bytes."""
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("x = 1\n")
    return path


class TestApply:
    def test_apply_changes_files_and_undo_restores_them(self, script: Path, tmp_path: Path) -> None:
        (tmp_path / "b.py").write_text("y = 1\n")
        before = tree(tmp_path)
        applied = apply_fix(
            fix([patch_of(script, "1", "2"), patch_of(tmp_path / "b.py", "1", "3")], {"conf/ds.json": "{}\n"}), tmp_path
        )
        assert tree(tmp_path) == {"b.py": b"y = 3\n", "conf/ds.json": b"{}\n", "train.py": b"x = 2\n"}
        assert applied.paths == [str(tmp_path / name) for name in ("train.py", "b.py", "conf/ds.json")]
        assert (applied.fix, applied.cause) == ("hoist-collective", "rank-conditional-collective")
        assert undo_fix() == applied
        assert tree(tmp_path) == before
        assert not (tmp_path / "conf").exists()

    @pytest.mark.parametrize(
        "data",
        [
            b"x = 1\r\ny = 1\r\n",
            b"\xef\xbb\xbfx = 1",
            "# coding: latin-1\nx = 1  # größe\n".encode("latin-1"),
            b"if 1:\n\tx = 1\n",
        ],
    )
    def test_apply_keeps_newlines_encoding_and_mode(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "t.py"
        path.write_bytes(data)
        path.chmod(0o751)
        apply_fix(fix([patch_of(path, "x = 1", "x = 22")]), tmp_path)
        assert path.read_bytes() == data.replace(b"x = 1", b"x = 22", 1)
        assert stat.S_IMODE(path.stat().st_mode) == 0o751
        undo_fix()
        assert path.read_bytes() == data
        assert stat.S_IMODE(path.stat().st_mode) == 0o751

    def test_apply_keeps_a_link(self, script: Path, tmp_path: Path) -> None:
        link = tmp_path / "link.py"
        link.symlink_to(script)
        applied = apply_fix(fix([patch_of(link, "1", "2")]), tmp_path)
        assert link.is_symlink()
        assert script.read_text() == "x = 2\n"
        assert applied.paths == [str(script)]

    def test_relative_path_counts_from_the_directory(self, script: Path) -> None:
        apply_fix(fix([FilePatch(path="train.py", before="x = 1\n", after="x = 2\n")]), script.parent)
        assert script.read_text() == "x = 2\n"

    def test_backup_and_record_are_private(self, script: Path, state: Path) -> None:
        applied = apply_fix(fix([patch_of(script, "1", "2")]), script.parent)
        folder = state / "backups" / applied.id
        assert (folder / "0-train.py").read_bytes() == b"x = 1\n"
        record = json.loads((folder / "record.json").read_text())
        assert record["applied"]["id"] == applied.id
        assert record["changes"][0]["after_sha256"] == hashlib.sha256(b"x = 2\n").hexdigest()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


class TestRefusals:
    def refused(self, root: Path, wanted: Fix, reason: str) -> None:
        """Apply a fix that is refused, and check that nothing changed."""
        before = tree(root)
        with pytest.raises(UserError) as error:
            apply_fix(wanted, root)
        assert reason in str(error.value)
        assert tree(root) == before
        assert not list(root.rglob("*.ddpwizard"))
        home = paths.backups_dir()
        assert not home.exists() or [p.name for p in home.iterdir()] in ([], ["lock"])

    def test_changed_file_is_refused(self, script: Path) -> None:
        wanted = fix([patch_of(script, "1", "2")])
        script.write_text("x = 1\n# mine\n")
        self.refused(script.parent, wanted, "changed since")

    def test_changed_newlines_are_refused(self, script: Path) -> None:
        wanted = fix([patch_of(script, "1", "2")])
        script.write_bytes(b"x = 1\r\n")
        self.refused(script.parent, wanted, "changed since")

    def test_missing_file_leaves_the_others_unchanged(self, script: Path) -> None:
        wanted = fix([patch_of(script, "1", "2"), FilePatch(path="gone.py", before="", after="x")])
        self.refused(script.parent, wanted, "gone.py: No such file or directory")

    def test_new_file_over_another_is_refused(self, script: Path) -> None:
        self.refused(script.parent, fix(files={"other.yaml": "a\n", "train.py": "other\n"}), "is there already")

    def test_new_file_outside_the_directory_is_refused(self, tmp_path: Path) -> None:
        inner = tmp_path / "inner"
        inner.mkdir()
        self.refused(inner, fix(files={"../out.txt": "x"}), "outside")
        self.refused(inner, fix(files={"/etc/ddpwizard-test": "x"}), "outside")

    def test_fix_that_changes_a_file_twice_is_refused(self, script: Path) -> None:
        self.refused(script.parent, fix([patch_of(script, "1", "2"), patch_of(script, "x", "y")]), "twice")

    def test_character_missing_in_the_encoding_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "t.py"
        path.write_bytes("# coding: latin-1\nx = 'é'\n".encode("latin-1"))
        self.refused(tmp_path, fix([patch_of(path, "é", "€")]), "cannot hold")

    def test_fix_without_changes_is_refused(self, script: Path) -> None:
        self.refused(script.parent, fix(files={"train.py": "x = 1\n"}), "changes no file")

    def test_missing_directory_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="no such directory"):
            apply_fix(fix(files={"a.yaml": "x"}), tmp_path / "gone")

    def test_failed_apply_restores_the_first_file(
        self, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The second of two files changes between the check and the write."""
        other = tmp_path / "b.py"
        other.write_text("y = 1\n")
        wanted = fix([patch_of(script, "1", "2"), patch_of(other, "1", "2")])
        stage = atomic_files._stage

        def meanwhile(write: atomic_files.FileWrite) -> Path | None:
            staged = stage(write)
            if write.path == other:
                other.write_text("y = 1  # mine\n")
            return staged

        monkeypatch.setattr(atomic_files, "_stage", meanwhile)
        with pytest.raises(UserError, match="was just changed by another program"):
            apply_fix(wanted, tmp_path)
        monkeypatch.undo()
        assert tree(tmp_path) == {"b.py": b"y = 1  # mine\n", "train.py": b"x = 1\n"}


NO_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user who may not write there")


@NO_ROOT
def test_read_only_directory_changes_no_file(script: Path, tmp_path: Path) -> None:
    """Apply as a user for whom the second directory is read-only; the first file is restored."""
    open_, closed = tmp_path / "open", tmp_path / "closed"
    for folder in (open_, closed):
        folder.mkdir()
        (folder / "t.py").write_text("x = 1\n")
    state = tmp_path / "state"
    state.mkdir()
    for path in (open_, open_ / "t.py", state):
        os.chown(path, 65534, 65534)
    for parent in [closed, *closed.parents]:
        if parent != Path("/") and not parent.stat().st_mode & 0o005:
            parent.chmod(parent.stat().st_mode | 0o055)
    code = (
        "import os, sys; from pathlib import Path; from ddpwizard.app.fixes.apply import apply_fix;"
        "from ddpwizard.app.fixes.types import FilePatch, Fix; from ddpwizard.app.errors import UserError;"
        "os.setgid(65534); os.setuid(65534);"
        "patches = [FilePatch(path=p, before='x = 1\\n', after='x = 2\\n') for p in sys.argv[1:]]\n"
        "try: apply_fix(Fix(id='f', cause='c', title='t', safety='safe', patches=patches), Path('/'))\n"
        "except UserError as error: sys.exit(str(error))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(open_ / "t.py"), str(closed / "t.py")],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert f"cannot write {closed / 't.py'}: Permission denied; nothing was changed" in done.stderr
    assert [(f / "t.py").read_text() for f in (open_, closed)] == ["x = 1\n", "x = 1\n"]
    assert [p.name for p in open_.iterdir()] == ["t.py"]


class TestUndo:
    def test_undo_without_an_apply_is_refused(self) -> None:
        with pytest.raises(UserError, match="nothing to revert"):
            undo_fix()

    def test_second_undo_is_refused(self, script: Path) -> None:
        applied = apply_fix(fix([patch_of(script, "1", "2")]), script.parent)
        undo_fix(applied.id)
        with pytest.raises(UserError, match="already reverted"):
            undo_fix(applied.id)
        with pytest.raises(UserError, match="nothing to revert"):
            undo_fix()

    def test_undo_takes_back_the_last_apply_first(self, script: Path) -> None:
        first = apply_fix(fix([patch_of(script, "1", "2")]), script.parent)
        second = apply_fix(fix([patch_of(script, "2", "3")]), script.parent)
        with pytest.raises(UserError, match="was changed since"):
            undo_fix(first.id)
        assert undo_fix().id == second.id
        assert undo_fix().id == first.id
        assert script.read_text() == "x = 1\n"

    def test_undo_keeps_later_changes(self, script: Path, tmp_path: Path) -> None:
        applied = apply_fix(fix([patch_of(script, "1", "2")], {"new.yaml": "a: 1\n"}), tmp_path)
        (tmp_path / "new.yaml").write_text("a: 2\n")
        with pytest.raises(UserError, match=r"new\.yaml was changed since"):
            undo_fix()
        assert script.read_text() == "x = 2\n"
        (tmp_path / "new.yaml").unlink()
        assert undo_fix().id == applied.id, "a file that is as before the fix is left so"
        assert script.read_text() == "x = 1\n"

    def test_removed_file_is_not_written_again(self, script: Path) -> None:
        applied = apply_fix(fix([patch_of(script, "1", "2")]), script.parent)
        script.unlink()
        with pytest.raises(UserError, match=r"train\.py was removed since"):
            undo_fix(applied.id)

    @pytest.mark.parametrize("id_", ["", "1", "nowhere", "../../etc"])
    def test_undo_refuses_an_unknown_id(self, id_: str) -> None:
        with pytest.raises(UserError, match="no apply with the id"):
            undo_fix(id_)

    def test_undo_accepts_the_beginning_of_an_id(self, script: Path) -> None:
        applied = apply_fix(fix([patch_of(script, "1", "2")]), script.parent)
        assert undo_fix(applied.id[:-2]).id == applied.id

    def test_damaged_newest_record_is_named_and_the_older_can_be_taken_back_by_id(
        self, script: Path, state: Path
    ) -> None:
        applied = apply_fix(fix([patch_of(script, "1", "2")]), script.parent)
        newer = state / "backups" / "99991231-000000-ffff"
        newer.mkdir()
        (newer / "record.json").write_text('{"applied": ')
        with pytest.raises(UserError, match=r"99991231-000000-ffff, is damaged") as error:
            undo_fix()
        assert f"ddpwizard undo {applied.id}" in str(error.value.next_step)
        assert [each.state for each in applied_fixes()] == ["damaged", "applied"]
        assert undo_fix(applied.id).id == applied.id

    def test_changed_newer_fixes_do_not_block_the_older_one(self, script: Path, tmp_path: Path) -> None:
        other, third = tmp_path / "b.py", tmp_path / "c.py"
        for path in (other, third):
            path.write_text("y = 1\n")
        older = apply_fix(fix([patch_of(other, "1", "2")]), tmp_path)
        apply_fix(fix([patch_of(third, "1", "2")]), tmp_path)
        third.write_text("y = 3\n")
        apply_fix(fix([patch_of(script, "1", "2")]), tmp_path)
        script.write_text("x = 3\n")
        with pytest.raises(UserError) as error:
            undo_fix()
        assert f"ddpwizard undo {older.id} reverts the fix before it" in str(error.value.next_step)
        assert [each.state for each in applied_fixes()] == ["changed since", "changed since", "applied"]
        assert undo_fix(older.id).id == older.id

    def test_order_is_that_of_applying_whatever_the_clock_says(
        self, script: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        apply_fix(fix([patch_of(script, "1", "2")]), script.parent)
        an_hour_ago = time.time() - 3600
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda: an_hour_ago)
            second = apply_fix(fix([patch_of(script, "2", "3")]), script.parent)
        assert undo_fix().id == second.id

    def test_record_of_a_removed_directory_does_not_block_others(self, script: Path, tmp_path: Path) -> None:
        applied = apply_fix(fix([patch_of(script, "1", "2")]), tmp_path)
        demo = tmp_path / "demo"
        demo.mkdir()
        (demo / "train.py").write_text("x = 1\n")
        apply_fix(fix([patch_of(demo / "train.py", "1", "2")]), demo)
        shutil.rmtree(demo)
        assert [each.state for each in applied_fixes()] == ["removed", "applied"]
        assert undo_fix().id == applied.id


# Before each of these calls the process is killed once.
STEPS = ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir")


def killed_at(number: int, action: Callable[[], object]) -> bool:
    """Run an action in a child that is killed before its step of this number; return whether it came to that."""
    pid = os.fork()
    if not pid:
        left = [number]

        def watch(event: str, _: object) -> None:
            if event in STEPS:
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(watch)
            action()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def test_kill_at_any_step_of_an_apply_leaves_files_that_undo_restores(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    before = {"a.py": b"x = 1\n", "b.py": b"x = 1\n"}
    after = {"a.py": b"x = 2\n", "b.py": b"x = 2\n", "conf/new.yaml": b"n: 1\n"}
    for name, content in before.items():
        (folder / name).write_bytes(content)
    wanted = fix([patch_of(folder / name, "1", "2") for name in before], {"conf/new.yaml": "n: 1\n"})
    number, seen = 1, set[int]()
    while killed_at(number, lambda: apply_fix(wanted, folder)):
        kept = {name: content for name, content in tree(folder).items() if not name.endswith(".ddpwizard")}
        assert all(content in (before.get(name), after[name]) for name, content in kept.items())
        seen.add(sum(kept.get(name) == content for name, content in after.items()))
        try:
            undo_fix()
        except UserError as error:
            assert "nothing to revert" in str(error), "no record was written yet"
        assert tree(folder) == before, f"after step {number}"
        shutil.rmtree(paths.backups_dir())
        number += 1
    assert seen == {0, 1, 2, 3}, "it was killed before, between and after the files"
    assert tree(folder) == after
    step = 1
    while killed_at(step, undo_fix):
        if any(each.state in ("applied", "unfinished") for each in applied_fixes()):
            undo_fix()
        assert tree(folder) == before, f"after step {step}"
        shutil.rmtree(paths.backups_dir())
        apply_fix(wanted, folder)
        step += 1
    assert tree(folder) == before


def test_lock_that_another_process_holds_is_refused_with_its_pid(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = fix([patch_of(script, "1", "2")])
    monkeypatch.setattr(atomic_files, "LOCK_LIMIT_S", 0.2)
    code = (
        "from ddpwizard.app.system.atomic_files import backup_lock\n"
        "with backup_lock(): print('locked', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline() == b"locked\n"
        with pytest.raises(UserError, match=f"pid {holder.pid}, is applying or undoing"):
            apply_fix(wanted, script.parent)
        holder.communicate(b"\n")
    assert apply_fix(wanted, script.parent).paths == [str(script)]


def test_read_only_file_is_refused(script: Path) -> None:
    wanted = fix([patch_of(script, "1", "2")])
    script.chmod(0o444)
    with pytest.raises(UserError, match="read-only; nothing was changed"):
        apply_fix(wanted, script.parent)
    assert (script.read_text(), [path.name for path in script.parent.iterdir()]) == ("x = 1\n", ["train.py"])


APPLY_AND_UNDO_ON_A_FULL_DISK = """
import os, sys
from pathlib import Path
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.apply import apply_fix
from ddpwizard.app.fixes.types import FilePatch, Fix
from ddpwizard.app.fixes.undo import applied_fixes, undo_fix

scripts, state, filler = [Path(path) for path in sys.argv[1:3]], Path(sys.argv[3]), Path(sys.argv[3], "filler")
patches = [FilePatch(path=str(path), before="x = 1\\n", after="x = 2\\n") for path in scripts]
wanted = Fix(id="f", cause="c", title="t", safety="safe", patches=patches)

def refused_or_done(action):
    before = [path.read_text() for path in scripts]
    try:
        action()
    except UserError as error:
        assert f" {state}/" in error.message and "No space left on device; nothing was changed" in error.message, error
        assert error.next_step.startswith("free some space"), error.next_step
        assert [path.read_text() for path in scripts] == before
        return "refused"
    assert len({path.read_text() for path in scripts} - set(before)) == 1
    return "done"

def at_each_level_of_free_space(action):
    seen = []
    while "done" not in seen:
        page = os.statvfs(state).f_bsize
        filler.write_bytes(bytes(page * max(0, os.statvfs(state).f_bavail - len(seen))))
        seen.append(refused_or_done(action))
        filler.unlink()
    assert "refused" in seen, seen

at_each_level_of_free_space(lambda: apply_fix(wanted, scripts[0].parent))
assert [each.state for each in applied_fixes()] == ["applied"]
at_each_level_of_free_space(undo_fix)
assert [each.state for each in applied_fixes()] == ["taken back"]
"""


@NO_ROOT
def test_full_state_directory_is_named_and_nothing_is_changed(script: Path, tmp_path: Path, state: Path) -> None:
    """Both apply and undo are refused on a real full file system, at each number of free pages, until they fit."""
    other = tmp_path / "b.py"
    other.write_text("x = 1\n")
    state.mkdir(parents=True, exist_ok=True)
    mount_and_run = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'
    python = [sys.executable, "-B", "-c", APPLY_AND_UNDO_ON_A_FULL_DISK]
    arguments = [str(script), str(other), str(state)]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount_and_run, str(state), *python, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("written", ["apply", "undo"])
def test_file_with_other_hard_links_is_refused(script: Path, written: str) -> None:
    wanted = fix([patch_of(script, "1", "2")])
    if written == "undo":
        apply_fix(wanted, script.parent)
    os.link(script, script.with_name("same.py"))
    before = tree(script.parent)
    with pytest.raises(UserError, match=r"train\.py: it has 2 names \(hard links\)") as error:
        undo_fix() if written == "undo" else apply_fix(wanted, script.parent)
    assert error.value.next_step.startswith("copy the file over its name")
    assert tree(script.parent) == before


@NO_ROOT
def test_file_of_another_user_keeps_its_owner(script: Path) -> None:
    wanted = fix([patch_of(script, "1", "2")])
    os.chown(script, 65534, 65534)
    script.chmod(0o664)
    apply_fix(wanted, script.parent)
    status = script.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (65534, 65534, 0o664)


def test_access_control_list_and_attributes_are_kept(script: Path) -> None:
    wanted = fix([patch_of(script, "1", "2")])
    read, read_and_write, anybody = 4, 6, 0xFFFFFFFF
    entries = [(1, read_and_write, anybody), (2, read_and_write, 65534), (4, read, anybody)]
    entries += [(16, read_and_write, anybody), (32, read, anybody)]
    given = {
        "user.origin": b"a template",
        atomic_files.ACCESS_LIST: struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in entries),
    }
    try:
        for name, value in given.items():
            os.setxattr(script, name, value)
    except OSError as error:
        pytest.skip(f"the file system keeps no such attributes: {error}")
    apply_fix(wanted, script.parent)
    assert script.read_text() == "x = 2\n"
    assert {name: os.getxattr(script, name) for name in given} == given


def test_only_one_of_many_concurrent_applies_succeeds(script: Path) -> None:
    """Ten threads apply the same fix to one file: one wins, the others are refused, and it can be taken back."""
    wanted = fix([patch_of(script, "1", "2")])
    won: list[str] = []
    lost: list[str] = []
    start = threading.Barrier(10)

    def one() -> None:
        start.wait(timeout=30)
        try:
            won.append(apply_fix(wanted, script.parent).id)
        except UserError as error:
            lost.append(error.message)

    threads = [threading.Thread(target=one) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=180)
    assert (len(won), len(lost)) == (1, 9)
    assert undo_fix().id == won[0]
    assert script.read_text() == "x = 1\n"
