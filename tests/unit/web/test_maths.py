"""Formulas in Markdown become MathML; money, R and hostile LaTeX stay text."""

from __future__ import annotations

import re

import pytest

from app.results.formulas import formula
from app.results.pdf_data import blocks
from app.web import maths
from app.web.markdown import markdown

ELEMENT = re.compile(r"<([a-z0-9]+)((?: [a-z]+=\"[^\"<>]*\")*)>")
HTML = set("p code pre ul ol li em strong blockquote".split())


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and $6, or US$5 to US$6.",
        "From $20,000-$30,000.",
        "From 5$ to 6$.",
        "df$x and df$y, rows[1]$a + f(x)$b",
        r"`$x$` and \$x\$",
        "$ x$ and $x $",
        "$$\nno end",
        "$x$1",
    ],
)
def test_money_and_code_stay_text(text: str) -> None:
    assert "<math" not in markdown(text)
    assert "$" in markdown(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"The mean $\bar{x}$ is", '<mover accent="true"><mi>x</mi><mo stretchy="false">¯</mo></mover>'),
        ("the $i$th row, $j$.", "<mi>i</mi></math>th row, <math><mi>j</mi>"),
        ("a **b $x*y*z$**", "<strong>b <math>"),
        ("a $$x^2$$ b", '<math display="block"><msup>'),
        ("words\n$$\nx\n+ y\n$$\nwords", '<p>words</p>\n<p><math display="block"><mi>x</mi><mo>+</mo><mi>y'),
        ("- one\n\n  $$\n  - x\n  $$\n", '<li>\n<p>one</p>\n<p><math display="block">'),
        ("> $$\n> x\n> $$", '<blockquote>\n<p><math display="block"><mi>x</mi></math>'),
        (
            r"$\begin{aligned} a &= b \end{aligned}$",
            '<mtd class="tex-right"><mi>a</mi></mtd><mtd class="tex-left">',
        ),
        (r"$\binom{n}{k}\quad x$", '<mspace width="1em">'),
    ],
)
def test_formulas_become_mathml(text: str, found: str) -> None:
    assert found in markdown(text)


HOSTILE = [
    "$<img src=x onerror=alert(1)>$",
    r"$\text{<script>alert(1)</script>}$",
    r"$\href{javascript:alert(1)}{x}$",
    r"$\color{red}{x}\hspace{999em}\rule{9em}{9em}$",
    r"$\def\a{\a\a}\a$",
    "<math><mtext><img src=x></mtext></math>",
    "$" + "{" * 400 + "}" * 400 + "$",
    "$" + r"\sqrt" * 250 + " x$",
    "$" + "x" * 1_001 + "$",
    "$$" * 10_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:20])
def test_hostile_formulas_give_known_elements_and_small_values_only(text: str) -> None:
    html = str(markdown(text))
    left = ELEMENT.sub(" ", re.sub(r"</[a-z0-9]+>", " ", html))
    assert "<" not in left
    for name, attributes in ELEMENT.findall(html):
        assert name in maths.TAGS | HTML
        given = set(re.findall(r"([a-z]+)=", attributes))
        assert given <= maths.ATTRIBUTES.get(name, frozenset())
    assert len(html) < 12 * len(text) + 200


def test_what_is_no_latex_or_too_large_is_shown_as_it_was_written() -> None:
    assert r"<code>$\unheard{x}$</code>" in markdown(r"a $\unheard{x}$ b")
    assert f"<code>${'x' * 1_001}$</code>" in markdown(f"${'x' * 1_001}$")
    assert "<pre><code>$$\\unheard{x}$$</code></pre>" in markdown("$$\n\\unheard{x}\n$$")
    assert "<mi>x</mi>" in markdown(f"${'{' * 30}x{'}' * 30}$")


def test_a_pdf_gets_the_parts_of_formulas_and_the_source_of_the_rest() -> None:
    letter, word = {"k": "letter", "t": "x"}, {"k": "word", "t": "2"}
    power, bar = {"k": "attach", "of": [letter], "t": word}, {"k": "accent", "of": [letter], "t": "¯"}
    first, second, third = blocks("a $x^2$ $\\unheard$\n\n$$\n\\bar x\n$$\n\n$$\n\\unheard\n$$")
    assert first["runs"] == [["a ", ""], [power, "m"], [" ", ""], ["$\\unheard$", "c"]]
    assert second == {"kind": "formula", "formula": bar}
    assert third == {"kind": "code", "text": "\\unheard"}
    table = formula(r"\left(\begin{matrix}1&2\\x\end{matrix}\right]\,\binom{x}{2}", display=True)
    assert table == {
        "k": "row",
        "of": [
            {
                "k": "lr",
                "of": [
                    {"k": "sign", "t": "("},
                    {"k": "table", "rows": [[{"k": "word", "t": "1"}, word], [letter]]},
                    {"k": "sign", "t": "]"},
                ],
            },
            {"k": "space", "w": 0.16666667},
            {
                "k": "lr",
                "of": [
                    {"k": "sign", "t": "("},
                    {"k": "stack", "of": [letter, word]},
                    {"k": "sign", "t": ")"},
                ],
            },
        ],
    }
    assert formula("x^{" * 12 + "y" + "}" * 12, display=True) is not None
    assert formula("x^{" * 25 + "y" + "}" * 25, display=True) is None  # the template calls itself for each
