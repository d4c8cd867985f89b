"""One training step as it is logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from seal.interface.cues import Omega
from seal.interface.evolve import Event
from seal.records.trajectory import TrajectoryRecord


@dataclass(frozen=True)
class StepReport:
    """Everything that is logged about one step."""

    step: int
    records: tuple[TrajectoryRecord, ...]
    labels: Mapping[str, int]
    rho: Mapping[str, float]
    w: tuple[float, ...]
    spread: int
    dropped: int
    groups_dropped: int
    infra: Mapping[str, int]
    omega: Omega | None
    omega_next: Mapping[str, Any] | None
    events: tuple[Event, ...]
    profile: Mapping[str, Any]
    logp_diff_max: float = 0.0
    logp_diff_mean: float = 0.0
    seal_seconds: float = 0.0

    def with_figures(self, **figures: float) -> StepReport:
        """The same report with measured figures filled in."""
        return replace(self, **figures)

    @property
    def shares(self) -> dict[str, float]:
        """Label counts over their sum."""
        total = sum(self.labels.values())
        return {label: count / total for label, count in self.labels.items()}

    @property
    def rewards(self) -> list[float]:
        return [record.score for record in self.records if record.usable]

    @property
    def stops(self) -> dict[str, int]:
        """How the trajectories that infrastructure did not fail stopped."""
        return dict(Counter(record.stop for record in self.records if record.infra is None))

    @property
    def token_drift(self) -> dict[str, int]:
        """Of the trajectories that could be compared, those whose text has other tokens, and how many tokens."""
        found = [record.drift for record in self.records if record.drift is not None]
        return {"compared": len(found), "trajectories": sum(map(bool, found)), "tokens": sum(found)}

    @property
    def rebuilt(self) -> int:
        """How often episodes were opened again because their service had lost them."""
        return sum(record.rebuilt for record in self.records)

    def line(self, seconds: Mapping[str, float]) -> dict[str, Any]:
        """The step's line of `steps.jsonl`; seconds by stage come from the trainer."""
        rewards, w = self.rewards, self.w
        return {
            "step": self.step,
            "reward_mean": sum(rewards) / len(rewards) if rewards else None,
            "pass_share": sum(reward >= 1 for reward in rewards) / len(rewards) if rewards else None,
            "trajectories": len(self.records),
            "groups_with_spread": self.spread,
            "trajectories_dropped": self.dropped,
            "groups_dropped": self.groups_dropped,
            "stops": self.stops,
            "label_counts": dict(self.labels),
            "label_shares": self.shares,
            "rho": dict(self.rho),
            "w": {"mean": sum(w) / len(w), "min": min(w), "max": max(w)} if w else None,
            "omega": self.omega
            and {"version": self.omega.version, "digest": self.omega.digest, "cues": list(self.omega.cues)},
            "events": [event.to_json() for event in self.events],
            "seconds": dict(seconds),
            "seal_seconds": round(self.seal_seconds, 4),
            "logp_diff_max": self.logp_diff_max,
            "logp_diff_mean": self.logp_diff_mean,
            "token_drift": self.token_drift,
            "episodes_rebuilt": self.rebuilt,
            "infra": dict(self.infra),
        }

    def metrics(self) -> dict[str, float]:
        """Scalars for verl's loggers."""
        figures = {
            "seal/groups_with_spread": self.spread,
            "seal/groups_dropped": self.groups_dropped,
            "seal/trajectories_dropped": self.dropped,
            "seal/episodes_rebuilt": self.rebuilt,
            "seal/seconds": self.seal_seconds,
        }
        figures |= {f"seal/token_drift/{name}": count for name, count in self.token_drift.items()}
        figures |= {f"seal/stop/{stop}": count for stop, count in self.stops.items()}
        if self.w:
            figures |= {
                "seal/w/mean": sum(self.w) / len(self.w),
                "seal/w/min": min(self.w),
                "seal/w/max": max(self.w),
            }
        figures |= {f"seal/label_share/{label}": share for label, share in self.shares.items()}
        figures |= {f"seal/rho/{label}": value for label, value in self.rho.items()}
        figures |= {f"seal/infra/{cause}": count for cause, count in self.infra.items()}
        if self.omega is not None:
            figures |= {"seal/omega/version": self.omega.version, "seal/omega/cues": len(self.omega.cues)}
        return figures
