"""The whole daemon in bad surroundings: it says what is wrong, goes on without it, and loses no incident."""

from __future__ import annotations

import os
import re
import resource
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.lab.kit.wait import until
from tests.sidecar.daemons import Daemon, let_go, model
from tests.sidecar.small_disks import fill, remount, small_disk

EXIT_3 = "sys.stdin.readline(); sys.exit(3)"
needs_root = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")]


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A volume of 1 MiB for the shared directory."""
    with small_disk(tmp_path / "shared", 1) as volume:
        yield volume


def degraded(daemon: Daemon) -> dict[str, str]:
    """What does not work now, by subject."""
    said: list[str] = daemon.get("/livez?verbose")["sidecar_degraded"]
    return dict(words.split(": ", 1) for words in said)


def incidents(daemon: Daemon) -> list[dict[str, Any]]:
    """Every end that it knows."""
    found: list[dict[str, Any]] = daemon.get("/incidents")["incidents"]
    return found


def one_life(daemon: Daemon, folder: Path) -> None:
    """Let a model be seen and exit with 3, and wait for the verdict."""
    before = len(incidents(daemon))
    with model(folder, "server", EXIT_3) as process:
        until(lambda: process.pid in pids(daemon), 30, "the model to hand over")
        let_go(process)
    until(lambda: len(incidents(daemon)) > before, 30, "the incident")
    assert incidents(daemon)[0]["class"] == "application_exit"


def pids(daemon: Daemon) -> set[int]:
    """Every process in sight."""
    samples = (view["sample"] for view in daemon.get("/status")["models"].values())
    return {process["life"]["pid"] for sample in samples for process in sample["processes"]}


def no_crash(log: Path) -> None:
    """No line of the log is a traceback, and none says that a part of it crashed in an unforeseen way."""
    text = log.read_text()
    assert "Traceback" not in text
    assert "verdict_failed" not in text
    assert "model server:" not in text


def test_as_many_files_as_may_be_are_opened(tmp_path: Path) -> None:
    """The soft limit of open files, 1024 as a rule, is raised to the hard one."""
    with Daemon(tmp_path, tmp_path / "log", under='ulimit -Sn 200; exec "$@"') as daemon:
        soft, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard > 200


@pytest.mark.parametrize(
    ("under", "flags"),
    [
        ('OOMGUARD_HEALTH_PERIOD_SECOND=3 exec "$@"', ()),
        ('exec "$@"', ("--health-period-second", "3")),
        ('echo "[health]\nperiod_second = 3" >typo.toml; exec "$@"', ("--config", "typo.toml")),
    ],
)
def test_an_unknown_setting_ends_the_start_with_its_name(tmp_path: Path, under: str, flags: tuple[str, ...]) -> None:
    """A typing error in the environment, a flag or the file is said, and nothing starts."""
    daemon = Daemon(tmp_path / "shared", tmp_path / "log", *flags, under=f'cd "{tmp_path}"; {under}')
    assert daemon.process.wait(30) == 2
    said = (tmp_path / "log").read_text().lower()
    assert re.search(r"unknown|unrecognized", said)
    assert re.search(r"period.second\b", said)
    no_crash(tmp_path / "log")
    assert not (tmp_path / "shared").exists()


def test_a_damaged_record_is_put_aside_and_a_new_one_begun(tmp_path: Path) -> None:
    """Nonsense where the record should be costs the past, not the present, and is kept for who wants to look."""
    (tmp_path / "record.sqlite").write_bytes(b"SQLite format 3\0" + os.urandom(50_000))
    with Daemon(tmp_path, tmp_path / "log") as daemon:
        one_life(daemon, tmp_path)
        assert daemon.stop() == 0
    assert [path for path in tmp_path.glob("record.sqlite.*") if path.stat().st_size >= 50_000]
    with Daemon(tmp_path, tmp_path / "log2") as daemon:
        assert len(incidents(daemon)) == 1
    no_crash(tmp_path / "log")


def test_a_path_too_long_for_a_socket_is_said(tmp_path: Path) -> None:
    """A socket's path has at most 107 bytes: without it nobody hands over, and the record is kept all the same."""
    deep = tmp_path / ("d" * 110)
    deep.mkdir()
    with Daemon(deep, tmp_path / "log") as daemon:
        until(lambda: "handover" in degraded(daemon), 30, "it to be said")
        assert "too long" in degraded(daemon)["handover"]
        assert daemon.get("/livez")["passed"]
        assert (deep / "record.sqlite").exists()
    no_crash(tmp_path / "log")


class TestNames:
    """Hosts whose names nobody resolves."""

    pytestmark = needs_root

    def test_a_silent_name_server_holds_up_neither_a_verdict_nor_the_end(self, tmp_path: Path) -> None:
        """Probes wait a minute for the address of their host: ends are told soon, and SIGTERM is obeyed soon."""
        resolver = tmp_path / "resolv.conf"
        resolver.write_text("nameserver 127.0.0.254\noptions timeout:30 attempts:2\n")
        under = f'exec unshare -m sh -c \'mount --bind {resolver} /etc/resolv.conf; exec "$@"\' sh "$@"'
        flags = ("--probe", "http://server:8000/health", "--health-period-seconds", "0.2")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.254", 53))
            silent.settimeout(30)
            with Daemon(tmp_path / "shared", tmp_path / "log", *flags, under=under) as daemon:
                for _ in range(8):  # more lookups than asyncio would have threads on two cores
                    silent.recv(512)
                one_life(daemon, tmp_path / "shared")
                assert incidents(daemon)[0]["verdict_after_seconds"] < 10
                began = time.monotonic()
                assert daemon.stop() == 0
                assert time.monotonic() - began < 20
        no_crash(tmp_path / "log")


class TestVolumes:
    """Volumes that do not take what is written."""

    pytestmark = needs_root

    def test_an_end_on_a_full_volume_is_recorded_once_there_is_room(self, volume: Path, tmp_path: Path) -> None:
        """Without a record and without a black box the end is told all the same, and written down later."""
        ballast = fill(volume)
        with Daemon(volume, tmp_path / "log") as daemon:
            until(lambda: "record" in degraded(daemon), 30, "the full volume to be said")
            one_life(daemon, volume)
            ballast.unlink()
            until(lambda: "record" not in degraded(daemon), 60, "the record to be written")
            assert daemon.stop() == 0
        with closing(sqlite3.connect(volume / "record.sqlite")) as record:
            assert record.execute("SELECT count(*) FROM incidents").fetchone() == (1,)
        no_crash(tmp_path / "log")

    def test_on_a_read_only_volume_it_answers_and_recovers(self, volume: Path, tmp_path: Path) -> None:
        """Neither socket nor record can be made: both are named, and both come with write access."""
        remount(volume, "ro")
        with Daemon(volume, tmp_path / "log") as daemon:
            until(lambda: {"record", "handover"} <= degraded(daemon).keys(), 30, "both to be said")
            assert daemon.get("/livez")["passed"]
            remount(volume, "rw")
            until(lambda: not degraded(daemon).keys() & {"record", "handover"}, 60, "both to recover")
            one_life(daemon, volume)
        no_crash(tmp_path / "log")


class TestKernel:
    """Kernel files that are not there for the sidecar. The model's own come with its descriptors."""

    pytestmark = needs_root

    @staticmethod
    def masked(*mounts: str) -> str:
        """A shell line that runs the daemon where these mounts are in place."""
        inner = "; ".join(("mount --make-rprivate /", *mounts, 'exec "$@"'))
        return f"exec unshare -m sh -c '{inner}' sh \"$@\""

    def test_without_cgroups_and_pressure_a_handed_over_model_is_seen(self, tmp_path: Path) -> None:
        """No cgroup mount and no PSI in the sidecar's own namespace: its own sight is blind, the hand-over is not."""
        under = self.masked("mount -t tmpfs none /sys/fs/cgroup", "mount -t tmpfs none /proc/pressure")
        with Daemon(tmp_path, tmp_path / "log", under=under) as daemon:
            assert daemon.get("/livez")["passed"]
            with model(tmp_path, "server", EXIT_3) as process:
                until(lambda: process.pid in pids(daemon), 30, "the model to hand over")
                sample = daemon.get("/status")["models"]["server"]["sample"]
                assert "value" in sample["levels"][0]["memory"]["current_bytes"]
                assert sample["node"]["memory_pressure"]["unknown"] == "missing"
                let_go(process)
            until(lambda: incidents(daemon), 30, "the incident")
        no_crash(tmp_path / "log")

    def test_without_meminfo_vmstat_and_boot_id_ends_are_told(self, tmp_path: Path) -> None:
        """What the node does not say is unknown, never zero, and is listed as missing in the verdict."""
        files = ("/proc/meminfo", "/proc/vmstat", "/proc/sys/kernel/random/boot_id")
        under = self.masked(*(f"mount --bind /dev/null {path}" for path in files))
        with Daemon(tmp_path, tmp_path / "log", under=under) as daemon:
            one_life(daemon, tmp_path)
            (incident,) = incidents(daemon)
            assert any("node" in text for text in incident["missing"])
            assert "unknown" in daemon.get("/status")["models"]["server"]["sample"]["node"]["meminfo"]
        no_crash(tmp_path / "log")
