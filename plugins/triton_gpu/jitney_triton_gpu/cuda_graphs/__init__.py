"""CUDA graphs: all that a graph launches, recorded once, and launched again as one.

A recording holds addresses. Inputs that come from the same memory each time, as parameters do, are recorded where they
are; others are copied to memory of the recording before it runs. Its results stay in its memory: while somebody still
holds one of an earlier call, there is another recording, or kernels are launched one by one. So nothing that is
held changes, and nothing large is copied.

    recorded.py     which calls are recorded, and which replayed     trial.py   is it worth it, where nobody asked?
        |
    recording.py    one recording: inputs in, replay, results out
        |
    device.py       a CUDA device records and replays
"""
