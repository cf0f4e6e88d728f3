"""``VllmEngine``: several in one process: our plugin, vLLM's own method, no speculation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from letters import TOKENIZER, token_ids
from toys import random_prompts
from transformers import LlamaForCausalLM
from vllm_toys import in_a_process_of_its_own, toy_folder

from foredraft.integration.config import Config, replaced
from foredraft.integration.engine import RequestOutput
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams

pytestmark = pytest.mark.vllm

NAMES = ("none", "ngram", "vllm:ngram")
GREEDY = SamplingParams(temperature=0, max_tokens=40)
LONG = SamplingParams(temperature=0, max_tokens=120)
PROMPTS = [*random_prompts(3, seed=4, longest=30), token_ids("abcabcabcabc")]
EAGER = {"enforce_eager": True}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = toy_folder(tmp_path_factory.mktemp("engine"), vocab_size=257, num_layers=1, head_scale=0.5)
    TOKENIZER.save_pretrained(folder)
    sizes = {"max_num_seqs": 8, "max_model_len": 256, "kv_cache_memory_gb": 0.1}
    return Config(model=str(folder), dtype="float32", num_draft_tokens=4, ngram={"min_n": 1}, engine=sizes)


@pytest.fixture(scope="module")
def engines(config: Config) -> Iterator[dict[str, Any]]:
    """Three at once; the first two in this process."""
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    from foredraft.integration.vllm.engine_build import build_vllm_engine

    made = {name: build_vllm_engine(replaced(config, proposer=name), EAGER) for name in NAMES[:-1]}
    with in_a_process_of_its_own():
        made[NAMES[-1]] = build_vllm_engine(replaced(config, proposer=NAMES[-1]), EAGER)
    yield made
    for engine in made.values():
        engine.shutdown()
    cleanup_dist_env_and_memory()


def outputs_of(outputs: list[RequestOutput]) -> list[tuple[str, list[int], str | None]]:
    return [
        (output.outputs[0].text, output.outputs[0].token_ids, output.outputs[0].finish_reason)
        for output in outputs
    ]


def test_all_write_the_same_and_count_what_they_drafted(engines: dict[str, Any]) -> None:
    served = {name: engine.generate(PROMPTS, GREEDY) for name, engine in engines.items()}
    again = engines["none"].generate(PROMPTS, GREEDY)
    assert outputs_of(again) == outputs_of(served["none"]), "the others have not disturbed it"
    for name in NAMES[1:]:
        assert outputs_of(served[name]) == outputs_of(served["none"]), name
        metrics, stats = engines[name].metrics, [one.outputs[0].speculation for one in served[name]]
        assert 0 < metrics.num_accepted_tokens <= metrics.num_drafted_tokens
        assert metrics.num_accepted_tokens == sum(one.num_accepted_tokens for one in stats)
        assert metrics.num_drafted_tokens == sum(metrics.verified_per_position)
        assert metrics.num_accepted_tokens == sum(metrics.accepted_per_position)
        assert metrics.num_emitted_tokens == sum(one.num_emitted_tokens for one in stats) == 40 * len(PROMPTS)
        for one in stats:
            assert one.num_emitted_tokens - one.num_accepted_tokens <= one.num_steps <= 40
    assert engines["none"].metrics.num_drafted_tokens == engines["none"].num_draft_tokens == 0
    assert engines["ngram"].metrics.seconds.keys() == {"total", "propose", "sample"}
    assert engines["vllm:ngram"].metrics.seconds.keys() == {"total"}


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_grows_by_several_tokens_and_an_abort_ends_it(engines: dict[str, Any], name: str) -> None:
    engine = engines[name]
    engine.add_request("a", "abcabcabcabc", LONG)
    engine.add_request("b", "xyzzy", LONG)
    seen: dict[str, list[RequestOutput]] = {"a": [], "b": []}
    for output in engine.stream(["a", "b"]):
        seen[output.request_id].append(output)
        if len(seen["b"]) == 2:
            engine.abort("b")
            engine.abort("unknown")
    texts = [output.outputs[0].text for output in seen["a"]]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert len(texts) == 120 if name == "none" else len(texts) < 120
    assert seen["a"][-1].outputs[0].finish_reason == "length"
    assert seen["b"][-1].finished
    assert seen["b"][-1].outputs[0].finish_reason == "abort"
    assert 0 < len(seen["b"][-1].outputs[0].token_ids) < 120
    assert not engine.has_unfinished_requests()


def test_several_completions_controls_and_logprobs(engines: dict[str, Any]) -> None:
    params = SamplingParams(
        n=3, temperature=1.0, min_p=0.1, logit_bias={5: -3.0}, seed=1, max_tokens=8, logprobs=2
    )
    output = engines["ngram"].generate(["hello"], params)[0]
    assert output.finished
    assert [one.index for one in output.outputs] == [0, 1, 2]
    assert len({tuple(one.token_ids) for one in output.outputs}) == 3
    for one in output.outputs:
        assert one.logprobs is not None
        assert all(token in entry for token, entry in zip(one.token_ids, one.logprobs, strict=True))
    with pytest.raises(UserError, match="min_p"):
        engines["vllm:ngram"].generate(["hello"], SamplingParams(temperature=1.0, min_p=0.1))
    assert not engines["vllm:ngram"].has_unfinished_requests()


def test_a_difference_is_measured_by_log_probabilities(engines: dict[str, Any], config: Config) -> None:
    from foredraft.integration.compare.offline.vllm_check import VllmChecker

    prompt, written = token_ids("abcabc"), token_ids("de")
    model = LlamaForCausalLM.from_pretrained(config.model, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *written]])).logits[0, -1]
    best, second = logits.topk(2).indices.tolist()
    checker = VllmChecker(engines["none"], is_float32=True, num_draft_tokens=4, max_len=256)
    assert checker.compare(prompt, [*written, best], [*written, best]) is None
    found = checker.compare(prompt, [*written, best, 1], [*written, second, 1])
    assert found is not None
    assert found.position == 2
    assert found.logit_gap == pytest.approx(float(logits[best] - logits[second]), abs=1e-3)
    assert found.rounding is not None
    assert 0 <= found.rounding < 1e-4
    assert not found.near_tie
    shorter = checker.compare(prompt, [*written, best], written)
    assert shorter is not None
    assert (shorter.position, shorter.logit_gap, shorter.near_tie) == (2, None, False)


def test_what_cannot_be_served_is_refused_by_name(config: Config, engines: dict[str, Any]) -> None:
    from foredraft.integration.vllm.engine_build import build_vllm_engine, speculation_settings

    with pytest.raises(UserError, match=r"vllm: .*256"):
        engines["ngram"].add_request("long", [1] * 300, GREEDY)
    with pytest.raises(UserError, match="--vllm enforce_eagr: vLLM's engine has no such option"):
        build_vllm_engine(config, {"enforce_eagr": True})
    with pytest.raises(UserError, match=r"draft\.model: vllm:draft_model needs a model"):
        speculation_settings(replaced(config, proposer="vllm:draft_model"))
    with pytest.raises(UserError, match=r"draft\.model: none is given"):
        build_vllm_engine(replaced(config, proposer="draft"), EAGER)
