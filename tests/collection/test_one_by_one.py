"""A model that cannot be built: what builds is measured, what does not is recorded, and nothing is left out."""

from __future__ import annotations

from typing import Any

from op_profiler.building.request import BuildRequest
from op_profiler.collection.one_by_one import measure_alone, whole_model_failed
from op_profiler.collection.request import CollectRequest
from op_profiler.compilers.relay.lower import optimize
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.limits import Limits
from op_profiler.measure.threads import default_thread_counts
from op_profiler.targets.llvm.host import Host


def test_an_operator_alone_with_flushed_caches_says_so(small_network: Any, target: Any) -> None:
    request = CollectRequest(
        build=BuildRequest(model=ModelRequest(source="test", name="s"), threads=(1,), cache="cold")
    )
    host = Host(target)
    host.limits = Limits(target=1.0, minimum_rounds=3, window_seconds=0.05)
    _, (result,) = measure_alone(request, optimize(small_network, target)[0], target, host)
    assert (result.settings.cache, result.settings.cache_mechanism) == ("cold", "clflush")


def test_one_operator_that_does_not_build_costs_only_itself(broken_network: Any, target: Any) -> None:
    request = CollectRequest(
        build=BuildRequest(model=ModelRequest(source="test", name="broken"), threads=default_thread_counts())
    )
    occurrences = optimize(broken_network, target)
    host = Host(target)
    host.limits = Limits(target=1.0, minimum_rounds=3, window_seconds=0.05)
    measured = {}
    for occurrence in occurrences:
        schedule, results = measure_alone(request, occurrence, target, host)
        assert [r.settings.threads for r in results] == list(request.build.threads)
        for result in results:
            measured[occurrence.operator.name] = result.measurement
            if result.measurement.error is None:
                assert result.measurement.median_us is not None and result.measurement.median_us > 0
                assert result.settings.cache_mechanism == "repeat, outside the model"
                assert schedule.template != "unknown"
    failed = [name for name, m in measured.items() if m.error is not None]
    assert failed == ["fused_nn_conv3d_transpose"]
    assert "groups == 1" in str(measured["fused_nn_conv3d_transpose"].error)
    assert len(measured) == 3

    by_key = {o.operator.key: measured[o.operator.name] for o in occurrences}
    _, timing = whole_model_failed(request, 1, "it does not compile", [o.operator for o in occurrences], by_key)
    assert timing.sum_of_operators_us is None and timing.ratio is None
    assert len(timing.unmeasured) == 1
    assert timing.whole_model.error == "it does not compile"
