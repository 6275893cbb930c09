"""Redaction: no secret gets through, whatever it is and wherever it stands; what explains an end does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.record.redact import Redactor, said, words_of
from sidecar.record.scrub import Scrubber
from sidecar.record.words import public_words

POD = "0f2d1c3e-1111-2222-3333-444455556666"
CONTAINER = "0123456789abcdef" * 4
FIELDS = (
    "model",
    "file",
    "item",
    "command",
    "uuid",
    "name",
    "label",
    "thread",
    "stack",
    "message",
    "boot_id",
    "detail",
)
AROUND = (
    *("{}", "the model ({}) ended", "loading {}, 1.2 GiB", "KEY={}", "https://u:{}@h/p?q=1", "/home/{}/a.bin"),
    *("user {}@corp", "'{}'", '"{}"', "x={};", "{}:12 main", "[{}]", "a/{}/b", "--flag={}", "tensor {}.weight"),
    *("/kubepods/burstable/{}/x", "\u00e9{}\u00e9", "\n{}\n", "{}\x00"),
)


@pytest.fixture
def redactor() -> Redactor:
    """One run with the words of our own sources."""
    return Redactor(public_words())


def is_secret(word: str) -> bool:
    """Whether a text has a word in it that nobody can read in our sources: one of letters, three at least."""
    return any(len(part) > 2 and not any(map(str.isdigit, part)) for part in words_of(word) - public_words())


secrets = (
    st.text(st.characters(exclude_categories=("Cs",)), min_size=3, max_size=40)
    | st.from_regex(r"(hf_|sk-|ghp_)[A-Za-z0-9]{20,30}", fullmatch=True)
    | st.from_regex(r"[a-z]{3,12}([-_./][A-Za-z0-9]{2,8}){0,3}", fullmatch=True)
).filter(is_secret)


@given(secret=secrets, field=st.sampled_from(FIELDS), around=st.sampled_from(AROUND))
def test_no_secret_survives_anywhere(secret: str, field: str, around: str) -> None:
    """Whatever has a word in it that is not ours is gone: from its field, from texts, keys, lists and readings."""
    redactor = Redactor(public_words())
    document = {
        field: secret,
        "text": around.format(secret),
        "reading": {"value": around.format(secret)},
        "list": [{field: {"value": secret}}, around.format(secret)],
        around.format(secret): 1,
    }
    redactor.learn(document)
    assert secret not in list(texts(redactor.value(document)))
    assert not [text for text in texts(redactor.value(document)) if secret in text]


def texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Every text in a JSON value, keys too."""
    if isinstance(value, Mapping):
        yield from value
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_any_json_keeps_its_shape_and_its_figures(value: object) -> None:
    """Nothing raises; numbers, truth values and null stay, and the same again gives the same."""
    redactor = Redactor(public_words())
    redactor.learn(value)
    hidden = redactor.value(value)
    assert hidden == redactor.value(value)
    assert figures(value) == figures(hidden)


def figures(value: object) -> list[object]:
    """What is not text in a JSON value, in order."""
    if isinstance(value, dict):
        return [one for item in value.values() for one in figures(item)]
    if isinstance(value, list):
        return [one for item in value for one in figures(item)]
    return [] if isinstance(value, str) else [value]


def test_the_same_name_has_the_same_stand_in_everywhere(redactor: Redactor) -> None:
    """A model, its file and its tensor are told by one stand-in each in fields, texts and later values."""
    file, tensor = "/models/acme/Orca-70B/model-00001.safetensors", "decoder.layers.31.up_proj.weight"
    document = {
        "summary": f"the model (acme-chat) ended loading {file}, tensor {tensor}, 1.2 GiB (30 %)",
        "model": "acme-chat",
        "fields": {"in_flight_file": file, "in_flight_tensor": tensor},
    }
    redactor.learn(document)
    assert redactor.value(document) == {
        "summary": "the model (model-1) ended loading file-1.safetensors, tensor tensor-1, 1.2 GiB (30 %)",
        "model": "model-1",
        "fields": {"in_flight_file": "file-1.safetensors", "in_flight_tensor": "tensor-1"},
    }
    assert redactor.value({"model": "acme-chat", "text": "acme-chat: model-00001.safetensors"}) == {
        "model": "model-1",
        "text": "model-1: file-1.safetensors",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "oom_kill rose by 1 in memory.events of /docker/" + CONTAINER,
            "oom_kill rose by 1 in memory.events of /docker/id-1",
        ),
        (f"/kubepods/burstable/pod{POD}/{CONTAINER}", "/kubepods/burstable/pod-id-1/id-2"),
        (
            f"/kubepods.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope",
            "/kubepods.slice/kubepods-burstable-pod-id-1.slice/cri-containerd-id-2.scope",
        ),
        ("ended by SIGKILL with exit code 137", "ended by SIGKILL with exit code 137"),
        ("at 2026-11-30T13:05:17.331Z, after 0.25 s", "at 2026-11-30T13:05:17.331Z, after 0.25 s"),
        ("kernel 6.12.0-acmecorp-generic", "kernel 6.12.0-name-1-generic"),
        ("/proc/1234/status, gfp_mask=0xcc0", "/proc/1234/status, gfp_mask=0xcc0"),
        ("10.1.2.3, 127.0.0.1:8000, fe80::1, ::1", "ip-1, 127.0.0.1:8000, ip-2, ::1"),
        ("HF_TOKEN=hf_abc123 zanzibar@corp.example", "name-1=value-1 address-1"),
        ("/srv/zanzibar/weights.gguf and /srv/zanzibar", "/file-1.gguf and /path-1"),
        ("http://bob:secret@10.0.0.1/x?y", "http://host-1/x"),
        (
            "http://127.0.0.1:8000/health and https://zanzibar:8/v1/orca#f",
            "http://127.0.0.1:8000/health and https://host-1:8/v1/name-1",
        ),
    ],
)
def test_what_explains_an_end_is_kept(redactor: Redactor, text: str, expected: str) -> None:
    """Figures, times, kernel files, the shape of cgroup paths and our own words stay; the rest has a stand-in."""
    assert redactor.text(text) == expected


def test_a_message_keeps_sizes_and_no_prompt(redactor: Redactor) -> None:
    """What an exception quotes is hidden, also where the message is repeated in other texts."""
    message = "CUDA out of memory. Tried to allocate 2.00 GiB. Request: write to my doctor about the illness"
    document = {"text": f"RuntimeError: {message}", "fields": {"failure_message": message}}
    redactor.learn(document)
    hidden = json.dumps(redactor.value(document))
    assert "CUDA out of memory Tried to allocate 2.00 GiB" in hidden
    assert not {"request", "write", "doctor", "illness"} & set(words_of(hidden))


def test_a_session_is_kept_as_incidents_are_referred_to_by_it(redactor: Redactor) -> None:
    """Random ids of lives stay in fields and texts; ids of any other kind do not."""
    document = {"id": "34360a9bd4aeb602", "life": {"session": "34360a9bd4aeb602"}, "text": "see 34360a9bd4aeb602"}
    redactor.learn(document)
    assert redactor.value(document) == document
    assert redactor.text("see 34360a9bd4aeb603") == "see id-1"


def test_keys_of_the_kernel_stay_and_other_unknown_keys_do_not(redactor: Redactor) -> None:
    """Lines of memory.stat that we do not know are kept, names of an application as keys are not."""
    assert redactor.value({"stat": {"zswpwb_new": 1}, "zanzibar": 2}) == {"stat": {"zswpwb_new": 1}, "name-1": 2}


@pytest.mark.parametrize("unit", ["a", "a-", "0", "1:", "f:", ":", "/a", "a@", "A_", "token", "://", "-_", "\u00e9"])
def test_time_grows_with_a_text_and_not_with_its_square(unit: str) -> None:
    """A log may be one line of two megabytes; sixteen times the text takes no more than forty times as long."""
    for hiding in (lambda: Redactor(public_words()), Scrubber):
        short, long = (spent(hiding(), unit * (size // len(unit))) for size in (10_000, 160_000))
        assert long < 40 * max(short, 0.002)


def spent(hiding: Redactor | Scrubber, text: str) -> float:
    """Seconds of this thread that it takes to hide a text."""
    began = time.thread_time()
    hiding.text(text)
    return time.thread_time() - began


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("get https://bob:pw@host:8/x?key=v#f now", "get https://host:8/x now"),
        ("HF_TOKEN=abc, MODEL=x", "HF_TOKEN=[removed], MODEL=[removed]"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: [removed]"),
        ("api_key: 'abc' password=abc", "api_key: '[removed]' password=[removed]"),
        ("used hf_abcdefgh12 and sk-abcdefgh12", "used [removed] and [removed]"),
        ("acme-chat took 5 tokens of 1024 in 3 s", "acme-chat took 5 tokens of 1024 in 3 s"),
    ],
)
def test_without_redaction_what_looks_like_a_secret_goes(text: str, expected: str) -> None:
    """Tokens, users and queries of URLs, values of variables and of keys that name secrets; names stay."""
    assert Scrubber().text(text) == expected


@pytest.mark.parametrize(
    "secret",
    [
        "10.23.45.67",
        "2001:4860:4860::8888",
        "http://10.23.45.67:8080/?key=123456",
        "/home/1234/5678",
        "API_TOKEN=123456",
        "1234@10.23.45.67",
    ],
)
def test_no_figure_of_an_address_is_in_a_message(secret: str) -> None:
    """An address, a path and a variable of figures alone are hidden in a message as everywhere else; sizes stay."""
    assert said(f"allocating 20.00 MiB for {secret}, limit 512 MiB") == "allocating 20.00 MiB for * limit 512 MiB"
