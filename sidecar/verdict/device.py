"""The rule for ends that follow from a GPU that failed: lost from the bus, or an Xid that is the card's own fault."""

from __future__ import annotations

import signal
from typing import Final

from sidecar.units import human_seconds
from sidecar.verdict import xids
from sidecar.verdict.draft import Draft
from sidecar.verdict.facts import Facts
from sidecar.verdict.supervisor_values import SupervisorWordKind
from sidecar.verdict.values import Confidence, EndClass, GpuEvent, Statement
from sidecar.verdict.words import in_flight_words, process_words, status_words

BEFORE_SECONDS: Final = 60.0
"""From a fault of the card to the end of a server that gives up on it, or hangs until its probe has failed."""
AFTER_SECONDS: Final = 10.0
"""The card is read once a second, in a thread that a failing driver holds up."""


def device_reset(facts: Facts) -> Draft | None:
    """Blame the card: it failed shortly before, and the process ended as one does whose GPU is gone."""
    failed = [one for one in _timely(facts) if one.code is None or xids.is_of_the_card(one.code)]
    told = [
        Statement(supports=True, text=word.text, source=end.source)
        for end in facts.evidence.supervisor
        for word in end.words
        if word.kind is SupervisorWordKind.DEVICE
    ]
    if not (failed or told) or facts.exit_code == 0 or _is_asked_to_stop(facts):
        return None
    gave_up = facts.exit_code is not None or facts.signal == signal.SIGABRT
    first = _words(failed[0], facts) if failed else told[0].text
    return Draft(
        end_class=EndClass.DEVICE_RESET,
        confidence=Confidence.HIGH if gave_up and ((failed and told) or _says_so(facts)) else Confidence.MEDIUM,
        summary=f"{process_words(facts)} ended {status_words(facts)} after a GPU failed: {first}"
        f"{in_flight_words(facts.in_flight)}",
        statements=(*told, *device_statements(facts)),
    )


def device_statements(facts: Facts) -> tuple[Statement, ...]:
    """Say what happened to the GPUs around the end."""
    return tuple(Statement(supports=True, text=_words(one, facts), source="NVML") for one in _timely(facts))


def _timely(facts: Facts) -> list[GpuEvent]:
    end = facts.evidence.ended.monotonic_s
    failing = facts.evidence.liveness_failing
    since = (end if failing is None else min(end, failing[0].monotonic_s)) - BEFORE_SECONDS
    return [one for one in facts.evidence.gpu if since <= one.at.monotonic_s <= end + AFTER_SECONDS]


def _is_asked_to_stop(facts: Facts) -> bool:
    """Tell an end that somebody ordered for another reason: not for a probe that failed."""
    evidence = facts.evidence
    failing = evidence.liveness_failures_answered >= evidence.liveness_threshold
    return facts.was_stopped and not facts.is_unseen and not failing


def _says_so(facts: Facts) -> bool:
    """Whether the server's last failure names the device as well."""
    text = "" if facts.failure is None else facts.failure.message.lower()
    return any(word in text for word in ("cuda", "nccl", "gpu", "hip error"))


def _words(event: GpuEvent, facts: Facts) -> str:
    ago = facts.evidence.ended.monotonic_s - event.at.monotonic_s
    when = f"{human_seconds(abs(ago))} {'before' if ago >= 0 else 'after'} the end"
    what = "was lost: it does not answer on the bus any more" if event.code is None else xids.words(event.code)
    return f"GPU {event.gpu}: {what}, {when}" if event.code is not None else f"GPU {event.gpu} {what}, {when}"
