"""The yardsticks of the benchmarks work beside the system's own guards."""

from __future__ import annotations

from bench.bare_chord import BareChord, workers


def test_bare_chords_pass_the_guard_for_messages(redis_url: str) -> None:
    chords = BareChord(redis_url)
    try:
        for key in ("a", "b"):
            chords.send(key)
        with workers(redis_url):
            assert chords.wait() <= chords.wait()
    finally:
        chords.client.close()
        chords.app.close()
