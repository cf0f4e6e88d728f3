from pathlib import Path

import pytest

from foredraft.integration.compare.variants import parse_variants
from foredraft.integration.config import Config
from foredraft.integration.errors import UserError


def test_a_variant_changes_what_it_names_and_nothing_else() -> None:
    base = Config(ngram={"max_n": 7}, sampling={"max_tokens": 9})
    variants = parse_variants(["k3: proposer=ngram, num_draft_tokens=3, ngram.min_n=2"], base)
    config = variants["k3"]
    assert (config.proposer, config.num_draft_tokens) == ("ngram", 3)
    assert (config.ngram.min_n, config.ngram.max_n) == (2, 7)
    assert config.sampling == base.sampling


def test_a_variant_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("proposer: ngram\nngram: {max_n: 3}\nverification_rule: token\n")
    config = parse_variants([f"mine={file}"], Config())["mine"]
    assert (config.proposer, config.ngram.max_n, config.verification_rule) == ("ngram", 3, "token")


def test_a_variant_may_share_its_requests_among_several() -> None:
    config = parse_variants(["mix: proposer=[ngram, draft],num_draft_tokens=4"], Config())["mix"]
    assert (config.proposer, config.num_draft_tokens) == ("ngram,draft", 4)


def test_plain_decoding_twice_is_a_comparison() -> None:
    assert parse_variants(["again:proposer=none"], Config())["again"].proposer == "none"


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["k3"], "NAME:key=value"),
        (["a b:proposer=none"], "NAME:key=value"),
        (["k3:proposer"], "key=value"),
        (["none:proposer=ngram"], "'none' is taken"),
        (["k3:num_draft_tokens=3", "k3:num_draft_tokens=4"], "'k3' is given twice .*num_draft_tokens=4"),
        (["draft:proposer=ngram"], "'draft' is that of a built-in proposer, and the variant's is 'ngram'"),
        (["k3:num_draft_tokens=0"], "--variant k3: .*num_draft_tokens"),
        (["k3:ngram.max=3"], "--variant k3: .*max"),
        (["k3=no_such_file.yaml"], "no_such_file.yaml"),
        (["warm:sampling.temperature=1"], "sampling must be the same for all"),
        (["narrow:dtype=bfloat16"], "dtype must be the same for all"),
    ],
)
def test_bad_variants_are_refused(texts: list[str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        parse_variants(texts, Config(dtype="float32"))
