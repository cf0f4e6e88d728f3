from pathlib import Path
from typing import Any

import pytest

from foredraft.integration.chat import chat_prompt_ids
from foredraft.integration.compare.offline.prompts import Prompt, encode_prompts, load_workloads
from foredraft.integration.embedded.build import Target
from foredraft.integration.errors import UserError
from foredraft.integration.workloads import WorkloadPrompt


class ChatTokenizer:
    chat_template = "{{ messages }}"

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> list[int]:
        assert options == {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
        return [len(message["content"]) for message in messages]


def test_messages_go_through_the_chat_template() -> None:
    messages = [{"role": "system", "content": "ab"}, {"role": "user", "content": "abc"}]
    assert chat_prompt_ids(ChatTokenizer(), messages) == [2, 3]


def test_without_a_template_the_text_is_encoded(toy_target: Target) -> None:
    assert chat_prompt_ids(toy_target.tokenizer, [{"role": "user", "content": "AB"}]) == [65, 66]


def test_the_first_turn_is_the_prompt(toy_target: Target) -> None:
    prompts = encode_prompts([WorkloadPrompt("p", "c", ("AB", "second"))], toy_target.tokenizer, 10)
    assert prompts == [Prompt("p", [65, 66])]


def test_a_prompt_without_room_to_generate_is_refused(toy_target: Target) -> None:
    with pytest.raises(UserError, match="'p' has 2 tokens"):
        encode_prompts([WorkloadPrompt("p", "c", ("AB",))], toy_target.tokenizer, 2)


def test_a_model_without_tokenizer_is_refused() -> None:
    with pytest.raises(UserError, match="no tokenizer"):
        encode_prompts([], None, 2)


def test_each_category_may_be_a_workload_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    categories = ["a", "b", "a"]
    path.write_text("".join(f'{{"category": "{name}", "turns": ["x"]}}\n' for name in categories))
    whole = load_workloads([str(path)], None, by_category=False)
    assert [len(prompts) for prompts in whole.values()] == [3]
    split = load_workloads([str(path)], None, by_category=True)
    assert {name: len(prompts) for name, prompts in split.items()} == {f"{path}/a": 2, f"{path}/b": 1}
