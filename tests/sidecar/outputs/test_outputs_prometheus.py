"""A real Prometheus over the real endpoint, with the shipped configuration, rules and dashboard queries."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from board_makers import board, event, incident, judgement, view
from test_outputs_dashboard import ALERTS, INTEGRATIONS, panel_queries

from guard.model import Known
from sidecar.board import Board
from sidecar.health.values import State
from sidecar.outputs.http import HttpOptions
from sidecar.outputs.serve import serving
from tests.lab.kit.ports import free_port

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's prometheus package is not installed"),
]
FOLDER = INTEGRATIONS / "prometheus"


def promtool(*arguments: str) -> None:
    """Run a check; its own words are the failure."""
    done = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_right_and_do_what_their_tests_say() -> None:
    """Promtool accepts the rules and the configuration, and its unit tests of the rules pass."""
    promtool("check", "rules", "alerts.yml")
    promtool("check", "config", "prometheus.yml")
    promtool("test", "rules", "alerts_test.yml")


def test_the_kubernetes_configuration_is_right(tmp_path: Path) -> None:
    """Debian builds Prometheus without Kubernetes' discovery, so all but that block is checked here."""
    config = yaml.safe_load((FOLDER / "prometheus-kubernetes.yml").read_text())
    [job] = config["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    config["rule_files"] = [str(ALERTS)]
    checked = tmp_path / "prometheus.yml"
    checked.write_text(yaml.safe_dump(config))
    promtool("check", "config", str(checked))


def write_config(folder: Path, target: str) -> Path:
    """The shipped configuration with another target and a quick interval."""
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(ALERTS)]
    config["scrape_configs"][0] |= {
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "static_configs": [{"targets": [target]}],
    }
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


Ask = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[Ask]:
    """A Prometheus that scrapes `target`; what it yields asks its API and gives `data`."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        f"--config.file={write_config(folder, target)}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

            async def ask(path: str, **query: str) -> Any:  # noqa: ANN401 - JSON of an API
                async with session.get(f"/api/v1/{path}", params=query) as answer:
                    said = await answer.json()
                    assert said["status"] == "success", (query, said)
                    return said["data"]

            async def up() -> bool:
                with suppress(aiohttp.ClientError):
                    return bool(await values(ask, "up == 1"))
                return False

            await until(up)
            yield ask
    finally:
        process.terminate()
        await process.wait()


async def values(ask: Ask, query: str) -> dict[str, float]:
    """An instant query as {labels in JSON: value}."""
    data = await ask("query", query=query)
    return {json.dumps(one["metric"], sort_keys=True): float(one["value"][1]) for one in data["result"]}


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for another process, at most half a minute."""
    async with asyncio.timeout(30):
        while not await true():  # noqa: ASYNC110 - what changes is in another process
            await asyncio.sleep(0.2)


def full_board() -> Board:
    """A model in trouble and one that is well."""
    hung = judgement(State.HUNG, live=False, ready=False)
    seen = board(
        view(time_to_limit_seconds=Known(12.0), incidents=(incident(),), warnings={"time_to_limit": 1}),
        view("second", judgement=hung),
        events=(event(1),),
    )
    seen.past_ends = {"gone": {"crash_signal": 1}}
    return seen


async def test_prometheus_scrapes_alerts_and_draws(tmp_path: Path) -> None:
    """The page is scraped whole, an alert fires on it, a new end is an increase, every panel's query is accepted."""
    seen = full_board()
    async with (
        serving(seen, HttpOptions(host="127.0.0.1", port=0)) as server,
        prometheus(tmp_path, f"127.0.0.1:{server.port}") as ask,
    ):
        [target] = (await ask("targets"))["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        assert set((await values(ask, 'oomguard_model_answer{question="livez"}')).values()) <= {0.0, 1.0}
        assert [float("inf")] == list(
            (await values(ask, 'oomguard_memory_limit_bytes{model="llm",depth="1"}')).values()
        )
        assert await values(ask, "oomguard_node_oom_kills_total") == {}

        async def firing() -> bool:
            active = (await ask("alerts"))["alerts"]
            return any(one["labels"]["alertname"] == "OomguardLimitSoon" and one["state"] == "firing" for one in active)

        await until(firing)
        seen.models = {**seen.models, "llm": view(ends={"cgroup_oom": 3})}

        async def increased() -> bool:
            return bool(await values(ask, 'increase(oomguard_restarts_total{cause="cgroup_oom",model="llm"}[1m]) > 0'))

        await until(increased)
        for query in panel_queries():
            if not query.startswith("label_values"):
                concrete = query.replace("$__rate_interval", "1m").replace("$model", ".*").replace("$depth", ".*")
                await ask("query", query=concrete)
