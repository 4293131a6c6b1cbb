"""Ways to plan: which operators run side by side, on which cores, with how many threads."""

from op_profiler.parallel.planning.policies.policy import POLICIES, Policy, get_policy

__all__ = ["POLICIES", "Policy", "get_policy"]
