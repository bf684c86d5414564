"""Where this system may connect to: tricks that lead a check to one address and a connection to another."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from grading.config.settings import Config, parse
from grading.domain.errors import ConfigError
from grading.domain.ssrf import Allowed, Refused, plain, public, read, require
from tests.support.german import in_german

NOTHING = Allowed()

NOT_PUBLIC = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 169.254.169.254
172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.7
203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16
:: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1 64:ff9b::7f00:1
64:ff9b::a00:1 64:ff9b:1::8.8.8.8 100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1
2001:20::1 2001:db8::1 2002:7f00:1:: 2002:a00:1:: 2002:808:808:: 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1
fe80::1%eth0 2606:4700::1%1 fec0::1 ff02::1 ff0e::1 4000::1 2606:4700::5efe:127.0.0.1
2606:4700::200:5efe:10.0.0.1
""".split()

PUBLIC = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.0.1.1 192.167.1.1
198.17.0.1 198.20.0.1 223.255.255.254 168.63.129.17 ::ffff:8.8.8.8 64:ff9b::808:808 2606:4700::1111
2a00:1450::1 2001:200::1 2606:4700::5efe:8.8.8.8
""".split()


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_what_is_not_public_is_refused(address: str) -> None:
    assert not public(ip_address(address))
    with pytest.raises(Refused, match=r"which is not public.*outside_allowed") as caught:
        require(read("https://lms.example/"), ip_address(address), NOTHING)
    assert in_german(caught.value.coded).startswith(f"lms.example hat die Adresse {ip_address(address)},")


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_asked(address: str) -> None:
    require(read("https://lms.example/"), ip_address(address), NOTHING)


UNREADABLE = (
    "", "lms.example", "//lms.example/", "ftp://lms.example/", "file:///etc/passwd", "gopher://127.0.0.1:6379/_x",
    "javascript:alert(1)", "https:///x", "https://", "https:lms.example",
    "https://user@lms.example/", "https://user:word@lms.example/", "https://lms.example@127.0.0.1/",
    "https://lms.example#@127.0.0.1/", "https://lms.example/#part", "https://lms.example\\@127.0.0.1/",
    "https://127.0.0.1\\.lms.example/", "https://lms.example%00.evil.example/", "https://%31%32%37.0.0.1/",
    "https://lms.example:0/", "https://lms.example:65536/", "https://lms.example:-1/", "https://lms.example:8o/",
    "https://lms.example:/", "https://lms.example:443:80/",
    "https://2130706433/", "https://0x7f000001/", "https://0x7f.0.0.1/", "https://017700000001/", "https://0177.0.0.1/",
    "https://127.1/", "https://127.0.1/", "https://127.0.0.0x1/", "https://127.0.0.01/", "https://127.0.0.1.1/",
    "https://999.0.0.1/", "https://1/", "https://0/", "https://0x/", "https://lms.example.0x7f/", "https://lms.5/",
    "https://①②⑦.0.0.1/", "https://１２７.0.0.1/", "https://127。0。0。1/", "https://lms.exämple/", "https://ⓛocalhost/",
    "https://[::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[::1/", "https://[::1]x/", "https://[v1.x]/",
    "https://[127.0.0.1]/", "https://::1/", "https://[]/",
    "https://lms..example/", "https://.lms.example/", "https://lms.example../", "https://-lms.example/",
    "https://lms example/", "https://lms.example/a b", "https://lms.example/\r\nX: y", "https://lms.example/\t",
    "https://lms.example/\x00", "https://lms.example/ü", " https://lms.example/",
    "https://lms.example/" + "a" * 2000,
    "https://" + "a" * 64 + ".example/", "https://" + "a." * 127 + "example/",
)  # fmt: skip


@pytest.mark.parametrize("url", UNREADABLE)
def test_what_two_programs_may_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(Refused) as caught:
        read(url)
    assert in_german(caught.value.coded)


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "header"),
    [
        ("https://LMS.Example", "lms.example", 443, "/", "lms.example"),
        ("https://lms.example.:8443/a?b=c", "lms.example", 8443, "/a?b=c", "lms.example:8443"),
        ("https://lms.example?b", "lms.example", 443, "/?b", "lms.example"),
        ("HTTP://127.0.0.1.:80/x", "127.0.0.1", 80, "/x", "127.0.0.1"),
        ("http://[::FFFF:7F00:1]:8080/", "::ffff:7f00:1", 8080, "/", "[::ffff:7f00:1]:8080"),
        ("https://xn--exmple-cua.example/", "xn--exmple-cua.example", 443, "/", "xn--exmple-cua.example"),
        ("https://0xlms.example/", "0xlms.example", 443, "/", "0xlms.example"),
    ],
)
def test_one_way_of_reading_an_address(url: str, host: str, port: int, path: str, header: str) -> None:
    target = read(url)
    assert (target.host.replace("127.0.0.1", "7f00:1"), target.port) == (
        host.replace("127.0.0.1", "7f00:1"),
        port,
    )
    assert target.path == path
    assert target.header.replace("::ffff:127.0.0.1", "::ffff:7f00:1") == header


def test_http_and_low_ports_only_where_config_opens_them() -> None:
    outside, inside = ip_address("8.8.8.8"), ip_address("10.1.2.3")
    with pytest.raises(Refused, match="Use https://") as caught:
        require(read("http://lms.example/"), outside, NOTHING)
    assert in_german(caught.value.coded).startswith("Verwenden Sie https:// für lms.example")
    for port in (22, 25, 1023):
        with pytest.raises(Refused, match=f"Port {port}") as caught:
            require(read(f"https://lms.example:{port}/"), outside, NOTHING)
        assert in_german(caught.value.coded).startswith(f"Port {port} von lms.example")
    require(read("https://lms.example:8443/"), outside, NOTHING)
    for entry in ("lms.example", "LMS.example.", "10.0.0.0/8", "10.1.2.3"):
        require(read("http://lms.example:81/"), inside, Allowed.of([entry]))
    for entry in ("other.example", "10.1.2.4", "10.2.0.0/16", "fd00::/8"):
        with pytest.raises(Refused):
            require(read("http://lms.example:81/"), inside, Allowed.of([entry]))


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "ff02::1", "0.0.0.0", "::", "::ffff:169.254.169.254"]
)
def test_a_hosts_name_opens_no_inner_service_of_a_cloud(address: str) -> None:
    target = read("http://lms.example/")
    with pytest.raises(Refused):
        require(target, ip_address(address), Allowed.of(["lms.example"]))
    whole = "::/0" if plain(ip_address(address)).version == 6 else "0.0.0.0/0"
    require(target, ip_address(address), Allowed.of([whole]))


def test_a_network_opens_an_address_however_it_is_packed() -> None:
    opened = Allowed.of(["127.0.0.1/32"])
    for text in ("127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"):
        require(read("http://lms.example/"), ip_address(text), opened)
    for text in ("127.0.0.2", "::1"):
        with pytest.raises(Refused):
            require(read("http://lms.example/"), ip_address(text), opened)


def configured(*entries: str) -> Config:
    stages = {"analysis": {"engine": "rules", "model": "m"}}
    return parse(
        {"server": {"outside_allowed": list(entries)}, "machines": [{"name": "m", "stages": stages}]}
    )


def test_config_names_hosts_and_networks() -> None:
    assert configured("lms.school.local", "10.0.0.0/8").server.allowed.hosts == {"lms.school.local"}
    for wrong in (
        "10.0.0.1/8",
        "http://lms.example",
        "lms.example:80",
        "",
        "*",
        "*.example",
        "2130706433",
        "a b",
    ):
        with pytest.raises(ConfigError, match="neither a host name such as"):
            configured(wrong)
