"""What the Xids of NVIDIA's driver mean: whether the card failed, or a program did something wrong on it.

The vendor's own list: https://docs.nvidia.com/deploy/xid-errors/.
"""

from __future__ import annotations

from typing import Final

from sidecar.verdict.values import EndClass

_APPLICATION: Final = EndClass.APPLICATION_EXIT
_DEVICE: Final = EndClass.DEVICE_RESET
MEANINGS: Final[dict[int, tuple[EndClass, str]]] = {
    8: (_APPLICATION, "a GPU program ran longer than its time limit"),
    13: (_APPLICATION, "a GPU program did something illegal (graphics engine exception)"),
    31: (_APPLICATION, "a GPU program used an address that is not mapped (MMU fault)"),
    32: (_APPLICATION, "the stream of commands to the GPU was corrupt"),
    38: (_DEVICE, "the firmware of the driver met an error"),
    43: (_APPLICATION, "a GPU program was stopped after a fault of its own"),
    45: (_APPLICATION, "channels were torn down after another error or a kill: a consequence"),
    46: (_DEVICE, "the GPU stopped processing"),
    48: (_DEVICE, "uncorrectable memory error (double bit ECC)"),
    61: (_DEVICE, "internal micro-controller breakpoint or halt"),
    62: (_DEVICE, "internal micro-controller halt"),
    63: (_DEVICE, "a row or page of GPU memory was retired or remapped"),
    64: (_DEVICE, "a row or page of GPU memory could not be retired"),
    68: (_APPLICATION, "exception of the video processor"),
    69: (_APPLICATION, "exception of the graphics engine class"),
    74: (_DEVICE, "NVLink error"),
    79: (_DEVICE, "the GPU has fallen off the bus"),
    92: (_DEVICE, "many correctable memory errors"),
    94: (_APPLICATION, "memory error contained to one program"),
    95: (_DEVICE, "memory error that could not be contained"),
    109: (_APPLICATION, "the GPU could not switch contexts in time"),
    110: (_DEVICE, "a security fault of the GPU"),
    119: (_DEVICE, "the GPU's system processor (GSP) did not answer"),
    120: (_DEVICE, "the GPU's system processor (GSP) met an error"),
    122: (_DEVICE, "the information ROM could not be written"),
    136: (_DEVICE, "the link to the GPU failed"),
    140: (_DEVICE, "uncorrectable memory error"),
    143: (_DEVICE, "the GPU could not be initialised"),
    149: (_DEVICE, "NVLink error"),
    154: (_DEVICE, "the driver says that the GPU needs a reset or a restart of the node"),
}
CONSEQUENCES: Final = (45, 43, 154)
"""They follow from another error, or from a kill."""


def is_of_the_card(code: int) -> bool:
    """Whether the card itself failed; of a code that nobody knows it is assumed."""
    return code not in CONSEQUENCES and MEANINGS.get(code, (_DEVICE, ""))[0] is _DEVICE


def words(code: int) -> str:
    """Name it with its meaning, as far as that is known."""
    meaning = MEANINGS.get(code, (_DEVICE, ""))[1]
    return f"Xid {code} ({meaning})" if meaning else f"Xid {code}"
