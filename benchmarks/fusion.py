"""Claim: the fused gate costs at most 3 % on a ResNet-18 at batch 32 and at most 10 µs on a tiny MLP at batch 1.

Bare model and fused graph take turns in one run, so that a noisy machine disturbs both alike; the figure is the
ratio (or difference) of the medians over the rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import onnx
from zoo import resnet18, tiny_mlp

from models.classifier import Classifier
from models.fuse import fuse
from models.runtime import RuntimeOptions, Scorer, Session
from models.scores import FitData, fit_score

PAIRS = (("msp", "energy"), ("msp", "vim"))


def gate(classifier: Classifier, rows: np.ndarray, s_id: str, s_ood: str, options: RuntimeOptions) -> Scorer:
    signals = classifier.signals(rows)
    data = FitData.of(signals, signals.logits.argmax(axis=1), classifier.head)
    return Scorer(fuse(classifier, fit_score(s_id, None, data), fit_score(s_ood, None, data)).model, options)


def turns(calls: list[Callable[[], object]], rounds: int, repeats: int) -> list[list[float]]:
    """Seconds a call of each, in turns."""
    times: list[list[float]] = [[] for _ in calls]
    for round_ in range(rounds + 1):
        for spent, call in zip(times, calls, strict=True):
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            if round_:  # the first round warms up
                spent.append((time.perf_counter() - start) / repeats)
    return times


def compare(name: str, model: onnx.ModelProto, shape: tuple[int, ...], batch: int, rounds: int, repeats: int) -> None:
    rng = np.random.default_rng(0)
    options = RuntimeOptions(provider="cpu", threads=1)
    classifier = Classifier.open(model)
    fit_rows = rng.normal(size=(600 if batch == 1 else 96, *shape)).astype(np.float32)
    x = rng.normal(size=(batch, *shape)).astype(np.float32)
    bare = Session(model, options)
    for s_id, s_ood in PAIRS:
        scorer = gate(classifier, fit_rows, s_id, s_ood, options)
        plain, fused = turns(
            [lambda: bare.run(x, bare.outputs), lambda scorer=scorer: scorer.session.run(x, scorer.GATE)],  # type: ignore[misc]
            rounds,
            repeats,
        )
        base, cost = statistics.median(plain), statistics.median(f - p for p, f in zip(plain, fused, strict=True))
        print(
            f"{name:10} batch {batch:3}  {s_id} + {s_ood:7} bare {base * 1e6:12.1f} µs   "
            f"gate {cost * 1e6:+10.1f} µs   {100 * cost / base:+6.2f} %"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print("goal: ResNet-18 at batch 32 ≤ 3 %; tiny MLP at batch 1 ≤ 10 µs; one thread")
    compare("tiny MLP", tiny_mlp(), (32,), 1, rounds * 10, 500)
    compare("ResNet-18", resnet18(), (3, 224, 224), 32, rounds, 1)


if __name__ == "__main__":
    main()
