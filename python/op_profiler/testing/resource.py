"""What every resource keeps to."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from op_profiler.errors import UsageError
from op_profiler.resources.resource import Resource, ResourceError


class ResourceSuite:
    """A resource tells what there is of it, in plain values, or why it does not; looking changes nothing.

    Fixtures:
        resource: an `op_profiler.resources.resource.Resource`, whether this machine has it or not.
    """

    @pytest.fixture
    def resource(self) -> Resource:
        raise NotImplementedError

    def test_what_there_is_of_it_is_plain_and_the_same_twice(self, resource: Resource) -> None:
        state = resource.state()
        assert state.name == resource.name and state.description
        assert json.loads(json.dumps(dataclasses.asdict(state))) == dataclasses.asdict(resource.state())

    def test_what_cannot_be_set_has_a_reason(self, resource: Resource) -> None:
        state = resource.state()
        assert (state.reason is None) == state.settable
        assert state.readable or not state.settable

    def test_a_range_is_a_list_or_two_limits(self, resource: Resource) -> None:
        try:
            values = resource.range()
        except ResourceError as error:
            assert str(error)
            return
        if isinstance(values, dict):
            assert set(values) == {"least", "most"} and values["least"] <= values["most"]
        else:
            assert values and len(values) == len(set(map(str, values)))

    def test_values_of_the_command_line_are_read_and_others_refused(self, resource: Resource) -> None:
        try:
            values: Any = resource.range()
        except ResourceError:
            pytest.skip("this machine does not have it")
        some = values["most"] if isinstance(values, dict) else values[0]
        assert resource.parse(str(some)) in (some, (some,))
        with pytest.raises(UsageError, match=resource.name):
            resource.parse("no such value")
