"""AutoTVM's search strategies as tuners. They propose configurations of AutoTVM's tasks and learn from costs in
seconds."""
