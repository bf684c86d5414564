"""Frames between reader and writer: what goes in comes out, and nothing else does."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.machine.engines.remote_prefill import protocol
from workers.machine.engines.remote_prefill.protocol import (
    Channel,
    Frame,
    FrameCorrupt,
    Kind,
    LinkStalled,
    PeerLost,
    TransferError,
    VersionDiffers,
    pack,
    proof,
    proves,
)

HEADS = st.dictionaries(
    st.text(max_size=8), st.integers() | st.text(max_size=20) | st.lists(st.integers()), max_size=4
)


@contextmanager
def pair() -> Iterator[tuple[socket.socket, Channel]]:
    """A raw end, and a channel on the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        two, _ = server.accept()
    with one, two:
        yield one, Channel(two)


@given(kind=st.sampled_from(Kind), head=HEADS, body=st.binary(max_size=300))
def test_a_frame_comes_as_it_went(kind: Kind, head: dict[str, object], body: bytes) -> None:
    with pair() as (raw, channel):
        for part in pack(Frame(kind, head, body)):
            raw.sendall(part)
        got = channel.receive()
    assert (got.kind, got.head, bytes(got.body)) == (kind, head, body)


@given(body=st.binary(min_size=1, max_size=60), data=st.data())
def test_any_changed_byte_is_found(body: bytes, data: st.DataObject) -> None:
    sent = b"".join(bytes(part) for part in pack(Frame(Kind.PIECE, {"a": 1}, body)))
    at = data.draw(st.integers(0, len(sent) - 1))
    changed = sent[:at] + bytes([sent[at] ^ data.draw(st.integers(1, 255))]) + sent[at + 1 :]
    with pair() as (raw, channel):
        raw.sendall(changed)
        raw.shutdown(socket.SHUT_WR)
        with pytest.raises((FrameCorrupt, VersionDiffers, PeerLost)):
            channel.receive(1000)


@given(st.binary(max_size=200))
def test_noise_is_no_frame(noise: bytes) -> None:
    with pair() as (raw, channel):
        raw.sendall(noise)
        raw.shutdown(socket.SHUT_WR)
        with pytest.raises(TransferError):
            channel.receive(1000)


def test_a_body_larger_than_allowed_is_not_taken() -> None:
    with pair() as (raw, channel):
        header, _ = pack(Frame(Kind.ASK, {}, bytes(100)))
        raw.sendall(header)
        with pytest.raises(FrameCorrupt):
            channel.receive(99)


def test_silence_is_given_up() -> None:
    with mock.patch.object(protocol, "STALL_S", 0.3), pair() as (_, channel), pytest.raises(LinkStalled):
        channel.receive()


def test_who_takes_nothing_is_given_up() -> None:
    with mock.patch.object(protocol, "STALL_S", 0.3), pair() as (_, channel), pytest.raises(LinkStalled):
        channel.send(Frame(Kind.PIECE, {}, bytes(32 << 20)))


def test_who_looks_can_give_up() -> None:
    class Enough(Exception):
        pass

    def look() -> None:
        raise Enough

    with pair() as (_, channel):
        channel.look = look
        with pytest.raises(Enough):
            channel.receive()


def test_a_rate_is_held() -> None:
    slept: list[float] = []
    standing = mock.patch("time.monotonic", return_value=100.0)
    with mock.patch("time.sleep", slept.append), standing, pair() as (raw, channel):
        paced = Channel(channel._sock, pace=protocol.Pace(1e6))
        threading.Thread(target=lambda: drain(raw), daemon=True).start()
        paced.send(Frame(Kind.PIECE, {}, bytes(1 << 20)))
    assert slept[-1] == pytest.approx(1.0486, rel=0.01)  # nobody really slept, so the last one counts for all


def test_who_comes_late_to_a_held_link_catches_up_but_saves_nothing() -> None:
    slept: list[float] = []
    moments = [100.0, 100.0, 100.0, 100.11, 100.11, 109.0, 109.0]
    with mock.patch("time.monotonic", side_effect=moments), mock.patch("time.sleep", slept.append):
        pace = protocol.Pace(1000)
        for _ in range(3):  # at once, 10 ms late, and after a long pause
            pace(100)
    assert slept == pytest.approx([0.1, 0.09, 0.1])


def drain(raw: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while raw.recv(1 << 16):
            pass


def test_a_proof_is_of_one_side_and_one_talk() -> None:
    said = proof(b"secret", "writer", "a", "b")
    assert proves(said, b"secret", "writer", "a", "b")
    assert not proves(said, b"secret", "reader", "a", "b")
    assert not proves(said, b"secret", "writer", "b", "a")
    assert not proves(said, b"other", "writer", "a", "b")
    assert not proves(None, b"secret", "writer", "a", "b")
