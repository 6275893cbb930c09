"""The examples that people copy, run."""

from __future__ import annotations

import re
from pathlib import Path

from guard.adapters.asgi import EXEMPT
from guard.relief_actions import BUILT_IN
from tests.guard.adapters.served import served
from tests.guard.hosts import ROOT
from tests.lab.kit.wait import until


def test_the_fastapi_example(tmp_path: Path) -> None:
    """It answers, forgets its cache under pressure, turns requests away, and recovers."""
    app = (ROOT / "integrations" / "fastapi" / "app.py").read_text().replace("from __future__ import annotations", "")
    seen = 'app.get("/cached")(lambda: answer_to.cache_info().currsize)\n'
    with served(tmp_path, app + seen) as server:
        assert server.get("/generate?prompt=hello")[::2] == (200, b'{"answer":"HELLO"}')
        assert server.get("/cached")[2] == b"1"
        server.press("critical", "/generate?prompt=x", 503)
        assert server.get("/health")[0] == 200
        server.press("none", "/cached", 200)
        until(lambda: server.get("/cached")[2] == b"0", 30, "the cache to be forgotten")


def test_the_pages_name_what_there_is() -> None:
    """Every built-in action with its level, and every path that is let through, stands in the docs."""
    relief, adapters = ((ROOT / "docs" / name).read_text() for name in ("relief.md", "adapters.md"))
    rows = dict(re.findall(r"^\| `(\w+)` \| (warning|critical) \|", relief, re.MULTILINE))
    assert rows == {name: level for name, (_, level) in BUILT_IN.items()}
    assert [path for path in EXEMPT if f"`{path.rstrip('/')}`" not in adapters] == []
