"""From a run, a pretrained model, a model or a layer and what it reads to a `Subject`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recollect.core.types import JsonObject
from recollect.data.error import DataError
from recollect.data.images.pictures import open_pictures
from recollect.data.matches.matches import encode_match, shown_symbols
from recollect.data.series.calendar_features import calendar_features
from recollect.data.series.series_data import SeriesFacts, facts_of, scaled_rows
from recollect.data.series.series_table import SeriesTable, read_series
from recollect.data.synthetic.series_generators import generate_series, is_generated_series
from recollect.data.text.line_tokenizer import is_mostly_han
from recollect.generation.captions import caption, patient
from recollect.generation.settings import Search
from recollect.generation.translation import TokenizerPair, translate_encoded
from recollect.inspection.gap_subject import GapSubject
from recollect.inspection.label_subject import ClassifierSubject, TaggerSubject
from recollect.inspection.language_subject import LanguageSubject, MaskedSubject
from recollect.inspection.layer_subject import LayerSubject
from recollect.inspection.match_subject import MatchSubject
from recollect.inspection.rating_subject import RatingSubject
from recollect.inspection.series_subject import SeriesSubject
from recollect.inspection.source_subject import CaptionSubject, TranslatorSubject
from recollect.inspection.subject import Subject, device_of, texts_of
from recollect.inspection.trace import Array
from recollect.models.captioning import Captioner
from recollect.models.classification import Classifier
from recollect.models.context_free import BagOfWords, Majority
from recollect.models.forecasting import Forecaster
from recollect.models.gap_filling import GapFiller
from recollect.models.masked import MaskedModel
from recollect.models.matching import Matcher
from recollect.models.ngram_bag import BagOfNGrams
from recollect.models.recommendation import Recommender
from recollect.models.tagging import Tagger
from recollect.models.translation import Translator
from recollect.pretrained.load import Pretrained
from recollect.runs.embed import open_model
from recollect.runs.run import Run
from recollect.tasks.match import asked

LONGEST_TARGET = 60  # symbols of a target that is searched for


@dataclass(frozen=True)
class Opened:
    """A model, what belongs to it, and its facts."""

    model: Any
    assets: Mapping[str, Any] = field(default_factory=dict)
    task: Any = None
    facts: JsonObject = field(default_factory=dict)


def open_source(source: Any, tokenizer: Any = None, labels: Sequence[str] | None = None) -> Opened:
    """Return the model of a run, of its folder, of a pretrained model, or a model itself."""
    if isinstance(source, Opened):
        return source
    if isinstance(source, str | Path):
        source = open_model(source, device="cpu")
    if isinstance(source, Run):
        named = {"name": source.folder.name, "family": source.config().family, "task": source.task.name}
        return Opened(source.model, source.assets, source.task, named)
    if isinstance(source, Pretrained):
        source, tokenizer = source.model, source.tokenizer
    given = {"tokenizer": tokenizer, "labels": labels}
    family = str(getattr(getattr(source, "config", None), "family", type(source).__name__))
    facts: JsonObject = {"name": family, "family": family, "task": None}
    return Opened(source, {name: value for name, value in given.items() if value is not None}, None, facts)


def subject_of(opened: Opened, inputs: Any, model: Any = None, **options: Any) -> Subject:
    """Return what is traced; `model` replaces the one opened, and `options` are those of the subject."""
    model = opened.model if model is None else model
    own = getattr(opened.task, "subject", None)
    if own is not None:
        made: Subject = own(model, opened.assets, inputs)
        return made
    make = next((make for kind, make in SUBJECTS.items() if isinstance(model, kind)), None)
    if make is None:
        if not hasattr(model, "initial_memory"):
            raise TypeError(f"model: got a {type(model).__name__}, expected a run, a model of recollect, or its layers")
        make = _layer if model.width is not None else _language
    return make(model, opened, inputs, options)


def _tokens(tokenizer: Any, text: str) -> tuple[Any, list[str]]:
    """Return the ids of a text, and each one's own text."""
    ids = tokenizer.encode(text)
    unknown = getattr(tokenizer, "unknown_in", None)
    strange = unknown(text) if unknown is not None else {}
    if len(ids) and strange and sum(strange.values()) >= len(ids):
        raise DataError(f"text: none of its symbols is known to this model, such as {next(iter(strange))!r}")
    texts = texts_of(tokenizer, ids)
    if strange and len(ids) == len(text):  # characters: the ones that are unknown are shown as they were typed
        texts = list(text)
    return ids, texts


def _language(model: Any, opened: Opened, inputs: Any, options: JsonObject) -> Subject:
    tokenizer = opened.assets.get("tokenizer")
    kind = MaskedSubject if isinstance(model, MaskedModel) else LanguageSubject
    if isinstance(inputs, str):
        if tokenizer is None:
            raise ValueError("tokenizer: got none for a text, expected one, as in rc.inspect(model, text, tokenizer=…)")
        ids, texts = _tokens(tokenizer, inputs)
        return kind(model, ids, texts, tokenizer, **options)
    ids = np.asarray(inputs, dtype=np.int64).reshape(-1)
    texts = [str(i) for i in ids] if tokenizer is None else [tokenizer.decode([int(i)]) for i in ids]
    return kind(model, ids, texts, tokenizer, **options)


def _layer(model: Any, opened: Opened, inputs: Any, options: JsonObject) -> Subject:
    dtype = next((p.dtype for p in model.parameters()), torch.get_default_dtype())
    x = torch.as_tensor(inputs, device=device_of(model)).to(dtype)
    if x.dim() != 2 or x.shape[1] != model.width:
        raise ValueError(
            f"inputs: got shape {tuple(x.shape)}, expected (T, {model.width}): vectors that the layer reads"
        )
    return LayerSubject(model, x, **_some(options, "explain", "longest"))


def _labelled(kind: Callable[..., Subject]) -> Callable[..., Subject]:
    def make(model: Any, opened: Opened, inputs: Any, options: JsonObject) -> Subject:
        coder, names = opened.assets.get("tokenizer"), opened.assets.get("labels")
        labels = getattr(names, "names", names) or [str(i) for i in range(model.width_out)]
        options = _some(options, "explain", "longest")
        if not isinstance(inputs, str):
            ids = np.asarray(inputs)
            return kind(model, ids, [str(i) for i in range(len(ids))], labels, **options)
        if coder is None:
            raise ValueError("tokenizer: got none for a text, expected one, as in rc.inspect(model, text, tokenizer=…)")
        if kind is TaggerSubject:
            words = list(inputs.strip()) if is_mostly_han(inputs) and " " not in inputs.strip() else inputs.split()
            return kind(model, coder.encode_words(words) if words else np.zeros(0, int), words, labels, **options)
        return kind(model, coder.encode(inputs), coder.symbols(inputs), labels, **options)

    return make


def _majority(model: Majority, opened: Opened, inputs: Any, options: JsonObject) -> Subject:
    return _labelled(TaggerSubject if model.reads_words else ClassifierSubject)(model, opened, inputs, options)


def _translator(model: Translator, opened: Opened, inputs: Any, options: JsonObject) -> Subject:
    names = ("source_tokenizer", "target_tokenizer")
    missing = [name for name in names if name not in opened.assets]
    if missing:
        raise ValueError(f"model: got a translator without its {missing[0]}, expected a run, as in rc.load(RUN)")
    pair = TokenizerPair(*(opened.assets[name] for name in names))
    source, target = inputs if isinstance(inputs, tuple) else (inputs, None)
    if not source.strip():
        raise DataError("source: empty; give a line to translate")
    ids, texts = pair.source.encode(source), pair.source.symbols(source)
    if target is None:
        target = translate_encoded(model, pair.target, [ids], Search(width=1, tokens=LONGEST_TARGET))[0][0].text
    options = _some(options, "explain", "longest", "candidates")
    return TranslatorSubject(model, ids, texts, pair.target.encode(target), pair.target, **options)


def _captioner(model: Captioner, opened: Opened, inputs: Any, options: JsonObject) -> Subject:
    tokenizer = opened.assets.get("target_tokenizer")
    if tokenizer is None:
        raise ValueError("model: got a captioner without its target_tokenizer, expected a run, as in rc.load(RUN)")
    picture, target = inputs if isinstance(inputs, tuple) else (inputs, None)
    if isinstance(picture, str | Path):
        picture = open_pictures(str(picture), model.config.size, "as those that the run was trained on").pixels[0]
    picture = np.asarray(picture)
    if target is None:
        target = caption(model, tokenizer, picture[None], patient(1, LONGEST_TARGET))[0][0].text
    options = _some(options, "explain", "candidates")
    return CaptionSubject(model, picture, tokenizer.encode(target), tokenizer, **options)


def _forecaster(model: Forecaster, opened: Opened, inputs: Any, options: JsonObject) -> Subject:
    count = min(options.get("explain", 3), 3)
    if not isinstance(inputs, str):
        window = torch.as_tensor(np.asarray(inputs), dtype=model.offsets.dtype, device=model.offsets.device)
        names = [str(t) for t in range(len(window) + model.config.horizon)]
        return SeriesSubject(model, window, names[: len(window)], names[len(window) :], explain=count)
    facts: SeriesFacts = opened.assets["series"]
    table = _table(opened.task, inputs)
    scales = facts_of(table, facts)
    one, lookback = table.series[0], model.config.lookback
    if len(one.stamps) < lookback:
        got = f"{table.source}: got {len(one.stamps)} rows, expected {lookback}"
        raise DataError(f"{got}, which the model reads; give more of its history")
    rows = scaled_rows(table, scales)
    mine = rows.series == 0
    stamps = [*one.stamps[-lookback:], *table.frequency.after(int(one.stamps[-1]), model.config.horizon)]
    names = [table.frequency.text(int(stamp)) for stamp in stamps]
    marks = torch.from_numpy(calendar_features(np.array(stamps), table.frequency)) if scales.calendar else None
    observed = None if rows.observed is None else rows.observed[mine][-lookback:]
    window = rows.values[mine][-lookback:].to(model.offsets.device)
    return SeriesSubject(
        model,
        window,
        names[:lookback],
        names[lookback:],
        observed=observed,
        calendar=marks,
        scale=scales.scale(one.name),
        explain=count,
    )


def _filler(model: GapFiller, opened: Opened, inputs: Any, options: JsonObject) -> Subject:
    count = options.get("explain", 8)
    if not isinstance(inputs, str):
        values = np.asarray(inputs, dtype=np.float32)  # (L, C), NaN where missing
        return _gap(model, values, [str(t) for t in range(len(values))], None, count)
    table, task = _table(opened.task, inputs), opened.task
    one = table.series[0]
    scale = facts_of(table, opened.assets["series"]).scale(one.name)
    gap, context = task.options.gap, task.options.context
    missing = np.flatnonzero(np.isnan(one.values).all(1))
    first = missing[0] if len(missing) else len(one.values) - context - gap  # without a gap: one is made
    rows = slice(max(first - context, 0), first + gap + context)
    scaled = ((one.values[rows] - scale[0]) / scale[1]).astype(np.float32)
    if not len(missing):
        scaled[first - rows.start : first - rows.start + gap] = np.nan
    stamps = [table.frequency.text(int(stamp)) for stamp in one.stamps[rows]]
    return _gap(model, scaled, stamps, scale, count)


def _gap(model: GapFiller, values: Array, stamps: list[str], scale: tuple[Array, Array] | None, count: int) -> Subject:
    window = torch.from_numpy(values).to(device_of(model))
    observed = ~window.isnan()
    if bool(observed.any(1).all()):
        raise DataError("values: got no row without values, expected a gap to fill: NaN in every channel of a row")
    return GapSubject(model, window.nan_to_num(), observed, stamps, scale=scale, explain=count)


def _matcher(model: Matcher, opened: Opened, inputs: Any, options: JsonObject) -> Subject:
    count = options.get("explain", 1)
    if not isinstance(inputs, str | tuple):
        ids = np.asarray(inputs, dtype=np.int64)
        return MatchSubject(model, ids, [str(i) for i in ids], explain=count)
    coder, kind = opened.assets["tokenizer"], opened.assets["kind"]
    match = encode_match(asked(inputs, kind, "input"), coder, kind)
    return MatchSubject(model, match.ids[0], shown_symbols(match, coder), explain=count)


def _table(task: Any, source: str) -> SeriesTable:
    if is_generated_series(source):
        return generate_series(source)
    names = ("target", "time", "series", "gaps")
    return read_series(source, **{name: getattr(task.options, name) for name in names})


def _recommender(model: Recommender, opened: Opened, inputs: Any, options: JsonObject) -> Subject:
    if not isinstance(inputs, str):
        user, item = (int(i) for i in inputs)
        return RatingSubject(model, user, item)
    name, _, item_name = (part.strip() for part in inputs.partition(","))
    users, items = opened.assets["users"], opened.assets["items"]
    for side, names, given in (("user", users, name), ("item", items, item_name)):
        if not names.id(given):
            raise DataError(f"{given!r}: not a {side} that the run knows; expected user,item of its training part")
    return RatingSubject(model, users.id(name), items.id(item_name), (name, item_name))


def _some(options: JsonObject, *names: str) -> JsonObject:
    return {name: options[name] for name in names if name in options}


SUBJECTS: dict[type, Callable[..., Subject]] = {
    Classifier: _labelled(ClassifierSubject),
    BagOfWords: _labelled(ClassifierSubject),
    BagOfNGrams: _labelled(ClassifierSubject),
    Majority: _majority,
    Tagger: _labelled(TaggerSubject),
    Translator: _translator,
    Captioner: _captioner,
    Forecaster: _forecaster,
    GapFiller: _filler,
    Matcher: _matcher,
    Recommender: _recommender,
}
