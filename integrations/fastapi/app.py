"""A server that sheds load and gives memory back while the sidecar says that memory is short."""

from __future__ import annotations

from functools import lru_cache

from fastapi import FastAPI

import guard
from guard.adapters.asgi import GuardMiddleware

app = FastAPI()
app.add_middleware(GuardMiddleware)
guard.relieve("malloc_trim", "page_cache")


@lru_cache(maxsize=256)
def answer_to(prompt: str) -> str:
    """Stand in for a model whose answers are worth keeping."""
    return prompt.upper()


@guard.on_pressure("critical")
def forget(_notice: object) -> None:
    """Give up what can be made again."""
    answer_to.cache_clear()


@app.get("/generate")
def generate(prompt: str) -> dict[str, str]:
    """Answer."""
    return {"answer": answer_to(prompt)}


@app.get("/health")
def health() -> dict[str, str]:
    """Say that the server is up; the middleware lets this through whatever happens."""
    return {"status": "ok"}
