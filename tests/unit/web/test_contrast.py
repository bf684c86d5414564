"""Colours that are used together have the contrast of WCAG AA, in light and in dark."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

CSS = Path(__file__).parents[3] / "app" / "static" / "web" / "frame.css"
WORDS = ("ink", "ink-soft", "accent", "accent-strong", "good", "warn", "bad", "info")
CODE = ("k", "s", "c", "m", "f")


def colours(scheme: str) -> dict[str, str]:
    """The variables of a scheme."""
    start = ":root {" if scheme == "light" else '[data-bs-theme="dark"] {'
    block = CSS.read_text("utf-8").partition(start)[2].partition("}")[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    r, g, b = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read(scheme: str) -> None:
    known = colours(scheme)
    pairs = [*product(WORDS, ("page", "panel")), *product((*CODE, "ink", "ink-soft"), ("code",))]
    pairs.append(("accent-strong", "accent-soft"))
    weak = {(a, b): round(contrast(known[a], known[b]), 2) for a, b in pairs}
    assert {pair: value for pair, value in weak.items() if value < 4.5} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_borders_of_controls_can_be_seen(scheme: str) -> None:
    known = colours(scheme)
    assert min(contrast(known["edge-strong"], known[ground]) for ground in ("page", "panel")) >= 3


def test_white_on_buttons_can_be_read() -> None:
    filled = set(
        re.findall(r"--bs-btn-(?:hover-|active-|disabled-)?bg: (#[0-9a-f]{6})", CSS.read_text("utf-8"))
    )
    assert filled
    assert min(contrast("#ffffff", colour) for colour in filled) >= 4.5
