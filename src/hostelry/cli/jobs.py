"""`hostelry jobs`: asynchronous requests, batches and transform jobs."""

import typer

from hostelry.cli.job_requests import cancel_job, drop_job, list_jobs, retry_job, show_job
from hostelry.cli.job_watch import watch

jobs = typer.Typer(
    help="Show asynchronous requests, batches and transform jobs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
jobs.command("list", short_help="Show asynchronous requests, their queues, and batches.")(list_jobs)
jobs.command("show", short_help="Show one asynchronous request or batch.")(show_job)
jobs.command("cancel", short_help="Cancel a batch.")(cancel_job)
jobs.command("retry", short_help="Run a failed asynchronous request again.")(retry_job)
jobs.command("drop", short_help="Forget an asynchronous request.")(drop_job)
jobs.command("watch", short_help="Show the progress of a transform job or a batch.")(watch)
