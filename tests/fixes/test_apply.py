"""Writing fixes to disk: completely or not at all, with undo, never over the changes of others."""

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.apply import apply_fix, undo_fix
from ddpwizard.app.fixes.types import FilePatch, Fix
from ddpwizard.app.system import paths
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
    def refused(self, root: Path, wanted: Fix, said: str) -> None:
        """Apply a fix that is refused, and check that nothing changed."""
        before = tree(root)
        with pytest.raises(UserError) as error:
            apply_fix(wanted, root)
        assert said in str(error.value)
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
        from ddpwizard.app.system import atomic_files

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
        with pytest.raises(UserError, match="nothing to take back"):
            undo_fix()

    def test_second_undo_is_refused(self, script: Path) -> None:
        applied = apply_fix(fix([patch_of(script, "1", "2")]), script.parent)
        undo_fix(applied.id)
        with pytest.raises(UserError, match="taken back already"):
            undo_fix(applied.id)
        with pytest.raises(UserError, match="nothing to take back"):
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
        with pytest.raises(UserError, match=r"new\.yaml was removed since"):
            undo_fix(applied.id)

    @pytest.mark.parametrize("id_", ["", "1", "nowhere", "../../etc"])
    def test_undo_refuses_an_unknown_id(self, id_: str) -> None:
        with pytest.raises(UserError, match="no apply with the id"):
            undo_fix(id_)

    def test_undo_accepts_the_beginning_of_an_id(self, script: Path) -> None:
        applied = apply_fix(fix([patch_of(script, "1", "2")]), script.parent)
        assert undo_fix(applied.id[:-2]).id == applied.id

    def test_undo_ignores_an_incomplete_record(self, script: Path, state: Path) -> None:
        applied = apply_fix(fix([patch_of(script, "1", "2")]), script.parent)
        (state / "backups" / "torn").mkdir()
        (state / "backups" / "torn" / "record.json").write_text('{"applied": ')
        assert undo_fix().id == applied.id


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
