"""``--acceptance`` of the commands that predict: given, not measured."""

from __future__ import annotations

from foredraft.integration.errors import UserError


def acceptance_rates(text: str, most: int) -> list[float]:
    """One for each of ``most`` places.

    Raises:
        UserError: not a list of shares.
    """
    try:
        rates = [float(entry) for entry in text.split(",")]
    except ValueError:
        rates = [-1.0]
    if not all(0 <= rate <= 1 for rate in rates):
        raise UserError(f"--acceptance: needs shares from 0 to 1, separated by commas (got {text!r})")
    return [*rates, *[rates[-1]] * most][:most]
