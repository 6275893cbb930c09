"""The report of a real end, made beside a running sidecar and looked at in a real browser."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cases.stage import OOMGUARD, Stage
from tests.lab.kit.browser import Browser, browser
from tests.lab.kit.cgroups import NotOfferedError
from tests.lab.kit.offer import offer

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(offer().mode is None, reason=offer().reason),
]

PHONE, DESK = 390, 1280

CONTRAST = """
(() => {
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const light = rgb => {
    const linear = share => share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = rgb.slice(0, 3).map(value => linear(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    for (; node; node = node.parentElement) {
      const seen = parts(getComputedStyle(node).backgroundColor);
      if (seen.length === 3 || seen[3] === 1) return seen;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.body.querySelectorAll('*')) {
    if (node.closest('svg') || !node.checkVisibility()) continue;
    if (![...node.childNodes].some(child => child.nodeType === 3 && child.data.trim())) continue;
    const [a, b] = [light(parts(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push([node.textContent.slice(0, 40), ratio.toFixed(2)]);
  }
  return poor;
})()
"""
"""Texts whose contrast with what lies behind is below 4.5 to 1 (WCAG 2.2, 1.4.3)."""

CUT_OFF = """
[...document.querySelectorAll('h1,h2,h3,p,dd,dt,li,figcaption,summary')]
  .filter(node => node.checkVisibility() && node.getBoundingClientRect().right > innerWidth + 1)
  .map(node => node.textContent.slice(0, 40))
"""


@pytest.fixture(scope="module", name="page")
def _page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model grows into its limit; the report is made while the sidecar goes on writing its record."""
    file = tmp_path_factory.mktemp("report") / "page.html"
    with Stage() as stage:
        cue = stage.cue("llm")
        with stage.model("llm", f"grow rate=60 when={cue}") as model:
            stage.give_cue(model)
            incident = stage.incident(model)
        done = subprocess.run(
            [OOMGUARD, "report", "--record", str(stage.shared), "-o", str(file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert incident["summary"].split()[0] in done.stdout
        assert incident["level"] in done.stdout
        assert not stage.complaints()
    return file


@pytest.fixture(scope="module", name="chromium")
def _chromium() -> Iterator[Browser]:
    """One browser for all tests."""
    try:
        with browser() as started:
            yield started
    except NotOfferedError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_in_a_browser(page: Path, chromium: Browser, width: int, dark: bool) -> None:  # noqa: FBT001 - a parameter
    """Nothing sticks out, nothing is too pale, nothing is asked for, and the console stays empty."""
    chromium.look(width=width, dark=dark)
    chromium.open(page)
    assert width == chromium.run("innerWidth")
    assert chromium.run("document.documentElement.scrollWidth") <= width
    assert chromium.run(CUT_OFF) == []
    assert chromium.run(CONTRAST) == []
    assert [page.as_uri()] == [url for url in chromium.requests() if not url.startswith("data:")]
    assert chromium.complaints() == []


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_answer_is_on_the_first_screen(page: Path, chromium: Browser, width: int) -> None:
    """Without scrolling a reader sees what killed it, whose limit it was and what to change."""
    chromium.look(width=width, height=850)
    chromium.open(page)
    seen = chromium.run(
        "[...document.querySelectorAll('.hero h1, .hero dd')].map(one => one.getBoundingClientRect().bottom)"
    )
    assert len(seen) == 4
    assert max(seen) <= 850


def test_every_chart_is_drawn(page: Path, chromium: Browser) -> None:
    """Each figure has a drawing with extent, and all lie on one time axis."""
    chromium.look(width=DESK)
    chromium.open(page)
    boxes = chromium.run(
        "[...document.querySelectorAll('figure svg')].map(one => one.getBoundingClientRect())"
        ".map(box => [box.width, box.height])"
    )
    assert len(boxes) >= 4
    assert all(wide > 300 and high > 80 for wide, high in boxes)
    assert chromium.run("document.querySelectorAll('path.area').length") >= 1
