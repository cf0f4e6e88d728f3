"""A proposer of someone else's, slow or failing, in a server: counted, and no request fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from vllm_server import complete, metrics, serving, text_of

pytestmark = pytest.mark.vllm

SOURCE = '''
import time

from foredraft.proposers import Proposer
from foredraft.verifier import Draft


class Unreliable(Proposer):
    """Drafts the newest token again; every second call fails, every third takes its time."""

    num_calls = 0

    def propose(self, context):
        self.num_calls += 1
        if self.num_calls % 2 == 0:
            raise RuntimeError("on purpose")
        if self.num_calls % 3 == 0:
            time.sleep(0.3)
        rows = zip(context.token_ids, context.max_draft_tokens)
        return Draft.from_lists([[tokens[-1]] * limit for tokens, limit in rows])

    def release(self, request_id, reason):
        raise RuntimeError("on purpose")
'''


@pytest.fixture(scope="module")
def faulty_server(served_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """With the proposer installed by its entry point, as a package on the path."""
    packages = tmp_path_factory.mktemp("packages")
    (packages / "unreliable.py").write_text(SOURCE)
    installed = packages / "unreliable-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: unreliable\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[foredraft.proposers]\nunreliable = unreliable:Unreliable\n")
    log = packages / "server.log"
    environment = {"PYTHONPATH": str(packages)}
    with serving(served_folder, ["--proposer", "unreliable"], log, environment) as address:
        yield address
    assert log.read_text().count("proposer failed in propose") == 1, "logged once"


def test_it_costs_drafts_and_no_request(faulty_server: str, plain_server: str) -> None:
    prompts = ["abcabcabc", "aaaaaaaa", "hello hello"]
    for prompt in prompts:
        found = text_of(complete(faulty_server, prompt=prompt, max_tokens=40))
        assert found == text_of(complete(plain_server, prompt=prompt, max_tokens=40))
    counted = metrics(faulty_server)
    assert counted["foredraft_proposer_faults_total"] >= 20
    assert counted["foredraft_drafted_tokens_total"] > 0
    assert counted["foredraft_proposer_seconds_total"] >= 0.3, "the slow calls are in it"
    assert complete(faulty_server).status_code == 200, "the engine lives"
