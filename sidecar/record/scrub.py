"""Takes secrets by their looks out of what is otherwise left as it is: what an unredacted bundle must not hold either.

This recognises what it knows, no more; `redact` hides what it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from sidecar.record.redact import url_parts

Json: TypeAlias = Any

GONE: Final = "[removed]"
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
    """Has the methods of a `Redactor`, and nothing to learn."""

    def learn(self, value: Json, key: str = "") -> None:
        """Take note of nothing."""

    def value(self, value: Json, key: str = "") -> Json:
        """Give a JSON value without such secrets in its texts."""
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(item, str(name)) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item, key) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """Give a text without tokens, users and queries of URLs, and values of variables."""
        plain = _URL.sub(lambda found: _bare(found[0]), text)
        plain = _TOKEN.sub(GONE, plain)
        return _SETTING.sub(lambda found: f"{found[1]}{found[2]}{GONE}" if found[1] else f"{found[3]}={GONE}", plain)


def _bare(url: str) -> str:
    scheme, host, port, path = url_parts(url)
    return f"{scheme}://{host}{port and f':{port}'}{path}"
