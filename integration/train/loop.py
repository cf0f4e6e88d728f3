"""Stage 4, the training."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foredraft.integration.errors import UserError
from foredraft.integration.interrupts import deferred_interrupts
from foredraft.integration.train.batches import Batch, shifted
from foredraft.integration.train.checkpoint import Place, load_checkpoint, save_checkpoint
from foredraft.integration.train.evaluate import held_out_acceptance
from foredraft.integration.train.losses import fused_loss
from foredraft.integration.train.progress import StageProgress
from foredraft.integration.train.schedule import learning_rate
from foredraft.integration.train.settings import TrainSettings
from foredraft.integration.train.student import Student
from foredraft.integration.train.train_log import LogEntry, TrainLog
from foredraft.integration.train.training_data import TrainingData

CHECKPOINT_EVERY_S = 120.0
EVALUATIONS = 10
MAX_GRAD_NORM = 1.0
ROLLOUT_WEIGHT = 0.5
"""What each further drafted token counts, against the one before it."""


class Trainer:
    """Trains a student; goes on from the newest checkpoint in ``folder``.

    Args:
        embedding: [V, H], the target's.
        head_ids: [S] int64, what the rows of the student's head stand for.
        autocast: whether products are made in bfloat16. The weights stay float32.
    """

    def __init__(
        self,
        folder: Path,
        settings: TrainSettings,
        student: Student,
        embedding: Tensor,
        head_ids: Tensor,
        data: TrainingData,
        *,
        autocast: bool,
    ) -> None:
        self.student = student
        self._folder = folder / "checkpoint"
        self._settings = settings
        self._embedding = embedding
        self._device = embedding.device
        self._head_ids = head_ids.to(self._device)
        self._data = data.part(held_out=False)
        self._held_out = data.part(held_out=True)
        self._autocast = torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=autocast)
        self._optimizer = make_optimizer(student)
        self._place = load_checkpoint(self._folder, student, self._optimizer)
        self.log = TrainLog(folder / "train_log.jsonl", self._place.step)
        self._losses: list[float] = []
        self._epoch: int | None = None
        self._batches: list[list[int]] = []

    def run(self) -> None:
        """Train until ``train_tokens`` are done.

        Raises:
            UserError: the loss is no number any more, or the disk is full; the last checkpoint is kept.
            KeyboardInterrupt: Ctrl-C or SIGTERM; the state is saved.
        """
        total = self._settings.train_tokens
        with (
            StageProgress("training", total, self._place.tokens) as progress,
            deferred_interrupts() as interrupts,
        ):
            if not self.log.entries:
                self._evaluate(learning_rate=0.0)
            saved_at = time.monotonic()
            while self._place.tokens < total and not interrupts.asked:
                self._advance(progress)
                if time.monotonic() - saved_at >= CHECKPOINT_EVERY_S:
                    self._save()
                    saved_at = time.monotonic()
            self._save()
            if interrupts.asked:
                print("saved; the same command goes on", file=sys.stderr)
                raise KeyboardInterrupt

    def _advance(self, progress: StageProgress) -> None:
        """One step, and the evaluation if one is due."""
        settings, place = self._settings, self._place
        if self._epoch != place.epoch:
            self._epoch = place.epoch
            self._batches = self._data.epoch(settings.batch_tokens, settings.seed, place.epoch)
        batches = self._batches
        batch = self._data.batch(batches[place.batch], self._device, response_only=False)
        tokens = place.tokens + batch.num_tokens
        rate = learning_rate(settings.learning_rate, min(1.0, tokens / settings.train_tokens))
        self._losses.append(self._step(batch, rate))
        last = place.batch + 1 == len(batches)
        self._place = Place(place.step + 1, tokens, place.epoch + last, 0 if last else place.batch + 1)
        if _tenth(tokens, settings.train_tokens) > _tenth(place.tokens, settings.train_tokens):
            self._evaluate(rate)
        progress.update(tokens, self._note())

    def _step(self, batch: Batch, rate: float) -> float:
        """Train on one batch; returns the loss of the first drafted token."""
        given = batch.given(self._embedding)
        states, target_states = batch.state_inputs, batch.target_states
        self._optimizer.zero_grad(set_to_none=True)
        first_loss = torch.zeros((), device=self._device)
        for turn in range(self._settings.rollout):
            with self._autocast:
                output = self.student(given, states)
            loss = self._loss(output.flatten(0, 1)[batch.places], target_states, batch.log_normalisers)
            (loss * ROLLOUT_WEIGHT**turn).backward()
            if turn == 0:
                first_loss = loss.detach()
            states = shifted(output.detach().float())
        norm = nn.utils.clip_grad_norm_(self.student.parameters(), MAX_GRAD_NORM)
        self._check_finite(first_loss.item(), norm.item())
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        return first_loss.item()

    def _loss(self, hidden: Tensor, target_states: Tensor, log_normalisers: Tensor) -> Tensor:
        settings = self._settings
        loss = fused_loss(hidden, target_states, log_normalisers, self.student.head_weight, settings.loss)
        if settings.state_loss > 0.0:
            loss = loss + settings.state_loss * F.smooth_l1_loss(hidden.float(), target_states.float())
        return loss

    def _check_finite(self, loss: float, grad_norm: float) -> None:
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            raise UserError(
                f"--learning-rate: the loss became {loss} (gradient {grad_norm}) in step "
                f"{self._place.step + 1}; the last good checkpoint is kept. Train again with a lower rate in "
                "another --out; written.jsonl, given.jsonl and features/ may be copied there"
            )

    def _evaluate(self, learning_rate: float) -> None:
        batches = [
            self._held_out.batch(places, self._device, response_only=True)
            for places in self._held_out.epoch(self._settings.batch_tokens, seed=0, epoch=0)
        ]
        found = held_out_acceptance(self.student, self._embedding, self._head_ids, batches, self._autocast)
        loss = sum(self._losses) / len(self._losses) if self._losses else None
        self._losses.clear()
        place = self._place
        self.log.add(LogEntry(place.step, place.tokens, loss, learning_rate, found.greedy, found.sampled))

    def _note(self) -> str:
        recent = self._losses[-20:]
        loss = f"loss {sum(recent) / len(recent):.3f}, " if recent else ""
        last = self.log.entries[-1]
        return (
            f"{loss}held-out acceptance {last.held_out_greedy:.3f} greedy, {last.held_out_sampled:.3f} drawn"
        )

    def _save(self) -> None:
        save_checkpoint(self._folder, self.student, self._optimizer, self._place)


def make_optimizer(student: Student) -> torch.optim.AdamW:
    """AdamW; only matrices decay."""
    parameters = [parameter for parameter in student.parameters() if parameter.requires_grad]
    groups = [
        {"params": [one for one in parameters if one.ndim >= 2], "weight_decay": 0.05},
        {"params": [one for one in parameters if one.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95))


def _tenth(tokens: int, total: int) -> int:
    return min(EVALUATIONS, tokens * EVALUATIONS // total)
