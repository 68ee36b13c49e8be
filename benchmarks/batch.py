"""Claims of batch scoring, measured side by side in one run.

1. Tensor input: at least 95 % of the raw `session.run` throughput at the same batch and threads (CNN).
2. JPEG files: at least 80 % of raw on a ResNet-18 when decoding fits the other core.
3. 10 million rows of a tiny MLP from Parquet stay below 600 MB of RSS.
4. A run killed with SIGKILL redoes at most one part.
5. Inference in threads against processes: the measurement behind the choice of threads.

Raw and job take turns, so that a noisy machine disturbs both alike. `--quick` shrinks everything for a smoke test.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from zoo import resnet18, small_cnn, tiny_mlp

from models.build import Recipe, build
from models.bundle import Bundle
from models.inputs import ImageInput
from service.batch import Job, Wishes, run

GATE = ["label", "s_id", "s_ood", "finite"]
IMAGENET = ImageInput(
    height=224, width=224, resize=256, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), interpolation="bilinear"
)


@dataclass(frozen=True)
class Scale:
    cnn_rows: int
    photos: int
    mlp_rows: int
    kill_rows: int
    rounds: int


FULL = Scale(cnn_rows=6144, photos=512, mlp_rows=10_000_000, kill_rows=3_000_000, rounds=5)
QUICK = Scale(cnn_rows=1024, photos=32, mlp_rows=400_000, kill_rows=400_000, rounds=1)


def make_bundle(folder: Path, name: str, model: onnx.ModelProto, image: ImageInput | None = None) -> Bundle:
    """A real bundle around a random model, fitted on noise."""
    rng = np.random.default_rng(0)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    classes = model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    if image is None:
        x = rng.normal(size=(256, *shape)).astype(np.float32)
    else:
        x = rng.integers(0, 255, (16, image.height, image.width, image.channels), np.uint8)
    np.savez(folder / f"{name}.npz", x=x, y=np.arange(len(x)) % classes)
    onnx.save(model, folder / f"{name}.onnx")
    recipe = Recipe(s_id="msp", s_ood="energy", name=name, image=image)
    return build(folder / f"{name}.onnx", folder / f"{name}.npz", folder / name, recipe)


def raw_rate(bundle: Bundle, x: np.ndarray, batch: int, workers: int) -> float:
    """Items a second of `session.run` alone, on arrays that are already in memory."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    session = ort.InferenceSession(str(bundle.model_path), settings, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    session.run(GATE, {name: x[:batch]})
    starts = iter(range(0, len(x) - batch + 1, batch))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                start = next(starts, None)
            if start is None:
                return
            session.run(GATE, {name: x[start : start + batch]})

    return len(x) // batch * batch / seconds_of(lambda: in_threads(work, workers))


def in_threads(work: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def seconds_of(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def job_rate(bundle: Bundle, data: Path, out: Path, batch: int, workers: int) -> float:
    """Items a second of a whole job, from the first read to the last part on disk."""
    wishes = Wishes(batch=batch, part_rows=batch * 16, workers=workers)
    job = Job(bundle.path, str(data), out, no_policy=True, overwrite=True, quiet=True, wishes=wishes, provider="cpu")
    rate: float = run(job).summary["run"]["rows_per_second"]
    return rate


def side_by_side(title: str, goal: float, rounds: int, raw: Callable[[], float], job: Callable[[], float]) -> float:
    """Print raw and job and their ratio; the raw rate."""
    turns = [(*with_cpu(raw), *with_cpu(job)) for _ in range(rounds)]
    ratio = statistics.median(turn[2] / turn[0] for turn in turns)
    cpu = statistics.median(turn[3] / turn[1] for turn in turns)
    a, b = (statistics.median(turn[i] for turn in turns) for i in (0, 2))
    print(
        f"{title:46} raw {a:8,.1f}/s  job {b:8,.1f}/s  {100 * ratio:6.1f} % (goal {100 * goal:.0f} %), "
        f"CPU time {100 * cpu - 100:+.1f} %",
        flush=True,
    )
    return a


def with_cpu(rate: Callable[[], float]) -> tuple[float, float]:
    before = time.process_time()
    found = rate()
    return found, time.process_time() - before


def tensors(folder: Path, scale: Scale) -> None:
    bundle = make_bundle(folder, "cnn", small_cnn())
    x = np.random.default_rng(1).normal(size=(scale.cnn_rows, 3, 32, 32)).astype(np.float32)
    np.save(folder / "cnn.npy", x)
    for workers in (1, 2):
        side_by_side(
            f"CNN, tensors, batch 64, {workers} inference thread(s)",
            0.95,
            scale.rounds,
            lambda workers=workers: raw_rate(bundle, x, 64, workers),  # type: ignore[misc]
            lambda workers=workers: job_rate(bundle, folder / "cnn.npy", folder / "cnn-out", 64, workers),  # type: ignore[misc]
        )


def photos(folder: Path, count: int) -> Path:
    """JPEG files of 500 × 375, the usual size of a photo on the web."""
    target = folder / "photos"
    target.mkdir()
    rng = np.random.default_rng(2)
    for i in range(count):
        coarse = Image.fromarray(rng.integers(0, 255, (47, 63, 3), np.uint8))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(target / f"{i:05d}.jpg", quality=88)
    return target


def jpegs(folder: Path, scale: Scale) -> None:
    bundle = make_bundle(folder, "resnet18", resnet18(), IMAGENET)
    files = photos(folder, scale.photos)
    encoded = [path.read_bytes() for path in sorted(files.iterdir())]
    spent = seconds_of(lambda: [IMAGENET.decode(data) for data in encoded])
    x = np.stack([IMAGENET.decode(data) for data in encoded])
    raw = side_by_side(
        "ResNet-18, JPEG, batch 8, 1 inference thread",
        0.80,
        scale.rounds,
        lambda: raw_rate(bundle, x, 8, 1),
        lambda: job_rate(bundle, files, folder / "resnet-out", 8, 1),
    )
    decode = len(encoded) / spent
    bound = "inference" if raw < decode else "decoding"
    print(
        f"{'':4}one core decodes {decode:,.0f}/s and infers {raw:,.1f}/s: with a core for each, {bound} bounds the job"
    )


def write_rows(path: Path, rows: int, inputs: int = 32) -> None:
    rng = np.random.default_rng(3)
    chunk = 100_000
    schema = pa.schema([("x", pa.list_(pa.float32(), inputs)), ("key", pa.int64())])
    with pq.ParquetWriter(path, schema, compression="none") as writer:
        for start in range(0, rows, chunk):
            n = min(chunk, rows - start)
            x = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(n * inputs, np.float32)), inputs)
            writer.write_table(pa.table([x, pa.array(np.arange(start, start + n))], schema=schema))


def start(bundle: Bundle, data: Path, out: Path, *more: str) -> "subprocess.Popen[str]":
    line = [sys.executable, "-c", "from service.cli import main; main()", "score", str(bundle.path), str(data)]
    return subprocess.Popen(
        [*line, "--out", str(out), "--no-policy", "--json", *more], stdout=subprocess.PIPE, text=True
    )


def watch(process: "subprocess.Popen[str]") -> int:
    """The largest RSS seen from outside until the process ends."""
    most = 0
    while process.poll() is None:
        try:
            most = max(most, psutil.Process(process.pid).memory_info().rss)
        except psutil.Error:
            break
        time.sleep(0.02)
    return most


def many_rows(folder: Path, bundle: Bundle, scale: Scale) -> None:
    write_rows(folder / "rows.parquet", scale.mlp_rows)
    size = (folder / "rows.parquet").stat().st_size
    process = start(bundle, folder / "rows.parquet", folder / "rows-out")
    most = watch(process)
    summary: dict[str, Any] = json.loads(process.communicate()[0])
    course = summary["run"]
    print(
        f"MLP, {summary['counts']['rows']:,} rows of {size / 1e9:.1f} GB Parquet: {course['rows_per_second']:,.0f}/s "
        f"in {course['seconds']:.0f} s, batch {course['batch']}, parts of {course['part_rows']:,}; "
        f"RSS {most / 1e6:.0f} MB (goal < 600 MB)",
        flush=True,
    )
    (folder / "rows.parquet").unlink()


def killed(folder: Path, bundle: Bundle, scale: Scale) -> None:
    write_rows(folder / "kill.parquet", scale.kill_rows)
    out = folder / "kill-out"
    part = 32_768
    options = ("--batch-size", "1024", "--part-rows", str(part))
    process = start(bundle, folder / "kill.parquet", out, *options)
    while process.poll() is None and len(list(out.glob("part-*"))) < 5:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    finished = len(list(out.glob("part-*")))
    again = json.loads(start(bundle, folder / "kill.parquet", out, *options).communicate()[0])
    kept = again["run"]["resumed_parts"]
    print(
        f"killed after {finished} of {-(-scale.kill_rows // part)} parts: {kept} kept, {max(0, finished - kept)} done "
        f"again besides the one at hand (goal at most 1); complete: {again['counts']['rows']:,} rows",
        flush=True,
    )


def in_processes(bundle: Bundle, halves: list[Path], folder: Path, batch: int) -> float:
    """Two jobs at once, each with one thread and half of the rows; the slower one counts, start-up does not."""
    options = ("--batch-size", str(batch), "--part-rows", str(batch * 16), "--workers", "1", "--overwrite")
    jobs = [start(bundle, half, folder / f"half-{i}", *options) for i, half in enumerate(halves)]
    done = [json.loads(job.communicate()[0]) for job in jobs]
    rows = sum(summary["counts"]["rows"] for summary in done)
    slowest: float = max(summary["run"]["seconds"] for summary in done)
    return rows / slowest


def threads_or_processes(folder: Path, mlp: Bundle, scale: Scale) -> None:
    cnn = Bundle.open(folder / "cnn")
    x = np.load(folder / "cnn.npy")
    rows = np.random.default_rng(4).random((scale.cnn_rows * 100, 32), np.float32)
    for name, bundle, data, batch in (("CNN", cnn, x, 64), ("MLP", mlp, rows, 8192)):
        np.save(folder / "all.npy", data)
        halves = [folder / "first.npy", folder / "second.npy"]
        for path, half in zip(halves, np.array_split(data, 2), strict=True):
            np.save(path, half)
        pairs = [
            (
                job_rate(bundle, folder / "all.npy", folder / "threads", batch, 2),
                in_processes(bundle, halves, folder, batch),
            )
            for _ in range(scale.rounds)
        ]
        threads, processes = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(
            f"{name}, npy, two workers: threads {threads:,.0f}/s, processes {processes:,.0f}/s "
            f"(threads reach {100 * threads / processes:.0f} %)",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["tensors", "jpegs", "rows", "kill", "workers"])
    asked = parser.parse_args()
    scale = QUICK if asked.quick else FULL
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as name:
        folder = Path(name)
        mlp = make_bundle(folder, "mlp", tiny_mlp())
        if asked.only in (None, "tensors", "workers"):
            tensors(folder, scale)
        if asked.only in (None, "jpegs"):
            jpegs(folder, scale)
        if asked.only in (None, "rows"):
            many_rows(folder, mlp, scale)
        if asked.only in (None, "kill"):
            killed(folder, mlp, scale)
        if asked.only in (None, "workers"):
            threads_or_processes(folder, mlp, scale)


if __name__ == "__main__":
    main()
