"""The story: whose limit, what stood before the end, what happened when, and what is not known."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sidecar.report import answer, rows
from sidecar.report.story import Chart, Shape, Unit, Weight
from sidecar.verdict.values import EndClass
from tests.sidecar.report.reporting import LIMIT, MIB, OWN, document, event, level, row, story

GROWTH = [row(at, level(current=(350 + at) * MIB)) for at in range(-30, 0)]
AFTER = row(0.01, level(current=0, events={"oom_kill": 1}))


def chart(charts: tuple[Chart, ...], title: str) -> Chart:
    """Give the one chart whose title begins so."""
    (found,) = [one for one in charts if one.title.startswith(title)]
    return found


def test_own_limit() -> None:
    """The limit of the model's own group is called so, with its size and its group."""
    told = story([*GROWTH, AFTER])
    assert told.verdict.headline == "A memory limit killed it"
    assert told.verdict.whose == "the model's own group: 400.0 MiB"
    assert told.verdict.group == OWN
    assert [(one.name, one.kills, one.culprit) for one in told.levels] == [(OWN, "1", True)]


def test_limit_of_an_ancestor() -> None:
    """A limit above is told apart from the model's own, and the chart shows that level."""
    pod = level("/pod", max=900 * MIB, current=899 * MIB)
    told = story([row(at, level(max="unlimited"), pod) for at in range(-9, 0)], level="/pod")
    assert told.verdict.whose == "a group above the model's: 400.0 MiB"
    assert (told.charts[0].title, told.charts[0].where) == ("Memory of a group above the model's", "/pod")
    assert [one.culprit for one in told.levels] == [False, True]


def test_every_other_level_with_a_limit_has_a_chart() -> None:
    """Its use against max and high; a level without limits is in the table alone."""
    pod, node = level("/pod", max="unlimited", high=900 * MIB), level("/", max="unlimited")
    told = story([row(at, level(), pod, node) for at in range(-9, 0)])
    drawn = {one.where: [curve.label for curve in one.curves] for one in told.charts[1:] if one.where}
    assert drawn == {"/pod": ["in use", "throttling (memory.high)"]}
    assert [(one.name, one.max, one.high) for one in told.levels] == [
        (OWN, "400.0 MiB", "unlimited"),
        ("/pod", "unlimited", "900.0 MiB"),
        ("/", "unlimited", "unlimited"),
    ]


def test_limit_of_a_hidden_ancestor() -> None:
    """A limit that cannot be seen is said to be one, and hidden levels are named as missing."""
    ticks = [row(at, hidden_ancestors=True) for at in range(-9, 0)]
    told = story(ticks, level=None, fields={"limit_bytes": None})
    assert told.verdict.whose == "a group above those that can be seen from here"
    assert any("hidden by a cgroup namespace" in text for text in told.unseen)


@pytest.mark.parametrize("end_class", EndClass)
def test_every_class_has_words(end_class: EndClass) -> None:
    """Each class has a headline and says whose limit it was, or that it was none."""
    read = rows.document(document(**{"class": end_class.value}))
    assert read is not None
    said = answer.verdict(read, None)
    assert said.headline
    assert said.whose
    assert said.end_class == end_class.value


def test_a_kill_beside_another_cause_is_told() -> None:
    """A server that exits by itself after its worker was killed for memory has a limit to look at all the same."""
    changed = {"class": "application_exit", "level": None, "fields": {"exit_code": 1, "oom_kills": 1}}
    assert story(GROWTH, **changed).verdict.whose == (
        "no memory limit: the server's own decision; but its group counted OOM kills (1)"
    )


def test_a_child_is_called_one() -> None:
    """The end of a worker is not the model's."""
    assert story(GROWTH, main=False).verdict.headline == "A child process ended: a memory limit killed it"


def test_kinds_of_memory_sum_up_to_what_is_in_use() -> None:
    """The bands are disjoint, and what is charged beside named kinds is a band of its own."""
    told = story([*GROWTH[:1], row(-1)])
    memory = chart(told.charts, "Memory of the model's own group")
    bands = {one.label: one.last_known(-1) for one in memory.curves if one.shape is Shape.AREA}
    assert bands == {
        "anonymous": 200 * MIB,
        "shared memory": 10 * MIB,
        "kernel": 5 * MIB,
        "other": 5 * MIB,
        "mapped files": 60 * MIB,
        "page cache, not mapped": 40 * MIB,
    }
    assert sum(value or 0 for value in bands.values()) == 320 * MIB
    lines = {one.label: one.last_known(-1) for one in memory.curves if one.shape is not Shape.AREA}
    assert lines == {"cannot be reclaimed": 215 * MIB, "limit (memory.max)": LIMIT}


def test_kinds_of_memory_of_version_1() -> None:
    """v1 prints hierarchical counts as total_*; kernel memory is not among them and shows as other."""
    stat = {"anon": 1, "total_rss": 100 * MIB, "total_cache": 60 * MIB, "total_shmem": 0, "total_mapped_file": 0}
    told = story([row(-1, level(version=1, current=170 * MIB, stat=stat, high=None))])
    bands = {one.label: one.last_known(-1) for one in told.charts[0].curves if one.shape is Shape.AREA}
    assert bands["anonymous"] == 100 * MIB
    assert bands["other"] == 10 * MIB
    assert told.levels[0].high == "none on v1"


def test_without_kinds_the_usage_is_a_line() -> None:
    """Where memory.stat was not read, what is in use is drawn, and the chart says what is missing."""
    told = story([row(at, level(stat={})) for at in range(-9, 0)])
    memory = chart(told.charts, "Memory of the model's own group")
    assert "in use" in [one.label for one in memory.curves]
    assert "memory.stat was not read: no kinds" in memory.notes


@pytest.mark.parametrize(
    ("limit", "note"), [("unlimited", "no limit is set at this level"), (None, "its limit could not be read")]
)
def test_no_limit_and_an_unknown_limit_differ(limit: str | None, note: str) -> None:
    """Neither is drawn; each is said."""
    told = story([row(at, level(max=limit)) for at in range(-9, 0)])
    assert note in told.charts[0].notes
    assert "limit (memory.max)" not in [one.label for one in told.charts[0].curves]
    assert told.levels[0].max == ("unknown" if limit is None else limit)


def test_pressure_and_faults_are_rates() -> None:
    """Half of each second stalled is 50 %; counters are shown a second."""
    ticks = [
        row(
            at,
            level(
                memory_psi={"some_us": (at + 30) * 500_000},
                io_psi={},
                stat={"pgmajfault": (at + 30) * 7, "workingset_refault_file": (at + 30) * 90},
            ),
        )
        for at in range(-30, 0)
    ]
    told = story(ticks)
    pressure = chart(told.charts, "Pressure")
    assert pressure.unit is Unit.SHARE
    assert [(one.label, one.last_known(0)) for one in pressure.curves] == [("some task, for memory", 0.5)]
    assert chart(told.charts, "Major faults").curves[0].last_known(0) == 7


def test_refaults_need_both_counts() -> None:
    """A kernel that counts refaults of files alone says nothing about all of them."""
    ticks = [row(at, level(stat={"workingset_refault_file": at + 30})) for at in range(-30, 0)]
    assert not [one for one in story(ticks).charts if one.title.startswith("Evicted")]


def test_pressure_of_the_node_where_the_level_has_none() -> None:
    """v1 levels may lack pressure; the node's is drawn under its own name."""
    ticks = [
        row(at, level(memory_psi={}, io_psi={}), node={"memory_psi": {"some_us": (at + 30) * 1000}})
        for at in range(-30, 0)
    ]
    assert chart(story(ticks).charts, "Pressure").title.startswith("Pressure (PSI) of the whole node")


def test_each_probe_is_one_dot() -> None:
    """The last finished probe is in every tick until the next; answers and failures are apart."""
    probes = [("ok", -9.0, 0.01), ("timeout", -5.0, 1.0), ("refused", -2.0, 0.0)]
    ticks = []
    for (outcome, started, latency), (_, following, _) in pairwise([*probes, ("", 0.0, 0.0)]):
        probe = {"started_monotonic_s": 1000 + started, "latency_seconds": latency, "outcome": outcome}
        ticks += [row(started + latency + step / 4, probe=probe) for step in range(int((following - started) * 2))]
    probed = chart(story(sorted(ticks, key=lambda one: one["wall_s"])).charts, "Probe of the model")
    assert {one.shape: one.points for one in probed.curves} == {
        Shape.DOTS: ((pytest.approx(-8.99), 0.01),),
        Shape.FAILED: ((pytest.approx(-4.0), 1.0), (pytest.approx(-2.0), 0.0)),
    }
    assert probed.curves[1].label == "failed (1 refused, 1 timeout)"


def test_gpu_memory_against_what_the_card_has() -> None:
    """Each card has a chart; a lost one says so."""
    cards = [{"index": 0, "used": 60 * MIB, "free": 20 * MIB}, {"index": 1, "lost": True}]
    told = story([row(at, gpus=cards) for at in range(-9, 0)])
    first = chart(told.charts, "Memory of GPU 0")
    assert [one.last_known(0) for one in first.curves] == [60 * MIB, 80 * MIB]
    assert chart(told.charts, "Memory of GPU 1").notes == ("the card did not answer at times",)
    assert "GPU 0 in use" in [fact.label for fact in told.facts]


def test_a_load_has_a_lane_and_its_progress() -> None:
    """Work in flight is a stretch with words of how far it was; bytes done are drawn against those expected."""
    work = {"kind": "load", "label": "torch.load", "file": "/models/a.safetensors", "bytes_expected": 100 * MIB}
    ticks = [row(at, operations=[work | {"bytes_done": (at + 6) * 10 * MIB}]) for at in range(-6, 0)]
    told = story([row(-9), row(-8), row(-7), *ticks])
    (lane,) = [one for one in told.lanes if one.title == "Work in flight"]
    assert [(span.label, span.start_s) for span in lane.spans] == [("a.safetensors", -6)]
    assert lane.spans[0].text.endswith("50.0 MiB of 100.0 MiB (50.0 %)")
    assert [one.last_known(0) for one in chart(told.charts, "Progress of a.safetensors").curves] == [
        50 * MIB,
        100 * MIB,
    ]


def test_work_at_the_same_time_is_side_by_side() -> None:
    """No stretch covers another; one that begins after another ended shares its lane."""
    works = {name: {"kind": "load", "label": name} for name in ("first", "second", "third")}
    flights = {"first": (-9, -6), "second": (-7, -2), "third": (-5, -1)}
    ticks = [
        row(at, operations=[works[name] for name, (start, end) in flights.items() if start <= at <= end])
        for at in range(-10, 0)
    ]
    lanes = [one for one in story(ticks).lanes if one.title != "State"]
    assert [(lane.title, [span.label for span in lane.spans]) for lane in lanes] == [
        ("Work in flight", ["first", "third"]),
        ("At the same time", ["second"]),
    ]


def test_states_are_stretches() -> None:
    """The judge's words follow each other without holes; a tick without a state leaves one."""
    told = story([row(-3, state="ok"), row(-2, state="reclaiming"), row(-1, state=None), row(-0.5, state="hung")])
    (lane,) = [one for one in told.lanes if one.title == "State"]
    assert [(span.label, span.start_s, span.end_s) for span in lane.spans] == [
        ("ok", -3, -2),
        ("reclaiming", -2, -1),
        ("hung", -0.5, -0.5),
    ]


def test_events_are_numbered_on_the_clock_of_the_end() -> None:
    """Events of the model and of the sidecar, of this boot alone, in order; what matters is marked."""
    told = story(
        GROWTH,
        event(0.02, "model_ended", "killed"),
        event(-5, "warning", "9 s left", fields={"severity": "warning"}),
        event(-7, "warning", "big", fields={"severity": "notice"}),
        event(-4, "degraded", "kmsg", model=""),
        event(-3, "warning", "other model", model="other"),
        event(-2, "warning", "other boot", boot_id="x"),
        event(-9, "state_changed", "ok -> hung", fields={"to": "hung"}),
        event(500, "model_started", "long after"),
    )
    assert [(one.number, one.at_s, one.weight) for one in told.happenings] == [
        (1, -9, Weight.BAD),
        (2, -7, Weight.PLAIN),
        (3, -5, Weight.WARNING),
        (4, -4, Weight.WARNING),
        (5, pytest.approx(0.02), Weight.BAD),
    ]
    assert ("First warning", "5.0 s before") in [(fact.label, fact.value) for fact in told.facts]


def test_the_timeline_begins_with_this_life() -> None:
    """What another main process did before is not shown as this one's."""
    earlier = [row(at, level(current=7), processes=[{"pid": 41, "main": True}]) for at in range(-60, -20)]
    mine = {"session": "0123456789abcdef"}
    told = story(
        [*earlier, *GROWTH[10:]],
        event(-60, "model_started", fields={"session": "x"}),
        event(-20, "model_started", fields=mine),
    )
    assert told.start_s == -20
    usage = [value for curve in told.charts[0].curves for _, value in curve.points]
    assert 7 not in usage


def test_the_next_life_is_left_out() -> None:
    """A tick after the end with another main process is of the next life."""
    following = row(0.1, level("/pod/next", current=MIB), processes=[{"pid": 43, "main": True}])
    told = story([*GROWTH, following])
    assert told.charts[0].where == "/pod/llm"
    assert told.levels[0].kills == "unknown"


def test_nothing_recorded_is_said() -> None:
    """An end that no sidecar saw has its verdict and no curves."""
    told = story([])
    assert told.charts == ()
    assert told.levels == ()
    assert told.unseen == (
        "The record holds no sample around this end: no sidecar saw it, or its samples have made room.",
    )


def test_rows_in_another_shape_are_left_out() -> None:
    """A row that anybody may have written is not guessed at."""
    told = story([row(-2), {"monotonic_s": "x"}, row(-1, levels=[{"name": 7}]), {}, row(-1.5)])
    (lane,) = told.lanes
    assert [span.end_s for span in lane.spans] == [-1.5]


def test_every_known_field_of_the_verdict_is_there() -> None:
    """Sizes in words and to the byte, texts as they are; what is not known is left out."""
    told = story(GROWTH, fields={"limit_bytes": LIMIT, "exit_code": None, "failure_message": "two\nlines"})
    assert [(one.label, one.value) for one in told.known] == [
        ("limit_bytes", "400.0 MiB (419430400)"),
        ("failure_message", "two\nlines"),
    ]


def test_the_history_of_the_verdict_is_kept() -> None:
    """Earlier verdicts are listed with what changed them."""
    before = {"at": "2026-11-30T13:05:23Z", "class": "unknown", "confidence": "low", "summary": "s", "because": "first"}
    told = story(GROWTH, history=[before, before | {"at": 1.7e9, "because": "its exit status came"}])
    assert [(one.at[:4], one.verdict, one.because) for one in told.verdict.history] == [
        ("2026", "unknown, low confidence", "first"),
        ("2023", "unknown, low confidence", "its exit status came"),
    ]
