"""Each block of commands in the documents is played, is a call that the API answers, or has a reason."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from app.api.openapi import document, path_of
from app.api.routes import ROUTES, Route
from tests.support import howtos

API = "http-api.md"
BASE = "http://localhost:8080/api/v1"


def test_each_block_of_commands_is_played_or_has_a_reason(root: Path) -> None:
    found = howtos.blocks(root).items()
    commands = {name for name, block in found if block.language == "bash" and not asks_the_api(block)}
    known = {*howtos.PLAYED, *howtos.NOT_PLAYED}
    assert not {*howtos.PLAYED} & {*howtos.NOT_PLAYED}
    assert sorted(commands - known) == [], "play it in test_howtos.py, or name it in tests/support/howtos.py"
    assert sorted(known - commands) == [], "no such block any more: take it out of tests/support/howtos.py"


def asks_the_api(block: howtos.Block) -> bool:
    return block.name.startswith(API) and bool(howtos.calls(block))


def test_calls_of_the_api_are_its_operations(root: Path) -> None:
    asked = [
        call for block in howtos.blocks(root).values() if asks_the_api(block) for call in howtos.calls(block)
    ]
    assert len(asked) > 50
    for call in asked:
        check(call)


def check(call: str) -> None:
    """Fail unless the address, its parameters and a JSON body are those of an operation."""
    words = shlex.split(
        call.replace("$GRADER_TOKEN", "…").replace("$GRADER", BASE).replace("…", ""), comments=True
    )
    (url,) = (urlsplit(word) for word in words if word.startswith(BASE))
    body = next((after for word, after in pairwise(words) if word == "--json"), None)
    sends = body is not None or "-F" in words
    method = words[words.index("-X") + 1] if "-X" in words else "POST" if sends else "GET"
    route = route_of(method, url.path)
    known = {one["name"] for one in document()["paths"][path_of(route)][method.lower()].get("parameters", ())}
    assert {name for name, _ in parse_qsl(url.query)} <= known, call
    if body is not None and not body.startswith("@"):
        assert route.body is not None, call
        route.body.model_validate(json.loads(body))


def route_of(method: str, path: str) -> Route:
    for route in ROUTES:
        pattern = re.sub(r"{\w*path}", ".+", path_of(route))
        if route.method == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", pattern), path):
            return route
    raise AssertionError(f"no operation {method} {path}")


def test_a_wrong_call_would_be_found() -> None:
    with pytest.raises(AssertionError, match="no operation"):
        check("curl $GRADER/curses")
    with pytest.raises(AssertionError):
        check('curl "$GRADER/courses?archive=false"')
    with pytest.raises(ValueError):
        check("""curl --json '{"title": 3}' $GRADER/courses""")


def test_blocks_of_commands_are_bash(root: Path) -> None:
    wrong = {
        name: checked.stderr
        for name, block in howtos.blocks(root).items()
        if block.language == "bash" and (checked := syntax(block.text)).returncode
    }
    assert wrong == {}
    assert syntax("for one in 1; do").returncode


def syntax(text: str) -> subprocess.CompletedProcess[str]:
    """What bash says of it, without running it."""
    return subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60, check=False)


def test_certificates_are_as_python_3_13_wants_them(root: Path, tmp_path: Path) -> None:
    (name,) = howtos.CERTIFICATE
    done = subprocess.run(
        ["bash", "-ec", howtos.blocks(root)[name].text],
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    verify = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.pem", "redis.pem"]
    assert (
        subprocess.run(verify, cwd=tmp_path, capture_output=True, text=True, timeout=60).stdout
        == "redis.pem: OK\n"
    )
    shown = ["openssl", "x509", "-in", "redis.pem", "-noout", "-text"]
    text = subprocess.run(shown, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "Authority Key Identifier" in text
    assert "DNS:redis.school.example, IP Address:10.0.0.5" in text
