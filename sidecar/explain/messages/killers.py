"""Killers that are programs: earlyoom, systemd-oomd, nohang, Ray, lmkd, Dask, batch systems.

Their status lines are no kills.
"""

from __future__ import annotations

import re
from typing import Final

from sidecar.explain.patterns import Pattern
from sidecar.explain.values import Field, Role
from sidecar.verdict.kernel_report.paths import words_of
from sidecar.verdict.values import Confidence, EndClass

_USER: Final = EndClass.USERSPACE_OOM
_MIB: Final = 1 << 20
_SIGNALS: Final = {"9": "SIGKILL", "15": "SIGTERM"}
_EXITS: Final = {"SIGKILL": 137, "SIGTERM": 143}


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _earlyoom(text: str, found: re.Match[str]) -> dict[str, Field]:
    number = found[2] or found[5]
    signal = found[1] or _SIGNALS.get(found[7] or "", None if found[7] is None else f"signal {found[7]}") or "SIGTERM"
    badness = re.search(r"badness (\d{1,6})|oom_score (\d{1,6})", text)
    rss = re.search(r"VmRSS\s+(\d{1,9}) MiB", text)
    escalated = "escalating to SIGKILL" in text
    signals: list[Field] = [signal, "SIGKILL"] if escalated and signal != "SIGKILL" else [signal]
    return {
        **({"role": Role.CONTEXT.value} if "dryrun, not actually" in text else {}),
        "killer": "earlyoom",
        "kernel_oom": False,
        "signal": signal,
        "signals": signals,
        "victim_pid": _int(number),
        "comm": found[4] or found[6],
        "uid": _int(found[3]),
        "badness": None if badness is None else int(badness[1] or badness[2]),
        "vmrss_bytes": None if rss is None else int(rss[1]) * _MIB,
        "exit_code_expected": _EXITS.get("SIGKILL" if escalated else signal),
        "pids": [_int(number)],
    }


def _oomd_kill(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {"killer": "systemd-oomd", "kernel_oom": False, "killed_pids": [int(found[1])], "pids": [int(found[1])]}


def _oomd_cgroup(_text: str, found: re.Match[str]) -> dict[str, Field]:
    name = found[1].rsplit("/", 1)[-1]
    return {"killer": "systemd-oomd", "cgroup": found[1], "reason": found[2], "keys": [f"unit:{name}"]}


def _oomd_unit(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {"killer": "systemd-oomd", "kills": _int(found[2]), "keys": [f"unit:{found[1]}"]}


def _oomd_pressure(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {"pressure_pct": float(found[2]), "threshold_pct": float(found[3])}


def _ray(text: str, _found: re.Match[str]) -> dict[str, Field]:
    node = re.search(r"was (\d[\d.]{0,10})GB / (\d[\d.]{0,10})GB \((\d[\d.]{0,10})\)", text)
    threshold = re.search(r"usage threshold of (\d[\d.]{0,10}\d)", text)
    pid = re.search(r"\bpid=(\d{1,10})", text)
    used = re.search(r"memory used=(\d[\d.]{0,10})GB", text)
    number = None if pid is None else int(pid[1])
    return {
        "killer": "ray memory monitor",
        "framework": "ray",
        "pid": number,
        "victim_pid": number,
        "task_memory_gb": None if used is None else float(used[1]),
        "node_used_gb": None if node is None else float(node[1]),
        "node_total_gb": None if node is None else float(node[2]),
        "fraction": None if node is None else float(node[3]),
        "threshold": None if threshold is None else float(threshold[1]),
        "kernel_oom": False,
        "pids": [number],
    }


def _nohang(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {"killer": "nohang", "signal": found[1], "victim_pid": _int(found[2]), "pids": [_int(found[2])]}


def _lmkd(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {
        "killer": "lmkd",
        "comm": found[1],
        "victim_pid": int(found[2]),
        "signal": "SIGKILL",
        "pids": [int(found[2])],
    }


def _talos(_text: str, found: re.Match[str]) -> dict[str, Field]:
    pod = words_of(found[1]).pod_uid
    return {"killer": "talos", "signal": "SIGKILL", "cgroup": found[1], "keys": [f"pod:{pod}"] if pod else []}


def _batch(_text: str, found: re.Match[str]) -> dict[str, Field]:
    return {"killer": "the batch system or supervisor", "reason": found[0]}


def _row(subject: str, words: tuple[str, ...], start: str, summary: str, **more: object) -> Pattern:
    given: dict[str, object] = {"end_class": _USER, "source": "log of a userspace killer", **more}
    return Pattern(subject=subject, words=words, start=re.compile(start), summary=summary, **given)  # type: ignore[arg-type]


PATTERNS: Final = (
    _row(
        "earlyoom",
        ("sending sig", "killing process"),
        r'[Ss]ending (SIG[A-Z]+) to process (\d{1,10})(?: uid (\d{1,10}))? "(.{0,64}?)"'
        r'|[Kk]illing process (\d{1,10}) "(.{0,64}?)" with signal (\d{1,3})',
        "earlyoom killed a process because little memory was free",
        read=_earlyoom,
        after=3,
    ),
    _row(
        "systemd-oomd",
        ("oomd",),
        r"oomd attempting to kill (\d{1,10}) with",
        "systemd-oomd killed a cgroup",
        read=_oomd_kill,
    ),
    _row(
        "systemd-oomd",
        ("killed /",),
        r"^Killed (/\S{1,4096}) (?:due to|because) (.{1,200})",
        "systemd-oomd killed a cgroup",
        read=_oomd_cgroup,
    ),
    _row(
        "systemd-oomd",
        ("systemd-oomd killed",),
        r"(\S{1,256}): systemd-oomd killed (?:(\d{1,6}|some) )?process",
        "systemd-oomd killed a cgroup",
        read=lambda text, found: (
            _oomd_unit(text, found)
            if (found[2] or "").isdigit()
            else {"killer": "systemd-oomd", "keys": [f"unit:{found[1]}"]}
        ),
    ),
    _row(
        "systemd-oomd",
        ("memory pressure for",),
        r"Memory pressure for (\S{1,4096}) is (\d[\d.]{0,8})% > (\d[\d.]{0,8})%",
        "memory pressure passed systemd-oomd's limit",
        read=_oomd_pressure,
        role=Role.CONTEXT,
    ),
    _row(
        "oomd",
        ("oomd kill",),
        r"oomd kill: .{0,200}?(\S+) \d+ ruleset",
        "oomd killed a cgroup",
        read=lambda _text, found: {"killer": "oomd", "cgroup": found[1]},
    ),
    _row(
        "ray",
        ("low on memory", "memory pressure (oom)", "ray killed this worker"),
        r"(?:Task|Actor|[Ww]orker).{0,40}was killed due to the node running low on memory"
        r"|(?<!\b0 Workers \(tasks / actors\) )killed due to memory pressure \(OOM\)"
        r"|Ray killed this worker",
        "Ray's memory monitor killed a worker because the node was low on memory",
        read=_ray,
        after=4,
    ),
    _row(
        "nohang",
        ("send sig", "sending sig"),
        r"\b[Ss]end(?:ing)? (SIG(?:TERM|KILL)) to (?:\[?(?:[Pp]id:? ?)?(\d{1,10})(?=[,\]: ])|the victim\b)",
        "nohang killed a process because little memory was free",
        read=_nohang,
        unless=re.compile(r"to process"),
    ),
    _row(
        "talos",
        ("sending sigkill to cgroup",),
        r"Sending SIGKILL to cgroup\b.{0,400}?\"cgroup\": \"(/[^\"]{1,1024})\"",
        "Talos' own OOM controller killed a cgroup because the node was low on memory",
        read=_talos,
    ),
    _row(
        "lmkd",
        ("lowmemorykiller", "lmkd", "oom_score_adj"),
        r"(?:(?:lowmemorykiller|lmkd).{0,20}?: ?|^)Kill(?:ing)? '(.{1,64}?)' \((\d{1,10})\),",
        "the low memory killer killed a process",
        read=_lmkd,
    ),
    _row(
        "batch",
        ("memory budget", "memory limits", "memory limit"),
        r"exceeded \d+% memory budget.{0,20}[Rr]estarting|running beyond (?:physical"
        r"|virtual) memory limits.{0,200}?Killing"
        r"|[Ee]xceeded (?:job|step) memory limit.{0,60}kill|Step \S{1,40} exceeded memory limit .{0,60}being killed",
        "a supervisor killed it for using more memory than allowed",
        read=_batch,
        confidence=Confidence.MEDIUM,
    ),
)
