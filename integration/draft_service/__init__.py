"""A draft server's draft from a configuration, and a target's way to it."""
