"""Operators of two models meet by their key, their layers, or their place."""

from __future__ import annotations

from op_profiler.comparison.matching import ComparedCall, Match, match


def calls(text: str) -> list[ComparedCall]:
    """Keys, whose first letter is the anchor; a layer behind a colon."""
    found = []
    for word in text.split():
        key, _, layer = word.partition(":")
        found.append(ComparedCall(key, key[0], (layer,) if layer else ()))
    return found


def met(before: str, after: str) -> dict[str, tuple[str, str]]:
    return {one.before: (one.after, one.how) for one in match(calls(before), calls(after))}


def test_the_same_structure_is_the_same_operator_wherever_it_is_called() -> None:
    assert met("c1 c2 p", "p c2 c1") == {k: (k, "key") for k in ("c1", "c2", "p")}


def test_a_changed_kernel_meets_the_one_in_its_place() -> None:
    assert met("c1 c2 p d", "c1 c9 p d")["c2"] == ("c9", "position")


def test_all_of_a_model_in_another_precision_meet_by_their_places() -> None:
    found = met("c1 c2 c1 p1 d1", "c5 c6 c5 p5 d5")
    assert found == {k: (f"{k[0]}{int(k[1]) + 4}", "position") for k in ("c1", "c2", "p1", "d1")}


def test_what_has_no_counterpart_meets_nothing() -> None:
    assert met("c1 d1", "c1 p2") == {"c1": ("c1", "key")}
    assert met("c1", "") == {} and met("", "c1") == {}


def test_layers_come_before_places() -> None:
    assert met("c1:a c2:b p", "c8:b c9:a p") == {
        "c1": ("c9", "layers"),
        "c2": ("c8", "layers"),
        "p": ("p", "key"),
    }


def test_a_layer_that_is_now_of_another_kind_is_no_match() -> None:
    assert met("c1:a", "p1:a") == {}


def test_most_calls_in_common_decide_and_each_meets_one() -> None:
    found = match(calls("c1 p c1 p c1"), calls("c7 p c8 p c8"))
    assert found == [Match("c1", "c8", "position"), Match("p", "p", "key")]


def test_an_operator_that_was_split_leaves_a_rest() -> None:
    assert met("c1 p d", "c3 e3 p d")["c1"] == ("c3", "position")
