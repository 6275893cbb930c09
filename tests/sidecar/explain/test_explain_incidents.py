"""Several witnesses of one end, and several ends in one text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
import yaml

from sidecar.explain.reading import explain
from sidecar.verdict.values import Confidence, EndClass
from tests.sidecar.explain.explaining import classes, explained

_CONTAINER = "9a0018abdad2f7ed48b56848a498461b1561304f5d6b3518a679b7767fc2761e"
_KERNEL = (
    "[ 100.000001] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    "oom_memcg=/kubepods/{id},task_memcg=/kubepods/{id},task=python,pid=77,uid=0\n"
    "[ 100.000002] Memory cgroup out of memory: Killed process 77 (python) total-vm:9kB, anon-rss:8kB, file-rss:0kB"
)
_STATE = (
    '[{{"Id": "{id}", "State": {{"Status": "exited", "Running": false, "OOMKilled": {flag}, "ExitCode": {code}, '
    '"StartedAt": "2024-01-01T00:00:00Z", "FinishedAt": "2024-01-01T01:00:00Z"}}}}]'
)


def test_the_kernel_and_the_runtime_tell_of_one_end() -> None:
    """A kernel report and the state of the same container are one incident, with the fields of both."""
    (one,) = explained(dmesg=_KERNEL.format(id=_CONTAINER), inspect=_STATE.format(id=_CONTAINER, flag="true", code=137))
    assert one.end_class is EndClass.CGROUP_OOM
    assert (one.fields["victim_pid"], one.fields["exit_code"]) == (77, 137)
    assert {said.file for said in one.evidence} == {"dmesg", "inspect"}


def test_the_order_of_the_files_does_not_matter() -> None:
    """The cause is found where it stands."""
    texts = {"dmesg": _KERNEL.format(id=_CONTAINER), "inspect": _STATE.format(id=_CONTAINER, flag="true", code=137)}
    forth, back = explained(**texts), explained(**dict(reversed(texts.items())))
    assert [one.end_class for one in forth] == [one.end_class for one in back] == [EndClass.CGROUP_OOM]


def test_one_kill_in_two_logs_is_one() -> None:
    """The kernel's buffer and the journal stamp a kill by clocks that cannot be compared; a later one is another."""
    kernel = _KERNEL.format(id=_CONTAINER)
    lines = [line.partition("] ")[2] for line in kernel.split("\n")]
    journal = "\n".join(f"2024-06-10T06:13:30+0000 gpu-7 kernel: {line}" for line in lines)
    (one,) = explained(dmesg=kernel, journal=journal)
    assert {said.file for said in one.evidence} == {"dmesg", "journal"}
    later = kernel.replace("[ 100.", "[ 900.")
    assert classes(dmesg=f"{kernel}\n{later}") == ["cgroup_oom", "cgroup_oom"]


def test_other_containers_are_other_incidents() -> None:
    """A kill in one container does not explain the end of another."""
    other = "f" * 64
    found = classes(dmesg=_KERNEL.format(id=_CONTAINER), inspect=_STATE.format(id=other, flag="false", code=137))
    assert sorted(found) == ["cgroup_oom", "unknown"]


def test_contradiction_lowers_the_confidence() -> None:
    """An exit code 0 speaks against the kill of the main process."""
    alone = explained(dmesg=_KERNEL.format(id="a"))[0]
    (against,) = explained(dmesg=_KERNEL.format(id="a"), state="State: Terminated\n  Reason: OOMKilled\n  Exit Code: 0")
    assert (alone.confidence, against.confidence) == (Confidence.HIGH, Confidence.LOW)
    assert any(not said.supports for said in against.evidence)


def test_cause_before_consequence_in_one_log() -> None:
    """The allocation that failed first is the cause; the abort, the exit and the dead engine follow from it."""
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
        "double free or corruption (out)\nAborted (core dumped)\nEngineDeadError\nserver exited with code 134\n"
        "Normal Killing 1s kubelet Container vllm failed liveness probe, will be restarted"
    )
    assert classes(file=text) == ["gpu_allocation_failure"]


def test_a_lost_card_is_the_cause_of_what_cuda_says() -> None:
    """The driver's Xid stands before the errors of the programs that used the card."""
    text = (
        "[ 1.000001] NVRM: Xid (PCI:0000:0a:00): 79, pid=5, GPU has fallen off the bus.\n"
        "RuntimeError: CUDA error: out of memory\nservice exited with code 1"
    )
    assert classes(file=text) == ["device_reset"]


def test_the_kernels_kill_beats_a_userspace_killers_claim() -> None:
    """A killer asked the process to stop, the kernel killed it."""
    text = (
        'sending SIGTERM to process 77 uid 0 "python": badness 9, VmRSS 10 MiB\n'
        "[ 1.000001] Out of memory: Killed process 77 (python) total-vm:9kB, anon-rss:8kB, file-rss:0kB"
    )
    assert classes(file=text) == ["global_oom"]


def test_counters_make_a_guess_sure() -> None:
    """A worker's SIGKILL is a guess; memory.events with a kill at the own limit settles it."""
    log = "[2020-09-12 05:37:52 +0000] [18] [ERROR] Worker (pid:21) was sent SIGKILL! Perhaps out of memory?"
    events = "memory.max 536870912\nmemory.peak 536870912\nlow 0\nhigh 0\nmax 35\noom 1\noom_kill 1"
    assert explained(log=log)[0].confidence is Confidence.LOW
    (one,) = explained(log=log, events=events)
    assert (one.end_class, one.confidence) == (EndClass.CGROUP_OOM, Confidence.HIGH)


@pytest.mark.parametrize("name", ["6.12-v2-group", "6.12-v2-nested", "6.12-global", "6.18-v1-two-kills"])
def test_real_kernel_logs(name: str) -> None:
    """Logs of real kernels, whole: each kill is one incident of the right kind."""
    text = (Path(__file__).parents[1] / "verdict" / "kmsg" / f"{name}.txt").read_text(encoding="utf-8")
    expected = {"6.12-global": ["global_oom"], "6.18-v1-two-kills": ["cgroup_oom", "cgroup_oom"]}
    assert classes(file=text) == expected.get(name, ["cgroup_oom"])


def test_one_unknown_has_what_would_decide() -> None:
    """Exit code 137 alone is unknown, and the answer says what to look at."""
    (one,) = explained(file="  State: Terminated\n    Reason: Error\n    Exit Code: 137")
    assert one.end_class is EndClass.UNKNOWN
    assert any("kernel log" in text for text in one.missing)


def test_zero_times_are_unknown() -> None:
    """The year 1 of Go means never."""
    (one,) = explained(file="State: Terminated\n  Exit Code: 137\n  Finished: Mon, 01 Jan 0001 00:00:00 +0000")
    assert one.fields["finished"] is None


def test_each_container_of_a_pod_has_its_own_end() -> None:
    """Two containers of one pod end apart, each by its name."""
    text = "\n".join(
        f"  {name}:\n    State: Terminated\n      Reason: {reason}\n      Exit Code: {code}"
        for name, reason, code in (("vllm", "OOMKilled", 137), ("proxy", "Error", 1))
    )
    found = {one.fields["container"]: one.end_class.value for one in explained(file="Containers:\n" + text)}
    assert found == {"vllm": "cgroup_oom", "proxy": "application_exit"}


def test_names_in_a_pod_object() -> None:
    """In JSON and YAML the name stands behind the last state and before the present one; each end gets its own."""
    statuses = [
        {
            "lastState": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": f"2024-01-01T0{at}:00:00Z"}},
            "name": name,
            "restartCount": at,
            "state": {"running": {"startedAt": "2024-01-01T09:00:00Z"}},
        }
        for at, (name, reason, code) in enumerate((("vllm", "OOMKilled", 137), ("proxy", "Error", 1)), 1)
    ]
    pod = {"kind": "Pod", "status": {"containerStatuses": statuses}}
    expected = {"vllm": ("cgroup_oom", 1), "proxy": ("application_exit", 2)}
    for text in (json.dumps(pod), json.dumps(pod, indent=4), yaml.safe_dump(pod)):
        found = {one.fields["container"]: (one.end_class.value, one.fields["restarts"]) for one in explained(file=text)}
        assert found == expected


def test_objects_of_a_list_are_told_apart() -> None:
    """What is said of one pod of a list explains nothing of another, however the list is written."""
    killed = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2025-02-03T04:05:10Z"}
    pods = [
        {
            "metadata": {"name": "a"},
            "status": {"containerStatuses": [{"name": "m", "restartCount": 3, "state": {"terminated": killed}}]},
        },
        {
            "metadata": {"name": "b"},
            "status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
        },
    ]
    for text in (json.dumps({"items": pods}), json.dumps({"items": pods}, indent=2), yaml.safe_dump({"items": pods})):
        found = {one.end_class.value: one.fields.get("exit_code") for one in explained(file=text)}
        assert found == {"cgroup_oom": 137, "eviction": None}


def test_an_export_with_the_newest_line_first(tmp_path: Path) -> None:
    """Log stores give records from the last to the first; lines keep the numbers that they have in the file."""
    record = '{{"jsonPayload":{{"MESSAGE":"{}"}},"timestamp":"2025-02-03T04:05:0{}Z"}}'
    names = "oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c,task=vllm,pid=77,uid=0"
    killed = "Memory cgroup out of memory: Killed process 77 (vllm) total-vm:9kB, anon-rss:8kB, file-rss:0kB"
    lines = (record.format(killed, 7), record.format(f"oom-kill:constraint=CONSTRAINT_MEMCG,{names}", 6))
    export = tmp_path / "export.json"
    export.write_text("\n".join(lines))
    (one,) = explain((str(export),)).incidents
    assert one.fields["oom_memcg"] == "/kubepods/pod1"
    assert {text.line: text.text[:8] for text in one.evidence if text.line} == {1: "Memory c", 2: "oom-kill"}


_DESCRIBED = """Name:             llm-0
Containers:
  llm:
    Container ID:   containerd://abc
    Command:
      python3
    Args:
      --model
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       Error
      Exit Code:    137
      Finished:     Mon, 10 Jun 2024 06:13:00 +0000
    Restart Count:  6
    Environment Variables from:
      settings  ConfigMap  Optional: false
Events:
  Warning  Unhealthy  63s (x30 over 9m)  kubelet  Liveness probe failed: context deadline exceeded
  Normal   Killing    43s (x4 over 8m)   kubelet  Container llm failed liveness probe, will be restarted
  Warning  BackOff    4s (x12 over 9m)   kubelet  Back-off restarting failed container llm in pod llm-0_prod(abc)
"""


def test_a_container_with_a_command_has_its_own_name() -> None:
    """What stands within a container of `kubectl describe` names none, so that its events and its states are of one."""
    (one,) = explained(file=_DESCRIBED)
    assert one.end_class is EndClass.HEALTH_CHECK
    assert (one.fields["container"], one.fields["exit_code"]) == ("llm", 137)


_TWO: Final = """Name:             llm-0
Containers:
  one:
    Container ID:   containerd://{one}
    State:          Running
      Started:      Mon, 10 Jun 2024 06:00:00 +0000
    Restart Count:  0
  two:
    Container ID:   containerd://{two}
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       {reason}
      Exit Code:    {code}
      Finished:     Mon, 10 Jun 2024 06:13:30 +0000
    Restart Count:  1
"""


def test_a_kill_in_one_container_of_a_pod_explains_no_end_of_another() -> None:
    """The id before the states of each container tells whose they are."""
    ids = {"one": _CONTAINER, "two": "f" * 64}
    kernel = _KERNEL.format(id=_CONTAINER)
    failed = classes(dmesg=kernel, pod=_TWO.format(**ids, reason="Error", code=1))
    assert sorted(failed) == ["application_exit", "cgroup_oom"]
    both = explained(dmesg=kernel, pod=_TWO.format(**ids, reason="OOMKilled", code=137))
    assert [one.end_class for one in both] == [EndClass.CGROUP_OOM, EndClass.CGROUP_OOM]
    (same,) = explained(dmesg=_KERNEL.format(id="f" * 64), pod=_TWO.format(**ids, reason="OOMKilled", code=137))
    assert (same.fields["victim_pid"], same.fields["container"]) == (77, "two")
