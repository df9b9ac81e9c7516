"""What this machine and its container allow: facts for `tossup doctor`, none of which decides anything by itself.

Which backend is used is decided by attacking it (`backends`). These probes say why one does not work.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tossup.sandbox import kernel, landlock, seccomp

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY", re.IGNORECASE)
_SECRET_FILES = (
    "~/.ssh", "~/.aws", "~/.azure", "~/.config/gcloud", "~/.kube", "~/.netrc", "~/.docker/config.json", "~/.git-credentials",
    "~/.cache/huggingface/token", "~/.config/wandb", "/run/secrets", "/var/run/secrets", "/var/run/docker.sock",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing tried. `error` is the name of the errno, empty where it worked; `note` says more."""

    name: str
    error: str = ""
    note: str = ""


def probes() -> list[Probe]:
    """Each system facility that a backend needs, tried in a child process."""
    everything = kernel.NEWUSER | kernel.NEWNS | kernel.NEWPID | kernel.NEWNET | kernel.NEWIPC
    return [
        Probe("user namespace", _in_child(lambda: kernel.unshare(kernel.NEWUSER))),
        Probe("user, mount, pid, network and IPC namespaces", _in_child(lambda: kernel.unshare(everything))),
        Probe("mount in a user namespace", _in_child(_mount)),
        _landlock(),
        Probe("seccomp filter", _in_child(_seccomp), f"table for {platform.machine()}"),
        Probe("chroot", _in_child(lambda: os.chroot("/")), "needs root or CAP_SYS_CHROOT"),
        Probe("pidfd_open", _in_child(lambda: os.pidfd_open(os.getpid()))),
        Probe("memfd_create", _in_child(lambda: os.memfd_create("probe"))),
        Probe("cgroup of one's own", *_cgroup()),
    ]


def _in_child(attempt: Callable[[], object]) -> str:
    """The name of the errno with which this fails in a process of its own, or ""."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            attempt()
        except OSError as e:
            code = e.errno or 255
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return errno.errorcode.get(code, f"status {code}") if code else ""


def _mount() -> None:
    kernel.unshare(kernel.NEWUSER | kernel.NEWNS)
    kernel.mount("tmpfs", tempfile.gettempdir(), "tmpfs", 0)
    kernel.mount_setattr(tempfile.gettempdir(), kernel.ATTR_RDONLY, recursive=True)


def _seccomp() -> None:
    kernel.no_new_privileges()
    kernel.load_seccomp(seccomp.for_process(seccomp.compile_filter(), os.getpid()))


def _landlock() -> Probe:
    try:
        abi = kernel.landlock_abi()
    except OSError as e:
        return Probe("Landlock", errno.errorcode.get(e.errno or 0, "?"), "not in this kernel, or switched off at boot")
    gaps = [gap for since, gap in landlock.GAPS.items() if since > abi]
    return Probe(
        "Landlock", "", f"ABI {abi}" + (f", leaves to seccomp: {', '.join(gaps)}" if gaps else ", no gaps known to us")
    )


def _cgroup() -> tuple[str, str]:
    """(error, note) of making a cgroup under our own; the sandbox does not need one."""
    note = "not used: limits are the kernel's per process"
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError as e:
        return errno.errorcode.get(e.errno or 0, "?"), note
    version_2 = [line.split(":", 2)[2] for line in lines if line.startswith("0::")]
    memory = [line.split(":", 2)[2] for line in lines if "memory" in line.split(":", 2)[1].split(",")]
    root = Path("/sys/fs/cgroup")
    place = root / "memory" / memory[0].lstrip("/") if memory else root / (version_2 or ["/"])[0].lstrip("/")
    try:
        Path(tempfile.mkdtemp(prefix="tossup-", dir=place)).rmdir()
    except OSError as e:
        return errno.errorcode.get(e.errno or 0, "?"), f"{place}; {note}"
    return "", f"{place}; {note}"


def container() -> str:
    """The kind of container that this looks like, as far as one can see from inside."""
    try:
        groups = Path("/proc/1/cgroup").read_text()
    except OSError:
        groups = ""
    signs = {
        "kubernetes": "KUBERNETES_SERVICE_HOST" in os.environ or "kubepods" in groups,
        "docker": os.path.exists("/.dockerenv") or "docker" in groups,
        "podman": os.path.exists("/run/.containerenv"),
        "apptainer": "APPTAINER_NAME" in os.environ or "SINGULARITY_NAME" in os.environ,
        "slurm job": "SLURM_JOB_ID" in os.environ,
    }
    return ", ".join(name for name, seen in signs.items() if seen) or "none seen"


def gpus() -> list[str]:
    """Device files of GPUs. Programs in the sandbox see none of them."""
    found = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dri/renderD*"), *Path("/dev").glob("kfd")]
    return sorted(str(p) for p in found)


def secrets() -> list[str]:
    """Names of environment variables and paths that look secret and that this process can see. Never their content."""
    variables = sorted(f"${name}" for name in os.environ if _SECRET_NAME.search(name))
    return variables + [path for path in _SECRET_FILES if os.path.exists(os.path.expanduser(path))]
