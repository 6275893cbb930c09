"""Open the black box and the link of this process. The heavy half of waking; either part may be missing.

What tells of a failure is imported here: when there is one, there may be no descriptor and no memory to import with.
Not in a thread: what a thread compiles at that moment (dataclasses do) takes from the interpreter that it ends by
KeyboardInterrupt, and the process its status (CPython 3.11, Python/pythonrun.c, run_eval_code_obj).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guard import telling  # noqa: F401 - for later, see above
from guard.box.writer import BoxAbout, BoxError, BoxWriter
from guard.fence import fence, troubles
from guard.hooks import native_faults
from guard.kernel import identity
from guard.kernel.reader import Reader
from guard.link.client import LinkClient, LinkSettings
from guard.link.protocol import Role
from guard.model import LifeId, Unknown
from guard.place import (
    DIRECTORY_VARIABLE,
    RELEASE,
    boxes_directory,
    model_name,
    own_command,
    shared_directory,
    socket_path,
)
from guard.threads import importing, start_unseen

if TYPE_CHECKING:
    from guard.keeper import Keeper
    from guard.link.handover import Handover


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this process is: its life, its parent's session and its command."""

    life: LifeId
    parent_session: str | None
    command: tuple[str, ...]


def identify(session: str, parent_session: str | None) -> Identity:
    """Read what makes this life unlike any other.

    Raises:
        OSError: /proc does not say; then there is nothing that a box or a hello could be filed under.
    """
    reader = Reader()
    boot_id, start_ticks = identity.boot_id(reader), identity.start_ticks(reader)
    for reading in (boot_id, start_ticks):
        if isinstance(reading, Unknown):
            raise OSError(f"this process cannot be identified: {reading}")
    assert not isinstance(boot_id, Unknown)
    assert not isinstance(start_ticks, Unknown)
    life = LifeId(boot_id.value, os.getpid(), start_ticks.value, session)
    return Identity(life, parent_session, own_command())


def open_box(who: Identity) -> BoxWriter | None:
    """Make the box; where it cannot be made, say so once and go on without."""
    about = BoxAbout(who.parent_session, RELEASE, " ".join(who.command), model_name(who.command))
    try:
        box = BoxWriter.create(boxes_directory(shared_directory()), who.life, about)
    except BoxError as error:
        troubles.add("box", error)
        _log(error)
        return None
    with fence("native faults"):
        native_faults.follow(box.path)
    return box


def open_link(who: Identity, keeper: Keeper) -> LinkClient:
    """Start looking for the sidecar. A box that could not be made at first is tried again when the sidecar is there.

    What a hand-over needs is imported only then, in the thread of the link: half of what a start would cost.
    """

    def make_handover() -> Handover:
        with importing:
            from guard.link.handover import Who, gather

        if keeper.box is None and keeper.session == who.life.session:
            with fence("box"):
                keeper.box = open_box(who)
        box = keeper.box
        hello = Who(
            name=model_name(who.command),
            life=who.life,
            parent_session=who.parent_session,
            command=" ".join(who.command),
            role=Role.GUARD,
        )
        return gather(Reader(), hello, box_fd=None if box is None else box.fd)

    link = LinkClient(LinkSettings(socket_path(shared_directory())), make_handover, keeper.pressed)
    start_unseen(link)
    return link


def _log(error: BoxError) -> None:
    """Say it in the host's log, loud only where somebody has set up a shared directory."""
    import logging

    level = logging.WARNING if os.environ.get(DIRECTORY_VARIABLE) else logging.INFO
    logging.getLogger("oomguard").log(level, "the guard runs without its black box: %s", error)
