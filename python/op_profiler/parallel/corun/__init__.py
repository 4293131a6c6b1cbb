"""Carries out a user's request to run models side by side: makes a plan and measures it.

`run.corun` checks the request (`request`), loads the models (`models`), measures costs (`costs`), creates plans with
policies and chooses the fastest (`candidates`), runs it in alternation with sequential execution (`comparison`), and
stores the slow-down of operators side by side in the dataset (`storing`). `timing` measures the times. `collaborate` is
the policy that measures while it plans; `schedule_variants` builds the kernels from which it chooses. `several_targets`
lets models choose between targets.
"""
