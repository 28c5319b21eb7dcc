"""The task model: feature model, query model, attention and output model (Brauwers & Frasincar 2021).

F = feature(x);  K, V from F;  q = query(F);  e = score(q, K);  a = align(e);  c = a V;  y = output(c)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.types import AnyLayer, TensorOptions
from recollect.core.validate import ContractError, fill_invalid
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.coattention import mean_of
from recollect.layers.attention.multi_head import MultiHead, MultiHop


class TaskModel(nn.Module):
    """Attention composed of four given models.

    `feature` is a layer that reads the inputs; `query` maps features and `valid` to queries (B, T, D_q);
    `attend` is an `Attend`, `MultiHead` or `MultiHop`; `output` maps contexts (B, T, V) to the answer. With one query
    it is a classifier of sequences, as in

        TaskModel(Stack(Embedding(V, D), GRU(D, D)), LastStep(), Attend(Dot(D, D)), nn.Linear(D, classes))

    >>> reader = rc.Stack(rc.Embedding(20, 8), rc.GRU(8, 8))
    >>> model = rc.TaskModel(reader, rc.LastStep(), rc.Attend(rc.Dot(8, 8)), torch.nn.Linear(8, 3))
    >>> model(torch.tensor([[1, 2, 3], [4, 5, 6]])).shape  # two sequences, three classes
    torch.Size([2, 1, 3])
    """

    def __init__(
        self,
        feature: AnyLayer,
        query: nn.Module,
        attend: Attend | MultiHead | MultiHop,
        output: nn.Module,
    ) -> None:
        super().__init__()
        if feature.width_out != attend.source_width:
            raise ContractError(
                "attend", f"source_width {attend.source_width}", f"{feature.width_out}, the feature model's width_out"
            )
        self.feature = feature
        self.query = query
        self.attend = attend
        self.output = output

    def forward(self, x: Tensor, *, valid: Tensor | None = None) -> Tensor:
        """Return the answers y (B, T, …), one for each query, from x (B, S, D) or ids (B, S)."""
        features, _ = self.feature(x, valid=valid)
        context = self.attend(self.query(features, valid), self.attend.remember(features, valid))
        return self.output(context)


class LastStep(nn.Module):
    """The query is the last feature of each row: (B, 1, D); zeros for an empty row.

    >>> features, valid = torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[True, True, False]])
    >>> rc.LastStep()(features, valid).tolist()
    [[[2.0]]]
    """

    def forward(self, features: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return each row's last valid step."""
        if valid is None:
            return features[:, -1:]
        last = (valid.sum(1) - 1).clamp(min=0)[:, None, None].expand(-1, 1, features.shape[2])
        return fill_invalid(features, valid).gather(1, last)


class LearnedQuery(nn.Module):
    """The same `rows` learned queries for every sequence, (B, rows, D).

    >>> rc.LearnedQuery(8, rows=3)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(self, width: int, rows: int = 1, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        self.queries = nn.Parameter(nn.init.normal_(torch.empty(rows, width, **factory), std=width**-0.5))

    def forward(self, features: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the learned queries, expanded to the batch."""
        return self.queries.expand(len(features), -1, -1)


class MeanQuery(nn.Module):
    """A specialised query: the mean of each row's features, (B, 1, D), as in interactive co-attention.

    Of a row of one step it is `LastStep`.

    >>> features, valid = torch.tensor([[[1.0], [2.0], [9.0]]]), torch.tensor([[True, True, False]])
    >>> rc.MeanQuery()(features, valid).tolist()
    [[[1.5]]]
    """

    def forward(self, features: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the mean of each row's valid steps."""
        return mean_of(features, valid)


class ContextQuery(nn.Module):
    """A specialised query: what another attention found in the same features, as in rotatory attention.

    q = attend_0(query(F));  with the same attention after it, this is `MultiHop` of two hops with H = 0 and W = I

    >>> query = rc.ContextQuery(rc.LearnedQuery(8), rc.Attend(rc.Dot(8, 8)))
    >>> query(torch.randn(2, 5, 8)).shape
    torch.Size([2, 1, 8])
    """

    def __init__(self, query: nn.Module, attend: Attend | MultiHead | MultiHop) -> None:
        super().__init__()
        self.query = query
        self.attend = attend

    def forward(self, features: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the contexts (B, T, V) of the first attention."""
        context: Tensor = self.attend(self.query(features, valid), self.attend.remember(features, valid))
        return context
