"""Addresses of one and of several PostgreSQL servers."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine

from grading.config.database_url import split_hosts
from grading.store.failover import hosts_of, parse_url


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("postgresql://u:p@one,two/x", [("one", "5432"), ("two", "5432")]),
        ("postgresql://u:p@one:5433,two/x", [("one", "5433"), ("two", "5432")]),
        ("postgresql+psycopg://u@10.0.0.1:1,[fd00::2]:2/x", [("10.0.0.1", "1"), ("fd00::2", "2")]),
        ("postgresql://u:p@/x?host=one:1&host=two:2", [("one", "1"), ("two", "2")]),
    ],
)
def test_of_several_hosts_the_primary_is_used(address: str, hosts: list[tuple[str, str]]) -> None:
    url = parse_url(address)
    assert hosts_of(url) == hosts
    _, given = create_engine(url).dialect.create_connect_args(url)
    assert given["target_session_attrs"] == "read-write"
    assert (given["user"], given["dbname"], url.drivername) == ("u", "x", "postgresql+psycopg")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:a%2Cb%40c@one:5432/x",
        "postgresql:///x",
        "postgresql:///x?host=/run/postgresql",
        "sqlite:////tmp/a,b.db",
    ],
)
def test_one_host_stays_as_it_is(address: str) -> None:
    assert split_hosts(address) == (address, ())
    assert "target_session_attrs" not in parse_url(address).query


def test_a_password_keeps_its_commas() -> None:
    url = parse_url("postgresql://u:a%2Cb@one,two/x")
    assert url.password == "a,b"
    assert (
        parse_url("postgresql://u@one,two/x?target_session_attrs=any").query["target_session_attrs"] == "any"
    )


@pytest.mark.parametrize("hosts", ["one,", ",two", "one:a,two", "one:0,two", "one:99999,two"])
def test_what_names_no_host_is_refused_without_the_password(hosts: str) -> None:
    with pytest.raises(ValueError, match="a host is missing, or a port is no number") as refused:
        parse_url(f"postgresql://u:secret@{hosts}/x")
    assert "secret" not in str(refused.value)
