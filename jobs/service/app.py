"""The HTTP interface: the contract's two paths, removal of a job, health and figures.

Answers to wrong requests have the contract's codes: 400 for what is no request, 422 for one that cannot be carried out,
409 for another request of the same name, 507 for one that does not fit, 429 while too many wait. The guide lists all.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from indexmill.formats.errors import BudgetError, IndexmillError
from indexmill.jobs.service.access import TokenAccess
from indexmill.jobs.service.counted import CountedAnswers
from indexmill.jobs.service.metrics import MEDIA_TYPE, Metrics
from indexmill.jobs.service.queue import FAILED, Conflict, Limits, Queue, QueueFull
from indexmill.jobs.service.request import BuildRequest
from indexmill.jobs.service.runner import Runner, Settings
from indexmill.pipeline.hnsw.size import check_fits
from indexmill.pipeline.mill.disk_space import used_bytes
from indexmill.pipeline.urls.storage import check_name

#: Name that the contract's heart beat answers with.
SERVICE_NAME = "indexmill-serve-builds"
#: Bytes of the body of a request; those of OpenSearch take about 600.
MOST_BODY_BYTES = 16 << 10
#: Seconds after which a client may ask again while too many builds wait.
RETRY_SECONDS = 30
#: Seconds within which the body of a request is sent.
BODY_SECONDS = 30
#: Requests of builds that are judged or wait for it; judging one takes the interpreter alone, so that more would only
#: keep other answers waiting.
MOST_JUDGED = 8


class Service:
    """A queue with its runner, and what answers requests to them.

    Parameters
    ----------
    settings : Settings
    token : str, optional
        Without one, everyone who reaches the service may use it.
    limits : Limits, optional

    Attributes
    ----------
    app : Starlette
        The ASGI application, which starts and closes the runner.
    """

    def __init__(self, settings: Settings, token: str | None = None, limits: Limits | None = None) -> None:
        self._settings = settings
        self._queue = Queue(settings.jobs, limits)
        self._metrics = Metrics(self._queue)
        self._runner = Runner(self._queue, settings, self._metrics.ended)
        self._judge = ThreadPoolExecutor(1, "requests")
        self._judged = threading.BoundedSemaphore(MOST_JUDGED)
        routes = [
            Route("/_build", self._build, methods=["POST"]),
            Route("/_build/{job_id}", self._remove, methods=["DELETE"]),
            Route("/_status/{job_id}", self._status, methods=["GET"]),
            Route("/_heart_beat", self._heart_beat, methods=["GET"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/metrics", self._figures, methods=["GET"]),
        ]
        self.app = Starlette(
            routes=routes,
            middleware=[
                Middleware(CountedAnswers, metrics=self._metrics, routes=routes),
                *([] if token is None else [Middleware(TokenAccess, token=token)]),
            ],
            exception_handlers={HTTPException: _refused, Exception: _failed},
            lifespan=self._running,
        )
        self.app.router.redirect_slashes = False  # to a place of which the client's Host header is a part

    @asynccontextmanager
    async def _running(self, app: Starlette) -> AsyncIterator[None]:
        self._runner.start()
        try:
            yield
        finally:
            await run_in_threadpool(self._judge.shutdown, cancel_futures=True)
            await run_in_threadpool(self._runner.close)

    async def _build(self, request: Request) -> Response:
        body = await _body(request)
        try:
            wanted = BuildRequest.model_validate_json(body)
        except ValidationError as error:
            return _invalid(error)
        there = self._queue.get(wanted.job_id)
        if there is None or there.status == FAILED or there.request != wanted:
            await self._added(wanted)
        return JSONResponse({"job_id": wanted.job_id})

    async def _added(self, wanted: BuildRequest) -> None:
        """Have a request judged and put in the queue by the one thread that does so."""
        if not self._judged.acquire(blocking=False):
            raise _busy(f"{MOST_JUDGED} requests of builds are being judged; try again later")
        future = self._judge.submit(self._add, wanted)
        future.add_done_callback(lambda _: self._judged.release())
        await asyncio.wrap_future(future)

    def _add(self, wanted: BuildRequest) -> None:
        """Put a request in the queue, unless it does not fit."""
        s = self._settings
        try:
            if self._queue.find(wanted) is None:
                job = wanted.job(s.storage)
                check_name(job.storage, job.out)
                held = used_bytes(s.builds / wanted.job_id)
                freed = self._runner.written_bytes(wanted.job_id)
                check_fits(job, s.memory, s.workers, s.work, held, freed)
            self._queue.add(wanted)
        except BudgetError as error:
            raise HTTPException(507, str(error)) from None
        except IndexmillError as error:
            raise HTTPException(422, str(error)) from None
        except Conflict as error:
            raise HTTPException(409, str(error)) from None
        except QueueFull as error:
            raise _busy(str(error)) from None

    async def _remove(self, request: Request) -> Response:
        job_id = request.path_params["job_id"]
        job = await run_in_threadpool(self._queue.remove, job_id)
        if job is None:
            raise HTTPException(404, "Job not found")
        await run_in_threadpool(self._runner.stop, job)
        return JSONResponse({"job_id": job_id})

    async def _status(self, request: Request) -> Response:
        job = self._queue.get(request.path_params["job_id"])
        if job is None:
            raise HTTPException(404, "Job not found")
        return JSONResponse(
            {"task_status": job.status, "file_name": job.file_name, "error_message": job.error_message}
        )

    async def _heart_beat(self, request: Request) -> Response:
        return JSONResponse(SERVICE_NAME)

    async def _health(self, request: Request) -> Response:
        """Answer 200 while jobs are built, else 503."""
        failure = self._runner.failure
        if not self._runner.is_alive():
            status = "builds have stopped; start the service again"
        elif failure is not None:
            status = f"builds fail ({failure}), and are tried again; the log of the service says where"
        else:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": status}, 503)

    async def _figures(self, request: Request) -> Response:
        return Response(self._metrics.text(), media_type=MEDIA_TYPE)


async def _body(request: Request) -> bytes:
    """Return the body of a request, of which never more than its bound is in memory."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > MOST_BODY_BYTES:
                    raise HTTPException(400, f"body: over {MOST_BODY_BYTES:,} bytes; expected one request")
    except TimeoutError:
        raise HTTPException(408, f"body: not sent within {BODY_SECONDS} seconds; send it again") from None
    except ClientDisconnect:
        raise HTTPException(400, "body: the client went away before its end") from None
    return bytes(body)


def _busy(detail: str) -> HTTPException:
    return HTTPException(429, detail, {"Retry-After": str(RETRY_SECONDS)})


def _invalid(error: ValidationError) -> Response:
    """Return the answer to a body that is no request: its fields, and what is wrong with each."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    if any(problem["type"] == "json_invalid" for problem in problems):
        raise HTTPException(400, f"body: {problems[0]['msg']}; expected a JSON object")
    fields = [
        {"field": ".".join(map(str, problem["loc"])), "message": problem["msg"], "type": problem["type"]}
        for problem in problems
    ]
    return JSONResponse({"detail": "Validation Error", "errors": fields}, 422)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": "Internal Server Error"}, 500)
