"""The five arrangements of inputs, states and outputs."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.inspection.diagram import begun
from recollect.inspection.trace import Trace
from recollect.inspection.words import Say
from recollect.views.picture import Picture


def arrangements(traces: Sequence[Trace], say: Say) -> Picture:
    """Return the five arrangements of inputs and outputs; that of the traced model is marked."""
    kind = str(traces[0].model.get("kind", "")) if traces else ""
    panels = (
        (say("one to one", "一对一"), 1, 1, [0], [0], say("a picture's class", "图像分类"), ()),
        (say("one to many", "一对多"), 1, 3, [0], [0, 1, 2], say("picture to caption", "看图说话"), ("caption",)),
        (
            say("many to one", "多对一"),
            3,
            3,
            [0, 1, 2],
            [2],
            say("text to label", "文本分类"),
            ("classify", "forecast"),
        ),
        (
            say("many to many, after", "多对多（先读后写）"),
            5,
            5,
            [0, 1, 2],
            [2, 3, 4],
            say("translation", "翻译"),
            ("translate",),
        ),
        (
            say("many to many, in step", "多对多（同步）"),
            3,
            3,
            [0, 1, 2],
            [0, 1, 2],
            say("tags, next words", "标注、逐词预测"),
            ("tag", "language", "masked", "fill"),
        ),
    )
    title = say("Five arrangements of inputs, states and outputs", "输入、状态与输出的五种组合")
    scene = begun(title, 920, 340)
    x = 30.0
    for name, low, count, inputs, outputs, use, kinds in panels:
        width = 44 * max(low, count) + 26
        is_own = kind in kinds
        centre = x + width / 2
        if is_own:
            scene.box(x - 8, 62, width + 16, 262, fill="raised", line="accent", radius=14)
        for i in range(count):
            at = x + 35 + 44 * i
            scene.box(at - 14, 166, 28, 36, fill="paper", line="accent", radius=5)
            if i:
                scene.arrow((at - 30, 184), (at - 14, 184), colour="accent")
            if i in inputs:
                scene.box(at - 14, 240, 28, 32, fill="#d7e6f2", line="blue", radius=5)
                scene.arrow((at, 240), (at, 203), colour="blue")
            if i in outputs:
                scene.box(at - 14, 96, 28, 32, fill="#d9ece4", line="green", radius=5)
                scene.arrow((at, 166), (at, 129), colour="green")
        scene.words(centre, 80, name, size=12.5, bold=True)
        scene.words(centre, 300, use, size=12, colour="soft")
        x += max(width, 8 * len(name)) + 22
    scene.width = x + 16
    return Picture(title, scene)
