"""From a user's request to a measured plan.

`run.corun` checks the request (`request`), loads the models (`models`), measures costs (`costs`), creates plans with
policies and chooses the fastest (`candidates`), runs it in turn with the sequential plan (`comparison`), and stores the
slow-down of operators side by side in the dataset (`storing`). `timing` has the timing. `collaborate` is the policy
that measures while it plans; `schedule_variants` builds the kernels from which it chooses. `several_targets` lets
models choose between targets.
"""
