"""What stands before a message is taken off, in every form that loggers give it."""

from __future__ import annotations

import pytest

from sidecar.explain.prefix import line_of
from sidecar.explain.values import Clock

_PREFIXES = {
    "[   71.146532] ": (Clock.BOOT, 71.146532),
    "[   71.146532][ T9694] ": (Clock.BOOT, 71.146532),
    "71.146532] ": (Clock.BOOT, 71.146532),
    "<6>[   71.146532] ": (Clock.BOOT, 71.146532),
    "6,1234,71146532,-;": (Clock.BOOT, 71.146532),
    "Jul 23 18:56:46 host-a kernel: [   71.146532] ": (Clock.BOOT, 71.146532),
    "[Sun Mar 24 23:54:53 2024] ": (Clock.WALL, 1711324493.0),
    "[五 5月 15 17:19:17 2026] ": (Clock.WALL, 1778865557.0),
    "[Do Mai 15 17:19:17 2026] ": (Clock.WALL, 1778865557.0),
    "2026-09-13T07:47:06-0400 host-a kernel: ": (Clock.WALL, 1789300026.0),
    "2026-09-13T11:47:06.000000+00:00 host-a kernel: ": (Clock.WALL, 1789300026.0),
    "2026-09-13 11:47:06 host-a kernel: ": (Clock.WALL, 1789300026.0),
    "2026-09-13T11:47:06.000000000Z stderr F ": (Clock.WALL, 1789300026.0),
    "[   71.146532 <    0.000012>] ": (Clock.BOOT, 71.146532),
    "[   71.146532] host-a kernel: ": (Clock.BOOT, 71.146532),
    "[   71.146532] host-a systemd[1]: ": (Clock.BOOT, 71.146532),
    "kern  :warn  : [   71.146532] ": (Clock.BOOT, 71.146532),
    "<6>1 2026-09-13T11:47:06.000000+00:00 host-a kernel - - - [   71.146532] ": (Clock.BOOT, 71.146532),
    "<30>1 2026-09-13T11:47:06.000000+00:00 host-a vllm 77 - - ": (Clock.WALL, 1789300026.0),
    "1789300026.000000 host-a kernel: ": (Clock.WALL, 1789300026.0),
    "Sun 2026-09-13 11:47:06 UTC host-a kernel: ": (Clock.WALL, 1789300026.0),
    "kern  :warn  : [Sun Mar 24 23:54:53 2024] ": (Clock.WALL, 1711324493.0),
    "[pod/vllm-0/vllm] 2026-09-13T11:47:06.000000000Z ": (Clock.WALL, 1789300026.0),
    "vllm-7d9f-abcde vllm 2026-09-13T11:47:06Z ": (Clock.WALL, 1789300026.0),
    "vllm-1  | 2026-09-13T11:47:06Z ": (Clock.WALL, 1789300026.0),
}


@pytest.mark.parametrize("prefix", _PREFIXES)
def test_a_prefix_is_taken_off(prefix: str) -> None:
    """The message is what is left, and the time is read."""
    line = line_of("file", 1, prefix + "Out of memory: Killed process 1 (x)")
    assert line.text == "Out of memory: Killed process 1 (x)"
    assert line.stamp is not None
    assert (line.stamp.clock, round(line.stamp.seconds, 6)) == _PREFIXES[prefix]


def test_a_kernel_log_for_people() -> None:
    """`dmesg -H` prints a date at times, which counts, and else the time since the line before."""
    first, then = line_of("file", 1, "[Sep13 11:47] Mem-Info:"), line_of("file", 2, "[  +0.000012] Mem-Info:")
    assert (first.text, then.text) == ("Mem-Info:", "Mem-Info:")
    assert first.kernel
    assert then.kernel
    assert first.stamp is not None


@pytest.mark.parametrize(
    ("text", "writer"),
    [
        ("vllm-1  | Killed", "vllm-1"),
        ("vllm-1 exited with code 137", "vllm-1"),
        ("[pod/vllm-0/vllm] Killed", "vllm-0/vllm"),
        ("vllm-0 vllm 2026-09-13T11:47:06Z Killed", "vllm-0 vllm"),
        ("Killed", ""),
    ],
)
def test_who_wrote_it(text: str, writer: str) -> None:
    """A log of several says of each line whose it is."""
    assert line_of("file", 1, text).writer == writer


@pytest.mark.parametrize("month", ["апр 28", "Okt 06", "mars 27", "5月 15", "févr. 27", "Xyz 12"])
def test_months_in_any_language(month: str) -> None:
    """A syslog line with a month of another language is still the kernel's, with a time to compare within the log."""
    line = line_of("file", 1, f"{month} 01:23:30 host-a kernel: oom_reaper: reaped")
    assert (line.text, line.kernel, line.caller) == ("oom_reaper: reaped", True, "host-a")
    assert line.stamp is not None


def test_a_programs_line_is_not_the_kernels() -> None:
    """The identifier tells who wrote it."""
    line = line_of("file", 1, "Jun 19 16:23:32 host-a systemd[5979]: x.scope: The kernel OOM killer killed some")
    assert (line.program, line.pid, line.kernel) == ("systemd", 5979, False)


def test_no_such_day_is_no_time() -> None:
    """A date that does not exist is not guessed."""
    assert line_of("file", 1, "2024-02-31T00:00:00Z x").stamp is None


@pytest.mark.parametrize("text", ["ERROR: it failed", "Killed", "", "RuntimeError: CUDA error: out of memory"])
def test_no_prefix_is_left_alone(text: str) -> None:
    """A line without a prefix is its own message."""
    assert line_of("file", 1, text).text == text
