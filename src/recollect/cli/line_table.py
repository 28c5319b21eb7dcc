"""The tables of `recollect models`: all models in 80 columns, or everything about one."""

from __future__ import annotations

from rich.table import Table

from recollect.models.line import LINE, Station

HEADS = {
    "en": ("year", "model", "idea", "memory", "-m for"),
    "zh": ("年份", "模型", "核心思想", "记忆增长", "可用任务"),
}
GROWTH = {
    "en": {"none": "none", "constant": "constant", "saturates": "saturates", "linear": "linear"},
    "zh": {"none": "无", "constant": "恒定", "saturates": "饱和", "linear": "线性"},
}
DETAILS = {
    "en": ("model", "year", "idea", "paper", "layer", "memory", "bytes grow", "a step costs", "-m for"),
    "zh": ("模型", "年份", "核心思想", "论文", "层", "记忆", "字节增长", "每步代价", "可用任务"),
}
TASKS = 10  # columns: a task's name on each line, so that the idea has 30 of 80
LAYER_ONLY = {"en": "none: a layer, or part of a model", "zh": "无：它是一个层，或模型的一部分"}


def line_table(lang: str) -> Table:
    """Return all models, a row each."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column, head in enumerate(HEADS[lang]):
        table.add_column(head, overflow="fold", no_wrap=column in (0, 1, 3), max_width=TASKS if column == 4 else None)
    for station in LINE:
        growth = GROWTH[lang][station.growth]
        tasks = ", ".join(station.tasks)
        table.add_row(str(station.year), station.name, station.idea[lang], growth, tasks)
    return table


def station_table(station: Station, lang: str) -> Table:
    """Return everything about one model, a line each."""
    table = Table(box=None, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    words = (station.name, str(station.year), station.idea[lang], station.paper, station.layer, station.memory)
    cost = (GROWTH[lang][station.growth], station.step, ", ".join(station.tasks) or LAYER_ONLY[lang])
    for head, value in zip(DETAILS[lang], (*words, *cost), strict=True):
        table.add_row(head, value)
    return table
