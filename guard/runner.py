"""`oomguard run -- COMMAND`: be the parent of any server without being noticed.

What the server and the outside see is what they would see without us:

    * Exit status. A server that exits with n makes us exit with n. One that dies by a signal makes us die by the
      same signal, so that the wait status is the same; our own core limit is zero then (one core is enough, and
      ours would overwrite it), so the core flag is not carried over. As PID 1 the kernel ignores signals that we
      send to ourselves (SIGNAL_UNKILLABLE, kernel/signal.c); there we exit with 128 + signal, as shells say it.
    * Signals. Everything that can be blocked is, before the server starts, and is taken synchronously and passed
      on. A signal that the kernel sent (the terminal: Ctrl-C, Ctrl-Z, resize, hang-up) went to the whole foreground
      group, and with it to the server: it is not passed on again.
    * Process group, session, terminal: shared with the server. A group of its own would take the terminal dance of
      a shell, and a supervisor's `kill -9 -GROUP` would leave the server behind. The price: who sends a signal to
      the group (`timeout`, systemd's KillMode=control-group) reaches the server twice, once through us.
    * Stops. When job control stops the server, we stop too, so that the shell sees it; SIGCONT goes on to the
      server.
    * Orphans. As PID 1 we reap whatever is handed to us. We end when the server ends, and with us the container.

Ours alone: the server's kernel files are handed over to the sidecar, and its raw wait status is reported when it
ends, with the time of the first SIGTERM that came here: as a note in the shared directory (see `guard.box.end_note`),
and by the link. Where there is no sidecar this costs at most `_FAREWELL_SECONDS` at the end. With OOMGUARD=off neither
happens. The server's oom_score_adj is left as it is; so is ours.

The signal numbers SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP and SIGSYS stay unblocked: they are our own faults.
"""

# ruff: noqa: PTH100, PTH110, PTH113, PTH118, PTH120 - pathlib is memory that the runner does not need

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from typing import TYPE_CHECKING, Final, NoReturn

from guard.fence import fence
from guard.keeper import MAIN, PARENT, SWITCH, switched_off
from guard.launch import start
from guard.place import (
    DIRECTORY_VARIABLE,
    NAME_VARIABLE,
    WATCH_VARIABLE,
    model_name,
    pressure_path,
    shared_directory,
    socket_path,
)
from guard.saying import complain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guard.link.client import LinkClient
    from guard.link.handover import Who

    Mask = set[int] | set[signal.Signals] | set[int | signal.Signals]
    SigtermTimes = tuple[float, float] | tuple[None, None]  # wall clock, monotonic

SITE: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
EXIT_USAGE: Final = 2
EXIT_NOT_EXECUTABLE: Final = 126
EXIT_NOT_FOUND: Final = 127
_FAREWELL_SECONDS: Final = 0.2
_NOT_TAKEN: Final = frozenset(
    {
        signal.SIGKILL,
        signal.SIGSTOP,
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGSYS,
    }
)
_JOB_STOPS: Final = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_DEFAULT_IN_CHILD: Final = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores both; a server expects the default
_SI_KERNEL_MIN: Final = 1
"""si_code above zero: sent by the kernel; at or below: by kill, sigqueue, tgkill of some process (sigaction(2))."""


def child_environment(environment: Mapping[str, str], session: str, name: str) -> dict[str, str]:
    """Give the server's environment: our site folder first on PYTHONPATH, the guard on, and whom to ask of pressure."""
    before = environment.get("PYTHONPATH")
    return {
        **environment,
        **_pressure_watch(environment),
        "PYTHONPATH": SITE if not before else f"{SITE}{os.pathsep}{before}",
        SWITCH: "on",
        DIRECTORY_VARIABLE: _absolute(shared_directory()),
        NAME_VARIABLE: name,
        PARENT: session,
    }


def _pressure_watch(environment: Mapping[str, str]) -> dict[str, str]:
    """Name the sidecar's pressure socket to programs that speak systemd's protocol, where nobody has named another.

    Only if it is there by now: a program that is pointed at nothing does without, one that is not asked may have a
    way of its own.
    """
    path = _absolute(pressure_path(shared_directory()))
    return {WATCH_VARIABLE: path} if not environment.get(WATCH_VARIABLE) and os.path.exists(path) else {}


def _absolute(path: str) -> str:
    """Make a path independent of the working directory, where there is one (it may be removed)."""
    try:
        return os.path.abspath(path)
    except OSError:
        return path


def run(command: Sequence[str]) -> int:
    """Run a server to its end.

    Returns:
        The exit status to end with, where the server exited. Where a signal killed it, this process is killed too.
    """
    session = os.urandom(8).hex()
    guarded = not switched_off()
    environment = child_environment(os.environ, session, model_name(command)) if guarded else dict(os.environ)
    taken = signal.valid_signals() - _NOT_TAKEN
    before = _Before(
        signal.pthread_sigmask(signal.SIG_BLOCK, taken),
        # Ignored, the kernel would reap the server and tell nobody (do_notify_parent, kernel/signal.c).
        ignores_children=signal.signal(signal.SIGCHLD, signal.SIG_DFL) is signal.SIG_IGN,
    )
    held: dict[str, int] = {}
    kills = _OomKills()
    if guarded:
        with fence("kills"):
            kills.look()
    try:
        child = start(lambda: _become(command, environment, before), held if guarded else None)
    except OSError as error:
        return _refuse(command[0], error)
    told = None
    if guarded:
        with fence("hand-over"):
            told = _hand_over(child, session, command, held)
    status, sigterm = _attend(child, taken)
    if told is not None:
        with fence("farewell"):
            _say_end(*told, _Ended(status, sigterm, kills.look()))
    return _end_like(status, before.mask)


class _Before:
    """How signals were when we were started, which is how the server gets them."""

    def __init__(self, mask: Mask, *, ignores_children: bool) -> None:
        self.mask = mask
        self.ignores_children = ignores_children


def _become(command: Sequence[str], environment: dict[str, str], before: _Before) -> NoReturn:
    """In the child: put signals back and execute.

    Raises:
        OSError: the command cannot be executed.
    """
    for number in _DEFAULT_IN_CHILD:
        signal.signal(number, signal.SIG_DFL)
    if before.ignores_children:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if environment.get(SWITCH) == "on":
        environment[MAIN] = str(os.getpid())
    signal.pthread_sigmask(signal.SIG_SETMASK, before.mask)
    os.execvpe(command[0], list(command), environment)  # noqa: S606 - running this command is the job


def _refuse(name: str, error: OSError) -> int:
    """Say why a command cannot be started; the status is what a shell would give."""
    found_none = error.errno in (errno.ENOENT, errno.ENOTDIR)
    if found_none and _is_there(name):
        reason = "the interpreter that it names is missing"
    else:
        reason = "no such command" if found_none else str(error.strerror)
    complain(f"oomguard run: {name}: {reason}\n")
    return EXIT_NOT_FOUND if found_none else EXIT_NOT_EXECUTABLE


def _is_there(name: str) -> bool:
    """Whether the command itself exists: for a missing `#!` or ELF interpreter the kernel gives the same error."""
    folders = [""] if "/" in name else os.get_exec_path()
    return any(os.path.isfile(os.path.join(folder, name)) for folder in folders)


def _attend(child: int, taken: Mask) -> tuple[int, SigtermTimes]:
    """Pass signals on and reap until the server ends; give its raw wait status, and when the first SIGTERM came."""
    sigterm: SigtermTimes = (None, None)
    while True:
        info = signal.sigwaitinfo(taken)
        if info.si_signo == signal.SIGTERM and sigterm[0] is None:
            sigterm = (time.time(), time.monotonic())
        if info.si_signo == signal.SIGCHLD:
            status = _reap(child)
            if status is not None:
                return status, sigterm
        elif info.si_code < _SI_KERNEL_MIN:
            try:
                os.kill(child, info.si_signo)
            except PermissionError:
                complain(f"oomguard run: signal {info.si_signo} could not be passed on\n")


def _reap(child: int) -> int | None:
    """Collect everything that ended. Give the server's wait status once it has one."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if pid != child:
            continue
        if not os.WIFSTOPPED(status):
            return status
        if os.WSTOPSIG(status) in _JOB_STOPS:
            os.kill(os.getpid(), signal.SIGSTOP)


class _OomKills:
    """How often the kernel has killed for want of memory in our own cgroup, which is the server's too.

    We outlive the server, so this tells of a kill that came before any hand-over did.
    """

    def __init__(self) -> None:
        self._read: Callable[[], int | None] | None = None
        self._before: int | None = None

    def look(self) -> tuple[int | None, int | None]:
        """Read the counter; give what it was at the first look, and what it is now. None: not known."""
        if self._read is None:
            self._read = _counter()
            self._before = self._read()
        return self._before, self._read()


def _counter() -> Callable[[], int | None]:
    from guard.kernel import flat
    from guard.kernel.locate import locate
    from guard.kernel.reader import Reader
    from guard.kernel.values import CgroupVersion
    from guard.model import Unknown

    reader = Reader()
    located = locate(reader)
    if isinstance(located, Unknown) or not located.value.levels:
        return lambda: None
    level = located.value.levels[0]
    name = "memory.events" if level.version is CgroupVersion.V2 else "memory.oom_control"
    path = f"{level.memory_dir}/{name}"

    def read() -> int | None:
        data = reader.read(path)
        table = data if isinstance(data, Unknown) else flat.parse_table(data.value, path)
        return None if isinstance(table, Unknown) else table.value.get("oom_kill")

    return read


def _hand_over(
    child: int, session: str, command: Sequence[str], held: Mapping[str, int]
) -> tuple[Who, LinkClient] | None:
    """Start the link that hands over the server's kernel files; None where its life cannot be told."""
    from guard.kernel import identity
    from guard.kernel.reader import Reader
    from guard.link.client import LinkClient, LinkSettings
    from guard.link.handover import Handover, Who, gather
    from guard.link.protocol import Role
    from guard.model import LifeId, Unknown

    reader = Reader()
    boot_id, start_ticks = identity.boot_id(reader), identity.start_ticks(reader, child)
    if isinstance(boot_id, Unknown) or isinstance(start_ticks, Unknown):
        return None
    who = Who(
        name=model_name(command),
        life=LifeId(boot_id.value, child, start_ticks.value, session),
        parent_session=None,
        command=" ".join(command),
        role=Role.RUNNER,
    )

    def make_handover() -> Handover:
        return gather(reader, who, pid=child, held=held)

    link = LinkClient(LinkSettings(socket_path(shared_directory())), make_handover, lambda _notice: None)
    link.start()
    return who, link


class _Ended:
    """How the server ended: its raw wait status, when it was asked to, and the kernel's kills before and after."""

    def __init__(self, status: int, sigterm: SigtermTimes, kills: tuple[int | None, int | None]) -> None:
        self.status = status
        self.sigterm = sigterm
        self.kills = kills


def _say_end(who: Who, link: LinkClient, ended: _Ended) -> None:
    """Tell the sidecar: by a note, whatever becomes of the sidecar, and by the link."""
    from guard.box import end_note
    from guard.link.protocol import ChildExit

    note = end_note.EndNote(
        life=who.life,
        name=who.name,
        command=who.command,
        wait_status=ended.status,
        at_wall_s=time.time(),
        at_monotonic_s=time.monotonic(),
        sigterm_wall_s=ended.sigterm[0],
        sigterm_monotonic_s=ended.sigterm[1],
        oom_kills_before=ended.kills[0],
        oom_kills_after=ended.kills[1],
    )
    trouble = None
    try:
        end_note.write(os.path.join(shared_directory(), "boxes"), note)
    except OSError as error:  # no shared directory, a full one, or another user's
        trouble = error.strerror
    told = link.send(ChildExit(who.life, ended.status, *ended.sigterm), within_seconds=_FAREWELL_SECONDS)
    if trouble is not None and not told:
        where = f"{shared_directory()}: {trouble}; share that directory with the sidecar (OOMGUARD_DIR)"
        complain(f"oomguard run: no sidecar hears of this end: {where}\n")


def _end_like(status: int, mask: Mask) -> int:
    """Give the server's exit status, or end by the signal that killed it."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    if os.getpid() != 1:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask - {number})
    return 128 + number
