"""Which Redis URLs are taken, and how they are completed."""

from __future__ import annotations

from pathlib import Path

import pytest

from grading.config.redis_url import Address, checked, on_loopback, parse, place, with_query
from grading.config.settings import Redis


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("redis://localhost/0", True),
        ("redis://127.0.0.1:6379/0", True),
        ("redis://127.8.9.10/0", True),
        ("redis://[::1]:6379/0", True),
        ("redis://[::ffff:127.0.0.1]:6379/0", True),
        ("redis://10.0.0.5/0", False),
        ("redis://0.0.0.0/0", False),
        ("redis://localhost.example/0", False),
        ("redis://127.1/0", False),
        ("redis://2130706433/0", False),
        ("redis://[::ffff:10.0.0.5]/0", False),
        ("redis://localhost@10.0.0.5/0", False),
    ],
)
def test_a_password_is_needed_beyond_loopback(url: str, loopback: bool) -> None:
    assert on_loopback(url) == loopback
    if loopback:
        assert checked(url, None) == url
        return
    with pytest.raises(ValueError, match=r"needs a password.*GRADER_REDIS_URL"):
        checked(url, None)
    with_password = url.replace("//localhost@", "//").replace("//", "//user:secret@")
    assert checked(with_password, None) == with_password


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("ssl_cert_reqs=none", "would trust anybody"),
        ("ssl_cert_reqs=CERT_OPTIONAL", "would trust anybody"),
        ("ssl_cert_reqs=", "would trust anybody"),
        ("ssl_check_hostname=false", "would trust anybody"),
        ("ssl_exclude_verify_flags=VERIFY_X509_STRICT", "is not allowed in the URL"),
        ("ssl_ca_certs=/nowhere/ca.pem", "is not there; copy it"),
    ],
)
def test_a_certificate_is_always_verified(query: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        checked(f"rediss://:secret@redis.example/0?{query}", None)


def test_tls_is_completed_for_every_client(tmp_path: Path) -> None:
    mine, other = tmp_path / "my ca.pem", tmp_path / "other.pem"
    mine.touch()
    other.touch()
    url = "rediss://:secret@redis.example/0"
    assert checked(url, None) == f"{url}?ssl_cert_reqs=required"
    whole = checked(f"{url}?ssl_check_hostname=true", str(mine))
    assert "ssl_cert_reqs=required" in whole
    assert f"ssl_ca_certs={tmp_path}/my%20ca.pem" in whole
    assert checked(whole, str(other)) == whole  # what stands in the URL wins, and stays
    assert Redis(url=url, ca_file=str(mine)).url == checked(url, str(mine))


def test_tls_settings_without_tls_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="write rediss://"):
        checked("redis://:secret@redis.example/0?ssl_cert_reqs=required", None)
    with pytest.raises(ValueError, match="names no host"):
        checked("redis://:secret@/0", None)
    with pytest.raises(ValueError, match="in the password / as %2F, # as %23"):
        checked("redis://:se/cret@redis.example:6379/0", None)


def test_sentences_name_no_password() -> None:
    assert place("redis://user:secret@redis.example/0") == "redis.example:6379"
    assert place("redis+sentinel://u:secret@s1,[::1]:7/grader/0?sentinel_password=p") == "s1:26379, [::1]:7"
    assert "secret" not in repr(parse("redis://u:secret@h/0"))


SENTINELS = "redis+sentinel://server:p%2Fw@s1,s2:26380,[fd00::3]:26379/grader/2"


def test_sentinels_are_named_with_the_set_and_passwords_of_both() -> None:
    url = f"{SENTINELS}?sentinel_username=clients&sentinel_password=s%2Fw"
    assert checked(url, None) == url
    hosts = (("s1", 26379), ("s2", 26380), ("fd00::3", 26379))
    assert parse(url) == Address(hosts, "grader", 2, "server", "p/w", "clients", "s/w")
    assert checked("redis+sentinel://localhost:1,127.0.0.1:2/grader/0", None)
    assert not on_loopback("redis+sentinel://localhost:1,10.0.0.5:2/grader/0")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (SENTINELS, "the sentinels need a password"),
        ("redis+sentinel://s1,s2,s3/grader/0?sentinel_password=p", "needs a password"),
        ("redis+sentinel://u:p@s1,s2,s3/0?sentinel_password=p", "names no set"),
        ("redis+sentinel://u:p@s1,s2,s3/grader?sentinel_password=p", "names no set"),
        ("redis+sentinel://u:p@s1,s2,s3/gra der/0?sentinel_password=p", "names no set"),
        ("redis+sentinel://u:p@s1,,s3/grader/0?sentinel_password=p", "name hosts of sentinels"),
        ("redis+sentinel://u:p@s1:0/grader/0?sentinel_password=p", "name hosts of sentinels"),
        ("redis+sentinel://u:p@s1:99999/grader/0?sentinel_password=p", "name hosts of sentinels"),
        ("redis+sentinel://u:p@/grader/0?sentinel_password=p", "name hosts of sentinels"),
        ("redis+sentinel://u:p@s1/grader/0?sentinel_password=p&db=1", "db is not allowed"),
        ("redis+sentinel://u:p@s1/grader/0?sentinel_password=p&ssl_ca_certs=x", "write rediss.sentinel://"),
        ("rediss+sentinel://u:p@s1/grader/0?sentinel_password=p&ssl_cert_reqs=none", "would trust anybody"),
        ("redis://u:p@s1/0?sentinel_password=p", "sentinel_password needs sentinels"),
    ],
)
def test_a_url_of_sentinels_is_checked_as_strictly(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        checked(url, None)


def test_tls_of_sentinels_is_completed(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    url = checked("rediss+sentinel://u:p@s1/grader/0?sentinel_password=q", str(tmp_path / "ca.pem"))
    assert dict(parse(url).tls or ()) == {
        "ssl_ca_certs": str(tmp_path / "ca.pem"),
        "ssl_cert_reqs": "required",
    }
    assert parse(with_query(url, sentinel_password="new/")).sentinel_password == "new/"
