"""Relief under pressure: callbacks of the host and built-in actions, in one thread of the guard.

Rules
    * Never in a request, never in the thread that listens to the sidecar: a callback may take its time.
    * The thread lives while there is pressure, and only then.
    * Each callback is fenced and has a cooldown; the effect of each is measured, kept for `guard.status()` and told to
      the sidecar, which keeps it in its record.
    * One that wants a level runs when pressure reaches it, and again after its cooldown while pressure lasts.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from types import CoroutineType
from typing import TYPE_CHECKING, Final

from guard.fence import fence, swallowed, troubles
from guard.kernel.reader import Reader
from guard.link.protocol import Pressure, Relieved
from guard.pressure import CALM, NONE, Gauge, Word, rank
from guard.recognise import text_of
from guard.relief_measure import freed, held
from guard.threads import start_unseen

if TYPE_CHECKING:
    from collections.abc import Callable

    Callback = Callable[[Pressure], object]

COOLDOWN_SECONDS: Final = 30.0
"""Between two runs of one action. What it gave back is used again in less; twice a minute is no load."""
LEAST_COOLDOWN_SECONDS: Final = 1.0
"""Less would keep a thread busy while memory is short."""
_KEPT_EFFECTS: Final = 16
_TEXT_LIMIT: Final = 200


@dataclass(slots=True, eq=False)
class _Listener:
    """A callback and when it runs. Without a level it hears of each change of the level, back to "none" included."""

    callback: Callback
    name: str
    level: str | None
    cooldown_seconds: float
    ran_s: float = float("-inf")

    def due_s(self, level: str) -> float:
        """When it runs at this level; never where it asks for a worse one."""
        wanted = self.level is not None and rank(self.level) <= rank(level) and level != NONE
        return self.ran_s + self.cooldown_seconds if wanted else float("inf")


class Relief:
    """One a process. `tell` gets every effect; any thread may call any method."""

    def __init__(self, tell: Callable[[Relieved], object]) -> None:
        self._tell = tell
        self._listeners: list[_Listener] = []
        self.effects: deque[Relieved] = deque(maxlen=_KEPT_EFFECTS)
        self.renew()

    def renew(self) -> None:
        """In a forked child: the thread and the locks stayed behind, the listeners came along."""
        self._changed = threading.Condition()
        self._gauge = Gauge()
        self._thread: threading.Thread | None = None
        self._heard: deque[Word] = deque()
        self._last = CALM
        self.running: str | None = None
        """The callback that runs now."""
        self.effects.clear()

    @property
    def wanted(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def add(self, callback: Callback, name: str, level: str | None, cooldown_seconds: float) -> None:
        """Have a callback run; the same one at the same level is there once."""
        with self._changed:
            if not any(one.callback == callback and one.level == level for one in self._listeners):
                self._listeners.append(_Listener(callback, name, level, cooldown_seconds))
            self._wake()

    def pressing(self) -> Word:
        """Give the worst word that holds now."""
        if self._last.level == NONE:  # on the path of every request: no lock, no clock
            return CALM
        with self._changed:
            return self._gauge.worst(time.monotonic())

    def hear(self, source: str, level: str, reason: str, holds_seconds: float) -> None:
        """Take the word of a source; a change of the worst level wakes the thread."""
        now_s = time.monotonic()
        with self._changed:
            self._gauge.hear(source, Word(level, reason, now_s + holds_seconds))
            self._notice(now_s, reason)
            self._wake()

    def calm(self) -> None:
        """Forget every word: nobody tells of pressure any more."""
        with self._changed:
            self._gauge = Gauge()
            self._notice(time.monotonic())
            self._wake()

    def _wake(self) -> None:
        """Start or wake the thread where somebody listens and there is something to hear."""
        if not self._listeners:
            self._heard.clear()
        elif self._thread is not None:
            self._changed.notify_all()
        elif self._heard or self._last.level != NONE:
            thread = threading.Thread(target=self._run, name="oomguard-relief", daemon=True)
            if start_unseen(thread):
                self._thread = thread

    def _notice(self, now_s: float, why_calm: str = CALM.reason) -> None:
        """Queue the worst word for the thread where its level is another one than before."""
        worst = self._gauge.worst(now_s)
        if worst is CALM:
            worst = replace(CALM, reason=why_calm)
        if worst.level != self._last.level:
            self._heard.append(worst)
        self._last = worst

    def _run(self) -> None:
        try:
            while (step := self._next()) is not None:
                word, changed = step
                self._pass_on(Pressure(word.level, word.reason), changed=changed)
        finally:
            with self._changed:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _next(self) -> tuple[Word, bool] | None:
        """Wait for a change of level, or until something is due; None once there is no pressure."""
        with self._changed:
            while True:
                now_s = time.monotonic()
                self._notice(now_s)
                if self._heard:
                    return self._heard.popleft(), True
                word = self._last
                if word.level == NONE:
                    self._thread = None  # under the lock: the next word starts another one
                    return None
                due_s = min((one.due_s(word.level) for one in self._listeners), default=float("inf"))
                if due_s <= now_s:
                    return word, False
                self._changed.wait(min(due_s, word.until_s) - now_s)

    def _pass_on(self, notice: Pressure, *, changed: bool) -> None:
        for listener in tuple(self._listeners):
            self.running = listener.name
            if listener.level is None:
                if changed:
                    _call(listener, notice)
            elif listener.due_s(notice.level) <= time.monotonic():
                self._relieve(listener, notice)
        self.running = None

    def _relieve(self, listener: _Listener, notice: Pressure) -> None:
        """Run one action and measure what it gave back."""
        began_s = listener.ran_s = time.monotonic()
        reader = Reader()
        with fence(f"relief {listener.name}"):
            before = held(reader)
            said = _call(listener, notice)
            after = held(reader)
            effect = Relieved(
                action=listener.name[:_TEXT_LIMIT],
                level=notice.level,
                seconds=round(time.monotonic() - began_s, 6),
                anon_freed_bytes=freed(before.anon_bytes, after.anon_bytes),
                cgroup_freed_bytes=freed(before.cgroup_bytes, after.cgroup_bytes),
                gpu_freed_bytes=freed(before.gpu_reserved_bytes, after.gpu_reserved_bytes),
                said=said[:_TEXT_LIMIT],
            )
            self.effects.append(effect)
            self._tell(effect)


def _call(listener: _Listener, notice: Pressure) -> str:
    """Call it and give what it says, or what it raised: the thread is ours, so `sys.exit()` in it asks for nothing."""
    where = f"on_pressure {listener.name}"
    try:
        answer = listener.callback(notice)
    except BaseException as error:
        if not swallowed(where, error):
            raise
        return f"{type(error).__name__}: {text_of(error)}"
    if isinstance(answer, CoroutineType):
        answer.close()
        troubles.add(where, "it gave back a coroutine, which nobody awaits")
    return answer if isinstance(answer, str) else ""
