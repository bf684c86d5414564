"""`grader bench situations`: plays 20 situations on real model servers and prints what came of each."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bench.model_server_lab import VLLM_OPTION, lab_of
from bench.model_servers import ModelServer, ending_in_order, known_servers, missing_for
from bench.situations import failures, generations
from bench.situations.situation import Row, Seen, Situation, UnderTest
from grading.domain.errors import EngineError

log = logging.getLogger(__name__)
SITUATIONS: tuple[Situation, ...] = (*generations.SITUATIONS, *failures.SITUATIONS)


@dataclass(frozen=True)
class Played:
    """All situations on one server."""

    server: str
    version: str
    seconds: float
    rows: tuple[Row, ...]

    @property
    def as_expected(self) -> bool:
        """Whether nothing else came of any."""
        return all(row.seen.expected for row in self.rows)


def play_all(server: ModelServer) -> Played:
    """Play every situation; one that fails is a row, and costs no other."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, _under_test(server, Path(folder)) as tested:
        start = _row(Situation("start", "the server starts", _start), tested)
        if not start.seen.expected:
            return Played(server.name, "", start.seconds, (start,))
        rows = tuple(_row(situation, tested) for situation in SITUATIONS)
    return Played(server.name, start.seen.note, time.monotonic() - began, rows)


def _start(tested: UnderTest) -> Seen:
    tested.start(0).await_ready()
    return Seen("ready", True, tested.lab.server.version(tested.lab.setup))


@contextmanager
def _under_test(server: ModelServer, folder: Path) -> Iterator[UnderTest]:
    tested = UnderTest(lab_of(server, folder))
    try:
        yield tested
    finally:
        tested.stop()


def _row(situation: Situation, tested: UnderTest) -> Row:
    began = time.monotonic()
    try:
        seen = situation.play(tested)
    except EngineError as error:
        seen = Seen(error.code, False, error.message[:200])
    except Exception as error:  # the rows of the other situations must not be lost
        log.debug("%s failed", situation.name, exc_info=True)
        seen = Seen(type(error).__name__, False, str(error)[:200])
    return Row(situation.name, situation.title, time.monotonic() - began, seen)


@click.command("situations")
@click.argument("servers", nargs=-1, metavar="[SERVER]...")
@VLLM_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(servers: tuple[str, ...], vllm: str, as_json: bool) -> None:
    """Play 20 situations on real model servers with tiny random weights.

    SERVER is llama.cpp, mlx_lm.server, vllm or ollama; by default, all that are here. Exits with 1 if
    something else came of a situation than is expected, or a named server is not here.
    """
    known = known_servers(vllm)
    if unknown := [name for name in servers if name not in known]:
        raise click.UsageError(f"{unknown[0]} is not one of {', '.join(known)}.")
    wanted = [known[name] for name in dict.fromkeys(servers)] or list(known.values())
    missing = {one.name: what for one in wanted if (what := missing_for(one))}
    played = []
    for server in wanted:
        if server.name not in missing:
            click.echo(f"{server.name} …", err=True)
            with ending_in_order():
                played.append(play_all(server))
    if as_json:
        told = [{**asdict(one), "as_expected": one.as_expected} for one in played]
        click.echo(json.dumps({"servers": told, "missing": missing}, indent=1, ensure_ascii=False))
    else:
        click.echo("\n".join(_lines(played)))
        for name, what in missing.items():
            click.echo(f"{name} is not here: it needs {what}.")
    if (servers and missing) or not all(one.as_expected for one in played):
        raise SystemExit(1)


def _lines(played: Sequence[Played]) -> Iterator[str]:
    """A Markdown table of situations and servers, and notes on what is not as expected."""
    yield "| situation | " + " | ".join(f"{one.server} {one.version}".strip() for one in played) + " |"
    yield "| --- " * (1 + len(played)) + "|"
    for situation in SITUATIONS:
        rows = [{row.situation: row for row in one.rows} for one in played]
        cells = [_cell(one[situation.name]) if situation.name in one else "not played" for one in rows]
        yield f"| {situation.title} | " + " | ".join(cells) + " |"
    yield ""
    for one in played:
        yield f"{one.server}: {one.seconds:.0f} s"
        for row in one.rows:
            if not row.seen.expected:
                yield f"  NOT EXPECTED {row.title}: {row.seen.outcome}; {row.seen.note}"


def _cell(row: Row) -> str:
    offered = "" if row.seen.offered else " (not offered)"
    wrong = "" if row.seen.expected else " (NOT EXPECTED)"
    return f"{row.seen.outcome}{offered}{wrong}"
