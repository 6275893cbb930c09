"""A Serve deployment that is unhealthy exactly where the sidecar says that its model is not alive."""

from __future__ import annotations

from ray import serve
from starlette.requests import Request

import guard
from guard.adapters.ray import ServeHealth


@serve.deployment(health_check_period_s=10, health_check_timeout_s=30)
class Model(ServeHealth):
    """Stands in for a model."""

    async def __call__(self, request: Request) -> str:
        """Answer, unless memory is critical."""
        with guard.admit():
            return request.query_params.get("prompt", "").upper()


app = Model.bind()
