"""AutoTVM's search strategies as tuners. They propose configurations of AutoTVM's tasks; costs are in
seconds."""
