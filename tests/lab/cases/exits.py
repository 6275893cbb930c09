"""Ends by the program's own will or failure: exit codes, exceptions, and memory that was refused."""

from __future__ import annotations

from importlib.util import find_spec

from tests.lab.cases.stage import USUAL, Document, Stage, Way
from tests.lab.cases.verdicts import ended
from tests.lab.kit.cgroups import MIB, Limits, NotOfferedError

_TORCH = Way(limits=Limits(memory_max_bytes=1024 * MIB), small={"/dev/shm": 16})


def case_exit_code_137_of_its_own(stage: Stage) -> None:
    """The application itself exits with 137, as a shell passes it on: application_exit, not a kill."""
    incident = _exits(stage, "exit-137", "leave code=137", 137)
    assert "not a signal" in incident["summary"], incident


def case_one_of_two_workers(stage: Stage) -> None:
    """A worker is killed and its server gives up: cgroup_oom of the child, and an exit of the server's own.

    Not in the v2 machine: on its 6.12 three interpreters at one small limit were seen to re-read their programs' pages
    for minutes before the kernel killed one.
    """
    with stage.model("front", f"front when={stage.cue('front')}") as model:
        stage.give_cue(model, processes=3)
        worker = ended(stage, model, "cgroup_oom", main=False)
        assert worker["level"] == model.group.path
        server = ended(stage, model, "application_exit")
        assert server["fields"]["exit_code"] == 1


def case_exit_code_143_of_its_own(stage: Stage) -> None:
    """The application exits with 143 although nobody sent SIGTERM: application_exit, not a kill."""
    _exits(stage, "exit-143", "leave code=143", 143)


def case_uncaught_exception(stage: Stage) -> None:
    """A Python traceback: application_exit with code 1, and the exception is named."""
    incident = _exits(stage, "traceback", "fail", 1)
    assert "ValueError: a load that fails" in incident["summary"], incident
    assert incident["fields"]["failure_exception"] == "ValueError"


def case_exit_in_a_thread(stage: Stage) -> None:
    """`sys.exit(3)` in a thread ends that thread alone: application_exit with the 0 of the main thread."""
    _exits(stage, "thread-exit", "thread_exits code=3", 0)


def case_no_more_threads(stage: Stage) -> None:
    """The number of processes is exhausted: application_exit, and the exception that says so is named."""
    incident = _exits(stage, "threads", "no_threads", 1)
    assert "can't start new thread" in incident["summary"], incident


def case_full_disk(stage: Stage) -> None:
    """A file system is full: application_exit, and the exception is named; it is not shared memory."""
    disk = stage.folder / "disk"
    disk.mkdir()
    incident = _exits(stage, "disk", f"fill path={disk}/weights", 1, Way(small={str(disk): 16}))
    assert "No space left on device" in incident["summary"], incident


def case_memory_error(stage: Stage) -> None:
    """RLIMIT_AS refuses: host_allocation_failure by the MemoryError that nobody caught."""
    incident = _fails(stage, "memory-error", "refuse", "host_allocation_failure")
    assert incident["fields"]["failure_kind"] == "memory_error"


def case_full_shared_memory(stage: Stage) -> None:
    """Weights are copied to a /dev/shm that is too small: shm_exhausted by the OSError that nobody caught."""
    incident = _fails(stage, "shm", "stage_shm size=32", "shm_exhausted", Way(small={"/dev/shm": 16}))
    assert incident["fields"]["failure_kind"] == "shared_memory"


def case_bus_error_on_full_shared_memory(stage: Stage) -> None:
    """Multiprocessing shares more than /dev/shm holds: SIGBUS, which is shm_exhausted and no crash of its own."""
    way = Way(small={"/dev/shm": 16})
    with stage.model("sigbus", f"share size=32 when={stage.cue('sigbus')}", way=way) as model:
        stage.give_cue(model, guarded=True)
        incident = ended(stage, model, "shm_exhausted")
        assert incident["fields"]["signal"] == "SIGBUS"


def case_cpu_allocator_of_torch(stage: Stage) -> None:
    """DefaultCPUAllocator is refused: host_allocation_failure, with what was asked for."""
    _need_torch()
    incident = _fails(stage, "cpu-allocator", "refuse_torch", "host_allocation_failure", _TORCH)
    assert incident["fields"]["failure_kind"] == "cpu_allocator"
    assert str(1 << 45) in incident["fields"]["failure_message"], incident


def case_shared_tensor_on_full_shared_memory(stage: Stage) -> None:
    """Torch cannot share a tensor, as in a DataLoader worker: shm_exhausted."""
    _need_torch()
    incident = _fails(stage, "share", "share_torch size=32", "shm_exhausted", _TORCH)
    assert incident["fields"]["failure_kind"] == "shared_memory"


def _need_torch() -> None:
    if find_spec("torch") is None:
        raise NotOfferedError("torch is not installed")


def _exits(stage: Stage, name: str, load: str, code: int, way: Way = USUAL) -> Document:
    """Have a model exit with a code of its own."""
    with stage.model(name, f"{load} when={stage.cue(name)}", way=way) as model:
        stage.give_cue(model, guarded=True)
        incident = ended(stage, model, "application_exit", "high")
        assert incident["fields"]["exit_code"] == code, incident
        assert model.wait() == code
        return incident


def _fails(stage: Stage, name: str, load: str, end_class: str, way: Way = USUAL) -> Document:
    """Have a model end by an exception about memory."""
    with stage.model(name, f"{load} when={stage.cue(name)}", way=way) as model:
        stage.give_cue(model, guarded=True)
        incident = ended(stage, model, end_class, "high")
        assert incident["fields"]["exit_code"] == 1, incident
        return incident
