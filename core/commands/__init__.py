"""The commands of ``jitney``, one file each."""
