"""The probe of the model, against real servers that answer well, badly, late or not at all."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from guard.model import Unknown, Why
from sidecar.clock import SystemClock
from sidecar.collect.probe import Prober
from sidecar.health.values import Rules
from sidecar.sample import ProbeOutcome, ProbeResult
from sidecar.settings import ProbeTarget

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
FAST = Rules(period_seconds=0.2, timeout_seconds=0.1)
PATIENT = Rules(period_seconds=30, timeout_seconds=30)
"""Where an answer comes, however slow the machine."""


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[int]:
    """Serve raw connections; give the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def says(status: int, *, after: float = 0.0) -> Answer:
    """Answer HTTP with a status."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(after)
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 2\r\nLocation: /x\r\n\r\nhi".encode())
        await writer.drain()

    return answer


async def hang_up(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Close without a word."""


async def never(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Accept, and say nothing for longer than anybody waits."""
    await asyncio.sleep(2)


async def first_result(target: str, rules: Rules = PATIENT) -> ProbeResult:
    """Run a prober until its first result."""
    results: asyncio.Queue[ProbeResult] = asyncio.Queue()
    prober = Prober(ProbeTarget.parse(target), rules, SystemClock(), results.put_nowait)
    task = asyncio.create_task(prober.run())
    try:
        return await asyncio.wait_for(results.get(), 30)
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert prober.in_flight_since is None


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (says(200), ProbeOutcome.OK),
        (says(302), ProbeOutcome.OK),
        (says(404), ProbeOutcome.FAILED),
        (says(503), ProbeOutcome.FAILED),
        (hang_up, ProbeOutcome.ERROR),
        (never, ProbeOutcome.TIMEOUT),
    ],
    ids=["ok", "redirect", "not-found", "unavailable", "hang-up", "silence"],
)
async def test_http_outcomes(answer: Answer, outcome: ProbeOutcome) -> None:
    """200 to 399 is success, as for the kubelet; everything else is told apart."""
    async with serving(answer) as port:
        rules = FAST if outcome is ProbeOutcome.TIMEOUT else PATIENT
        result = await first_result(f"http://127.0.0.1:{port}/health", rules)
    assert result.outcome is outcome


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
async def test_a_body_that_cannot_be_unpacked_is_an_answer(coding: str) -> None:
    """The kubelet does not look into a body, so how it is packed, or whether it is at all, is not our affair either."""

    async def packed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: 2\r\n\r\nhi".encode())
        await writer.drain()

    async with serving(packed) as port:
        assert (await first_result(f"http://127.0.0.1:{port}/")).outcome is ProbeOutcome.OK


async def test_whatever_a_library_makes_of_it_the_next_probe_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that no library announces is a failed probe: had the prober stopped, the last answer would stand."""

    async def broken(_reader: object, _size: int) -> bytes:
        raise EOFError("no such thing")

    monkeypatch.setattr("aiohttp.StreamReader.read", broken)
    results: asyncio.Queue[ProbeResult] = asyncio.Queue()
    async with serving(says(200)) as port:
        rules = Rules(period_seconds=0.1, timeout_seconds=30)
        prober = Prober(ProbeTarget.parse(f"http://127.0.0.1:{port}/"), rules, SystemClock(), results.put_nowait)
        task = asyncio.create_task(prober.run())
        for _ in range(2):
            result = await asyncio.wait_for(results.get(), 30)
            assert result.outcome is ProbeOutcome.ERROR
            assert "EOFError" in result.detail
        task.cancel()
        await asyncio.wait({task})


OUT_OF_FILES = """
import asyncio, errno, resource
from guard.model import Unknown
from sidecar.clock import SystemClock
from sidecar.collect.probe import Prober
from sidecar.health.values import Rules
from sidecar.settings import ProbeTarget
from tests.sidecar.eventually import eventually

async def main():
    results = []
    target = ProbeTarget.parse("http://127.0.0.1:1/")
    prober = Prober(target, Rules(period_seconds=0.1, timeout_seconds=0.1), SystemClock(), results.append)
    task = asyncio.create_task(prober.run())
    await eventually(lambda: results, "a first result")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    await eventually(lambda: isinstance(prober.last, Unknown), "no descriptor")
    assert prober.last.errno == errno.EMFILE and "itself" in str(prober.last), prober.last
    results.clear()
    await asyncio.sleep(0.3)
    assert not results, results
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await eventually(lambda: results, "a result again")
    task.cancel()

asyncio.run(main())
"""


def test_what_the_sidecar_itself_cannot_do_is_no_failure_of_the_model() -> None:
    """Without a descriptor to ask with nothing is known, and nothing is counted; afterwards it asks on."""
    ended = subprocess.run(
        [sys.executable, "-c", OUT_OF_FILES], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 0, ended.stderr


async def test_a_late_answer_is_an_answer_with_its_latency() -> None:
    """An answer after the timeout is measured to its end, so that slow is told from hung."""
    async with serving(says(200, after=0.3)) as port:
        result = await first_result(f"http://127.0.0.1:{port}/", Rules(period_seconds=30, timeout_seconds=0.1))
    assert result.outcome is ProbeOutcome.OK
    assert result.latency_seconds >= 0.3


async def test_a_closed_port_is_refused() -> None:
    """Nobody listens: refused at once, over HTTP and TCP."""
    async with serving(hang_up) as port:
        pass
    assert (await first_result(f"http://127.0.0.1:{port}/")).outcome is ProbeOutcome.REFUSED
    assert (await first_result(f"tcp://127.0.0.1:{port}")).outcome is ProbeOutcome.REFUSED


async def test_tcp_needs_no_answer() -> None:
    """A connection is enough."""
    async with serving(never) as port:
        assert (await first_result(f"tcp://127.0.0.1:{port}")).outcome is ProbeOutcome.OK


async def test_one_probe_at_a_time_each_period() -> None:
    """A server that is slower than the period is not asked twice at once."""
    open_now, most = 0, 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await says(200, after=0.15)(reader, writer)
        open_now -= 1

    results: asyncio.Queue[ProbeResult] = asyncio.Queue()
    async with serving(count) as port:
        rules = Rules(period_seconds=0.05, timeout_seconds=1)
        prober = Prober(ProbeTarget.parse(f"http://127.0.0.1:{port}/"), rules, SystemClock(), results.put_nowait)
        task = asyncio.create_task(prober.run())
        for _ in range(3):
            await asyncio.wait_for(results.get(), 30)
        task.cancel()
        await asyncio.wait({task})
    assert most == 1


def test_without_a_target_nobody_is_asked() -> None:
    """No probe, and `none`, read as missing: the model is judged by other signs."""
    for target in (None, ProbeTarget.parse("none")):
        prober = Prober(target, FAST, SystemClock(), lambda _: None)
        assert not prober.wanted
        assert isinstance(prober.last, Unknown)
        assert prober.last.why is Why.MISSING


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        ("http://me:secret@127.0.0.1:8000/a@b", "http://127.0.0.1:8000/a@b"),
        ("m=https://[::1]", "https://[::1]"),
        ("tcp://127.0.0.1:8000", "127.0.0.1:8000"),
        ("none", None),
    ],
)
def test_where_it_asks_is_said_without_a_password(target: str, asked: str | None) -> None:
    """The place is shown on pages that anybody may read."""
    assert Prober(ProbeTarget.parse(target), FAST, SystemClock(), lambda _: None).asked == asked


async def test_a_new_life_is_asked_at_once_and_not_by_an_old_question() -> None:
    """What was asked before the new life is dropped, also in flight; the next probe does not wait for the period."""
    results: asyncio.Queue[ProbeResult] = asyncio.Queue()
    asked: asyncio.Queue[None] = asyncio.Queue()
    answers = iter([never, says(200)])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.put_nowait(None)
        await next(answers)(reader, writer)

    clock = SystemClock()
    async with serving(answer) as port:
        target = ProbeTarget.parse(f"http://127.0.0.1:{port}/")
        prober = Prober(target, Rules(period_seconds=30.0, timeout_seconds=1.0), clock, results.put_nowait)
        task = asyncio.create_task(prober.run())
        await asyncio.wait_for(asked.get(), 30)
        before = prober.in_flight_since
        born = clock.now()
        prober.forget_before(born)
        assert before is not None
        assert isinstance(prober.last, Unknown)
        result = await asyncio.wait_for(results.get(), 30)
        task.cancel()
        await asyncio.wait({task})
    assert result.outcome is ProbeOutcome.OK
    assert result.started >= born
    assert results.empty()


async def test_a_pause_of_our_own_is_not_the_models() -> None:
    """While the sidecar itself stands still no answer is late: what it missed is heard, and counted short."""
    results: asyncio.Queue[ProbeResult] = asyncio.Queue()
    asked = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await says(200, after=0.05)(reader, writer)

    async with serving(answer) as port:
        target = ProbeTarget.parse(f"http://127.0.0.1:{port}/")
        prober = Prober(target, Rules(period_seconds=30.0, timeout_seconds=0.5), SystemClock(), results.put_nowait)
        task = asyncio.create_task(prober.run())
        await asyncio.wait_for(asked.wait(), 30)
        time.sleep(2.5)  # noqa: ASYNC251 - the pause under test
        since = prober.in_flight_since
        assert since is not None
        assert SystemClock().now().monotonic_s - since.monotonic_s < 2
        result = await asyncio.wait_for(results.get(), 30)
        task.cancel()
        await asyncio.wait({task})
    assert result.outcome is ProbeOutcome.OK
    assert result.latency_seconds < 2


async def test_an_answer_after_the_period_is_still_heard() -> None:
    """A probe that was given up counts as failed, but its answer tells a slow server from a silent one."""
    results: asyncio.Queue[ProbeResult] = asyncio.Queue()
    async with serving(says(200, after=0.4)) as port:
        prober = Prober(ProbeTarget.parse(f"http://127.0.0.1:{port}/"), FAST, SystemClock(), results.put_nowait)
        task = asyncio.create_task(prober.run())
        async with asyncio.timeout(30):
            first = await results.get()
            assert prober.heard_late is None
            while prober.heard_late is None:
                assert (await results.get()).outcome is ProbeOutcome.TIMEOUT
        prober.forget_before(SystemClock().now())
        assert prober.heard_late is None
        task.cancel()
        await asyncio.wait({task})
    assert first.outcome is ProbeOutcome.TIMEOUT
