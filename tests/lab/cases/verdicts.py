"""What the cases ask of every verdict: the class, how sure it is, evidence, and a second at most."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from tests.lab.cases.stage import Document, Named, Stage
from tests.lab.kit.places import CHECKOUT
from tests.lab.kit.wait import PACE, until

VERDICT_SECONDS: Final = 1.0
"""What the first verdict may take, by the sidecar's own clock: `late` counts against it."""
_LATEST_SECONDS: Final = 10.0 * PACE
"""What each one may take on a processor that somebody else keeps busy."""
_NODE: Final = "/proc/vmstat oom_kill"


def ended(stage: Stage, model: Named, end_class: str, confidence: str | None = None, *, main: bool = True) -> Document:
    """Wait for the verdict on a model's end, or on a child's, check what all must have, and return the incident.

    Less confidence is right where a kill elsewhere on the node, by whatever else runs there, speaks against it.
    """
    first = stage.incident(model, main=main)
    incident = until(lambda: _with_class(stage, model, first["id"], end_class), 30, f"{end_class}, not {first}")
    if confidence is not None and not _disturbed(incident):
        assert incident["confidence"] == confidence, incident
    assert supporting(incident), incident
    assert incident["verdict_after_seconds"] <= _LATEST_SECONDS, incident
    stage.told.append(incident)
    return incident


def _with_class(stage: Stage, model: Named, incident_id: str, end_class: str) -> Document | None:
    """Return the incident once it has its class: evidence of a runner that nobody lets run comes late, and refines."""
    mine = (one for one in stage.incidents(model) if one["id"] == incident_id)
    return next((one for one in mine if one["class"] == end_class), None)


def supporting(incident: Document) -> list[str]:
    """Return the evidence for the verdict, with its sources."""
    return [f"{one['text']} ({one['source']})" for one in incident["evidence"] if one["for"]]


def _disturbed(incident: Document) -> bool:
    return any(not one["for"] and one["source"] == _NODE for one in incident["evidence"])


def late(incidents: Iterable[Document]) -> list[str]:
    """Return the ends whose first verdict took longer than it may, or named another class."""
    return [one["model"] for one in incidents if one["verdict_after_seconds"] > VERDICT_SECONDS or _changed(one)]


def _changed(incident: Document) -> bool:
    return any(one["class"] != incident["class"] for one in incident["history"])


def table(incidents: Iterable[Document]) -> list[Document]:
    """Return what was said of each end, in short: the verdict, the class that was named first, and its seconds."""
    return [
        {
            "end": one["model"] if one["main"] else f"{one['model']} (a child)",
            "first_class": one["history"][0]["class"] if one["history"] else one["class"],
            **{key: one[key] for key in ("class", "confidence", "level", "summary", "verdict_after_seconds")},
        }
        for one in incidents
    ]


def write_table(kernel: str, rows: list[Document]) -> None:
    """Write the table of one kernel to build/lab/, for people and for docs/verdicts.md."""
    folder = CHECKOUT / "build" / "lab"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"causes-{kernel}.json").write_text(json.dumps(rows, indent=1) + "\n")
