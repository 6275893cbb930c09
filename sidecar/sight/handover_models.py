"""Which handed-over processes are one model, and which hand-overs are one process. Owner of their descriptors."""

from __future__ import annotations

from collections.abc import Iterator

from guard.link.protocol import Role
from guard.model import LifeId
from sidecar.sample import LevelId, SightKind
from sidecar.sight.handover_check import Checked, close_process
from sidecar.sight.levels import close_levels
from sidecar.sight.seen import SeenModel, SeenProcess

_ProcessKey = tuple[str, int, int]
_Place = LevelId | _ProcessKey
_ModelKey = tuple[_Place, str]


class Models:
    """Models by own level and name, and their processes, oldest first.

    A process goes on in the model that it was first seen in, whatever name a second hand-over of it gives.

    Invariant: every descriptor given in by `add` is either in a model or closed.
    """

    def __init__(self) -> None:
        self._models: dict[_ModelKey, SeenModel] = {}

    def __iter__(self) -> Iterator[SeenModel]:
        """All models."""
        return iter(tuple(self._models.values()))

    def add(self, checked: Checked) -> tuple[SeenModel, SeenProcess]:
        """Take a hand-over in. One of a known process is merged into that process, the same object as before."""
        place = _place(checked)
        key = (place, checked.hello.name)
        model = self._of_process(place, checked.process.life) or self._models.get(key)
        if model is None:
            model = self._models[key] = SeenModel(
                name=checked.hello.name,
                kind=SightKind.HANDOVER,
                levels=checked.levels,
                hidden_ancestors=checked.hello.hidden_ancestors,
            )
        else:
            close_levels(checked.levels)
        process = _find(model, checked.process.life)
        if process is None:
            process = checked.process
            model.processes.append(process)
            model.processes.sort(key=lambda one: one.life.start_ticks)
        else:
            _merge(process, checked)
        process.has_runner = process.has_runner or checked.hello.role is Role.RUNNER
        return model, process

    def release(self, model: SeenModel, process: SeenProcess | None = None) -> None:
        """Close and forget one process, or the whole model."""
        for one in tuple(model.processes) if process is None else (process,):
            close_process(one)
            if one in model.processes:
                model.processes.remove(one)
        if process is None:
            close_levels(model.levels)
            self._models = {key: other for key, other in self._models.items() if other is not model}

    def _of_process(self, place: _Place, life: LifeId) -> SeenModel | None:
        mine = (model for (where, _), model in self._models.items() if where == place)
        return next((model for model in mine if _find(model, life) is not None), None)


def same_process(one: LifeId, other: LifeId) -> bool:
    """Whether two lives are one process: guard and runner each give it a session of their own."""
    return _process_key(one) == _process_key(other)


def _process_key(life: LifeId) -> _ProcessKey:
    return life.boot_id, life.pid, life.start_ticks


def _place(checked: Checked) -> _Place:
    """The own level; a process that shows none is a model by itself."""
    own = next((level for level in checked.levels if level.depth == 0), None)
    return _process_key(checked.process.life) if own is None else own.id


def _find(model: SeenModel, life: LifeId) -> SeenProcess | None:
    return next((one for one in model.processes if same_process(one.life, life)), None)


def _merge(known: SeenProcess, checked: Checked) -> None:
    """Take from a second hand-over of one process what the first lacks; the guard knows best who it is.

    A later guard's box replaces an earlier one: the process has called exec, and writes to the later box.
    """
    new = checked.process
    known.aliases |= {known.life.session, new.life.session}
    if checked.hello.role is Role.GUARD:
        known.life, known.parent_session, known.command = new.life, new.parent_session, new.command
        if new.box is not None:
            known.box, new.box = new.box, known.box
    if known.pidfd is None:
        known.pidfd, new.pidfd = new.pidfd, None
    missing = {name: file for name, file in new.files.items() if name not in known.files}
    known.files = {**known.files, **missing}
    new.files = {name: file for name, file in new.files.items() if name not in missing}
    close_process(new)
