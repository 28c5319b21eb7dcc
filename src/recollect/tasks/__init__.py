"""The kinds of runs, by name."""

from __future__ import annotations

from recollect.core.validate import check_choice
from recollect.runs.config import PAIR_TASKS, TASKS
from recollect.tasks.caption import CaptionTask
from recollect.tasks.language import LanguageTask
from recollect.tasks.task import Task
from recollect.tasks.translate import TranslateTask


def task_named(name: str) -> Task:
    """Give a task; refuse a name that there is not."""
    check_choice("task", name, TASKS)
    tasks: dict[str, Task] = {"language": LanguageTask(), "caption": CaptionTask()}
    tasks |= {pairs: TranslateTask(pairs) for pairs in PAIR_TASKS}
    return tasks[name]
