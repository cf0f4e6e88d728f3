"""What ``foredraft serve`` makes of a configuration and of vLLM's flags, and what it refuses in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foredraft.integration import cli
from foredraft.integration.config_sources import load_config
from foredraft.integration.errors import UserError

pytestmark = pytest.mark.vllm


def arguments_of(values: dict[str, Any], *given: str) -> Any:
    from foredraft.integration.vllm.serve import server_arguments

    return server_arguments(load_config(None, values), given)


def test_the_configuration_stands_in_for_flags_left_out(toy: Path) -> None:
    values = {
        "model": str(toy),
        "dtype": "float32",
        "num_draft_tokens": 3,
        "engine": {"max_num_seqs": 5, "max_model_len": 77, "seed": 9, "kv_cache_memory_gb": 0.5},
        "sampling": {"temperature": 0.5, "max_tokens": 12},
    }
    arguments = arguments_of(values, "--port", "81")
    assert (arguments.model, arguments.dtype, arguments.port) == (str(toy), "float32", 81)
    assert (arguments.max_num_seqs, arguments.max_model_len, arguments.seed) == (5, 77, 9)
    assert arguments.kv_cache_memory_bytes == 500_000_000
    assert arguments.override_generation_config == {"temperature": 0.5, "max_new_tokens": 12}
    assert arguments.additional_config["foredraft"]["num_draft_tokens"] == 3
    flags = ["--dtype", "bfloat16", "--max-num-seqs", "6", "--additional-config", '{"other": 1}']
    arguments = arguments_of(values, "some/model", *flags)
    assert (arguments.model_tag, arguments.dtype, arguments.max_num_seqs) == ("some/model", "bfloat16", 6)
    assert arguments.additional_config.keys() == {"other", "foredraft"}


def test_what_nobody_gave_is_vllms_own_default(toy: Path) -> None:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    plain = vars(make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", str(toy)]))
    ours = vars(arguments_of({"model": str(toy), "proposer": "none"}))
    assert {name for name in plain if plain[name] != ours[name]} == {"additional_config"}


@pytest.mark.model
def test_the_built_in_model_goes_by_its_name() -> None:
    arguments = arguments_of({})
    assert (Path(arguments.model) / "config.json").is_file()
    assert arguments.served_model_name == ["smollm2-135m"]
    assert arguments_of({}, "some/model").served_model_name is None
    assert arguments_of({}, "--served-model-name", "mine").served_model_name == ["mine"]


@pytest.mark.parametrize(
    ("values", "given", "named"),
    [
        ({"device": "cuda:1"}, [], "CUDA_VISIBLE_DEVICES"),
        ({"device": "cuda"}, [], "this vLLM runs on cpu"),
        ({"sampling": {"stop": ["x"]}}, [], r"sampling\.stop: the server of vLLM takes defaults for"),
        ({}, ["--additional-config", '{"foredraft": {}}'], "is what --config and our flags say"),
        ({"model": __file__}, [], "not single files"),
    ],
)
def test_refusals(toy: Path, values: dict[str, Any], given: list[str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        arguments_of({"model": str(toy)} | values, *given)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--config", "no/such.yaml"], "no/such.yaml"),
        (["--proposer", "ngrm"], "did you mean ngram"),
        (["--set", "ngram.min_n=0"], "ngram.min_n"),
        (["--proposer", "ngram", "--porty", "81"], "unrecognized arguments: --porty"),
    ],
)
def test_on_the_command_line_it_is_one_line_and_code_2(
    toy: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: list[str],
    named: str,
) -> None:
    monkeypatch.setattr("sys.argv", ["foredraft", "serve", "--set", f"model={toy}", *given])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert named in error
    assert "Traceback" not in error


def test_another_vllm_is_refused_instead_of_served_without_drafts(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foredraft.integration.vllm.watch import WATCH

    WATCH.remove()
    with monkeypatch.context() as patched:
        patched.setattr("vllm.__version__", "0.33.0")
        with pytest.raises(UserError, match=r"works with vLLM 0\.32\.0, but 0\.33\.0 is installed"):
            arguments_of({"model": str(toy)})
        assert arguments_of({"model": str(toy), "proposer": "none"}).model == str(toy)
    WATCH.apply()  # as other tests expect it
