"""The evidence of an end as JSON and back, so that a later sidecar can judge it anew.

The form is that of `sidecar.outputs.shape.plain`. Reading back follows the types of the dataclasses; anybody who
shares the directory may have written the record, so everything is checked and what does not fit is no evidence.
"""

from __future__ import annotations

import types
import typing
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Union

import msgspec

from guard.model import Known, Unknown
from sidecar.outputs.shape import pack
from sidecar.verdict.values import EndEvidence

LIMIT_BYTES: Final = 1 << 20
"""Of one document. The longest kernel report and black box there are make a fifth of it."""
_ANY_LENGTH: Final = 2  # arguments of tuple[X, ...]


def pack_evidence(evidence: EndEvidence) -> bytes:
    """Print the evidence of one end."""
    return pack(evidence).data


def evidence_from(packed: bytes) -> EndEvidence | None:
    """Read it back; None where it is not in our shape."""
    try:
        document = zlib.decompressobj().decompress(packed, LIMIT_BYTES)
        found = _made(EndEvidence, msgspec.json.decode(document))
    except (msgspec.MsgspecError, zlib.error, ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if isinstance(found, EndEvidence) else None


def _made(kind: Any, value: Any) -> Any:  # noqa: ANN401 - types and JSON at run time
    """Make a value of a type from JSON.

    Raises:
        ValueError, TypeError, KeyError: it is none.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value)
    if origin is tuple:
        kinds = (arguments[0],) * len(value) if len(arguments) == _ANY_LENGTH and arguments[1] is ... else arguments
        return tuple(_made(one, item) for one, item in zip(kinds, _checked(list, value), strict=True))
    if origin is not None and issubclass(origin, Mapping):
        of_key, of_item = arguments
        items = _checked(dict, value).items()
        return MappingProxyType({_made(of_key, key): _made(of_item, item) for key, item in items})
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _made(hints[name], value[name]) for name in hints if name in _checked(dict, value)})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return float(_checked((int, float), value)) if kind is float else _checked(kind, value)


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:  # noqa: ANN401 - as above
    known = next((kind for kind in kinds if typing.get_origin(kind) is Known), None)
    if known is not None:
        if "unknown" in _checked(dict, value):
            return _made(Unknown, {**value, "why": value["unknown"]})
        return Known(_made(typing.get_args(known)[0], value["value"]))
    for kind in kinds:
        if kind is types.NoneType and value is None:
            return None
        try:
            return _made(kind, value)
        except (ValueError, TypeError, KeyError):
            continue
    raise ValueError(f"none of {kinds}")


def _checked(kind: Any, value: Any) -> Any:  # noqa: ANN401 - as above
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"not of type {kind}")
    return value


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    every = typing.get_type_hints(kind)
    return {one.name: every[one.name] for one in fields(kind)}
