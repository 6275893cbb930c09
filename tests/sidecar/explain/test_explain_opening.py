"""Files as they lie about: packed, of Windows, or no text at all."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from sidecar.explain.opening import InputError
from sidecar.explain.reading import explain

_TEXT: Final = (
    "Name: llm-0\r\n    Last State:     Terminated\r\n      Reason:       OOMKilled\r\n      Exit Code:    137\r\n"
)
_FORMS: Final[dict[str, Callable[[str], bytes]]] = {
    "utf-8 with a mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "utf-16 of Windows": lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
    "utf-16 the other way": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    "utf-32": lambda text: codecs.BOM_UTF32_LE + text.encode("utf-32-le"),
    "gzip in two parts": lambda text: gzip.compress(text[:30].encode()) + gzip.compress(text[30:].encode()),
    "gzip of utf-16": lambda text: gzip.compress(codecs.BOM_UTF16_LE + text.encode("utf-16-le")),
    "bzip2": lambda text: bz2.compress(text.encode()),
    "xz": lambda text: lzma.compress(text.encode()),
}


@pytest.mark.parametrize("form", _FORMS)
def test_every_form_of_a_text(form: str, tmp_path: Path) -> None:
    """The text is read whatever form it is kept in."""
    file = tmp_path / "pod.txt"
    file.write_bytes(_FORMS[form](_TEXT))
    assert [one.end_class.value for one in explain((str(file),)).incidents] == ["cgroup_oom"]


def test_a_record_behind_a_mark(tmp_path: Path) -> None:
    """The first line of a document of Windows is read as well."""
    file = tmp_path / "pod.json"
    text = '{"status": {"containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}}'
    file.write_bytes(codecs.BOM_UTF8 + text.encode())
    assert [one.end_class.value for one in explain((str(file),)).incidents] == ["cgroup_oom"]


@pytest.mark.parametrize("form", ["gzip in two parts", "utf-16 of Windows"])
def test_standard_input_in_every_form(form: str) -> None:
    """A pipe is opened as a file is."""
    done = subprocess.run(
        [sys.executable, "-m", "guard.cli", "explain"], input=_FORMS[form](_TEXT), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, b"cgroup_oom")


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (b"PK\x03\x04", "zip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"LPKSHHRH", "journalctl"),
        (b"SQLite format 3\x00", "oomguard report"),
        (b"\x7fELF", "core dump"),
    ],
)
def test_what_is_no_text_is_refused(head: bytes, word: str, tmp_path: Path) -> None:
    """It is not said of such a file that nothing ended, but what it is and what to do."""
    file = tmp_path / "input"
    file.write_bytes(head + bytes(100))
    with pytest.raises(InputError, match=word):
        explain((str(file),))


@pytest.mark.parametrize("form", ["gzip of utf-16", "bzip2", "xz"])
def test_a_packed_file_that_is_cut(form: str, tmp_path: Path) -> None:
    """It is damaged, which is said."""
    file = tmp_path / "input"
    file.write_bytes(_FORMS[form](_TEXT * 100)[:-20])
    with pytest.raises(InputError, match="damaged"):
        explain((str(file),))


@pytest.mark.parametrize("form", ["gzip of utf-16", "bzip2", "xz"])
def test_a_packed_file_with_a_wrong_byte(form: str, tmp_path: Path) -> None:
    """Whatever the unpacker says of it, the answer is one line."""
    file = tmp_path / "input"
    whole = _FORMS[form]("".join(f"{number} {number * number}\n" for number in range(3000)))
    for at in range(20, len(whole) - 20, len(whole) // 7):
        file.write_bytes(whole[:at] + bytes(255 - one for one in whole[at : at + 8]) + whole[at + 8 :])
        with pytest.raises(InputError, match="damaged"):
            explain((str(file),))


def test_ctrl_c_is_one_line() -> None:
    """Who waits for nothing and gives up sees no traceback."""
    command = [sys.executable, "-m", "guard.cli", "explain", "/dev/stdin", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"x" * (1 << 20))  # more than a pipe holds: written when it is read
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b"oomguard: explain: interrupted\n"
        assert process.wait(120) == 130
