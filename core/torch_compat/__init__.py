"""All that depends on how torch works inside: its private names, what its stand-ins and operators do not say."""
