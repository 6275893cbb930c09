"""Which container is a model's: by the settings, by the id in its cgroup's path, by its name, or as the only one.

A model in a cgroup namespace of its own sees "/" as its path, so the id is often not there. What is never done is to
guess between several: a wrong container's exit code would be worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sidecar.supervisors.values import Container, Subject


def container_of(
    subject: Subject, containers: Sequence[Container], names: Mapping[str | None, str], *, alone: bool
) -> Container | None:
    """Give the container of a model; None where it cannot be told.

    `names` are the settings' (None: of any model). `alone`: there is no other model.
    """
    name = names.get(subject.model, names.get(None))
    if name is not None:
        return _only([one for one in containers if one.name == name or (one.id or "").startswith(name)])
    path = "/".join(subject.groups)
    if (found := _only([one for one in containers if one.id is not None and one.id in path])) is not None:
        return found
    sharing = [one for one in containers if one.shares]
    named = _only([one for one in sharing if one.name == subject.model])
    return named if named is not None or not alone else _only(sharing)


def _only(found: Sequence[Container]) -> Container | None:
    return found[0] if len(found) == 1 else None
