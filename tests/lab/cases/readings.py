"""What the product reads of a living, a pressed, a killed and a removed cgroup, against an independent reading."""

from __future__ import annotations

import contextlib
import subprocess
from tempfile import TemporaryDirectory

from guard.kernel import kmsg
from guard.kernel.headroom import unreclaimable_bytes
from guard.kernel.memcg import oom_kills
from guard.kernel.reader import KeptFile, Reader
from guard.kernel.values import CgroupVersion, MemoryLevel
from guard.model import UNLIMITED, Known, Unknown
from tests.lab.cases.levels import chain_of, known, levels_of, stalled_us, why_unknown
from tests.lab.kit import loads
from tests.lab.kit.cgroups import MIB, Cgroup, Limits, NotOfferedError
from tests.lab.kit.offer import Mode
from tests.lab.kit.wait import PACE, until


def case_numbers_agree_with_an_independent_reading() -> None:
    """Usage, limit and unreclaimable memory of a group that holds 64 MiB are what cat and awk say."""
    with Cgroup.make("numbers", Limits(memory_max_bytes=200 * MIB)) as group:
        group.spawn(loads.command("grow rate=1000 upto=64"))
        with levels_of(group) as (own, *_):
            shown = group.file(_USAGE[group.mode])
            until(lambda: _anonymous(group) >= 64 * MIB, 30, "64 MiB to be held")
            until(lambda: abs(known(own.now().current_bytes) - _shell(f"cat {shown}")) < MIB, 30, "usage to agree")
            assert known(own.now().max_bytes) == 200 * MIB == _shell(f"cat {group.file(_LIMIT[group.mode])}")
            assert _anonymous(group) <= known(unreclaimable_bytes(own.now())) < 90 * MIB


def case_page_cache_is_not_counted_as_held() -> None:
    """A group full of page cache is at its limit and yet almost all of its memory can be taken back."""
    with TemporaryDirectory() as folder, Cgroup.make("cache", Limits(memory_max_bytes=60 * MIB)) as group:
        group.spawn(loads.command(f"cache path={folder}/cached size=100"))
        with levels_of(group) as (own, *_):
            until(lambda: known(own.now().current_bytes) > 50 * MIB, 30, "page cache to fill the group")
            until(lambda: known(unreclaimable_bytes(own.now())) < 30 * MIB, 30, "the written pages to be clean")
            assert known(oom_kills(own.now())) == 0


def case_chain_names_every_level_with_its_own_limit() -> None:
    """The chain leads from the process's own group through its parent to the root, each with its own limit."""
    with Cgroup.make("chain", Limits(memory_max_bytes=300 * MIB)) as parent:
        child = parent.child("inner")
        child.spawn(["sleep", "100"])
        chain = chain_of(child)
        assert [child.path, parent.path, "/"] == [level.name for level in chain.levels]
        assert not chain.hidden_ancestors
        with levels_of(child) as (own, above, _root):
            assert known(own.now().max_bytes) is UNLIMITED
            assert known(above.now().max_bytes) == 300 * MIB
            parent.set(Limits(memory_max_bytes=200 * MIB))
            assert known(above.now().max_bytes) == 200 * MIB, "a resize shows at the next read"


def case_pressure_and_refaults_rise_under_thrash_without_a_kill() -> None:
    """Mapped weights larger than the limit: stall time and refaults grow, the group is at its limit, nobody dies."""
    with TemporaryDirectory() as folder, Cgroup.make("thrash", Limits(memory_max_bytes=40 * MIB)) as group:
        process = group.spawn(loads.command(f"thrash path={folder}/weights size=80 threads=3"))
        with levels_of(group) as (own, *_):
            until(lambda: _refaults(own.now()) > 5000 and _stalled(own.now()) > 100_000, 40, "thrash to show")
            after = own.now()
            assert known(after.current_bytes) > 30 * MIB
            assert known(oom_kills(after)) == 0
            assert process.poll() is None


def case_kill_at_the_own_limit_is_counted() -> None:
    """A kept descriptor of a group whose only process was killed still tells the kill, and the peak was the limit."""
    with Cgroup.make("own", Limits(memory_max_bytes=60 * MIB)) as group:
        process = group.spawn(loads.command("grow rate=100"))
        with levels_of(group) as (own, *_):
            assert known(oom_kills(own.now())) == 0
            assert process.wait(60 * PACE) == -9
            memory = own.now()
            assert known(oom_kills(memory)) == 1
            assert 60 * MIB - MIB < known(memory.peak_bytes) <= 60 * MIB


def case_kill_at_an_ancestors_limit_tells_whose_limit_it_was() -> None:
    """The victim's own group counts the kill, but only the parent hit a limit."""
    with Cgroup.make("parent", Limits(memory_max_bytes=60 * MIB)) as parent:
        child = parent.child("inner")
        process = child.spawn(loads.command("grow rate=100"))
        with levels_of(child) as (own, above, *_):
            assert process.wait(60 * PACE) == -9
            assert known(oom_kills(own.now())) == 1
            own_memory, above_memory = own.now(), above.now()
            if own_memory.version is CgroupVersion.V2:
                assert known(own_memory.events)["oom"] == 0
                assert known(above_memory.events_local)["oom"] == 1
            else:
                assert known(own_memory.failcnt) == 0
                assert known(above_memory.failcnt) > 0


def case_kernel_log_names_owner_of_the_limit_and_victim() -> None:
    """The records of the kill parse, and the oom-kill line names the parent's limit and the child's process."""
    log = Reader().keep("/dev/kmsg")
    if isinstance(log, Unknown):
        raise NotOfferedError(f"no kernel log: {log}")
    with contextlib.closing(log), Cgroup.make("log", Limits(memory_max_bytes=60 * MIB)) as parent:
        known(log.seek_end())
        child = parent.child("inner")
        process = child.spawn(loads.command("grow rate=200"))
        assert process.wait(60 * PACE) == -9
        text = until(lambda: oom_line(log, f"oom_memcg={parent.path}"), 30, "the oom-kill line of this group")
        assert f"task_memcg={child.path}," in text
        assert f"pid={process.pid}," in text


def case_group_kill_takes_every_process() -> None:
    """With memory.oom.group, as the kubelet sets it, the bystander dies too and the group kill is counted."""
    with Cgroup.make("group", Limits(memory_max_bytes=60 * MIB, oom_group=True)) as group:
        bystander = group.spawn(["sleep", "1000"])
        victim = group.spawn(loads.command("grow rate=100"))
        with levels_of(group) as (own, *_):
            assert victim.wait(60 * PACE) == bystander.wait(60 * PACE) == -9
            events = known(own.now().events)
            assert events["oom_group_kill"] == 1
            assert events["oom_kill"] >= 2


def case_slow_disk_shows_in_io_pressure() -> None:
    """With reads throttled the thrash of mapped weights stalls on io, and still nobody is killed."""
    with TemporaryDirectory() as folder:
        loads.make_file(f"{folder}/weights", 80)
        limits = Limits(memory_max_bytes=40 * MIB, read_iops=200)
        with Cgroup.make("slow-disk", limits) as group:
            group.spawn(loads.command(f"thrash path={folder}/weights threads=3"))
            with levels_of(group) as (own, *_):
                until(lambda: stalled_us(own.now().io_pressure) > 500_000, 30, "io pressure to show")
                assert known(oom_kills(own.now())) == 0


def case_throttling_at_high_is_counted_and_kills_nobody() -> None:
    """Anonymous growth past memory.high: the count rises, the process is held back, nothing is killed."""
    with Cgroup.make("high", Limits(memory_high_bytes=40 * MIB)) as group:
        process = group.spawn(loads.command("grow rate=200"))
        with levels_of(group) as (own, *_):
            assert known(own.now().high_bytes) == 40 * MIB
            until(lambda: known(own.now().events)["high"] > 10, 30, "memory.high to be exceeded")
            assert stalled_us(own.now().memory_pressure) > 0
            assert known(oom_kills(own.now())) == 0
            assert process.poll() is None


def case_removed_group_reads_gone() -> None:
    """After rmdir the kept descriptors say GONE, not zero, whatever stands at the same path."""
    with Cgroup.make("gone") as group:
        inner = group.child("inner")
        inner.spawn(["sleep", "1000"])
        with levels_of(inner) as (own, *_):
            assert known(own.now().current_bytes) > 0
            inner.remove()
            group.child("inner")
            memory = own.now()
            assert why_unknown(memory.current_bytes) == "gone"
            assert why_unknown(memory.memory_pressure) == "gone"


def case_files_of_a_reaped_process_read_gone() -> None:
    """Kept files of /proc/PID say GONE once the process is reaped; they never show another process of that pid."""
    process = subprocess.Popen(["sleep", "1000"])
    kept = Reader().keep(f"/proc/{process.pid}/stat")
    assert isinstance(kept, KeptFile)
    with contextlib.closing(kept):
        known(kept.read())
        process.kill()
        process.wait(30 * PACE)
        assert why_unknown(kept.read()) == "gone"


_LIMIT = {Mode.HYBRID: "memory.limit_in_bytes", Mode.V2: "memory.max"}
_USAGE = {Mode.HYBRID: "memory.usage_in_bytes", Mode.V2: "memory.current"}


def _shell(command: str) -> int:
    return int(subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True).stdout)


def oom_line(log: KeptFile, wanted: str) -> str | None:
    """Read on to the next oom-kill line that says `wanted`; records that were overwritten in between are skipped."""
    while (data := log.read_next()) != Known(b""):
        record = kmsg.parse_record(data.value, log.where) if isinstance(data, Known) else data
        if isinstance(record, Known) and record.value.text.startswith("oom-kill:") and wanted in record.value.text:
            return record.value.text
    return None


def _anonymous(group: Cgroup) -> int:
    line = "anon" if group.mode is Mode.V2 else "total_rss"
    return _shell(f"awk '/^{line} / {{print $2}}' {group.file('memory.stat')}")


def _stalled(memory: MemoryLevel) -> int:
    """Stall time of memory and io: on a slow disk the same thrash shows in io pressure alone."""
    return stalled_us(memory.memory_pressure) + stalled_us(memory.io_pressure)


def _refaults(memory: MemoryLevel) -> int:
    stat = known(memory.stat)
    return sum(value for name, value in stat.items() if name.startswith("workingset_refault"))
