"""Drives a scheduler without a model. Checks every plan. Loads take steps, and requests end."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostelry.engine.pages.adapters import AdapterState
from hostelry.engine.pages.unified import PagePool
from hostelry.engine.scheduler.decisions import Plan, SchedulerLimits, Submission
from hostelry.engine.scheduler.planner import Scheduler
from hostelry.engine.scheduler.tenants import TenantPolicies, TenantPolicy

STEP_S = 0.01


def scheduler(
    num_pages: int = 64, tenants: TenantPolicies | None = None, **limits: float | None
) -> Scheduler:
    return limited(num_pages, limits, tenants)


def limited(
    num_pages: int, limits: Mapping[str, float | None], tenants: TenantPolicies | None = None
) -> Scheduler:
    fields: dict[str, Any] = {"max_batch_size": 8, "max_batched_tokens": 64, "page_tokens": 4}
    return Scheduler(SchedulerLimits(**fields | dict(limits)), PagePool(num_pages), tenants)


def weights(**values: float) -> TenantPolicies:
    return TenantPolicies(table={name: TenantPolicy(weight=it) for name, it in values.items()})


@dataclass
class Request:
    submission: Submission
    end_at: int  # the request ends at this number of tokens
    num_tokens: int
    submitted_step: int
    owner: str  # whose service counts its tokens
    num_computed: int = 0
    num_charged: int = 0
    started_step: int | None = None
    first_token_step: int | None = None


@dataclass
class Drive:
    """Loads are reported after `fetch_steps` and `upload_steps`. Keys in `broken` fail."""

    scheduler: Scheduler
    fetch_steps: int = 1
    upload_steps: int = 1
    check_every: int = 1
    broken: set[str] = field(default_factory=set)
    now: float = 0.0
    num_steps: int = 0
    live: dict[str, Request] = field(default_factory=dict)
    done: dict[str, Request] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)  # number of ends of each request
    reasons: dict[str, str] = field(default_factory=dict)
    service: Counter[str] = field(default_factory=Counter)  # charged tokens of tenants
    counts: Counter[str] = field(default_factory=Counter)
    pending: list[tuple[int, str, str]] = field(default_factory=list)  # due step, what, adapter
    hosted: set[str] = field(default_factory=set)

    def submit(
        self,
        name: str,
        prompt: int = 4,
        output: int = 4,
        *,
        tenant: str = "t",
        adapter: str | None = None,
        adapter_pages: int = 2,
        keys: tuple[bytes, ...] = (),
        deadline_at: float | None = None,
        end_at: int | None = None,
        owner: str | None = None,
    ) -> None:
        submission = Submission(
            id=name,
            tenant=tenant,
            num_prompt_tokens=prompt,
            max_tokens=prompt + output,
            adapter=adapter,
            adapter_pages=0 if adapter is None else adapter_pages,
            reload_cost_s=0.0 if adapter is None else 0.01,
            prefix_keys=keys,
            deadline_at=deadline_at,
        )
        self.scheduler.submit(submission, self.now)
        end = submission.max_tokens if end_at is None else end_at
        self.live[name] = Request(submission, end, prompt, self.num_steps, owner or tenant)

    def cancel(self, name: str) -> None:
        before = len(self.scheduler.pages(name))
        self.scheduler.remove(name, self.now)
        assert not self.scheduler.pages(name), f"{before} pages are kept after a cancel"
        self._end(name, "cancelled")

    def step(self, look: Callable[[Plan], None] | None = None) -> Plan:
        """Make one step. `look` is called between planning and computing."""
        self._report_loads()
        plan = self.scheduler.plan(self.now)
        self._take(plan)
        if look is not None:
            look(plan)
        self._check(plan)
        self.scheduler.commit(plan, self.now + STEP_S / 2)
        for chunk in plan.chunks:
            self._advance(chunk.request_id, chunk.start, chunk.length, chunk.samples)
        if self.num_steps % self.check_every == 0:
            self.scheduler.check_integrity()
        self.num_steps += 1
        self.now += STEP_S
        return plan

    def steps(self, number: int) -> None:
        for _ in range(number):
            self.step()

    def finish(self, within: int = 100_000) -> None:
        for _ in range(within):
            if not self.live:
                return
            self.step()
        raise AssertionError(f"{len(self.live)} requests never ended: {sorted(self.live)[:5]}")

    @property
    def running(self) -> set[str]:
        return {name for name in self.live if self.scheduler.pages(name)}

    def check_conserved(self) -> None:
        """Assert that every request ended once, and that every page is available again."""
        pool = self.scheduler.pool
        self.scheduler.check_integrity()
        assert not self.live
        assert set(self.ended.values()) <= {1}, "a request ended twice"
        loading = sum(
            len(pool.adapter_pages(key)) for _, what, key in self.pending if what == "upload"
        )
        assert pool.num_available + loading + pool.num_pinned_pages == pool.num_pages

    def _report_loads(self) -> None:
        due = [it for it in self.pending if it[0] <= self.num_steps]
        self.pending = [it for it in self.pending if it[0] > self.num_steps]
        for _, what, key in due:
            if key in self.broken:
                self.hosted.discard(key)
                self.counts["failed"] += 1
                for name in self.scheduler.fail_adapter(key, self.now):
                    self._end(name, "failed")
            elif what == "fetch":
                self.hosted.add(key)
                self.scheduler.note_in_host(key)
            else:
                self.scheduler.note_uploaded(key)

    def _take(self, plan: Plan) -> None:
        pool = self.scheduler.pool
        on_the_way = {(what, key) for _, what, key in self.pending}
        for name in plan.expired:
            assert self.live[name].first_token_step is None, "dropped after its first token"
            self._end(name, "expired")
        for name in plan.preempted:
            self.live[name].num_computed = 0
            assert not self.scheduler.pages(name)
        for key in plan.fetches:
            assert key not in self.hosted, f"{key} is in host memory and fetched"
            assert ("fetch", key) not in on_the_way, f"{key} is fetched twice"
            self.pending.append((self.num_steps + self.fetch_steps, "fetch", key))
        for upload in plan.uploads:
            assert upload.adapter in self.hosted, f"{upload.adapter} is uploaded from nowhere"
            assert pool.adapter_state(upload.adapter) is AdapterState.LOADING
            assert pool.adapter_pages(upload.adapter) == upload.pages
            self.pending.append((self.num_steps + self.upload_steps, "upload", upload.adapter))
        self.counts["preempted"] += len(plan.preempted)
        self.counts["fetched"] += len(plan.fetches)
        self.counts["uploaded"] += len(plan.uploads)
        self.counts["evicted"] += len(pool.take_evicted())

    def _check(self, plan: Plan) -> None:
        limits, pool = self.scheduler.limits, self.scheduler.pool
        names = [chunk.request_id for chunk in plan.chunks]
        assert len(names) == len(set(names)) <= limits.max_batch_size
        assert sum(chunk.length for chunk in plan.chunks) <= limits.max_batched_tokens
        adapters = {self.live[name].submission.adapter for name in names} - {None}
        assert limits.max_adapters is None or len(adapters) <= limits.max_adapters
        for key in adapters:
            assert key is not None
            assert pool.adapter_state(key) is AdapterState.RESIDENT, f"{key} is not there"
        for chunk in plan.chunks:
            request = self.live[chunk.request_id]
            if chunk.start != request.num_computed:
                assert request.num_computed == 0, "a token is skipped or repeated"
                assert chunk.start % limits.page_tokens == 0, "a part of a page was cached"
                self.counts["cached"] += chunk.start
            end = chunk.start + chunk.length
            assert chunk.length >= 1
            assert end <= request.num_tokens
            assert chunk.samples == (end == request.num_tokens)
            held = len(self.scheduler.pages(chunk.request_id))
            assert held * limits.page_tokens >= end, "tokens without a page"
        if not (plan.chunks or plan.preempted or self.pending):
            assert not self.live, f"nothing is planned; {len(self.live)} requests are there"

    def _advance(self, name: str, start: int, length: int, samples: bool) -> None:
        request = self.live[name]
        tenant = request.owner
        if request.started_step is None:
            request.started_step = self.num_steps
        if request.num_charged < start and not request.num_computed:
            request.num_charged = start
        request.num_computed = start + length
        prompt = min(request.num_computed, request.submission.num_prompt_tokens)
        self.service[tenant] += max(0, prompt - request.num_charged)
        request.num_charged = max(request.num_charged, prompt)
        if not samples:
            return
        self.service[tenant] += 2
        if request.first_token_step is None:
            request.first_token_step = self.num_steps
        request.num_tokens += 1
        if request.num_tokens >= request.end_at:
            self.scheduler.remove(name, self.now)
            self._end(name, "finished")

    def _end(self, name: str, reason: str) -> None:
        self.done[name] = self.live.pop(name)
        self.ended[name] += 1
        self.reasons[name] = reason


def zipf_choice(rng: random.Random, number: int, power: float = 1.2) -> int:
    """A random number below `number`. Small numbers are more frequent."""
    shares = [1 / (rank + 1) ** power for rank in range(number)]
    return rng.choices(range(number), shares)[0]
