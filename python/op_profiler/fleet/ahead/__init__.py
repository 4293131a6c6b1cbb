"""Models that a worker builds ahead for others, which measure: a machine that measures is not to wait for a compiler.

A client orders builds (`order`) of a worker whose machine has nothing to measure, and that one makes them (`maker`).
They lie in the cache of its machine until whoever measures asks for them (`taker`): a tar with a digest
(`building.parcel`), from worker to worker. Who measures puts it into its own cache and goes on as ever: what it finds
there it uses, and only a build for its own target, by its own TVM and by the same code of this package is found.
Whatever goes wrong with it, the machine that measures builds by itself.
"""
