"""Run a command that sees the whole file system and changes none of it: all it writes goes to a directory of its own.

Run as a script by ``app/fixes/sandbox.py`` (standard library only)::

    python -IS private_mounts.py PLAN.json -- COMMAND…

PLAN: ``{"work": directory for what is written, "files": {path: text}, "cwd": path, "writes": [directory]}``. In a
mount namespace (and a user namespace, if not root) each file system is replaced by an overlay whose lower layer is the
original and whose upper layer is in ``work``; what cannot be overlaid becomes read-only. ``files`` are then written
over the originals, as the command sees them, and the command is executed. If any of this fails nothing is started:
exit code 125 and the reason.
"""

import ctypes
import json
import os
import stat
import sys

EXIT_CODE = 125
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = (
    1, 2, 4, 8, 32, 4096, 8192, 16384, 1 << 18
)  # fmt: skip
KEPT_FLAGS = {"nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC, "noatime": 1 << 10, "relatime": 1 << 21}
KERNEL = ("/proc", "/sys", "/dev")  # shown as they are: no user files
SHARED_MEMORY = "/dev/shm"
libc = ctypes.CDLL(None, use_errno=True)


class Mounts:
    """The mounts of this namespace, and the new root that is composed from them."""

    def __init__(self, work: str, writes: "list[str]") -> None:
        self.root = os.path.join(work, "root")
        self._writes = writes
        self._layers = os.path.join(work, "layers")
        self._count = 0
        self._is_user = os.getuid() != 0
        self._flags = read_mount_flags()
        self._points = [p for p in self._flags if p != "/" and not p.startswith(work) and not is_kernel(p)]
        os.makedirs(self.root)
        os.makedirs(self._layers)

    def build(self) -> None:
        """Compose the new root."""
        if self._overlay("/", self.root, trial=True):
            self._add_mounts_below("/")
        else:
            if not self._can_hold_layers():
                mount("tmpfs", self._layers, "tmpfs")
            mount("tmpfs", self.root, "tmpfs")
            self._compose("/")
        for path in KERNEL:
            if os.path.isdir(path):
                os.makedirs(self.root + path, exist_ok=True)
                mount(path, self.root + path, flags=MS_BIND | MS_REC)
        if os.path.isdir(SHARED_MEMORY):
            self._add_shared_memory()

    def enter(self) -> None:
        """Make the new root the root of this process."""
        os.chdir(self.root)
        mount(".", "/", flags=MS_MOVE)
        os.chroot(".")
        os.chdir("/")

    def _can_hold_layers(self) -> bool:
        """Return whether the file system of ``work`` can hold upper layers (an overlay cannot)."""
        empty = os.path.join(self._layers, "empty")
        os.mkdir(empty)
        allowed = self._overlay(empty, self.root, trial=True)
        unmount(self.root)
        return allowed

    def _compose(self, path: str) -> None:
        """Show a directory that has mounts below it and cannot be overlaid as a whole, entry by entry."""
        for entry in os.scandir(path):
            target = self.root + entry.path
            if is_kernel(entry.path):
                continue
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), target)
            elif entry.is_dir():
                os.mkdir(target)
                self._show(entry.path)
            elif entry.is_file():
                open(target, "x").close()
                self._bind_read_only(entry.path)

    def _show(self, path: str) -> None:
        """Show a directory: as an overlay, else entry by entry if it has mounts below it, else read-only."""
        if self._overlay(path, self.root + path):
            self._add_mounts_below(path)
        elif self._mounts_below(path):
            mount("tmpfs", self.root + path, "tmpfs")
            try:
                self._compose(path)
            except PermissionError:
                return
        else:
            self._bind_read_only(path)

    def _add_mounts_below(self, path: str) -> None:
        """Show the mounts directly below a directory, which an overlay of it leaves out."""
        for point in self._mounts_below(path):
            if os.path.isdir(point) and os.path.isdir(self.root + point):
                self._show(point)
            elif os.path.isfile(self.root + point):
                self._bind_read_only(point)

    def _mounts_below(self, path: str) -> "list[str]":
        below = [p for p in self._points if p.startswith(path.rstrip("/") + "/")]
        return [p for p in below if not any(p.startswith(other + "/") for other in below)]

    def _overlay(self, lower: str, target: str, trial: bool = False) -> bool:
        """Mount an overlay; return whether the kernel allows it for this directory."""
        if any(character in lower for character in ":,\\"):
            return False
        self._count += 1
        upper, work = (os.path.join(self._layers, f"{self._count}-{name}") for name in ("upper", "work"))
        os.mkdir(upper)
        os.mkdir(work)
        copy_mode(lower, upper)
        self._make_writable(lower, upper)
        options = f"lowerdir={lower},upperdir={upper},workdir={work}" + (",userxattr" if self._is_user else "")
        try:
            mount("overlay", target, "overlay", options=options)
        except OSError:
            return False
        if trial and not is_writable(upper, target):
            unmount(target)
            return False
        return True

    def _make_writable(self, lower: str, upper: str) -> None:
        """Make the directories that will be written in the upper layer.

        In a user namespace the kernel cannot copy directories of other users and groups up.
        """
        for path in self._writes:
            names = os.path.relpath(path, lower).split(os.sep)
            if names[0] in (".", ".."):
                continue
            for end in range(1, len(names) + 1):
                source, target = os.path.join(lower, *names[:end]), os.path.join(upper, *names[:end])
                if os.path.islink(source) or not os.path.isdir(source):
                    break
                if not os.path.isdir(target):
                    os.mkdir(target)
                    copy_mode(source, target)

    def _bind_read_only(self, path: str) -> None:
        """Show a file or directory read-only, or not at all."""
        target = self.root + path
        try:
            mount(path, target, flags=MS_BIND)
        except OSError:
            return
        point = max((p for p in self._flags if (path + "/").startswith(p.rstrip("/") + "/")), key=len)
        try:
            mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | self._flags[point])
        except OSError:
            unmount(target)

    def _add_shared_memory(self) -> None:
        """Show the files in shared memory, with an upper layer in memory as well."""
        target = self.root + SHARED_MEMORY
        mount("tmpfs", self._layers, "tmpfs")
        if not self._overlay(SHARED_MEMORY, target):
            mount("tmpfs", target, "tmpfs")
            os.chmod(target, 0o1777)


def read_mount_flags() -> "dict[str, int]":
    """Return the mount points of this namespace with the flags that a read-only remount has to keep."""
    found: dict[str, int] = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            words = line.split(" ")
            path = words[4].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
            found[path] = sum(flag for name, flag in KEPT_FLAGS.items() if name in words[5].split(","))
    return found


def is_kernel(path: str) -> bool:
    """Return whether a path is shown as it is."""
    return any(path == top or path.startswith(top + "/") for top in KERNEL)


def is_writable(upper: str, target: str) -> bool:
    """Return whether a file written in the overlay arrives in its upper layer."""
    name = f".ddpwizard-{os.getpid()}"
    try:
        open(os.path.join(target, name), "x").close()
        arrived = os.path.exists(os.path.join(upper, name))
        os.unlink(os.path.join(target, name))
    except OSError:
        return False
    return arrived


def copy_mode(source: str, target: str) -> None:
    """Give a directory the mode and owner of another, as far as permitted."""
    status = os.stat(source)
    try:
        os.chown(target, status.st_uid, status.st_gid)
    except OSError:
        pass  # a user may give nothing away
    os.chmod(target, stat.S_IMODE(status.st_mode))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Call mount(2).

    Raises:
        OSError: The kernel refuses.
    """
    words = [os.fsencode(word) if word else None for word in (source, target, kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options) if options else None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {target}: {os.strerror(number)}")


def unmount(target: str) -> None:
    """Call umount2(2); a target that is not mounted is left as it is."""
    libc.umount2(os.fsencode(target), 2)


def unshare(flags: int) -> None:
    """Call unshare(2).

    Raises:
        OSError: The kernel refuses.
    """
    if libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")


def enter_namespaces() -> None:
    """Enter a mount namespace of our own, and as a user a user namespace that keeps the user's id."""
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        unshare(CLONE_NEWNS)
    else:
        unshare(CLONE_NEWUSER | CLONE_NEWNS)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)


def write_files(files: "dict[str, str]") -> None:
    """Replace files as the command will see them."""
    for path, text in files.items():
        new = f"{path}.{os.getpid()}"
        with open(new, "x", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(new, stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o644)
        os.replace(new, path)


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    command = sys.argv[3:]
    try:
        enter_namespaces()
        mounts = Mounts(plan["work"], [plan["cwd"], *map(os.path.dirname, plan["files"]), *plan["writes"]])
        mounts.build()
        mounts.enter()
        write_files(plan["files"])
        os.chdir(plan["cwd"])
    except OSError as error:
        print(f"no private file system: {error.strerror or error}", file=sys.stderr)
        sys.exit(EXIT_CODE)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
