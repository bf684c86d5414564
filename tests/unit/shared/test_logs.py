"""Logs as JSON: one object a line, with the ids of what a thread works on; traces cost nothing when off."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import main

PROGRAM = """
import logging, threading, warnings
from cli.logs import configure
from grading.shared import telemetry

configure("worker", "dgx-spark-1")
log = logging.getLogger("workers.test")
log.debug("not shown")
with telemetry.working_on(round="r1", run="n1", submission=""):
    with telemetry.working_on(stage="analysis"):
        log.info("two\\nlines, %s", "„quoted“")
    other = threading.Thread(target=log.info, args=("elsewhere",))
    other.start(); other.join()
telemetry.begin(request="q1", submission="s1")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("broken")
telemetry.begin()
logging.getLogger("celery").warning("from %s", "others")
warnings.warn("careful")
"""


def run(root: Path, program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env={"PYTHONIOENCODING": "utf-8", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_each_line_is_an_object_with_the_ids_of_its_thread(root: Path) -> None:
    done = run(root, PROGRAM, GRADER_LOG="json")
    assert done.returncode == 0, done.stderr
    two, elsewhere, broken, others, careful = map(json.loads, done.stderr.splitlines())
    assert two.pop("time").endswith("Z")
    assert two == {
        "level": "info",
        "logger": "workers.test",
        "event": "two\nlines, „quoted“",
        "part": "worker",
        "machine": "dgx-spark-1",
        "round": "r1",
        "run": "n1",
        "stage": "analysis",
    }
    assert not {"round", "run", "stage"} & elsewhere.keys()
    assert (broken["request"], broken["submission"]) == ("q1", "s1")
    assert "ZeroDivisionError" in broken["exception"]
    assert (others["logger"], others["event"]) == ("celery", "from others")
    assert "submission" not in others
    assert "careful" in careful["event"]


def test_plain_lines_are_for_people(root: Path) -> None:
    done = run(root, PROGRAM)
    assert "INFO workers.test: two\nlines, „quoted“\n" in done.stderr
    assert "ERROR workers.test [q1]: broken\n" in done.stderr
    assert "WARNING celery: from others\n" in done.stderr


def test_another_form_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["grader", "sweep"])
    monkeypatch.setenv("GRADER_LOG", "xml")
    with pytest.raises(SystemExit, match=r"^1$"):
        main()
    assert capsys.readouterr().err == "grader: GRADER_LOG: 'xml' is not supported. Use plain or json.\n"


def test_without_an_endpoint_nothing_of_opentelemetry_is_loaded(root: Path) -> None:
    program = """
import sys
from grading.shared import telemetry

telemetry.start("web", {})
telemetry.mark("accept", "0" * 31 + "1", 0)
with telemetry.span("run", "0" * 31 + "1") as say:
    say({"a": 1})
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    done = run(root, program)
    assert done.returncode == 0, done.stderr


def test_an_endpoint_without_the_packages_is_said_once_and_harmless(root: Path) -> None:
    program = """
import logging, sys
logging.basicConfig()
sys.modules["opentelemetry"] = None
from grading.shared import telemetry

telemetry.start("web", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
with telemetry.span("run", "0" * 31 + "1"):
    pass
"""
    done = run(root, program)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the extra 'tracing' is not installed") == 1
