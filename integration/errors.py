"""Errors a user can cause. The CLI prints the message alone and exits with code 2."""


class UserError(ValueError):
    """Bad input. The message names the field, the value and what is allowed."""
