"""The test suite of the contract `Resource`."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from op_profiler.errors import UsageError
from op_profiler.resources.resource import Resource, ResourceError


class ResourceSuite:
    """Tests that a resource reports its state as JSON-serializable values, or why it cannot, and changes nothing.

    Fixtures:
        resource: an `op_profiler.resources.resource.Resource`, whether or not this machine has it.
    """

    @pytest.fixture
    def resource(self) -> Resource:
        """The `Resource` under test, whether this machine has it or not."""
        raise NotImplementedError

    def test_what_there_is_of_it_is_plain_and_the_same_twice(self, resource: Resource) -> None:
        """Check that `state` has name and description, fits into JSON and is equal at a second call."""
        state = resource.state()
        assert state.name == resource.name and state.description
        assert json.loads(json.dumps(dataclasses.asdict(state))) == dataclasses.asdict(resource.state())

    def test_what_cannot_be_set_has_a_reason(self, resource: Resource) -> None:
        """Check that `reason` is None for settable resources only, and that these are readable."""
        state = resource.state()
        assert (state.reason is None) == state.settable
        assert state.readable or not state.settable

    def test_a_range_is_a_list_or_two_limits(self, resource: Resource) -> None:
        """Check that `range` has distinct values, or `least` and `most` in order."""
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
        """Check that `parse` accepts a value of `range`, and raises UsageError with the name for other text."""
        try:
            values: Any = resource.range()
        except ResourceError:
            pytest.skip("this machine does not have it")
        some = values["most"] if isinstance(values, dict) else values[0]
        assert resource.parse(str(some)) in (some, (some,))
        with pytest.raises(UsageError, match=resource.name):
            resource.parse("no such value")
