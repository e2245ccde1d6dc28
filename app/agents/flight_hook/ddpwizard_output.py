"""The copy of the output of a process, in the directory of ``ddpwizard run``: each line with its time.

Written by the process itself, and by ``copy_errors.py`` for what its C++ code prints (Python >= 3.9, standard library).
"""

import functools
import os
import time

LIMIT_BYTES = 8 * 1024 * 1024  # then a new copy begins; one older part is kept


class OutputCopy:
    """The copy of the output of one process; without ``pid`` that of the current one, also in a forked child."""

    def __init__(self, folder, pid=None):
        self.folder, self.pid = folder, pid
        self.opened = (-1, "", 0)  # descriptor, path and inode

    def append(self, text):
        """Append lines without their last line end."""
        now = time.time()
        head = "%s.%03d " % (clock_text(int(now)), now % 1 * 1000)
        lines = head + text.replace("\n", "\n" + head) + "\n"
        path = os.path.join(self.folder, "%d.log" % (self.pid or os.getpid()))
        file, size = self._open(path)
        os.write(file, lines.encode(errors="backslashreplace"))
        if size > LIMIT_BYTES:
            if os.stat(path).st_ino == self.opened[2]:  # else the other writer has begun a new one
                os.replace(path, path + ".1")
            self.opened = (-1, "", 0)
            os.close(file)

    def _open(self, path):
        """Return the open file and its size; the job may have closed ours and reused its number."""
        file, opened, inode = self.opened
        try:
            status = os.fstat(file)
            if opened == path and status.st_ino == inode:
                return file, status.st_size
        except OSError:
            pass
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        status = os.fstat(file)
        self.opened = (file, path, status.st_ino)
        return file, status.st_size


@functools.lru_cache(maxsize=1)
def clock_text(second):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(second))
