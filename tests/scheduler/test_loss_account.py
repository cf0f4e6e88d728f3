from hypothesis import given
from hypothesis import strategies as st

from foredraft.scheduler.speculation.loss_account import ALLOWANCE, MOST_STEPS, START_STEPS, LossAccount

GAINS = st.lists(st.floats(-3, 3), max_size=200)


@given(GAINS, st.integers(0, 100))
def test_what_can_be_lost_from_any_step_on(gains: list[float], start: int) -> None:
    """The bound of docs/controller.md: balance, if any, + allowance + what the last drafting step lost."""
    account = LossAccount()
    lost, balance, steps, worst = 0.0, START_STEPS, 0, 0.0
    for step, gain in enumerate(gains):
        if step == start:
            lost, balance, steps, worst = 0.0, account.balance, 0, 0.0
        drafts = account.open
        account.settle(gain if drafts else 0.0)
        steps += 1
        if drafts:
            lost -= gain
            worst = max(worst, -gain)
        assert lost <= max(balance, 0.0) + ALLOWANCE * steps + worst + 1e-9


@given(GAINS)
def test_the_balance_has_a_ceiling(gains: list[float]) -> None:
    account = LossAccount()
    for gain in gains:
        account.settle(gain)
        assert account.balance <= MOST_STEPS


def test_it_closes_and_opens_again() -> None:
    account = LossAccount()
    account.settle(-START_STEPS - 0.5)
    assert not account.open
    for _ in range(70):
        account.settle(0.0)
    assert account.open
