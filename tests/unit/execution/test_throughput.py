"""How fast the sandbox is, and how long one waits for it."""

import pytest

from grading.execution.throughput import Mean, Rate, seconds_until_checked, together


@pytest.mark.parametrize(("waiting", "seconds"), [(0, 0.0), (1, 3.0), (2, 3.0), (3, 4.5), (60, 90.0)])
def test_the_slots_share_what_waits_and_no_run_is_over_before_its_time(waiting: int, seconds: float):
    assert seconds_until_checked(waiting, slots=2, seconds_per_run=3.0) == seconds


def test_several_processes_run_together():
    assert together([]) is None
    assert together([Rate(2, 0.0)]) is None
    assert together([Rate(2, 4.0)]) == Rate(2, 4.0)
    both = together([Rate(2, 1.0), Rate(2, 4.0), Rate(8, 0.0)])
    assert both is not None
    # 2 a second and 0.5 a second
    assert both.slots / both.seconds == pytest.approx(2.5)


def test_the_mean_follows_what_runs_take_now():
    mean = Mean()
    assert mean.seconds == 0.0
    mean.learn(10.0)
    assert mean.seconds == 10.0
    for _ in range(20):
        mean.learn(2.0)
    assert 2.0 < mean.seconds < 2.2
