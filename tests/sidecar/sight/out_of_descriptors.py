"""A server at the limit of its open files, in a process of its own: other tests' threads open and close files too.

Run as `python -m tests.sidecar.sight.out_of_descriptors SOCKET`; what is not as it should be ends in a traceback.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from guard.link.protocol import Refused, Welcome
from tests.sidecar.eventually import eventually
from tests.sidecar.sight.handovers import RawClient, handover, open_descriptors, serving


async def main(path: Path) -> None:
    """Use up all descriptors and see the report; make a little room: the reason; make all of it: be served."""
    async with serving(path) as (_server, heard):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with RawClient(path) as client:
            client.hand_over(handover())
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_descriptors()) + 8, hard))
            filler = [os.dup(0) for _ in _until_full()]
            await eventually(lambda: heard.refused, "the report")
            assert "no connection can be taken" in heard.refused[0]
            for fd in filler[:3]:
                os.close(fd)
            answer = await client.answer()
            assert isinstance(answer, Refused), answer
            assert "may not open so many files" in answer.reason
            for fd in filler[3:]:
                os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with RawClient(path) as client:
            client.hand_over(handover(session="honest"))
            assert isinstance(await client.answer(), Welcome)


def _until_full() -> Iterator[None]:
    """Goes on until no descriptor can be opened."""
    while True:
        try:
            os.close(os.dup(0))
        except OSError:
            return
        yield


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
