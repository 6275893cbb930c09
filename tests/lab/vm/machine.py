"""Boot the machine, run one command in it as root, power off.

The host's `/` is visible below a memory overlay: no image is built, the checkout and its virtual environment are at
the same paths, and all that the machine writes vanishes, except what goes to /run/lab. TMPDIR is an empty ext4 disk.

Emulation (TCG), not KVM: /dev/kvm being writable says nothing; on nested hosts guests were seen to hang or to be
stopped at the first unusual instruction. One processor: with two, qemu 7.2 was seen to run into the breakpoints by
which a booting kernel patches its own code ("Oops: int3" in sched_clock_cpu), and two were no faster here. A start
takes 2 to 11 s, and Python code runs 10 to 100 times slower, as the host is idle or busy.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.lab.kit.places import CHECKOUT, PYTHON
from tests.lab.kit.wait import until
from tests.lab.vm.kernel import Kernel, NotAvailableError, ensure

VIRTIOFSD: Final = "/usr/lib/qemu/virtiofsd"
"""Part of qemu-system-common of Debian 12."""
SYSTEMD: Final = "/lib/systemd/systemd"

_KERNEL_COMMAND_LINE: Final = "console=ttyS0 panic=-1 psi=1 cgroup_no_v1=all mitigations=off nopti quiet"

_SYSTEMD_START: Final = f"""mkdir -p /run/systemd/system
cat >/run/systemd/system/lab.service <<END
[Unit]
DefaultDependencies=no
Wants=systemd-journald.service
After=systemd-journald.service
[Service]
Type=oneshot
ExecStart=/bin/sh /run/lab/job.sh
END
exec {SYSTEMD} --unit=lab.service --show-status=no
"""
"""Nothing of the usual start is wanted (it takes minutes and empties /tmp): the job and the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run and in how large a machine; with `systemd` as the first process, or with nothing else at all."""

    command: Sequence[str]
    systemd: bool = False
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    memory_mib: int = 1024
    disk_mib: int = 512
    timeout_seconds: float = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it went. `status` is None when the command did not end: see `console`."""

    status: int | None
    output: str  # both streams
    console: str
    seconds: float
    boot_seconds: float | None  # from our start to the command's


def run(job: Job, on_output: Callable[[str], None] = lambda _: None) -> Outcome:
    """Run the job. `on_output` gets its output as it comes. Raises `NotAvailableError` where no machine can be had."""
    if os.geteuid() != 0:
        raise NotAvailableError("not root: virtiofsd cannot share the root file system")
    if not Path(VIRTIOFSD).exists():
        raise NotAvailableError(f"{VIRTIOFSD} is missing: apt-get install qemu-system-common")
    if job.systemd and not Path(SYSTEMD).exists():
        raise NotAvailableError(f"{SYSTEMD} is missing: apt-get install systemd")
    kernel = ensure()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oomguard-lab-")))
        stack.callback(kernel.initramfs.unlink)
        return _run(job, kernel, folder, on_output)


def _run(job: Job, kernel: Kernel, folder: Path, on_output: Callable[[str], None]) -> Outcome:
    results = folder / "results"
    results.mkdir()
    (results / "job.sh").write_text(_job_script(job))
    (results / "start.sh").write_text(_SYSTEMD_START if job.systemd else "exec /bin/sh /run/lab/job.sh\n")
    disk = folder / "disk"
    with disk.open("wb") as file:
        file.truncate(job.disk_mib << 20)
    subprocess.run(["/sbin/mkfs.ext4", "-q", str(disk)], check=True)
    began = time.monotonic()
    began_wall = time.time()
    with _running(_share(folder, "labroot", "/", "always")), _running(_share(folder, "labout", str(results), "auto")):
        sockets = [folder / f"{tag}.socket" for tag in ("labroot", "labout")]
        until(lambda: all(socket.exists() for socket in sockets), 10, "virtiofsd to listen")
        with _running(_qemu(job, kernel, folder)) as qemu:
            _follow(qemu, results / "output", began + job.timeout_seconds, on_output)
    status = _text(results / "status").strip()
    started = _text(results / "started").strip()
    return Outcome(
        status=int(status) if status else None,
        output=_text(results / "output"),
        console=_text(folder / "console"),
        seconds=time.monotonic() - began,
        boot_seconds=float(started) - began_wall if started else None,
    )


def _job_script(job: Job) -> str:
    """The interpreter's real folder comes first in PATH: version managers' shims cost 18 s a start under emulation."""
    path = f"{Path(PYTHON).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    exports = {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", "TMPDIR": "/run/disk"}
    exports |= {"LAB_ALONE": "1", **job.env}
    return "\n".join(
        [
            *(f"export {name}={shlex.quote(value)}" for name, value in exports.items()),
            "/bin/busybox ip link set lo up",
            "/bin/busybox hostname labvm",
            f"mount --bind -o ro {shlex.quote(str(CHECKOUT))} {shlex.quote(str(CHECKOUT))}",
            f"cd {shlex.quote(str(CHECKOUT))}",
            "date +%s.%N >/run/lab/started",
            f"{shlex.join(job.command)} >/run/lab/output 2>&1 </dev/null",
            "echo $? >/run/lab/status",
            "sync",
            "/bin/busybox poweroff -f",
            "",
        ]
    )


def _share(folder: Path, tag: str, source: str, cache: str) -> list[str]:
    options = ["-o", f"source={source}", "-o", f"cache={cache}", "-o", "sandbox=chroot", "--thread-pool-size=1"]
    return [VIRTIOFSD, f"--socket-path={folder / tag}.socket", *options]


def _qemu(job: Job, kernel: Kernel, folder: Path) -> list[str]:
    memory = f"memory-backend-memfd,id=mem,size={job.memory_mib}M,share=on"  # vhost-user needs shared memory
    shares: list[str] = []
    for tag in ("labroot", "labout"):
        shares += ["-chardev", f"socket,id={tag},path={folder / tag}.socket"]
        shares += ["-device", f"vhost-user-fs-pci,queue-size=1024,chardev={tag},tag={tag}"]
    return [
        *("qemu-system-x86_64", "-accel", "tcg,tb-size=256", "-cpu", "max", "-smp", "1"),
        *("-machine", "q35,memory-backend=mem", "-m", str(job.memory_mib), "-object", memory),
        *("-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{folder / 'console'}"),
        *("-kernel", str(kernel.image), "-initrd", str(kernel.initramfs), "-append", _KERNEL_COMMAND_LINE),
        *("-drive", f"file={folder / 'disk'},if=none,id=disk,format=raw,cache=unsafe"),
        *("-device", "virtio-blk-pci,drive=disk", *shares),
    ]


@contextlib.contextmanager
def _running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a helper process; on the way out it is stopped, if it has not ended by itself."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    _pass_on_niceness(process.pid)
    try:
        yield process
    finally:
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _pass_on_niceness(pid: int) -> None:
    """A new session is a new group of the scheduler's autogroups, and those start at 0, whatever we are ourselves."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(os.nice(0)))


def _follow(qemu: subprocess.Popen[bytes], output: Path, deadline: float, on_output: Callable[[str], None]) -> None:
    """Pass new output on until the machine is off or its time is up."""
    said = 0
    while True:
        ended = _ended(qemu)
        text = _text(output)
        if len(text) > said:
            on_output(text[said:])
            said = len(text)
        if ended or time.monotonic() > deadline:
            return


def _ended(qemu: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        qemu.wait(timeout=0.2)
        return True
    return False


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
