"""Everything that is written into the audit is told in a sentence."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from app.operations.audit import KINDS, SENTENCES, sentence_of

ROOT = Path(__file__).resolve().parents[3]
ACTION = re.compile(r"[a-z_]+\.[a-z_]+")


def actions(source: str) -> set[str]:
    """What calls of `write_audit` and `audit` name as their action, where it stands there as a text."""
    calls = [
        one
        for one in ast.walk(ast.parse(source))
        if isinstance(one, ast.Call)
        and isinstance(one.func, ast.Name)
        and one.func.id in ("write_audit", "audit")
    ]
    texts = [one for call in calls for given in call.args[2:3] for one in ast.walk(given)]
    found = {one.value for one in texts if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return {one for one in found if ACTION.fullmatch(one)}


def test_every_action_has_a_sentence() -> None:
    files = [*ROOT.glob("grading/store/**/*.py"), *ROOT.glob("app/**/*.py"), *ROOT.glob("cli/*.py")]
    found = {action for file in files for action in actions(file.read_text(encoding="utf-8"))}
    assert "grade.late" in found  # the calls are found at all
    assert {one for one in found if sentence_of(one) is None} == set()


def test_every_action_is_of_a_kind_that_can_be_chosen() -> None:
    offered = {word for _, words in KINDS.values() for word in words}
    assert {action for action in SENTENCES if action.partition(".")[0] not in offered} == set()
