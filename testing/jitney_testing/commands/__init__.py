"""Commands of ``jitney`` that come with the conformance kit."""
