"""Groups of answers: equal ones, proposals of similar ones, outcomes beside, who left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grading.similarity import Answered, Outcome, grouped, next_open
from grading.similarity.fingerprints import fingerprints, k_gram_hashes, packed, unpacked, winnowed
from grading.similarity.groups import FEWEST, NEAR

RIGHT, WRONG = Outcome(share=1.0, passed=3, tests=3), Outcome(share=0.5, passed=1, tests=3)


def test_winnowing_finds_every_shared_run_of_the_guaranteed_length() -> None:
    k, window = 4, 3
    shared = [f"s{n}" for n in range(k + window - 1)]
    one = [f"a{n}" for n in range(40)] + shared + [f"b{n}" for n in range(7)]
    other = [f"c{n}" for n in range(11)] + shared + [f"d{n}" for n in range(30)]
    marks = [{mark for mark, _ in fingerprints(each, k, window)} for each in (one, other)]
    assert marks[0] & marks[1]
    shorter = [{mark for mark, _ in fingerprints([*each[:-k], "x"], k, window)} for each in (shared, shared)]
    assert not shorter[0] & {mark for mark, _ in fingerprints([f"z{n}" for n in range(20)], k, window)}


def test_winnowing_takes_the_rightmost_smallest_of_each_window() -> None:
    # the example of the paper, section 3: window 4
    hashes = [77, 74, 42, 17, 98, 50, 17, 98, 8, 88, 67, 39, 77, 74, 42, 17, 98]
    assert [mark for mark, _ in winnowed(hashes, 4)] == [17, 17, 8, 39, 17]
    assert list(winnowed([], 4)) == []
    assert list(winnowed([5, 3], 4)) == [(3, 1)]


def test_hashes_roll() -> None:
    tokens = [f"t{n % 5}" for n in range(30)]
    rolled = list(k_gram_hashes(tokens, 4))
    assert rolled == [next(k_gram_hashes(tokens[n : n + 4], 4)) for n in range(27)]
    assert unpacked(packed(rolled, 3)) == set(sorted(set(rolled))[:3])


def answered(work: str, key: str, marks: range, outcome: Outcome = RIGHT, **other: bool) -> Answered:
    return Answered(work, key, frozenset(marks), outcome, **other)


def test_groups_have_equal_answers_and_count_outcomes() -> None:
    answers = [
        answered("w1", "k1", range(10), graded=True),
        answered("w2", "k1", range(10)),
        answered("w3", "k1", range(10), WRONG),
        answered("w4", "k2", range(50, 60)),
        answered("w5", "", range(0), Outcome()),
    ]
    first, *others = grouped(answers)
    assert (first.works, first.open, first.mixed) == (("w1", "w2", "w3"), 2, True)
    assert first.outcomes == ((RIGHT, 2), (WRONG, 1))
    assert sorted((one.key, one.works, one.mixed) for one in others) == [
        ("", ("w5",), False),
        ("k2", ("w4",), False),
    ]
    assert grouped(reversed(answers)) == grouped(answers)


def test_similar_groups_are_proposed_to_the_larger_one() -> None:
    groups = grouped(
        [
            *(answered(f"a{n}", "large", range(10)) for n in range(3)),
            *(answered(f"b{n}", "apart", range(100, 110)) for n in range(2)),
            answered("c", "near", range(2, 12)),
            answered("d", "short", range(3)),
            answered("e", "half", range(5, 15)),
        ]
    )
    assert [(one.key, one.near) for one in groups][:2] == [("large", ""), ("near", "large")]
    assert {one.key: one.near for one in groups if one.key != "near"} == dict.fromkeys(
        ("large", "apart", "short", "half"), ""
    )
    assert next(one for one in groups if one.near).similarity == 8 / 12


@given(st.lists(st.frozensets(st.integers(0, 12), max_size=9), max_size=14))
def test_each_group_is_proposed_to_the_first_leader_that_is_near(sets: list[frozenset[int]]) -> None:
    leaders: list[int] = []
    near = {}
    for n, own in enumerate(sets):
        shares = {one: len(own & sets[one]) / len(own | sets[one]) for one in leaders if len(own) >= FEWEST}
        first = next((one for one, share in shares.items() if share >= NEAR), None)
        if first is not None:
            near[f"{n:02}"] = (f"{first:02}", shares[first])
        elif len(own) >= FEWEST:
            leaders.append(n)
    groups = grouped(Answered(f"w{n}", f"{n:02}", own) for n, own in enumerate(sets))
    assert {one.key: (one.near, one.similarity) for one in groups if one.near} == near


def test_who_left_a_group_is_alone_and_proposed_to_none() -> None:
    groups = grouped([answered("a", "k", range(9)), answered("b", "k", range(9), alone=True)])
    assert [(one.key, one.works, one.near) for one in groups] == [("alone:b", ("b",), ""), ("k", ("a",), "")]


def test_the_next_ungraded_group_goes_round() -> None:
    groups = grouped(
        [
            answered("a", "k1", range(0)),
            answered("b", "k1", range(0)),
            answered("c", "k2", range(0), graded=True),
            answered("d", "k3", range(0)),
        ]
    )
    assert [one.key for one in groups] == ["k1", "k2", "k3"]
    found = [next_open(groups, after) for after in (None, "k1", "k2", "k3", "gone")]
    assert [one.key if one else "" for one in found] == ["k1", "k3", "k3", "k1", "k1"]
    assert next_open(groups[1:2]) is None
