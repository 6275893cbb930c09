"""Takes secrets by their looks out of what is otherwise left as it is: what an unredacted bundle must not hold either.

This recognises what it knows, no more; `redact` hides what it does not know. Messages of the application are treated as
there: they keep figures and the words of allocators alone, in their fields and where texts repeat them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from sidecar.record.redact import MESSAGES, said, url_parts

Json: TypeAlias = Any

GONE: Final = "[removed]"
_MOST_MESSAGES: Final = 500
_SHORT: Final = 8
"""Letters up to which a message is a word that stands elsewhere too."""
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]{0,20}://[^\s\"'<>]+")
_TOKEN: Final = re.compile(
    r"\b(?:hf_|sk-|sk_|gh[pousr]_|github_pat_|glpat-|xox[abpr]-|AKIA|ASIA|AIza|nvapi-|eyJ)[\w\-.]{8,}"
    r"|(?i:\b(?:bearer|basic)\s+)[\w\-.~+/=]{8,}"
)
_SETTING: Final = re.compile(
    r"(?<!\w)([A-Za-z0-9_\-]{0,40}(?:(?i:token|secret|passw(?:or)?d|api[_-]?key|credential|auth))[A-Za-z0-9_\-]{0,40})"
    r"(\s{0,8}[=:]\s{0,8}[\"']?)(?!\[removed\])[^\s,;\"']+|(?<!\w)([A-Z][A-Z0-9_]{2,})=[^\s,;\"']+"
)


class Scrubber:
    """Has the methods of a `Redactor`; learns messages alone."""

    def __init__(self) -> None:
        self._messages: dict[str, str] = {}

    def learn(self, value: Json, key: str = "") -> None:
        """Take note of the messages in a JSON value."""
        if isinstance(value, Mapping):
            for name, item in value.items():
                self.learn(item, str(name))
        elif isinstance(value, list | tuple):
            for item in value:
                self.learn(item, key)
        elif isinstance(value, str) and key in MESSAGES and len(self._messages) < _MOST_MESSAGES:
            self._messages[value] = said(value)

    def value(self, value: Json, key: str = "") -> Json:
        """Give a JSON value without such secrets in its texts."""
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(item, str(name)) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item, key) for item in value]
        if isinstance(value, str):
            return said(value) if key in MESSAGES else self.text(value)
        return value

    def text(self, text: str) -> str:
        """Give a text without messages, tokens, users and queries of URLs, and values of variables."""
        for message, kept in self._messages.items():
            if len(message) > _SHORT:
                text = text.replace(message, kept)
        plain = _URL.sub(lambda found: _bare(found[0]), text)
        plain = _TOKEN.sub(GONE, plain)
        return _SETTING.sub(lambda found: f"{found[1]}{found[2]}{GONE}" if found[1] else f"{found[3]}={GONE}", plain)


def _bare(url: str) -> str:
    scheme, host, port, path = url_parts(url)
    return f"{scheme}://{host}{port and f':{port}'}{path}"
