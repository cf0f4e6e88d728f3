"""Proposers by name: built in or by entry point, and what is said when that fails."""

from pathlib import Path

import pytest

from foredraft.proposers import create_proposer, proposer_names
from foredraft.proposers.ngram import NgramProposer

PLUGIN_SOURCE = """
from foredraft.proposers import Proposer
from foredraft.verifier import Draft

class Nothing(Proposer):
    def __init__(self, depth=1):
        self.depth = depth

    def propose(self, context):
        return Draft.from_lists([[] for _ in context.request_ids])

    def release(self, request_id, reason):
        pass

class NoProposer:
    pass
"""
ENTRY_POINTS = """
[foredraft.proposers]
nothing = foredraft_test_plugin:Nothing
ngram = foredraft_test_plugin:Nothing
wrong = foredraft_test_plugin:NoProposer
renamed = foredraft_test_plugin:Gone
absent = foredraft_no_such_module:Thing
"""


def install(folder: Path, package: str, entry_points: str) -> None:
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "foredraft_test_plugin.py").write_text(PLUGIN_SOURCE)
    install(tmp_path, "foredraft_test_plugin", ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_built_in_names() -> None:
    assert create_proposer("none", {}) is None
    assert create_proposer("none", {"min_n": 2}) is None
    assert isinstance(create_proposer("ngram", {"min_n": 2, "max_n": 3}), NgramProposer)


def test_an_unknown_name_lists_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="unknown proposer 'n-gram'; allowed: none, ngram"):
        create_proposer("n-gram", {})


def test_an_unknown_option_lists_the_allowed_ones() -> None:
    allowed = "min_n, max_n, draft_growth, shared_store_tokens"
    with pytest.raises(ValueError, match=rf"'min'.*options are: {allowed}"):
        create_proposer("ngram", {"min": 2})


@pytest.mark.usefixtures("plugins")
def test_a_plugin_is_found_by_its_entry_point() -> None:
    built = create_proposer("nothing", {"depth": 3})
    assert type(built).__name__ == "Nothing"
    assert vars(built) == {"depth": 3}
    assert set(proposer_names()) >= {"none", "ngram", "nothing"}


@pytest.mark.usefixtures("plugins")
def test_a_plugin_cannot_take_over_a_built_in_name() -> None:
    assert isinstance(create_proposer("ngram", {}), NgramProposer)
    assert proposer_names().count("ngram") == 1


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("absent", ImportError, "'absent' .foredraft_no_such_module:Thing. cannot be loaded"),
        ("renamed", ImportError, "'renamed' .foredraft_test_plugin:Gone. cannot be loaded"),
        (
            "wrong",
            TypeError,
            "'wrong' .foredraft_test_plugin:NoProposer. must be a class",
        ),
    ],
)
def test_a_bad_plugin_is_named(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        create_proposer(name, {})


def test_a_name_offered_twice_is_refused(plugins: Path) -> None:
    install(
        plugins, "foredraft_other_plugin", "[foredraft.proposers]\nnothing = foredraft_no_such_module:B\n"
    )
    with pytest.raises(ValueError, match="'nothing' is offered twice"):
        create_proposer("nothing", {})
