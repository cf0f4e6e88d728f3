"""What ``draft`` and ``early_exit`` cannot do in vLLM is refused where the engine is configured, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from toy_drafts import trained_draft
from toy_exits import trained_exit
from toys import byte_tokenizer
from transformers import LlamaForCausalLM
from vllm_drafts import Drafts
from vllm_toys import toy_llama

from foredraft.integration.config import Config
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import write_draft_file
from foredraft.integration.vllm.drafting_names import drafting_names

pytestmark = pytest.mark.vllm

OWN = {"proposer": "early_exit", "early_exit": {"head": "own", "exit_layer": 2}}


def configure(folder: Path, foredraft: dict[str, Any], **options: Any) -> Any:
    """Everything up to, but without, starting an engine."""
    from vllm.engine.arg_utils import EngineArgs

    from foredraft.integration.vllm.plugin import register

    register()
    given: dict[str, Any] = {"skip_tokenizer_init": True, "dtype": "float32", "max_model_len": 256}
    args = EngineArgs(model=str(folder), additional_config={"foredraft": foredraft}, **(given | options))
    return args.create_engine_config()


def refusal(folder: Path, foredraft: dict[str, Any], **options: Any) -> str:
    with pytest.raises(UserError) as raised:
        configure(folder, foredraft, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tensor_parallel_size": 2}, "tensor_parallel_size"),
        ({"pipeline_parallel_size": 2}, "pipeline_parallel_size"),
        ({"enable_lora": True}, "enable_lora"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype"),
        ({"kv_sharing_fast_prefill": True}, "kv_sharing_fast_prefill"),
        ({"enable_prompt_embeds": True}, "enable_prompt_embeds"),
        ({"scheduler_cls": "vllm.v1.core.sched.scheduler.Scheduler"}, "scheduler_cls"),
        (
            {"kv_transfer_config": {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}},
            "kv_transfer_config",
        ),
    ],
)
@pytest.mark.parametrize("proposer", ["early_exit", "draft"])
def test_options_of_vllm(
    proposer: str, options: dict[str, Any], named: str, model: LlamaForCausalLM, folder: Path, tmp_path: Path
) -> None:
    foredraft = OWN if proposer == "early_exit" else Drafts(model, tmp_path).options("draft: a model nearby")
    assert refusal(folder, foredraft, **options).startswith(f"{named}: ")


def small(family: str, **changes: Any) -> Any:
    config = getattr(transformers, f"{family}Config")(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
        **changes,
    )
    return getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: small("Mistral", sliding_window=32), "sliding-window"),
        (lambda: small("Gemma2", sliding_window=32), "sliding-window|kinds of attention"),
        (lambda: small("Gemma"), "this model is a GemmaForCausalLM"),
        (lambda: small("Granite"), "this model is a GraniteForCausalLM"),
    ],
)
def test_models_by_their_kind(make: Callable[[], Any], reason: str, tmp_path: Path) -> None:
    import re

    make().save_pretrained(tmp_path)
    assert re.search(reason, refusal(tmp_path, OWN))


def test_files_that_do_not_fit(model: LlamaForCausalLM, folder: Path, tmp_path: Path) -> None:
    def exit_of(**values: Any) -> dict[str, Any]:
        path = tmp_path / "exit.safetensors"
        write_draft_file(path, trained_exit(model, **({"exit_layer": 2} | values)))
        return {"proposer": "early_exit", "early_exit": {"head": str(path)}}

    assert "was trained for 'toy'" in refusal(folder, exit_of(target_fingerprint="0" * 32))
    assert "leaves after layer 4" in refusal(folder, exit_of(exit_layer=4, first_block=0))
    other_layer = exit_of()
    other_layer["early_exit"]["exit_layer"] = 1
    assert refusal(folder, other_layer).startswith("early_exit.exit_layer: ")
    assert "head_ids" in refusal(folder, exit_of(head_ids=trained_exit(model, 2).head_ids.flip(0)))
    assert "1 to 4 layers, got 5" in refusal(
        folder, {"proposer": "early_exit", "early_exit": {"head": "own", "exit_layer": 5}}
    )
    assert "none is given" in refusal(folder, {"proposer": "early_exit"})
    assert "none is given" in refusal(folder, {"proposer": "draft"})
    path = tmp_path / "draft.safetensors"
    write_draft_file(path, trained_draft(model, target_fingerprint="0" * 32))
    assert "was trained for 'toy'" in refusal(folder, {"proposer": "draft", "draft": {"model": str(path)}})


def test_draft_models_that_do_not_fit(folder: Path, tmp_path: Path) -> None:
    def draft(name: str, **values: Any) -> dict[str, Any]:
        return {"proposer": "draft", "draft": {"model": str(tmp_path / name), **values}}

    toy_llama(num_layers=1).save_pretrained(tmp_path / "plain")
    small("Mistral", sliding_window=32).save_pretrained(tmp_path / "sliding")
    assert refusal(folder, draft("plain", device="cpu")).startswith("draft.device: ")
    assert refusal(folder, draft("plain", dtype="float32")).startswith("draft.dtype: ")
    assert refusal(folder, draft("missing")).startswith("draft.model: ")
    assert "sliding-window" in refusal(folder, draft("sliding"))
    configure(folder, draft("plain"))


def test_the_tokens_of_a_draft_model_are_the_targets(tmp_path: Path) -> None:
    for name in ("target", "draft"):
        toy_llama(vocab_size=257, num_layers=1).save_pretrained(tmp_path / name)
        byte_tokenizer().save_pretrained(tmp_path / name)
    foredraft = {"proposer": "draft", "draft": {"model": str(tmp_path / "draft")}}
    configure(tmp_path / "target", foredraft, skip_tokenizer_init=False)
    tokenizer = tmp_path / "draft" / "tokenizer.json"
    tokenizer.write_text(
        tokenizer.read_text().replace('"A": 32', '"A": 33', 1).replace('"B": 33', '"B": 32', 1)
    )
    assert "tokenizer is another one" in refusal(tmp_path / "target", foredraft, skip_tokenizer_init=False)
    (tmp_path / "draft" / "tokenizer.json").unlink()
    (tmp_path / "draft" / "tokenizer_config.json").unlink()
    assert "has no tokenizer" in refusal(tmp_path / "target", foredraft, skip_tokenizer_init=False)


def test_numbers_and_paths_are_worked_out_once(model: LlamaForCausalLM, folder: Path, tmp_path: Path) -> None:
    """K of a trained file is the file's, and its path does not hang on where a worker runs."""
    path = tmp_path / "exit.safetensors"
    write_draft_file(path, trained_exit(model, 2, num_draft_tokens=3))
    config = configure(folder, {"proposer": "early_exit", "early_exit": {"head": str(path)}})
    asked = config.additional_config["foredraft"]
    assert asked["early_exit"]["head"] == str(path.resolve())
    assert asked["num_draft_tokens"] == config.speculative_config.num_speculative_tokens == 3
    assert config.scheduler_config.scheduler_cls.endswith("LookaheadScheduler")
    assert configure(folder, {"proposer": "ngram"}).scheduler_config.scheduler_cls is None


def test_an_engine_may_be_configured_twice_from_the_same_arguments(folder: Path) -> None:
    """vLLM's arguments then hold what the first time has put in."""
    from vllm.engine.arg_utils import EngineArgs

    asked = {"foredraft": OWN}
    args = EngineArgs(model=str(folder), skip_tokenizer_init=True, dtype="float32", additional_config=asked)
    first, second = args.create_engine_config(), args.create_engine_config()
    assert first.additional_config == second.additional_config
    assert second.scheduler_config.scheduler_cls.endswith("LookaheadScheduler")


def test_what_cannot_share_is_refused_in_a_list_and_left_out_under_auto(
    model: LlamaForCausalLM, folder: Path, tmp_path: Path
) -> None:
    drafts = Drafts(model, tmp_path)
    trained = drafts.options("trained draft reading states") | OWN | {"num_draft_tokens": None}
    assert "does not share" in refusal(folder, trained | {"proposer": "draft,early_exit"})
    assert "enable_lora" in refusal(folder, trained | {"proposer": "ngram,early_exit"}, enable_lora=True)
    named = refusal(folder, trained | {"proposer": "ngram,early_exit"}, tensor_parallel_size=2)
    assert named == "tensor_parallel_size: proposer early_exit needs 1, ngram does not (got 2)"
    whole = drafts.options("draft: a model nearby") | OWN | {"num_draft_tokens": None}
    for options, given, names, most in (
        (trained, {}, ("ngram", "early_exit"), 16),
        (whole, {}, ("ngram", "draft", "early_exit"), 16),
        (whole | {"num_draft_tokens": 5}, {}, ("ngram", "draft", "early_exit"), 5),
        (whole, {"enable_lora": True, "max_num_seqs": 8}, ("ngram",), 16),
        (whole, {"tensor_parallel_size": 2}, ("ngram",), 16),
        ({"early_exit": {"head": "own", "exit_layer": 9}}, {}, ("ngram",), 16),
    ):
        config = configure(folder, options | {"proposer": "auto"}, **given)
        asked = Config(**config.additional_config["foredraft"])
        assert drafting_names(asked) == names
        assert config.speculative_config.num_speculative_tokens == most
        scheduler = config.scheduler_config.scheduler_cls
        assert (scheduler is None) == (names == ("ngram",))
    listed = configure(folder, whole | {"proposer": "draft,early_exit"})
    assert listed.speculative_config.num_speculative_tokens == 8
    alone = configure(folder, {"proposer": "ngram", "num_draft_tokens": "auto"})
    assert alone.speculative_config.num_speculative_tokens == 16
