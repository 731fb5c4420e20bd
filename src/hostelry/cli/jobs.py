"""`hostelry jobs`: asynchronous requests and transform jobs."""

import typer

from hostelry.cli.job_requests import drop_job, list_jobs, retry_job, show_job
from hostelry.cli.transform_watch import watch

jobs = typer.Typer(
    help="Look at asynchronous requests, and follow transform jobs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
jobs.command("list", short_help="Show asynchronous requests and their queues.")(list_jobs)
jobs.command("show", short_help="Show one asynchronous request.")(show_job)
jobs.command("retry", short_help="Run a failed asynchronous request again.")(retry_job)
jobs.command("drop", short_help="Forget an asynchronous request.")(drop_job)
jobs.command("watch", short_help="Show a transform job's progress until it is over.")(watch)
