"""What people read holds no signs of patterns, and headings of a task stay headings."""

from __future__ import annotations

import tomllib
from pathlib import Path

from app.web.markdown import markdown
from cli.commands.serve import _linked
from grading.checks.kinds.outputs import _asked_for
from grading.config.settings import Config

CONFIG = Path(__file__).parents[3] / "config.toml"


def test_patterns_full_of_signs_are_not_shown_to_students() -> None:
    assert str(_asked_for([r"(?is)east.*north.*\b4\b"])) == "what was asked for"
    assert str(_asked_for([r"Rows:\s+24", r"24 (×|x) 6"])) == "what was asked for"
    assert _asked_for([r"\b24\s+6\b"]) == "“24 6”"


def test_the_highest_headings_are_one_of_the_page() -> None:
    html = str(markdown("# Sales\n\n## Steps\n\n`<h1>`"))
    assert "<h3>Sales</h3>" in html
    assert "<h3>Steps</h3>" in html
    assert "&lt;h1&gt;" in html


def test_links_lead_to_the_port_that_was_taken() -> None:
    here = Config.model_validate(tomllib.loads(CONFIG.read_text(encoding="utf-8")))
    assert _linked(here, 9000).server.public_url == "http://localhost:9000"
    assert _linked(here, None).server.public_url == "http://localhost:8080"
    away = here.model_copy(
        update={"server": here.server.model_copy(update={"public_url": "https://grader.school"})}
    )
    assert _linked(away, 9000).server.public_url == "https://grader.school"
    proxied = Config.model_validate({**here.model_dump(), "server": {"public_url": "https://localhost"}})
    assert _linked(proxied, 9000).server.public_url == "https://localhost"
