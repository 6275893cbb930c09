"""Verdicts with what is rarely there: the trace of a native fault, a card that failed, a failure that was caught."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from guard.box.faults import NativeFault
from guard.model import ExitMark, Known, Unknown, Why
from sidecar.verdict.supervisor_values import SupervisorEnd, SupervisorWord, SupervisorWordKind
from sidecar.verdict.values import Confidence, EndClass, GpuEvent
from tests.sidecar import making as make
from tests.sidecar.verdict.ending import BASE, END, KILLED, NO_STATUS, box, ended, failure, verdict

STACK = ("serve.py:80 main", "model.py:12 forward", "kernels.py:5 launch")
SHARED = ("serve.py:80 main", "/usr/lib/python3/multiprocessing/shared_memory.py:102 __init__")


def trace(name: str, error: str = "Fatal", stack: tuple[str, ...] = STACK, do: str = "") -> Known[NativeFault]:
    """What a faulthandler wrote."""
    return Known(NativeFault(error, name, stack, do))


def gpu(code: int | None, *, ago: float = 1.0) -> GpuEvent:
    """Something that happened to the first card."""
    return GpuEvent(at=make.at(END - ago), gpu=0, code=code)


def test_a_crash_names_where() -> None:
    """The innermost lines of the thread that crashed are evidence, in the summary and in a field."""
    found = verdict(wait_status=ended(by=signal.SIGSEGV), fault=trace("SIGSEGV", "Segmentation fault"))
    assert (found.end_class, found.confidence) == (EndClass.CRASH_SIGNAL, Confidence.HIGH)
    assert "in kernels.py:5 launch" in found.summary
    assert found.fields["crash_stack"] == "kernels.py:5 launch < model.py:12 forward < serve.py:80 main"
    assert found.fields["native_error"] == "Segmentation fault"
    assert any("faulthandler" in one.text for one in found.statements)


def test_a_trace_of_another_signal_is_none_of_this_end() -> None:
    """A SIGSEGV that a runtime handled an hour ago explains neither a SIGKILL nor an exit."""
    for status in (KILLED, ended(1)):
        found = verdict(wait_status=status, fault=trace("SIGSEGV"))
        assert found.end_class is not EndClass.CRASH_SIGNAL
        assert found.fields["crash_stack"] is None


def test_a_trace_decides_where_nobody_saw_the_end() -> None:
    """It is the last word of a process that left no other, less surely; one that exited in order went on after it."""
    found = verdict(fault=trace("SIGABRT", "Aborted"))
    assert (found.end_class, found.confidence) == (EndClass.CRASH_SIGNAL, Confidence.MEDIUM)
    assert "Aborted" in found.summary
    orderly = verdict(fault=trace("SIGABRT"), box=box(mark=ExitMark(make.at(END).wall_s, END, None)))
    assert orderly.end_class is EndClass.APPLICATION_EXIT


def test_a_bus_error_in_shared_memory_is_a_full_shm() -> None:
    """SIGBUS while shared memory is filled means /dev/shm; anywhere else it stays a crash, with the hint."""
    found = verdict(wait_status=ended(by=signal.SIGBUS), fault=trace("SIGBUS", "Bus error", SHARED))
    assert (found.end_class, found.confidence) == (EndClass.SHM_EXHAUSTED, Confidence.MEDIUM)
    worker = ("/usr/lib/python3/multiprocessing/process.py:108 run", *STACK)
    other = verdict(wait_status=ended(by=signal.SIGBUS), fault=trace("SIGBUS", "Bus", worker, do="look at /dev/shm"))
    assert other.end_class is EndClass.CRASH_SIGNAL
    assert other.next_steps[0] == "look at /dev/shm"


@pytest.mark.parametrize("event", [gpu(None), gpu(79, ago=30.0), gpu(48)], ids=["lost", "bus", "ecc"])
def test_a_card_that_failed(event: GpuEvent) -> None:
    """A server that gives up right after its card failed ended for that; surely, where its failure says so too."""
    found = verdict(wait_status=ended(1), gpu=(event,))
    assert (found.end_class, found.confidence) == (EndClass.DEVICE_RESET, Confidence.MEDIUM)
    says = box(failures=(replace(failure("exception"), message="CUDA error: unspecified launch failure"),))
    assert verdict(wait_status=ended(1), gpu=(event,), box=says).confidence is Confidence.HIGH
    assert any("GPU 0" in one.text for one in found.statements)


def test_a_card_that_failed_and_a_probe_that_then_failed() -> None:
    """A server that hangs on a lost card is stopped by its probe: the card is the cause."""
    times = (make.at(END - 100), make.at(END - 5))
    evidence = {"wait_status": KILLED, "liveness_failures_answered": 4, "liveness_failing": times}
    assert verdict(**evidence, gpu=(gpu(None, ago=130.0),)).end_class is EndClass.DEVICE_RESET
    assert verdict(**evidence, gpu=(gpu(None, ago=900.0),)).end_class is EndClass.HEALTH_CHECK


def test_a_card_is_not_blamed_for_other_ends() -> None:
    """Not for a stop that somebody ordered, a clean exit, an old fault, or a fault of the program itself."""
    assert verdict(wait_status=ended(by=signal.SIGTERM), gpu=(gpu(79),)).end_class is EndClass.EXTERNAL_KILL
    assert verdict(wait_status=ended(0), gpu=(gpu(79),)).end_class is EndClass.APPLICATION_EXIT
    assert verdict(wait_status=ended(1), gpu=(gpu(79, ago=300.0),)).end_class is EndClass.APPLICATION_EXIT
    own = verdict(wait_status=ended(1), gpu=(gpu(31),))
    assert own.end_class is EndClass.APPLICATION_EXIT
    assert any("Xid 31" in one.text for one in own.statements)


def test_a_supervisor_that_names_the_device() -> None:
    """A device plugin's word is enough; with the card's own it is sure."""
    word = SupervisorWord(kind=SupervisorWordKind.DEVICE, text="device GPU-1 unhealthy")
    told = (SupervisorEnd(source="Kubernetes API", words=(word,)),)
    assert verdict(wait_status=ended(1), supervisor=told).end_class is EndClass.DEVICE_RESET
    assert verdict(wait_status=ended(1), supervisor=told, gpu=(gpu(79),)).confidence is Confidence.HIGH


def test_a_failure_that_was_caught_decides_only_where_the_exit_followed_at_once() -> None:
    """Servers catch an allocation failure and call os._exit: then it was the cause, else it is named as evidence."""
    caught = failure("cuda_out_of_memory", fatal=False, message="tried 2.00 GiB")
    at_once = verdict(wait_status=ended(1), box=box(failures=(caught,)))
    assert (at_once.end_class, at_once.confidence) == (EndClass.GPU_ALLOCATION_FAILURE, Confidence.MEDIUM)
    orderly = box(failures=(caught,), mark=ExitMark(make.at(END).wall_s, END, 1))
    other = box(failures=(caught, replace(failure("exception"), exception="ValueError")))
    for status, state in ((ended(1), orderly), (ended(1), other), (ended(by=signal.SIGABRT), box(failures=(caught,)))):
        found = verdict(wait_status=status, box=state)
        assert found.end_class in (EndClass.APPLICATION_EXIT, EndClass.CRASH_SIGNAL)
        assert any("was caught" in one.text and "tried 2.00 GiB" in one.text for one in found.statements)
        assert found.fields["caught_exception"] == "torch.OutOfMemoryError"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_while_the_node_was_short(number: signal.Signals) -> None:
    """A userspace killer leaves no count: it is named as likely, and the verdict is less sure."""
    found = verdict(wait_status=ended(by=number), node_available_ratio=Known(0.04))
    assert (found.end_class, found.confidence) == (EndClass.EXTERNAL_KILL, Confidence.MEDIUM)
    assert any("4.0 %" in one.text and "earlyoom" in one.text for one in found.statements)
    assert "systemd-oomd" in found.next_steps[0]


def test_an_abort_after_failed_probes_is_the_supervisors() -> None:
    """Supervisors may stop a hung server by SIGABRT, for its core; without failed probes it is a crash."""
    times = (make.at(END - 35), make.at(END - 5))
    aborted = ended(by=signal.SIGABRT)
    found = verdict(wait_status=aborted, liveness_failures_answered=4, liveness_failing=times)
    assert (found.end_class, found.confidence) == (EndClass.HEALTH_CHECK, Confidence.MEDIUM)
    assert verdict(wait_status=aborted, liveness_failures_answered=4).end_class is EndClass.CRASH_SIGNAL


def test_a_sigterm_that_the_runner_passed_on() -> None:
    """A server without the guard that obeys it, with 0 or a code of its own, was told to stop."""
    for status in (ended(0), ended(143)):
        found = verdict(wait_status=status, sigterm_wall_s=make.at(END).wall_s - 2)
        assert (found.end_class, found.confidence) == (EndClass.EXTERNAL_KILL, Confidence.HIGH)
        assert any(one.source == "oomguard run" for one in found.statements)


def test_an_unknown_end_names_what_would_decide() -> None:
    """In another PID namespace nobody sees the status: who could tell is named."""
    hidden = Unknown(Why.HIDDEN, "PIDFD_GET_INFO")
    steps = " ".join(verdict(wait_status=hidden).next_steps)
    assert all(word in steps for word in ("oomguard run", "shareProcessNamespace", "Kubernetes API", "kernel log"))
    engine = verdict(wait_status=hidden, main=False, others_alive=2).next_steps
    assert "its parent" in engine[0]
    assert not any("oomguard run`, which" in step or "supervisor" in step for step in engine)
    known = verdict(wait_status=KILLED, levels=(), node_oom_kill_delta=NO_STATUS, kmsg=Known(()), box=BASE.box)
    assert known.end_class is EndClass.UNKNOWN
    assert "oomguard run`, which" not in " ".join(known.next_steps)
