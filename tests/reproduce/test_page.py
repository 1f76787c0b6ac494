"""The page: every claim and image in it, nothing fetched, a failure shown as one."""

import base64
import re

import pytest

from vfbandits.reproduce.figure import read_figure
from vfbandits.reproduce.page import write_page
from vfbandits.reproduce.runner import reproduce
from vfbandits.simulate.engine import HereEngine


@pytest.fixture
def page(toy, tmp_path):
    outcomes = reproduce([read_figure(toy())], tmp_path / "out", engine=HereEngine())

    def write(**changes):
        path = tmp_path / "index.html"
        how = {"date": "today", "machine": "a machine", "versions": "1 & 2", "quick": False}
        write_page(outcomes, path, **{**how, **changes})
        return path.read_text(encoding="utf-8")

    return write


def test_it_holds_every_claim_with_its_verdict_once_above_and_once_in_its_section(page):
    text = page()
    for says, verdict in (
        ("Squares are &lt;squares&gt;.", "pass"),
        ("Squares are odd.", "fail"),
        ("Squares are rare.", "not checkable here"),
    ):
        lines = [line for line in text.splitlines() if says in line]
        assert len(lines) == 2
        assert all(f">{verdict}</span>" in line for line in lines)
    assert '<li class="fail">1 fail</li>' in text
    assert text.count("nobody counted") == 2


def test_images_are_inside_and_nothing_is_fetched(page, tmp_path):
    text = page()
    (data,) = re.findall(r'<img src="data:image/png;base64,([^"]+)"', text)
    assert base64.b64decode(data) == (tmp_path / "out" / "fig0_toy" / "squares.png").read_bytes()
    rest = text.replace(data, "")
    assert not re.search(r"https?:|//|url\(|@import|<script", rest)
    assert 'alt="Squares &amp; more"' in text


def test_it_says_when_where_and_how(page):
    text = page(quick=True)
    for words in ("today", "a machine", "1 &amp; 2", "quick version", "<td>16</td>"):
        assert words in text
    assert "vfb reproduce toy --quick --out out/" in text
    assert "sizes = [1, 2, 3, 4]" in text
    assert "prefers-color-scheme: dark" in text
    assert '<meta name="viewport"' in text


def test_equal_arguments_give_equal_bytes(page):
    assert page() == page()
    assert page() != page(date="tomorrow")
