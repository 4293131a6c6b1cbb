"""From what a user asks for to a plan that was measured.

`run.corun` does it in this order: `request` is checked, `models` are loaded, `costs` are measured, policies make
`candidates`, of which the fastest is chosen, and `comparison` runs it and sequential in turn. `storing` writes what
operators lost by running side by side to the dataset. What is timed is timed by `timing`.

The policy ``collaborate``, which measures while it plans, is in `collaborate`, with `schedule_proposals`;
models that choose between targets are in `several_targets`.
"""
