import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from toys import byte_tokenizer
from transformers import PreTrainedTokenizerFast

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import Target, load_target
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.errors import UserError
from foredraft.integration.train import data
from foredraft.integration.train.data import CHUNK, prepare_data
from foredraft.integration.train.data_files import encode_line, read_data_files
from foredraft.integration.train.pieces import check_usable, cut
from foredraft.integration.train.samples import Sample, read_samples
from foredraft.integration.train.settings import DraftSettings
from foredraft.integration.train.writing import Prompt, chat_opening

CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]


def letters(text: str) -> list[int]:
    return byte_tokenizer()(text)["input_ids"]


def prepare(
    folder: Path, settings: DraftSettings, config: Config, load: Callable[[], Target]
) -> list[Sample]:
    return prepare_data(folder, settings, config, read_data_files(settings.data).lines, load)


def test_each_kind_of_line_is_encoded(
    write_lines: Callable[..., str], chat_tokenizer: PreTrainedTokenizerFast
) -> None:
    rows = [
        {"text": "abc"},
        {"messages": CHAT},
        {"messages": CHAT[:1]},
        {"prompt": "hi"},
        {"turns": ["hi", "x"]},
    ]
    lines = read_data_files([write_lines(*rows, "")]).lines
    text, answered, asked, prompt, turns = (
        encode_line(line, index, chat_tokenizer) for index, line in enumerate(lines)
    )
    assert text == Sample(0, letters("abc"), prompt_len=0, loss_start=0)
    assert answered == Sample(1, letters("u:hi\na:ho\n"), prompt_len=7, loss_start=7)
    assert asked == Prompt(2, letters("u:hi\na:"), loss_start=2)
    assert prompt == Prompt(3, letters("u:hi\na:"), loss_start=2)
    assert turns == Prompt(4, letters("u:hi\na:"), loss_start=2)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "a", "prompt": "b"}, "needs one of text, messages, prompt, turns; it has text, prompt"),
        ({"question": "a"}, "it has none of them"),
        ("{", "not JSON"),
        pytest.param('{"text": ' + "1" * 5000 + "}", "not JSON: Exceeds the limit", id="digits"),
        pytest.param("[" * 100_000, "nested too deeply", id="nested"),
        ([1], "must be a JSON object"),
        ({"text": " "}, "text must be a text that is not empty"),
        ({"text": 3}, "text must be a text"),
        ({"turns": []}, "turns must be a list"),
        ({"messages": [{"role": "boss", "content": "a"}]}, "role must be one of system, user, assistant"),
        ({"messages": [{"role": "system", "content": "a"}]}, "the last message must be"),
        ({"messages": [{"role": "user"}]}, "content must be a text"),
        ({"text": "\ud800"}, "not valid text in UTF-8"),
    ],
)
def test_a_bad_line_is_refused_with_file_and_line(
    write_lines: Callable[..., str], row: object, reason: str
) -> None:
    path = write_lines({"text": "good"}, row)
    with pytest.raises(UserError, match="line 2: ") as caught:
        read_data_files([path])
    assert path in str(caught.value)
    assert reason in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "abc"}\r\n{"text": "d\xe2\x80\xa8e"}')
    assert [line.text for line in read_data_files([str(path)]).lines] == ["abc", "d\u2028e"]


def test_a_pipe_is_read_once(tmp_path: Path, write_lines: Callable[..., str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    thread = threading.Thread(target=lambda: (tmp_path / "pipe").write_text('{"text": "abc"}\n'))
    thread.start()
    found = read_data_files([str(tmp_path / "pipe")])
    thread.join()
    assert [line.text for line in found.lines] == ["abc"]
    assert found.digests == read_data_files([write_lines({"text": "abc"})]).digests
    assert found.digests != read_data_files([write_lines({"text": "abd"})]).digests


@pytest.mark.parametrize("reason", ["roles must alternate", ""])
@pytest.mark.parametrize("messages", [CHAT, CHAT[:1]])
def test_a_template_that_refuses_a_chat_is_named_with_the_line(
    write_lines: Callable[..., str], messages: list[dict[str, str]], reason: str
) -> None:
    tokenizer = byte_tokenizer(f"{{{{ raise_exception('{reason}') }}}}")
    path = write_lines({"text": "good"}, {"messages": messages})
    line = read_data_files([path]).lines[1]
    expected = f"{path}, line 2: prompt: the model's chat template refuses it: {reason or 'TemplateError'}"
    with pytest.raises(UserError, match=expected):
        encode_line(line, 1, tokenizer)


def test_a_template_that_refuses_one_turn_of_a_user_cannot_write_prompts() -> None:
    with pytest.raises(UserError, match="chat template refuses it: no"):
        chat_opening(byte_tokenizer("{{ raise_exception('no') }}"))


def test_files_that_hold_nothing_or_are_not_there_are_refused(write_lines: Callable[..., str]) -> None:
    with pytest.raises(UserError, match="is empty"):
        read_data_files([write_lines("", " ")])
    with pytest.raises(UserError, match="cannot be read"):
        read_data_files(["nowhere.jsonl"])


def test_the_target_answers_what_ends_with_the_user(
    tmp_path: Path, toy_config: Config, write_lines: Callable[..., str]
) -> None:
    settings = DraftSettings(data=(write_lines({"text": "abc"}, {"prompt": "hi"}),), max_response_tokens=5)
    path = tmp_path / "given.jsonl"
    text, answer = prepare(tmp_path, settings, toy_config, lambda: load_target(toy_config))
    assert text.token_ids == letters("abc")
    assert answer.token_ids[:7] == letters("u:hi\na:")
    assert 1 <= len(answer.token_ids) - answer.prompt_len <= 5
    assert read_samples(path) == [text, answer]


def test_the_engine_grows_with_the_longest_prompt(
    tmp_path: Path, toy_config: Config, write_lines: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of prompts with 455, 105 and 605 tokens, the last one is longer than the model's 512 positions."""
    sizes = []
    build = data.build_engine

    def recorded(config: Config, target: Target) -> EmbeddedEngine:
        sizes.append(config.engine.max_model_len)
        return build(config, target)

    monkeypatch.setattr(data, "build_engine", recorded)
    path = write_lines(*({"prompt": "x" * length} for length in (450, 100, 600)))
    samples = prepare(
        tmp_path,
        DraftSettings(data=(path,), max_response_tokens=5),
        toy_config,
        lambda: load_target(toy_config),
    )
    assert [sample.prompt_len for sample in samples] == [455, 105]
    assert sizes == [460]


@pytest.mark.parametrize(("longest", "named"), [(2048, 512), (100, 101)])
def test_prompts_that_are_all_too_long_are_said_to_be(
    tmp_path: Path,
    toy_config: Config,
    write_lines: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    longest: int,
    named: int,
) -> None:
    monkeypatch.setattr(data, "LONGEST_PROMPT", longest)
    settings = DraftSettings(data=(write_lines(*({"prompt": "x" * 600} for _ in range(3))),))
    with pytest.raises(UserError, match=f"--data: all 3 prompts are too long: {named} tokens or more"):
        prepare(tmp_path, settings, toy_config, lambda: load_target(toy_config))


def test_an_interrupt_says_what_is_lost(
    tmp_path: Path,
    toy_config: Config,
    write_lines: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(data, "write_prompts", interrupted)
    monkeypatch.setattr(data, "write_responses", interrupted)
    load = lambda: load_target(toy_config)  # noqa: E731
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path, DraftSettings(), toy_config, load)
    assert "not saved: the texts from 0 to 191; the same command" in capsys.readouterr().err
    given = write_lines({"text": "a"}, {"prompt": "b"})
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path, DraftSettings(data=(given,)), toy_config, load)
    assert "not saved: the answers from 0 to 1; the same command" in capsys.readouterr().err


def test_a_rerun_reads_only_what_is_missing(
    tmp_path: Path, toy_config: Config, write_lines: Callable[..., str]
) -> None:
    settings = DraftSettings(data=(write_lines(*({"text": f"text {n}"} for n in range(4))),))
    path = tmp_path / "given.jsonl"
    load = lambda: load_target(toy_config)  # noqa: E731
    whole = prepare(tmp_path, settings, toy_config, load)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    assert prepare(tmp_path, settings, toy_config, load) == whole
    assert prepare(tmp_path, settings, toy_config, pytest.fail) == whole


def test_the_target_writes_until_there_are_enough_tokens(
    tmp_path: Path, toy_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "CHUNK", 8)
    settings = DraftSettings(write_tokens=1500, max_response_tokens=8)
    path, target = tmp_path / "written.jsonl", load_target(toy_config)
    whole = prepare(tmp_path, settings, toy_config, lambda: target)
    assert sum(len(sample.token_ids) for sample in whole) >= 1500
    assert all(sample.token_ids[:2] == letters("u:") and sample.loss_start == 2 for sample in whole)
    assert max(sample.index for sample in whole) >= 8, (
        "one chunk must not have been enough for the next check"
    )
    first_chunk = sum(sample.index < 8 for sample in whole)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:first_chunk]))
    assert prepare(tmp_path, settings, toy_config, lambda: target) == whole
    assert CHUNK == 192, "the samples of earlier runs were numbered in chunks of this size"


def test_a_target_that_never_ends_a_prompt_is_refused(
    tmp_path: Path, toy_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "write_prompts", lambda engine, indices, seed: [])
    with pytest.raises(UserError, match="wrote no usable prompt in 768 tries"):
        prepare(tmp_path, DraftSettings(), toy_config, lambda: load_target(toy_config))


def test_both_sources_together(
    tmp_path: Path, toy_config: Config, write_lines: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the target writes by itself comes first, so that more data later leaves its features in place."""
    monkeypatch.setattr(data, "CHUNK", 8)
    given = write_lines({"text": "abc"}, {"text": "abcd"})
    settings = DraftSettings(data=(given,), write_tokens=100, max_response_tokens=8)
    samples = prepare(tmp_path, settings, toy_config, lambda: load_target(toy_config))
    assert samples == read_samples(tmp_path / "written.jsonl") + read_samples(tmp_path / "given.jsonl")
    assert [sample.token_ids for sample in samples[-2:]] == [letters("abc"), letters("abcd")]
    assert len(samples) > 2


def test_a_full_disk_is_the_users_error(
    tmp_path: Path, toy_config: Config, write_lines: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(data, "append_samples", full)
    settings = DraftSettings(data=(write_lines({"text": "abc"}),))
    with pytest.raises(UserError, match=r"given\.jsonl cannot be written: No space left"):
        prepare(tmp_path, settings, toy_config, lambda: load_target(toy_config))


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ([], "empty"),
        ([Sample(n, [1, 2, 3], prompt_len=2, loss_start=1) for n in range(50)], "at most one token"),
        ([Sample(0, [1, 2, 3], prompt_len=1, loss_start=1)], "none of them is left to train on"),
        ([Sample(1, [1, 2, 3], prompt_len=1, loss_start=1)], "none of them is left to hold out"),
    ],
)
def test_data_that_nothing_can_be_learned_from_is_refused(samples: list[Sample], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        check_usable(samples, cut(samples))
