"""``python -m benchmarks [NAME]``: run every benchmark, or only NAME, at its short setting."""

import argparse
import importlib.util
import subprocess
import sys

NAMES = (
    "start_platform",
    "gateway_overhead",
    "shadow",
    "console",
    "pipelines",
    "keys_and_objects",
    "permission_cost",
    "store",
    "audit",
    "job_queue",
    "kernels",
    "forward",
    "llm_server",
    "token_cost",
    "llm_batches",
    "jobs",
    "multi_lora",
    "merged_adapter",
    "many_adapters",
    "fairness",
    "cold_start",
    "copy_start",
    "shared_cpus",
    "packing",
    "multi_model_trace",
    "multi_model",
    "routing",
    "gateway_hosts",
    "scale_out",
    "detection_study",
    "rollout_verdict",
    "serverless",
    "cost_day",
    "ray_data",
    "rollout",
    "graphs",
    "control_scale",
)


def main() -> None:
    """Run each benchmark in a separate process. The exit code is 0 if all of them succeeded."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=NAMES, help="one benchmark; default all")
    name = parser.parse_args().name
    present = [it for it in NAMES if importlib.util.find_spec(f"benchmarks.{it}")]
    failed = [it for it in ([name] if name else present) if not succeeds(it)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def succeeds(name: str) -> bool:
    """Whether the benchmark of that name ran to its end."""
    print(f"== {name}", flush=True)
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode == 0


if __name__ == "__main__":
    main()
