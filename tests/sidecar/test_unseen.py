"""OOM kills of strangers: which counter steps are somebody's whom we see, and which are left."""

from __future__ import annotations

from guard.kernel.values import ProcStatus
from guard.model import Known, Reading
from sidecar.sample import LevelId, LevelSample, ProcessSample
from sidecar.unseen import DYING_SECONDS, SETTLE_SECONDS, UnseenKills, is_dying, life_of
from tests.sidecar.making import LIFE, NOT_SAMPLED, V2, at


def level(kills: int, *, group: int = 0, inode: int = 1) -> tuple[LevelSample, ...]:
    """The model's own level with so many kills counted."""
    memory = V2(events={"oom_kill": kills, "oom_group_kill": group}).memory()
    return (LevelSample(id=LevelId(1, inode), name="/m", depth=0, memory=memory),)


def test_a_kill_that_no_end_accounts_for_is_due_once() -> None:
    """After the time in which an end in sight would have been told, it is a stranger's; then it is told."""
    account = UnseenKills()
    account.tick(at(0), level(4))
    account.tick(at(1), level(5))
    account.tick(at(2), level(5))
    assert account.waiting
    assert account.due(at(1 + SETTLE_SECONDS - 0.1), dying=False) is None
    step = account.due(at(1 + SETTLE_SECONDS), dying=False)
    assert step is not None
    assert (step.at, step.before) == (at(1), level(4))
    assert account.due(at(60), dying=False) is None
    account.tick(at(61), level(5))
    assert not account.waiting


def test_what_was_counted_before_we_looked_is_not_ours() -> None:
    """The first look is the beginning, and another cgroup's counter is another's."""
    account = UnseenKills()
    account.tick(at(0), level(7))
    account.tick(at(1), level(9, inode=2))
    account.tick(at(2), ())
    account.tick(at(3), level(12, inode=2))
    assert not account.waiting


def test_an_end_in_sight_accounts_for_one_kill() -> None:
    """Two kills and one end leave one stranger; two ends leave none."""
    account = UnseenKills()
    account.tick(at(0), level(0))
    account.tick(at(1), level(2))
    account.account()
    assert account.waiting
    account.account()
    assert not account.waiting


def test_a_group_kill_is_accounted_for_by_any_end_in_sight() -> None:
    """Every process of the group is counted, the first one twice: how many there were is not known."""
    account = UnseenKills()
    account.tick(at(0), level(0))
    account.tick(at(1), level(4, group=1))
    account.account()
    assert not account.waiting
    account.tick(at(2), level(5, group=1))
    assert account.waiting, "the next single kill is a new one"


def test_the_end_of_the_main_process_leaves_nothing() -> None:
    """Its verdict tells of every kill around it."""
    account = UnseenKills()
    account.tick(at(0), level(0))
    account.tick(at(1), level(3))
    account.forget()
    assert account.due(at(60), dying=False) is None


def test_a_process_in_sight_that_is_dying_may_be_the_victim() -> None:
    """While one gives its memory back or hangs at a disk, the kill waits for its end, but not for ever."""
    account = UnseenKills()
    account.tick(at(0), level(0))
    account.tick(at(1), level(1))
    assert account.due(at(1 + DYING_SECONDS - 1), dying=True) is None
    assert account.due(at(1 + DYING_SECONDS), dying=True) is not None


def process(state: str, rss: int | None, *, alive: bool = True, known: bool = True) -> ProcessSample:
    """A process as /proc/PID/status shows it."""
    status: Reading[ProcStatus] = NOT_SAMPLED
    if known:
        status = Known(
            ProcStatus(
                name="python",
                state=state,
                pid=1,
                ppid=0,
                ns_pids=(1,),
                uid=0,
                threads=1,
                vm_rss_bytes=rss,
                rss_anon_bytes=rss,
                rss_file_bytes=rss,
                rss_shmem_bytes=rss,
                vm_swap_bytes=rss,
            )
        )
    return ProcessSample(
        life=LIFE, main=True, alive=alive, status=status, stat=NOT_SAMPLED, io=NOT_SAMPLED, box=NOT_SAMPLED
    )


def test_dying_is_what_has_no_memory_left_or_waits_for_a_disk() -> None:
    """A process that runs or sleeps with its memory is not dying, nor is one that has ended or cannot be read."""
    assert is_dying(process("R", None))
    assert is_dying(process("D", 5))
    assert is_dying(process("Z", None))
    assert not is_dying(process("S", 5))
    assert not is_dying(process("Z", None, alive=False))
    assert not is_dying(process("R", None, known=False))


def test_an_incident_of_a_stranger_has_an_identity_of_its_own() -> None:
    """The same count of the same cgroup is the same incident; another count, cgroup or boot is another."""
    (one,) = level(3)
    others = {life_of("boot", level(4)[0]).session, life_of("boot", level(3, inode=2)[0]).session}
    assert life_of("boot", one) == life_of("boot", level(3)[0])
    assert life_of("boot", one).session not in others | {life_of("other", one).session}
