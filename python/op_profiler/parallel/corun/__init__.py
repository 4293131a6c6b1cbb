"""From a user's request to a plan that was measured.

`run.corun` checks the request (`request`), loads the models (`models`), measures costs (`costs`), lets policies make
plans and chooses the fastest (`candidates`), runs it in turn with the sequential plan (`comparison`), and stores the
slow-down of operators side by side in the dataset (`storing`). `timing` does the timing.

`collaborate` is the policy that measures while it plans; `schedule_variants` builds the kernels it chooses from.
`several_targets` lets models choose between targets.
"""
