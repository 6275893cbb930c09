"""One report of the kernel in everything that log stores put around its lines: what it says is read all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import pytest

from sidecar.verdict.values import EndClass
from tests.sidecar.explain.explaining import explained

_POD: Final = "/kubepods.slice/pod11111111-2222-3333-4444-555555555555/cri-containerd-" + "ab" * 32 + ".scope"
_REPORT: Final = (
    "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=985",
    "CPU: 3 PID: 4242 Comm: python3 Not tainted 6.1.0-23-cloud-amd64 #1 Debian 6.1.99-1",
    " mem_cgroup_out_of_memory+0x131/0x150",
    "memory: usage 16777216kB, limit 16777216kB, failcnt 1893",
    (
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={_POD},task_memcg={_POD},"
        "task=python3,pid=4242,uid=0"
    ),
    (
        "Memory cgroup out of memory: Killed process 4242 (python3) total-vm:41943040kB, anon-rss:16650000kB, "
        "file-rss:80124kB, shmem-rss:12kB, UID:0 pgtables:34000kB oom_score_adj:985"
    ),
)
_OLD: Final = (
    "tritonserver invoked oom-killer: gfp_mask=0x6000c0(GFP_KERNEL), nodemask=(null), order=0, oom_score_adj=936",
    f"Task in {_POD} killed as a result of limit of {_POD}",
    "memory: usage 8388608kB, limit 8388608kB, failcnt 1234",
    "Memory cgroup out of memory: Kill process 4242 (tritonserver) score 1935 or sacrifice child",
    "Killed process 4242 (tritonserver) total-vm:22000000kB, anon-rss:8200000kB, file-rss:100kB, shmem-rss:0kB",
)
_DAY: Final = "2024-06-10T06:13"
_Store = Callable[[int, str], str]
_STORES: Final[dict[str, _Store]] = {
    "fluent bit": lambda at, text: (
        f'[{at}] kmsg.0: [[171800000{at}.000001, {{}}], {{"priority"=>6, "sequence"=>{at}, "msg"=>"{text}"}}]'
    ),
    "fluentd": lambda at, text: f"{_DAY}:0{at}+00:00\tkern\t" + json.dumps({"message": text}),
    "logcli": lambda at, text: f'{_DAY}:0{at}Z {{hostname="gpu-7", job="journal"}} {text}',
    "forwarded twice": lambda at, text: (
        f"{_DAY}:0{at}.1+00:00 ip-10-0-3-7 Jun 10 06:13:0{at} ip-10-0-3-7 kernel: {text}"
    ),
    "csv": lambda at, text: f'"{_DAY}:0{at}.123Z","gpu-7","kernel","{text}"',
    "grep -n": lambda at, text: f"81{at}:Jun 10 06:13:0{at} gpu-7 kernel: {text}",
    "grep of files": lambda at, text: f"/var/log/kern.log.1:Jun 10 06:13:0{at} gpu-7 kernel: [  812.00000{at}] {text}",
    "pdsh": lambda at, text: f"gpu-7: [  812.00000{at}] {text}",
    "a quoted mail": lambda at, text: f"> [  812.00000{at}] {text}",
}
_RECORDS: Final[dict[str, Callable[[tuple[str, ...]], str]]] = {
    "cloudwatch": lambda report: json.dumps({"events": [{"timestamp": 1, "message": one} for one in report]}, indent=4),
    "stackdriver": lambda report: json.dumps([{"jsonPayload": {"MESSAGE": one}} for one in report], indent=2),
    "yaml": lambda report: "".join(f"---\njsonPayload:\n  MESSAGE: '{one}'\n" for one in report),
    "elasticsearch": lambda report: json.dumps({"hits": [{"_source": {"message": one}} for one in report]}, indent=1),
    "loki": lambda report: json.dumps({"data": {"result": [{"values": [["17180", one] for one in report]}]}}),
    "journalctl -o verbose": lambda report: "".join(f"Mon 2024-06-10 [s=a;i=1]\n    MESSAGE={one}\n" for one in report),
}


def _is_read(report: tuple[str, ...], text: str) -> None:
    (one,) = explained(file=text)
    limit = 16777216 if report is _REPORT else 8388608
    name = "python3" if report is _REPORT else "tritonserver"
    assert one.end_class is EndClass.CGROUP_OOM
    asked = ("invoker", "oom_memcg", "victim_pid", "memory_limit_kb")
    assert tuple(one.fields[key] for key in asked) == (name, _POD, 4242, limit)


@pytest.mark.parametrize("report", [_REPORT, _OLD], ids=["5.1", "4.18"])
@pytest.mark.parametrize("store", _STORES)
def test_lines_of_a_store(store: str, report: tuple[str, ...]) -> None:
    """Who asked, whose limit it was and how large, who was killed, and when, whatever stands before each line."""
    text = "\n".join(_STORES[store](at, line) for at, line in enumerate(report))
    _is_read(report, text)
    assert explained(file=text)[0].at is not None


@pytest.mark.parametrize("report", [_REPORT, _OLD], ids=["5.1", "4.18"])
@pytest.mark.parametrize("store", _RECORDS)
def test_records_of_a_store(store: str, report: tuple[str, ...]) -> None:
    """The same where each line is a value within a document."""
    _is_read(report, _RECORDS[store](report))


def test_a_name_of_several_words_stays_whole() -> None:
    """Before the name of a program nothing is cut off that is no store's."""
    (one,) = explained(file="CPU 0/KVM invoked oom-killer: gfp_mask=0x1, order=0, oom_score_adj=0\n" + _REPORT[-1])
    assert one.fields["invoker"] == "CPU 0/KVM"


def test_several_writers_of_one_log() -> None:
    """What one container says explains no end of another, nor goes on with its message."""
    text = (
        "[pod/llm-0/vllm] 2024-06-10T06:13:01Z torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
        "[pod/llm-1/vllm] 2024-06-10T06:13:02Z Segmentation fault (core dumped)\n"
        "[pod/llm-0/vllm] 2024-06-10T06:13:03Z EngineDeadError: Engine core initialization failed"
    )
    assert [one.end_class for one in explained(file=text)] == [EndClass.GPU_ALLOCATION_FAILURE, EndClass.CRASH_SIGNAL]
