"""AutoTVM's strategies as tuners: they propose configurations of its tasks, and are told costs in seconds."""
