"""Hides what a record tells about people and places; keeps what tells why something died. Pure.

Rules
    * Kept are figures, times, names of kernel files, and words that stand in our own sources (`public_words`): what
      everybody can read there is no secret. Every other word becomes a stand-in. So nothing has to be recognised as a
      secret to be hidden, and a text of a kind that nobody thought of is hidden for the most part.
    * The same word gets the same stand-in within one run: `model-1`, `file-2.safetensors`, `tensor-3`, `name-4`.
    * Values of known fields (model, file, tensor, command, ...) are learned, and replaced in every text as a whole,
      where all their words are public too. `learn` all before the first `value`, so that early texts know late names.
    * Messages of the application keep figures and the words of allocators alone: an exception may quote a prompt.

Not hidden: numbers, pids among them, and single letters.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any

_WORD: Final = r"(?:\w|[^\x00-\x7f])+(?:[.\-](?:\w|[^\x00-\x7f])+)*"
_UUID: Final = r"[0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}"
_HEX: Final = rf"{_UUID}|(?<![0-9a-fA-F])(?=[0-9]*[a-fA-F])[0-9a-fA-F]{{12,}}(?![0-9a-fA-F])"
# Each part has a bound where it could start anywhere in a long word: time must not grow with the square of a text.
_TOKENS: Final = re.compile(
    r"(?P<url>[A-Za-z][A-Za-z0-9+.\-]{0,20}://[^\s\"'<>]+)"
    r"|(?P<address>[\w.+\-]{1,64}@[\w.\-]+)"
    r"|(?P<setting>(?<!\w)[A-Z][A-Z0-9_]{2,}=[^\s,;]+)"
    r"|(?P<path>(?<![\w.])/[^\s\"',;:()\[\]{}<>=]+)"
    r"|(?P<ip>(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F:]{0,40}:[0-9a-fA-F.]{0,15})(?![\w:]))"
    rf"|(?P<hex>(?<!\w)(?:{_HEX})(?!\w))"
    rf"|(?P<word>{_WORD})"
)
_WORDS: Final = re.compile(_WORD)
_PARTS: Final = re.compile(r"(?:[^\W_]|[^\x00-\x7f])+")
_HEX_ANYWHERE: Final = re.compile(_HEX)
_FIGURE: Final = re.compile(r"v?\d+(?:[.,]\d+)*|0x[0-9a-f]{1,8}|\d{4}-\d\d-\d\d(?:T\d\d)?")
_MEASURE: Final = re.compile(r"\d+(?:[.,]\d+)*([A-Za-z]{1,4})")
_SESSION: Final = re.compile(r"[0-9a-f]{8,32}")
_EXTENSION: Final = re.compile(r"\.[A-Za-z0-9]{1,12}$")

_KINDS: Final[Mapping[str, str]] = {
    "model": "model",
    "file": "file",
    "in_flight_file": "file",
    "item": "tensor",
    "in_flight_tensor": "tensor",
    "command": "command",
    "uuid": "gpu",
    "boot_id": "boot",
    "host": "host",
    "hostname": "host",
    "pod": "pod",
    "namespace": "namespace",
    "container": "container",
    "user": "user",
}
_SESSIONS: Final = frozenset(("session", "parent_session", "incident"))
MESSAGES: Final = frozenset(("message", "failure_message"))
"""Keys of what an application says: an exception may quote a prompt."""
_CGROUPS: Final = frozenset(("name", "level", "oom_memcg", "task_memcg"))
_TABLES: Final = frozenset(("stat", "meminfo", "vmstat", "events", "events_local", "cpu_stat"))
"""Objects whose keys the kernel gives."""
_PLACES: Final = re.compile(
    r"/(?:proc|sys|host/(?:proc|sys)|dev/(?:shm|kmsg)|run/oomguard|kubepods|kubelet|system|user|machine|docker|podman|libpod|init|ecs|lxc)(?![A-Za-z])"
)
_OWN_HOSTS: Final = ("", "localhost", "127.0.0.1", "0.0.0.0", "[::1]")  # noqa: S104 - nothing listens here
_SHORTEST: Final = 3
_MOST_LEARNED: Final = 2000
"""Names that are looked for in texts; words of later ones are hidden one by one."""
_SYSTEMS: Final = frozenset(
    (
        *("x86_64", "aarch64", "amd64", "arm64", "ppc64le", "s390x", "riscv64", "smp", "preempt", "lts", "rt", "cloud"),
        *(
            "generic",
            "aws",
            "azure",
            "gcp",
            "gke",
            "cos",
            "oracle",
            "microsoft",
            "standard",
            "wsl2",
            "el8",
            "el9",
            "el10",
        ),
        *("amzn2", "amzn2023", "talos", "flatcar", "bottlerocket"),
    )
)
"""Machines, and what distributions put behind the number of a kernel."""
_STAND_INS: Final = frozenset((*_KINDS.values(), "id", "name", "path", "address", "ip", "value", "message", "setting"))


def url_parts(url: str) -> tuple[str, str, str, str]:
    """Take a URL apart: scheme, host, port and path. User, query and fragment may be secret, and are left out."""
    scheme, _, rest = url.partition("://")
    place, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    host, _, port = place.rpartition("@")[2].partition(":") if not place.endswith("]") else (place, "", "")
    return scheme, host, port if port.isascii() and port.isdigit() else "", slash + path


def words_of(text: str) -> frozenset[str]:
    """Words and compounds of a text, in lower case, as `Redactor` compares them."""
    found = {word for compound in _WORDS.findall(text.lower()) for word in (compound, *compound.split("."))}
    return frozenset(found | {part for word in found for part in _PARTS.findall(word)})


_ALLOCATORS: Final = words_of(
    "a allocate allocated allocating allocation allocations allocator an and array available b but buffer by byte "
    "bytes can cannot capacity card cpu cublas cublas_status_alloc_failed cuda cudnn cufft data "
    "defaultcpuallocator device dtype enough error exceeded expandable_segments failed false for fragmentation "
    "free from gb gib gpu has have hip host in including into is kb kib large limit map mb memory memoryerror mib "
    "mmap more need needed no not of on out pages pin pinned process pytorch reserved resource resource_exhausted "
    "shape shared shm size space tensor tensors than that the this to torch total tried try true unable "
    "unallocated use used using was which while with you your float bfloat16 float16 float32 float64 int8 int32 "
    "int64 uint8 errno"
)


def said(message: str) -> str:
    """Give figures and the words of allocators in a message of an application; one sign stands for all the rest."""
    kept = (word for found in _TOKENS.finditer(message) for word in _said(found))
    return re.sub(r"\*(?: \*)+", "*", " ".join(kept))


def _said(found: re.Match[str]) -> list[str]:
    """Give what a token of a message tells: figures of addresses, paths and variables are no sizes."""
    figures = found.lastgroup == "word" or (found.lastgroup == "ip" and not _is_address(found[0]))  # or a time of day
    words = _WORDS.findall(found[0])
    return [word if word.lower() in _ALLOCATORS or (figures and _is_said(word)) else "*" for word in words]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_said(word: str) -> bool:
    measure = _MEASURE.fullmatch(word)
    unit = measure is not None and measure[1].lower() in _ALLOCATORS
    return unit or word.lower() in _ALLOCATORS or _FIGURE.fullmatch(word) is not None


class Redactor:
    """One run: stand-ins are given as words come. `words` may be kept, as `words_of` gives them."""

    def __init__(self, words: Collection[str]) -> None:
        self._words = frozenset(words) | _STAND_INS | _SYSTEMS
        self._stand_ins: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._sessions: set[str] = set()
        self._learned: dict[str, str] = {}
        self._known: re.Pattern[str] | None = None
        self._keys: dict[str, str] = {}
        self._ways: Mapping[str, Callable[[str], str]] = {
            "url": self._url,
            "address": lambda word: self._stand_in("address", word),
            "setting": lambda word: f"{self._word(word.partition('=')[0])}={self._stand_in('value', word)}",
            "path": self._path,
            "ip": self._ip,
            "hex": self._hex,
            "word": self._word,
        }

    def learn(self, value: Json, key: str = "") -> None:
        """Take note of the names in a JSON value, below a key."""
        if isinstance(value, Mapping):
            for name, item in value.items():
                self.learn(item, key if name == "value" else str(name))
        elif isinstance(value, list | tuple):
            for item in value:
                self.learn(item, key)
        elif isinstance(value, str):
            self._known_field(key, value)

    def value(self, value: Json, key: str = "") -> Json:
        """Give a JSON value, below a key, with stand-ins. Mappings become dicts, sequences lists."""
        if isinstance(value, Mapping):
            kernel = key in _TABLES
            return {
                str(name) if kernel else self._key(str(name)): self.value(item, key if name == "value" else str(name))
                for name, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item, key) for item in value]
        return self._field(key, value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """Give a text with stand-ins."""
        if self._known is None:
            telling = sorted(filter(self._is_telling, self._learned), key=len, reverse=True)[:_MOST_LEARNED]
            self._known = re.compile(
                r"(?<!\w)(?:" + "|".join(map(re.escape, telling)) + r")(?!\w)" if telling else "(?!)"
            )
        parts, end = [], 0
        for found in self._known.finditer(text):
            parts += [_TOKENS.sub(self._token, text[end : found.start()]), self._learned[found[0]]]
            end = found.end()
        return "".join((*parts, _TOKENS.sub(self._token, text[end:])))

    def _key(self, name: str) -> str:
        """Give what stands for a key. Rows by the thousand have the same ones."""
        if name not in self._keys:
            hidden = self.text(name)
            if hidden != name:  # what stands for it may change while names are learned
                return hidden
            self._keys[name] = name
        return self._keys[name]

    def _field(self, key: str, value: str) -> str:
        known = self._known_field(key, value)
        return self.text(value) if known is None else known

    def _known_field(self, key: str, value: str) -> str | None:
        """Give the stand-in for a value whose key says what it is, None where no key of ours does."""
        if key in _SESSIONS or (key == "id" and _SESSION.fullmatch(value)):
            return self._session(value)
        if key in _KINDS and value:
            return self._learn(value, lambda: self._named(_KINDS[key], value))
        if key in MESSAGES and value:
            return self._learn(value, lambda: said(value))
        if key in _CGROUPS and value.startswith("/"):
            return self._learn(value, lambda: self._place(value)) if len(value) > 1 else value
        return None

    def _learn(self, value: str, make: Callable[[], str]) -> str:
        if value not in self._learned:
            self._learned[value] = make()
            self._known = None
        return self._learned[value]

    def _is_telling(self, name: str) -> bool:
        """Whether a learned name may be looked for in texts: not where it is one word that says something there."""
        return len(name) >= _SHORTEST and not (name.lower() in self._words and _PARTS.fullmatch(name))

    def _named(self, kind: str, value: str) -> str:
        """Give `KIND-N`, for a file with its extension, and for its last part alone the same."""
        if kind != "file":
            return self._stand_in(kind, value)
        last = value.rpartition("/")[2]
        found = _EXTENSION.search(last)
        ending = found[0] if found and found[0][1:].lower() in self._words else ""
        return self._learned.setdefault(last, self._stand_in(kind, last) + ending)

    def _stand_in(self, kind: str, word: str) -> str:
        if word not in self._stand_ins:
            number = self._counts[kind] = self._counts.get(kind, 0) + 1
            self._stand_ins[word] = f"{kind}-{number}"
        return self._stand_ins[word]

    def _token(self, found: re.Match[str]) -> str:
        return self._ways[found.lastgroup or "word"](found[0])

    def _word(self, word: str) -> str:
        """Keep a public word and a figure, with its unit or as a version; each part of a version counts by itself."""
        if self._is_plain(word):
            return word
        if word[0].isdigit():
            return _PARTS.sub(
                lambda part: part[0] if self._is_plain(part[0]) else self._stand_in("name", part[0]), word
            )
        return self._stand_in("name", word)

    def _is_plain(self, word: str) -> bool:
        if len(word) == 1 or word.lower() in self._words or _FIGURE.fullmatch(word):
            return True
        measure = _MEASURE.fullmatch(word)
        return measure is not None and (len(measure[1]) == 1 or measure[1].lower() in self._words)

    def _path(self, path: str) -> str:
        """Give a path of the kernel with its shape, any other as one word."""
        if path in self._learned:
            return self._learned[path]
        if _PLACES.match(path):
            return self._place(path)
        return (
            "/"
            if path == "/"
            else f"/{self._named('file', path) if _EXTENSION.search(path) else self._stand_in('path', path)}"
        )

    def _place(self, path: str) -> str:
        """Keep what orchestrators and the kernel call their cgroups and files, hide ids and names."""
        hidden = _HEX_ANYWHERE.sub(lambda found: f"-{self._hex(found[0])}", path).replace("/-", "/").replace("--", "-")
        return _WORDS.sub(lambda found: self._components(found[0]), hidden)

    def _components(self, word: str) -> str:
        if self._is_plain(word):
            return word
        return _PARTS.sub(lambda part: part[0] if self._is_plain(part[0]) else self._stand_in("name", part[0]), word)

    def _hex(self, digits: str) -> str:
        """Give one stand-in for a uid, whichever way a path writes it."""
        return digits if digits in self._sessions else self._stand_in("id", digits.lower().replace("_", "-"))

    def _session(self, value: str) -> str:
        """Keep the id of a life and its incident: random, and what people refer to."""
        if not _SESSION.fullmatch(value):
            return self._learn(value, lambda: self._stand_in("id", value))
        self._sessions.add(value)
        return value

    def _ip(self, address: str) -> str:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return _WORDS.sub(lambda found: self._word(found[0]), address)
        return address if parsed.is_loopback or parsed.is_unspecified else self._stand_in("ip", address)

    def _url(self, url: str) -> str:
        """Keep scheme, a loopback host, port and public words of the path; drop user and query."""
        scheme, host, port, path = url_parts(url)
        if host not in _OWN_HOSTS:
            host = self._stand_in("host", host)
        shown = _WORDS.sub(lambda found: self._components(found[0]), path)
        return f"{self._word(scheme)}://{host}{port and f':{port}'}{shown}"
