"""Attacks by somebody who has a machine's user in Redis: they forge results, stop others, read their work.

Standard use, against a server by the address that its machine NAME has (from `grader redis acl`; not while
students submit, as an attack that does not fail is one):

    python -m tests.hostile.broker.forged_results URL OTHER [RUN ROUND STAGE]

URL is redis://machine.NAME:PASSWORD@HOST:6379/0; OTHER is another machine of config.toml. RUN, ROUND and
STAGE name a run that is under way, from the log of the store: then results are forged for that one, else for
one that is made up. Prints a line for each
attack and ends with 1 if Redis allowed what only the server, or another machine, may do. Redis always
takes what goes into the machine's own inbox: that it counts for nothing is seen in the store's log ("a
message from machine NAME was rejected") and in the grade. `tests/hostile/broker/test_forged_results.py` plays
all of it against a store and looks at SQL.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

from grading.broker.signing import MACHINE, Signer

ENDLESS = "while true do end"


@dataclass(frozen=True)
class Target:
    """A run that somebody else does, and who does it."""

    machine: str
    run_id: str
    round_id: str
    stage: str


@dataclass(frozen=True)
class Attack:
    """A command that Redis must refuse; in the attacker's own inbox it is the server that refuses."""

    name: str
    command: Sequence[str]
    own_inbox: bool = False


def result(target: Target, machine: str) -> dict[str, object]:
    """Full marks, as an honest machine would send them."""
    judgements = [
        {"criterion": name, "level": 3, "reason": "excellent"} for name in ("style", "sense", "plots")
    ]
    feedback = {"achieved": "all", "reflection": "deep", "practice": "none", "next_step": "none"}
    return {
        "run_id": target.run_id,
        "round_id": target.round_id,
        "stage": target.stage,
        "ok": True,
        "output": {"judgements": judgements, **(feedback if target.stage == "feedback" else {})},
        "provenance": {"machine": machine, "engine": "instant", "model": "m"},
    }


def attacks(me: str, password: str, target: Target) -> Iterator[Attack]:
    """All of them, those that would stop the server last."""
    other, forged = target.machine, result(target, target.machine)
    yield from _forging(me, password, target, forged)
    yield from _reading(other, target)
    yield from _stopping(other)


def _forging(me: str, password: str, target: Target, forged: dict[str, object]) -> Iterator[Attack]:
    mine, theirs = Signer(me, password), Signer(target.machine, password)
    message = {"body": json.dumps([[target.machine, forged], {}, {}]), "headers": {"task": "grader.record"}}
    yield Attack("a record for the store's queue", ("LPUSH", "store", json.dumps(message)))
    yield Attack(
        "a result in another's inbox",
        ("LPUSH", f"results.{target.machine}", theirs.sign("result", forged)),
    )
    copy = f"grader:results:{target.machine}:{target.run_id}"
    yield Attack("another's result", ("SET", copy, theirs.sign("result", forged)))
    yield Attack("a result of Celery", ("SET", f"celery-task-meta-{target.run_id}", json.dumps(forged)))
    yield Attack("a job for another machine", ("LPUSH", f"machine.{target.machine}", json.dumps(message)))
    yield Attack("a job for all machines", ("RPUSH", target.stage, json.dumps(message)))
    inbox = f"results.{me}"
    for name, row in {
        **forgeries(me, password, target),
        "a run taken from its machine": mine.sign("return", {"run_id": target.run_id, "to": f"machine.{me}"}),
        "of a kind that there is not": json.dumps({"kind": "grade", "body": "{}", "salt": "", "mac": ""}),
    }.items():
        yield Attack(f"in its own inbox: {name}", ("LPUSH", inbox, row), own_inbox=True)


def forgeries(me: str, password: str, target: Target) -> dict[str, str]:
    """What the attacker may leave in Redis as the result of another's run, and nobody may believe."""
    mine, theirs = Signer(me, password), Signer(target.machine, password)
    forged = result(target, target.machine)
    return {
        "unsigned": json.dumps(forged),
        "a Celery message": json.dumps({"body": json.dumps([[target.machine, forged], {}, {}])}),
        "signed without the run's secret": mine.sign("result", forged),
        "signed with a made-up secret": mine.sign("result", forged, uuid.uuid4().hex),
        "signed in another's name": theirs.sign("result", forged),
        "without a signature": json.dumps(
            {"kind": "result", "body": json.dumps(forged), "salt": "", "mac": ""}
        ),
        "nothing readable": "{",
    }


def _reading(other: str, target: Target) -> Iterator[Attack]:
    for key in (
        "unacked",
        f"grader:unacked:{other}",
        f"grader:leases:{other}",
        f"grader:speed_profiles:{other}",
    ):
        yield Attack("reading what others have in hand", ("HGETALL", key))
    for queue in (f"machine.{other}", "analysis", "feedback.batch", "store"):
        yield Attack("reading what waits", ("LRANGE", queue, "0", "-1"))
    yield Attack("taking another's work", ("BRPOP", f"machine.{other}", "0.1"))
    yield Attack("reading another's result", ("GET", f"grader:results:{other}:{target.run_id}"))
    yield Attack("listing keys", ("SCAN", "0"))
    yield Attack("watching all", ("MONITOR",))


def _stopping(other: str) -> Iterator[Attack]:
    for queue in ("store", "analysis", "feedback", "sandbox", f"machine.{other}", f"results.{other}"):
        yield Attack("a queue deleted", ("DEL", queue))
        yield Attack("a queue that ends by itself", ("EXPIRE", queue, "1"))
        yield Attack("a queue of another type", ("SET", queue, "x"))
    yield Attack("a machine taken out", ("HSET", "grader:drained", other, "1"))
    for family in ("heartbeats", "leases", "unacked"):
        yield Attack("a machine forgotten", ("DEL", f"grader:{family}:{other}"))
        yield Attack("a machine forgotten", ("HDEL", f"grader:{family}:{other}", "x"))
    yield Attack("a run made another", ("SET", "grader:current:round:analysis", "x"))
    yield Attack("scripts forgotten", ("SCRIPT", "FLUSH"))
    yield Attack("all forgotten", ("FLUSHALL",))
    yield Attack("settings changed", ("CONFIG", "SET", "maxmemory", "1"))
    yield Attack("a script of its own", ("EVAL", ENDLESS, "0"))


def play(url: str, target: Target) -> dict[Attack, str]:
    """What became of each: refused, allowed, or left for the server to refuse."""
    user = urlsplit(url)
    me, password = unquote(user.username or "").removeprefix(MACHINE), unquote(user.password or "")
    done = {}
    with Redis.from_url(url, decode_responses=True, socket_timeout=5) as client:
        for attack in attacks(me, password, target):
            try:
                client.execute_command(*attack.command)
            except NoPermissionError:
                done[attack] = "refused"
            except ResponseError as error:
                done[attack] = f"ALLOWED, but for: {error}"
            else:
                done[attack] = "left to the server" if attack.own_inbox else "ALLOWED"
    return done


def main(url: str, other: str, *run: str) -> int:
    """Play all and print them; how many Redis allowed that it should not."""
    names = run if len(run) == 3 else (uuid.uuid4().hex, uuid.uuid4().hex, "analysis")
    done = play(url, Target(other, *names))
    for attack, outcome in done.items():
        print(f"{outcome:<20} {attack.name}: {' '.join(attack.command)[:60]}")
    return sum(outcome.startswith("ALLOWED") for outcome in done.values())


if __name__ == "__main__":
    if len(sys.argv) not in (3, 6):
        sys.exit(__doc__)
    sys.exit(1 if main(*sys.argv[1:]) else 0)
