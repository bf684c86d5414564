"""Every command of Redis, played as a machine's user against every kind of key: what is allowed is listed.

`docs/how-to/administrators/redis.md` has the same list in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from grading.broker import redis_acl, signing
from grading.broker.gateway_requests import chat_queue
from grading.config import settings as configuration
from tests.support.redis_servers import acl_file, client, redis_server

MACHINES = {
    "one": {"analysis": {"engine": "ollama", "model": "m"}},
    "two": {"feedback": {"engine": "ollama", "model": "other"}},
}
KEYRING = signing.Keyring("a password of the server", users=True)
PASSWORD = KEYRING.machine_password("one")
ENGINES = {"ollama": {"url": "http://127.0.0.1:11434"}}
KEYS: Mapping[str, Sequence[str]] = {
    # what machine one reads, takes and writes
    "own queue": ("machine.one", "machine.one\x06\x169"),
    "own stages": ("analysis", "analysis.batch", "analysis\x06\x163"),
    "own gateway requests": (chat_queue("m"), chat_queue("grader/analysis")),
    "own inbox": ("results.one",),
    "own unacked": ("grader:unacked:one",),
    "own unacked times": ("grader:unacked-times:one",),
    "own leases": ("grader:leases:one",),
    "own heartbeats": ("grader:heartbeats:one",),
    "own deliveries": ("grader:deliveries:one:RUN",),
    "own places": ("grader:places:one:ROUND",),
    "own marks": ("grader:over:one:RUN", "grader:handed:one:two"),
    "own copies": ("grader:results:one:RUN", "grader:examinations:one:ID"),
    "own answers": ("grader:answers:machine.one",),
    "own blocks": ("grader:examinations:one:block-ID",),
    "own speed profiles": ("grader:speed_profiles:one",),
    # what others do
    "others' queues": ("feedback", "feedback.batch"),
    "another's own queue": ("machine.two",),
    "another's leases": ("grader:leases:two",),
    "another's heartbeats": ("grader:heartbeats:two",),
    "another's deliveries": ("grader:deliveries:two:RUN",),
    "another's places": ("grader:places:two:ROUND",),
    "another's marks": ("grader:over:two:RUN", "grader:handed:two:one"),
    "current runs": ("grader:current:ROUND:analysis", "grader:current:withdrawn:HASH"),
    "drained": ("grader:drained",),
    "backlog": ("grader:backlog",),
    "canaries": ("grader:canaries",),
    "gateway request asks": ("grader:gateway:ID:ask",),
    "gateway request readers": ("grader:gateway:ID:reader",),
    "gateway request holders": ("grader:gateway:ID:held",),
    "gateway request answers": ("grader:gateway:ID:said",),
    # nothing but being named to a script, whose own commands are held to this list
    "another's": (
        *(
            "grader:unacked:two",
            "grader:unacked-times:two",
            "grader:speed_profiles:two",
            "grader:results:two:RUN",
        ),
        *("grader:examinations:two:ID", "grader:examinations:two:block-ID", "grader:answers:machine.two"),
        *(
            "grader:parts",
            "grader:writable",
            "grader:doctor",
            "grader:set-aside:store",
            "grader:answers:store",
        ),
    ),
    # nothing at all
    "the server's": (
        *("store", "store\x06\x163", "sandbox", "sandbox.batch", "results.two", "results.one\x06\x163"),
        *(
            "unacked",
            "unacked_index",
            "unacked_mutex",
            "_kombu.binding.store",
            "_kombu.binding.celery.pidbox",
        ),
        *("celery-task-meta-RUN", "celery-taskset-meta-ROUND.j", "celery-taskset-meta-ROUND.s"),
        *(chat_queue("other"), "x.reply.celery.pidbox", "one@host.celery.pidbox", "secret", ""),
    ),
}
NO_KEYS = {
    *("auth", "client|id", "client|setname", "discard", "exec", "hello", "multi", "ping", "select", "time"),
    "unwatch",
    # Redis lets nobody forbid these
    *("quit", "reset"),
}
SCRIPTS = {"evalsha"}
ALLOWED: Mapping[str, set[str]] = {
    "own queue": {"brpop", "lindex", "llen"} | SCRIPTS,
    "own stages": {"brpop", "lindex", "llen"},
    "own gateway requests": {"brpop", "llen"},
    "own inbox": {"lpush"},
    "own unacked": {"hset", "hget", "hdel", "watch"} | SCRIPTS,
    "own unacked times": {"zadd", "zrem"} | SCRIPTS,
    "own leases": {"hset", "hget", "hdel", "hlen", "hexists"} | SCRIPTS,
    "own heartbeats": {"hset", "hdel", "hvals"} | SCRIPTS,
    "own deliveries": {"incr", "decr", "expire", "get"} | SCRIPTS,
    "own places": {"hset", "expire", "hgetall"} | SCRIPTS,
    "own marks": {"set", "exists"} | SCRIPTS,
    "own copies": {"set"} | SCRIPTS,
    "own answers": {"set", "mget"} | SCRIPTS,
    "own blocks": {"set", "get", "del"} | SCRIPTS,
    "own speed profiles": {"hset", "hgetall"} | SCRIPTS,
    "others' queues": {"llen"},
    "another's own queue": {"llen"} | SCRIPTS,
    "another's leases": {"hlen", "hexists"} | SCRIPTS,
    "another's heartbeats": {"hvals"} | SCRIPTS,
    "another's deliveries": {"get"} | SCRIPTS,
    "another's places": {"hgetall"} | SCRIPTS,
    "another's marks": {"exists"} | SCRIPTS,
    "current runs": {"get", "exists"} | SCRIPTS,
    "drained": {"hkeys", "hexists"} | SCRIPTS,
    "backlog": {"hgetall"} | SCRIPTS,
    "canaries": {"hmget"} | SCRIPTS,
    "gateway request asks": {"get", "pttl"} | SCRIPTS,
    "gateway request readers": {"exists"} | SCRIPTS,
    "gateway request holders": {"set", "pexpire", "del"} | SCRIPTS,
    "gateway request answers": {"rpush", "pexpire", "llen", "del"} | SCRIPTS,
    "another's": SCRIPTS,
    "the server's": set(),
}
FORMS: Mapping[str, Sequence[str]] = {
    # where keys stand at no fixed place; all other arguments are the key, too
    "migrate": ("h", "1", "{}", "0", "1"),
    "xread": ("STREAMS", "{}", "0"),
    "xreadgroup": ("GROUP", "g", "c", "STREAMS", "{}", "0"),
    **dict.fromkeys(("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"), ("x", "1", "{}")),
    **dict.fromkeys(("sintercard", "zdiff", "zinter", "zintercard", "zunion"), ("1", "{}")),
    **dict.fromkeys(("lmpop", "zmpop"), ("1", "{}", "MIN")),
    **dict.fromkeys(("blmpop", "bzmpop"), ("0", "1", "{}", "MIN")),
}


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    folder = tmp_path_factory.mktemp("rights")
    machines = [{"name": n, "slots": 2, "stages": s, "engines": ENGINES} for n, s in MACHINES.items()]
    read = configuration.parse({"machines": machines})
    users = {"server": KEYRING.password, "machine.one": PASSWORD}
    with redis_server(folder, acl_file(folder, redis_acl.lines(read, users))) as port:
        known = client(f"redis://test:test@127.0.0.1:{port}/0")
        yield known
        known.close()


def _commands(redis: Redis) -> dict[str, tuple[int, bool]]:
    """Name of each command, subcommands as `client|id`; how many words it needs, and whether it has keys."""
    found: dict[str, tuple[int, bool]] = {}
    port = redis.get_connection_kwargs()["port"]
    with Redis(port=port, username="test", password="test", decode_responses=True, protocol=2) as raw:
        raw.response_callbacks.clear()
        rows = [row for top in raw.execute_command("COMMAND") for row in (top[9] or [top])]
    for row in rows:
        found[row[0].lower()] = (abs(row[1]), bool(row[3] or row[8]))
    return found


def _words(name: str, least: int, key: str) -> list[str]:
    command = name.split("|")
    given = [part.format(key) for part in FORMS.get(name, ("{}",))]
    missing = max(0, least - len(command) - len(given))
    return [*command, *given, *[key] * missing]


def _allowed(redis: Redis, calls: Mapping[tuple[str, str], Sequence[str]]) -> set[tuple[str, str]]:
    """Those of them that machine one may call."""
    with redis.pipeline(transaction=False) as pipe:
        for words in calls.values():
            pipe.execute_command("ACL", "DRYRUN", "machine.one", *words)
        answers = pipe.execute(raise_on_error=False)
    assert not [(c, a) for c, a in zip(calls, answers, strict=True) if isinstance(a, Exception)]
    return {call for call, answer in zip(calls, answers, strict=True) if answer == "OK"}


def test_a_machines_user_may_do_what_is_listed_and_nothing_else(admin: Redis) -> None:
    commands = _commands(admin)
    assert {"get", "client|id", "eval", "flushall", "xread", "config|set"} <= commands.keys()
    assert len(commands) > 300
    assert ALLOWED.keys() == KEYS.keys()
    keyed = {name: least for name, (least, has_keys) in commands.items() if has_keys}
    keys = {key: kind for kind, of_kind in KEYS.items() for key in of_kind}
    calls = {(name, key): _words(name, n, key) for name, n in keyed.items() for key in keys}
    allowed = _allowed(admin, calls)
    found = {key: {name for name, at in allowed if at == key} for key in keys}
    assert found == {key: ALLOWED[kind] for key, kind in keys.items()}


def test_of_commands_without_keys_only_those_of_a_connection_are_allowed(admin: Redis) -> None:
    commands = _commands(admin)
    words = {name: name.split("|") for name, (_, has_keys) in commands.items() if not has_keys}
    bare = {(name, ""): [*of, *["x"] * (commands[name][0] - len(of))] for name, of in words.items()}
    assert {name for name, _ in _allowed(admin, bare)} == NO_KEYS


@pytest.mark.parametrize(
    "words",
    [
        ("brpop", "analysis", "store", "0"),
        ("del", "grader:gateway:ID:said", "store"),
        ("mget", "grader:answers:machine.one", "grader:results:two:RUN"),
        ("evalsha", "x", "2", "grader:x", "store"),
        ("set", "grader:over:one:RUN", "x", "GET"),
        ("publish", "/0.celery.pidbox", "x"),
        ("publish", "/0.celeryev/worker.heartbeat", "x"),
        ("subscribe", "celery-task-meta-x"),
        ("script", "load", "x"),
    ],
    ids=" ".join,
)
def test_no_command_is_allowed_by_one_of_its_keys_or_words(admin: Redis, words: Sequence[str]) -> None:
    assert _allowed(admin, {(words[0], ""): words}) == set()


def test_a_script_of_the_server_does_no_more_for_a_machine_than_it_may_do_itself(admin: Redis) -> None:
    admin.hset("grader:unacked:two", "tag", "another's work")
    digest = admin.script_load("return redis.call('HGETALL', KEYS[1])")
    port = admin.get_connection_kwargs()["port"]
    with client(f"redis://machine.one:{PASSWORD}@127.0.0.1:{port}/0") as machine:
        assert machine.evalsha(digest, 1, "grader:backlog") == []
        with pytest.raises(ResponseError, match="can't access at least one of the keys"):
            machine.evalsha(digest, 1, "grader:unacked:two")
