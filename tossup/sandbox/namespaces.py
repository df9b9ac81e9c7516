"""The strongest backend: namespaces of the sandbox's own, made without any privilege where the kernel allows that.

    once per zygote   user, mount, network, IPC, host name and cgroup namespaces, and a pid namespace whose pid 1 it is:
                      when the zygote dies, the kernel kills all that lives under it
    once per run      a pid namespace, where the program is pid 1 and sees no other process; and on /tmp a tmpfs of
                      limited size, empty at the start of every run

The root is a read-only tmpfs with read-only binds of the interpreter and the system's libraries, and three devices. There
is no /proc and no /sys. The network namespace has no interface that is up.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from tossup.sandbox import kernel

HOLDER, TMP, OLD = "/box", "/box/tmp", "/old"
"""/tmp is a link to TMP. Landlock's rule stands on HOLDER, since it looks at what a mount hangs in, not at the mount."""
UID = 1000
"""What the program sees as its user: not 0, so that nothing believes to be root."""


def leave_host() -> None:
    """Move this process into new namespaces. Its next child will be pid 1 of the new pid namespace.

    Raises:
        OSError: EPERM or ENOSPC where the machine or its container forbids it, ENOSYS where the kernel lacks them.
    """
    uid, gid = os.geteuid(), os.getegid()
    kinds = (kernel.NEWUSER, kernel.NEWNS, kernel.NEWPID, kernel.NEWNET, kernel.NEWIPC, kernel.NEWUTS, kernel.NEWCGROUP)
    try:
        kernel.unshare(sum(kinds))
    except OSError as e:
        if e.errno == errno.EINVAL:
            raise OSError(errno.ENOSYS, "unshare: this kernel was built without one of the namespaces") from e
        raise
    for name, text in (("setgroups", "deny"), ("uid_map", f"{UID} {uid} 1"), ("gid_map", f"{UID} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as f:
            f.write(text)


def build_root(readable: Iterable[str], devices: Iterable[str]) -> None:
    """Replace the root by an empty one that shows these paths only, read-only.

    The new root is first mounted anywhere and made the root; what it covered there is then in sight again, under OLD.
    """
    links = {path: os.readlink(path) for path in readable if os.path.dirname(path) == "/" and os.path.islink(path)}
    paths = [path for path in readable if path not in links and os.path.exists(path)]
    sources = {path: (os.path.realpath(path), kernel.ATTR_NODEV) for path in paths}
    sources |= {path: (path, 0) for path in devices if os.path.exists(path)}
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    anywhere = next(path for path in ("/tmp", "/var", "/usr") if os.path.isdir(path))
    kernel.mount("tmpfs", anywhere, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    os.mkdir(anywhere + OLD)
    os.chdir(anywhere)
    kernel.pivot_root(".", OLD.lstrip("/"))
    os.chdir("/")
    for path, target in links.items():
        os.symlink(target, path)
    for path, (source, attributes) in sources.items():
        bind(OLD + source, path, attributes)
    kernel.unmount(OLD)
    os.rmdir(OLD)
    os.makedirs(TMP, mode=0o755)
    if not os.path.lexists("/tmp"):  # an interpreter installed in /tmp has made it a read-only directory
        os.symlink(TMP, "/tmp")
    kernel.mount_setattr("/", kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV, recursive=False)


def bind(source: str, target: str, attributes: int) -> None:
    """Show a file or directory of the host at another place, read-only, with the mounts beneath it."""
    if os.path.isdir(source):
        os.makedirs(target, mode=0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        with open(target, "x"):
            pass
    kernel.mount(source, target, "", kernel.MS_BIND | kernel.MS_REC)
    kernel.mount_setattr(target, kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | attributes, recursive=True)


class PidNamespaces:
    """Makes the next child pid 1 of a pid namespace of its own."""

    def __init__(self) -> None:
        self._home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def renew(self) -> None:
        """Call before every fork. A process may make one pid namespace, unless it goes home before the next."""
        kernel.setns(self._home, kernel.NEWPID)
        kernel.unshare(kernel.NEWPID)


class Tmp:
    """The working directory of runs: a tmpfs, replaced by a fresh one when a run has made anything in it.

    Not one per run: taking mounts apart waits for all processors, which halved the runs a second. An empty one is not a fresh
    one: the number of the next file and the place of the next entry count all that were ever made, so that a run which makes
    files and removes them tells the next a number. Each such change dates the directory; a fresh one bears the date 0,
    which no run can give back to it.
    """

    def __init__(self) -> None:
        self._size = 0

    def renew(self, size: int) -> None:
        """Call before every run: an empty directory of at most so many bytes, as the current directory."""
        if self._size == size and os.stat(TMP).st_mtime_ns == 0:
            return
        if self._size:
            os.chdir("/")
            kernel.unmount(TMP)  # however deep its directories are
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC | kernel.MS_NOATIME
        kernel.mount("tmpfs", TMP, "tmpfs", flags, f"size={size},nr_inodes=4096,mode=777")
        os.utime(TMP, ns=(0, 0))
        os.chdir(TMP)
        self._size = size
