"""The example report: the embedded bundle with its active policy, judged on samples that neither has seen.

python -m service.example_report --out report.html
"""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from calibration.table import ScoreTable
    from models.bundle import Bundle

GROUPS = ("id", "near", "far")
TITLE = "Eight kinds of clothing, and what is none of them"


def scored_samples(bundle: "Bundle", split: str = "test") -> "ScoreTable":
    """The score table of an embedded split: known classes, held-out classes (near), drawings and textures (far)."""
    import numpy as np

    from calibration.table import ScoreTable
    from models.fashion import samples_path

    scorer = bundle.scorer()
    parts = []
    for group in GROUPS:
        with np.load(samples_path(split) / f"{group}.npz") as held:
            x, y, ids = held["x"], held["y"], held["id"]
        scored = scorer.score(bundle.manifest.input.validate_batch(x), probabilities=True)
        parts.append(
            ScoreTable.from_columns(
                s_id=np.where(scored.finite, scored.s_id, np.nan),
                s_ood=np.where(scored.finite, scored.s_ood, np.nan),
                prediction=scored.label,
                label=y,
                is_id=y >= 0,
                group=np.full(len(y), group),
                id=ids,
                probabilities=scored.probabilities,
            )
        )
    return ScoreTable.concat(parts)


@click.command()
@click.option("--out", type=click.Path(dir_okay=False), default="report.html", show_default=True, help="The page.")
@click.option("--json", "document", type=click.Path(dir_okay=False), help="The same as a JSON document.")
@click.option("--bootstrap", type=click.IntRange(0), help="Resamples behind the intervals.")
def command(out: str, document: str | None, bootstrap: int | None) -> None:
    """Write the example report of the embedded default.

    Example: python -m service.example_report --out report.html
    """
    from calibration.report import NamedTable, Request, affordable_resamples, analyse, write_report
    from models.bundle import Bundle
    from models.fashion import bundle_path
    from service.policies import find_policy

    bundle = Bundle.open(bundle_path())
    policy, table = find_policy(bundle), scored_samples(bundle)
    named = NamedTable("embedded test sample", table, bundle.manifest.classes)
    analysis = analyse(
        Request(
            tables=[named],
            policy=policy,
            policy_source=f"policy {policy.name} of bundle {bundle.manifest.name} {bundle.manifest.version}",
            title=TITLE,
            bootstrap=affordable_resamples(table) if bootstrap is None else bootstrap,
            command="make report",
        )
    )
    write_report(analysis, out, document)
    for sentence in analysis.document.verdict:
        click.echo(sentence)
    click.echo(f"{out} is ready; open it in a browser.")


if __name__ == "__main__":
    command()
