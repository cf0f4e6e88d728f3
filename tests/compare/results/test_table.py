import io
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console

from foredraft.integration.compare.offline.closed_loop import BlockRun
from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.output_check import Difference
from foredraft.integration.compare.plan import Cell
from foredraft.integration.compare.results.rows import result_rows
from foredraft.integration.compare.results.table import print_results

MakeRun = Callable[..., BlockRun]


def printed(blocks: list[MeasuredBlock]) -> str:
    console = Console(file=io.StringIO(), width=80)
    print_results(result_rows(blocks), "toy, float32, a [fast] CPU", console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def measured(make_run: MakeRun, workload: str, difference: Difference | None) -> MeasuredBlock:
    return MeasuredBlock(
        Cell(workload, 8, 0.7),
        ["[red]prompt"],
        {"none": make_run(1.0), "ngram": make_run(0.5, drafted=10, accepted=6, passes=50)},
        {"none": [None], "ngram": [difference]},
    )


def test_one_table_per_workload_and_one_line_per_row(make_run: MakeRun) -> None:
    text = printed([measured(make_run, "[bold]chat", None), measured(make_run, "prose", None)])
    assert "workload [bold]chat" in text, "names are not markup"
    assert "workload prose" in text
    assert "toy, float32, a [fast] CPU" in text
    lines = [line.split() for line in text.splitlines() if " ngram " in line]
    assert lines == [["8", "0.7", "5", "ngram", "200.0", "2.00x", "60%", "2.00", "equal"]] * 2
    assert "reading the prompts included" in " ".join(text.split())


def test_a_difference_is_told_with_its_place(make_run: MakeRun) -> None:
    text = " ".join(printed([measured(make_run, "chat", Difference(3, 0.25, 0.01, False))]).split())
    assert "DIFFERS" in text
    assert (
        "chat, ngram, batch 8, temperature 0.7: prompt [red]prompt differs at output token 3: "
        "logit gap 0.25, rounding 0.01" in text
    )


def test_a_speedup_from_few_blocks_says_so(make_run: MakeRun) -> None:
    one = measured(make_run, "chat", None)
    assert " ".join(printed([one, one]).split()).count("rests on 2 blocks") == 1
    assert "rests on one block" in " ".join(printed([one]).split())
    assert "rests on" not in " ".join(printed([one] * 3).split())


def test_proposer_faults_are_told(make_run: MakeRun) -> None:
    block = measured(make_run, "chat", None)
    block.runs["ngram"] = replace(block.runs["ngram"], num_proposer_faults=4)
    assert "ngram, batch 8, temperature 0.7: the proposer failed 4 times" in " ".join(
        printed([block]).split()
    )


def test_nothing_measured_prints_nothing() -> None:
    assert printed([]) == ""
