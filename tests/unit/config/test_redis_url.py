"""Which Redis URLs are taken, and how they are completed."""

from __future__ import annotations

from pathlib import Path

import pytest

from grading.config.redis_url import checked, on_loopback, place, without_credentials
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
    assert without_credentials("rediss://user:secret@h:1/0?a=b") == "rediss://h:1/0?a=b"
