"""The pages: what a run, a curate job or a ledger came to, and the group scorer. Both are single files that open offline.

source    the ledger and what lies around it
folds     the figures, as folds over the ledger; reasons and suspects likewise
browser   the groups that one can leaf through
charts    Vega-Lite specifications, by Altair
page      templates to one self-contained file; how hostile text stays text
run, lab  the two pages
"""

from __future__ import annotations

from pathlib import Path

from tossup.curriculum.report import page, run
from tossup.curriculum.report.source import default_page, locate


def write(run_folder: Path, out: Path, pool: Path | None = None) -> None:
    """Write the page of a run folder, a curate job's folder or a ledger to `out`; `pool` names where its prompts are.

    Raises:
        TossupError: there is no ledger, or it is empty, or the disk refused.
    """
    page.save(run.html(locate(run_folder, pool)), out)


__all__ = ["default_page", "write"]
