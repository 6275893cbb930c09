"""Board to health answer: pure, total, and the place where "the sidecar cannot tell" is decided.

Liveness kills, so it never fails for what the sidecar does not know: no model seen yet, or a board older than the
sidecar's own deadline, answers 200 and says "cannot tell"; `/sidecar/livez` is then the one that fails, and a restart
of the sidecar heals it. Readiness and startup do not kill at once, and a plain probe of a server that nobody has seen
would fail as well: they fail while no model is seen, and keep their last word on an old board.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from guard.model import Known
from sidecar.board import Board, ModelView, OwnView
from sidecar.detect.values import CannotTell, Finding
from sidecar.health.values import State
from sidecar.outputs.shape import Json, iso, plain
from sidecar.sample import Instant


class Question(StrEnum):
    """What a probe asks about a model."""

    LIVE = "livez"
    READY = "readyz"
    STARTED = "startupz"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """The answer for one model. `certain` is false where the sidecar cannot tell."""

    name: str
    passed: bool
    certain: bool
    reason: str
    view: ModelView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthAnswer:
    """The answer to one probe: all models must pass. `left_out`: models that ended and are not asked about."""

    question: str
    passed: bool
    models: tuple[ModelAnswer, ...]
    left_out: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """The HTTP status."""
        return 200 if self.passed else 503

    def line(self) -> str:
        """`ok`, `ok (cannot tell: reason)` or `failed: reason`; the whole text answer without `?verbose`."""
        failed = [answer for answer in self.models if not answer.passed]
        unsure = [answer for answer in self.models if not answer.certain]
        if failed:
            return "failed: " + "; ".join(_named(answer, self.models) for answer in failed)
        return (
            "ok (cannot tell: " + "; ".join(_named(answer, self.models) for answer in unsure) + ")" if unsure else "ok"
        )


def _named(answer: ModelAnswer, among: tuple[ModelAnswer, ...]) -> str:
    return f"{answer.name}: {answer.reason}" if len(among) > 1 else answer.reason


_FIELDS: dict[Question, Callable[[ModelView], bool]] = {
    Question.LIVE: lambda view: view.judgement.live,
    Question.READY: lambda view: view.judgement.ready,
    Question.STARTED: lambda view: view.judgement.started,
}


def tick_deadline_seconds(own: OwnView) -> float:
    """How old the last tick may be: ten missed ticks, but at least 5 s, as a node under reclaim stalls that long."""
    return max(5.0, 10.0 * own.tick_seconds)


def tick_age_seconds(own: OwnView, now: Instant) -> float:
    """Seconds since the last tick, or since the start while there was none."""
    return max(0.0, now.monotonic_s - (own.last_tick or own.started).monotonic_s)


def ask(board: Board, question: Question, now: Instant, name: str | None = None) -> HealthAnswer:
    """Answer for one model, or for every model on the board that is not history."""
    views = board.models
    left_out = tuple(one for one, view in views.items() if view.history) if name is None else ()
    every: list[tuple[str, ModelView | None]] = [item for item in views.items() if item[0] not in left_out]
    chosen = (every or [("", None)]) if name is None else [(name, views.get(name))]
    age = tick_age_seconds(board.own, now)
    stale = age if age > tick_deadline_seconds(board.own) else None
    nobody = "every model that was seen has ended" if left_out else "no model has been seen yet"
    answers = tuple(
        _nobody(name, question, f"no model named {name} has been seen yet" if name else nobody)
        if view is None
        else _one(name, view, question, stale)
        for name, view in chosen
    )
    passed = all(answer.passed for answer in answers)
    return HealthAnswer(question=question.value, passed=passed, models=answers, left_out=left_out)


def _nobody(name: str, question: Question, reason: str) -> ModelAnswer:
    return ModelAnswer(name=name, passed=question is Question.LIVE, certain=False, reason=reason, view=None)


def _one(name: str, view: ModelView, question: Question, stale: float | None) -> ModelAnswer:
    passed = _FIELDS[question](view)
    if stale is not None:
        reason = f"the sidecar's last tick is {stale:.1f} s old"
        passed = passed or question is Question.LIVE
        return ModelAnswer(name=name, passed=passed, certain=False, reason=reason, view=view)
    judgement = view.judgement
    reason = "; ".join((judgement.state.value, *judgement.reasons))
    return ModelAnswer(name=name, passed=passed, certain=judgement.state is not State.UNKNOWN, reason=reason, view=view)


def ask_sidecar(board: Board, now: Instant, *, ready: bool) -> HealthAnswer:
    """Answer about the sidecar itself: its tick is young enough; for readiness also that there was a first tick."""
    age, deadline = tick_age_seconds(board.own, now), tick_deadline_seconds(board.own)
    began = board.own.last_tick is not None
    passed = age <= deadline and (began or not ready)
    reason = f"last tick {age:.1f} s ago, at most {deadline:.1f} s" if began else f"no tick yet, for {age:.1f} s"
    answer = ModelAnswer(name="sidecar", passed=passed, certain=True, reason=reason, view=None)
    return HealthAnswer(question="readyz" if ready else "livez", passed=passed, models=(answer,))


def explain(answer: HealthAnswer, board: Board) -> dict[str, Json]:
    """Say everything behind an answer: the JSON form, and the source of `?verbose`."""
    return {
        "question": answer.question,
        "passed": answer.passed,
        "answer": answer.line(),
        "left_out": list(answer.left_out),
        "models": {one.name: _explain_model(one) for one in answer.models},
        "sidecar_degraded": list(board.own.degraded),
    }


def _explain_model(answer: ModelAnswer) -> dict[str, Json]:
    said: dict[str, Json] = {"passed": answer.passed, "certain": answer.certain, "reason": answer.reason}
    view = answer.view
    if view is None:
        return said
    judgement = view.judgement
    findings = [one for one in view.answers if isinstance(one, Finding)]
    return said | {
        "state": judgement.state.value,
        "live": judgement.live,
        "ready": judgement.ready,
        "started": judgement.started,
        "reasons": list(judgement.reasons),
        "credit_left_seconds": judgement.credit_left_seconds,
        "judged_at": iso(judgement.at.wall_s),
        "last_probe": plain(view.sample.probe) if view.sample else None,
        "findings": [one.text for one in findings],
        "degraded": [*judgement.degraded, *blind(view)],
    }


def blind(view: ModelView) -> list[str]:
    """What the detectors cannot tell, and for want of what."""
    unseeing = [one for one in view.answers if isinstance(one, CannotTell)]
    return [f"{one.detector} cannot tell: " + ", ".join(str(gap) for gap in one.missing) for one in unseeing]


def verbose(answer: HealthAnswer, board: Board) -> str:
    """Say an answer in lines for people, the way Kubernetes' own `?verbose` does."""
    lines = []
    for one in answer.models:
        mark = "+" if one.passed else "-"
        lines.append(f"[{mark}]{one.name or 'model'} {one.reason}")
        if one.view is not None:
            lines += _verbose_view(one.view)
    lines += [f"[ ]{name} has ended; only /{answer.question}/{name} asks about it" for name in answer.left_out]
    lines += [f"    sidecar degraded: {text}" for text in board.own.degraded]
    return "\n".join([*lines, answer.line()])


def _verbose_view(view: ModelView) -> list[str]:
    judgement = view.judgement
    lines = [f"    state: {judgement.state.value}", f"    credit left: {judgement.credit_left_seconds:.1f} s"]
    probe = view.sample.probe if view.sample else None
    if isinstance(probe, Known):
        lines.append(f"    last probe: {probe.value.outcome.value} after {probe.value.latency_seconds:.3f} s")
    elif probe is not None:
        lines.append(f"    last probe: unknown, {probe}")
    return lines + [f"    degraded: {text}" for text in (*judgement.degraded, *blind(view))]
