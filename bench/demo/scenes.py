"""The four scenes. Each starts a fresh server, plays its fault, and returns what was seen."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count, islice
from typing import Any

from bench.demo.life import Life
from bench.demo.probes import FAILURE_THRESHOLD, Round, document
from bench.demo.show import Show
from bench.demo.stage import Stage
from bench.demo.summary import Growth, Hang, InFlight, Kill, Reclaim
from tests.lab.kit.cgroups import Limits
from tests.lab.kit.wait import until

MIB = 1 << 20
ROOMY_BYTES = 1024 * MIB
GROWTH_LIMIT_BYTES = 512 * MIB
KILL_LIMIT_BYTES = 420 * MIB
LEAK_MIB_PER_SECOND = 25
CONTROL_SECONDS = 4
RECLAIM_SECONDS = 20
PATIENCE_SECONDS = 90
"""What a scene waits at most for what it expects: before a kill the kernel may reclaim in vain for a minute."""


class Play:
    """Plays scenes on a stage and shows them."""

    def __init__(self, stage: Stage, show: Show) -> None:
        self._stage = stage
        self._show = show

    def reclaim(self) -> Reclaim:
        """Mapped weights larger than the limit, under load."""
        with self._life("reclaim", ROOMY_BYTES) as life:
            life.wait_ready()
            life.begin_load()
            self._show.say(f"under load, limit {ROOMY_BYTES // MIB} MiB: both are content")
            self._watch(CONTROL_SECONDS)
            limit = life.own_memory_bytes() + self._stage.weights.stat().st_size // 3
            life.group.set(Limits(memory_max_bytes=limit))
            self._show.say(f"limit lowered to {limit // MIB} MiB: room for a third of the mapped weights")
            seen = self._watch(RECLAIM_SECONDS)
        return Reclaim(
            plain_failures=sum(not one.plain.ok for one in seen),
            sidecar_failures=sum(not one.sidecar.ok for one in seen),
            probes=len(seen),
            said_reclaiming=sum(one.sidecar.text.startswith(("reclaiming", "thrashing")) for one in seen),
        )

    def hang(self) -> Hang:
        """A deadlocked event loop."""
        with self._life("hang", ROOMY_BYTES) as life:
            life.wait_ready()
            self._watch(2)
            life.post("/deadlock")
            began = time.monotonic()
            self._show.say("the event loop waits for a lock whose owner waits for the event loop")
            plain_failed, sidecar_failed, in_a_row = None, None, 0
            for seen in self._rounds(PATIENCE_SECONDS):
                in_a_row = 0 if seen.plain.ok else in_a_row + 1
                if in_a_row == FAILURE_THRESHOLD:
                    plain_failed = plain_failed or seen.plain.ended_s - began
                if not seen.sidecar.ok:
                    sidecar_failed = sidecar_failed or seen.sidecar.ended_s - began
                if plain_failed and sidecar_failed:
                    break
        return Hang(plain_failed_after_s=_rounded(plain_failed), sidecar_failed_after_s=_rounded(sidecar_failed))

    def growth(self) -> Growth:
        """Anonymous memory that grows until the kernel kills."""
        with self._life("growth", GROWTH_LIMIT_BYTES) as life:
            life.wait_ready()
            self._watch(2)
            life.post(f"/leak?mib_per_second={LEAK_MIB_PER_SECOND}")
            began = time.monotonic()
            self._show.say(f"memory grows by {LEAK_MIB_PER_SECOND} MiB a second; limit {GROWTH_LIMIT_BYTES // MIB} MiB")
            warning: Mapping[str, Any] | None = None
            for _ in self._rounds(PATIENCE_SECONDS):
                if warning is None and (warning := self._warning_since(began)):
                    self._show.say(f"warning: {warning['text']}")
                if not life.alive:
                    break
            died = life.died_monotonic_s
            if died is None or warning is None:
                return Growth(warning_lead_s=None)
            self._show_incident(life)
        return Growth(warning_lead_s=_rounded(died - warning["monotonic_s"]))

    def kill(self) -> tuple[Kill, str]:
        """The kernel kills it in the middle of a load; the second value is the group whose limit it was."""
        self._show.say(f"a load that copies its weights; limit {KILL_LIMIT_BYTES // MIB} MiB")
        with self._life("kill", KILL_LIMIT_BYTES, load="copied") as life:
            level = life.group.path
            for _ in self._rounds(PATIENCE_SECONDS):
                if not life.alive:
                    break
            if life.died_monotonic_s is None:
                return Kill(end_class=None, level=None, in_flight=_in_flight({}), verdict_after_s=None), level
            incident = self._show_incident(life)
            after = time.monotonic() - life.died_monotonic_s
        kill = Kill(
            end_class=incident["class"],
            level=incident["level"],
            in_flight=_in_flight(incident["fields"]),
            verdict_after_s=_rounded(after),
        )
        return kill, level

    @contextmanager
    def _life(self, scene: str, limit_bytes: int, *, load: str = "mapped") -> Iterator[Life]:
        """Let a server live for one scene."""
        life = self._stage.life(scene, limit_bytes, load=load)
        self._show.columns()
        try:
            yield life
            if life.alive:
                life.stop()
                self._show.say("stopped as the kubelet does it: SIGTERM, then SIGKILL")
                self._show_incident(life)
        finally:
            life.group.kill_all()

    def _rounds(self, at_most: int) -> Iterator[Round]:
        for number, seen in zip(count(1), islice(self._stage.opinions.rounds(), at_most), strict=False):
            self._show.row(number, seen)
            yield seen

    def _watch(self, seconds: int) -> list[Round]:
        return list(self._rounds(seconds))

    def _warning_since(self, monotonic_s: float) -> Mapping[str, Any] | None:
        """Return the first warning about the limit since then."""
        events = document(self._stage.opinions.sidecar_port, "/events?since=0")["events"]
        return next((one for one in events if _is_warning(one) and one["monotonic_s"] >= monotonic_s), None)

    def _show_incident(self, life: Life) -> Mapping[str, Any]:
        """Wait for the verdict on the end of this life, and print it."""
        incident = until(lambda: self._incident_of(life.pid), 120, "a verdict", pause_seconds=0.02)
        self._show.say(f"verdict: {incident['summary']}")
        return incident

    def _incident_of(self, pid: int) -> Mapping[str, Any] | None:
        incidents = document(self._stage.opinions.sidecar_port, "/incidents")["incidents"]
        return next((one for one in incidents if one["main"] and one["life"]["pid"] == pid), None)


def _is_warning(event: Mapping[str, Any]) -> bool:
    return bool(event["kind"] == "warning" and event["fields"].get("detector") == "time_to_limit")


def _in_flight(fields: Mapping[str, Any]) -> InFlight:
    return InFlight(
        file=fields.get("in_flight_file"),
        tensor=fields.get("in_flight_tensor"),
        bytes_done=fields.get("in_flight_bytes_done"),
        bytes_expected=fields.get("in_flight_bytes_expected"),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
