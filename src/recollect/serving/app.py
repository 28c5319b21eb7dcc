"""The server of the page: an ASGI application on 127.0.0.1, guarded, with the routes of `routes`."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn
from fastapi import APIRouter, FastAPI

from recollect.serving.guard import Guard, own_hosts
from recollect.serving.live import Live
from recollect.serving.routes import inspection_routes, page_routes

ADDRESS = "127.0.0.1"


def create_app(live: Live, port: int, routers: tuple[APIRouter, ...] = ()) -> FastAPI:
    """Return the application; `routers` are those of others that are to stand beside the page's."""
    app = FastAPI(title="recollect", docs_url=None, redoc_url=None, openapi_url=None)
    for router in (page_routes(), inspection_routes(live), *routers):
        app.include_router(router)
    app.add_middleware(Guard, hosts=own_hosts(port), notice=live.notice)
    return app


def listen(port: int, address: str = ADDRESS) -> socket.socket:
    """Return a socket that listens; port 0 is any that is free. Raise an `OSError` for one in use."""
    found = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((address, port))
        found.listen(1024)
    except OSError:
        found.close()
        raise
    return found


def serve(live: Live, sock: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve on a socket until Ctrl-C; `ready` is called with the page's address before the first request."""
    port = sock.getsockname()[1]
    server = server_of(live, port)
    ready(f"http://{ADDRESS}:{port}/")
    server.run(sockets=[sock])


def server_of(live: Live, port: int) -> uvicorn.Server:
    """Return a server of the page; `should_exit` ends it."""
    return uvicorn.Server(
        uvicorn.Config(create_app(live, port), log_level="warning", access_log=False, server_header=False)
    )
