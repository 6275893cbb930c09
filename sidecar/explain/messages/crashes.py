"""Crashes, exit codes and signals in logs of servers and shells. Most follow from something told earlier."""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.ends import end_fields, signal_number
from sidecar.explain.patterns import Pattern
from sidecar.explain.values import Field, Role
from sidecar.verdict.values import Confidence, EndClass

_CRASH: Final = EndClass.CRASH_SIGNAL
_TEXTS: Final = {
    "segmentation fault": "SIGSEGV",
    "aborted": "SIGABRT",
    "illegal instruction": "SIGILL",
    "floating point exception": "SIGFPE",
    "killed": "SIGKILL",
    "terminated": "SIGTERM",
    "bus error": "SIGBUS",
    "trace/breakpoint trap": "SIGTRAP",
}


def _named(text: str, word: str) -> dict[str, Field]:
    name = _TEXTS.get(word.lower(), "SIGKILL")
    pid = re.search(r"\bline \d+:\s+(\d{1,10}) ", text)
    number = signal_number(name)
    return {
        **end_fields(code=None, signal=name),
        "exit_code_shell": None if number is None else 128 + number,
        "pid_in_container": None if pid is None else int(pid[1]),
    }


def _signal(text: str, word: str) -> dict[str, Field]:
    path = re.search(r"line \d+:\s+(\d{1,10}) Segmentation fault", text)
    number = int(word)
    return {
        **end_fields(code=None, signal=number),
        "exit_code_shell": 128 + number,
        "pid_in_container": None if path is None else int(path[1]),
    }


def _exit_code(_text: str, found: re.Match[str]) -> dict[str, Field]:
    code = int(found[1])
    if code == 0:
        return {"role": "context", "exit_code": 0}
    return end_fields(code=code)


def _worker(_text: str, found: re.Match[str]) -> dict[str, Field]:
    """A server's report on its own worker. SIGTERM there is its own tear-down, which follows from something else."""
    pid, code = int(found[1]), int(found[2])
    fields: dict[str, Field] = {**end_fields(code=code), "worker_pid": pid, "pids": [pid]}
    return {**fields, "role": "consequence"} if code in (0, -15, -2) else fields


def _pool(text: str, _found: re.Match[str]) -> dict[str, Field]:
    signal = re.search(r"\b(SIG[A-Z]{2,8})\(-\d{1,2}\)", text)
    return {} if signal is None else end_fields(code=None, signal=signal[1])


def _segfault(_text: str, found: re.Match[str]) -> dict[str, Field]:
    pid = int(found[2])
    kind = {
        "segfault": "SIGSEGV",
        "general protection": "SIGSEGV",
        "trap invalid opcode": "SIGILL",
        "trap divide error": "SIGFPE",
        "trap int3": "SIGTRAP",
    }
    name = next((value for key, value in kind.items() if key in found[3]), "SIGSEGV")
    fields = end_fields(code=None, signal=name)
    return {**fields, "comm": found[1], "victim_pid": pid, "pids": [pid]}


def _heap(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {**end_fields(code=None, signal="SIGABRT"), "consequence": found[0]}


def _row(subject: str, words: tuple[str, ...], start: str, summary: str, **more: object) -> Pattern:
    given: dict[str, object] = {"end_class": _CRASH, "role": Role.END, "confidence": Confidence.MEDIUM, **more}
    return Pattern(subject=subject, words=words, start=re.compile(start), summary=summary, **given)  # type: ignore[arg-type]


PATTERNS: Final = (
    _row(
        "segfault",
        ("segfault at", "general protection", "traps:"),
        r"^(?:traps: )?(.{1,64}?)\[(\d{1,10})\]:? (segfault at|general protection|trap [a-z0-9 ]{3,20})",
        "the kernel saw a process crash",
        read=_segfault,
        source="kernel log",
    ),
    _row(
        "worker",
        ("exit code: -", "exitcode: -", "exit code: ", "died"),
        r"[Ww]orker\S{0,40}(?: \w+)? pid (\d{1,10}) died, exit code: (-?\d{1,3})",
        "a worker of the server ended",
        read=_worker,
    ),
    _row(
        "worker",
        ("died unexpectedly", "enginecore encountered"),
        r"(?:[Ww]orker|[Ee]ngine [Cc]ore) proc(?:ess)? \S{1,80} died unexpectedly|EngineCore encountered an issue",
        "a worker of the server died; its server does not say of what",
        end_class=EndClass.UNKNOWN,
        confidence=Confidence.LOW,
        missing=("the worker's own last lines, its exit status, or an OOM kill at that moment",),
    ),
    _row(
        "pool",
        ("terminated abruptly", "unexpectedly terminated"),
        r"process pool was terminated abruptly|worker process managed by the executor was unexpectedly terminated",
        "a worker of a process pool died",
        end_class=EndClass.UNKNOWN,
        confidence=Confidence.LOW,
        read=_pool,
        after=4,
        missing=("who ended it: an OOM kill at that moment, or the worker's own last lines",),
    ),
    _row(
        "signal",
        ("signal",),
        r"\b[Ss]ignal \((\d{1,2})\) received|\b[Cc]aught signal:? (\d{1,2})\b"
        r"|signaled to shutdown with signal (?!7\b)(\d{1,2})"
        r"|[Ee]xited prematurely: signal (\d{1,2})"
        r"|exited with '?signal (\d{1,2})|(?:killed|terminated) by signal:? (\d{1,2})|\bgot signal (\d{1,2})\b",
        "a process was ended by a signal",
        read=lambda text, found: _signal(text, _part(found)),
        after=3,
    ),
    _row(
        "by_name",
        (
            "terminated by sig",
            "killed by sig",
            "with signal",
            "signals.sig",
            "via signal [",
            "negsignal.",
            "exitcode=-sig",
        ),
        r"(?:(?:terminated|killed) (?:by|with) (?:signal )?|died with <Signals\.|via signal \[|Negsignal\.|exitcode=-)"
        r"(SIG[A-Z]{2,8})\b",
        "a process was ended by a signal",
        read=lambda _text, found: end_fields(code=None, signal=found[1]),
    ),
    _row(
        "runtime",
        ("sigsegv", "sigabrt"),
        r"\b(SIG(?:SEGV|ABRT))(?:: [a-z]{3}| received at time=| \(0x[0-9a-f]{1,2}\) at pc=)",
        "a process crashed",
        read=lambda _text, found: end_fields(code=None, signal=found[1]),
        after=3,
        again=False,
    ),
    _row(
        "zsh",
        ("killed", "segmentation fault", "abort", "illegal hardware instruction", "terminated"),
        r"^(?:zsh: |\[\d{1,4}\] {1,4}[+-]? {0,4}\d{1,10} )(killed|segmentation fault|abort|illegal hardware instruction"
        r"|terminated)\b",
        "the shell says how a process ended",
        read=lambda text, found: _named(
            text, {"abort": "aborted", "illegal hardware instruction": "illegal instruction"}.get(found[1], found[1])
        ),
    ),
    _row(
        "reaped",
        ("oom_reaper: reaped",),
        r"oom_reaper: reaped process (\d{1,10}) \((.{0,64}?)\)",
        "the kernel's OOM killer killed a process; the lines that say why are not in the text",
        end_class=EndClass.UNKNOWN,
        confidence=Confidence.LOW,
        source="kernel log",
        read=lambda _text, found: {"victim_pid": int(found[1]), "comm": found[2], "pids": [int(found[1])]},
        missing=("whose memory it was: the lines before, or memory.events of the container's cgroup",),
    ),
    _row(
        "ray_crashed",
        ("killed due to memory pressure (oom), ",),
        r"\b0 Workers \(tasks / actors\) killed due to memory pressure \(OOM\), [1-9]\d* Workers crashed",
        "a worker of Ray crashed; its memory monitor did not kill it",
        end_class=EndClass.UNKNOWN,
        confidence=Confidence.LOW,
        missing=("the worker's exit status: its own log, or the log of the raylet",),
    ),
    _row(
        "notebook",
        ("appears to have died",),
        r"[Kk]ernel .{0,200}appears to have died",
        "the kernel of a notebook ended; the notebook does not say of what",
        end_class=EndClass.UNKNOWN,
        confidence=Confidence.LOW,
        missing=("how it ended: the log of the server, or an OOM kill at that moment",),
    ),
    _row(
        "swarm_unhealthy",
        ("unhealthy container",),
        r"non-zero exit \(\d{1,3}\): dockerexec: unhealthy container",
        "Swarm ended the task because its container was unhealthy",
        end_class=EndClass.HEALTH_CHECK,
        role=Role.CAUSE,
        confidence=Confidence.HIGH,
    ),
    _row(
        "make",
        (": *** [",),
        r"^make(?:\[\d{1,3}\])?: \*\*\* \[.{1,400}\] Error (\d{1,3})",
        "a command that make ran ended",
        end_class=EndClass.UNKNOWN,
        read=_exit_code,
    ),
    _row(
        "child",
        ("child process",),
        r"Child process \[(\d{1,10})\] died",
        "a worker of the server died; its server does not say of what",
        end_class=EndClass.UNKNOWN,
        confidence=Confidence.LOW,
        read=lambda _text, found: {"worker_pid": int(found[1]), "pids": [int(found[1])]},
        missing=("the worker's exit status, or an OOM kill at that moment",),
    ),
    _row(
        "shell",
        (
            "segmentation fault",
            "core dumped",
            "illegal instruction",
            "floating point exception",
            "aborted",
            "fatal python error",
            "signal: ",
        ),
        r"\b(Segmentation fault|Aborted|Illegal instruction|Floating point exception"
        r"|Trace/breakpoint trap)\b(?:\s+\(core dumped\)|$|\n)"
        r"|Fatal Python error: (Segmentation fault|Aborted|Illegal instruction|Floating point exception)"
        r"|killed by signal: (Segmentation fault|Aborted|Killed|Terminated|Illegal instruction)"
        r"|signal: (aborted|segmentation fault|killed)",
        "a process crashed",
        read=lambda text, found: _named(text, _part(found)),
    ),
    _row(
        "heap",
        ("corruption", "corrupted", "invalid pointer", "malloc()"),
        r"double free or corruption(?: \([\w!]{1,20}\))?|corrupted (?:size vs\. prev_size|double-linked list)"
        r"|(?:free|malloc|munmap_chunk)\(\): [a-z ]{4,40}",
        "glibc found a corrupt heap and aborted the process",
        read=_heap,
    ),
    _row(
        "gpu_fault",
        ("cuda error", "memory access fault by gpu"),
        r"Memory access fault by GPU node"
        r"|CUDA error: (?:an illegal memory access|device-side assert|misaligned address|an illegal instruction"
        r"|unspecified launch failure)",
        "a GPU kernel of the application failed",
        end_class=EndClass.APPLICATION_EXIT,
        role=Role.CAUSE,
    ),
    _row(
        "gpu_lost",
        ("cuda error",),
        r"CUDA error: (?:GPU is lost|uncorrectable ECC error|the launch timed out|no CUDA-capable device)",
        "the GPU was lost or reset",
        end_class=EndClass.DEVICE_RESET,
        role=Role.CAUSE,
    ),
    _row(
        "collective",
        ("watchdog caught collective",),
        r"Watchdog caught collective operation timeout",
        "an operation that all ranks take part in did not end in time, and torch ended the process: one of them was"
        " stuck, gone or late",
        end_class=EndClass.APPLICATION_EXIT,
        role=Role.CAUSE,
        missing=("what the rank that did not take part was doing: its log",),
    ),
    _row(
        "docker_ps",
        ("exited (",),
        r"\bExited \((\d{1,3})\) (?:\d+|an?|About|Less)\b",
        "a container ended",
        end_class=EndClass.UNKNOWN,
        read=_exit_code,
        source="container state",
    ),
    _row(
        "sigquit",
        ("sigquit from a child",),
        r"[Rr]eceived sigquit from a child process",
        "the server ends itself after its worker's failure",
        role=Role.CONSEQUENCE,
        end_class=EndClass.APPLICATION_EXIT,
    ),
    _row(
        "killed",
        ("killed",),
        r"(?:^|[\])%] ?|line \d+:\s+\d+ |srun: error: \S+ tasks? [\d,-]+: )(Killed)(?:: 9)?(?:\s*$| {2,})",
        "the shell says that a process was killed by SIGKILL",
        end_class=EndClass.UNKNOWN,
        confidence=Confidence.LOW,
        read=lambda text, found: _named(text, found[1]),
    ),
    _row(
        "exit_code",
        ("exit code", "exit status", "exitcode", "exited with", "non-zero exit ("),
        r"(?:exit(?:ed)?(?: with)?(?: (?:exit|return|status))?[ -]?(?:code|status)|(?:containerE|e)xitCode"
        r"|non-zero exit)[\"']?[ :=]{1,6}['\"(]?(-?\d{1,3})\b(?!\.\d)",
        "a process ended",
        end_class=EndClass.UNKNOWN,
        read=_exit_code,
    ),
    _row(
        "engine_dead",
        ("fatal signal from worker", "enginedeaderror", "engine core initialization failed", "enginecore failed"),
        r"Got fatal signal from worker processes|EngineDeadError|Engine core initialization failed"
        r"|EngineCore failed to start",
        "the server gave up after its worker's failure",
        role=Role.CONSEQUENCE,
        end_class=EndClass.APPLICATION_EXIT,
        read=lambda _text, _found: {"engine_fatal": True},
    ),
)


def _part(found: re.Match[str]) -> str:
    """Give the alternative that matched."""
    return next(one for one in found.groups() if one is not None)
