"""torchelastic's error file: torchrun shows the root cause from TORCHELASTIC_ERROR_FILE, for every rank.

Without `@record` in the script nobody writes it. The guard does, when it sees a fatal failure, in the format of
torch.distributed.elastic (`ErrorHandler.record_exception`). A file that somebody else wrote stays as it is; one of ours
is replaced, as a rank's own failure comes after those of its helpers.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from guard.model import Failure

VARIABLE: Final = "TORCHELASTIC_ERROR_FILE"
_OURS: Final = "oomguard"
_MOST_BYTES: Final = 1 << 20


def write_error_file(failure: Failure, path: str) -> bool:
    """Write the file, whole or not at all; false where somebody else's is there.

    Raises:
        OSError: it cannot be written.
    """
    if not _is_free(path):
        return False
    partial = f"{path}.oomguard-{os.getpid()}"
    with open(partial, "w", encoding="utf-8") as file:  # noqa: PTH123 - no path object in a process that is ending
        json.dump(document(failure), file)
    os.replace(partial, path)  # noqa: PTH105
    return True


def document(failure: Failure) -> dict[str, object]:
    """Give the document; `timestamp` is in whole seconds, as torchelastic compares it to find the first failure."""
    stack = "\n".join(f"  {frame}" for frame in failure.stack)
    return {
        "message": {
            "message": f"{failure.exception}: {failure.message}",
            "extraInfo": {
                "py_callstack": f"{failure.exception}: {failure.message}\n{stack}",
                "timestamp": str(int(failure.at_wall_s)),
                **failure.fields,
                "kind": failure.kind,
                "written_by": _OURS,
            },
        }
    }


def _is_free(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            found = json.loads(file.read(_MOST_BYTES))
        return bool(found["message"]["extraInfo"]["written_by"] == _OURS)
    except FileNotFoundError:
        return True
    except (ValueError, KeyError, TypeError):
        return False
