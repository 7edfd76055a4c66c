"""What a running process compiles, for another one to see: ``JITNEY_WATCH=1`` there, ``jitney watch`` here.

A process that is to be watched writes a small JSON file into a folder that belongs to its user alone, twice a second,
from a thread that looks at what events have told and at where the other threads are. Nothing else is open, and nothing
is done where the setting is off.
"""
