from pathlib import Path

import pytest

from foredraft.integration.errors import UserError
from foredraft.integration.traffic.records import TrafficRecord, read_traffic, record_line
from foredraft.integration.traffic.synthetic import synthetic_text


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "traffic.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_requests_come_in_order_of_arrival_from_0(tmp_path: Path) -> None:
    path = written(tmp_path, '{"prompt": "b", "arrival_s": 7.5}', "", '{"prompt_tokens": 3, "arrival_s": 5}')
    assert read_traffic(path) == [
        TrafficRecord(prompt_tokens=3, arrival_s=0.0),
        TrafficRecord(prompt="b", arrival_s=2.5),
    ]
    assert len(read_traffic(path, limit=1)) == 1


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    record = TrafficRecord(prompt='a "b"\u2028é', max_tokens=3, temperature=0.0, arrival_s=0.0)
    assert read_traffic(written(tmp_path, record_line(record).rstrip("\n"))) == [record]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([], "holds no request"),
        (["{"], "line 1: not JSON"),
        (['{"prompt": "a"}', "{}"], "line 2: .*needs messages, prompt or prompt_tokens"),
        (['{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}'], "exclude each other"),
        ([r'{"prompt": "a\ud800"}'], "line 1: prompt: .*lone surrogate"),
        (['{"prompt": "a", "max_token": 3}'], "line 1: max_token: "),
        (['{"prompt": "a", "temperature": -1}'], r"line 1: temperature: .*\(got -1\)"),
        (['{"prompt": "a", "arrival_s": NaN}'], r"line 1: arrival_s: .*\(got nan\)"),
        (['{"prompt_tokens": 0}'], r"line 1: prompt_tokens: .*\(got 0\)"),
        (['{"prompt": "a", "arrival_s": 1}', '{"prompt": "a"}'], "in every line or in none"),
    ],
)
def test_what_is_no_traffic_is_refused(tmp_path: Path, lines: list[str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        read_traffic(written(tmp_path, *lines))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--traffic: .*none\.jsonl"):
        read_traffic(tmp_path / "none.jsonl")


def test_synthetic_texts_are_as_long_as_asked_and_the_same_for_a_seed() -> None:
    text = synthetic_text(400, "1")
    assert len(text.split()) == 300
    assert text == synthetic_text(400, "1")
    assert text != synthetic_text(400, "2")
    assert len(synthetic_text(1, "1").split()) == 1
