"""How far the runs of a store have come, what was computed of them, and what people say of their answers.

Triggers count (see the tables of each kind), so none of this takes longer for a run of a million trials.
"""

from __future__ import annotations

from upskill.runs.planning.plan import Trial
from upskill.runs.stores.database import Database, repeatable
from upskill.runs.stores.rows import Progress, Review, Run, Tally, escape_surrogates, timestamp
from upskill.version import __version__


class SqlProgress(Database):
    def tally(self, run: Run) -> list[Tally]:
        query = "SELECT model, arm, passed, failed, errored FROM progress WHERE run = ?"
        return [Tally(*row) for row in self._rows(query, run.number)]

    def progress(self, run: Run) -> list[Progress]:
        rows = self._rows(
            "SELECT model, arm, passed, failed, errored, tokens, cost_usd, unpriced FROM progress WHERE run = ?",
            run.number,
        )
        return [Progress(*row, cost_usd=None if unpriced else cost) for *row, cost, unpriced in rows]

    def revision(self, run: Run | None = None) -> int:
        rows = self._rows("SELECT revision FROM revisions WHERE run = ?", run.number if run else 0)
        return rows[0][0] if rows else 0

    def changed_runs(self, revision: int) -> list[str]:
        rows = self._rows(
            "SELECT runs.id FROM revisions JOIN runs ON runs.number = revisions.run WHERE revision > ?"
            " ORDER BY revision",
            revision,
        )
        return [row[0] for row in rows]

    # Summaries.

    def summary(self, run: Run) -> tuple[int, str] | None:
        query = "SELECT revision, document FROM summaries WHERE run = ? AND version = ?"
        rows = self._rows(query, run.number, __version__)
        return rows[0] if rows else None

    @repeatable
    def keep_summary(self, run: Run, revision: int, document: str) -> None:
        row = (run.number, revision, __version__, escape_surrogates(document))
        with self._transaction() as db:
            db.execute(
                "INSERT INTO summaries (run, revision, version, document) VALUES (?,?,?,?) ON CONFLICT (run) DO UPDATE"
                " SET revision = excluded.revision, version = excluded.version, document = excluded.document",
                row,
            )

    # Feedback.

    @repeatable
    def add_review(self, run: Run, review: Review) -> None:
        trial = review.trial
        row = (run.number, trial.case, trial.model, trial.seed, trial.arm)
        said = (review.verdict, escape_surrogates(review.note), review.created or timestamp())
        with self._transaction() as db:
            db.execute(
                "INSERT INTO feedback (run, case_id, model, seed, arm, verdict, note, created) VALUES (?,?,?,?,?,?,?,?)"
                " ON CONFLICT (run, case_id, model, seed, arm) DO UPDATE SET"
                " verdict = excluded.verdict, note = excluded.note, created = excluded.created",
                (*row, *said),
            )

    @repeatable
    def remove_review(self, run: Run, trial: Trial) -> None:
        with self._transaction() as db:
            db.execute(
                "DELETE FROM feedback WHERE run = ? AND case_id = ? AND model = ? AND seed = ? AND arm = ?",
                (run.number, trial.case, trial.model, trial.seed, trial.arm),
            )

    def reviews(self, run: Run) -> list[Review]:
        rows = self._rows(
            "SELECT model, case_id, arm, seed, verdict, note, created FROM feedback WHERE run = ?"
            " ORDER BY case_id, model, seed, arm",
            run.number,
        )
        return [Review(Trial(*row[:4]), *row[4:]) for row in rows]
