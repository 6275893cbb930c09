"""Messages: what one side says is what the other hears, and nothing else passes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.kernel.values import CgroupVersion
from guard.link.protocol import (
    LIMIT_BYTES,
    ChildExit,
    Hello,
    LevelNote,
    Message,
    Pressure,
    ProtocolError,
    Refused,
    Role,
    VersionError,
    Welcome,
    decode,
    encode,
)
from guard.model import LifeId

LIFE = LifeId("boot", 42, 4711, "abc")
HELLO = Hello(
    name="model",
    life=LIFE,
    parent_session=None,
    command="serve \udcff é",
    role=Role.GUARD,
    levels=(LevelNote("/pod/c", CgroupVersion.V2, 0), LevelNote("/", CgroupVersion.V1, 1)),
    hidden_ancestors=True,
    descriptors=("levels/0/memory.current", "proc/stat"),
)
MESSAGES = [
    HELLO,
    Welcome("1.2"),
    Refused("no"),
    ChildExit(LIFE, 139),
    ChildExit(LIFE, 0, 1e9, 12.5),
    Pressure("warning", "8 s to the limit"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_way(message: Message) -> None:
    """Encoding and decoding give the same value."""
    assert message == decode(encode(message))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_unknown_fields_are_passed_over(message: Message) -> None:
    """A newer release may add fields anywhere."""
    fields = json.loads(encode(message)) | {"new": [1, {"x": None}]}
    fields = {name: value | {"new": 1} if isinstance(value, dict) else value for name, value in fields.items()}
    assert message == decode(json.dumps(fields).encode())


def test_unknown_kinds_are_passed_over() -> None:
    """A kind of a newer release is no error."""
    assert decode(b'{"v":1,"kind":"dance"}') is None


@pytest.mark.parametrize("version", [0, 2, 10**4000, True])
def test_another_major_version_is_told_apart(version: int) -> None:
    """The reason names both versions, whatever number the other side sent."""
    raw = json.dumps({"v": 7, "kind": "hello"}).replace("7", str(version).lower()[:4000]).encode()
    with pytest.raises(ProtocolError, match="version"):
        decode(raw)


def test_the_version_is_looked_at_before_anything_else() -> None:
    """A message of another version may have any shape."""
    with pytest.raises(VersionError, match="version 1 of the protocol, the other one 2"):
        decode(b'{"v":2,"anything":[]}')


WRONG: dict[str, dict[str, Any]] = {
    "name-number": {"name": 1},
    "name-long": {"name": "x" * 300},
    "name-lines": {"name": "llm\n[x] another"},
    "name-line-end": {"name": "llm\n"},
    "life-missing": {"life": None},
    "life-pid-text": {"life": {"boot_id": "b", "pid": "1", "start_ticks": 1, "session": "s"}},
    "life-pid-negative": {"life": {"boot_id": "b", "pid": -1, "start_ticks": 1, "session": "s"}},
    "life-pid-huge": {"life": {"boot_id": "b", "pid": 2**63, "start_ticks": 1, "session": "s"}},
    "life-pid-bool": {"life": {"boot_id": "b", "pid": True, "start_ticks": 1, "session": "s"}},
    "role": {"role": "king"},
    "levels-object": {"levels": {}},
    "levels-many": {"levels": [{"name": "/", "version": 2, "depth": 0}] * 65},
    "level-version": {"levels": [{"name": "/", "version": 3, "depth": 0}]},
    "level-text": {"levels": ["/"]},
    "level-depth": {"levels": [{"name": "/", "version": 2, "depth": 65}]},
    "descriptors-many": {"descriptors": ["x"] * 251},
    "descriptors-number": {"descriptors": [1]},
    "parent": {"parent_session": 5},
    "command-long": {"command": "x" * 1025},
}


@pytest.mark.parametrize("case", WRONG)
def test_a_field_of_a_wrong_type_or_size_is_malformed(case: str) -> None:
    """Every field has one type and one bound."""
    fields = json.loads(encode(HELLO)) | WRONG[case]
    with pytest.raises(ProtocolError):
        decode(json.dumps(fields).encode())


def test_what_is_not_said_about_ancestors_counts_as_hidden() -> None:
    """Only an explicit false says that the whole chain is visible."""
    fields = json.loads(encode(HELLO))
    del fields["hidden_ancestors"]
    hello = decode(json.dumps(fields).encode())
    assert isinstance(hello, Hello)
    assert hello.hidden_ancestors


def test_a_message_that_is_too_long_is_not_sent() -> None:
    """The sender knows the bound too."""
    with pytest.raises(ProtocolError, match=str(LIMIT_BYTES)):
        encode(Refused("x" * LIMIT_BYTES))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)
_KEYS = st.sampled_from(
    ["v", "kind", "name", "life", "role", "levels", "descriptors", "command", "wait_status", "level"]
)


@given(
    raw=st.binary(max_size=200)
    | st.dictionaries(_KEYS, _JSON).map(
        lambda fields: json.dumps({"v": 1, "kind": "hello"} | fields).encode("utf-8", "surrogatepass")
    )
)
def test_no_bytes_do_more_than_be_malformed(raw: bytes) -> None:
    """Decoding gives a message, nothing, or the one error, and never another."""
    try:
        message = decode(raw)
    except ProtocolError:
        return
    if message is not None:
        assert message == decode(encode(message))
